"""CSV files out: predictions as rows of numbers; every complaint is one line."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np

from ._checks import Array
from .errors import DataError
from .prediction import Prediction

_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def write_predictions(
    destination: str | os.PathLike[str] | TextIO,
    X: Array,
    names: Sequence[str],
    prediction: Prediction,
    actual: Array | None = None,
    target: str = "target",
) -> None:
    """Write a row a point: inputs, the actual target if known, mean, sd, 5, 25, 50, 75 and 95 % quantiles.

    Parameters
    ----------
    destination : path or text stream
    X : array, shape (M, D)
    names : D column names
    prediction : Prediction of M points
    actual : array, shape (M,), optional
        Written under the name `target`.

    Raises
    ------
    DataError
        If the file cannot be written.
    """
    known = [] if actual is None else [actual]
    columns = [*X.T, *known, prediction.mean, np.sqrt(prediction.variance), *prediction.quantile(_LEVELS)]
    header = [
        *names,
        *([target] if known else []),
        "mean",
        "sd",
        *(f"q{round(100 * q):02d}" for q in _LEVELS),
    ]
    try:
        with _opened(destination) as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(header)
            writer.writerows([[repr(float(cell)) for cell in row] for row in zip(*columns, strict=True)])
    except OSError as error:
        raise DataError(f"{destination}: cannot be written ({error.strerror or error})") from None


def _opened(destination: Any) -> contextlib.AbstractContextManager[TextIO]:
    if isinstance(destination, str | os.PathLike):
        return open(destination, "w", encoding="utf-8", newline="")
    return contextlib.nullcontext(destination)
