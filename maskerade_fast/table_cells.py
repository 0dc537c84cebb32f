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
    return ""


def header(rows: Sequence[Sequence[str]], line: int) -> tuple[bool, str]:
    """Whether the first of some rows of stripped cells holds names, and a note where that is not plain.

    A row holds names if it has no number, or if below one of its texts there are numbers, or nothing but missing cells;
    text above text of the same shape, as of dates, is data. A row of numbers holds names if they are years in order,
    or 0, 1, 2, ... beside an empty corner, and no column goes on as it began.

    Parameters
    ----------
    rows : sequence of rows
        All of one length; the first ones of the table.
    line : int
        Of the first, for the note.
    """
    first = rows[0]
    below = [_below(rows, k) for k in range(len(first))]
    texts = [k for k, cell in enumerate(first) if is_text(cell)]
    names = [cell or f"column {k + 1}" for k, cell in enumerate(first)]
    named = f"line {line} was taken as names ({listed(names)}); --header no takes it as data"
    data = f"line {line} was taken as data, not as names; --header yes takes it as names"
    if not texts:
        if _names_in_numbers(first, below):
            return True, named
        return False, data if _may_be_names(first, below) else ""
    plain = not any(is_number(cell) for cell in first)
    if plain and not all(below[k] and _alike(first[k], below[k][0]) for k in texts):
        return True, ""
    if plain:
        return False, data
    if any(below[k] and not is_text(below[k][0]) for k in texts) or not any(below[k] for k in texts):
        return True, named
    return False, "" if all(_alike(first[k], below[k][0]) for k in texts if below[k]) else data


def _below(rows: Sequence[Sequence[str]], k: int) -> list[str]:
    """Cells of column k in all rows but the first that are not missing."""
    return [row[k] for row in rows[1:] if not is_missing(row[k])]


def _names_in_numbers(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """True where a row of numbers and missing cells cannot well be data."""
    filled = [k for k, cell in enumerate(first) if not is_missing(cell)]
    if not filled or not all(_INTEGER.fullmatch(first[k]) for k in filled):
        return False
    values = [int(first[k]) for k in filled]
    if filled == list(range(1, len(first))) and below[0]:  # an empty corner, as above the index of a data frame
        if values in (list(range(len(values))), list(range(1, len(values) + 1))):
            return True
    elif len(filled) < len(first):
        return False
    years = all(_FIRST_YEAR <= value <= _LAST_YEAR for value in values)
    return years and _in_order(values) and all(_far(first[k], below[k]) for k in filled)


def _may_be_names(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """True where a row of numbers may be names: integers in order, and no column goes on with integers near them."""
    if not all(_INTEGER.fullmatch(cell) for cell in first) or not all(below):
        return False
    decimals = [not any(_INTEGER.fullmatch(cell) for cell in column) for column in below]
    apart = (other or _far(cell, column) for cell, column, other in zip(first, below, decimals, strict=True))
    return _in_order([int(cell) for cell in first]) and all(apart)


def _in_order(values: Sequence[int]) -> bool:
    steps = [b - a for a, b in itertools.pairwise(values)]
    return all(step > 0 for step in steps) or all(step < 0 for step in steps)


def _far(cell: str, column: Sequence[str]) -> bool:
    """True if a number is farther from those below it than they are from each other, or if they are text."""
    if all(is_text(c) for c in column):
        return bool(column)
    values = [_value(c) for c in column if not is_text(c)]
    low, high = min(values), max(values)
    return len(values) > 1 and max(low - float(cell), float(cell) - high) > high - low


def _alike(cell: str, other: str) -> bool:
    """True for two texts with digits that differ in digits and words only, as dates do."""
    shapes = [re.sub(r"[^\W\d_]+", "a", re.sub(r"[0-9]+", "0", text)) for text in (cell, other)]
    return "0" in shapes[0] and shapes[0] == shapes[1]


def _value(cell: str) -> float:
    return number(cell.replace(",", ".") if has_decimal_comma(cell) else cell)
