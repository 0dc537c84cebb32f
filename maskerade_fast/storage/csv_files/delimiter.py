"""The delimiter between the cells of a table, and lines split by it."""

from __future__ import annotations

import csv

from .cells import is_text, looks_like_thousands

# In this order: a comma may also sit inside the cells of those before it
_DELIMITERS = ("\t", ";", ",", "|")
# Runs of blanks and tabs between cells
BLANKS = " "


def in_blanks(line: str) -> str:
    """`line` with nothing but blanks between its cells, and none around them."""
    return line.strip(" \t\r\n").replace("\t", " ") + "\n"


def split(lines: list[str], delimiter: str) -> list[list[str]]:
    """Stripped cells of every line."""
    prepared = map(in_blanks, lines) if delimiter == BLANKS else lines
    reader = csv.reader(prepared, delimiter=delimiter, skipinitialspace=True)
    return [[cell.strip() for cell in row] for row in reader]


def delimiter(lines: list[str]) -> str:
    """The delimiter of the first lines.

    It is the first of tab, semicolon, comma, | and blanks that leaves only numbers and missing cells below the first
    line; for blanks, rows of other lengths than the first are refused later. If there is none, it is the first of tab,
    semicolon and comma that divides the first two lines, or all lines but the first alike; else | if it divides all
    lines alike; else blanks if they divide all lines alike and leave a column of numbers; else the comma.
    """
    rows = {d: split(lines, d) for d in (*_DELIMITERS, BLANKS)}
    dividing = [d for d in _DELIMITERS if rows[d] and all(len(row) > 1 for row in rows[d][:2])]
    for d in dividing:
        if _all_numbers(rows[d][1:] or rows[d]):
            return d
    dividing = [d for d in dividing if d != "|"]
    if not dividing and lines and _divides_alike(rows["|"]):
        return "|"
    blanks = rows[BLANKS]
    widths = {len(row) for row in blanks}
    if dividing:
        cells = [cell for row in rows[dividing[0]][1:] or rows[dividing[0]] for cell in row]
        # "1 234,5 678": two numbers with separators of thousands, or three with a decimal comma in the middle
        ambiguous = all(looks_like_thousands(cell) or not is_text(cell) for cell in cells)
        # a comma in a line of names separates them
        rest = blanks if dividing[0] == "," else blanks[1:] or blanks
        whole = len(widths) == 1 and _all_numbers(rest)
        return BLANKS if whole and not ambiguous else dividing[0]
    body = blanks[1:] or blanks
    below = [d for d in ("\t", ";") if len(lines) > 1 and _divides_alike(rows[d][1:])]
    if below:  # R's table of one column: names of the rows, and one name above
        return below[0]
    titled = _divides_alike(body) and _all_numbers(body[1:])  # a line of text above the names
    if _all_numbers(body) or _all_numbers([row for row in body if len(row) == len(blanks[0])]) or titled:
        one_name = len(blanks[0]) == 1 and all(looks_like_thousands(line.strip()) for line in lines[1:])
        return "," if one_name else BLANKS
    if len(blanks) > 1 and _divides_alike(body) and len(body[0]) - len(blanks[0]) in (0, 1):
        columns = list(zip(*body, strict=True))
        units = len(body) > 2 and all(map(is_text, body[0]))  # of which a row is below the names
        return BLANKS if any(not any(map(is_text, column[units:])) for column in columns) else ","
    return ","


def _divides_alike(rows: list[list[str]]) -> bool:
    """True for rows of one width above 1."""
    widths = {len(row) for row in rows}
    return len(widths) == 1 and widths != {1}


def _all_numbers(rows: list[list[str]]) -> bool:
    """True for rows of one width above 1 without text."""
    return _divides_alike(rows) and not any(is_text(cell) for row in rows for cell in row)
