"""Predictions as rows of a CSV file: one for every input row, also for those that could not be predicted."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal

import numpy as np

from .._checks import Array
from ..model.inputs import Inputs
from ..ops.mixture_prediction import Prediction

_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
_LABELS = ("mean", "sd", *(f"q{round(100 * q):02d}" for q in _LEVELS))
_DIGITS = Context(prec=60)  # more digits than an origin and a number have together


def prediction_lines(
    inputs: Inputs,
    names: Sequence[str],
    prediction: Prediction,
    predicted: Array,
    actual: Array | None = None,
    target: str = "target",
) -> Iterator[str]:
    """Lines of CSV text: a header, then for each row its inputs, its actual target, mean, sd and five quantiles.

    Parameters
    ----------
    inputs : Inputs of M rows and D columns
        NaN where a cell was missing.
    names : D str
        Of the inputs.
    prediction : Prediction of P points
    predicted : array of bool, shape (M,)
        True for the P rows of `prediction`; the cells of the others are empty.
    actual : array, shape (M,), optional
        Targets; NaN where they are missing.
    target : str
        Name of that column.

    Yields
    ------
    str
        Each line with its line feed. Numbers are written to the last bit, inputs with all their original digits.
    """
    header = [*distinct([*names, *([target] if actual is not None else [])])]
    yield _line([*header, *_labels(header)])
    place = 0
    columns = [prediction.mean, np.sqrt(prediction.variance), *prediction.quantile(_LEVELS)]
    numbers = np.stack(columns, axis=1)
    for m in range(len(inputs)):
        cells = [_cell(*pair) for pair in zip(inputs.numbers[m], inputs.origins, strict=True)]
        if actual is not None:
            cells.append(_cell(actual[m], 0.0))
        if predicted[m]:
            cells += [repr(float(number)) for number in numbers[place]]
            place += 1
        else:
            cells += [""] * len(_LABELS)
        yield _line(cells)


def distinct(names: Sequence[str]) -> Iterator[str]:
    """The names, with a number appended to those that repeat."""
    used = set(names)
    taken: set[str] = set()
    for name in names:
        new, count = name, 1
        while new in taken or (new != name and new in used):
            count += 1
            new = f"{name} {count}"
        taken.add(new)
        yield new


def _labels(names: Sequence[str]) -> list[str]:
    """Names of the columns of predictions that no input and target has."""
    labels = list(_LABELS)
    while set(labels) & set(names):
        labels = [f"predicted {label}" for label in labels]
    return labels


def _cell(number: float, origin: float) -> str:
    """origin + number in full; empty for a missing number."""
    if math.isnan(number):
        return ""
    if origin == 0.0:
        return repr(float(number))
    exact = _DIGITS.add(Decimal(origin), Decimal(repr(float(number))))
    return f"{exact.normalize(_DIGITS):f}"


def _line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
