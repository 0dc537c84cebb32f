"""Choice of backend by the type of the arrays: NumPy -> `backends.cpu`, CuPy -> `backends.gpu`.

A backend is a module: plain functions, arrays in, arrays out, equal names and signatures in both. Nothing here
imports numba or cupy until arrays of that kind ask for it, and nothing moves between devices unasked.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import BackendUnavailableError
from ._blas import single_threaded_blas

__all__ = ["array_namespace", "get_backend", "is_cupy", "single_threaded_blas", "to_host"]


def is_cupy(array: Any) -> bool:
    """True for CuPy arrays, without importing cupy."""
    return type(array).__module__.partition(".")[0] == "cupy"


def array_namespace(*arrays: Any) -> ModuleType:
    """numpy or cupy, by the type of `arrays`; a mixture raises TypeError."""
    return importlib.import_module("cupy" if _on_gpu(arrays) else "numpy")


def get_backend(*arrays: Any) -> ModuleType:
    """`backends.cpu` or `backends.gpu`, by the type of `arrays`; a mixture raises TypeError."""
    return _load("gpu" if _on_gpu(arrays) else "cpu")


def to_host(array: Any) -> Any:
    """`array` as a NumPy array, copied from the card if it lives there."""
    return array.get() if is_cupy(array) else np.asarray(array)


def _on_gpu(arrays: tuple[Any, ...]) -> bool:
    kinds = {is_cupy(array) for array in arrays if array is not None}
    if len(kinds) > 1:
        raise TypeError("arguments: NumPy and CuPy arrays are mixed, expected one kind; move with g.to('cpu'|'gpu')")
    return kinds == {True}


@functools.cache
def _load(name: str) -> ModuleType:
    if importlib.util.find_spec(f"{__name__}.{name}") is None:
        raise BackendUnavailableError(f"the {name!r} backend is not part of this version of maskerade_fast")
    return importlib.import_module(f"{__name__}.{name}")
