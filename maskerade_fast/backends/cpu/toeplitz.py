"""Log-likelihoods and predictions on regular 1-D grids, where a stationary covariance is Toeplitz (`_schur`).

A likelihood takes O(N^2) time and O(N) memory, and N evaluations of the kernel instead of N^2 / 2. A prediction takes
the factor's columns as they come, `PANEL` at a time, to the right-hand sides of a block of test points: the factor
never exists whole, and variances come from triangular solves as on any other inputs. Each thread has mixtures, or
blocks of test points, of its own: bits depend neither on threads nor on how a batch is cut.

A trend's basis functions go along as further right-hand sides, and its coefficients are then a small problem of least
squares (`_trend`): C itself never has the term V V', which is not Toeplitz.
"""

from __future__ import annotations

import numpy as np

from ..._checks import Array
from .._exact import lags_of
from .._results import Likelihoods, Predictions
from ._arguments import NewPoints, Points
from ._gp_loops import POINTS, PredictionResults, covariance_address
from ._gram_loops import gram_entries
from ._jit import repeated
from ._likelihood_loops import LikelihoodResults
from ._loop_arrays import basis_by_function, loop_array, loop_batch, points_by_axis
from ._parallel import n_threads, parallel_for, single_threaded_blas
from ._toeplitz_loops import PANEL, Grid, fill_likelihoods, fill_prediction_blocks, finish_prediction
from ._trend import targets_and_basis
from ._workers import Workers

__all__ = ["toeplitz_log_likelihood", "toeplitz_predict_gp"]


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
    """Run Schur's recursion for one mixture per thread, without a factor."""
    n_mixtures, n_points = len(offsets) - 1, len(X)
    dtype = np.result_type(weights, X, y)
    results = Likelihoods(np, n_mixtures, weights, means, 1, grad)
    if n_mixtures:
        lags = lags_of(X[[0, -1], 0], n_points)
        functions = basis_by_function(basis)
        targets, start_at = targets_and_basis(loop_array(y), functions)
        grid = Grid(lags, targets, start_at, mean_square(functions), loop_array(noise), float(jitter))
        mixtures, entries = loop_batch(offsets, weights, means, scales), gram_entries()
        n_max, q = int(np.diff(offsets).max()), len(functions)
        # kernel, generators, targets, tables; q in front, sums, their scratch; the whitened rows of a trend
        rows = 4 + q + 2 * n_max + (5 + 2 * q if grad else 0) + (1 + q if q else 0)
        what = f"working memory for one Toeplitz matrix of {n_points} points"
        workers = Workers(min(n_threads(), n_mixtures), 8 * n_points * rows, max_bytes, what, lambda: None)

        fill, arrays = repeated(fill_likelihoods), LikelihoodResults(*results.arrays)

        def across(_: None, start: int, stop: int) -> None:  # what it works on is small enough to be made anew
            fill(start, stop, mixtures, grid, grad, entries, arrays)

        workers.across(across, n_mixtures)
    return results.of_type(dtype)


def mean_square(basis: Array) -> float:
    """What basis functions (q, N) add to the mean diagonal of a covariance."""
    return float(np.sum(basis * basis, axis=0).mean()) if len(basis) else 0.0


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
    """Feed the factor's columns, a panel at a time, to the right-hand sides of a block of test points."""
    n_mixtures, n_points, n_new = len(offsets) - 1, len(X), len(X_new)
    dtype = np.result_type(weights, X, y, X_new)
    results = Predictions(np, n_mixtures, n_new, full)
    if n_mixtures:
        lags = lags_of(X[[0, -1], 0], n_points)
        # the data by the lags, not by X: what X is off the grid would not be in their covariance
        points = Points(lags[:1], lags[:1], lags[1:])
        _, high, low = points_by_axis(X_new, X[0])
        batch = loop_batch(offsets, weights, means, scales)
        functions, new_functions = basis_by_function(basis), basis_by_function(basis_new)
        targets, start_at = targets_and_basis(loop_array(y), functions)
        grid = Grid(lags, targets, start_at, mean_square(functions), loop_array(noise), float(jitter))
        test, entries = NewPoints(high, high, low, new_functions), gram_entries()
        outputs = PredictionResults(results.mean, results.variance, results.covariance, results.info)
        sides = 1 + len(functions)
        threads = n_threads()
        n_max = int(np.diff(offsets).max())
        n_blocks = max(1, -(-n_new // POINTS))
        height = min(n_new, POINTS)
        # a panel, a block's right-hand sides with tables, the mixture's tables, generators; all V' if `full`
        each = 8 * n_points * (PANEL + height + sides + 4 * n_max + 8) + 16 * n_max * height
        if full:
            each += 8 * n_points * n_new // min(threads, n_blocks)
        what = (
            f"working memory for one Toeplitz matrix of {n_points} points and {n_new if full else height} test points"
        )
        most = min(threads, n_blocks * (1 if full else n_mixtures))
        workers = Workers(most, each, max_bytes, what, lambda: None)
        nothing, solved = np.empty((0, n_points)), np.empty((n_new if full else 0, n_points))
        left = np.empty((sides - 1, n_new if full else 0))

        def run(start: int, stop: int, kept: Array) -> None:
            fill_prediction_blocks(start, stop, n_blocks, batch, grid, points, test, kept, left, entries, outputs)

        def whole(b: int) -> None:
            first = b * n_blocks
            parallel_for(lambda i, j: run(first + i, first + j, solved), n_blocks, 1, threads=workers.count)
            if results.info[b] == 0:
                left_over = NewPoints(high, high, low, left)
                finish_prediction(b, batch, left_over, solved, entries, covariance_address(), outputs)

        with single_threaded_blas():
            if full and n_new:
                for b in range(n_mixtures):
                    whole(b)
            else:
                parallel_for(lambda i, j: run(i, j, nothing), n_mixtures * n_blocks, 1, threads=workers.count)
    return results.of_type(dtype)
