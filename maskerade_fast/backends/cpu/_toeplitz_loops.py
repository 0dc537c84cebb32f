"""Compiled loops of likelihoods and predictions on regular 1-D grids; `toeplitz.py` calls them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..._checks import Array
from ._arguments import GramEntries, Mixtures, NewPoints, Points
from ._cholesky_loops import RETRIES, jitter_of
from ._gp_loops import POINTS, PredictionResults, call_covariance
from ._gram_loops import call_rows, call_tables, fill_rates, noise_at, total_weight
from ._jit import inner, loop
from ._lapack import solve_panel, subtract_panel_product
from ._likelihood_loops import LikelihoodResults
from ._math import EPS, dot, exp_neg, fma
from ._schur import STEPS, advance, diagonal_sums, schur, start_schur
from ._trend import combine, take_out, trend_left

PANEL = 4 * STEPS  # columns of the factor at a time: a product over fewer is bound by memory


class Grid(NamedTuple):
    """Data on a regular grid."""

    lags: Array  # (2, N) of `lags_of`
    targets: Array  # (1 + q, N) of `targets_and_basis`
    start_at: Array  # (q,) of `targets_and_basis`
    trend_variance: float  # what the basis adds to the mean diagonal
    noise: Array  # (B or 1, 1)
    jitter: float


@inner
def kernel_column(b: int, mixtures: Mixtures, lags: Array, entries: GramEntries, tables: Array, column: Array) -> None:
    """k of mixture b at `lags` (2, N) of `lags_of`; `tables` (2, n, N) keep exp cos and exp sin of each component."""
    offsets, weights, means, scales = mixtures
    first = offsets[b]
    n = offsets[b + 1] - first
    rates = np.empty((n, 1))
    fill_rates(first, n, scales, rates)
    call_tables(entries.fill_tables, (first, n, means, lags[:1], lags[1:], 1, tables[0], tables[1]))
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


@loop
def fill_likelihoods(
    start: int, stop: int, mixtures: Mixtures, grid: Grid, grad: bool, entries: GramEntries, results: LikelihoodResults
) -> None:
    """Mixtures ``start : stop``, one after another on this thread."""
    offsets, weights, _, scales = mixtures
    lags, targets, start_at, trend_variance, noise, jitter = grid
    value, info, added, d_weights, d_means, d_scales, d_noise = results
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
        kernel_column(b, mixtures, lags, entries, tables, column)
        diagonal = column[0] + noise_at(noise, b, 0)
        code, half, pivot = 0, 0.0, 0.0
        for attempt in range(RETRIES + 1):
            added[b] = jitter_of(attempt, jitter, diagonal + trend_variance)
            start_schur(column, diagonal + added[b], targets, p, q, solutions)
            code, half, pivot = schur(n_points * EPS * (diagonal + added[b]), grad, p, q, solutions, white)
            if code == 0 or jitter == 0.0:
                break
        info[b] = code
        if code != 0:
            value[b] = -math.inf
            added[b] = 0.0
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


@inner
def solve_streamed(
    column: Array, diagonal: float, count: int, blas: Array, rows: Array, p: Array, q: Array, y: Array, panel: Array
) -> int:
    """Replace each of the first `count` rows r by L^-1 r, with columns of L as Schur's steps give them; gives info."""
    n = len(column)
    head = np.empty((2 + len(y), STEPS))
    out = np.empty((2 + 2 * len(y), STEPS))
    start_schur(column, diagonal, column.reshape((1, n)), p, q, y)
    bound = n * EPS * diagonal
    for first in range(0, n, PANEL):
        stop = min(first + PANEL, n)
        for t in range(first, stop, STEPS):
            info = advance(t, bound, False, p, q, y, head, out, panel[t - first : t - first + STEPS])
            if info != 0:
                return info
        width = stop - first
        solve_panel(blas, width, count, panel[0, first:].ctypes.data, n, rows[0, first:].ctypes.data, n)
        if stop < n:
            subtract_panel_product(
                blas, count, n - stop, width, rows[0, first:].ctypes.data, panel[0, stop:].ctypes.data, n,
                rows[0, stop:].ctypes.data,
            )  # fmt: skip
    return 0


@inner
def inverse_total(column: Array, diagonal: float, targets: Array) -> float:
    """Sum of |C^-1 targets|."""
    n = len(column)
    p, q, y = np.empty(n), np.empty(2 * n), np.empty((1, n))
    start_schur(column, diagonal, targets.reshape((1, n)), p, q, y)
    schur(n * EPS * diagonal, True, p, q, y, np.empty((0, n)))
    total = 0.0
    for i in range(n):
        total += abs(y[0, i])
    return total


@loop
def fill_prediction_blocks(
    start: int,
    stop: int,
    n_blocks: int,
    mixtures: Mixtures,
    grid: Grid,
    points: Points,
    test: NewPoints,
    solved: Array,
    left: Array,
    entries: GramEntries,
    results: PredictionResults,
) -> None:
    """Blocks of test points ``start : stop``, numbered through the batch.

    If `solved` (M, N) has rows it receives the whitened covariances, and `left` (q, M) what the trend leaves.
    """
    offsets, weights, means, scales = mixtures
    lags, targets, start_at, trend_variance, noise, jitter = grid
    x, high, low = points
    blas, basis_new = entries.blas, test.basis
    mean, variance, _, info = results
    sides, n_points = targets.shape
    n_new = test.x.shape[1]
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
        kernel_column(b, mixtures, lags, entries, tables, column)
        rates = np.empty((n, 1))
        fill_rates(first, n, scales, rates)
        call_tables(entries.fill_tables, (first, n, means, high, low, 1, tables[0], tables[1]))
        new = np.ascontiguousarray(test.x[:, begin : begin + width])
        new_high = np.ascontiguousarray(test.high[:, begin : begin + width])
        new_low = np.ascontiguousarray(test.low[:, begin : begin + width])
        new_tables = np.empty((2, n, width))
        call_tables(entries.fill_tables, (first, n, means, new_high, new_low, 1, new_tables[0], new_tables[1]))
        sides_of = (weights, rates, new, new_tables[0], new_tables[1], x, tables[0], tables[1])
        k0 = column[0]
        diagonal = k0 + noise_at(noise, b, 0)
        code, added = 0, 0.0
        for attempt in range(RETRIES + 1):
            added = jitter_of(attempt, jitter, diagonal + trend_variance)
            call_rows(entries.gram_rows, (0, width, 0, n, first, *sides_of, 1, no_basis, no_basis, rows))
            rows[width : width + sides] = targets
            code = solve_streamed(column, diagonal + added, width + sides, blas, rows, p, q, unused, panel)
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
            if rest < 0.0:  # 0 where rounding explains it, else NaN, as `_gp_loops.latent_variance`
                again = np.ascontiguousarray(new_tables[:, :, r : r + 1])
                cross = panel[:1]
                one = (weights, rates, new[:, r : r + 1].copy(), again[0], again[1], x, tables[0], tables[1])
                call_rows(entries.gram_rows, (0, 1, 0, n, first, *one, 1, no_basis, no_basis, cross))
                total = 1.0 + inverse_total(column, diagonal + added, cross[0])
                rest = 0.0 if -rest <= 8.0 * n_points * EPS * (diagonal + added) * total * total else math.nan
            if sides > 1:
                mean[b, begin + r] += trend_left(begin + r, white, below, basis_new, rows[r], own_left)
                rest += dot(own_left, own_left, sides - 1)
            variance[b, begin + r] = rest
            if solved.shape[0] > 0:
                solved[begin + r] = rows[r]
                left[:, begin + r] = own_left


@loop
def finish_prediction(
    b: int,
    mixtures: Mixtures,
    test: NewPoints,
    solved: Array,
    entries: GramEntries,
    covariance_entry: int,
    results: PredictionResults,
) -> None:
    """K(X*, X*) less the squares of `solved`, of mixture b; the basis of `test` is what the trend leaves."""
    first = mixtures.offsets[b]
    n = mixtures.offsets[b + 1] - first
    rates = np.empty((n, 1))
    fill_rates(first, n, mixtures.scales, rates)
    arguments = (b, mixtures, 1, test, rates, solved, entries, results.variance, results.covariance)
    call_covariance(covariance_entry, arguments)
