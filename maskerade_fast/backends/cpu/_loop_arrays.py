"""Arrays, mixtures, points, basis functions and noise in the one layout for which compiled code exists.

Numba compiles a function again for every layout that it meets: a read-only array, or one in Fortran's order, would cost
seconds of compilation. So every array that comes from outside goes through `loop_array` before compiled code sees it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._checks import Array
from .._exact import difference
from ._arguments import Mixtures, Points


def loop_array(array: Array, dtype: Any = np.float64) -> Array:
    """`array` as `dtype`, C-contiguous, aligned and writable; itself if it is all that, else a copy."""
    if type(array) is np.ndarray and array.dtype == dtype and array.flags.carray:
        return array
    return np.asarray(np.require(array, dtype, ["C", "A", "W"]))  # a subclass, of mapped files say, goes too


def loop_batch(offsets: Array, weights: Array, means: Array, scales: Array) -> Mixtures:
    """The arrays of a GMMBatch, each by `loop_array`."""
    return Mixtures(loop_array(offsets, np.int64), loop_array(weights), loop_array(means), loop_array(scales))


def least_values(X: Array) -> Array:
    """The least value of each axis of points (N, D), from which phases are measured: no order of rows changes it."""
    least: Array = X.min(axis=0)
    return least


def points_by_axis(X: Array, origin: Array) -> Points:
    """Points (N, D) by axis: themselves (D, N), and their exact differences from `origin` as high + low."""
    x = loop_array(X.T)
    high, low = difference(x, np.asarray(origin, dtype=np.float64)[:, None])
    return Points(x, high, loop_array(low))


def basis_by_function(basis: Array | None) -> Array:
    """Basis functions at N points (N, q) as (q, N); none as (0, 0)."""
    return np.empty((0, 0)) if basis is None else loop_array(basis.T)


def noise_with_basis(noise: Array, basis: Array) -> Array:
    """The noise table with what the basis (q, N) adds to the diagonal."""
    return loop_array(noise + np.sum(basis * basis, axis=0)) if len(basis) else loop_array(noise)
