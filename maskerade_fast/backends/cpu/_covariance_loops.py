"""Compiled loops of the covariance of one mixture; `_covariance.py` says who calls them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ._cholesky_loops import RETRIES, first_bad_pivot, shift_of
from ._gram_loops import fill_rates, fill_tables, gram_rows, noise_at, total_weight
from ._lapack import potrf, solve_vector

Array = NDArray[Any]


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
