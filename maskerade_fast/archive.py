"""Flat dictionaries of arrays in one .npz file: written whole or not at all, read without running code."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._checks import Array
from .errors import DataError

_KIND, _VERSION = "maskerade_fast_kind", "maskerade_fast_version"
_DAMAGE = (ValueError, EOFError, KeyError, TypeError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any], *, kind: str, version: int) -> None:
    """Write numbers, arrays and strings under their names; an old file at `path` stays whole until replaced.

    Parameters
    ----------
    path : path
        Taken as it is: no suffix is added.
    arrays : mapping of str to array-like
        Of numbers or strings, not of objects.
    kind : str
        What the file holds; `load_arrays` refuses another.
    version : int
        Of the layout; `load_arrays` refuses a newer one.

    Raises
    ------
    TypeError
        For arrays of objects, which only executing code could restore.
    DataError
        If the file cannot be written.
    """
    content = {name: np.asarray(value) for name, value in arrays.items()}
    for name, value in content.items():
        if value.dtype.hasobject:
            raise TypeError(f"arrays[{name!r}]: dtype {value.dtype}, expected numbers or strings")
    content |= {_KIND: np.asarray(kind), _VERSION: np.asarray(version)}
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        try:
            with temporary.open("wb") as file:
                np.savez_compressed(file, **content)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror or error})") from None


def load_arrays(path: str | os.PathLike[str], *, kind: str, version: int) -> dict[str, Array]:
    """Read what `save_arrays` wrote; `version` is the newest layout the caller knows.

    Raises
    ------
    DataError
        In one line, if the file is missing, truncated, of another kind or program, or newer than `version`.
    """
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise DataError(f"{path}: damaged, or not a file saved by maskerade_fast")
            with np.load(file, allow_pickle=False) as archive:
                if _KIND not in archive.files or _VERSION not in archive.files:
                    raise DataError(f"{path}: not a file saved by maskerade_fast")
                found_kind, found_version = str(archive[_KIND]), int(archive[_VERSION])
                if found_kind != kind:
                    raise DataError(f"{path}: holds a {found_kind}, expected a {kind}")
                if found_version > version:
                    raise DataError(f"{path}: written by a newer maskerade_fast (layout {found_version} > {version})")
                return {name: archive[name] for name in archive.files if name not in (_KIND, _VERSION)}
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except _DAMAGE as error:
        raise DataError(f"{path}: damaged ({str(error).partition(chr(10))[0]})") from None
