"""Cholesky factors: the rule of failure, the retries with a jitter, and tiles for large matrices.

`tiled_potrf` spreads one matrix over threads by a left-looking Cholesky over fixed square tiles, each computed by one
BLAS thread: LAPACK's own threads would make the bits depend on their number.
"""

from __future__ import annotations

import numpy as np

from ..._checks import Array
from ._cholesky_loops import FACTOR_TILE, factor_matrices, solve_tile, update_tile
from ._lapack import addresses
from ._loop_arrays import loop_array
from ._parallel import parallel_for, single_threaded_blas

__all__ = ["cholesky"]


def cholesky(matrices: Array, jitter: float = 0.0) -> tuple[Array, Array, Array]:
    """Factor one matrix per thread at a time, by LAPACK."""
    originals = loop_array(matrices)
    out = np.empty_like(originals)
    info = np.zeros(len(originals), dtype=np.int32)
    added = np.zeros(len(originals))
    blas = addresses()
    if originals.size:
        with single_threaded_blas():
            parallel_for(
                lambda start, stop: factor_matrices(start, stop, blas, originals, jitter, out, info, added),
                len(originals),
                1,
            )
    return out.astype(matrices.dtype, copy=False), info, added.astype(matrices.dtype, copy=False)


def tiled_potrf(blas: Array, matrix: Array, threads: int) -> int:
    """Cholesky factor of the lower triangle in place on many threads; equal bits for any number of them."""
    n_tiles = -(-len(matrix) // FACTOR_TILE)
    for column in range(n_tiles):
        infos = [0] * n_tiles

        def update(row: int, stop: int, column: int = column, infos: list[int] = infos) -> None:
            infos[column + row] = update_tile(column + row, column, blas, matrix)

        parallel_for(update, n_tiles - column, 1, threads=threads)
        if infos[column]:
            return column * FACTOR_TILE + infos[column]

        def solve(row: int, stop: int, column: int = column) -> None:
            solve_tile(column + 1 + row, column, blas, matrix)

        parallel_for(solve, n_tiles - column - 1, 1, threads=threads)
    return 0
