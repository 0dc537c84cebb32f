"""Toeplitz covariances of regular 1-D grids on the card (kernels/schur.cu, toeplitz.cu).

Schur's algorithm by one block of threads for a matrix and up to three right-hand sides, in O(N^2) time and O(N) memory:
the targets, the basis functions of a trend, and for predictions the covariances with the test points, whose triangular
solves are steps of the same recursion. No factor is ever kept. A right-hand side's bits depend on no other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import numpy as np

from ..._checks import Array
from .. import to_host
from .._exact import lags_of
from .._results import Likelihoods, Predictions
from ._gp_chunks import chunk_of, subtract_squares
from ._loader import device_of, load
from ._mixtures import (
    BLOCK,
    Mixtures,
    diagonal_stats,
    grid_for,
    kernel_array,
    mixtures_of,
    phase_tables,
    planned_chunks,
)
from .gram import gram

__all__ = ["toeplitz_log_likelihood", "toeplitz_predict_gp"]

_SIDES = 3  # right-hand sides of a block of threads where there are several: four would spill registers
_ROWS = 16  # of N numbers that a test point may need: covariances, whitened ones, shares of scratch, solutions


def toeplitz_log_likelihood(
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    X: Array,
    y: Array,
    noise: Array,
    *,
    basis: Array | None = None,
    jitter: float,
    grad: bool,
    max_bytes: int | None,
) -> tuple[Array, Array, Array, list[Array] | None]:
    """Run Schur's recursion by one block of threads per matrix and three right-hand sides."""
    with device_of(weights, means, scales, X, y, noise):
        n_mixtures, n_points = len(offsets) - 1, len(X)
        dtype = np.result_type(weights.dtype, X.dtype, y.dtype)
        results = _Results(n_mixtures, weights, means, grad)
        if n_mixtures:
            mixtures = mixtures_of(offsets, weights, means, scales, False)
            problem = _problem(mixtures, X, y, noise, basis, jitter)
            each, per_component = 8 * n_points * _rows_of_likelihood(problem.rows, grad), 16 * n_points
            what = f"working memory for one Toeplitz matrix of {n_points} points"
            for start, stop in planned_chunks(mixtures.edges, each, per_component, max_bytes, what):
                white = cupy.empty((stop - start, problem.rows, n_points)) if problem.rows > 1 else None
                tables, solved = _schur(problem, problem.targets[None], white, grad, start, stop, results)
                if white is not None:
                    _trend(problem, white, solved, start, stop, results)
                if solved is not None:
                    _gradients(problem, tables, solved, start, results)
        return results.of_type(dtype)


class _Results(Likelihoods):
    """What the kernel says of each mixture."""

    def __init__(self, n_mixtures: int, weights: Array, means: Array, grad: bool) -> None:
        super().__init__(cupy, n_mixtures, weights, means, 1, grad)
        self.pivots: Array = cupy.empty(n_mixtures)


class _Problem(NamedTuple):
    """A batch on a grid."""

    mixtures: Mixtures
    lags: Array
    """As `lags_of`, (2, N)."""
    diagonal_stats: Array
    """k(0), the mean diagonal with the trend, and the largest without, (B, 3)."""
    targets: Array
    """Targets less a first guess of the trend, and its functions: (1 + q, N)."""
    start_at: Array
    """Minus the coefficients of that guess, (q,)."""
    jitter: float

    @property
    def rows(self) -> int:
        return int(self.targets.shape[0])


class _Solved(NamedTuple):
    """What the whole recursion leaves: minus the predictors (count, N), and C^-1 times the right-hand sides."""

    predictors: Array
    solutions: Array


def _problem(mixtures: Mixtures, X: Array, y: Array, noise: Array, basis: Array | None, jitter: float) -> _Problem:
    stats = diagonal_stats(mixtures, kernel_array(noise))
    lags = kernel_array(lags_of(to_host(X[:: max(len(X) - 1, 1), 0]), len(X)))
    y, q = kernel_array(y), 0 if basis is None else int(basis.shape[1])
    start_at: Array = cupy.zeros(q)
    if basis is None or not q:
        return _Problem(mixtures, lags, stats, y[None], start_at, jitter)
    functions = kernel_array(kernel_array(basis).T)
    stats[:, 1] += (functions * functions).sum(axis=0).mean()
    targets: Array = cupy.concatenate([y[None], functions])
    # A first guess, by least squares without regard to C: else likelihoods would be small differences where the trend
    # is most of the targets
    below: Array = cupy.empty((1, 1 + q, q))
    nothing = (cupy.zeros(1, dtype=np.int32), cupy.zeros(1), cupy.zeros(1))
    sizes = (np.int64(0), np.int32(len(y)), np.int32(q), np.int32(False))
    kernel = load("toeplitz", "toeplitz_trend_f64")
    kernel((1,), (BLOCK,), (targets.copy(), start_at, below, *nothing, *sizes))
    start_at = below[0, 0].copy()
    for k in range(q):
        targets[0] += start_at[k] * functions[k]
    return _Problem(mixtures, lags, stats, targets, start_at, jitter)


def _vectors(sides: int, each: int, whole: bool) -> int:
    """Rows of N numbers of the kernel's scratch for so many right-hand sides of one mixture, `each` for a block."""
    return 2 * -(-sides // each) * (2 + each + int(whole))


def _rows_of_likelihood(sides: int, grad: bool) -> int:
    """Rows of N numbers a mixture: scratch, whitened sides, predictor and solutions, sums."""
    several = sides > 1
    return _vectors(sides, _SIDES if several else 1, grad) + sides * several + (2 + sides) * grad


def _schur(
    problem: _Problem,
    targets: Array,
    white: Array | None,
    whole: bool,
    start: int,
    stop: int,
    results: _Results,
    by_point: bool = False,
) -> tuple[Array, _Solved | None]:
    """Schur's algorithm on mixtures ``start : stop``; returns their phase tables and, if `whole`, the solutions.

    `targets` are (count or 1, sides, N), or (count or 1, N, sides) if `by_point`, and so is `white`, which several
    right-hand sides want: it receives them whitened.
    """
    count, n = stop - start, problem.lags.shape[1]
    sides = targets.shape[2 if by_point else 1]
    mixtures = problem.mixtures
    twice = mixtures._replace(means=cupy.concatenate([mixtures.means, mixtures.means], axis=1))
    tables = phase_tables(twice, problem.lags, cupy.zeros(2), start, stop)  # a lag's two parts as two axes
    each = 1 if white is None else _SIDES
    scratch: Array = cupy.empty((count, _vectors(sides, each, whole), n))
    nothing: Array = cupy.empty(1)
    solved = _Solved(cupy.empty((count, n)), cupy.empty((count, sides, n))) if whole else _Solved(nothing, nothing)
    outputs = (results.value, results.info, results.jitter, results.pivots)
    within = (1, sides) if by_point else (n, 1)  # from one side to the next, from one entry to the next
    steps = (sides * n if len(targets) > 1 else 0, *within, sides * n, *within)
    sizes = (np.float64(problem.jitter), *(np.int64(value) for value in (start, sides, *steps)), np.int32(n))
    arrays = (*mixtures.components, problem.lags, tables, targets, problem.diagonal_stats)
    kernel = load("schur", "toeplitz_schur_f64", MF_WHOLE=int(whole), MF_SIDES=each)
    kept = nothing if white is None else white
    kernel((count * -(-sides // each),), (BLOCK,), (*arrays, scratch, *outputs, kept, *solved, *sizes))
    return tables, solved if whole else None


def _trend(problem: _Problem, white: Array, solved: _Solved | None, start: int, stop: int, results: _Results) -> Array:
    """Take the trend out of whitened targets and solutions, in place; returns its coefficients and R^-1."""
    count, rows, n = white.shape
    below: Array = cupy.empty((count, rows, rows - 1))
    solutions = cupy.empty(1) if solved is None else solved.solutions
    arrays = (white, problem.start_at, below, results.info, results.value, solutions)
    kernel = load("toeplitz", "toeplitz_trend_f64")
    sizes = (np.int64(start), np.int32(n), np.int32(rows - 1), np.int32(solved is not None))
    kernel((count,), (BLOCK,), (*arrays, *sizes))
    return below


def _gradients(problem: _Problem, tables: Array, solved: _Solved, start: int, results: _Results) -> None:
    """Gradients of the mixtures from `start` on."""
    mixtures, (count, n) = problem.mixtures, solved.predictors.shape
    sums: Array = cupy.empty((count, n))
    args: tuple[Any, ...] = (*solved, results.info, results.pivots, sums)
    sizes: tuple[Any, ...] = (np.int64(start), np.int32(problem.rows), np.int32(n))
    load("toeplitz", "toeplitz_sums_f64")((count * -(-n // BLOCK),), (BLOCK,), (*args, *sizes))
    args, sizes = (*mixtures.components, problem.lags, tables, sums, *results.gradients), (np.int64(start), np.int32(n))
    load("toeplitz", "toeplitz_gradient_f64")((count,), (BLOCK,), (*args, *sizes))


def toeplitz_predict_gp(
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    X: Array,
    y: Array,
    noise: Array,
    X_new: Array,
    *,
    basis: Array | None = None,
    basis_new: Array | None = None,
    full: bool,
    jitter: float,
    max_bytes: int | None,
) -> tuple[Array, Array, Array | None, Array]:
    """Take the covariances with test points along the recursion, in chunks of mixtures and points."""
    with device_of(weights, means, scales, X, y, noise, X_new):
        n_mixtures, n_points, n_new = len(offsets) - 1, len(X), len(X_new)
        dtype = np.result_type(*(a.dtype for a in (weights, X, y, X_new)))
        predictions = Predictions(cupy, n_mixtures, n_new, full)
        results = _Results(n_mixtures, weights, means, False)
        if n_mixtures:
            mixtures = mixtures_of(offsets, weights, means, scales, False)
            problem = _problem(mixtures, X, y, noise, basis, jitter)
            X_new = kernel_array(kernel_array(X_new) - kernel_array(X)[:1])  # from the first point on, as the lags are
            no_trend = basis_new is None or problem.rows == 1
            V_new = cupy.zeros((1, n_new)) if no_trend else kernel_array(kernel_array(basis_new).T)
            height, width = _shape_of_chunks(mixtures, n_points, n_new, problem.rows, full, max_bytes)
            for start in range(0, n_mixtures, height):
                stop = min(start + height, n_mixtures)
                white: Array = cupy.empty((stop - start, problem.rows, n_points))
                _schur(problem, problem.targets[None], white, False, start, stop, results)
                below = _trend(problem, white, None, start, stop, results) if problem.rows > 1 else cupy.zeros(1)
                for first in range(0, n_new, width):
                    points = slice(first, min(first + width, n_new))
                    part = (problem, X_new[points], kernel_array(V_new[:, points]), white, below, start, stop, results)
                    own = predictions.covariance[start:stop] if full else None
                    _predict(*part, predictions.mean[start:stop, points], predictions.variance[start:stop, points], own)
        predictions.info = results.info
        return predictions.of_type(dtype)


def _shape_of_chunks(
    mixtures: Mixtures, n_points: int, n_new: int, rows: int, full: bool, max_bytes: int | None
) -> tuple[int, int]:
    largest = int(np.diff(mixtures.edges).max())

    def needed(width: int) -> int:  # tables of a mixture and of the points, the sides of the data, those of the points
        tables = 2 * largest * (2 * n_points + width)
        matrices = (1 + rows) * n_new**2 if full else 0
        sides = rows + _vectors(rows, _SIDES, False) + _ROWS * width
        return 8 * (tables + n_points * sides + matrices)

    least = n_new if full else min(n_new, _SIDES)
    what = f"one Toeplitz matrix of {n_points} points"
    return chunk_of(len(mixtures.edges) - 1, n_new, least, needed, max_bytes, what)


def _predict(
    problem: _Problem,
    X_new: Array,
    basis_new: Array,
    white: Array,
    below: Array,
    start: int,
    stop: int,
    results: _Results,
    mean: Array,
    variance: Array,
    covariance: Array | None,
) -> None:
    """Predictions of mixtures ``start : stop`` at some test points, all of them where there is a `covariance`."""
    count, n_functions, n_new, n = stop - start, problem.rows - 1, len(X_new), problem.lags.shape[1]
    part = problem.mixtures.part(start, stop)
    nothing: Array = cupy.zeros((1, 1))
    # by the lags, not by X: what X is off the grid would not be in the covariance of the data
    cross = gram(*part, kernel_array(problem.lags[:1].T), X_new, nothing, per_axis=False)
    solved: Array = cupy.empty((count, n, n_new))
    # Info and jitter are as those of the data: they depend on the matrix alone
    again = _Results(len(results.info), problem.mixtures.weights, problem.mixtures.means, False)
    _schur(problem, cross, solved, False, start, stop, again, by_point=True)
    means: Array = cupy.empty((count, n_new))
    variances: Array = cupy.empty((count, n_new))
    left: Array = cupy.empty((count, max(n_functions, 1), n_new))
    sizes = (np.int64(start), np.int64(count), np.int64(n_new), np.int32(n), np.int32(n_functions))
    shape = ((grid_for(count * n_new, BLOCK),), (BLOCK,))
    arrays: tuple[Any, ...] = (
        solved,
        white,
        below,
        basis_new,
        problem.diagonal_stats,
        results.info,
        means,
        variances,
        left,
    )
    load("toeplitz", "toeplitz_predict_f64")(*shape, (*arrays, *sizes))
    totals = _totals(problem, cross, variances, start, again)
    arrays = (totals, left, problem.diagonal_stats, results.jitter, variances)
    load("toeplitz", "toeplitz_clip_f64")(*shape, (*arrays, *sizes))
    mean[...], variance[...] = means, variances
    if covariance is not None:
        covariance[...] = gram(*part, X_new, None, nothing, per_axis=False)
        for k in range(n_functions):
            covariance += left[:, k, :, None] * left[:, k, None, :]
        subtract_squares(solved, covariance)
        diagonal = cupy.arange(n_new)
        covariance[:, diagonal, diagonal] = variances
        for b in np.flatnonzero(to_host(results.info[start:stop])).tolist():
            covariance[b] = cupy.nan


def _totals(problem: _Problem, cross: Array, variances: Array, start: int, results: _Results) -> Array:
    """1 + sum |C^-1 k| for the test points whose variance is below 0, (count, M); 0 for the others."""
    totals: Array = cupy.zeros(variances.shape)
    n = cross.shape[1]
    below_zero = to_host(variances) < 0.0
    for b in np.flatnonzero(below_zero.any(axis=1)).tolist():
        columns = cupy.asarray(np.flatnonzero(below_zero[b]))
        sides = kernel_array(cross[b].T[columns])[None]
        _, solved = _schur(problem, sides, cupy.empty(sides.shape), True, start + b, start + b + 1, results)
        assert solved is not None
        sums: Array = cupy.empty(len(columns))
        sizes = (np.int64(len(columns)), np.int32(n))
        kernel = load("toeplitz", "toeplitz_totals_f64")
        kernel((grid_for(len(columns), BLOCK // 32),), (BLOCK,), (solved.solutions, sums, *sizes))
        totals[b, columns] = sums
    return totals
