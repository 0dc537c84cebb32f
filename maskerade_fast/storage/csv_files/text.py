"""Bytes of a table as rows of cells: the kind of file, its encoding, its delimiter, its lines of comments."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import os
import re
import select
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..._memory import free_bytes
from ...errors import DataError
from ..archive import ALWAYS_READ, MOST_EXPANSION, opened
from .delimiter import BLANKS, delimiter, in_blanks

# Most bytes of memory per byte of the file while it is read, measured for columns of single digits and for one cell of
# 3 MB, for which csv takes 16.2
_ROOM = 17
# Most bytes that a pipe may hold
_MOST_PIPED = 2**30
# Most seconds without a byte from a pipe
_SILENCE = 30.0
# Bytes and lines that decide the delimiter
_SAMPLE_BYTES, _SAMPLE_LINES = 100_000, 20
# A spreadsheet's errors, as #N/A, are cells
_COMMENT = re.compile(r"[ \t]*(?:#(?!(?:N/?A|DIV/0!|REF!|VALUE!|NUM!|NAME\?|NULL!))|%|//)")
_SEP_LINE = re.compile(r'"?sep=([;,|:^~\t ])"?[ \t;,]*', re.IGNORECASE)
# Most characters of a cell; csv allows this many on every system
_LONGEST_CELL = 2**31 - 1
# Most runs of comment lines in a message
_MOST_RUNS = 5

# First bytes of files that are no text, what they are, and what to do with them
_KINDS = (
    (b"PAR1", "a Parquet file", "write it as CSV"),
    (b"BZh", "a bzip2 file", "unpack it first"),
    (b"\xfd7zXZ\0", "an xz file", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "unpack it first"),
    (b"\x1f\x9d", "a compress (.Z) file", "unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it first"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it first"),
    (b"\x93NUMPY", "a NumPy array (.npy)", "write it with numpy.savetxt"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook (.xls)", "save its sheet as CSV"),
    (b"%PDF-", "a PDF document", "write its table as CSV"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 or NetCDF file", "write its table as CSV"),
    (b"CDF\x01", "a NetCDF file", "write its table as CSV"),
    (b"CDF\x02", "a NetCDF file", "write its table as CSV"),
    (b"MATLAB 5.0 MAT-file", "a MATLAB file (.mat)", "write its table as CSV"),
    (b"ARROW1\0\0", "an Arrow or Feather file", "write it as CSV"),
    (b"SQLite format 3\0", "an SQLite database", "write its table as CSV"),
    (b"SIMPLE  =", "a FITS file", "write its table as CSV"),
    (b"RDX", "an R file (.RData)", "write its table as CSV"),
    (b"X\n\0\0\0", "an R file (.rds)", "write its table as CSV"),
    (b"\x89PNG\r\n\x1a\n", "a picture (.png)", "give a table of numbers"),
    (b"\xff\xd8\xff", "a picture (.jpg)", "give a table of numbers"),
    (b"\x80\x04\x95", "a Python pickle", "write its table as CSV"),
    (b"\xff\xfe\0\0", "UTF-32 text", "save it as UTF-8"),
    (b"\0\0\xfe\xff", "UTF-32 text", "save it as UTF-8"),
)
_ZIPPED = (
    (b"xl/", "an Excel workbook (.xlsx)", "save its sheet as CSV"),
    (b"mimetypeapplication/vnd.oasis", "an OpenDocument file (.ods)", "save its sheet as CSV"),
    (b".npy", "a NumPy archive (.npz)", "write its table with numpy.savetxt"),
)


class BadRowError(Exception):
    """For a row that is no CSV: the line where it begins, and the message of csv."""


@dataclass(frozen=True, eq=False)
class TableText:
    """UTF-8 bytes of a table, its delimiter, and the number of the line that only names it, as ``sep=;`` (0: none)."""

    content: bytes
    delimiter: str
    sep_line: int = 0

    def may_hold_long_numbers(self) -> bool:
        """Whether any number has 16 characters or more, the decimal mark included."""
        mark = b"." if self.delimiter == "," else b".,"
        return re.search(b"[0-9" + mark + b"]{16}", self.content) is not None


class Rows:
    """Line and cells of every row that is neither blank nor a comment, from the first; cells are not stripped.

    Below the first row, a line that begins with #, % or // is a row if it has `width` cells, more than one, and no
    blanks between them.

    Attributes
    ----------
    n_comments : int
        Lines of comments passed so far.
    comment : tuple of int and str
        The last of them and its line; line 0 if there was none.
    """

    def __init__(self, text: TableText, width: int = 0) -> None:
        self.n_comments = 0
        self.comment = (0, "")
        self._delimiter = text.delimiter
        self._stream = io.TextIOWrapper(io.BytesIO(text.content), encoding="utf-8", newline="")
        self._sep_line = text.sep_line
        self._width = 0 if width == 1 or text.delimiter == BLANKS else width
        self._line = 0
        self._start = 0
        self._inside = False  # a quoted cell that goes on over several lines, where # begins no comment
        self._any = False  # whether there was a row
        self._runs: list[list[int]] = []  # first and last lines of comments one below the other

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        with _long_cells():
            reader = csv.reader(self._lines(), delimiter=self._delimiter, skipinitialspace=True, strict=True)
            try:
                for cells in reader:
                    self._inside = False
                    if len(cells) > 1 or (cells and cells[0].strip()):
                        self._any = True
                        yield self._start, cells
            except csv.Error as error:  # csv notices an open quote only at the end of the file
                raise BadRowError(self._start, str(error)) from None

    def skipped(self, but: int = 0) -> str:
        """Note on the skipped comments and their lines, except the comment in line `but`; "" for none."""
        count = self.n_comments - (but > 0)
        if not count:
            return ""
        runs = [f"{first}" if first == last else f"{first} to {last}" for first, last in self._shown(but)]
        if len(runs) > _MOST_RUNS:
            runs = [*runs[:_MOST_RUNS], "more"]
        lines = ", ".join(runs[:-1]) + (" and " if runs[1:] else "") + runs[-1]
        return f"skipped 1 comment: line {lines}" if count == 1 else f"skipped {count} comments: lines {lines}"

    def _shown(self, but: int) -> Iterator[tuple[int, int]]:
        for first, last in self._runs:
            if first <= but <= last:
                yield from (run for run in ((first, but - 1), (but + 1, last)) if run[0] <= run[1])
            else:
                yield first, last

    def _lines(self) -> Iterator[str]:
        blanks = self._delimiter == BLANKS
        for line in self._stream:
            self._line += 1
            if not self._inside:
                self._start = self._line
                if self._line == self._sep_line:
                    continue
                if line[0] in "#%/ \t" and is_comment(line) and not self._is_row(line):
                    self._pass_comment(line)
                    continue
                self._inside = True
            yield in_blanks(line) if blanks else line

    def _is_row(self, line: str) -> bool:
        if not self._width or not self._any:
            return False
        try:
            cells = next(csv.reader([line], delimiter=self._delimiter, skipinitialspace=True, strict=True), [])
        except csv.Error:
            return False
        return len(cells) == self._width

    def _pass_comment(self, line: str) -> None:
        self.n_comments += 1
        self.comment = (self._line, line)
        if self._runs and self._runs[-1][1] == self._line - 1:
            self._runs[-1][1] = self._line
        elif len(self._runs) <= _MOST_RUNS:
            self._runs.append([self._line, self._line])


class _LongCells:
    """Lets csv read cells of any length during a pass; csv has one limit for the whole process."""

    def __init__(self) -> None:
        self.lock, self.passes, self.limit = threading.Lock(), 0, 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            if not self.passes:
                self.limit = csv.field_size_limit(_LONGEST_CELL)
            self.passes += 1
        try:
            yield
        finally:
            with self.lock:
                self.passes -= 1
                if not self.passes:
                    csv.field_size_limit(self.limit)


_long_cells = _LongCells()


def read_text(path: Path) -> TableText:
    """Content of a table, plain or gzipped, as UTF-8 without a mark, with its delimiter.

    Raises
    ------
    DataError
        For a file that is no text or none in UTF-8 (or UTF-16 with a byte order mark), naming what it looks like and
        the cure; for a device, a pipe without end, a file that memory has no room for.
    OSError, EOFError, zlib.error, OverflowError
        As they come from a file that cannot be read, a damaged gzip file, one that is far larger inside than outside.
    """
    content = _content(path)
    if content[:2] == b"\x1f\x8b":  # gzip's mark, whatever the file is called
        most = max(ALWAYS_READ, MOST_EXPANSION * len(content))
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise OverflowError(most)
    content = _utf8(path, content)
    sample = content[:_SAMPLE_BYTES].decode("utf-8", errors="ignore")
    ends = "\ufeff \t\r\n"
    numbered = (
        (n, line)
        for n, line in enumerate(io.StringIO(sample, newline=""), 1)
        if line.strip(ends) and not is_comment(line)
    )
    first = list(itertools.islice(numbered, _SAMPLE_LINES + 1))
    if first and (sep := _SEP_LINE.fullmatch(first[0][1].strip("\ufeff\r\n"))):
        return TableText(content, sep[1], first[0][0])
    lines = [line.rstrip("\r\n") for _, line in first]
    if len(content) > _SAMPLE_BYTES and 2 < len(lines) <= _SAMPLE_LINES:
        lines.pop()  # cut
    return TableText(content, delimiter(lines[:_SAMPLE_LINES]))


def is_comment(line: str) -> bool:
    """True for a line that begins with #, % or //, perhaps after blanks, but not with a spreadsheet's error."""
    return _COMMENT.match(line) is not None


def _utf8(path: Path, content: bytes) -> bytes:
    _refuse_other_kinds(path, content)
    encoding = "UTF-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "UTF-8"
    try:
        if encoding == "UTF-16":
            return content.decode("utf-16").encode()
        content = content.removeprefix(b"\xef\xbb\xbf")
        content.decode()
    except UnicodeError as error:
        at = error.start if isinstance(error, UnicodeDecodeError | UnicodeEncodeError) else 0
        raise DataError(f"{path}: not {encoding} text (byte {at}); save it as UTF-8") from None
    return content


def _refuse_other_kinds(path: Path, content: bytes) -> None:
    what = cure = ""
    begin = content[:1000].lstrip().lower()
    if content[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        what, cure = "a zip archive", "unpack it first"
        ends = content[:2000] + content[-(2**16) :]  # where a zip archive has the names of its members
        for mark, kind, remedy in _ZIPPED:
            if mark in ends:
                what, cure = kind, remedy
                break
    elif content[257:262] == b"ustar":
        what, cure = "a tar archive", "unpack it first"
    elif begin.startswith((b"<!doctype", b"<html", b"<?xml")):
        what, cure = "a web page or XML", "save its table as CSV"
    elif begin.startswith((b"{", b"[{", b"[[")):
        what, cure = "JSON", "write its table as CSV"
    elif content[:2] not in (b"\xff\xfe", b"\xfe\xff") and 3 * content[:200].count(0) > len(content[:200]):
        what, cure = "UTF-16 text without its mark, or no text", "save it as UTF-8"
    for mark, kind, remedy in _KINDS:
        if content.startswith(mark) and not (mark in (b"BZh", b"RDX") and content[:200].isascii()):
            what, cure = kind, remedy
    if what:
        raise DataError(f"{path}: looks like {what}, expected a table as text; {cure}")


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
