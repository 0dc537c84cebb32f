"""What the loops of this backend rest on where NUMBA_DISABLE_JIT=1 makes them plain Python.

A loop over `lanes` has one turn, with the array of all its places: its innermost statements are then NumPy's, and a
small fit takes seconds instead of hours. Results differ from compiled ones by rounding alone.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._exact import product

unsigned = int  # NumPy 1 makes a float of a uint64 and an int
sqrt = np.sqrt


def lanes(width: int) -> tuple[NDArray[np.int64]]:
    """All places up to `width` as one index."""
    return (np.arange(int(width)),)


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, numbers or arrays, rounded twice; for numbers exact where c is minus the rounded product."""
    rounded = np.multiply(a, b)
    if rounded.ndim or rounded != -c:
        return rounded + c
    rest = product(a, b)[1]
    return rest if np.isfinite(rest) else np.float64(0.0)  # parts of numbers beyond 1e300 overflow


def clamped(x: Any) -> Any:
    """max(x, 0), numbers or arrays; NaN stays NaN."""
    return np.maximum(x, 0.0)


def exp_neg(x: Any) -> Any:
    """exp(x) for x <= 0, numbers or arrays; 0 below -708."""
    return np.exp(x) * (x >= -708.0) if np.ndim(x) == 0 else np.where(x < -708.0, 0.0, np.exp(x))


def routine(spec: str) -> Any:
    """`_lapack.routine` by ctypes: for the letters of `spec` see there."""
    stored: dict[str, Any] = {"i": ctypes.c_int, "d": ctypes.c_double}
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(spec))

    def call(address: int, arguments: tuple[Any, ...]) -> int:
        values, info = iter(arguments), ctypes.c_int(0)
        pointers: list[Any] = []
        for letter in spec:
            if letter == "p":
                pointers.append(ctypes.c_void_p(int(next(values))))
            elif letter == "c":
                pointers.append(ctypes.byref(ctypes.c_char(int(next(values)))))
            else:
                pointers.append(ctypes.byref(info if letter == "o" else stored[letter](next(values))))
        kind(int(address))(*pointers)
        return info.value

    return call


_functions: list[Any] = []


def address_of(signature: Any, function: Any) -> int:
    """A number for `function`, instead of its address."""
    _functions.append(function)
    return len(_functions) - 1


def caller(signature: Any) -> Any:
    """Call the function of a number."""
    return lambda address, arguments: _functions[address](*arguments)
