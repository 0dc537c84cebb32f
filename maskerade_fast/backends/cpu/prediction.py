"""The predictive mixture, pair by pair: moments, tails, quantiles and density of sum_ij W_ij sqrt(N_i N_j).

Each point x* is on its own: its h (h + 1) / 2 pairs are written once as a table (`_pair_sums`) that every sum over
pairs then reads, so a point costs O(h^2) time and a thread O(h^2) memory, whatever the number of points. The bits of a
point depend neither on its neighbours nor on threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..._checks import Array
from ._joint_pairs import fill_joint_log_densities, fill_joint_rows
from ._native import native
from ._pair_quantiles import fill_draws, fill_quantiles
from ._pair_sums import LANES, fill_cdf, fill_log_density, fill_moments
from ._parallel import parallel_for, single_threaded_blas

__all__ = ["joint_pair_moments", "pair_cdf", "pair_draws", "pair_log_density", "pair_moments", "pair_quantiles"]

_PAIRS_PER_BLOCK = 50_000  # some 0.2 ms a block: the pool's overhead is then below a tenth


def pair_moments(pair_weights: Array, means: Array, variances: Array) -> tuple[Array, Array, Array]:
    """Normaliser, mean and variance of the mixture at each of M points.

    Parameters
    ----------
    pair_weights : array, shape (h, h)
        W, symmetric and positive semi-definite.
    means, variances : array, shape (h, M)
        Of the Gaussians N_i at each point, noise included; variances > 0.

    Returns
    -------
    total, mean, variance : array of float64, shape (M,)
        ``total = sum_ij W_ij s_ij``; where it is not positive the other two are NaN. The variance is summed
        round the mean, and never below eps times the sum of its terms' magnitudes, which bounds its rounding
        error: it is positive even where terms of both signs cancel.
    """
    packed, anchor, means, variances = _prepared(pair_weights, means, variances)
    total, mean, variance = (np.empty(means.shape[1]) for _ in range(3))

    def run(start: int, stop: int) -> None:
        fill_moments(start, stop, packed, anchor, means, variances, total, mean, variance)

    _over_points(run, means.shape[1], len(packed))
    return total, mean, variance


def pair_cdf(pair_weights: Array, means: Array, variances: Array, y: Array) -> Array:
    """sum_ij W_ij s_ij P(N(m_ij, V_ij) <= y), not normalised, shape (k, M) for `y` (k, M)."""
    packed, anchor, means, variances = _prepared(pair_weights, means, variances)
    y = native(y)
    out = np.empty_like(y)

    def run(start: int, stop: int) -> None:
        fill_cdf(start, stop, packed, anchor, means, variances, y, out)

    _over_points(run, y.shape[1], len(packed) * (1 + len(y)))
    return out


def pair_quantiles(pair_weights: Array, means: Array, variances: Array, levels: Array) -> Array:
    """Quantiles of the normalised mixture.

    Parameters
    ----------
    pair_weights, means, variances
        As for `pair_moments`; every total positive.
    levels : array, shape (k, M)
        Probabilities in [0, 1]; 0 and 1 give -inf and inf.

    Returns
    -------
    y : array of float64, shape (k, M)
        To about 1e-10 predictive standard deviations, or the rounding of the tail sums if larger.

    Notes
    -----
    Newton's method on the logarithm of the smaller tail (concave for one Gaussian), inside a bracket that
    starts from Cantelli's inequality and falls back on bisection. O(h^2) a step, 4 to 8 steps as a rule.
    """
    packed, anchor, means, variances = _prepared(pair_weights, means, variances)
    levels = native(levels)
    scores = ndtri(levels)  # quantiles of a Gaussian with the same moments: where the search starts
    out = np.empty_like(levels)

    def run(start: int, stop: int) -> None:
        fill_quantiles(start, stop, packed, anchor, means, variances, levels, scores, out)

    _over_points(run, levels.shape[1], len(packed) * (1 + 6 * len(levels)))
    return out


def pair_draws(pair_weights: Array, means: Array, variances: Array, levels: Array) -> Array:
    """Like `pair_quantiles` for many `levels` in (0, 1), within 1e-7 in probability.

    The CDF of a point is tabulated once, by cubics between some 200 values; further levels cost no sum over pairs.
    """
    packed, anchor, means, variances = _prepared(pair_weights, means, variances)
    levels = native(levels)
    out = np.empty_like(levels)

    def run(start: int, stop: int) -> None:
        fill_draws(start, stop, packed, anchor, means, variances, levels, out)

    _over_points(run, levels.shape[1], len(packed) * 200)
    return out


def pair_log_density(factor: Array, means: Array, variances: Array, y: Array) -> Array:
    """log sum_ij W_ij sqrt(N_i(y) N_j(y)) with W = F F^T, not normalised, at y (M,); shape (M,).

    The sum is ``|F^T a|^2`` with ``a_i = sqrt(N_i(y))``, scaled by the largest ``|F_i| a_i``: non-negative,
    and finite however far y lies. O(h r) a point for `factor` (h, r).
    """
    factor, means, variances, y = native(factor), native(means), native(variances), native(y)
    norms = np.sqrt(np.sum(factor * factor, axis=1))
    rows = np.flatnonzero(norms)  # an observation without weight must not set the scale
    directions, log_norms = factor[rows] / norms[rows, None], np.log(norms[rows])
    means, variances = means[rows], variances[rows]
    out = np.empty(len(y))

    def run(start: int, stop: int) -> None:
        fill_log_density(start, stop, directions, log_norms, means, variances, y, out)

    _over_points(run, len(y), factor.size)
    return out


def joint_pair_moments(
    pair_weights: Array, means: Array, covariances: Array, y: Array
) -> tuple[float, Array, Array, int]:
    """Normaliser and mean of the joint mixture over n points, and the density of each of its Gaussians at
    `y`.

    Parameters
    ----------
    pair_weights : array, shape (h, h)
    means : array, shape (h, n)
    covariances : array, shape (h, n, n)
        Positive definite.
    y : array, shape (n,)

    Returns
    -------
    total : float
        ``sum_ij W_ij s_ij``.
    mean_sum : array, shape (n,)
        ``sum_ij W_ij s_ij m_ij``.
    log_densities : array, shape (h,)
        ``log N_i(y)``.
    info : int
        0, or 1 + the first i whose covariance has no Cholesky factor; the others are then NaN.

    Notes
    -----
    One Cholesky factorisation a pair, O(h^2 n^3) time; O(n^2) memory a thread beside the arguments.
    """
    h, n = means.shape
    pair_weights, means, covariances, y = (native(a) for a in (pair_weights, means, covariances, y))
    log_dets, log_densities, totals, sums = np.zeros(h), np.zeros(h), np.zeros(h), np.zeros((h, n))

    def densities(start: int, stop: int) -> None:
        fill_joint_log_densities(start, stop, means, covariances, y, log_dets, log_densities)

    def rows(start: int, stop: int) -> None:
        fill_joint_rows(start, stop, pair_weights, means, covariances, log_dets, totals, sums)

    with single_threaded_blas():
        parallel_for(densities, h, 1)
        failed = np.isnan(log_dets)
        if failed.any():
            return math.nan, np.full(n, math.nan), np.full(h, math.nan), 1 + int(np.argmax(failed))
        parallel_for(rows, h, 1)
    return float(totals.sum()), sums.sum(axis=0), log_densities, 0


def _prepared(pair_weights: Array, means: Array, variances: Array) -> tuple[Array, int, Array, Array]:
    """The lower triangle of W row by row, off-diagonal entries doubled, padded with 0 to whole lanes."""
    h = len(pair_weights)
    rows, columns = np.tril_indices(h)
    packed = np.zeros(-(-len(rows) // LANES) * LANES)
    packed[: len(rows)] = np.where(rows == columns, 1.0, 2.0) * pair_weights[rows, columns]
    return packed, int(np.argmax(np.diagonal(pair_weights))), native(means), native(variances)


def _over_points(run: Callable[[int, int], Any], n_points: int, work_per_point: int) -> None:
    parallel_for(run, n_points, max(1, _PAIRS_PER_BLOCK // work_per_point))
