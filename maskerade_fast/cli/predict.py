"""``maskerade-fast predict``: a model and a table in; a prediction for every row out."""

from __future__ import annotations

import argparse

import numpy as np

from ..console import Session
from ..output_files import check_outputs
from ..tables import read_table
from .columns import matched, noted, parsed_names
from .report import count, scores, write_predictions


def predict(options: argparse.Namespace, session: Session) -> int:
    """Run the command; notes go to standard error, for standard output may hold the predictions."""
    from ..posterior import load

    check_outputs({"--predictions": options.predictions}, [options.model, options.data])
    post = load(options.model)
    table = read_table(options.data, header=options.header)
    n_dims = post.mixtures.n_dims
    selection, how = matched(table, post.columns, n_dims, parsed_names(options.columns), options.target)
    X, y = selection.X(), selection.y()
    whole = selection.whole()
    for line in (*noted(table), how):
        if line:
            session.note(line)
    if not whole.all():
        session.note(f"{count(int((~whole).sum()), 'row')} with missing inputs: kept, without a prediction.")
    write_predictions(options.predictions or session.data_stream(), post, selection, np.arange(len(y)))
    known = whole & np.isfinite(y)
    if known.any():
        for line in scores(post, post.predict(X[known]), X[known], y[known]):
            session.note(line)
    elif selection.target is not None:
        session.note(f"No row has both its inputs and {selection.target_name}: there are no scores.")
    return 0
