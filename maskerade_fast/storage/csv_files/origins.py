"""Columns with more digits than float64 holds: exact decimal numbers less an origin, rounded once, or refused.

A number x of a column is stored as d = round(x - origin); the origin is 0 unless the numbers are large compared to
their range. The rest, e = x - origin - d, must be small compared to the distances between the numbers, else the column
has lost digits.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..._checks import Array
from .cells import plain

# Most characters of a number with more digits than float64 holds; longer ones are refused
MOST_DIGITS = 1000
# An origin is subtracted where the rounding of numbers, relative to the range of their column, is larger
_ROUNDING = 1e-12
# If neighbours in a column are this many float64 spacings apart, text of at most so many digits may be how a program
# wrote a float64 number
_WIDE, _MOST_WRITTEN = 1000.0, 17
# Larger integers are not all float64 numbers
_WHOLE = 2.0**53
# A number of fewer characters has no more digits than float64 holds
_LEAST_LONG = 16
# Largest rounding, relative to the distance from the next number, of a single number
_MOST_ONCE = 1e-3
# The same for a share of the numbers, and this share
_MOST_OFTEN, _OFTEN = 1e-9, 0.1
_EXACT = decimal.Context(
    prec=4000,  # of numbers up to 1.8e308 with `MOST_DIGITS` digits, all
    Emax=10_000,
    Emin=-10_000,
    traps=[decimal.InvalidOperation, decimal.Inexact, decimal.Overflow],
)
_ROUNDED = decimal.Context(prec=4000, Emax=10_000, Emin=-10_000, traps=[decimal.InvalidOperation])


@dataclass(eq=False)
class ExactColumn:
    """The result of reading a column exactly.

    Attributes
    ----------
    origin : float
        An integer at or below the least number; 0 where none is needed.
    values : array, shape (N,), or None
        Numbers less the origin; None where they are float64 numbers without one.
    lost : int
        First row whose number less the origin lost digits that matter; -1 for none.
    lost_without : int
        The same without an origin.
    too_long : int
        First row whose number is longer than `MOST_DIGITS`; -1 for none.
    """

    origin: float = 0.0
    values: Array | None = None
    lost: int = -1
    lost_without: int = -1
    too_long: int = -1


def exact_number(cell: str) -> decimal.Decimal:
    """The number that a stripped cell is, with all its digits; a comma is a decimal one."""
    return decimal.Decimal(plain(cell).replace(",", "."))


def difference(cell: str, origin: decimal.Decimal) -> float:
    """A cell's number less `origin`, rounded once."""
    return float(_EXACT.subtract(exact_number(cell), origin))


def exact_columns(
    rows: Iterable[tuple[int, Sequence[str]]], values: Array, skipped: Container[int]
) -> dict[int, ExactColumn]:
    """Columns whose digits float64 alone may not hold, by their indices.

    An origin is taken off a column that is farther from 0 than twice its range and not constant, if a number has digits
    that float64 lacks, or if numbers from 2^53 on are written to the unit: later ones may then have such digits.

    Parameters
    ----------
    rows : iterable of line and cells
        N rows.
    values : array, shape (N, K)
        The same cells as float64; NaN where one is missing.
    skipped : container of int
        Columns that are left out.
    """
    origins = {k: _origin(values[:, k]) for k in range(values.shape[1]) if k not in skipped and _may_lose(values[:, k])}
    columns = {k: _Column(values[:, k], origin) for k, origin in origins.items()}
    if columns:
        for i, (_, cells) in enumerate(rows):
            for k, column in columns.items():
                column.add(i, cells[k])
    return {k: column.result() for k, column in columns.items()}


class _Column:
    """Exact numbers of one column, row by row."""

    def __init__(self, values: Array, origin: float) -> None:
        self.values, self.origin = values, origin
        self.rest = np.zeros(len(values))  # numbers less their float64 values
        self.from_first = np.zeros(len(values))  # long numbers less the first of them
        self.first: decimal.Decimal | None = None
        self.offset = decimal.Decimal(origin)
        self.far = origin != 0.0
        self.differences = np.full(len(values) if self.far else 0, np.nan)
        self.rest_of_differences = np.zeros(len(self.differences))
        self.step = float(np.nanmax(values) - np.nanmin(values)) / len(values)
        self.to_the_unit = False
        self.form = ""  # of the last cell that was long
        self.too_long = -1
        self.last = ("", -1)  # cell before, and its row: constants cost less

    def add(self, i: int, cell: str) -> None:
        value = float(self.values[i])
        cell = cell.strip()
        if math.isnan(value) or (not self.far and (len(cell) < _LEAST_LONG or self._is_printed(cell, value))):
            return
        if cell == self.last[0]:
            for array in (self.rest, self.from_first, self.differences, self.rest_of_differences):
                if len(array):
                    array[i] = array[self.last[1]]
            return
        self.last = (cell, i)
        if len(cell) > MOST_DIGITS:
            if self.far and self.too_long < 0:
                self.too_long = i
            return
        if value == 0.0:  # perhaps 1e-999999999999999999999, which decimal refuses
            return
        exact = exact_number(cell)
        full = abs(value) >= _WHOLE and int(exact.as_tuple().exponent) <= 0
        self.to_the_unit |= full
        is_long = _is_longer(exact, value, self.step, full)
        if is_long:
            self.rest[i] = float(_EXACT.subtract(exact, decimal.Decimal(value)))
            self.first = exact if self.first is None else self.first
            self.from_first[i] = float(_EXACT.subtract(exact, self.first))
        if self.far:
            shifted = _EXACT.subtract(exact, self.offset)
            self.differences[i] = float(shifted)
            if is_long:
                rest = _EXACT.subtract(shifted, decimal.Decimal(float(self.differences[i])))
                self.rest_of_differences[i] = float(rest)

    def _is_printed(self, cell: str, value: float) -> bool:
        """True for a float64 number as programs print it; a quick way for most columns."""
        if cell == format(value, self.form) or cell == repr(value):
            return True
        mantissa, exponent, _ = cell.partition("e")
        self.form = f".{len(mantissa.partition('.')[2])}{exponent or 'f'}"
        return cell == format(value, self.form)

    def result(self) -> ExactColumn:
        if self.too_long >= 0:
            return ExactColumn(too_long=self.too_long)
        is_long = bool(self.rest.any())
        without = _first_lost(self.values, self.rest, self.from_first) if is_long else -1
        # a constant is served by its own digits
        if self.far and (is_long or self.to_the_unit) and np.nanmin(self.differences) < np.nanmax(self.differences):
            lost = _first_lost(self.differences, self.rest_of_differences, self.from_first)
            return ExactColumn(self.origin, self.differences, lost, without)
        return ExactColumn(lost=without, lost_without=without)


def _may_lose(values: Array) -> bool:
    """Whether rounding by half a spacing can matter; a quick test without the text."""
    numbers = np.sort(values[~np.isnan(values)])
    if not len(numbers):
        return False
    if _origin(values) or numbers[0] == numbers[-1]:
        return bool(_origin(values))
    gaps = np.diff(numbers)
    nearest = np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf))
    rounding = 0.5 * np.spacing(np.abs(numbers))
    often = np.count_nonzero(rounding >= _MOST_OFTEN * nearest) >= _OFTEN * len(numbers)
    return bool(often or (rounding >= _MOST_ONCE * nearest).any())


def _origin(values: Array) -> float:
    """An integer at or below the least number where the numbers are large compared to their range; else 0."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    largest, spread = max(-low, high), high - low
    rounding = float(np.finfo(np.float64).eps) * largest
    if 2.0 * spread < largest and (largest >= _WHOLE or rounding > _ROUNDING * spread):
        return float(math.floor(low))
    return 0.0


def _first_lost(numbers: Array, rest: Array, from_first: Array) -> int:
    """First row whose rounding is too large compared to its distance from the next other number; -1 for none.

    The exact numbers are ``numbers + rest``, or where even these merge, `from_first` and one number of the column.
    """
    rows = np.flatnonzero(~np.isnan(numbers))
    order = rows[np.lexsort((from_first[rows], rest[rows], numbers[rows]))]
    steps, finer, finest = (np.diff(column[order]) for column in (numbers, rest, from_first))
    merged = (steps == 0.0) & (finer == 0.0)
    gaps = np.where(merged, finest, steps + finer)
    other = ~merged | (finest != 0.0)  # than the number before
    group = np.append(0, np.cumsum(other))
    between = np.concatenate([[np.inf], np.maximum(gaps[other], np.finfo(np.float64).tiny), [np.inf]])
    nearest = np.minimum(between[group], between[group + 1])
    moved = np.abs(rest[order]) / nearest
    for most, least in ((_MOST_ONCE, 0.0), (_MOST_OFTEN, _OFTEN * len(order))):
        late = order[moved > most]
        if len(late) and len(late) >= least:
            return int(late.min())
    return -1


def _is_longer(exact: decimal.Decimal, value: float, step: float, full: bool) -> bool:
    """Whether a number has digits that its float64 `value` lacks: 0.1 has none, though it is no float64 number.

    `step` is the mean distance of the column's numbers. Where it is thousands of float64 spacings, text of up to 17
    digits, or of the digits that `value` has, may be how a program wrote a float64 number, and is read as this. In a
    number of 2^53 or more that is written to the unit (`full`) all digits count: programs write a float64 number of
    this size with its own digits, or with an exponent.
    """
    own = decimal.Decimal(value)
    if exact == own:
        return False
    if full:
        return True
    if exact == decimal.Decimal(repr(value)):
        return False
    if step < _WIDE * math.ulp(value):
        return True
    if len(exact.normalize(_EXACT).as_tuple().digits) <= _MOST_WRITTEN:
        return False
    return own.quantize(exact, context=_ROUNDED) != exact
