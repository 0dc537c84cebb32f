"""CSV files in and out: numbers in columns, with or without a header; every complaint is one line."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import math
import os
import select
import stat
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ._checks import Array
from ._memory import free_bytes
from .archive import ALWAYS_READ, MOST_EXPANSION, opened, shortened
from .errors import DataError
from .prediction import Prediction

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_DELIMITERS = ("\t", ";", ",")  # in this order: a comma may also sit inside the cells of the other two
_MOST_NAMES = 20  # in a message
# Bytes taken in reading a table for each of the file (5 for cells of full digits, 17 for single ones); most bytes that
# a pipe may hold, and seconds of its silence
_ROOM, _MOST_PIPED, _SILENCE = 16, 2**30, 30.0
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


class _BadRow(Exception):
    """Line in which a row begins that is no CSV, and what csv says of it."""


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers of a CSV file.

    Attributes
    ----------
    names : tuple of str, length K
        From the header, or "column 1", "column 2", ...
    values : array, shape (N, K)
        Rows without missing cells.
    n_dropped : int
        Rows left out for a missing cell.
    """

    names: tuple[str, ...]
    values: Array
    n_dropped: int

    def split(self, target: str | None = None) -> tuple[Array, Array, tuple[str, ...], str]:
        """Inputs (N, K - 1), targets (N,), the inputs' names and the target's; the last column by default.

        Raises
        ------
        DataError
            If no column or several have the name `target`, or if there is but one column.
        """
        if len(self.names) < 2:
            raise DataError(f"one column ({shortened(self.names[0])}), expected at least one input and a target")
        found = [k for k, name in enumerate(self.names) if name == target]
        if target is None:
            found = [len(self.names) - 1]
        if len(found) != 1:
            problem = "is the name of several columns" if found else "is no column"
            raise DataError(f"target {target!r} {problem}; there are {listed(self.names)}")
        inputs = [k for k in range(len(self.names)) if k != found[0]]
        X = np.ascontiguousarray(self.values[:, inputs])
        return X, self.values[:, found[0]].copy(), tuple(self.names[k] for k in inputs), self.names[found[0]]


def listed(names: Sequence[str]) -> str:
    """Names with commas between them, on one line; of many, the first and the last."""
    shown = names if len(names) <= _MOST_NAMES else [*names[: _MOST_NAMES - 2], "...", names[-1]]
    return ", ".join(shortened(name) for name in shown)


def read_csv(path: str | os.PathLike[str]) -> Table:
    """Read a table of numbers, separated by commas, semicolons or tabs; UTF-8, plain or gzipped.

    The first row is a header if it holds text where the second row holds numbers, or no number at all. Rows
    with a missing cell (empty, NA, N/A, NaN, null, None or ?) are dropped and counted, blank lines skipped.

    Raises
    ------
    DataError
        In one line, for a file that is missing or unreadable, without rows, with rows of unequal length, or
        with a cell that is not a finite number, naming column and line.
    """
    try:
        return _table(path, _rows(_text(Path(path))))
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error})") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except _BadRow as error:
        raise DataError(f"{path}, line {error.args[0]}: not a CSV file ({shortened(error.args[1], 100)})") from None
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV file ({shortened(str(error), 100)})") from None
    except OverflowError:
        raise DataError(
            f"{path}: a gzip file more than {MOST_EXPANSION} times larger inside than outside; unpack it first"
        ) from None


def _table(path: str | os.PathLike[str], rows: Iterator[tuple[int, list[str]]]) -> Table:
    """Numbers of rows as they come: kept as text, a row takes tens of times the room it takes in the file."""
    ahead = list(itertools.islice(rows, 2))
    if not ahead:
        raise DataError(f"{path}: empty, expected rows of numbers")
    first, width = ahead[0][0], len(ahead[0][1])
    for line, cells in ahead:
        _check_width(path, line, cells, width, first)
    names = tuple(f"column {k + 1}" for k in range(width))
    if _is_header(ahead):
        names = tuple(cell or name for cell, name in zip(ahead[0][1], names, strict=True))
        ahead = ahead[1:]
    numbers = array("d")
    n_rows = n_dropped = 0
    empty = set(range(width))  # columns in which nothing was seen yet
    for line, cells in itertools.chain(ahead, rows):
        _check_width(path, line, cells, width, first)
        n_rows += 1
        if empty:
            empty = {k for k in empty if cells[k].lower() in _MISSING}
        if any(cell.lower() in _MISSING for cell in cells):
            n_dropped += 1
            continue
        for k, cell in enumerate(cells):
            try:
                numbers.append(_number(cell))
            except ValueError:
                place = f"{path}, line {line}, column {_shortened(names[k])}"
                raise DataError(f"{place}: {_shortened(cell)}, expected a finite number") from None
    if n_dropped == n_rows:
        why = f"; nothing is in {listed([names[k] for k in sorted(empty)])}" if n_rows and empty else ""
        why += " (do the lines end with a delimiter?)" if why and width - 1 in empty else ""
        raise DataError(f"{path}: no row without missing cells, expected at least one{why}")
    return Table(names, np.array(numbers).reshape(-1, width), n_dropped)


def _check_width(path: str | os.PathLike[str], line: int, cells: list[str], width: int, first: int) -> None:
    if len(cells) != width:
        why = "; it ends with a delimiter" if len(cells) == width + 1 and not cells[-1] else ""
        count = f"{len(cells)} cell" if len(cells) == 1 else f"{len(cells)} cells"
        raise DataError(f"{path}, line {line}: {count}, expected {width} as in line {first}{why}")


def write_predictions(
    destination: str | os.PathLike[str] | TextIO,
    X: Array,
    names: Sequence[str],
    prediction: Prediction,
    actual: Array | None = None,
    target: str = "target",
) -> None:
    """Write a row a point: inputs, the actual target if known, mean, sd, 5, 25, 50, 75 and 95 % quantiles.

    Parameters
    ----------
    destination : path or text stream
    X : array, shape (M, D)
    names : D column names
    prediction : Prediction of M points
    actual : array, shape (M,), optional
        Written under the name `target`.

    Raises
    ------
    DataError
        If the file cannot be written.
    """
    known = [] if actual is None else [actual]
    columns = [*X.T, *known, prediction.mean, np.sqrt(prediction.variance), *prediction.quantile(_LEVELS)]
    header = [
        *names,
        *([target] if known else []),
        "mean",
        "sd",
        *(f"q{round(100 * q):02d}" for q in _LEVELS),
    ]
    try:
        with _opened(destination) as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(header)
            writer.writerows([[repr(float(cell)) for cell in row] for row in zip(*columns, strict=True)])
    except OSError as error:
        raise DataError(f"{destination}: cannot be written ({error.strerror or error})") from None


def _opened(destination: Any) -> contextlib.AbstractContextManager[TextIO]:
    if isinstance(destination, str | os.PathLike):
        return open(destination, "w", encoding="utf-8", newline="")
    return contextlib.nullcontext(destination)


def _content(path: Path) -> bytes:
    """All bytes of a file, or of a pipe that is written to, as a shell's ``<(...)``."""
    with opened(path) as file:
        kind = os.fstat(file.fileno())
        if stat.S_ISREG(kind.st_mode):
            needed = _ROOM * kind.st_size
            if needed > ALWAYS_READ and needed > (free := free_bytes()):
                raise DataError(
                    f"{path}: {kind.st_size} bytes, to read which takes some {_ROOM} times as many; {free} are free"
                )
            return file.read()
        if not stat.S_ISFIFO(kind.st_mode):
            raise DataError(f"{path}: a device, expected a file")
        content = bytearray()
        while True:
            if not select.select([file], [], [], _SILENCE)[0]:
                raise DataError(f"{path}: a pipe from which nothing came for {_SILENCE:g} s")
            piece = os.read(file.fileno(), 2**20)
            content += piece
            if not piece:
                return bytes(content)
            if len(content) > _MOST_PIPED:
                raise DataError(f"{path}: a pipe of more than {_MOST_PIPED} bytes, expected less; write it to a file")


def _text(path: Path) -> str:
    content = _content(path)
    if content[:2] == b"\x1f\x8b":  # gzip's mark, whatever the file is called
        most = max(ALWAYS_READ, MOST_EXPANSION * len(content))
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise OverflowError(most)
    return content.decode("utf-8-sig")


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Number of the first line and stripped cells of every row that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), skipinitialspace=True, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # of an unclosed quote the reader knows only where the file ends
            raise _BadRow(line, str(error)) from None
        cells = [cell.strip() for cell in row]
        if len(cells) > 1 or any(cells):
            yield line, cells


def _delimiter(text: str) -> str:
    """The first of tab, semicolon and comma that splits both of the first two rows that are not blank."""
    lines = [line for line in text[:100_000].splitlines() if line.strip()][:2]
    for delimiter in _DELIMITERS:
        if lines and all(len(row) > 1 for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True)):
            return delimiter
    return ","


def _is_header(rows: list[tuple[int, list[str]]]) -> bool:
    first = rows[0][1]
    text = [k for k, cell in enumerate(first) if not _is_number(cell) and cell.lower() not in _MISSING]
    if not text:
        return False
    if not any(_is_number(cell) for cell in first):
        return True
    return len(rows) > 1 and all(_is_number(rows[1][1][k]) for k in text)


def _number(cell: str) -> float:
    value = float(cell)
    if not math.isfinite(value) or "_" in cell:  # Python reads 1_000, no CSV means it
        raise ValueError(cell)
    return value


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _shortened(cell: str) -> str:
    return repr(cell if len(cell) <= 30 else cell[:27] + "...")
