"""Gram matrices of spectral mixtures by tiles, a warp each (kernels/gram.cuh; mathematics.md section 1).

Phase tables are made for chunks of mixtures. Phases and lags depend on differences of the inputs alone.
"""

from __future__ import annotations

import cupy
import numpy as np

from ..._checks import Array
from ._loader import device_of
from ._mixtures import (
    Mixtures,
    chunks,
    diagonal_stats,
    grid_for,
    kernel_array,
    least_values,
    mixtures_of,
    phase_tables,
    points_by_axis,
)

__all__ = ["gram"]

ROWS, COLUMNS = 16, 32  # of the tile that a warp computes, as in kernels/gram.cu
WARPS = 4  # of a block
TABLE_BYTES = 256 * 2**20  # phase tables at a time


def gram(
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    X: Array,
    Y: Array | None,
    noise: Array,
    *,
    per_axis: bool,
) -> Array:
    """Tabulate phases for chunks of mixtures; a warp computes 16 x 32 entries."""
    other = X if Y is None else Y
    dtype = np.result_type(weights.dtype, X.dtype, other.dtype)
    with device_of(weights, means, scales, X, Y):
        out: Array = cupy.empty((len(offsets) - 1, len(X), len(other)))
        if out.size:
            mixtures = mixtures_of(offsets, weights, means, scales, per_axis)
            x = points_by_axis(X)
            if Y is None:
                _symmetric(mixtures, x, kernel_array(noise), out)
            else:
                _rectangular(mixtures, x, points_by_axis(Y), out)
        return out.astype(dtype, copy=False)


def _rectangular(mixtures: Mixtures, x: Array, y: Array, out: Array) -> None:
    """K(X, Y) into `out`."""
    n_rows, n_columns = x.shape[1], y.shape[1]
    tiles = -(-n_rows // ROWS) * -(-n_columns // COLUMNS)
    origin = least_values(x)
    kernel = mixtures.kernel("gram", "gram_f64")
    for start, stop in chunks(mixtures.edges, 0, 16 * mixtures.n_phases * (n_rows + n_columns), TABLE_BYTES):
        tables = [phase_tables(mixtures, points, origin, start, stop) for points in (x, y)]
        sizes = (np.int64(start), np.int64(stop - start), np.int32(n_rows), np.int32(n_columns), np.int32(len(x)))
        args = (*mixtures.components, x, tables[0], y, tables[1], out[start:stop], *sizes)
        kernel((grid_for((stop - start) * tiles, WARPS),), (32 * WARPS,), args)


def _symmetric(mixtures: Mixtures, x: Array, noise: Array, out: Array) -> None:
    """K(X, X) + noise into `out`."""
    n_dims, n_points = x.shape
    squares = -(-n_points // COLUMNS)
    tiles = squares * (squares + 1)  # two in each square on and below the diagonal
    origin = least_values(x)
    stats = diagonal_stats(mixtures, noise)
    kernel = mixtures.kernel("gram", "gram_symmetric_f64")
    for start, stop in chunks(mixtures.edges, 0, 16 * mixtures.n_phases * n_points, TABLE_BYTES):
        tables = phase_tables(mixtures, x, origin, start, stop)
        sizes = (np.int64(start), np.int64(stop - start), np.int64(len(noise)), np.int32(noise.shape[1]))
        args = (x, tables, stats, noise, out[start:stop], *sizes, np.int32(n_points), np.int32(n_dims))
        kernel((grid_for((stop - start) * tiles, WARPS),), (32 * WARPS,), (*mixtures.components, *args))
