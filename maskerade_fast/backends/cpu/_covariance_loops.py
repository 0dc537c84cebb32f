"""Compiled loops of the covariance of one mixture; `_covariance.py` says who calls them."""

from __future__ import annotations

import math

from numba import types

from ..._checks import Array
from ._addresses import by_address
from ._arguments import GRAM_ENTRIES, PROBLEM, WORKSPACE, GramEntries, Mixtures, Points, Problem, Workspace, i8
from ._cholesky_loops import RETRIES, first_bad_pivot, jitter_of
from ._gram_loops import call_rows, call_tables, fill_rates, noise_at, total_weight
from ._jit import inner, loop
from ._lapack import potrf, solve_vector


@inner
def factor_mixture(b: int, problem: Problem, work: Workspace, entries: GramEntries) -> tuple[int, float]:
    """Tables of the mixture b and the factor of C_b, in the lower triangle of the matrix; returns info and jitter."""
    mixtures, points, _, noise, basis, jitter, n_phases = problem
    prepare_mixture(b, mixtures, points, n_phases, work, entries)
    n_points = points.x.shape[1]
    first = mixtures.offsets[b]
    n = mixtures.offsets[b + 1] - first
    k0, mean_diagonal = diagonal_of(b, mixtures.offsets, mixtures.weights, noise, n_points)
    tables = (points.x, work.cosines, work.sines)
    sides = (mixtures.weights, work.rates, *tables, *tables)
    code, added = 0, 0.0
    for attempt in range(RETRIES + 1):
        added = jitter_of(attempt, jitter, mean_diagonal)
        call_rows(entries.gram_rows, (0, n_points, 1, n, first, *sides, n_phases, basis, basis, work.matrix))
        code = factor_once(b, k0, added, noise, entries.blas, work.matrix)
        if code == 0 or jitter == 0.0:
            break
    if code != 0:
        added = 0.0
    return code, added


@loop
def prepare_mixture(
    b: int, mixtures: Mixtures, points: Points, n_phases: int, work: Workspace, entries: GramEntries
) -> None:
    """Rates and tables of the mixture b."""
    first = mixtures.offsets[b]
    n = mixtures.offsets[b + 1] - first
    fill_rates(first, n, mixtures.scales, work.rates)
    tables = (points.high, points.low, n_phases, work.cosines, work.sines)
    call_tables(entries.fill_tables, (first, n, mixtures.means, *tables))


@loop
def diagonal_of(b: int, offsets: Array, weights: Array, noise: Array, n_points: int) -> tuple[float, float]:
    """k(0) of mixture b, and the mean over the points of k(0) + noise."""
    k0 = total_weight(offsets[b], offsets[b + 1] - offsets[b], weights)
    total = 0.0
    for i in range(n_points):
        total += noise_at(noise, b, i)
    return k0, k0 + total / n_points


@loop
def set_diagonal(b: int, k0: float, jitter: float, noise: Array, matrix: Array) -> float:
    """Write the diagonal of C_b, k(0) + noise + jitter; returns its largest entry."""
    largest = -math.inf
    for i in range(matrix.shape[0]):
        value = k0 + noise_at(noise, b, i) + jitter
        matrix[i, i] = value
        largest = max(largest, value)
    return largest


@loop
def factor_once(b: int, k0: float, jitter: float, noise: Array, blas: Array, matrix: Array) -> int:
    """Set the diagonal of the Gram triangle in `matrix` and factor it in place; returns info."""
    n = matrix.shape[0]
    largest = set_diagonal(b, k0, jitter, noise, matrix)
    return first_bad_pivot(matrix, largest, potrf(blas, n, matrix.ctypes.data, n))


@inner
def whitened(blas: Array, factor: Array, y: Array, z: Array) -> None:
    """z = L^-1 y."""
    n = len(y)
    for i in range(n):
        z[i] = y[i]
    solve_vector(blas, False, n, factor.ctypes.data, n, z.ctypes.data)


factor_address, call_factor = by_address(
    types.Tuple((types.int64, types.float64))(i8, PROBLEM, WORKSPACE, GRAM_ENTRIES), factor_mixture
)
