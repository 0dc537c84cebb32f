"""Decides from the first rows of a table whether the first one holds names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from ..._text import listed
from .cells import has_decimal_comma, is_flawed_number, is_missing, is_number, is_text, value
from .delimiter import BLANKS
from .hints import FIRST_YEAR, LAST_YEAR

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
# Most years from one name to the next; numbers farther apart may well be measurements
_MOST_YEARS_APART = 10


def header(rows: Sequence[Sequence[str]], line: int) -> tuple[bool, str]:
    """Whether the first of some rows of stripped cells holds names, and a note in doubtful cases.

    A row holds names if it has no number, or if below one of its texts there are numbers or only missing cells. Text
    above text of the same shape, such as dates, is data; so is a number with separators of thousands. A row of numbers
    holds names if they are 0, 1, 2, ... beside an empty corner, or different dates, or years that are not far apart,
    and the numbers below are far from them in every column.

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
    texts = [k for k in filled if not is_flawed_number(first[k])]
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


def lacks_a_name(rows: Sequence[Sequence[str]], delimiter: str, *, sure: bool) -> bool:
    """True where the first row has names for all columns but the first, as R and pandas write beside names of rows.

    `sure` says that it has names; else it must look like names.
    """
    first, below = rows[0], rows[1:]
    if any(len(row) != len(first) + 1 for row in below) or not any(row[-1] for row in below):
        return False
    title = len(first) == 1 and delimiter != BLANKS and " " in first[0]
    if title or _halves(rows, delimiter) or (len(below) > 1 and header(below, 0)[0]):
        return False
    return sure or header([["", *first], *below], 0)[0]


def wrong_width(rows: Sequence[Sequence[str]], lines: Sequence[int], line: int, delimiter: str) -> str:
    """What to do about the row on `line`, of another length than the first."""
    if _halves(rows, delimiter):
        return f"if commas are decimal ones, write decimals with a point; if line {lines[0]} is a title, delete it"
    i, width = lines.index(line), len(rows[0])
    alike = all(len(row) == len(rows[i]) for row in rows[i:])
    if i == 1 and alike:
        return f"line {lines[0]} looks like a title: delete it or begin it with #, or put names with blanks in quotes"
    if alike and len(rows[i]) > width and i <= len(rows) - i:
        return "the lines above look like a title: delete them or begin them with #"
    return width_cure(len(rows[i]), width)


def width_cure(count: int, width: int) -> str:
    """What to do about a row of `count` cells instead of `width`."""
    return (
        "fill it up, delete it, or begin it with #" if count < width else "put cells with a delimiter in double quotes"
    )


def _halves(rows: Sequence[Sequence[str]], delimiter: str) -> bool:
    """True for one name above pairs of cells that may be one number with a decimal comma."""
    return delimiter == "," and len(rows[0]) == 1 and all(has_decimal_comma(",".join(row)) for row in rows[1:])


def _below(rows: Sequence[Sequence[str]], k: int) -> list[str]:
    """Cells of column k in all rows but the first that are not missing."""
    return [row[k] for row in rows[1:] if not is_missing(row[k])]


def _names_in_numbers(first: Sequence[str], filled: Sequence[int], below: Sequence[Sequence[str]]) -> bool:
    """True where a row of numbers and missing cells is most likely no data."""
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
    if not dates or len(first) == 1 or (values[0] <= LAST_YEAR and span > _MOST_YEARS_APART * len(values)):
        return False
    return any(below[k] for k in filled) and all(_far(first[k], below[k]) for k in filled if below[k])


def _may_be_names(first: Sequence[str], filled: Sequence[int], below: Sequence[Sequence[str]]) -> bool:
    """True where a row of numbers in order may be names: none is near the numbers below it."""
    steps = [float(value(first[b]) - value(first[a])) for a, b in itertools.pairwise(filled)]
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
    values = [value(c) for c in column if not is_text(c)]
    if not values:
        return True
    low, high, own = min(values), max(values), value(cell)
    return len(values) > 1 and max(low - own, own - high) > high - low


def _like_date(integer: int) -> bool:
    """True for integers as 2024, 202401 and 20240131."""
    if FIRST_YEAR <= integer <= LAST_YEAR:
        return True
    month, day = (integer // 100, integer % 100) if integer > 10**7 else (integer, 1)
    return FIRST_YEAR <= month // 100 <= LAST_YEAR and 1 <= month % 100 <= 12 and 1 <= day <= 31


def _alike(cell: str, other: str) -> bool:
    """True for two texts with digits that differ only in digits and words, as dates do."""
    shapes = [re.sub(r"[^\W\d_]+", "a", re.sub(r"[0-9]+", "0", text)) for text in (cell, other)]
    return "0" in shapes[0] and shapes[0] == shapes[1]
