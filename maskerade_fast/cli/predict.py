"""``maskerade-fast predict``: from a model and a table to a prediction for every row."""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np

from ..run.heartbeat import ticking
from ..storage.csv_files import read_table
from ..storage.output_checks import check_outputs
from .columns import matched, noted, parsed_names
from .console import Session
from .report import count, scores, write_predictions


def predict(options: argparse.Namespace, session: Session) -> int:
    """Run the command; notes go to standard error because standard output may hold the predictions."""
    from ..posterior.posterior import load

    inputs = [options.model, options.data]
    check_outputs({"--predictions": options.predictions}, inputs)
    post = load(options.model)
    columns, names = parsed_names(options.columns), post.columns
    expected = columns or (names.features if names.has_header else None) or ()
    table = read_table(options.data, header=options.header, expected=expected)
    n_dims = post.mixtures.n_dims
    selection, how = matched(table, names, n_dims, columns, options.target)
    if selection.target is not None and selection.target in table.problems:  # rows to be forecast may have words there
        session.note(f"There are no scores: {table.problems[selection.target]}")
        selection = dataclasses.replace(selection, target=None)
    X, y = selection.X(post.standardiser.x_origin), selection.y()
    whole = selection.whole()
    for line in (*noted(table), how):
        if line:
            session.note(line)
    if not whole.all():
        session.note(f"{count(int((~whole).sum()), 'row')} with missing inputs: kept, without a prediction.")
    with ticking(lambda: session.note(f"Predicting {count(len(y), 'row')}."), every=30.0):
        write_predictions(options.predictions or session.data_writer(), post, selection, np.arange(len(y)))
    scored = whole & np.isfinite(y)
    if scored.any():
        for line in scores(post, post.predict(X[scored]), X[scored], y[scored]):
            session.note(line)
    elif selection.target is not None:
        session.note(f"No row has both its inputs and {selection.target_name}: there are no scores.")
    return 0
