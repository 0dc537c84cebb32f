"""Cells of a table: numbers, missing cells and text, separators of decimals, and cures for wrong cells."""

from __future__ import annotations

import math
import re

# As statistics programs, spreadsheets, databases, C and pandas write missing numbers
_MISSING = frozenset(
    [
        *(
            "",
            "na",
            "n/a",
            "n.a.",
            "<na>",
            "nan",
            "-nan",
            "-nan(ind)",
            "nat",
            "null",
            "(null)",
            "\\n",
            "none",
            "missing",
        ),
        *("?", ".", "..", "-", "--", "---", "\u2013", "\u2014", ":", "#n/a", "#na", "#n/a n/a", "#div/0!"),
        *("1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
    ]
)
_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?")
# One mark before exactly three digits: 1,234 may be 1234 or 1.234
_UNSURE = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}")
# Blanks (also those that do not break), apostrophes, or one of comma and point several times or before the other
_GROUPS = re.compile(
    r"[+-]?[0-9]{1,3}(?:(?:[ '’\u00a0\u2009\u202f][0-9]{3})+(?:[.,][0-9]*)?"
    r"|(?:,[0-9]{3}){2,}(?:\.[0-9]*)?|(?:\.[0-9]{3}){2,}(?:,[0-9]*)?|(?:,[0-9]{3})+\.[0-9]*|(?:\.[0-9]{3})+,[0-9]*)"
)
_CURRENCIES = "$€£¥₹"
# A cell that Excel reads as text, and an exponent of Fortran's double precision
_EXCEL = re.compile(r'="([^"]*)"')
_FORTRAN = re.compile(r"([+-]?(?:[0-9]+[.,]?[0-9]*|[.,][0-9]+))[dD]([+-]?[0-9]+)")
_MONTHS = "jan|feb|mar|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez"
_DATE = re.compile(
    r"[0-9]{1,4}([-/.])[0-9]{1,2}(\1[0-9]{1,4})?([T ].*)?|[0-9]{1,2}:[0-9]{2}(:[0-9]{2}.*)?( ?[ap]m)?"
    rf"|[0-9]{{4}}[- ]?[QWM][0-9]{{1,2}}|.*\b({_MONTHS})[a-z]*\b.*[0-9].*|[0-9].*\b({_MONTHS})[a-z]*\b.*"
    rf"|[0-9]{{1,4}}-?({_MONTHS})-?[0-9]{{0,4}}|({_MONTHS})-?[0-9]{{2,4}}",
    re.IGNORECASE,
)
_LONGEST_DATE = 60  # characters
_FLAGS = frozenset({"true", "false", "yes", "no", "t", "f", "y", "n"})


def plain(cell: str) -> str:
    """A stripped cell without what Excel (="0") and Fortran (3.0D+02) write around a number."""
    if cell[:1] == "=" and (excel := _EXCEL.fullmatch(cell)):
        cell = excel[1].strip()
    fortran = _FORTRAN.fullmatch(cell)
    return f"{fortran[1]}e{fortran[2]}" if fortran else cell


def number(cell: str) -> float:
    """The finite number that `cell` is; ValueError otherwise."""
    value = float(plain(cell))
    if not math.isfinite(value) or "_" in cell:  # Python reads 1_000, no CSV means it
        raise ValueError(cell)
    return value


def value(cell: str) -> float:
    """Like `number`; a comma separates decimals."""
    cell = plain(cell)
    return number(cell.replace(",", ".") if has_decimal_comma(cell) else cell)


def is_missing(cell: str) -> bool:
    """True for a stripped cell that says that there is no number."""
    return plain(cell).lower() in _MISSING


def is_number(cell: str) -> bool:
    """True for a stripped cell that is a finite number, with a decimal comma or without."""
    try:
        value(cell)
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


def is_flawed_number(cell: str) -> bool:
    """True for a stripped cell that is almost a number: with separators of thousands, a currency, infinite."""
    if is_number(cell) or looks_like_thousands(cell) or (_number_cure(cell) and not cell.endswith("%")):
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def cure(cell: str, *, alone: bool = False) -> str:
    """What to do about a cell that is no number; `alone` if the others of its column are numbers."""
    if remedy := _number_cure(cell):
        return remedy
    if cell[:1] == "(" and cell[-1:] == ")" and (is_number(cell[1:-1]) or looks_like_thousands(cell[1:-1])):
        return "write negative numbers with -, without brackets"
    if re.fullmatch(r"[+-]?0[xX][0-9a-fA-F]+", cell):
        return "write the number with decimal digits"
    try:
        float(cell)
    except ValueError:
        pass
    else:
        return "write it without underscores" if "_" in cell else "leave the cell empty"
    if len(cell) <= _LONGEST_DATE and _DATE.fullmatch(cell):
        return "write the time as a number, or leave the column out with --columns"
    if cell.lower() in _FLAGS:
        return "write 1 and 0, or leave the column out with --columns"
    if "|" in cell:
        return "if | separates cells, write sep=| in the first line"
    return (
        f"{'correct the cell, delete the line,' if alone else 'write numbers,'} or leave the column out with --columns"
    )


def _number_cure(cell: str) -> str:
    """What to do about a cell that is almost a number; "" for others."""
    if looks_like_thousands(cell):
        return "write thousands without separators and decimals with a point"
    bare = cell.strip("%‰ \u00a0" + _CURRENCIES)
    if bare != cell and (is_number(bare) or looks_like_thousands(bare)):
        return "write the number alone, without a sign of percent or currency"
    if is_number(cell.replace("\u2212", "-")):
        return "write minus as -"
    return ""
