"""Tables of numbers in text files: columns with names, missing cells, and digits that float64 alone does not hold.

A column whose numbers are far from 0 beside their range, as nanoseconds since 1970, loses digits in float64. Its
numbers are then kept as differences from an origin: exact decimal numbers less the origin, rounded once.
"""

from __future__ import annotations

import csv
import gzip
import os
import unicodedata
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import numpy as np

from ..._checks import Array, check_finite
from ..._text import listed, quoted, shortened
from ...errors import DataError
from ..archive import MOST_EXPANSION
from .cells import value
from .origins import MOST_DIGITS, difference
from .reader import Reader
from .text import BadRowError, read_text


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
        Integers; 0 but for columns far from 0 beside their range, with numbers that float64 does not hold, or from 2^53
        on and written to the unit.
    lines : int64 array, shape (N,)
        Line of the file on which each row begins, from 1.
    has_header : bool
        Whether the file gives names.
    problems : mapping of int to str
        By the index of a column that is not numeric: one line that names file, line, column and cell.
    lost : mapping of int to str
        The same, of a column whose `values` lack digits that matter beside the distances of its numbers.
    empty : tuple of int
        Columns without any number, and without a problem.
    notes : tuple of str
        What was taken where the file leaves a choice, and what was skipped, one line each.
    """

    path: str
    names: tuple[str, ...]
    values: Array
    origins: Array
    lines: Array
    has_header: bool
    problems: Mapping[int, str]
    lost: Mapping[int, str]
    empty: tuple[int, ...]
    notes: tuple[str, ...]
    _reader: Reader = field(repr=False)

    def column(self, name: str) -> int:
        """Index of the column `name`.

        Raises
        ------
        DataError
            If no column or several have this name; the message lists all.
        """
        name = unicodedata.normalize("NFC", name)
        found = [k for k, other in enumerate(self.names) if other == name]
        if len(found) != 1:
            problem = "is the name of several columns" if found else "is no column"
            cure = ""
            if not found and not self.has_header and name in self._reader.found:
                cure = f"; line {self._reader.first} was taken as data, --header yes takes it as names"
            raise DataError(f"{self.path}: {quoted(name)} {problem}; there are {listed(self.names)}{cure}")
        return found[0]

    def numbers(self, columns: Sequence[int]) -> Array:
        """Values of some columns, shape (N, len(columns)), less their origins; NaN where a cell is missing.

        Raises
        ------
        DataError
            If one of them is not numeric, or lacks digits that matter even less its origin.
        """
        self._refuse(columns, self.lost)
        return np.ascontiguousarray(self.values[:, list(columns)])

    def without_origin(self, k: int) -> Array:
        """Numbers of one column with no origin taken off, shape (N,), NaN where a cell is missing.

        Raises
        ------
        DataError
            If the column is not numeric, or its numbers lack digits that matter.
        """
        self._refuse([k], self._reader.lost_without_origin)
        return self.less([k], np.zeros(1))[:, 0]

    def less(self, columns: Sequence[int], origins: Array) -> Array:
        """Numbers of some columns less other origins, by their text: each difference is rounded once.

        Parameters
        ----------
        columns : sequence of int
        origins : array, shape (len(columns),)
            Finite; in the units of the file.

        Returns
        -------
        array, shape (N, len(columns))
            NaN where a cell is missing.

        Raises
        ------
        DataError
            If a column is not numeric, or has a number of more than 1000 characters.
        ValueError
            For other numbers of origins, NaN or infinity.
        """
        wanted = np.asarray(origins, dtype=np.float64)
        if wanted.shape != (len(columns),):
            raise ValueError(f"origins: shape {wanted.shape}, expected ({len(columns)},), one for each column")
        check_finite(wanted, "origins")
        self._refuse(columns, {})
        result = np.ascontiguousarray(self.values[:, list(columns)])
        others = {j: Decimal(float(wanted[j])) for j, k in enumerate(columns) if wanted[j] != self.origins[k]}
        if not others:
            return result
        for i, (line, cells) in enumerate(self._reader.rows()):
            for j, origin in others.items():
                if np.isnan(result[i, j]):
                    continue
                cell = cells[columns[j]].strip()
                if not origin or (self.origins[columns[j]] == 0.0 and result[i, j] == 0.0):
                    result[i, j] = value(cell) - wanted[j]
                elif len(cell) <= MOST_DIGITS:
                    result[i, j] = difference(cell, origin)
                else:
                    place = self._reader.place(columns[j], line, cell)
                    raise DataError(f"{place}, expected at most {MOST_DIGITS} characters; round it")
        return result

    def _refuse(self, columns: Sequence[int], lost: Mapping[int, str]) -> None:
        for k in columns:
            if k in self.problems or k in lost:
                raise DataError(self.problems.get(k) or lost[k])


def read_table(path: str | os.PathLike[str], *, header: bool | None = None, known: Collection[str] = ()) -> Table:
    """Read a table of numbers from a text file, plain or gzipped, in UTF-8, or UTF-16 with a byte order mark.

    Cells are separated by commas, semicolons, tabs, | or blanks, decimals by points, or by commas where this is
    certain. Blank lines and lines that begin with #, % or // are skipped, but below the first row not if they have as
    many cells as the table; such a line directly above the data may name the columns. Missing cells are empty, or a
    word that cannot be a number, as NA, NaN, NaT, null, None, missing, ?, . and -; their rows stay. A first column may
    lack its name, as R and pandas write names of rows; last columns without name and numbers are left out.

    Parameters
    ----------
    path : path
        Of a file, or of a pipe that is written to.
    header : bool, optional
        Whether the first row holds names; None finds out, and notes where this was not plain. Where True, names in a
        comment directly above a row of data are taken instead.
    known : collection of str
        Names that are looked for: a first row with all of them holds names, whatever is below, if `header` is None.

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
        reader = Reader(os.fspath(path), read_text(Path(path)))
        reader.read(header, known)
    except DataError:
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); fetch or pack it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except BadRowError as error:
        raise DataError(f"{path}, line {error.args[0]}: not a CSV file ({shortened(error.args[1], 100)})") from None
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV file ({shortened(str(error), 100)})") from None
    except OverflowError:
        raise DataError(
            f"{path}: a gzip file more than {MOST_EXPANSION} times larger inside than outside; unpack it first"
        ) from None
    return Table(
        path=reader.path,
        names=reader.names,
        values=reader.values,
        origins=reader.origins,
        lines=reader.lines,
        has_header=reader.has_header,
        problems=reader.problems,
        lost=reader.lost,
        empty=reader.empty,
        notes=tuple(reader.notes),
        _reader=reader,
    )
