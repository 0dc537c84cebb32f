"""Columns of numbers that may need another look: dates as integers, running numbers, constants, missing values."""

from __future__ import annotations

import re

import numpy as np

from ..._checks import Array
from ..._text import quoted

# Fewer integers may look like dates by chance: for forms that begin with year and month, and for others
_LEAST_DATES, _LEAST_OTHERS = 5, 12
# Integers in this range may be years
FIRST_YEAR, LAST_YEAR = 1500, 2200
# A narrower range for forms that integers match by chance more often
_FIRST_RECENT, _LAST_RECENT = 1900, 2100
# Digits after year and month: day, day with hour and minute, day with hour, minute and second
_FORMS = {6: "", 8: "d", 12: "dhm", 14: "dhms"}
_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
# Numbers that programs write for missing ones, besides nines: NetCDF, climate models, 16 and 32 bits
_FILLS = (1e20, 1e30, 1e35, 1e36, 9.969209968386869e36, 32767.0, 2147483647.0, 2147483648.0, 32768.0)
_NINES = re.compile(r"9{2,}(\.9*0*)?")
_UNNAMED = re.compile(r"Unnamed: [0-9]+")


def looks_like_dates(values: Array, name: str) -> str | None:
    """A note on a column of integers that are dates, else None.

    Forms are 202401, 20240131, 202401311200 and 20240131120000; of 12 numbers or more also 240131, 31012024,
    01312024 (day and month in either order), 2024031 (day of the year), 202405 (week) and 20241 (quarter).

    Parameters
    ----------
    values : array, shape (N,)
        NaN where a cell is missing.
    name : str
        Of the column, for the note.

    Returns
    -------
    note : str or None
        One line, if there are at least 5 different numbers, all valid dates of the years 1500 to 2200 in one form, and
        not evenly spaced; for the other forms, 12 of the years 1900 to 2100, and several months or years.
    """
    numbers = np.unique(values[np.isfinite(values)])
    if len(numbers) < _LEAST_DATES or numbers[0] < 10**4 or numbers[-1] >= 10**14 or (numbers % 1.0).any():
        return None
    integers = numbers.astype(np.int64)
    steps = np.diff(integers)
    if (steps == steps[0]).all():
        return None
    unit = _unit_of_dates(integers) or (_unit_of_others(integers) if len(numbers) >= _LEAST_OTHERS else "")
    if not unit:
        return None
    return (
        f"column {quoted(name)} holds integers like {numbers[0]:.0f}, which look like dates; "
        f"they are taken as numbers: differences between them are not {unit}"
    )


def _unit_of_dates(integers: Array) -> str:
    """Days or months for dates that begin with the year and the month; else nothing."""
    digits = len(str(integers[0]))
    if digits not in _FORMS or len(str(integers[-1])) != digits:
        return ""
    form, parts = _FORMS[digits], {}
    for part in reversed(form):
        integers, parts[part] = np.divmod(integers, 100)
    year, month = np.divmod(integers, 100)
    if not _all_between(year, FIRST_YEAR, LAST_YEAR) or not _all_between(month, 1, 12):
        return ""
    if form and not _are_days(year, month, parts["d"]):
        return ""
    if not all(_all_between(parts[part], 0, most) for part, most in (("h", 23), ("m", 59), ("s", 59)) if part in parts):
        return ""
    return "days" if form else "months"


def _unit_of_others(integers: Array) -> str:
    """Days, weeks or quarters for dates in the other forms; else nothing."""
    if integers[-1] < 10**6:  # 240131, or 50131 for 2005
        year, month, day = integers // 10**4, integers // 100 % 100, integers % 100
        if np.ptp(integers // 100) > 0 and _are_days(2000 + year, month, day):
            return "days"
    elif integers[0] >= 10**6 and integers[-1] < 10**8:  # 1012024 for 01012024
        first, second, year = integers // 10**6, integers // 10**4 % 100, integers % 10**4
        recent = _all_between(year, _FIRST_RECENT, _LAST_RECENT)
        if recent and (_are_days(year, first, second) or _are_days(year, second, first)):
            return "days"
    for power, most, unit in ((1000, 366, "days"), (100, 53, "weeks"), (10, 4, "quarters")):
        year, part = np.divmod(integers, power)
        if _all_between(year, _FIRST_RECENT, _LAST_RECENT) and np.ptp(year) > 0 and _all_between(part, 1, most):
            return unit
    return ""


def _are_days(year: Array, month: Array, day: Array) -> bool:
    if not _all_between(month, 1, 12):
        return False
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return _all_between(day, 1, _DAYS[month - 1] + (leap & (month == 2)))


def sentinel(values: Array) -> float | None:
    """A number that seems to stand for a missing one, as -9999, -99.9, 999.9 or 1e20; else None.

    It is the least or the greatest of at least three different numbers. It consists of nines (three, or two after a
    minus) or is a number that programs write for missing ones. It is farther from the others than they are from each
    other, unless it is negative with three nines or more and the others are all positive.

    Parameters
    ----------
    values : array, shape (N,)
        NaN where a cell is missing.
    """
    numbers = np.unique(values[np.isfinite(values)])
    if len(numbers) < 3:
        return None
    for extreme, rest in ((numbers[0], numbers[1:]), (numbers[-1], numbers[:-1])):
        size = f"{abs(extreme):.10g}" if abs(extreme) < 1e10 else ""
        nines = _NINES.fullmatch(size) is not None and (extreme < 0.0 or size.count("9") > 2)
        if not nines and not any(abs(abs(extreme) / fill - 1.0) < 1e-6 for fill in _FILLS):
            continue
        apart = min(abs(extreme - rest[0]), abs(extreme - rest[-1])) > rest[-1] - rest[0]
        if apart or (nines and extreme <= -999.0 and rest[0] >= 0.0):
            return float(extreme)
    return None


def is_unnamed(name: str, k: int) -> bool:
    """True for a name of column k that this package or pandas made up: "column 1", "Unnamed: 0"."""
    return name == f"column {k + 1}" or _UNNAMED.fullmatch(name) is not None


def running_number(values: Array) -> bool:
    """True for a column that only counts the rows: 1, 2, 3, ... or 0, 1, 2, ... in every row, of at least two."""
    return len(values) > 1 and values[0] in (0.0, 1.0) and bool((values == values[0] + np.arange(len(values))).all())


def is_constant(values: Array) -> bool:
    """True for a column with one number in all rows that have one, of at least two."""
    numbers = values[np.isfinite(values)]
    return len(numbers) > 1 and bool((numbers == numbers[0]).all())


def runs_backwards(values: Array) -> bool:
    """True for numbers that decrease down the file, at least once, and never increase; missing ones are skipped."""
    steps = np.diff(values[np.isfinite(values)])
    return bool(len(steps)) and bool((steps <= 0.0).all() and (steps < 0.0).any())


def _all_between(values: Array, low: int, high: int | Array) -> bool:
    return bool(((values >= low) & (values <= high)).all())
