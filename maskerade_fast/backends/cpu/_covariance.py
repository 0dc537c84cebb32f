"""The covariance C_b of one mixture, Gram matrix plus noise and trend, built and factored in a worker's buffers.

A trend is V V' for basis functions V' (q, N): `gram_rows` adds its entries, and the noise table that is given here
holds its diagonal already (`gram.noise_with_basis`).

Likelihood and prediction both start here: by one thread for each mixture (`factor_mixture`), or by all threads together
where there are fewer mixtures than threads or the matrix is large (`factor_shared`), with the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ._lapack import potrf, solve_vector
from ._parallel import parallel_for
from .cholesky import RETRIES, first_bad_pivot, shift_of, tiled_potrf
from .gram import ROWS, SPLIT_SIZE, fill_rates, fill_tables, gram_rows, noise_at, total_weight

Array = NDArray[Any]

TILED_SIZE = 2048  # points from which one factorisation is shared among threads


class Workspace:
    """Buffers of one worker: the matrix, the tables of the mixture in hand, and one vector."""

    def __init__(self, n_max: int, n_points: int, n_dims: int, n_phases: int) -> None:
        self.matrix = np.empty((n_points, n_points))
        self.rates = np.empty((n_max, n_dims))
        self.cosines = np.empty((n_max * n_phases, n_points))
        self.sines = np.empty((n_max * n_phases, n_points))
        self.vector = np.empty(n_points)

    @staticmethod
    def bytes(n_max: int, n_points: int, n_dims: int, n_phases: int, rows: int) -> int:
        """Size, with `rows` further rows of a matrix for what the caller has in work."""
        return 8 * n_points * (n_points + 2 * n_max * n_phases + 1 + rows) + 8 * n_max * n_dims


def share_matrices(n_mixtures: int, n_points: int, threads: int) -> bool:
    """Whether the threads work together on one matrix after another, rather than each on its own."""
    return n_points >= TILED_SIZE or (n_mixtures < threads and n_points >= SPLIT_SIZE)


def factor_shared(
    b: int,
    blas: Array,
    mixtures: tuple[Array, Array, Array, Array],
    points: tuple[Array, Array, Array],
    noise: Array,
    jitter: float,
    n_phases: int,
    basis: Array,
    work: Workspace,
    threads: int,
) -> tuple[int, float]:
    """Prepare and factor one mixture with all threads; the bits of `factor_mixture` below `TILED_SIZE`."""
    offsets, weights, means, scales = mixtures
    x = points[0]
    n_points = x.shape[1]
    tables = (work.cosines, work.sines)
    first, n = int(offsets[b]), int(offsets[b + 1] - offsets[b])
    prepare_mixture(b, offsets, means, scales, *points[1:], n_phases, work.rates, *tables)
    k0, mean_diagonal = diagonal_of(b, offsets, weights, noise, n_points)

    def rows(start: int, stop: int) -> None:
        mixture = (n, first, weights, work.rates)
        gram_rows(start, stop, 1, *mixture, x, *tables, x, *tables, n_phases, basis, basis, work.matrix)

    info, shift = 0, 0.0
    for attempt in range(RETRIES + 1):
        shift = shift_of(attempt, jitter, mean_diagonal)
        parallel_for(rows, n_points, ROWS, threads=threads)
        if n_points < TILED_SIZE:
            info = factor_once(b, k0, shift, noise, blas, work.matrix)
        else:
            largest = set_diagonal(b, k0, shift, noise, work.matrix)
            info = first_bad_pivot(work.matrix, largest, tiled_potrf(blas, work.matrix, threads))
        if info == 0 or jitter == 0.0:
            break
    return info, shift if info == 0 else 0.0


@njit(inline="always")  # type: ignore[untyped-decorator]
def factor_mixture(
    b: int,
    blas: Array,
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    x: Array,
    high: Array,
    low: Array,
    noise: Array,
    jitter: float,
    n_phases: int,
    basis: Array,
    rates: Array,
    cosines: Array,
    sines: Array,
    matrix: Array,
) -> tuple[int, float]:
    """Tables of the mixture b and the factor of C_b, in the lower triangle of `matrix`; returns info and shift."""
    prepare_mixture(b, offsets, means, scales, high, low, n_phases, rates, cosines, sines)
    n_points = x.shape[1]
    first = offsets[b]
    n = offsets[b + 1] - first
    k0, mean_diagonal = diagonal_of(b, offsets, weights, noise, n_points)
    code, used = 0, 0.0
    for attempt in range(RETRIES + 1):
        used = shift_of(attempt, jitter, mean_diagonal)
        gram_rows(
            np.int64(0), n_points, np.int64(1), n, first, weights, rates, x, cosines, sines, x, cosines, sines,
            n_phases, basis, basis, matrix,
        )  # fmt: skip
        code = factor_once(b, k0, used, noise, blas, matrix)
        if code == 0 or jitter == 0.0:
            break
    if code != 0:
        used = 0.0
    return code, used


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def prepare_mixture(
    b: int,
    offsets: Array,
    means: Array,
    scales: Array,
    high: Array,
    low: Array,
    n_phases: int,
    rates: Array,
    cosines: Array,
    sines: Array,
) -> None:
    """Rates and tables of the mixture b."""
    first = offsets[b]
    n = offsets[b + 1] - first
    fill_rates(first, n, scales, rates)
    fill_tables(first, n, means, high, low, n_phases, cosines, sines)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def diagonal_of(b: int, offsets: Array, weights: Array, noise: Array, n_points: int) -> tuple[float, float]:
    """k(0) of mixture b, and the mean over the points of k(0) + noise."""
    k0 = total_weight(offsets[b], offsets[b + 1] - offsets[b], weights)
    total = 0.0
    for i in range(n_points):
        total += noise_at(noise, b, i)
    return k0, k0 + total / n_points


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def set_diagonal(b: int, k0: float, shift: float, noise: Array, matrix: Array) -> float:
    """Write the diagonal of C_b, k(0) + noise + shift; returns its largest entry."""
    largest = -math.inf
    for i in range(matrix.shape[0]):
        value = k0 + noise_at(noise, b, i) + shift
        matrix[i, i] = value
        largest = max(largest, value)
    return largest


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def factor_once(b: int, k0: float, shift: float, noise: Array, blas: Array, matrix: Array) -> int:
    """Set the diagonal of the Gram triangle in `matrix` and factor it in place; returns info."""
    n = matrix.shape[0]
    largest = set_diagonal(b, k0, shift, noise, matrix)
    return first_bad_pivot(matrix, largest, potrf(blas, n, matrix.ctypes.data, n))  # type: ignore[no-any-return]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def whitened(blas: Array, factor: Array, y: Array, z: Array) -> None:
    """z = L^-1 y."""
    n = len(y)
    for i in range(n):
        z[i] = y[i]
    solve_vector(blas, False, n, factor.ctypes.data, n, z.ctypes.data)
