"""The one layout of arrays for which compiled code exists.

Numba compiles a function again for every layout that it meets: a read-only array, or one in Fortran's order, would cost
seconds of compilation. So every array that comes from outside goes through `loop_array` before compiled code sees it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._checks import Array
from ._arguments import Mixtures

__all__ = ["loop_array", "loop_batch"]


def loop_array(array: Array, dtype: Any = np.float64) -> Array:
    """`array` as `dtype`, C-contiguous, aligned and writable; itself if it is all that, else a copy."""
    if type(array) is np.ndarray and array.dtype == dtype and array.flags.carray:
        return array
    return np.asarray(np.require(array, dtype, ["C", "A", "W"]))  # a subclass, of mapped files say, goes too


def loop_batch(offsets: Array, weights: Array, means: Array, scales: Array) -> Mixtures:
    """`loop_array` arrays of a GMMBatch."""
    return Mixtures(loop_array(offsets, np.int64), loop_array(weights), loop_array(means), loop_array(scales))
