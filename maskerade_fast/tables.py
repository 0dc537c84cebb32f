"""Tables of numbers in text files: columns with names, missing cells, and digits that float64 alone does not hold.

A column whose numbers are far from 0 beside their range, as nanoseconds since 1970, loses digits in float64. Its
numbers are then kept as differences from an origin: exact decimal numbers less the origin, rounded once.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ._checks import Array
from ._text import listed, quoted, shortened
from .archive import MOST_EXPANSION
from .errors import DataError
from .table_cells import cure, has_decimal_comma, header, is_missing, is_number, is_unsure, number
from .table_origins import MOST_DIGITS, exact_differences, far_columns
from .table_text import BLANKS, BadRowError, Rows, TableText, read_text, split

# Rows by which it is found out whether the first holds names
_HEAD = 30


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers of a text file.

    Attributes
    ----------
    path : str
        Of the file, as it was given.
    names : tuple of str, length K
        From the header, or "column 1", "column 2", ...; a name may be used twice.
    values : array, shape (N, K)
        Numbers less their column's origin, in the units of the file; NaN where a cell is missing or no number.
    origins : array, shape (K,)
        Integers; 0 but for columns far from 0 beside their range, with numbers that float64 does not hold or from 2^53.
    lines : int64 array, shape (N,)
        Line of the file on which each row begins, from 1.
    has_header : bool
        Whether the file gives names.
    problems : mapping of int to str
        By the index of a column that is not numeric: one line that names file, line, column and cell.
    notes : tuple of str
        What was taken where the file leaves a choice, one line each.
    """

    path: str
    names: tuple[str, ...]
    values: Array
    origins: Array
    lines: Array
    has_header: bool
    problems: Mapping[int, str]
    notes: tuple[str, ...]

    def column(self, name: str) -> int:
        """Index of the column `name`.

        Raises
        ------
        DataError
            If no column or several have this name; the message lists all.
        """
        found = [k for k, other in enumerate(self.names) if other == name]
        if len(found) != 1:
            problem = "is the name of several columns" if found else "is no column"
            raise DataError(f"{self.path}: {quoted(name)} {problem}; there are {listed(self.names)}")
        return found[0]

    def numbers(self, columns: Sequence[int]) -> Array:
        """Values of some columns, shape (N, len(columns)), NaN where a cell is missing.

        Raises
        ------
        DataError
            If one of them is not numeric.
        """
        for k in columns:
            if k in self.problems:
                raise DataError(self.problems[k])
        return np.ascontiguousarray(self.values[:, list(columns)])


def read_table(path: str | os.PathLike[str], *, header: bool | None = None) -> Table:
    """Read a table of numbers from a text file, plain or gzipped, in UTF-8, or UTF-16 with a byte order mark.

    Cells are separated by commas, semicolons, tabs or blanks, decimals by points, or by commas where this is certain.
    Blank lines and lines that begin with #, % or // are skipped; such a line directly above the data may name the
    columns. Missing cells are empty, NA, N/A, #N/A, NaN, null, None or ?; their rows stay.

    Parameters
    ----------
    path : path
        Of a file, or of a pipe that is written to.
    header : bool, optional
        Whether the first row holds names; None finds out, and notes where this was not plain.

    Returns
    -------
    Table
        Of at least one row.

    Raises
    ------
    DataError
        In one line, for a file that is missing, unreadable or no text, without rows, or with rows of unequal length.
        A cell that is no number raises later, in `Table.numbers`.
    """
    try:
        return _Reader(os.fspath(path), read_text(Path(path))).table(header)
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error})") from None
    except BadRowError as error:
        raise DataError(f"{path}, line {error.args[0]}: not a CSV file ({shortened(error.args[1], 100)})") from None
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV file ({shortened(str(error), 100)})") from None
    except OverflowError:
        raise DataError(
            f"{path}: a gzip file more than {MOST_EXPANSION} times larger inside than outside; unpack it first"
        ) from None


class _Reader:
    """Passes over the rows of one file: numbers first, then what some columns need beyond."""

    def __init__(self, path: str, text: TableText) -> None:
        self.path, self.text = path, text
        self.problems: dict[int, str] = {}
        self.notes: list[str] = []
        self.names: tuple[str, ...] = ()
        self.first = 0  # line of the first row
        self.n_named = 0  # rows of names
        self.commas: dict[int, tuple[int, str]] = {}  # by column, line and text of the first number with a comma
        self.sure: set[int] = set()  # columns with a comma that certainly separates decimals

    def table(self, wanted: bool | None) -> Table:
        """The whole table; `wanted` as `header` of `read_table`."""
        has_header = self._name_columns(wanted)
        values, lines = self._numbers()
        if self.commas:
            self._decide_commas()
        origins = self._take_origins_off(values)
        for k in self.problems:
            values[:, k] = np.nan
        self._note_empty_columns(values, has_header)
        return Table(self.path, self.names, values, origins, lines, has_header, dict(self.problems), tuple(self.notes))

    def _name_columns(self, wanted: bool | None) -> bool:
        """Find names in the first row, or in a comment directly above it; returns whether there were any."""
        rows = Rows(self.text)
        stream = iter(rows)
        head = list(itertools.islice(stream, 1))
        if not head:
            what = f"nothing but {_comments(rows.n_comments)}" if rows.n_comments else "empty"
            raise DataError(f"{self.path}: {what}, expected rows of numbers")
        (first, cells), comment = head[0], rows.comment
        head += itertools.islice(stream, _HEAD - 1)
        width = len(cells)
        for line, row in head:
            self._check_width(line, row, width, first)
        self.first = first
        self.names = tuple(f"column {k + 1}" for k in range(width))
        named, note = wanted, ""
        if wanted is None:
            named, note = header([[cell.strip() for cell in row] for _, row in head], first)
        found = [cell.strip() for cell in cells]
        if named:
            if len(head) < 2:
                beside = f" and {_comments(rows.n_comments)}" if rows.n_comments else ""
                raise DataError(
                    f"{self.path}: nothing but names in line {first}{beside}, expected rows of numbers below"
                )
            self.n_named = 1
        elif wanted is None and comment[0] and comment[0] == first - 1:
            found = self._names_in_comment(comment[1], width)
            if found:
                named, note = True, f"line {comment[0]}, a comment, was taken as names ({listed(found)})"
        if self.text.delimiter == BLANKS:
            self.notes.append("cells are separated by blanks")
        if note:
            self.notes.append(note)
        if named:
            self.names = tuple(cell or name for cell, name in zip(found, self.names, strict=True))
        return bool(named)

    def _names_in_comment(self, comment: str, width: int) -> list[str]:
        """Names in a comment of as many cells as there are columns, none of them a number; else nothing."""
        try:
            cells = split([comment.strip("\r\n")], self.text.delimiter)[0]
        except csv.Error:
            return []
        bare = cells[0].lstrip("#%/ \t")
        if not bare and len(cells) == width + 1:  # "# year, value", blanks between
            cells = cells[1:]
        else:
            cells[0] = bare or cells[0]
        numeric = any(map(is_number, cells))
        return [] if len(cells) != width or numeric or not any(cells) else cells

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        return itertools.islice(Rows(self.text), self.n_named, None)

    def _numbers(self) -> tuple[Array, Array]:
        """Values (N, K) and lines (N,): as text, a row takes tens of times the room that it takes in the file."""
        numbers, lines = array("d"), array("q")
        width, content = len(self.names), self.text.content
        underscores = content.find(b"_", content.find(b"\n") + 1) >= 0  # Python reads 1_000, no CSV means it
        rows = Rows(self.text)
        for line, cells in itertools.islice(rows, self.n_named, None):
            if len(cells) != width:
                self._check_width(line, cells, width, self.first)
            try:
                row = list(map(float, cells))
            except ValueError:
                row = self._odd_row(line, cells)
            else:
                if not math.isfinite(sum(row)) or (underscores and "_" in "".join(cells)):
                    row = self._odd_row(line, cells)
            numbers.fromlist(row)
            lines.append(line)
        if rows.n_comments:
            self.notes.append(f"skipped {_comments(rows.n_comments)}")
        values = np.frombuffer(numbers, dtype=np.float64).reshape(-1, width)
        return values, np.frombuffer(lines, dtype=np.int64)

    def _odd_row(self, line: int, cells: Sequence[str]) -> list[float]:
        """Values of a row with a cell that is missing or no plain number."""
        row = []
        for k, cell in enumerate(map(str.strip, cells)):
            value = math.nan
            if has_decimal_comma(cell):
                value = float(cell.replace(",", "."))
                self.commas.setdefault(k, (line, cell))
                if not is_unsure(cell):
                    self.sure.add(k)
                if not math.isfinite(value):
                    self._complain(k, line, cell)
            elif not is_missing(cell):
                try:
                    value = number(cell)
                except ValueError:
                    self._complain(k, line, cell)
            row.append(value)
        return row

    def _complain(self, k: int, line: int, cell: str, expected: str = "") -> None:
        if k in self.problems:
            return
        what = expected or f"expected a finite number{cure(cell)}"
        place = f"{self.path}, line {line}, column {quoted(self.names[k])}"
        self.problems[k] = f"{place}: {quoted(cell)}, {what}"

    def _check_width(self, line: int, cells: Sequence[str], width: int, first: int) -> None:
        if len(cells) != width:
            why = "; it ends with a delimiter" if len(cells) == width + 1 and not cells[-1].strip() else ""
            count = f"{len(cells)} cell" if len(cells) == 1 else f"{len(cells)} cells"
            raise DataError(f"{self.path}, line {line}: {count}, expected {width} as in line {first}{why}")

    def _decide_commas(self) -> None:
        """Refuse columns whose separators are unsure; note those that have decimal commas."""
        points: dict[int, tuple[int, str]] = {}  # first number with a point, and the first that is not as 1.234
        sure_points: dict[int, tuple[int, str]] = {}
        for line, cells in self._rows():
            for k, cell in enumerate(cells):
                if k not in self.problems and "." in cell and not is_missing(cell := cell.strip()):
                    points.setdefault(k, (line, cell))
                    if not is_unsure(cell):
                        sure_points.setdefault(k, (line, cell))
        certain = [k for k in sorted(self.sure) if k not in self.problems and k not in points]
        unsure = "expected one way to write decimals; write decimals with a point and thousands without separators"
        commas = sorted(k for k in self.commas if k not in self.problems)
        for k in commas:
            if k in points:
                self._complain(k, *max(self.commas[k], points[k]), unsure)
            elif k not in self.sure and not certain:
                self._complain(k, *self.commas[k], unsure)
        for k in points.keys() - sure_points.keys():
            if certain and k not in self.problems:
                self._complain(k, *points[k], f"beside decimal commas in {listed([self.names[certain[0]]])} {unsure}")
        taken = [self.names[k] for k in commas if k not in self.problems]
        if taken:
            self.notes.append(f"commas were taken as decimal ones in {listed(taken)}")

    def _take_origins_off(self, values: Array) -> Array:
        """Replace columns that lose digits by exact differences from an origin; returns the origins (K,)."""
        origins = np.zeros(values.shape[1])
        far = far_columns(values, self.problems)
        if far:
            differences, too_long = exact_differences(self._rows(), values, far)
            for k, (line, cell) in too_long.items():
                self._complain(k, line, cell, f"expected at most {MOST_DIGITS} characters; round it")
            for k, column in differences.items():
                values[:, k], origins[k] = column, far[k]
                self.notes.append(
                    f"{far[k]:.0f} was taken off {shortened(self.names[k])}, so that float64 holds its digits"
                )
        return origins

    def _note_empty_columns(self, values: Array, has_header: bool) -> None:
        empty = [k for k in range(len(self.names)) if k not in self.problems and np.isnan(values[:, k]).all()]
        if not empty:
            return
        last = len(self.names) - 1
        why = " (do the lines end with a delimiter?)" if last in empty and last else ""
        message = f"nothing is in {listed([self.names[k] for k in empty])}{why}"
        self.notes.append(message)
        if why and has_header and self.names[last] == f"column {last + 1}":  # without a name either
            self.problems[last] = f"{self.path}: {message}"


def _comments(count: int) -> str:
    return "1 comment (a line from #, % or // on)" if count == 1 else f"{count} comments (lines from #, % or // on)"
