"""Flat dictionaries of arrays in one .npz file: written whole or not at all, read without running code.

Reading trusts nothing in the file. NumPy's own reader evaluates headers as Python literals and allocates memory for the
shape that they state. Here a header must have the one form that `save_arrays` writes, and agree with the number of
bytes in the file, before any are read.
"""

from __future__ import annotations

import math
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from .._checks import Array
from .._text import shortened
from ..errors import DataError
from .output_files import replacing

# The content of a file may be this many times larger than the file, or this many bytes
MOST_EXPANSION, ALWAYS_READ = 100, 64 * 2**20
_KIND, _VERSION = "maskerade_fast_kind", "maskerade_fast_version"
_DAMAGE = (
    *(ValueError, TypeError, LookupError, EOFError, OverflowError, RuntimeError),  # RuntimeError: encrypted members
    *(struct.error, zipfile.BadZipFile, zlib.error),
)
_HEADER = re.compile(
    rb"\{'descr': '([<>|]?[biufU][0-9]{1,9})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,12},? ?){0,4})\), *\} *\n"
)


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any], *, kind: str, version: int) -> None:
    """Write numbers, arrays and strings under their names; an old file at `path` stays whole until replaced.

    Parameters
    ----------
    path : path
        No suffix is added.
    arrays : mapping of str to array-like
        Of numbers or strings, not of objects.
    kind : str
        Word for the content; `load_arrays` refuses another kind.
    version : int
        Number of the layout; `load_arrays` refuses a newer one.

    Raises
    ------
    TypeError
        For arrays of objects, which can only be restored by running code.
    DataError
        If the file cannot be written.
    """
    content = {name: np.asarray(value) for name, value in arrays.items()}
    for name, value in content.items():
        if value.dtype.hasobject:
            raise TypeError(f"arrays[{name!r}]: dtype {value.dtype}, expected numbers or strings")
    content |= {_KIND: np.asarray(kind), _VERSION: np.asarray(version)}
    target = Path(path)
    try:
        with replacing(target) as file:
            np.savez_compressed(file, **content)  # type: ignore[arg-type]
            if sum(value.nbytes for value in content.values()) > _most_bytes(file.tell()) // 2:
                file.seek(0)  # many equal numbers: `load_arrays` would take it for a zip bomb
                file.truncate()
                np.savez(file, **content)  # type: ignore[arg-type]
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror or error})") from None


def load_arrays(path: str | os.PathLike[str], *, kind: str, version: int) -> dict[str, Array]:
    """Read what `save_arrays` wrote; `version` is the newest layout the caller knows.

    Raises
    ------
    DataError
        In one line, if the file is missing, truncated, of another kind or program, newer than `version`, or larger
        inside than 64 MiB and a hundred times its size.
    """
    try:
        with opened(path) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DataError(f"{path}: a pipe or a device, expected a file")
            if not zipfile.is_zipfile(file):
                raise DataError(f"{path}: damaged, or not a file saved by maskerade_fast")
            size = os.fstat(file.fileno()).st_size
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                names = {member.filename.removesuffix(".npy"): member for member in members}
                if _KIND not in names or _VERSION not in names:
                    raise DataError(f"{path}: not a file saved by maskerade_fast")
                if len(names) < len(members):
                    raise ValueError("two arrays of one name")
                if sum(member.file_size for member in members) > _most_bytes(size):
                    raise ValueError(f"more than {MOST_EXPANSION} times larger inside than outside")
                own_kind, own_version = (_read_array(archive, names.pop(name)) for name in (_KIND, _VERSION))
                if own_kind.shape != () or own_kind.dtype.kind != "U":
                    raise ValueError("its kind is no word")
                if own_version.shape != () or own_version.dtype.kind not in "iu" or own_version < 1:
                    raise ValueError("its layout is no number from 1")
                if str(own_kind) != kind:
                    raise DataError(f"{path}: holds a {shortened(str(own_kind))}, expected a {kind}")
                if own_version > version:
                    raise DataError(f"{path}: written by a newer maskerade_fast (layout {own_version} > {version})")
                return {name: _read_array(archive, member) for name, member in names.items()}
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except _DAMAGE as error:
        raise DataError(f"{path}: damaged ({shortened(str(error), 200)})") from None


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """Open `path` for reading; a pipe that nobody writes to does not block the caller."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    return open(os.open(path, flags), "rb")


def _most_bytes(size: int) -> int:
    return max(ALWAYS_READ, MOST_EXPANSION * size)


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """One array of numbers or text, whose header and bytes agree; ValueError otherwise."""
    name = shortened(member.filename)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name}: compressed in a way that maskerade_fast does not write")
    with archive.open(member) as stream:
        start = _exactly(stream, 10, name)
        if start[:8] != b"\x93NUMPY\x01\x00":
            raise ValueError(f"{name}: no array")
        length = int.from_bytes(start[8:], "little")
        header = _HEADER.fullmatch(_exactly(stream, length, name))
        if header is None:
            raise ValueError(f"{name}: no array of numbers or text")
        dtype = np.dtype(header[1].decode())
        shape = tuple(int(n) for n in header[3].replace(b",", b" ").split())
        count = math.prod(shape)
        n_bytes = count * dtype.itemsize
        if n_bytes != member.file_size - 10 - length or (dtype.itemsize == 0 and count > 1):
            raise ValueError(f"{name}: shape {shape} of {dtype} does not fit its {member.file_size} bytes")
        content = _exactly(stream, n_bytes, name)
        if stream.read(1):  # the zip reader compares the checksum at the end
            raise ValueError(f"{name}: longer than its header says")
    # from a bytearray, so that the array is writable
    flat = np.frombuffer(bytearray(content), dtype=dtype) if content else np.zeros(count, dtype=dtype)
    return flat.reshape(shape, order="F" if header[2] == b"True" else "C")


def _exactly(stream: IO[bytes], count: int, name: str) -> bytes:
    content = stream.read(count)
    if len(content) < count:
        raise ValueError(f"{name}: ends early")
    return content
