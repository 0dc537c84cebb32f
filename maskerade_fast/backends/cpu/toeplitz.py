"""Log-likelihoods and predictions on regular 1-D grids, where a stationary covariance is Toeplitz (`_schur`).

A likelihood takes O(N^2) time and O(N) memory, and N evaluations of the kernel in place of N^2 / 2. A prediction takes
the factor's columns as they come, `PANEL` at a time, to the right-hand sides of a block of test points: the factor
never exists whole, and variances come from triangular solves as on any other inputs. Each thread has mixtures, or
blocks of test points, of its own: bits depend neither on threads nor on how a batch is cut.

A trend's basis functions go along as further right-hand sides, and its coefficients are then a small problem of least
squares (`_trend`): C itself never has the term V V', which is not Toeplitz.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .._lags import lags_of
from ._batch import Likelihoods, Predictions, Workers
from ._lapack import addresses, solve_panel, subtract_panel_product
from ._math import dot, exp_neg, fma
from ._parallel import n_threads, parallel_for, single_threaded_blas
from ._schur import STEPS, advance, diagonal_sums, schur, start_schur
from ._trend import combine, take_out, targets_and_basis, trend_left
from .cholesky import RETRIES, shift_of
from .gp import POINTS, finish_covariance
from .gram import (
    basis_by_function,
    fill_rates,
    fill_tables,
    gram_rows,
    native,
    noise_at,
    points_by_axis,
    total_weight,
)

__all__ = ["toeplitz_log_likelihood", "toeplitz_predict_gp"]

Array = NDArray[Any]

PANEL = 4 * STEPS  # columns of the factor at a time: a product over fewer is bound by memory
_EPS = 2.220446049250313e-16


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
    """Log-likelihoods of a batch on a regular grid and their gradients, in float64 and in the inputs' type.

    Parameters
    ----------
    offsets, weights, means, scales : arrays of a GMMBatch in one dimension: (B + 1,), (J,), (J, 1), (J, 1)
    X, y : arrays, shape (N, 1) and (N,); X equally spaced and ascending, N >= 1
    noise : array, shape (B or 1, 1)
    basis : array, shape (N, q), or None
        Of the trend: each covariance gains ``basis @ basis.T``.
    jitter, grad, max_bytes
        As in `log_likelihood`.

    Returns
    -------
    value (B,), info (B,) int32, shift (B,) : arrays
    gradients : None, or a list of d weights (J,), d means (J, 1), d scales (J, 1), d noise (B, 1)

    Raises
    ------
    MemoryError
        If one worker needs more than `max_bytes`.
    """
    n_mixtures, n_points = len(offsets) - 1, len(X)
    dtype = np.result_type(weights, X, y)
    results = Likelihoods(n_mixtures, weights, means, 1, grad)
    if n_mixtures:
        lags = lags_of(X[[0, -1], 0], n_points)
        functions = basis_by_function(basis)
        targets, start_at = targets_and_basis(native(y), functions)
        level = mean_square(functions)
        arguments = (offsets, native(weights), native(means), native(scales), lags, targets, start_at, level)
        n_max, q = int(np.diff(offsets).max()), len(functions)
        # kernel, generators, targets, tables; q in front, sums, their scratch; the whitened rows of a trend
        rows = 4 + q + 2 * n_max + (5 + 2 * q if grad else 0) + (1 + q if q else 0)
        what = f"working memory for one Toeplitz matrix of {n_points} points"
        workers = Workers(min(n_threads(), n_mixtures), 8 * n_points * rows, max_bytes, what, lambda: None)

        def across(_: None, start: int, stop: int) -> None:  # what it works on is small enough to be made anew
            _likelihoods(start, stop, *arguments, native(noise), jitter, grad, *results.arrays)

        workers.across(across, n_mixtures)
    return results.of_type(dtype)


def mean_square(basis: Array) -> float:
    """What basis functions (q, N) add to the mean diagonal of a covariance."""
    return float(np.sum(basis * basis, axis=0).mean()) if len(basis) else 0.0


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def kernel_column(
    b: int, offsets: Array, weights: Array, means: Array, scales: Array, lags: Array, tables: Array, column: Array
) -> None:
    """k of mixture b at `lags` (2, N) of `lags_of`; `tables` (2, n, N) keep exp cos and exp sin of each component."""
    first = offsets[b]
    n = offsets[b + 1] - first
    rates = np.empty((n, 1))
    fill_rates(first, n, scales, rates)
    fill_tables(first, n, means, lags[:1], lags[1:], 1, tables[0], tables[1])
    for i in range(len(column)):
        column[i] = 0.0
    for q in range(n):
        rate = rates[q, 0]
        w = weights[first + q]
        cosine = tables[0, q]
        sine = tables[1, q]
        for i in range(len(column)):
            envelope = exp_neg(rate * (lags[0, i] * lags[0, i]))
            cosine[i] *= envelope
            sine[i] *= envelope
            column[i] = fma(w, cosine[i], column[i])
    column[0] = total_weight(first, n, weights)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _likelihoods(
    start: int,
    stop: int,
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    lags: Array,
    targets: Array,
    start_at: Array,
    level: float,
    noise: Array,
    jitter: float,
    grad: bool,
    value: Array,
    info: Array,
    shift: Array,
    d_weights: Array,
    d_means: Array,
    d_scales: Array,
    d_noise: Array,
) -> None:
    """Mixtures ``start : stop``, one after another on this thread; `targets` and `start_at` of `targets_and_basis`."""
    sides, n_points = targets.shape
    n_max = 0
    for b in range(start, stop):
        n_max = max(n_max, offsets[b + 1] - offsets[b])
    tables = np.empty((2, n_max, n_points))
    column = np.empty(n_points)
    p = np.empty(n_points)
    q = np.empty(2 * n_points if grad else n_points)
    solutions = np.empty((sides, n_points))
    white = np.empty((sides if sides > 1 else 0, n_points))
    below = np.empty((sides, sides - 1))
    sums = np.empty(n_points if grad else 0)
    for b in range(start, stop):
        kernel_column(b, offsets, weights, means, scales, lags, tables, column)
        diagonal = column[0] + noise_at(noise, b, 0)
        code, half, pivot = 0, 0.0, 0.0
        for attempt in range(RETRIES + 1):
            shift[b] = shift_of(attempt, jitter, diagonal + level)
            start_schur(column, diagonal + shift[b], targets, p, q, solutions)
            code, half, pivot = schur(n_points * _EPS * (diagonal + shift[b]), grad, p, q, solutions, white)
            if code == 0 or jitter == 0.0:
                break
        info[b] = code
        if code != 0:
            value[b] = -math.inf
            shift[b] = 0.0
        else:
            if sides > 1:
                half += take_out(white, start_at, below)
            value[b] = -half - 0.5 * n_points * math.log(2.0 * math.pi)
        if not grad:
            continue
        if code == 0:
            combine(start_at, below, solutions)
            diagonal_sums(p, pivot, solutions, sums)
        else:
            sums[:] = math.nan
        d_noise[b, 0] = sums[0]
        for j in range(offsets[b], offsets[b + 1]):
            cosine = tables[0, j - offsets[b]]
            sine = tables[1, j - offsets[b]]
            even, odd, square = 0.0, 0.0, 0.0
            for d in range(1, n_points):
                lag = lags[0, d]
                wave = 2.0 * sums[d] * cosine[d]
                even += wave
                odd += 2.0 * sums[d] * sine[d] * lag
                square += wave * lag * lag
            d_weights[j] = even + sums[0]
            d_means[j, 0] = -2.0 * math.pi * weights[j] * odd
            d_scales[j, 0] = -4.0 * math.pi**2 * weights[j] * scales[j, 0] * square


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
    """Latent predictions of a batch from data on a regular grid, in float64 and returned in the inputs' type.

    Parameters
    ----------
    offsets, weights, means, scales : arrays of a GMMBatch in one dimension: (B + 1,), (J,), (J, 1), (J, 1)
    X, y : arrays, shape (N, 1) and (N,); X equally spaced and ascending, N >= 1
    noise : array, shape (B or 1, 1)
    X_new : array, shape (M, 1)
        Any points, also off the grid.
    basis, basis_new : arrays, shape (N, q) and (M, q), or None
        Of the trend, as in `toeplitz_log_likelihood`; it belongs to the latent function.
    full, jitter, max_bytes
        As in `predict_gp`.

    Returns
    -------
    mean, variance : arrays, shape (B, M)
    covariance : array, shape (B, M, M), or None
    info : array of int32, shape (B,)

    Raises
    ------
    MemoryError
        If one worker needs more than `max_bytes`.
    """
    n_mixtures, n_points, n_new = len(offsets) - 1, len(X), len(X_new)
    dtype = np.result_type(weights, X, y, X_new)
    results = Predictions(n_mixtures, n_new, full)
    if n_mixtures:
        lags = lags_of(X[[0, -1], 0], n_points)
        # the data by the lags, not by X: what X is off the grid would not be in their covariance
        points = (lags[:1], lags[:1], lags[1:])
        _, high, low = points_by_axis(X_new, X[0])
        new = (high, high, low)
        batch = (offsets, native(weights), native(means), native(scales))
        functions, new_functions = basis_by_function(basis), basis_by_function(basis_new)
        trend = (*targets_and_basis(native(y), functions), mean_square(functions))
        problem = (lags, *points, *trend, native(noise), jitter, *new, new_functions)
        sides = 1 + len(functions)
        blas, threads = addresses(), n_threads()
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
        wanted = min(threads, n_blocks * (1 if full else n_mixtures))
        workers = Workers(wanted, each, max_bytes, what, lambda: None)
        nothing, solved = np.empty((0, n_points)), np.empty((n_new if full else 0, n_points))
        left = np.empty((sides - 1, n_new if full else 0))

        def run(start: int, stop: int, kept: Array) -> None:
            outputs = (results.mean, results.variance, results.info)
            _prediction_blocks(start, stop, n_blocks, blas, *batch, *problem, kept, left, *outputs)

        def whole(b: int) -> None:
            first = b * n_blocks
            parallel_for(lambda i, j: run(first + i, first + j, solved), n_blocks, 1, threads=workers.count)
            if results.info[b] == 0:
                _finish(b, blas, *batch, *new, left, solved, results.variance, results.covariance)

        with single_threaded_blas():
            if full and n_new:
                for b in range(n_mixtures):
                    whole(b)
            else:
                parallel_for(lambda i, j: run(i, j, nothing), n_mixtures * n_blocks, 1, threads=workers.count)
    return results.of_type(dtype)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def solve_streamed(
    column: Array, diagonal: float, count: int, blas: Array, rows: Array, p: Array, q: Array, y: Array, panel: Array
) -> int:
    """Replace each of the first `count` rows r by L^-1 r, with columns of L as Schur's steps give them; gives info."""
    n = len(column)
    head = np.empty((2 + len(y), STEPS))
    out = np.empty((2 + 2 * len(y), STEPS))
    start_schur(column, diagonal, column.reshape((1, n)), p, q, y)
    bound = n * _EPS * diagonal
    for first in range(0, n, PANEL):
        stop = min(first + PANEL, n)
        for t in range(first, stop, STEPS):
            info = advance(t, bound, False, p, q, y, head, out, panel[t - first : t - first + STEPS])
            if info != 0:
                return info  # type: ignore[no-any-return]
        width = stop - first
        solve_panel(blas, width, count, panel[0, first:].ctypes.data, n, rows[0, first:].ctypes.data, n)
        if stop < n:
            subtract_panel_product(
                blas, count, n - stop, width, rows[0, first:].ctypes.data, panel[0, stop:].ctypes.data, n,
                rows[0, stop:].ctypes.data,
            )  # fmt: skip
    return 0


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def inverse_total(column: Array, diagonal: float, targets: Array) -> float:
    """Sum of |C^-1 targets|."""
    n = len(column)
    p, q, y = np.empty(n), np.empty(2 * n), np.empty((1, n))
    start_schur(column, diagonal, targets.reshape((1, n)), p, q, y)
    schur(n * _EPS * diagonal, True, p, q, y, np.empty((0, n)))
    total = 0.0
    for i in range(n):
        total += abs(y[0, i])
    return total


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _prediction_blocks(
    start: int,
    stop: int,
    n_blocks: int,
    blas: Array,
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    lags: Array,
    x: Array,
    high: Array,
    low: Array,
    targets: Array,
    start_at: Array,
    level: float,
    noise: Array,
    jitter: float,
    x_new: Array,
    high_new: Array,
    low_new: Array,
    basis_new: Array,
    solved: Array,
    left: Array,
    mean: Array,
    variance: Array,
    info: Array,
) -> None:
    """Blocks of test points ``start : stop``, numbered through the batch.

    If `solved` (M, N) has rows it receives the whitened covariances, and `left` (q, M) what the trend leaves.
    """
    sides, n_points = targets.shape
    n_new = x_new.shape[1]
    p, q, unused = np.empty(n_points), np.empty(n_points), np.empty((1, n_points))
    below, own_left = np.empty((sides, sides - 1)), np.empty(sides - 1)
    column = np.empty(n_points)
    panel = np.empty((PANEL, n_points))
    no_basis = np.empty((0, 0))
    rows = np.empty((min(POINTS, n_new) + sides, n_points))
    for item in range(start, stop):
        b = item // n_blocks
        begin = (item - b * n_blocks) * POINTS
        width = min(POINTS, n_new - begin)
        first = offsets[b]
        n = offsets[b + 1] - first
        tables = np.empty((2, n, n_points))
        kernel_column(b, offsets, weights, means, scales, lags, tables, column)
        rates = np.empty((n, 1))
        fill_rates(first, n, scales, rates)
        fill_tables(first, n, means, high, low, 1, tables[0], tables[1])
        new = np.ascontiguousarray(x_new[:, begin : begin + width])
        new_high = np.ascontiguousarray(high_new[:, begin : begin + width])
        new_low = np.ascontiguousarray(low_new[:, begin : begin + width])
        new_tables = np.empty((2, n, width))
        fill_tables(first, n, means, new_high, new_low, 1, new_tables[0], new_tables[1])
        k0 = column[0]
        diagonal = k0 + noise_at(noise, b, 0)
        code, shift = 0, 0.0
        for attempt in range(RETRIES + 1):
            shift = shift_of(attempt, jitter, diagonal + level)
            gram_rows(
                np.int64(0), width, np.int64(0), n, first, weights, rates, new, new_tables[0], new_tables[1], x,
                tables[0], tables[1], 1, no_basis, no_basis, rows,
            )  # fmt: skip
            rows[width : width + sides] = targets
            code = solve_streamed(column, diagonal + shift, width + sides, blas, rows, p, q, unused, panel)
            if code == 0 or jitter == 0.0:
                break
        if begin == 0:
            info[b] = code
        if code != 0:
            continue
        white = rows[width : width + sides]
        if sides > 1:
            take_out(white, start_at, below)
        for r in range(width):
            mean[b, begin + r] = dot(rows[r], white[0], n_points)
            rest = k0 - dot(rows[r], rows[r], n_points)
            if rest < 0.0:  # 0 where rounding explains it, else NaN, as `gp.latent_variance`
                again = np.ascontiguousarray(new_tables[:, :, r : r + 1])
                cross = panel[:1]
                gram_rows(
                    np.int64(0), np.int64(1), np.int64(0), n, first, weights, rates, new[:, r : r + 1].copy(),
                    again[0], again[1], x, tables[0], tables[1], 1, no_basis, no_basis, cross,
                )  # fmt: skip
                total = 1.0 + inverse_total(column, diagonal + shift, cross[0])
                rest = 0.0 if -rest <= 8.0 * n_points * _EPS * (diagonal + shift) * total * total else math.nan
            if sides > 1:
                mean[b, begin + r] += trend_left(begin + r, white, below, basis_new, rows[r], own_left)
                rest += dot(own_left, own_left, sides - 1)
            variance[b, begin + r] = rest
            if solved.shape[0] > 0:
                solved[begin + r] = rows[r]
                left[:, begin + r] = own_left


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _finish(
    b: int,
    blas: Array,
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    x_new: Array,
    high_new: Array,
    low_new: Array,
    left: Array,
    solved: Array,
    variance: Array,
    covariance: Array,
) -> None:
    """K(X*, X*) less the squares of `solved`, plus those of `left`, of mixture b."""
    n = offsets[b + 1] - offsets[b]
    rates = np.empty((n, 1))
    fill_rates(offsets[b], n, scales, rates)
    finish_covariance(
        b, blas, offsets, weights, means, x_new, high_new, low_new, 1, left, rates, solved, variance, covariance,
    )  # fmt: skip
