"""Reads a table's text in passes: names, then numbers, then decimal commas and exact digits where columns need them."""

from __future__ import annotations

import csv
import itertools
import math
import re
import unicodedata
from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..._checks import Array
from ..._text import listed, quoted
from ...errors import DataError
from .cells import cure, has_decimal_comma, is_missing, is_number, is_text, is_unsure, number, plain
from .delimiter import BLANKS, split
from .header import header, lacks_a_name, width_cure, wrong_width
from .origins import MOST_DIGITS, exact_columns
from .text import Rows, TableText

# Rows that decide whether the first one holds names
_HEAD = 30
# Squares of larger numbers, or sums of squares, overflow float64
_LARGEST = 1e150
_DECIMALS = "write decimals with a point and no separators of thousands"
_MARK = re.compile(r"[ \t]*(?:#+|%+|//+)[ \t]*")


class _BadCell(NamedTuple):
    """The first cell of a column that is no number, and the cure for its row if that is wrong as a whole, or ""."""

    line: int
    cell: str
    row_cure: str


class Reader:
    """Names, numbers and origins of one table; after `read` the attributes are those of `csv_files.Table`."""

    values: Array
    origins: Array
    empty: tuple[int, ...]

    def __init__(self, path: str, text: TableText) -> None:
        self.path, self.text = path, text
        self.problems: dict[int, str] = {}
        self.lost: dict[int, str] = {}
        self.lost_without_origin: dict[int, str] = {}
        self.notes: list[str] = []
        self.names: tuple[str, ...] = ()
        self.header_cells: tuple[str, ...] = ()  # of the first row, or of the comment that gives the names
        self.has_header = False
        self.width = 0  # of rows
        self.n_named = 0  # rows of names
        self.first = 0  # line of the first row
        self._named_by = 0  # line of the comment that gives the names
        self._bad: dict[int, _BadCell] = {}
        self._commas: dict[int, tuple[int, str]] = {}  # by column, line and text of the first number with a comma
        self._sure: set[int] = set()  # columns with a comma that can only separate decimals

    def read(self, has_header: bool | None, expected: Collection[str]) -> None:
        """Read everything; the arguments are `header` and `expected` of `read_table`."""
        self._name_columns(has_header, expected)
        self._read_numbers()
        self._drop_trailing_columns()
        self._word_bad_cells()
        if self._commas:
            self._decide_commas()
        self._refuse_large_numbers()
        self.origins = np.zeros(len(self.names))
        if self.text.may_hold_long_numbers():
            self._take_origins_off()
        for k in self.problems:
            self.values[:, k] = np.nan
        nothing = [bool(np.isnan(column).all()) for column in self.values.T]
        self.empty = tuple(k for k in range(len(self.names)) if nothing[k] and k not in self.problems)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of every row of data."""
        return itertools.islice(Rows(self.text, self.width), self.n_named, None)

    def place(self, k: int, line: int, cell: str) -> str:
        """File, line, column and cell, for a message."""
        return f"{self.path}, line {line}, column {quoted(self.names[k])}: {quoted(cell)}"

    def _name_columns(self, has_header: bool | None, expected: Collection[str]) -> None:
        """Find names in the first row, or in a comment directly above it."""
        rows = Rows(self.text)
        stream = iter(rows)
        begin = list(itertools.islice(stream, 1))
        if not begin:
            what = "nothing but comments" if rows.n_comments else "empty"
            raise DataError(f"{self.path}: {what}, expected rows of numbers")
        (self.first, cells), comment = begin[0], rows.comment
        begin += itertools.islice(stream, 1)
        self.header_cells = tuple(_name(cell) for cell in cells)
        lacking = len(begin[-1][1]) == len(cells) + 1  # a name, perhaps
        self.width = len(cells) + lacking
        lines, head = zip(*itertools.islice(Rows(self.text, self.width), _HEAD), strict=True)
        stripped = [[cell.strip() for cell in row] for row in head]
        has_expected = has_header is None and len(expected) > 0 and set(map(_name, expected)) <= set(self.header_cells)
        named, note = has_header, ""
        sure = bool(has_header) or has_expected
        if lacking and has_header is not False and lacks_a_name(stripped, self.text.delimiter, sure=sure):
            named = True
            note = f"line {self.first} has one name fewer than there are columns: the first column has none"
            self.header_cells = ("", *self.header_cells)
        for line, row in zip(lines[1:], head[1:], strict=True):
            if len(row) != len(self.header_cells):
                why = wrong_width(stripped, lines, line, self.text.delimiter)
                self._refuse_width(line, row, len(self.header_cells), why)
        if has_expected:
            named = True
        elif not note and has_header is not False:
            by_row, doubt = header(stripped, self.first)
            if has_header is None:
                named, note = by_row, doubt
            if not by_row and comment[0] and comment[0] == self.first - 1:
                names = self._names_in_comment(comment[1])
                if names:
                    self.header_cells, self.has_header, self._named_by = names, True, comment[0]
                    named, note = False, f"line {comment[0]}, a comment, was taken as names ({listed(names)})"
        if named:
            if len(head) < 2:
                raise DataError(f"{self.path}: nothing but names in line {self.first}, expected rows of numbers below")
            self.n_named, self.has_header = 1, True
        if self.text.delimiter == BLANKS:
            self.notes.append("cells are separated by blanks")
        if note:
            self.notes.append(note)
        self.names = tuple(f"column {k + 1}" for k in range(self.width))
        if self.has_header:
            self.names = tuple(cell or name for cell, name in zip(self.header_cells, self.names, strict=True))

    def _names_in_comment(self, comment: str) -> tuple[str, ...]:
        """Names in a comment of as many cells as there are columns, none of them a number; else nothing."""
        try:
            cells = split([comment.strip("\r\n")], self.text.delimiter)[0]
        except csv.Error:
            return ()
        bare = _MARK.sub("", cells[0], count=1)
        if not bare and len(cells) == self.width + 1:  # "# year, value", blanks between
            cells = cells[1:]
        else:
            cells[0] = bare or cells[0]
        numeric = any(map(is_number, cells))
        return () if len(cells) != self.width or numeric or not any(cells) else tuple(map(_name, cells))

    def _read_numbers(self) -> None:
        """Read values (N, K) row by row: rows of strings take tens of times the memory of the file."""
        numbers = array("d")
        width, content = self.width, self.text.content
        underscores = content.find(b"_", content.find(b"\n") + 1) >= 0  # Python reads 1_000, no CSV means it
        rows = Rows(self.text, width)
        for line, cells in itertools.islice(rows, self.n_named, None):
            if len(cells) != width:
                self._refuse_width(line, cells, width, width_cure(len(cells), width))
            try:
                row = list(map(float, cells))
            except ValueError:
                row = self._odd_row(line, cells, is_first=not numbers)
            else:
                if not math.isfinite(sum(row)) or (underscores and "_" in "".join(cells)):
                    row = self._odd_row(line, cells, is_first=not numbers)
            numbers.fromlist(row)
        if skipped := rows.skipped(self._named_by):
            self.notes.append(skipped)
        self.values = np.frombuffer(numbers, dtype=np.float64).reshape(-1, width)

    def _odd_row(self, line: int, cells: Sequence[str], *, is_first: bool) -> list[float]:
        """Values of a row with a missing cell, or one that `float` does not read."""
        row, bad = [], []
        for k, cell in enumerate(map(str.strip, cells)):
            value, text = math.nan, plain(cell)
            if has_decimal_comma(text):
                value = float(text.replace(",", "."))
                self._commas.setdefault(k, (line, text))
                if not is_unsure(text):
                    self._sure.add(k)
                if not math.isfinite(value):
                    bad.append((k, cell))
            elif not is_missing(text):
                try:
                    value = number(text)
                except ValueError:
                    bad.append((k, cell))
            row.append(value)
        if any(k not in self._bad for k, _ in bad):
            what = ""
            if self.has_header and tuple(map(_name, cells)) == self.header_cells:
                what = "the names again; delete the line"
            elif all(is_text(cell) for _, cell in bad) and not any(map(math.isfinite, row)):
                units = is_first and self.has_header
                what = "delete the row of units, or begin it with #" if units else "delete the line"
            elif bad[0][0] == 0 and _MARK.match(bad[0][1]):
                what = "delete the line if it is a comment, or correct the cell"
            for k, cell in bad:
                self._bad.setdefault(k, _BadCell(line, cell, what))
        return row

    def _refuse_width(self, line: int, cells: Sequence[str], width: int, why: str) -> None:
        if len(cells) == width + 1 and not cells[-1].strip():
            why = "it ends with a delimiter; end all lines with it, or none"
        count = f"{len(cells)} cell" if len(cells) == 1 else f"{len(cells)} cells"
        raise DataError(f"{self.path}, line {line}: {count}, expected {width} as in line {self.first}; {why}")

    def _drop_trailing_columns(self) -> None:
        """Drop last columns that have neither name nor cells: all lines end with delimiters."""
        width = len(self.names)
        while width > 1 and not (self.has_header and self.header_cells[width - 1]):
            if width - 1 in self._bad or not np.isnan(self.values[:, width - 1]).all():
                break
            width -= 1
        if dropped := len(self.names) - width:
            last = "column was" if dropped == 1 else f"{dropped} columns were"
            self.notes.append(f"the last {last} left out: without a name, and empty (lines end with a delimiter)")
            self.names, self.values = self.names[:width], self.values[:, :width]

    def _complain(self, k: int, line: int, cell: str, what: str) -> None:
        self.problems.setdefault(k, f"{self.place(k, line, cell)}, {what}")

    def _word_bad_cells(self) -> None:
        for k, bad in self._bad.items():
            alone = bool(np.isfinite(self.values[:, k]).any())
            remedy = bad.row_cure if alone and bad.row_cure else cure(bad.cell, alone=alone)
            self._complain(k, bad.line, bad.cell, f"expected a finite number; {remedy}")

    def _decide_commas(self) -> None:
        """Refuse columns whose separators are doubtful; note those with decimal commas."""
        points: dict[int, tuple[int, str]] = {}  # first number with a point, and the first that is not as 1.234
        sure_points: dict[int, tuple[int, str]] = {}
        for line, cells in self.rows():
            for k, cell in enumerate(cells):
                if k not in self.problems and "." in cell and is_number(cell := cell.strip()):
                    points.setdefault(k, (line, cell))
                    if not is_unsure(cell):
                        sure_points.setdefault(k, (line, cell))
        certain = [k for k in sorted(self._sure) if k not in self.problems and k not in points]
        commas = sorted(k for k in self._commas if k not in self.problems)
        for k in commas:
            if k in points:
                both = f"expected decimal commas or points in one column, not both; {_DECIMALS}"
                self._complain(k, *max(self._commas[k], points[k]), both)
            elif k not in self._sure and not certain:
                self._complain(k, *self._commas[k], _doubt(self._commas[k][1]))
        for k in points.keys() - sure_points.keys():
            if certain and k not in self.problems:
                beside = f" beside decimal commas in {listed([self.names[certain[0]]])}"
                self._complain(k, *points[k], _doubt(points[k][1], beside))
        if decimal := [self.names[k] for k in commas if k not in self.problems]:
            self.notes.append(f"commas were taken as decimal ones in {listed(decimal)}")

    def _refuse_large_numbers(self) -> None:
        for k in range(len(self.names)):
            large = np.flatnonzero(np.abs(self.values[:, k]) > _LARGEST)
            if len(large) and k not in self.problems:
                line, cells = next(itertools.islice(self.rows(), int(large[0]), None))
                self._complain(k, line, cells[k].strip(), f"expected a number up to {_LARGEST:g}; rescale the column")

    def _take_origins_off(self) -> None:
        """Replace columns that lose digits by exact differences from an origin; record those that still lose some."""
        for k, column in exact_columns(self.rows(), self.values, self.problems).items():
            if column.too_long >= 0:
                line, cell = self._cell(column.too_long, k)
                self._complain(k, line, cell, f"expected at most {MOST_DIGITS} characters; round it")
            if column.lost >= 0:
                self.lost[k] = self._lost_digits(k, column.lost)
            if column.lost_without >= 0:
                self.lost_without_origin[k] = self._lost_digits(k, column.lost_without)
            if column.values is not None:
                self.values[:, k], self.origins[k] = column.values, column.origin
                name = listed([self.names[k]])
                self.notes.append(f"{column.origin:.0f} was taken off {name}, so that float64 holds its digits")

    def _cell(self, row: int, k: int) -> tuple[int, str]:
        line, cells = next(itertools.islice(self.rows(), row, None))
        return line, cells[k].strip()

    def _lost_digits(self, k: int, row: int) -> str:
        what = "has more digits than a float64 number holds beside the range of its column"
        return f"{self.place(k, *self._cell(row, k))} {what}; split the file, or subtract an offset"


def _name(cell: str) -> str:
    """A name without blanks around it, in composed letters: macOS writes decomposed ones."""
    return unicodedata.normalize("NFC", cell.strip())


def _doubt(cell: str, beside: str = "") -> str:
    whole, decimal = cell.replace(",", "").replace(".", ""), cell.replace(",", ".")
    return f"which may be {whole} or {decimal}{beside}; {_DECIMALS}"
