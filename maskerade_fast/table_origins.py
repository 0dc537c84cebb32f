"""Columns whose digits float64 does not hold: exact decimal numbers less an origin, rounded once."""

from __future__ import annotations

import decimal
import math
from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np

from ._checks import Array

# Characters of a cell whose digits float64 does not hold; a longer one is refused
MOST_DIGITS = 1000
# Rounding of numbers, relative to the range of their column, from which on an origin is taken off
_ROUNDING = 1e-12
# Spacings of float64 numbers between the numbers of a column from which on text may be that of float64 numbers: of so
# many digits, or so near to one, in spacings
_WIDE, _MOST_WRITTEN, _NEAR = 1000.0, 17, 0.1
# From here on float64 skips integers
_WHOLE = 2.0**53
_EXACT = decimal.Context(
    prec=4000,  # of numbers up to 1.8e308 with `MOST_DIGITS` digits, all
    Emax=10_000,
    Emin=-10_000,
    traps=[decimal.InvalidOperation, decimal.Inexact, decimal.Overflow],
)


def far_columns(values: Array, skipped: Container[int]) -> dict[int, float]:
    """Origin, an integer at or below the least number, of every column in which float64 may lose digits that matter.

    These are columns farther from 0 than twice their range, with numbers from 2^53 on, or whose rounding in float64 is
    more than 1e-12 of their range.
    """
    origins = {}
    for k in range(values.shape[1]):
        known = values[:, k][~np.isnan(values[:, k])]
        if k in skipped or not len(known):
            continue
        low, high = float(known.min()), float(known.max())
        largest, spread = max(-low, high), high - low
        rounding = float(np.finfo(np.float64).eps) * largest
        if 2.0 * spread < largest and (largest >= _WHOLE or rounding > _ROUNDING * spread):
            origins[k] = float(math.floor(low))
    return origins


def exact_differences(
    rows: Iterable[tuple[int, Sequence[str]]], values: Array, origins: Mapping[int, float]
) -> tuple[dict[int, Array], dict[int, tuple[int, str]]]:
    """Differences of the cells of some columns from the columns' origins.

    Parameters
    ----------
    rows : iterable of line and cells
        N rows.
    values : array, shape (N, K)
        The same cells as float64; NaN where one is missing.
    origins : mapping of int to float
        As `far_columns` gives them.

    Returns
    -------
    differences : dict of int to array of shape (N,)
        Of the columns with a number that has more digits than float64, or numbers from 2^53 on, that are not constant.
    too_long : dict of int to line and text of a cell
        First cell of a column that has too many digits for this.
    """
    offsets = {k: decimal.Decimal(origin) for k, origin in origins.items()}
    differences = {k: np.full(len(values), np.nan) for k in origins}
    too_long: dict[int, tuple[int, str]] = {}
    inexact: set[int] = set()
    steps = {k: float(np.nanmax(values[:, k]) - np.nanmin(values[:, k])) / len(values) for k in origins}
    last: dict[int, tuple[str, float]] = {}  # cell before, and its difference: constants cost less
    for i, (line, cells) in enumerate(rows):
        for k, offset in offsets.items():
            value = float(values[i, k])
            if math.isnan(value) or k in too_long:
                continue
            cell = cells[k].strip()
            if k in last and cell == last[k][0]:
                differences[k][i] = last[k][1]
                continue
            if len(cell) > MOST_DIGITS:
                too_long[k] = (line, cell)
                continue
            exact = decimal.Decimal(cell.replace(",", "."))
            if k not in inexact and _is_longer(exact, value, steps[k]):
                inexact.add(k)
            differences[k][i] = difference = float(_EXACT.subtract(exact, offset))
            last[k] = (cell, difference)
    kept = [k for k in origins if k not in too_long and (k in inexact or abs(origins[k]) >= _WHOLE)]
    # a constant is served by its own digits
    varying = {k: differences[k] for k in kept if np.nanmin(differences[k]) < np.nanmax(differences[k])}
    return varying, too_long


def _is_longer(exact: decimal.Decimal, value: float, step: float) -> bool:
    """Whether a number has digits that its float64 `value` lacks: 0.1 has not, though it is no float64 number.

    `step` is the mean distance of the column's numbers. Where it is thousands of spacings of float64 numbers, text of
    up to 17 digits, or next to a float64 number, may well be how a program wrote one, and is taken for it.
    """
    if exact == decimal.Decimal(repr(value)):
        return False
    spacing = math.ulp(value)
    if step < _WIDE * spacing:
        return True
    digits = len(exact.normalize(_EXACT).as_tuple().digits)
    return digits > _MOST_WRITTEN and abs(exact - decimal.Decimal(value)) > decimal.Decimal(_NEAR * spacing)
