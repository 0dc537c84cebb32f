"""``maskerade-fast fit``: from a table to evidence, scores, predictions, a picture and a model."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import Array, generator
from .._text import listed, shortened
from ..errors import DataError, UsageError
from ..model.data import RegressionData
from ..run import defaults
from ..run.heartbeat import heartbeat, ticking
from ..run.likelihood_time import foretold
from ..storage.csv_files import read_table
from ..storage.csv_files.hints import runs_backwards
from ..storage.output_checks import check_outputs
from .columns import Selection, chosen, noted, parsed_names, remarks
from .console import Session
from .report import count, scores, summary, write_predictions

if TYPE_CHECKING:
    from ..model.inputs import Inputs
    from ..posterior.posterior import Posterior


COMPILING = "Compiling for this machine, once."


def fit(options: argparse.Namespace, session: Session) -> int:
    """Run the command; returns the exit status."""
    session.quiet = options.quiet
    say: Callable[[str], None] = _silent if options.quiet else print
    _check_options(options)
    outputs = {f"--{name}": getattr(options, name) for name in ("plot", "predictions", "save", "checkpoint")}
    check_outputs(outputs, [options.data])
    columns = parsed_names(options.columns)
    expected = [*(columns or ()), *([options.target] if options.target is not None else [])]
    table = read_table(options.data, header=options.header, expected=expected)
    selection = chosen(table, columns, options.target)
    X, y = selection.X(), selection.y(every_digit=True)
    whole = selection.whole()
    usable = np.flatnonzero(whole & np.isfinite(y))
    if len(usable) == 0:
        roles = f"{listed(selection.input_names)} and {shortened(selection.target_name)}"
        raise DataError(f"{table.path}: no row has all of {roles}{_nothing(selection)}")
    train, test = _split_rows(usable, options.test_fraction, options.split, options.seed)
    for line in (*noted(table), *_left_aside(whole, y), *remarks(selection, whole)):
        say(line)
    if len(test) and options.split == "last":
        for line in _disorder(selection, usable):
            say(line)
    say(_roles_line(selection, train, test, options.split))

    budget = options.budget if options.minutes is None else None
    if long := foretold(RegressionData(X.numbers[train], y[train], options.trend or defaults.TREND), budget):
        session.note(long)
    start = time.perf_counter()
    post = _marginalised(X[train], y[train], options, session)
    seconds = time.perf_counter() - start
    session.result_is_there()
    post = dataclasses.replace(post, columns=selection.names)
    with ticking(lambda: session.note("Predicting and writing."), every=30.0):
        return _report(post, selection, (train, test), seconds, options, session)


def _check_options(options: argparse.Namespace) -> None:
    """Refuse options that are wrong for any table."""
    if options.panels and not options.plot:
        raise UsageError("--panels: what --plot shows, but there is no --plot")
    if not 0.0 <= options.test_fraction < 1.0:
        raise UsageError(f"--test-fraction: {options.test_fraction}, expected at least 0 and below 1")
    if options.minutes is not None and not options.minutes > 0.0:
        raise UsageError(f"--minutes: {options.minutes:g}, expected more than 0")
    if options.checkpoint and options.test_fraction > 0.0 and options.split == "random" and options.seed is None:
        raise UsageError("--checkpoint: beside a random split expected --seed, else the rows differ at every start")


def _marginalised(X: Inputs, y: Array, options: argparse.Namespace, session: Session) -> Posterior:
    from ..backends import compile_ahead, compiling, gpu_problem
    from ..run.marginalise import marginalise

    bar = not options.quiet and sys.stderr.isatty()
    lines = _silent if bar else session.note
    if options.device == "cpu" or (options.device == "auto" and gpu_problem()):
        compile_ahead(X.numbers.shape[1], (lambda: session.note(COMPILING)) if bar else None)
    with heartbeat(
        lines, stop=lambda: session.interrupted, doing=lambda: COMPILING if compiling() else "Preparing."
    ) as beat:

        def row(newest: Any) -> bool:
            if not gc.isenabled():  # `_start` has switched the collector off while modules load
                gc.freeze()
                gc.enable()
            return beat(newest)

        return marginalise(
            X,
            y,
            max_components=options.max_components,
            budget=options.budget if options.minutes is None else None,
            time_budget=None if options.minutes is None else 60.0 * options.minutes,
            trend=options.trend,
            device=options.device,
            seed=options.seed,
            progress=bar,
            callback=row,
            checkpoint=options.checkpoint,
        )


def _report(
    post: Posterior,
    selection: Selection,
    rows: tuple[Array, Array],
    seconds: float,
    options: argparse.Namespace,
    session: Session,
) -> int:
    """Write the outputs, the model first, and print the result; if one output fails, the others are still written."""
    (train, test), X, y = rows, selection.X(), selection.y()
    say: Callable[[str], None] = _silent if options.quiet else print
    failures: list[DataError] = []
    written: list[str] = []

    def attempt(path: Path, write: Callable[[], Any]) -> None:
        try:
            write()
        except DataError as error:
            failures.append(error)
        except OSError as error:
            failures.append(DataError(f"{path}: cannot be written ({error.strerror or error})"))
        else:
            written.append(str(path))

    if options.save:
        attempt(options.save, lambda: post.save(options.save))
    if options.predictions:
        out = np.setdiff1d(np.arange(len(y)), train) if len(test) else np.arange(len(y))
        attempt(options.predictions, lambda: write_predictions(options.predictions, post, selection, out))
    for line in summary(post, seconds):
        say(line)
    if len(test):
        for line in scores(post, post.predict(X[test]), X[test], y[test]):
            say(line)
    for warning in post.warnings:
        say(f"Warning: {warning}.")
    if options.plot:
        attempt(options.plot, lambda: _plot(post, selection, train, test, options))
    if written:
        say(f"Wrote {', '.join(written)}.")
    for other in failures[1:]:
        session.warn(str(other))
    if failures:
        raise failures[0]
    return 0


def _plot(post: Posterior, selection: Selection, train: Array, test: Array, options: argparse.Namespace) -> None:
    from ..plotting import plot_fit, plot_panels

    X, y = selection.X(), selection.y()
    x_label = selection.input_names[0] if len(selection.inputs) == 1 else ""
    draw: Any = plot_panels if options.panels else plot_fit
    labels = {"x_label": x_label, "y_label": selection.target_name}
    draw(post, X[train], y[train], X[test], y[test], path=options.plot, **labels)


def _silent(_: str) -> None:
    pass


def _roles_line(selection: Selection, train: Array, test: Array, split: str) -> str:
    """One line on the numbers of rows and the roles of the columns."""
    table = selection.table
    header = "header in the first row" if table.has_header else "no header: columns go by their places"
    held_out = f"; {len(test)} held out ({split})" if len(test) else ""
    return (
        f"{table.path}: {count(len(train), 'row')} to learn {shortened(selection.target_name)} from "
        f"{listed(selection.input_names)} ({header}){held_out}."
    )


def _left_aside(whole: Array, y: Array) -> Iterator[str]:
    """Numbers of rows that cannot be learned from, with the reason."""
    blank = int((whole & np.isnan(y)).sum())
    if blank:
        yield f"{count(blank, 'row')} without a target: predicted, not learned from."
    if not whole.all():
        yield f"{count(int((~whole).sum()), 'row')} with missing inputs: neither learned from nor predicted."


def _nothing(selection: Selection) -> str:
    """The empty columns and the probable cause, for a message."""
    table = selection.table
    empty = [k for k in table.empty if k in (*selection.inputs, selection.target)]
    cause = "; do the lines end with a delimiter?" if empty and empty[-1] == len(table.names) - 1 else ""
    return f"; nothing is in {listed([table.names[k] for k in empty])}{cause}" if empty else ""


def _disorder(selection: Selection, rows: Array) -> Iterator[str]:
    """Notes if ``--split last`` holds out other rows than a reader would expect."""
    for k in selection.inputs:
        values, name = selection.table.values[rows, k], shortened(selection.table.names[k])
        if runs_backwards(values):
            yield f"Rows run backwards: {name} falls down the file, so --split last holds out its smallest values."
        elif len(selection.inputs) == 1 and (np.diff(values) < 0.0).any():
            yield f"Rows are not in the order of {name}; --split last holds out the last ones of the file all the same."


def _split_rows(rows: Array, fraction: float, kind: str, seed: int | None) -> tuple[Array, Array]:
    """Rows to learn from and rows to hold out, both in the order of the file."""
    n_rows = len(rows)
    n_out = max(1, round(fraction * n_rows)) if fraction > 0.0 else 0
    if n_out >= n_rows:
        raise UsageError(f"--test-fraction: {fraction} of {count(n_rows, 'row')} leaves none to learn from")
    order: Array = generator(seed).permutation(n_rows) if kind == "random" else np.arange(n_rows)
    return rows[np.sort(order[: n_rows - n_out])], rows[np.sort(order[n_rows - n_out :])]
