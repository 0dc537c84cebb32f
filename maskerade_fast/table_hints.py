"""What columns of numbers look like that a user may not have meant: dates as integers, running numbers, constants."""

from __future__ import annotations

import numpy as np

from ._checks import Array
from ._text import quoted

# Fewer integers may look like dates by chance
_LEAST_DATES = 5
_FIRST_YEAR, _LAST_YEAR = 1500, 2200
# Digits after year and month: day, day with hour and minute, day with hour, minute and second
_FORMS = {6: "", 8: "d", 12: "dhm", 14: "dhms"}
_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def looks_like_dates(values: Array, name: str) -> str | None:
    """A note on a column of integers as 202401, 20240131, 202401311200 or 20240131120000, else None.

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
        not evenly spaced.
    """
    numbers = np.unique(values[np.isfinite(values)])
    if len(numbers) < _LEAST_DATES or numbers[0] < 10**5 or numbers[-1] >= 10**14 or (numbers % 1.0).any():
        return None
    integers = numbers.astype(np.int64)
    digits = len(str(integers[0]))
    steps = np.diff(integers)
    if digits not in _FORMS or len(str(integers[-1])) != digits or (steps == steps[0]).all():
        return None
    form = _FORMS[digits]
    parts = {}
    for part in reversed(form):
        integers, parts[part] = np.divmod(integers, 100)
    year, month = np.divmod(integers, 100)
    if not _all_between(year, _FIRST_YEAR, _LAST_YEAR) or not _all_between(month, 1, 12):
        return None
    if form:
        leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
        last = _DAYS[month - 1] + (leap & (month == 2))
        if not _all_between(parts["d"], 1, last):
            return None
    if not all(_all_between(parts[part], 0, most) for part, most in (("h", 23), ("m", 59), ("s", 59)) if part in parts):
        return None
    unit = "days" if form else "months"
    return (
        f"column {quoted(name)} holds integers like {numbers[0]:.0f}, which look like dates; "
        f"they are taken as numbers: differences between them are not {unit}"
    )


def running_number(values: Array) -> bool:
    """True for a column that only counts the rows: 1, 2, 3, ... or 0, 1, 2, ... in every row, of at least two."""
    return len(values) > 1 and values[0] in (0.0, 1.0) and bool((values == values[0] + np.arange(len(values))).all())


def is_constant(values: Array) -> bool:
    """True for a column with one number in all rows that have one, of at least two."""
    known = values[np.isfinite(values)]
    return len(known) > 1 and bool((known == known[0]).all())


def runs_backwards(values: Array) -> bool:
    """True for numbers that fall down the file, or stay, and fall once at least; missing ones are passed over."""
    steps = np.diff(values[np.isfinite(values)])
    return bool(len(steps)) and bool((steps <= 0.0).all() and (steps < 0.0).any())


def _all_between(values: Array, low: int, high: int | Array) -> bool:
    return bool(((values >= low) & (values <= high)).all())
