"""Compiled loops over arrays that stay on the host on every device: latent coordinates and their proposals.

The contract leaves them out: `backends.host_loops` gives them, and the GPU has none of its own.
"""

from __future__ import annotations

import numpy as np

from ..._checks import Array
from ._loop_arrays import loop_array
from ._student_loops import DRAWS, fill_student_sums
from .distances import run

__all__ = ["student_sums"]


def student_sums(
    xi: Array, runs: Array, origins: Array, whitening: Array, centres: Array, constants: Array, twice: int,
    left_out: Array,
) -> Array:  # fmt: skip
    """Sum over k of ``constants[k] * (1 + |W (xi - c_k)|^2) ** (-twice / 2)`` at every draw; all arrays float64.

    A power below the smallest number is 0.

    Parameters
    ----------
    xi : (B, d)
    runs : (R + 1,) int64
        Kernels ``runs[r]:runs[r + 1]`` share the whitening W of run r.
    origins : (R, d)
        What is taken from the draws before they are whitened: a point near the run's centres.
    whitening : (R, d, d)
        Lower triangles.
    centres : (K, d)
        W (c_k - origin) of each kernel.
    constants : (K,)
    twice : int
        Of the exponent, which is a half or a whole number.
    left_out : (K,) int64
        For each kernel the row of `xi` that does not see it, or -1.

    Returns
    -------
    (B,) float64
    """
    xi, origins, whitening, centres, constants = map(loop_array, (xi, origins, whitening, centres, constants))
    runs, left_out = loop_array(runs, np.int64), loop_array(left_out, np.int64)
    out = np.empty(len(xi))

    def block(start: int, stop: int) -> None:
        fill_student_sums(start, stop, xi, runs, origins, whitening, centres, constants, twice, left_out, out)

    run(block, len(xi), 4 * DRAWS, len(xi) * len(constants))
    return out
