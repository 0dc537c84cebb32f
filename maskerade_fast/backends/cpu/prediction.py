"""The predictive mixture, pair by pair: moments, tails, quantiles and density of sum_ij W_ij sqrt(N_i N_j).

Each point x* is on its own: its h (h + 1) / 2 pairs are written once as a table (weight, mean, 1/sd) that
every sum over pairs then reads, so a point costs O(h^2) time and a thread O(h^2) memory, whatever the number
of points. With precisions l = 1/C (KERNELS.md section 7, MATH.md section 8):

    s_ij = sqrt(2) (l_i l_j)^(1/4) / sqrt(l_i + l_j) exp(-l_i l_j (mu_i - mu_j)^2 / (4 (l_i + l_j)))
    m_ij = mu_j + l_i (mu_i - mu_j) / (l_i + l_j),      V_ij = 2 / (l_i + l_j)

Sums run over `_LANES` accumulators so that they vectorise without reordering at the compiler's whim: the bits
of a point depend neither on its neighbours nor on threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from scipy.special import ndtri

from ..._checks import Array
from ._math import exp_neg, fma
from ._parallel import parallel_for, single_threaded_blas

__all__ = ["joint_pair_moments", "pair_cdf", "pair_draws", "pair_log_density", "pair_moments", "pair_quantiles"]

_LANES = 64
_PAIRS_PER_BLOCK = 50_000  # some 0.2 ms a block: the pool's overhead is then below a tenth
_EPS = 2.220446049250313e-16
_CUBIC_ERROR = 1e-7  # in probability, at the middle of an interval before it is halved for the last time
_PARTS = 16


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
        _moments(start, stop, packed, anchor, means, variances, total, mean, variance)

    _over_points(run, means.shape[1], len(packed))
    return total, mean, variance


def pair_cdf(pair_weights: Array, means: Array, variances: Array, y: Array) -> Array:
    """sum_ij W_ij s_ij P(N(m_ij, V_ij) <= y), not normalised, shape (k, M) for `y` (k, M)."""
    packed, anchor, means, variances = _prepared(pair_weights, means, variances)
    y = _owned(y)
    out = np.empty_like(y)

    def run(start: int, stop: int) -> None:
        _cdf(start, stop, packed, anchor, means, variances, y, out)

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
    levels = _owned(levels)
    scores = ndtri(levels)  # quantiles of a Gaussian with the same moments: where the search starts
    out = np.empty_like(levels)

    def run(start: int, stop: int) -> None:
        _quantiles(start, stop, packed, anchor, means, variances, levels, scores, out)

    _over_points(run, levels.shape[1], len(packed) * (1 + 6 * len(levels)))
    return out


def pair_draws(pair_weights: Array, means: Array, variances: Array, levels: Array) -> Array:
    """Like `pair_quantiles` for many `levels` in (0, 1), within 1e-7 in probability.

    The CDF of a point is tabulated once, by cubics between some 200 values; further levels cost no sum over pairs.
    """
    packed, anchor, means, variances = _prepared(pair_weights, means, variances)
    levels = _owned(levels)
    out = np.empty_like(levels)

    def run(start: int, stop: int) -> None:
        _draws(start, stop, packed, anchor, means, variances, levels, out)

    _over_points(run, levels.shape[1], len(packed) * 200)
    return out


def pair_log_density(factor: Array, means: Array, variances: Array, y: Array) -> Array:
    """log sum_ij W_ij sqrt(N_i(y) N_j(y)) with W = F F^T, not normalised, at y (M,); shape (M,).

    The sum is ``|F^T a|^2`` with ``a_i = sqrt(N_i(y))``, scaled by the largest ``|F_i| a_i``: non-negative,
    and finite however far y lies. O(h r) a point for `factor` (h, r).
    """
    factor, means, variances, y = _owned(factor), _owned(means), _owned(variances), _owned(y)
    norms = np.sqrt(np.sum(factor * factor, axis=1))
    rows = np.flatnonzero(norms)  # an observation without weight must not set the scale
    directions, log_norms = factor[rows] / norms[rows, None], np.log(norms[rows])
    means, variances = means[rows], variances[rows]
    out = np.empty(len(y))

    def run(start: int, stop: int) -> None:
        _log_density(start, stop, directions, log_norms, means, variances, y, out)

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
    pair_weights, means, covariances, y = (_owned(a) for a in (pair_weights, means, covariances, y))
    log_dets, log_densities, totals, sums = np.zeros(h), np.zeros(h), np.zeros(h), np.zeros((h, n))

    def densities(start: int, stop: int) -> None:
        _joint_log_densities(start, stop, means, covariances, y, log_dets, log_densities)

    def rows(start: int, stop: int) -> None:
        _joint_rows(start, stop, pair_weights, means, covariances, log_dets, totals, sums)

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
    packed = np.zeros(-(-len(rows) // _LANES) * _LANES)
    packed[: len(rows)] = np.where(rows == columns, 1.0, 2.0) * pair_weights[rows, columns]
    return packed, int(np.argmax(np.diagonal(pair_weights))), _owned(means), _owned(variances)


def _owned(array: Array) -> Array:
    """The one array type the kernels are compiled for: float64, C order, writable."""
    return np.require(array, np.float64, ["C", "W"])


def _over_points(run: Callable[[int, int], Any], n_points: int, work_per_point: int) -> None:
    parallel_for(run, n_points, max(1, _PAIRS_PER_BLOCK // work_per_point))


@njit(inline="always", error_model="numpy")  # type: ignore[untyped-decorator]
def _upper_tail(z: float, bell: float) -> Any:
    """P(N(0, 1) > z) for z >= 0, given ``bell = exp(-z^2 / 2)``; relative error near 1e-15 plus that of
    `bell`.

    With x = z / sqrt(2), (1 + 2 x) exp(x^2) erfc(x) is a polynomial in t = (x - 3.75) / (x + 3.75) to 5e-18
    (Chebyshev interpolation at 60 digits, made for this file; the form is Shepherd and Laframboise's, 1981).
    """
    x = 0.7071067811865476 * z
    slope = 1.0 + 2.0 * x
    ratio = 1.0 / ((x + 3.75) * slope)
    t = (x - 3.75) * slope * ratio
    tt = t * t  # even and odd powers apart: two short chains of fma instead of a long one
    p = 4.434959070009628e-10
    q = 3.110310719839165e-10
    p = fma(p, tt, -5.28428697963142e-09)
    q = fma(q, tt, -3.743568033634583e-09)
    p = fma(p, tt, 3.8965452548985966e-08)
    q = fma(q, tt, 2.3261913276696566e-08)
    p = fma(p, tt, -2.591069687796658e-07)
    q = fma(q, tt, -5.721597255990987e-08)
    p = fma(p, tt, 1.752057970166318e-06)
    q = fma(q, tt, -9.735619015182663e-07)
    p = fma(p, tt, -1.1444412439171722e-05)
    q = fma(q, tt, 2.2384240314224437e-05)
    p = fma(p, tt, 5.1649211390702855e-05)
    q = fma(q, tt, -0.0002901540809795271)
    p = fma(p, tt, 0.0002937136342850081)
    q = fma(q, tt, 0.0017556258530017257)
    p = fma(p, tt, -0.009746579552504244)
    q = fma(q, tt, 0.028362277418940665)
    p = fma(p, tt, -0.058693398590212366)
    q = fma(q, tt, 0.09230432116037876)
    p = fma(p, tt, -0.10880393014171785)
    q = fma(q, tt, 0.08227673849014516)
    p = fma(p, tt, 0.003585415485463775)
    q = fma(q, tt, -0.14024059858554697)
    p = fma(p, tt, 1.2375126308378275)
    return 0.5 * bell * fma(q, t, p) * (x + 3.75) * ratio


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _fill_table(
    point: int, packed: Array, anchor: int, means: Array, variances: Array, local: Array, table: Array
) -> None:
    """Fill the rows of `table`: weight, mean minus ``means[anchor]`` and 1/sd of every pair at one point."""
    h = means.shape[0]
    centre = means[anchor, point]
    mean, precision, root = local[0], local[1], local[2]
    for i in range(h):
        mean[i] = means[i, point] - centre
        precision[i] = 1.0 / variances[i, point]
        root[i] = math.sqrt(math.sqrt(precision[i]))
    for i in range(h):
        row, end = i * (i + 1) // 2, (i + 1) * (i + 2) // 2
        weights, centres, inverse_sds = table[0][row:end], table[1][row:end], table[2][row:end]
        given = packed[row:end]
        mean_i, precision_i, root_i = mean[i], precision[i], 1.4142135623730951 * root[i]
        for j in range(i + 1):
            share = precision_i / (precision_i + precision[j])
            gap = mean_i - mean[j]
            centres[j] = fma(share, gap, mean[j])
            weights[j] = -0.25 * share * (precision[j] * gap * gap)
        for j in range(i + 1):  # a second loop: over more arrays at once LLVM does not vectorise
            half_sd = math.sqrt(1.0 / (precision_i + precision[j]))
            weights[j] = given[j] * (root_i * root[j] * half_sd * exp_neg(weights[j]))
            inverse_sds[j] = 0.7071067811865476 / half_sd


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _new_table(h: int, n_entries: int) -> Any:
    """Scratch of one thread; the padding stays weight 0, mean 0, sd 1."""
    table = np.zeros((3, n_entries))
    table[2] = 1.0
    return np.empty((3, h)), table


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _table_moments(table: Array) -> Any:
    """Total weight, mean and variance of a table; the mean is relative to the table's centre."""
    weights, centres, inverse_sds = table[0], table[1], table[2]
    first, second = np.zeros(_LANES), np.zeros(_LANES)
    for k in range(0, len(weights), _LANES):
        for lane in range(_LANES):
            first[lane] += weights[k + lane]
            second[lane] += weights[k + lane] * centres[k + lane]
    total = first.sum()
    if not total > 0.0:
        return total, np.nan, np.nan
    mean = second.sum() / total
    first[:] = 0.0
    second[:] = 0.0
    for k in range(0, len(weights), _LANES):
        for lane in range(_LANES):
            gap = centres[k + lane] - mean
            sd = 1.0 / inverse_sds[k + lane]
            term = weights[k + lane] * fma(gap, gap, sd * sd)
            first[lane] += term
            second[lane] += abs(term)
    return total, mean, max(first.sum(), _EPS * second.sum()) / total


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _moments(
    start: int,
    stop: int,
    packed: Array,
    anchor: int,
    means: Array,
    variances: Array,
    total: Array,
    mean: Array,
    variance: Array,
) -> None:
    local, table = _new_table(means.shape[0], len(packed))
    for point in range(start, stop):
        _fill_table(point, packed, anchor, means, variances, local, table)
        total[point], shift, variance[point] = _table_moments(table)
        mean[point] = means[anchor, point] + shift


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _tail(
    u: float, sign: float, weights: Array, centres: Array, inverse_sds: Array, tails: Array, slopes: Array
) -> Any:
    """Weighted mass of ``sign * y <= u`` and its derivative in u; y is relative to the table's centre."""
    tails[:] = 0.0
    slopes[:] = 0.0
    for k in range(0, len(weights), _LANES):
        for lane in range(_LANES):
            z = (u - sign * centres[k + lane]) * inverse_sds[k + lane]
            size = min(abs(z), 40.0)
            bell = exp_neg(-0.5 * size * size)
            far = _upper_tail(size, bell)
            tails[lane] += weights[k + lane] * (far if z < 0.0 else 1.0 - far)
            slopes[lane] += weights[k + lane] * inverse_sds[k + lane] * bell
    return tails.sum(), 0.3989422804014327 * slopes.sum()


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _cdf(
    start: int, stop: int, packed: Array, anchor: int, means: Array, variances: Array, y: Array, out: Array
) -> None:
    local, table = _new_table(means.shape[0], len(packed))
    tails, slopes = np.empty(_LANES), np.empty(_LANES)
    for point in range(start, stop):
        _fill_table(point, packed, anchor, means, variances, local, table)
        for k in range(len(y)):
            u = y[k, point] - means[anchor, point]
            out[k, point] = _tail(u, 1.0, table[0], table[1], table[2], tails, slopes)[0]


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _solve(
    level: float, score: float, moments: tuple[float, float, float], table: Array, tails: Array, slopes: Array
) -> float:
    """The quantile at `level`, relative to the table's centre; `score` is the standard normal one."""
    total, mean, variance = moments
    sd = math.sqrt(variance)
    # Work from the smaller tail: `u` is the value sought, or its mirror image above the median.
    sign = 1.0 if level <= 0.5 else -1.0
    level = level if sign > 0.0 else 1.0 - level
    if level <= 0.0:
        return -sign * np.inf
    low = sign * mean - 1.0001 * sd * math.sqrt((1.0 - level) / level)
    high = sign * mean + 1.0001 * sd * math.sqrt(level / (1.0 - level))
    u = min(max(sign * (mean + sd * score), low), high)
    for step in range(200):
        mass, slope = _tail(u, sign, table[0], table[1], table[2], tails, slopes)
        mass /= total
        slope /= total
        if mass < level:
            low = u
        else:
            high = u
        if mass == level or high - low <= 4.0 * _EPS * (abs(low) + abs(high)):
            break
        proposal = low
        if mass > 0.0 and slope > 0.0:
            proposal = u + mass / slope * math.log(level / mass)
        newton = low < proposal < high and not (step >= 16 and step % 2 == 0)
        if not newton:
            proposal = 0.5 * (low + high)
        moved = abs(proposal - u)
        u = proposal
        if newton and moved <= 1e-10 * sd:
            break
    return sign * u


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _quantiles(
    start: int,
    stop: int,
    packed: Array,
    anchor: int,
    means: Array,
    variances: Array,
    levels: Array,
    scores: Array,
    out: Array,
) -> None:
    local, table = _new_table(means.shape[0], len(packed))
    tails, slopes = np.empty(_LANES), np.empty(_LANES)
    for point in range(start, stop):
        _fill_table(point, packed, anchor, means, variances, local, table)
        moments = _table_moments(table)
        for k in range(len(levels)):
            u = _solve(levels[k, point], scores[k, point], moments, table, tails, slopes)
            out[k, point] = means[anchor, point] + u


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _node(u: float, total: float, table: Array, tails: Array, slopes: Array) -> Any:
    """(u, CDF, density) at u."""
    mass, slope = _tail(u, 1.0, table[0], table[1], table[2], tails, slopes)
    return u, mass / total, slope / total


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _cubic(share: float, left: Any, right: Any) -> Any:
    """The cubic through two nodes at ``u = left + share * width``: its value, and its slope in `share`."""
    start, end = (right[0] - left[0]) * left[2], (right[0] - left[0]) * right[2]
    rise = right[1] - left[1]
    c2, c3 = 3.0 * rise - 2.0 * start - end, start + end - 2.0 * rise
    value = left[1] + share * (start + share * (c2 + share * c3))
    return value, start + share * (2.0 * c2 + 3.0 * share * c3)


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _tabulate(first: float, last: float, total: float, table: Array, tails: Array, slopes: Array) -> Any:
    """Nodes of a piecewise cubic CDF from `first` to `last`, in order: intervals are halved until value and slope
    of the cubic meet the sums over pairs at the middle, which then becomes a node too.
    """
    nodes = [_node(first, total, table, tails, slopes)]
    pending = [
        _node(first + (last - first) * part / _PARTS, total, table, tails, slopes) for part in range(_PARTS, 0, -1)
    ]
    while len(pending) > 0:
        left, right = nodes[-1], pending[-1]
        middle = _node(0.5 * (left[0] + right[0]), total, table, tails, slopes)
        value, slope = _cubic(0.5, left, right)
        gap = abs(value - middle[1]) + 0.25 * abs(slope - (right[0] - left[0]) * middle[2])
        if gap > _CUBIC_ERROR and right[0] - left[0] > 1e-12 * (last - first):
            pending.append(middle)
        else:
            nodes.append(middle)
            nodes.append(pending.pop())
    return nodes


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _invert_cubic(level: float, left: Any, right: Any) -> Any:
    """The u between two nodes where their cubic has the value `level`: Newton's method in a bracket."""
    low, high, share = 0.0, 1.0, 0.5
    for _ in range(60):
        value, slope = _cubic(share, left, right)
        if value < level:
            low = share
        else:
            high = share
        proposal = share + (level - value) / slope
        if not low <= proposal <= high:
            proposal = 0.5 * (low + high)
        moved = abs(proposal - share)
        share = proposal
        if moved <= 1e-10:
            break
    return left[0] + share * (right[0] - left[0])


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _draws(
    start: int,
    stop: int,
    packed: Array,
    anchor: int,
    means: Array,
    variances: Array,
    levels: Array,
    out: Array,
) -> None:
    local, table = _new_table(means.shape[0], len(packed))
    tails, slopes = np.empty(_LANES), np.empty(_LANES)
    for point in range(start, stop):
        _fill_table(point, packed, anchor, means, variances, local, table)
        moments = _table_moments(table)
        wanted = np.ascontiguousarray(levels[:, point])
        first = _solve(wanted.min(), 0.0, moments, table, tails, slopes)
        last = _solve(wanted.max(), 0.0, moments, table, tails, slopes)
        nodes = _tabulate(first, last, moments[0], table, tails, slopes)
        masses = np.array([node[1] for node in nodes])
        for k in range(len(wanted)):
            right = min(max(np.searchsorted(masses, wanted[k]), 1), len(nodes) - 1)
            out[k, point] = means[anchor, point] + _invert_cubic(wanted[k], nodes[right - 1], nodes[right])


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _log_density(
    start: int,
    stop: int,
    directions: Array,
    log_norms: Array,
    means: Array,
    variances: Array,
    y: Array,
    out: Array,
) -> None:
    """`directions` has rows F_i / |F_i|, and `log_norms` log |F_i|."""
    h, rank = directions.shape
    logs, amplitudes = np.empty(h), np.empty(rank)
    for point in range(start, stop):
        largest = -np.inf
        for i in range(h):
            gap = y[point] - means[i, point]
            # log of |F_i| sqrt(N_i(y)); log(2 pi) / 4 = 0.4594692666023363
            spread = 0.25 * (gap / variances[i, point] * gap + math.log(variances[i, point]))
            logs[i] = log_norms[i] - spread - 0.4594692666023363
            largest = max(largest, logs[i])
        amplitudes[:] = 0.0
        for i in range(h):
            scaled = math.exp(logs[i] - largest)
            for k in range(rank):
                amplitudes[k] += directions[i, k] * scaled
        square = 0.0
        for k in range(rank):
            square += amplitudes[k] * amplitudes[k]
        out[point] = 2.0 * largest + (math.log(square) if square > 0.0 else -np.inf)


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _whiten(factor: Array, residual: Array) -> Any:
    """Replace `residual` by L^-1 residual; returns its squared norm and log|L|."""
    square = 0.0
    log_det = 0.0
    for a in range(len(residual)):
        rest = residual[a]
        for b in range(a):
            rest -= factor[a, b] * residual[b]
        residual[a] = rest / factor[a, a]
        square += residual[a] * residual[a]
        log_det += math.log(factor[a, a])
    return square, log_det


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _joint_log_densities(
    start: int, stop: int, means: Array, covariances: Array, y: Array, log_dets: Array, log_densities: Array
) -> None:
    """log|C_i| and log N_i(y); NaN where C_i is not positive definite."""
    for i in range(start, stop):
        residual = y - means[i]
        log_dets[i] = np.nan
        try:
            factor = np.linalg.cholesky(covariances[i])
            square, log_det = _whiten(factor, residual)
            log_dets[i] = 2.0 * log_det
            log_densities[i] = -0.5 * square - log_det - 0.9189385332046727 * len(y)  # log(2 pi) / 2
        except Exception:
            log_densities[i] = np.nan


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _joint_rows(
    start: int,
    stop: int,
    pair_weights: Array,
    means: Array,
    covariances: Array,
    log_dets: Array,
    totals: Array,
    sums: Array,
) -> None:
    """Pairs (i, j <= i) for rows i: with S = C_i + C_j and d = mu_i - mu_j, m_ij = mu_j + C_j S^-1 d and
    log s_ij = (log|C_i| + log|C_j|) / 4 - log|S / 2| / 2 - d^T S^-1 d / 4.
    """
    n = means.shape[1]
    for i in range(start, stop):
        totals[i] = pair_weights[i, i]
        for a in range(n):
            sums[i, a] = pair_weights[i, i] * means[i, a]
        for j in range(i):
            factor = np.linalg.cholesky(covariances[i] + covariances[j])
            u = means[i] - means[j]
            square, log_det = _whiten(factor, u)
            exponent = 0.25 * (log_dets[i] + log_dets[j] - square) - log_det + 0.34657359027997264 * n  # log(2) / 2
            weight = 2.0 * pair_weights[i, j] * math.exp(exponent)
            for a in range(n - 1, -1, -1):
                u[a] /= factor[a, a]
                for b in range(a):
                    u[b] -= factor[a, b] * u[a]
            totals[i] += weight
            for a in range(n):
                mean = means[j, a]
                for b in range(n):
                    mean += covariances[j, a, b] * u[b]
                sums[i, a] += weight * mean
