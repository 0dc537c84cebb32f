"""Compiled loops of the gradients of the pairwise distances, in the layout of `distances.py`.

Sums over lanes may be reassociated (and so vectorised): each gradient is one thread's sum over the windows in
order, hence still the same bits for any number of threads.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from ..._checks import Array
from ._distance_loops import Lanes, Side, norm
from ._distance_tiles import WINDOW, squares
from ._jit import inner, loop, summing
from ._math import exp_neg, fma, unsigned


@loop
def add_gradients(
    start: int, stop: int, cotangent: Array, distance: Array, mass_correction: bool, side: Side, lanes_b: Lanes,
    g_weights: Array, g_points: Array,
) -> None:  # fmt: skip
    """Gradients of the mixtures [start, stop) of a; 0 from pairs whose `distance` is that of the features alone."""
    offsets, weights, points, data, n_reflect, bandwidth = side
    atoms, widths, starts, lane, data_b = lanes_b
    n_b = cotangent.shape[1]
    n = points.shape[1]
    u, v, cotangents = np.zeros(WINDOW), np.empty(WINDOW), np.empty(WINDOW)
    inverse, sign = np.empty((n // 2, WINDOW)), np.ones(n)
    for a in range(start, stop):
        begin, end = offsets[a], offsets[a + 1]
        sum_plain, sum_moment, sum_mass = 0.0, 0.0, 0.0
        for window in range(len(starts) - 1):
            first, last = starts[window], starts[window + 1]
            n_lanes = min(WINDOW, n_b - window * WINDOW)
            for l in range(n_lanes):
                v[l] = 0.0
            for f in range(3, data.shape[1]):  # in the order in which they are added to a clamped distance
                for l in range(n_lanes):
                    v[l] += abs(data[a, f] - data_b[window, f, l])
            for c in range(n_lanes):
                l, k = lane[window, c], window * WINDOW + c
                cotangents[l] = cotangent[a, k] if distance[a, k] > v[l] else 0.0
            for l in range(n_lanes):
                g = cotangents[l]
                sum_plain += g
                sum_moment += g * (data[a, 2] - data_b[window, 2, l])
                sum_mass += g * (data[a, 1] - data_b[window, 1, l])
            for l in range(n_lanes, widths[first]):
                cotangents[l] = 0.0
            if bandwidth > 0.0:
                _gaussian_vjp(
                    atoms, widths, first, last, points, weights, begin, end, n_reflect, bandwidth,
                    cotangents, u, v, inverse, g_weights, g_points,
                )  # fmt: skip
            else:
                _energy_vjp(
                    atoms, widths, first, last, points, weights, begin, end, n_reflect,
                    cotangents, u, v, sign, g_weights, g_points,
                )  # fmt: skip
        _self_vjp(begin, end, points, weights, n_reflect, bandwidth, -sum_plain, g_weights, g_points)
        if mass_correction:
            for i in range(begin, end):
                radius = norm(points, i)
                g_weights[i] += sum_moment + sum_mass * radius
                if radius > 0.0:
                    for p in range(n):
                        g_points[i, p] += sum_mass * weights[i] * points[i, p] / radius


@summing
def _energy_vjp(
    atoms: Array, widths: Array, first: int, last: int, points: Array, weights: Array, begin: int, end: int,
    n_reflect: int, cotangents: Array, r2: Array, share: Array, sign: Array, g_weights: Array, g_points: Array,
) -> None:  # fmt: skip
    """Add sum_l h_l w_l d||p_i - p_l|| over ranks to components [begin, end), h the cotangents.

    `r2` is 0 before and after. Coordinates go in blocks of 4; the last two, if they are left over, with the root. Where
    atoms meet, 0/0 = 0. `sign` is -1 for the coordinates that are mirrored: those of p_i are, instead of all p_l.
    """
    n = points.shape[1]
    signs = 2 if n_reflect > 0 else 1
    for rank in range(first, last):
        width = unsigned(widths[rank])
        q = unsigned(rank * (1 + n) * WINDOW)
        q0, q1 = q + unsigned((n - 1) * WINDOW), q + unsigned(n * WINDOW)
        for i in range(begin, end):
            for k in range(signs):
                for p in range(n_reflect):
                    sign[p] = 1.0 - 2.0 * k
                for p in range(0, n - 3, 4):
                    x0, x1 = sign[p] * points[i, p], sign[p + 1] * points[i, p + 1]
                    x2, x3 = sign[p + 2] * points[i, p + 2], sign[p + 3] * points[i, p + 3]
                    block = q + unsigned((p + 1) * WINDOW)
                    for l in range(width):
                        r2[l] = squares(r2[l], (x0, x1, x2, x3), 1.0, atoms, block, l)
                s, s0, s1 = 0.0, 0.0, 0.0
                if n % 4 == 2:
                    x0, x1 = sign[n - 2] * points[i, n - 2], sign[n - 1] * points[i, n - 1]
                    for l in range(width):
                        d0, d1 = x0 - atoms[q0 + l], x1 - atoms[q1 + l]
                        r = sqrt(fma(d1, d1, fma(d0, d0, r2[l])))
                        h = cotangents[l] * atoms[q + l]
                        c = h / r if r > 0.0 else 0.0
                        s += h * r
                        s0 += c * d0
                        s1 += c * d1
                        share[l] = c
                        r2[l] = 0.0
                else:
                    for l in range(width):
                        r = sqrt(r2[l])
                        h = cotangents[l] * atoms[q + l]
                        s += h * r
                        share[l] = h / r if r > 0.0 else 0.0
                        r2[l] = 0.0
                w = weights[i] / signs
                g_weights[i] += s / signs
                g_points[i, n - 2] += w * sign[n - 2] * s0
                g_points[i, n - 1] += w * sign[n - 1] * s1
                for p in range(0, n - 3, 4):
                    x0, x1 = sign[p] * points[i, p], sign[p + 1] * points[i, p + 1]
                    x2, x3 = sign[p + 2] * points[i, p + 2], sign[p + 3] * points[i, p + 3]
                    block = q + unsigned((p + 1) * WINDOW)
                    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
                    for l in range(width):
                        s0 += share[l] * (x0 - atoms[block + l])
                        s1 += share[l] * (x1 - atoms[block + unsigned(WINDOW) + l])
                        s2 += share[l] * (x2 - atoms[block + unsigned(2 * WINDOW) + l])
                        s3 += share[l] * (x3 - atoms[block + unsigned(3 * WINDOW) + l])
                    g_points[i, p] += w * sign[p] * s0
                    g_points[i, p + 1] += w * sign[p + 1] * s1
                    g_points[i, p + 2] += w * sign[p + 2] * s2
                    g_points[i, p + 3] += w * sign[p + 3] * s3


@summing
def _gaussian_vjp(
    atoms: Array, widths: Array, first: int, last: int, points: Array, weights: Array, begin: int, end: int,
    n_reflect: int, bandwidth: float, cotangents: Array, product: Array, exponent: Array, inverse: Array,
    g_weights: Array, g_points: Array,
) -> None:  # fmt: skip
    """Add -2 sum_l h_l w_l d<N(p_i), N(p_l)> over ranks to components [begin, end)."""
    n_dims = points.shape[1] // 2
    b2 = bandwidth * bandwidth
    signs = 2 if n_reflect > 0 else 1
    for rank in range(first, last):
        width = unsigned(widths[rank])
        q = unsigned(rank * (1 + 2 * n_dims) * WINDOW)
        for i in range(begin, end):
            for k in range(signs):
                sign = 1.0 - 2.0 * k
                for l in range(width):
                    product[l] = 1.0
                    exponent[l] = 0.0
                for d in range(n_dims):
                    m, s = points[i, d], points[i, n_dims + d]
                    q_mean, q_scale = q + unsigned((1 + d) * WINDOW), q + unsigned((1 + n_dims + d) * WINDOW)
                    for l in range(width):
                        s_l = atoms[q_scale + l]
                        t = 1.0 / (s * s + s_l * s_l + b2)
                        z = m - sign * atoms[q_mean + l]
                        inverse[d, l] = t
                        product[l] *= b2 * t
                        exponent[l] -= 0.5 * z * z * t
                total = 0.0
                for l in range(width):
                    h = -2.0 / signs * cotangents[l] * atoms[q + l] * sqrt(product[l]) * exp_neg(exponent[l])
                    total += h
                    exponent[l] = h
                g_weights[i] += total
                for d in range(n_dims):
                    m, g_m, g_s = points[i, d], 0.0, 0.0
                    q_mean = q + unsigned((1 + d) * WINDOW)
                    for l in range(width):
                        t = inverse[d, l]
                        z = (m - sign * atoms[q_mean + l]) * t
                        g_m -= exponent[l] * z
                        g_s += exponent[l] * (z * z - t)
                    g_points[i, d] += weights[i] * g_m
                    g_points[i, n_dims + d] += weights[i] * points[i, n_dims + d] * g_s


@inner
def _self_vjp(
    begin: int, end: int, points: Array, weights: Array, n_reflect: int, bandwidth: float, factor: float,
    g_weights: Array, g_points: Array,
) -> None:  # fmt: skip
    """Add `factor` times the gradient of c(a, a)/2; the half cancels against the two places of a component."""
    n = points.shape[1]
    n_dims = n // 2
    b2 = bandwidth * bandwidth
    signs = 2 if n_reflect > 0 else 1
    for i in range(begin, end):
        for j in range(begin, end):
            for k in range(signs):
                sign = 1.0 - 2.0 * k
                if bandwidth > 0.0:
                    product, exponent = 1.0, 0.0
                    for d in range(n_dims):
                        s_i, s_j = points[i, n_dims + d], points[j, n_dims + d]
                        t = b2 / fma(s_j, s_j, fma(s_i, s_i, b2))
                        z = fma(-sign, points[j, d], points[i, d])
                        product *= t
                        exponent = fma(z * z, t * (-0.5 / b2), exponent)
                    h = -2.0 / signs * factor * weights[j] * sqrt(product) * exp_neg(exponent)
                    g_weights[i] += h
                    for d in range(n_dims):
                        s_i, s_j = points[i, n_dims + d], points[j, n_dims + d]
                        inv = 1.0 / fma(s_j, s_j, fma(s_i, s_i, b2))
                        z = fma(-sign, points[j, d], points[i, d]) * inv
                        g_points[i, d] -= weights[i] * h * z
                        g_points[i, n_dims + d] += weights[i] * h * s_i * (z * z - inv)
                    continue
                r2 = 0.0
                for p in range(n):
                    z = fma(-sign if p < n_reflect else -1.0, points[j, p], points[i, p])
                    r2 = fma(z, z, r2)
                if r2 > 0.0:
                    h = factor * weights[j] / signs
                    r = sqrt(r2)
                    g_weights[i] += h * r
                    for p in range(n):
                        z = fma(-sign if p < n_reflect else -1.0, points[j, p], points[i, p])
                        g_points[i, p] += weights[i] * h * z / r
