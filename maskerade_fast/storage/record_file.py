"""A file of records with checksums: appended one by one, whole or not at all, by one process at a time.

A line that names the layout, then records ``length (8 bytes) | CRC-32 of it (4) | payload | BLAKE2b of it (16)``,
little-endian, each flushed to the disk. An append that was cut short leaves a record that ends too early, or zeros
where the power failed; both are ignored and overwritten. Any other fault is damage, and the file is refused.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
import zlib
from pathlib import Path
from typing import NoReturn

from ..errors import DataError

try:
    import fcntl
except ImportError:  # on Windows, where two runs may then write one file
    fcntl = None  # type: ignore[assignment]

_HEAD, _CHECK = struct.Struct("<QI"), 16


class RecordFile:
    """The records at `path`, a new file if there is none; no other process may use it until `close`.

    Parameters
    ----------
    path : Path
    mark : bytes
        First bytes of the first line; the number of the layout follows.
    layout : int
        The newest layout that the caller can read.

    Attributes
    ----------
    first, end : int
        Where the first record begins (0 in a new file), and where the next record will begin. The caller sets `end` to
        the end of the last record that it accepts.
    size : int
        Size of the file when it was opened.

    Raises
    ------
    DataError
        For another kind of file, a newer layout, a file in use or one that cannot be written; the methods raise it too.
        It names `path`.
    """

    def __init__(self, path: Path, mark: bytes, layout: int) -> None:
        self.path = path
        self._line = mark + b"%d\n" % layout
        self.first = self.end = 0
        try:
            self._file = self._opened()
        except OSError as error:
            self.refuse(f"cannot be written ({error.strerror or error})")
        try:
            self.size = os.fstat(self._file.fileno()).st_size
            self._check_line(mark, layout)
        except OSError as error:
            self.close()
            self.refuse(f"cannot be read ({error.strerror or error})")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._file.close()

    def payload(self, position: int) -> bytes | None:
        """Payload of the record at `position`; None where the file ends before the record or within it."""
        try:
            self._file.seek(position)
            head = self._file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return None
            length, check = _HEAD.unpack(head)
            if zlib.crc32(head[:8]) != check or length == 0:
                self._require_zeros(head, position)
                return None
            end = position + _HEAD.size + length + _CHECK
            if end > self.size and end > self.end:
                return None
            payload, digest = self._file.read(length), self._file.read(_CHECK)
        except OSError as error:
            self.refuse(f"cannot be read ({error.strerror or error})")
        if hashlib.blake2b(payload, digest_size=_CHECK).digest() == digest:
            return payload
        if end == self.size:
            return None  # blocks that did not reach the disk
        self.refuse_damage(position)

    @staticmethod
    def behind(position: int, payload: bytes) -> int:
        """Position of the record behind one with this payload."""
        return position + _HEAD.size + len(payload) + _CHECK

    def append(self, payload: bytes, kept: str = "") -> None:
        """Write a record at `end`. If that fails, the file ends there as before, and the message ends with `kept`."""
        head = struct.pack("<Q", len(payload))
        digest = hashlib.blake2b(payload, digest_size=_CHECK).digest()
        line = b"" if self.end else self._line
        content = memoryview(line + head + struct.pack("<I", zlib.crc32(head)) + payload + digest)
        try:
            try:
                self._file.truncate(self.end)
                self._file.seek(self.end)
                written = 0
                while written < len(content):
                    written += self._file.write(content[written:]) or 0
                os.fsync(self._file.fileno())
            except BaseException:  # also Ctrl-C: half a record would be ignored
                self._file.truncate(self.end)
                raise
        except OSError as error:
            self.refuse(f"cannot be written ({error.strerror or error}){kept}")
        self.end += len(content)

    def refuse_damage(self, position: int) -> NoReturn:
        """Raise DataError for damage at `position`."""
        self.refuse(f"damaged at byte {position}; it is left as it is")

    def refuse(self, why: str) -> NoReturn:
        """Raise DataError with the path and `why`."""
        raise DataError(f"checkpoint: {self.path}: {why}") from None

    def _opened(self) -> io.FileIO:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        file = io.FileIO(os.open(self.path, flags | getattr(os, "O_NONBLOCK", 0), 0o666), "r+b")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            self.refuse("not a file that can be written and read again")
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                self.refuse("in use by another run")
        return file

    def _check_line(self, mark: bytes, layout: int) -> None:
        start = self._file.read(len(mark) + 16)
        line, newline, _ = start.partition(b"\n")
        if not newline and self._line.startswith(start):  # empty, or cut short within the line
            return
        if not newline or not line.startswith(mark) or not line[len(mark) :].isdigit():
            self.refuse("not a checkpoint; it is left as it is")
        if int(line[len(mark) :]) > layout:
            self.refuse("written by a newer maskerade_fast")
        self.first = len(line) + 1

    def _require_zeros(self, content: bytes, position: int) -> None:
        """Refuse damage, unless only zeros follow: without power a file may be lengthened and not filled."""
        while content:
            if content.strip(b"\0"):
                self.refuse_damage(position)
            content = self._file.read(2**20)
