"""The predictive mixture, pair by pair: moments, tails, quantiles and density of sum_ij W_ij sqrt(N_i N_j).

Each point x* is on its own: its h (h + 1) / 2 pairs are written once as a table (`_pair_sums`) that every sum over
pairs then reads, so a point costs O(h^2) time and a thread O(h^2) memory, whatever the number of points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..._checks import Array
from ._joint_pairs import fill_joint_log_densities, fill_joint_rows
from ._loop_arrays import loop_array
from ._pair_quantiles import fill_draws, fill_quantiles
from ._pair_sums import LANES, fill_cdf, fill_log_density, fill_moments
from ._parallel import parallel_for, single_threaded_blas

__all__ = ["joint_pair_moments", "pair_cdf", "pair_draws", "pair_log_density", "pair_moments", "pair_quantiles"]

_PAIRS_PER_BLOCK = 50_000  # some 0.2 ms a block: the pool's overhead is then below a tenth


def pair_moments(pair_weights: Array, means: Array, variances: Array) -> tuple[Array, Array, Array]:
    """Write each point's pairs to a table once, then sum; the variance is summed about the mean."""
    packed, anchor, means, variances = _prepared(pair_weights, means, variances)
    total, mean, variance = (np.empty(means.shape[1]) for _ in range(3))

    def run(start: int, stop: int) -> None:
        fill_moments(start, stop, packed, anchor, means, variances, total, mean, variance)

    _over_points(run, means.shape[1], len(packed))
    return total, mean, variance


def pair_cdf(pair_weights: Array, means: Array, variances: Array, y: Array) -> Array:
    """Sum the tails of each point's table of pairs."""
    packed, anchor, means, variances = _prepared(pair_weights, means, variances)
    y = loop_array(y)
    out = np.empty_like(y)

    def run(start: int, stop: int) -> None:
        fill_cdf(start, stop, packed, anchor, means, variances, y, out)

    _over_points(run, y.shape[1], len(packed) * (1 + len(y)))
    return out


def pair_quantiles(pair_weights: Array, means: Array, variances: Array, levels: Array) -> Array:
    """Search from the Gaussian quantiles with the same moments."""
    packed, anchor, means, variances = _prepared(pair_weights, means, variances)
    levels = loop_array(levels)
    scores = ndtri(levels)  # quantiles of a Gaussian with the same moments: where the search starts
    out = np.empty_like(levels)

    def run(start: int, stop: int) -> None:
        fill_quantiles(start, stop, packed, anchor, means, variances, levels, scores, out)

    _over_points(run, levels.shape[1], len(packed) * (1 + 6 * len(levels)))
    return out


def pair_draws(pair_weights: Array, means: Array, variances: Array, levels: Array) -> Array:
    """Tabulate the CDF of each point on its thread."""
    packed, anchor, means, variances = _prepared(pair_weights, means, variances)
    levels = loop_array(levels)
    out = np.empty_like(levels)

    def run(start: int, stop: int) -> None:
        fill_draws(start, stop, packed, anchor, means, variances, levels, out)

    _over_points(run, levels.shape[1], len(packed) * 200)
    return out


def pair_log_density(factor: Array, means: Array, variances: Array, y: Array) -> Array:
    """Share points among threads; observations without weight are left out."""
    factor, means, variances, y = loop_array(factor), loop_array(means), loop_array(variances), loop_array(y)
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
    """Share rows of pairs among threads, with O(n^2) memory each."""
    h, n = means.shape
    pair_weights, means, covariances, y = (loop_array(a) for a in (pair_weights, means, covariances, y))
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
    return packed, int(np.argmax(np.diagonal(pair_weights))), loop_array(means), loop_array(variances)


def _over_points(run: Callable[[int, int], Any], n_points: int, work_per_point: int) -> None:
    parallel_for(run, n_points, max(1, _PAIRS_PER_BLOCK // work_per_point))
