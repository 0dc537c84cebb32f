"""Compiled sums over all pairs of Gaussians at one point: moments, tails and densities.

With precisions l = 1/C a pair is the Gaussian of (mathematics.md section 8)

    s_ij = sqrt(2) (l_i l_j)^(1/4) / sqrt(l_i + l_j) exp(-l_i l_j (mu_i - mu_j)^2 / (4 (l_i + l_j)))
    m_ij = mu_j + l_i (mu_i - mu_j) / (l_i + l_j),      V_ij = 2 / (l_i + l_j)

kept in a table as (W_ij s_ij, mean, 1/sd), one row each. Sums run over `LANES` accumulators so that they vectorise
in an order that the compiler does not choose.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..._checks import Array
from ._jit import inlined, inner, loop
from ._math import EPS, exp_neg, fma

LANES = 64


class Gaussians(NamedTuple):
    """The Gaussians that are combined, at all points."""

    packed: Array  # the lower triangle of W by rows, off-diagonal entries doubled, padded with 0 to whole lanes
    anchor: int  # the Gaussian of most weight, whose mean is a table's centre
    means: Array  # (h, M)
    variances: Array  # (h, M)


@loop
def fill_moments(start: int, stop: int, g: Gaussians, total: Array, mean: Array, variance: Array) -> None:
    local, table = new_table(g)
    for point in range(start, stop):
        fill_table(point, g, local, table)
        total[point], shift, variance[point] = table_moments(table)
        mean[point] = g.means[g.anchor, point] + shift


@loop
def fill_cdf(start: int, stop: int, g: Gaussians, y: Array, out: Array) -> None:
    local, table = new_table(g)
    tails, slopes = np.empty(LANES), np.empty(LANES)
    for point in range(start, stop):
        fill_table(point, g, local, table)
        for k in range(len(y)):
            u = y[k, point] - g.means[g.anchor, point]
            out[k, point] = tail(u, 1.0, table[0], table[1], table[2], tails, slopes)[0]


@loop
def fill_log_density(
    start: int, stop: int, directions: Array, log_norms: Array, means: Array, variances: Array, y: Array, out: Array
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


@inner
def fill_table(point: int, g: Gaussians, local: Array, table: Array) -> None:
    """Fill the rows of `table`: weight, mean minus ``means[anchor]`` and 1/sd of every pair at one point."""
    packed, anchor, means, variances = g
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
        pair_weights = packed[row:end]
        mean_i, precision_i, root_i = mean[i], precision[i], 1.4142135623730951 * root[i]
        for j in range(i + 1):
            share = precision_i / (precision_i + precision[j])
            gap = mean_i - mean[j]
            centres[j] = fma(share, gap, mean[j])
            weights[j] = -0.25 * share * (precision[j] * gap * gap)
        for j in range(i + 1):  # a second loop: over more arrays at once LLVM does not vectorise
            half_sd = math.sqrt(1.0 / (precision_i + precision[j]))
            weights[j] = pair_weights[j] * (root_i * root[j] * half_sd * exp_neg(weights[j]))
            inverse_sds[j] = 0.7071067811865476 / half_sd


@inner
def new_table(g: Gaussians) -> Any:
    """Scratch of one thread; the padding stays weight 0, mean 0, sd 1."""
    table = np.zeros((3, len(g.packed)))
    table[2] = 1.0
    return np.empty((3, len(g.means))), table


@inner
def table_moments(table: Array) -> Any:
    """Total weight, mean and variance of a table; the mean is relative to the table's centre."""
    weights, centres, inverse_sds = table[0], table[1], table[2]
    first, second = np.zeros(LANES), np.zeros(LANES)
    for k in range(0, len(weights), LANES):
        for lane in range(LANES):
            first[lane] += weights[k + lane]
            second[lane] += weights[k + lane] * centres[k + lane]
    total = first.sum()
    if not total > 0.0:
        return total, np.nan, np.nan
    mean = second.sum() / total
    first[:] = 0.0
    second[:] = 0.0
    for k in range(0, len(weights), LANES):
        for lane in range(LANES):
            gap = centres[k + lane] - mean
            sd = 1.0 / inverse_sds[k + lane]
            term = weights[k + lane] * fma(gap, gap, sd * sd)
            first[lane] += term
            second[lane] += abs(term)
    return total, mean, max(first.sum(), EPS * second.sum()) / total


@inner
def tail(u: float, sign: float, weights: Array, centres: Array, inverse_sds: Array, tails: Array, slopes: Array) -> Any:
    """Weighted mass of ``sign * y <= u`` and its derivative in u; y is relative to the table's centre."""
    tails[:] = 0.0
    slopes[:] = 0.0
    for k in range(0, len(weights), LANES):
        for lane in range(LANES):
            z = (u - sign * centres[k + lane]) * inverse_sds[k + lane]
            size = min(abs(z), 40.0)
            bell = exp_neg(-0.5 * size * size)
            far = _upper_tail(size, bell)
            tails[lane] += weights[k + lane] * (far if z < 0.0 else 1.0 - far)
            slopes[lane] += weights[k + lane] * inverse_sds[k + lane] * bell
    return tails.sum(), 0.3989422804014327 * slopes.sum()


@inlined
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
