"""Cholesky factors of any size, left-looking by panels, all matrices of a batch in each launch (kernels/cholesky.cu).

Panels of 64 columns come in blocks: what the columns before a block explain is subtracted from all of it at once, so
that the rows to its left are read once a block, then panel by panel what the block's own columns explain. The widths
and the number of points alone decide in which order a sum runs: bits depend neither on other matrices nor on the card.
"""

from __future__ import annotations

from typing import NamedTuple

import cupy
import numpy as np

from ..._checks import Array
from ._loader import Kernel, device_limits, load
from ._mixtures import tile_defines

# As in kernels/cholesky.cu
TILE = 16
PANEL = 64
TALL, LOW = 128, 64  # rows of a panel that one block updates
STAGES, SLICE_STRIDE = 3, 20

WIDTH = 256  # columns of a block: its panels have little to read, and a product still spreads over the card
RETRIES = 3  # jitters tried: 1e-4, 1e-2 and 1 times the largest allowed
EPS = 2.220446049250313e-16


class Factors(NamedTuple):
    """Factors of a batch of matrices."""

    matrices: Array
    """(count, rows, n), the factors in the lower triangles; what lies above is not meant to be read."""
    inverse_pivots: Array
    """(count, n)"""
    info: Array


def padded(n_points: int) -> int:
    """Rows of a matrix with its padding: a diagonal that no bound of pivots exceeds."""
    return -(-n_points // TILE) * TILE


def jitters_of(attempt: int, jitter: float, mean_diagonals: Array) -> Array:
    """What attempt 0, 1, 2, 3 adds to diagonals; attempt 0 adds nothing, even where the mean is not finite."""
    nothing: Array = cupy.zeros_like(mean_diagonals)
    return jitter * (1e-4, 1e-2, 1.0)[attempt - 1] * mean_diagonals if attempt else nothing


def factor(matrices: Array, bounds: Array, width: int) -> Factors:
    """Factor padded matrices in place.

    Parameters
    ----------
    matrices : array, shape (count, rows, n)
        Lower triangles in the first n rows; each row y below becomes L^-1 y.
    bounds : array, shape (count,)
        What pivots must exceed.
    width : int
        Columns of a block, a multiple of 64.
    """
    count, rows, n = matrices.shape
    info = cupy.zeros(count, dtype=np.int32)
    inverse_pivots: Array = cupy.empty((count, n))
    solve = _kernel("panel_solve_f64", LOW)
    for c in range(0, n, PANEL):
        block = c - c % width
        if c == block:  # the whole block by all columns before it
            _update(matrices, bounds, info, inverse_pivots, c, min(width, n - c), 0)
        else:
            _update(matrices, bounds, info, inverse_pivots, c, min(PANEL, n - c), block)
        below = rows - min(c + PANEL, n)
        if below:
            sizes = (np.int32(rows), np.int32(n), np.int32(c))
            args = (matrices, inverse_pivots, *sizes)
            solve((count * -(-below // LOW),), (2 * LOW,), args, shared_mem=stage_bytes(LOW))
    return Factors(matrices, inverse_pivots, info)


def _update(matrices: Array, bounds: Array, info: Array, inverse_pivots: Array, c: int, width: int, first: int) -> None:
    """Subtract from columns c to c + width what those from `first` to c explain, and factor the panel's square at c."""
    count, rows, n = matrices.shape
    limits = device_limits()

    def blocks(height: int) -> int:  # before the first panel only the squares are worked on
        return int(count * (-(-(rows - c) // height) * -(-width // PANEL) if c > first else 1))

    tall = stage_bytes(TALL) <= limits.shared_bytes and blocks(TALL) >= 2 * limits.multiprocessors
    height = TALL if tall else LOW
    sizes = (np.int32(k) for k in (rows, n, c, width, first))
    args = (matrices, bounds, info, inverse_pivots, np.int64(count), *sizes)
    _kernel("panel_update_f64", height)((blocks(height),), (2 * height,), args, shared_mem=stage_bytes(height))


def _kernel(entry: str, height: int) -> Kernel:
    return load("cholesky", entry, MF_HEIGHT=height, **tile_defines())


def stage_bytes(height: int) -> int:
    """Dynamic shared memory of blocks of `height` rows: slices of products, or rows and a square, which need less."""
    return 8 * STAGES * (height + PANEL) * SLICE_STRIDE


def half_values(factors: Factors, n_points: int) -> Array:
    """Sum of z^2 / 2 + log L_ii for each matrix, where its last row is z = L^-1 y."""
    count, rows, n = factors.matrices.shape
    half: Array = cupy.empty(count)
    args = (factors.matrices, factors.inverse_pivots, half, *(np.int32(k) for k in (rows, n, n_points)))
    _kernel("factor_value_f64", LOW)((count,), (256,), args)
    return half


def invert(factors: Factors) -> Array:
    """Put the lower triangles of C^-1 in place of the factors; returns alpha = C^-1 y (count, n), from the last row."""
    matrices = factors.matrices
    count, rows, n = matrices.shape
    side = -(-n // LOW)
    alpha: Array = cupy.empty((count, n))
    whitening: Array = cupy.empty((count, n, n))
    sizes = (np.int32(rows), np.int32(n))
    args = (matrices, factors.inverse_pivots, whitening, alpha, np.int64(count), *sizes)
    _kernel("whitening_f64", LOW)((count * side,), (2 * LOW,), args, shared_mem=stage_bytes(LOW))
    squares = count * (side * (side + 1) // 2)
    _kernel("inverse_f64", LOW)((squares,), (2 * LOW,), (whitening, matrices, *sizes), shared_mem=stage_bytes(LOW))
    return alpha
