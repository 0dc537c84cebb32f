"""Compiled loops of Cholesky factors; `cholesky.py` has the rule of failure."""

from __future__ import annotations

import math

from ..._checks import Array
from ._jit import loop
from ._lapack import potrf, solve_rows, subtract_product, subtract_squares
from ._math import EPS

FACTOR_TILE = 256
RETRIES = 3  # jitters tried: 1e-4, 1e-2 and 1 times the largest allowed


@loop
def factor_matrices(
    start: int, stop: int, blas: Array, matrices: Array, jitter: float, out: Array, info: Array, added: Array
) -> None:
    """Factors of the matrices ``start : stop``."""
    n = matrices.shape[1]
    for b in range(start, stop):
        mean_diagonal = 0.0
        for i in range(n):
            mean_diagonal += matrices[b, i, i] / n
        for attempt in range(RETRIES + 1):
            added[b] = jitter_of(attempt, jitter, mean_diagonal)
            largest = -math.inf
            for i in range(n):
                for j in range(n):
                    out[b, i, j] = matrices[b, i, j] if j <= i else 0.0
                out[b, i, i] += added[b]
                largest = max(largest, out[b, i, i])
            info[b] = first_bad_pivot(out[b], largest, potrf(blas, n, out[b].ctypes.data, n))
            if info[b] == 0 or jitter == 0.0:
                break
        if info[b] != 0:
            added[b] = 0.0
            for i in range(n):
                for j in range(i + 1):
                    out[b, i, j] = math.nan


@loop
def first_bad_pivot(factor: Array, largest: float, lapack_info: int) -> int:
    """First k whose pivot is at most N eps `largest`, or not finite; else `lapack_info`, 0 for success."""
    n = factor.shape[0]
    bound = n * EPS * largest
    for k in range(lapack_info - 1 if lapack_info > 0 else n):
        pivot = factor[k, k] * factor[k, k]
        if not bound < pivot < math.inf:  # also true for NaN
            return k + 1
    return lapack_info


@loop
def jitter_of(attempt: int, jitter: float, mean_diagonal: float) -> float:
    """What attempt 0, 1, 2, 3 adds to the diagonal: nothing, then 1e-4, 1e-2 and 1 times the largest allowed."""
    if attempt == 0:
        return 0.0
    return jitter * mean_diagonal * (1e-4 if attempt == 1 else 1e-2 if attempt == 2 else 1.0)


@loop
def update_tile(row: int, column: int, blas: Array, matrix: Array) -> int:
    """Subtract from tile (row, column) what the columns before it explain; factor a diagonal tile."""
    n = matrix.shape[0]
    i, j = row * FACTOR_TILE, column * FACTOR_TILE
    height, width = min(FACTOR_TILE, n - i), min(FACTOR_TILE, n - j)
    out = matrix[i:, j:].ctypes.data
    if row > column:
        if j > 0:
            left, right = matrix[i:].ctypes.data, matrix[j:].ctypes.data
            subtract_product(blas, height, width, j, left, right, n, out, n)
        return 0
    if j > 0:
        subtract_squares(blas, width, j, matrix[j:].ctypes.data, n, out, n)
    return potrf(blas, width, out, n)


@loop
def solve_tile(row: int, column: int, blas: Array, matrix: Array) -> None:
    """Tile (row, column) of the factor from its updated entries and the factored diagonal tile."""
    n = matrix.shape[0]
    i, j = row * FACTOR_TILE, column * FACTOR_TILE
    corner, rows = matrix[j:, j:].ctypes.data, matrix[i:, j:].ctypes.data
    solve_rows(blas, False, min(FACTOR_TILE, n - j), min(FACTOR_TILE, n - i), corner, n, rows, n)
