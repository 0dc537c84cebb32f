"""Bytes of a table as rows of cells: the kind of file, its encoding, its delimiter, its lines of comments."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import select
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ._memory import free_bytes
from .archive import ALWAYS_READ, MOST_EXPANSION, opened
from .errors import DataError
from .table_cells import is_text, looks_like_thousands

# Bytes of memory that reading takes for each byte of the file, at most: measured for columns of single digits
_ROOM = 16
# Most bytes that a pipe may hold
_MOST_PIPED = 2**30
# Seconds for which a pipe may say nothing
_SILENCE = 30.0
# Bytes and lines by which the delimiter is chosen
_SAMPLE_BYTES, _SAMPLE_LINES = 100_000, 20
# In this order: a comma may also sit inside the cells of the other two
_DELIMITERS = ("\t", ";", ",")
# Runs of blanks and tabs between cells
BLANKS = " "
# A spreadsheet's errors, as #N/A, are cells
_COMMENT = re.compile(r"[ \t]*(?:#(?!(?:N/A|DIV/0!|REF!|VALUE!|NUM!|NAME\?|NULL!))|%|//)")
_SEP_LINE = re.compile(r'"?sep=([;,|:^~\t ])"?[ \t;,]*(?:\r\n|\r|\n|$)', re.IGNORECASE)

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
    """Line in which a row begins that is no CSV, and what csv says of it."""


@dataclass(frozen=True, eq=False)
class TableText:
    """UTF-8 bytes of a table, its delimiter, and whether its first line ``sep=;`` only names this."""

    content: bytes
    delimiter: str
    has_sep_line: bool


class Rows:
    """Line and cells of every row that is neither blank nor a comment, from the first; cells are not stripped.

    Attributes
    ----------
    n_comments : int
        Lines of comments passed so far.
    comment : tuple of int and str
        The last of them and its line; line 0 if there was none.
    """

    def __init__(self, text: TableText) -> None:
        self.n_comments = 0
        self.comment = (0, "")
        self._delimiter = text.delimiter
        self._stream = io.TextIOWrapper(io.BytesIO(text.content), encoding="utf-8", newline="")
        self._line = 0
        self._start = 0
        self._inside = False  # a quoted cell that goes on over several lines, where # begins no comment
        if text.has_sep_line:
            next(self._stream)
            self._line = 1

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(self._lines(), delimiter=self._delimiter, skipinitialspace=True, strict=True)
        try:
            for cells in reader:
                self._inside = False
                if len(cells) > 1 or (cells and cells[0].strip()):
                    yield self._start, cells
        except csv.Error as error:  # of an unclosed quote the reader knows only where the file ends
            raise BadRowError(self._start, str(error)) from None

    def _lines(self) -> Iterator[str]:
        blanks = self._delimiter == BLANKS
        for line in self._stream:
            self._line += 1
            if not self._inside:
                self._start = self._line
                if line[0] in "#%/ \t" and is_comment(line):
                    self.n_comments += 1
                    self.comment = (self._line, line)
                    continue
                self._inside = True
            yield in_blanks(line) if blanks else line


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
    sep = _SEP_LINE.match(sample)
    if sep:
        return TableText(content, sep[1], has_sep_line=True)
    lines = [line for line in re.split(r"\r\n|\r|\n", sample) if line.strip() and not is_comment(line)]
    if len(content) > _SAMPLE_BYTES and len(lines) > 2:
        lines.pop()  # cut
    return TableText(content, _delimiter(lines[:_SAMPLE_LINES]), has_sep_line=False)


def is_comment(line: str) -> bool:
    """True for a line that begins with #, % or //, perhaps after blanks, but not with a spreadsheet's error."""
    return _COMMENT.match(line) is not None


def in_blanks(line: str) -> str:
    """`line` with nothing but blanks between its cells, and none around them."""
    return line.strip(" \t\r\n").replace("\t", " ") + "\n"


def split(lines: list[str], delimiter: str) -> list[list[str]]:
    """Stripped cells of every line."""
    prepared = map(in_blanks, lines) if delimiter == BLANKS else lines
    reader = csv.reader(prepared, delimiter=delimiter, skipinitialspace=True)
    return [[cell.strip() for cell in row] for row in reader]


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


def _delimiter(lines: list[str]) -> str:
    """What divides the cells of the first lines.

    The first of tab, semicolon, comma and blanks that leaves nothing but numbers and missing cells below the first
    line; for blanks, rows of other lengths than the first are then complained of. Where none does, the first of tab,
    semicolon and comma that divides the first two lines; else blanks, if they divide all lines alike and leave a column
    of numbers; else the comma.
    """
    rows = {delimiter: split(lines, delimiter) for delimiter in (*_DELIMITERS, BLANKS)}
    dividing = [d for d in _DELIMITERS if rows[d] and all(len(row) > 1 for row in rows[d][:2])]
    for delimiter in dividing:
        if _all_numbers(rows[delimiter][1:] or rows[delimiter]):
            return delimiter
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
    if _all_numbers(body) or _all_numbers([row for row in body if len(row) == len(blanks[0])]):
        one_name = len(blanks[0]) == 1 and all(looks_like_thousands(line.strip()) for line in lines[1:])
        return "," if one_name else BLANKS
    if len(widths) == 1 and len(blanks) > 1 and widths != {1}:
        columns = zip(*body, strict=True)
        return BLANKS if any(not any(map(is_text, column)) for column in columns) else ","
    return ","


def _all_numbers(rows: list[list[str]]) -> bool:
    """True for rows of one width above 1 without text."""
    widths = {len(row) for row in rows}
    return len(widths) == 1 and widths != {1} and not any(is_text(cell) for row in rows for cell in row)


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
