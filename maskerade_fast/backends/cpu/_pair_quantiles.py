"""Compiled inversion of the mixture's CDF at one point: level by level, or once for many draws by a table of cubics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._checks import Array
from ._jit import inner, loop
from ._math import EPS
from ._pair_sums import LANES, Gaussians, fill_table, new_table, table_moments, tail

_CUBIC_ERROR = 1e-7  # in probability, at the middle of an interval before it is halved for the last time
_PARTS = 16


@loop
def fill_quantiles(start: int, stop: int, g: Gaussians, levels: Array, scores: Array, out: Array) -> None:
    local, table = new_table(g)
    tails, slopes = np.empty(LANES), np.empty(LANES)
    for point in range(start, stop):
        fill_table(point, g, local, table)
        moments = table_moments(table)
        for k in range(len(levels)):
            u = _solve(levels[k, point], scores[k, point], moments, table, tails, slopes)
            out[k, point] = g.means[g.anchor, point] + u


@inner
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
        mass, slope = tail(u, sign, table[0], table[1], table[2], tails, slopes)
        mass /= total
        slope /= total
        if mass < level:
            low = u
        else:
            high = u
        if mass == level or high - low <= 4.0 * EPS * (abs(low) + abs(high)):
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


@loop
def fill_draws(start: int, stop: int, g: Gaussians, levels: Array, out: Array) -> None:
    local, table = new_table(g)
    tails, slopes = np.empty(LANES), np.empty(LANES)
    for point in range(start, stop):
        fill_table(point, g, local, table)
        moments = table_moments(table)
        probabilities = np.ascontiguousarray(levels[:, point])
        first = _solve(probabilities.min(), 0.0, moments, table, tails, slopes)
        last = _solve(probabilities.max(), 0.0, moments, table, tails, slopes)
        nodes = _tabulate(first, last, moments[0], table, tails, slopes)
        masses = np.array([node[1] for node in nodes])
        for k in range(len(probabilities)):
            right = min(max(np.searchsorted(masses, probabilities[k]), 1), len(nodes) - 1)
            out[k, point] = g.means[g.anchor, point] + _invert_cubic(probabilities[k], nodes[right - 1], nodes[right])


@inner
def _tabulate(first: float, last: float, total: float, table: Array, tails: Array, slopes: Array) -> Any:
    """Nodes of a piecewise cubic CDF from `first` to `last`, in order: intervals are halved until value and slope
    of the cubic meet the sums over pairs at the middle, which then becomes a node too.

    Where terms of both signs cancel the sums carry rounding errors that no halving removes: the error allowed is never
    below a bound of those, or intervals would be halved without end.
    """
    rounding = 64.0 * EPS * np.abs(table[0]).sum() / total
    allowed = max(_CUBIC_ERROR, rounding)
    nodes = [_node(first, total, table, tails, slopes)]
    pending = [
        _node(first + (last - first) * part / _PARTS, total, table, tails, slopes) for part in range(_PARTS, 0, -1)
    ]
    while len(pending) > 0:
        left, right = nodes[-1], pending[-1]
        middle = _node(0.5 * (left[0] + right[0]), total, table, tails, slopes)
        value, slope = _cubic(0.5, left, right)
        gap = abs(value - middle[1]) + 0.25 * abs(slope - (right[0] - left[0]) * middle[2])
        if gap > allowed and right[0] - left[0] > 1e-12 * (last - first):
            pending.append(middle)
        else:
            nodes.append(middle)
            nodes.append(pending.pop())
    return nodes


@inner
def _node(u: float, total: float, table: Array, tails: Array, slopes: Array) -> Any:
    """(u, CDF, density) at u."""
    mass, slope = tail(u, 1.0, table[0], table[1], table[2], tails, slopes)
    return u, mass / total, slope / total


@inner
def _cubic(share: float, left: Any, right: Any) -> Any:
    """The cubic through two nodes at ``u = left + share * width``: its value, and its slope in `share`."""
    start, end = (right[0] - left[0]) * left[2], (right[0] - left[0]) * right[2]
    rise = right[1] - left[1]
    c2, c3 = 3.0 * rise - 2.0 * start - end, start + end - 2.0 * rise
    value = left[1] + share * (start + share * (c2 + share * c3))
    return value, start + share * (2.0 * c2 + 3.0 * share * c3)


@inner
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
