"""Cholesky factors of any size, left-looking by block columns: products by cuBLAS, panels by kernels/cholesky.cu.

A block column is an array (count, rows, width) of a batch of matrices; it holds the rows from its diagonal down, so any
of them are contiguous and cuBLAS reads them in place. Products are made matrix by matrix: their bits would otherwise
depend on how many matrices there are. Matrices are padded by a unit diagonal to a multiple of 32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import cupy
import numpy as np

from ..._checks import Array
from ._loader import load
from ._mixtures import BLOCK, tile_defines

PANEL = 32  # as in kernels/cholesky.cuh
TILE = 16
WIDTH = 512  # columns of a block: wide enough for cuBLAS, narrow enough that the panels' kernels have little to do
RETRIES = 3  # diagonal shifts tried: 1e-4, 1e-2 and 1 times the largest allowed
EPS = 2.220446049250313e-16

Fill = Callable[[int, int], Array]
"""Block column from its first column and its width."""


class Factors(NamedTuple):
    """Factors of a batch of matrices."""

    blocks: list[Array]
    info: Array
    half: Array
    """Sum of z^2 / 2 + log L_ii for each, where the matrices carry y."""


def padded(n_points: int) -> int:
    """Rows of a matrix with its padding."""
    return -(-n_points // PANEL) * PANEL


def block_bytes(n_points: int, width: int, extra_rows: int) -> int:
    """Bytes of one matrix's block columns, and of the product that is subtracted from one."""
    n = padded(n_points)
    starts = range(0, n, width)
    return 8 * sum((n - j + extra_rows) * min(width, n - j) for j in starts) + 8 * (n + extra_rows) * min(width, n)


def shifts_of(attempt: int, jitter: float, mean_diagonals: Array) -> Array:
    """Diagonal shifts of attempt 0, 1, 2, 3; attempt 0 shifts nothing, even where the mean is not finite."""
    shifts: Array = cupy.zeros_like(mean_diagonals)
    return jitter * (1e-4, 1e-2, 1.0)[attempt - 1] * mean_diagonals if attempt else shifts


def factor(fill: Fill, count: int, n_points: int, bounds: Array, width: int, *, with_y: bool) -> Factors:
    """Factors of `count` matrices.

    Parameters
    ----------
    fill : callable
        Gives block columns, overwritten here; `with_y`: with y in the row after the padded matrix, and 15 rows of 0.
    bounds : array, shape (count,)
        What pivots must exceed.
    width : int
        Columns of a block, a multiple of 32.
    """
    n = padded(n_points)
    info = cupy.zeros(count, dtype=np.int32)
    half = cupy.zeros(count)
    blocks: list[Array] = []
    for c0 in range(0, n, width):
        block = fill(c0, min(width, n - c0))
        for k, earlier in enumerate(blocks):
            skip = c0 - k * width
            for b in range(count):
                block[b] -= earlier[b, skip:] @ earlier[b, skip : skip + block.shape[2]].T
        inverse_pivots = _factor_block(block, bounds, info, c0)
        if with_y:
            sizes = [np.int32(k) for k in (*block.shape[1:], n - c0)]
            load("cholesky", "block_value_f64", **tile_defines())(
                (count,), (32,), (block, inverse_pivots, half, *sizes)
            )
        blocks.append(block)
    return Factors(blocks, info, half)


def _factor_block(block: Array, bounds: Array, info: Array, first_column: int) -> Array:
    """Factor a block column in place; returns the inverse pivots (count, width)."""
    count, rows, width = block.shape
    inverse_pivots: Array = cupy.empty((count, width))
    update, diagonal, solve = (
        load("cholesky", f"panel_{name}_f64", **tile_defines()) for name in ("update", "diagonal", "solve")
    )
    for c in range(0, width, PANEL):
        sizes = (np.int32(rows), np.int32(width), np.int32(c))
        if c:
            groups = -(-(rows - c) // (TILE * BLOCK // 32))
            update((count * groups,), (BLOCK,), (block, np.int64(count), *sizes))
        args = (block, bounds, info, inverse_pivots, *sizes, np.int32(first_column + c))
        diagonal((count,), (32,), args)
        below = rows - c - PANEL
        if below:
            solve((count * -(-below // BLOCK),), (BLOCK,), (block, inverse_pivots, *sizes))
    return inverse_pivots


def lower_factor(blocks: list[Array], b: int, n: int) -> Array:
    """Factor b as one (n, n) array; what lies above its diagonal is not meant to be read."""
    out: Array = cupy.zeros((n, n))
    c0 = 0
    for block in blocks:
        width = min(block.shape[2], n - c0)
        out[c0:, c0 : c0 + width] = block[b, : n - c0, :width]
        c0 += width
    return out
