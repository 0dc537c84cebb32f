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
from ._pair_sums import LANES, Gaussians, fill_cdf, fill_log_density, fill_moments
from ._parallel import parallel_for, single_threaded_blas

__all__ = ["joint_pair_moments", "pair_cdf", "pair_draws", "pair_log_density", "pair_moments", "pair_quantiles"]

_PAIRS_PER_BLOCK = 50_000  # some 0.2 ms a block: the pool's overhead is then below a tenth


def pair_moments(pair_weights: Array, means: Array, variances: Array) -> tuple[Array, Array, Array]:
    """Write each point's pairs to a table once, then sum; the variance is summed about the mean."""
    g = _prepared(pair_weights, means, variances)
    total, mean, variance = (np.empty(means.shape[1]) for _ in range(3))
    _over_points(len(total), len(g.packed), fill_moments, g, total, mean, variance)
    return total, mean, variance


def pair_cdf(pair_weights: Array, means: Array, variances: Array, y: Array) -> Array:
    """Sum the tails of each point's table of pairs."""
    g, y = _prepared(pair_weights, means, variances), loop_array(y)
    out = np.empty_like(y)
    _over_points(y.shape[1], len(g.packed) * (1 + len(y)), fill_cdf, g, y, out)
    return out


def pair_quantiles(pair_weights: Array, means: Array, variances: Array, levels: Array) -> Array:
    """Search from the quantiles of the Gaussian with the same moments."""
    g, levels = _prepared(pair_weights, means, variances), loop_array(levels)
    out = np.empty_like(levels)
    _over_points(levels.shape[1], len(g.packed) * (1 + 6 * len(levels)), fill_quantiles, g, levels, ndtri(levels), out)
    return out


def pair_draws(pair_weights: Array, means: Array, variances: Array, levels: Array) -> Array:
    """Tabulate the CDF of each point on its thread."""
    g, levels = _prepared(pair_weights, means, variances), loop_array(levels)
    out = np.empty_like(levels)
    _over_points(levels.shape[1], len(g.packed) * 200, fill_draws, g, levels, out)
    return out


def pair_log_density(factor: Array, means: Array, variances: Array, y: Array) -> Array:
    """Share points among threads; observations without weight are left out."""
    factor, means, variances, y = map(loop_array, (factor, means, variances, y))
    norms = np.sqrt(np.sum(factor * factor, axis=1))
    rows = np.flatnonzero(norms)  # an observation without weight must not set the scale
    directions, log_norms = factor[rows] / norms[rows, None], np.log(norms[rows])
    out = np.empty(len(y))
    _over_points(len(y), factor.size, fill_log_density, directions, log_norms, means[rows], variances[rows], y, out)
    return out


def joint_pair_moments(
    pair_weights: Array, means: Array, covariances: Array, y: Array
) -> tuple[float, Array, Array, int]:
    """Share rows of pairs among threads, with O(n^2) memory each."""
    h, n = means.shape
    pair_weights, means, covariances, y = map(loop_array, (pair_weights, means, covariances, y))
    log_dets, log_densities, totals, sums = np.zeros(h), np.zeros(h), np.zeros(h), np.zeros((h, n))

    with single_threaded_blas():
        _over_blocks(h, 1, fill_joint_log_densities, means, covariances, y, log_dets, log_densities)
        failed = np.isnan(log_dets)
        if failed.any():
            return math.nan, np.full(n, math.nan), np.full(h, math.nan), 1 + int(np.argmax(failed))
        _over_blocks(h, 1, fill_joint_rows, pair_weights, means, covariances, log_dets, totals, sums)
    return float(totals.sum()), sums.sum(axis=0), log_densities, 0


def _prepared(pair_weights: Array, means: Array, variances: Array) -> Gaussians:
    h = len(pair_weights)
    rows, columns = np.tril_indices(h)
    packed = np.zeros(-(-len(rows) // LANES) * LANES)
    packed[: len(rows)] = np.where(rows == columns, 1.0, 2.0) * pair_weights[rows, columns]
    anchor = int(np.argmax(np.diagonal(pair_weights)))
    return Gaussians(packed, anchor, loop_array(means), loop_array(variances))


def _over_points(n_points: int, work_per_point: int, fill: Callable[..., Any], *args: Any) -> None:
    """``fill(start, stop, *args)`` for blocks of points, on all threads."""
    _over_blocks(n_points, max(1, _PAIRS_PER_BLOCK // work_per_point), fill, *args)


def _over_blocks(count: int, block: int, fill: Callable[..., Any], *args: Any) -> None:
    parallel_for(lambda start, stop: fill(start, stop, *args), count, block)
