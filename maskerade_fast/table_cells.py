"""Cells of a table: numbers, missing ones and text, separators of decimals and thousands, and which row holds names."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from ._text import listed

_MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?"})
_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?")
# One mark before exactly three digits: 1,234 is 1234 to some and 1.234 to others
_UNSURE = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}")
# Blanks (also those that do not break), apostrophes, or one of comma and point several times or before the other
_GROUPS = re.compile(
    r"[+-]?[0-9]{1,3}(?:(?:[ '’\u00a0\u2009\u202f][0-9]{3})+(?:[.,][0-9]*)?"
    r"|(?:,[0-9]{3}){2,}(?:\.[0-9]*)?|(?:\.[0-9]{3}){2,}(?:,[0-9]*)?|(?:,[0-9]{3})+\.[0-9]*|(?:\.[0-9]{3})+,[0-9]*)"
)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_CURRENCIES = "$€£¥₹"
# Integers that may be years, as names of columns
_FIRST_YEAR, _LAST_YEAR = 1500, 2200
# Years from one name to the next; numbers farther apart may well be measured
_MOST_YEARS_APART = 10


def number(cell: str) -> float:
    """The finite number that `cell` is; ValueError otherwise."""
    value = float(cell)
    if not math.isfinite(value) or "_" in cell:  # Python reads 1_000, no CSV means it
        raise ValueError(cell)
    return value


def is_missing(cell: str) -> bool:
    """True for a stripped cell that says that there is no number."""
    return cell.lower() in _MISSING


def is_number(cell: str) -> bool:
    """True for a stripped cell that is a finite number, with a decimal comma or without."""
    try:
        _value(cell)
    except ValueError:
        return False
    return True


def has_decimal_comma(cell: str) -> bool:
    """True for a stripped cell that is a number if its only comma is a decimal one."""
    return _COMMA.fullmatch(cell) is not None


def is_unsure(cell: str) -> bool:
    """True for digits of which a comma or a point may separate decimals or thousands, as in 1,234."""
    return _UNSURE.fullmatch(cell) is not None


def looks_like_thousands(cell: str) -> bool:
    """True for a number whose thousands are certainly separated, as in 1 234, 1'234 or 1,234.5."""
    return _GROUPS.fullmatch(cell) is not None


def is_text(cell: str) -> bool:
    """True for a stripped cell that is neither missing nor a number, with a decimal comma or without."""
    return not is_missing(cell) and not is_number(cell)


def cure(cell: str) -> str:
    """What to do about a cell that is no number, with a semicolon before it, or nothing."""
    if looks_like_thousands(cell):
        return "; write thousands without separators and decimals with a point"
    bare = cell.strip("%‰ \u00a0" + _CURRENCIES)
    if bare != cell and (is_number(bare) or looks_like_thousands(bare)):
        return "; write the number alone, without a sign of percent or currency"
    if is_number(cell.replace("\u2212", "-")):
        return "; write minus as -"
    return ""


def header(rows: Sequence[Sequence[str]], line: int) -> tuple[bool, str]:
    """Whether the first of some rows of stripped cells holds names, and a note where that is not plain.

    A row holds names if it has no number, or if below one of its texts there are numbers, or nothing but missing cells;
    text above text of the same shape, as of dates, is data, and so is a number with separators of thousands. A row of
    numbers holds names if they are 0, 1, 2, ... beside an empty corner, or different dates, or years not far apart, and
    every column goes on far from them.

    Parameters
    ----------
    rows : sequence of rows
        All of one length; the first ones of the table.
    line : int
        Of the first, for the note.
    """
    first = rows[0]
    below = [_below(rows, k) for k in range(len(first))]
    filled = [k for k, cell in enumerate(first) if not is_missing(cell)]
    texts = [k for k in filled if not _is_like_number(first[k])]
    names = [cell or f"column {k + 1}" for k, cell in enumerate(first)]
    named = f"line {line} was taken as names ({listed(names)}); --header no takes it as data"
    data = f"line {line} was taken as data, not as names; --header yes takes it as names"
    if not texts:
        if not all(is_number(first[k]) for k in filled):
            return False, data if len(rows) > 1 else ""
        if _names_in_numbers(first, filled, below):
            return True, named
        return False, data if filled and _may_be_names(first, filled, below) else ""
    if texts == filled:
        alike = all(below[k] and _alike(first[k], below[k][0]) for k in texts)
        return not alike, data if alike else ""
    if any(below[k] and not is_text(below[k][0]) for k in texts) or not any(below[k] for k in texts):
        return True, named
    return False, "" if all(_alike(first[k], below[k][0]) for k in texts if below[k]) else data


def _below(rows: Sequence[Sequence[str]], k: int) -> list[str]:
    """Cells of column k in all rows but the first that are not missing."""
    return [row[k] for row in rows[1:] if not is_missing(row[k])]


def _names_in_numbers(first: Sequence[str], filled: Sequence[int], below: Sequence[Sequence[str]]) -> bool:
    """True where a row of numbers and missing cells cannot well be data."""
    if not filled or not all(_INTEGER.fullmatch(first[k]) for k in filled):
        return False
    values = [int(first[k]) for k in filled]
    if len(filled) < len(first):
        if filled != list(range(1, len(first))) or not below[0]:
            return False
        if values in (list(range(len(values))), list(range(1, len(values) + 1))):
            return True  # beside an empty corner, as above the index of a data frame
    span = max(values) - min(values)
    dates = all(map(_like_date, values)) and len(set(values)) == len(values)
    if not dates or len(first) == 1 or (values[0] <= _LAST_YEAR and span > _MOST_YEARS_APART * len(values)):
        return False
    return any(below[k] for k in filled) and all(_far(first[k], below[k]) for k in filled if below[k])


def _may_be_names(first: Sequence[str], filled: Sequence[int], below: Sequence[Sequence[str]]) -> bool:
    """True where a row of numbers in order may be names: no column goes on as it began."""
    steps = [float(_value(first[b]) - _value(first[a])) for a, b in itertools.pairwise(filled)]
    if not (all(step > 0.0 for step in steps) or all(step < 0.0 for step in steps)):
        return False
    return any(below) and all(_is_apart(first[k], below[k]) for k in filled if below[k])


def _is_apart(cell: str, column: Sequence[str]) -> bool:
    """True for an integer above numbers with decimals, a year above none, or a number far from those below it."""
    if _INTEGER.fullmatch(cell):
        integers = [int(c) for c in column if _INTEGER.fullmatch(c)]
        if not integers or (_like_date(int(cell)) and not any(map(_like_date, integers))):
            return True
    return _far(cell, column)


def _far(cell: str, column: Sequence[str]) -> bool:
    """True if a number is farther from those below it than they are from each other, or if they are text."""
    values = [_value(c) for c in column if not is_text(c)]
    if not values:
        return True
    low, high, value = min(values), max(values), _value(cell)
    return len(values) > 1 and max(low - value, value - high) > high - low


def _like_date(value: int) -> bool:
    """True for integers as 2024, 202401 and 20240131."""
    if _FIRST_YEAR <= value <= _LAST_YEAR:
        return True
    month, day = (value // 100, value % 100) if value > 10**7 else (value, 1)
    return _FIRST_YEAR <= month // 100 <= _LAST_YEAR and 1 <= month % 100 <= 12 and 1 <= day <= 31


def _is_like_number(cell: str) -> bool:
    """True for a number, and for what was meant as one: with separators of thousands, a currency, infinite."""
    if is_number(cell) or looks_like_thousands(cell) or (cure(cell) and not cell.endswith("%")):
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _alike(cell: str, other: str) -> bool:
    """True for two texts with digits that differ in digits and words only, as dates do."""
    shapes = [re.sub(r"[^\W\d_]+", "a", re.sub(r"[0-9]+", "0", text)) for text in (cell, other)]
    return "0" in shapes[0] and shapes[0] == shapes[1]


def _value(cell: str) -> float:
    return number(cell.replace(",", ".") if has_decimal_comma(cell) else cell)
