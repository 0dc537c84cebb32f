"""Tables of numbers in text files: columns with names, missing cells, and numbers with more digits than float64 holds.

A column whose numbers are large compared to their range, such as nanoseconds since 1970, loses digits in float64. Its
numbers are then stored as differences from an origin: exact decimal numbers less the origin, rounded once.
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
        The caller's path.
    names : tuple of str, length K
        From the header, or "column 1", "column 2", ...; names may repeat.
    values : array, shape (N, K)
        Numbers less their column's origin, in the units of the file; NaN where a cell is missing or no number.
    origins : array, shape (K,)
        Integers. They are not 0 for columns whose numbers are large compared to their range and have more digits than
        float64 holds, or are 2^53 and larger and written to the unit.
    has_header : bool
        Whether the file gives names.
    problems : mapping of int to str
        By index, for columns that are not numeric: one line that names file, line, column and cell.
    lost : mapping of int to str
        The same for columns whose `values` lack digits that matter compared to the distances of the numbers.
    empty : tuple of int
        Columns without numbers and without a problem.
    notes : tuple of str
        Choices of the reader where the file allows several, and skipped lines, one line each.
    """

    path: str
    names: tuple[str, ...]
    values: Array
    origins: Array
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
        places = [k for k, other in enumerate(self.names) if other == name]
        if len(places) != 1:
            problem = "is the name of several columns" if places else "is no column"
            cure = ""
            if not places and not self.has_header and name in self._reader.header_cells:
                cure = f"; line {self._reader.first} was taken as data, --header yes takes it as names"
            raise DataError(f"{self.path}: {quoted(name)} {problem}; there are {listed(self.names)}{cure}")
        return places[0]

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
        """Numbers of one column, without subtracting an origin, shape (N,); NaN where a cell is missing.

        Raises
        ------
        DataError
            If the column is not numeric, or its numbers lack digits that matter.
        """
        self._refuse([k], self._reader.lost_without_origin)
        return self.less([k], np.zeros(1))[:, 0]

    def less(self, columns: Sequence[int], origins: Array) -> Array:
        """Numbers of some columns less other origins, from the text: each difference is rounded once.

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
        origins = np.asarray(origins, dtype=np.float64)
        if origins.shape != (len(columns),):
            raise ValueError(f"origins: shape {origins.shape}, expected ({len(columns)},), one for each column")
        check_finite(origins, "origins")
        self._refuse(columns, {})
        result = np.ascontiguousarray(self.values[:, list(columns)])
        others = {j: Decimal(float(origins[j])) for j, k in enumerate(columns) if origins[j] != self.origins[k]}
        if not others:
            return result
        for i, (line, cells) in enumerate(self._reader.rows()):
            for j, origin in others.items():
                if np.isnan(result[i, j]):
                    continue
                cell = cells[columns[j]].strip()
                if not origin or (self.origins[columns[j]] == 0.0 and result[i, j] == 0.0):
                    result[i, j] = value(cell) - origins[j]
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


def read_table(path: str | os.PathLike[str], *, header: bool | None = None, expected: Collection[str] = ()) -> Table:
    """Read a table of numbers from a text file, plain or gzipped, in UTF-8, or UTF-16 with a byte order mark.

    Commas, semicolons, tabs, | or blanks separate cells; points separate decimals, or commas where this is certain.
    Blank lines and lines that begin with #, % or // are skipped, except those below the first row that have as many
    cells as the table. Such a line directly above the data may name the columns. A missing cell is empty, or a word
    that cannot be a number, as NA, NaN, NaT, null, None, missing, ?, . and -; its row stays. The first column may lack
    a name, as in R and pandas, which write names of rows; last columns without name and numbers are left out.

    Parameters
    ----------
    path : path
        Of a file, or of a pipe that is written to.
    header : bool, optional
        Whether the first row holds names. None: the reader decides, with a note in doubtful cases. True: if the first
        row holds data below a comment with names, these are taken.
    expected : collection of str
        Names that the caller will ask for: if `header` is None, a first row with all of them holds names.

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
        reader.read(header, expected)
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
        has_header=reader.has_header,
        problems=reader.problems,
        lost=reader.lost,
        empty=reader.empty,
        notes=tuple(reader.notes),
        _reader=reader,
    )
