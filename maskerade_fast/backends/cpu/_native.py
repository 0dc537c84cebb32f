"""The one layout of arrays for which compiled code exists.

Numba compiles a function again for every layout that it meets: a read-only array, or one in Fortran's order, would cost
seconds of compilation. So every array that comes from outside goes through `native` before compiled code sees it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._checks import Array
from ._arguments import Mixtures

__all__ = ["native", "native_batch"]


def native(array: Array, dtype: Any = np.float64) -> Array:
    """`array` as `dtype`, C-contiguous, aligned and writable; itself if it is all that, else a copy."""
    if type(array) is np.ndarray and array.dtype == dtype and array.flags.carray:
        return array
    return np.asarray(np.require(array, dtype, ["C", "A", "W"]))  # a subclass, of mapped files say, goes too


def native_batch(offsets: Array, weights: Array, means: Array, scales: Array) -> Mixtures:
    """`native` arrays of a GMMBatch."""
    return Mixtures(native(offsets, np.int64), native(weights), native(means), native(scales))
