"""Compiled loops of the pairwise distances; `distances.py` explains the layout, `Lanes` the arrays.

Every sum is a chain of `fma` in a fixed order, so that vectors and remainders round alike; no fast-math.
Functions that are called for every mixture and window hold all loops below that: a call with arrays costs
25 ns of reference counts, a root 1 ns. ``error_model="numpy"`` drops a test for division by zero, which would
keep loops from being vectorised.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numba import njit

from ..._checks import Array
from ._math import exp_neg, fma

WINDOW = 256  # long enough to hide the start of a loop; one level of D = 5 takes 22 kB of the 32 kB of L1
ROWS = 128  # mixtures of a in a tile of pairs: 128 x 256 stay in the 512 kB of L2
LEADING = WINDOW + 8  # row length of a tile: no power of two, or its columns would share cache sets
VECTOR = 4  # levels are padded to this many lanes, so that the vectorised loops leave no remainder


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _energy(
    atoms: Array, widths: Array, first: int, last: int, points: Array, weights: Array, begin: int, end: int,
    total: Array, r2: Array,
) -> None:  # fmt: skip
    """total[l] += w_i w_l ||p_i - p_l|| over levels and components [begin, end); `r2` comes and goes as 0.

    The last 2, 4 or 6 coordinates are added on the way to the root, the rest in blocks of 4 through `r2`. The
    loops are in one function since each call with arrays costs reference counts, 25 ns against 1 ns a root.
    """
    n = points.shape[1]
    tail = n if n <= 6 else 4 + n % 4
    for level in range(first, last):
        width = widths[level]
        for i in range(begin, end):
            for p in range(0, n - tail, 4):
                x0, x1, x2, x3 = points[i, p], points[i, p + 1], points[i, p + 2], points[i, p + 3]
                for l in range(width):
                    d0 = x0 - atoms[level, p + 1, l]
                    d1 = x1 - atoms[level, p + 2, l]
                    d2 = x2 - atoms[level, p + 3, l]
                    d3 = x3 - atoms[level, p + 4, l]
                    r2[l] = fma(d3, d3, fma(d2, d2, fma(d1, d1, fma(d0, d0, r2[l]))))
            w, x0, x1 = weights[i], points[i, n - 2], points[i, n - 1]
            if tail == 2:
                for l in range(width):
                    d0 = x0 - atoms[level, n - 1, l]
                    d1 = x1 - atoms[level, n, l]
                    r = sqrt(fma(d1, d1, fma(d0, d0, r2[l])))
                    total[l] = fma(w * atoms[level, 0, l], r, total[l])
            elif tail == 4:
                x2, x3 = points[i, n - 4], points[i, n - 3]
                for l in range(width):
                    d0 = x0 - atoms[level, n - 1, l]
                    d1 = x1 - atoms[level, n, l]
                    d2 = x2 - atoms[level, n - 3, l]
                    d3 = x3 - atoms[level, n - 2, l]
                    r = sqrt(fma(d1, d1, fma(d0, d0, fma(d3, d3, fma(d2, d2, r2[l])))))
                    total[l] = fma(w * atoms[level, 0, l], r, total[l])
                    r2[l] = 0.0
            else:
                x2, x3, x4, x5 = points[i, n - 4], points[i, n - 3], points[i, n - 6], points[i, n - 5]
                for l in range(width):
                    d0 = x0 - atoms[level, n - 1, l]
                    d1 = x1 - atoms[level, n, l]
                    d2 = x2 - atoms[level, n - 3, l]
                    d3 = x3 - atoms[level, n - 2, l]
                    d4 = x4 - atoms[level, n - 5, l]
                    d5 = x5 - atoms[level, n - 4, l]
                    s = fma(d3, d3, fma(d2, d2, fma(d5, d5, fma(d4, d4, r2[l]))))
                    total[l] = fma(w * atoms[level, 0, l], sqrt(fma(d1, d1, fma(d0, d0, s))), total[l])
                    r2[l] = 0.0


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _reflected_energy(
    atoms: Array, widths: Array, first: int, last: int, points: Array, weights: Array, begin: int, end: int,
    n_reflect: int, total: Array, r2: Array, mirrored: Array,
) -> None:  # fmt: skip
    """As `_energy`, with half the mass of each component at its mirror image in the first coordinates.

    Mirroring both ends of a distance changes nothing, so that two of the four distances remain.
    """
    n = points.shape[1]
    for level in range(first, last):
        width = widths[level]
        for i in range(begin, end):
            p = n_reflect
            while p < n - 1:  # by twos as far as they go; the last one starts `mirrored`
                step = 2 if p < n - 2 else 1
                x0, x1 = points[i, p], points[i, p + 1]
                if step == 2:
                    for l in range(width):
                        d0 = x0 - atoms[level, p + 1, l]
                        d1 = x1 - atoms[level, p + 2, l]
                        r2[l] = fma(d1, d1, fma(d0, d0, r2[l]))
                else:
                    for l in range(width):
                        d0 = x0 - atoms[level, p + 1, l]
                        r2[l] = fma(d0, d0, r2[l])
                p += step
            x0 = points[i, n - 1]
            for l in range(width):
                d0 = x0 - atoms[level, n, l]
                s = fma(d0, d0, r2[l])
                r2[l] = s
                mirrored[l] = s
            p = 0
            while p < n_reflect - 1:  # likewise; the last one goes with the roots
                step = 2 if p < n_reflect - 2 else 1
                x0, x1 = points[i, p], points[i, p + 1]
                if step == 2:
                    for l in range(width):
                        q0, q1 = atoms[level, p + 1, l], atoms[level, p + 2, l]
                        d0, d1, e0, e1 = x0 - q0, x1 - q1, x0 + q0, x1 + q1
                        r2[l] = fma(d1, d1, fma(d0, d0, r2[l]))
                        mirrored[l] = fma(e1, e1, fma(e0, e0, mirrored[l]))
                else:
                    for l in range(width):
                        d0 = x0 - atoms[level, p + 1, l]
                        e0 = x0 + atoms[level, p + 1, l]
                        r2[l] = fma(d0, d0, r2[l])
                        mirrored[l] = fma(e0, e0, mirrored[l])
                p += step
            x0, half = points[i, n_reflect - 1], 0.5 * weights[i]
            for l in range(width):
                d0 = x0 - atoms[level, n_reflect, l]
                e0 = x0 + atoms[level, n_reflect, l]
                r = sqrt(fma(d0, d0, r2[l])) + sqrt(fma(e0, e0, mirrored[l]))
                total[l] = fma(half * atoms[level, 0, l], r, total[l])
                r2[l] = 0.0


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _gaussian(
    atoms: Array, widths: Array, first: int, last: int, points: Array, weights: Array, begin: int, end: int,
    n_reflect: int, bandwidth: float, total: Array, u: Array, v: Array,
) -> None:  # fmt: skip
    """total[l] -= 2 w_i w_l <N(p_i), N(p_l)> over levels and over components [begin, end)."""
    signs = 2 if n_reflect > 0 else 1
    for level in range(first, last):
        width = widths[level]
        for i in range(begin, end):
            for k in range(signs):
                _overlap(atoms, level, width, points, i, bandwidth * bandwidth, 1.0 - 2.0 * k, u, v)
                w = -2.0 / signs * weights[i]
                for l in range(width):
                    total[l] = fma(w * atoms[level, 0, l], sqrt(u[l]) * exp_neg(v[l]), total[l])
                    u[l] = 0.0


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _overlap(
    atoms: Array, level: int, width: int, points: Array, i: int, b2: float, sign: float, product: Array,
    exponent: Array,
) -> None:  # fmt: skip
    """product[l] = prod_d b^2/V_d and exponent[l] = -1/2 sum_d (m_d - sign m'_d)^2/V_d, V_d = s_d^2 + s'_d^2
    + b^2."""
    n_dims = points.shape[1] // 2
    for l in range(width):
        product[l] = 1.0
        exponent[l] = 0.0
    for d in range(n_dims):
        m, s = points[i, d], points[i, n_dims + d]
        v = fma(s, s, b2)
        for l in range(width):
            s_l = atoms[level, 1 + n_dims + d, l]
            t = b2 / fma(s_l, s_l, v)
            u = fma(-sign, atoms[level, 1 + d, l], m)
            product[l] *= t
            exponent[l] = fma(u * u, t * (-0.5 / b2), exponent[l])


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def cross(
    atoms: Array, widths: Array, first: int, last: int, offsets: Array, weights: Array, points: Array,
    a: int, n_reflect: int, bandwidth: float, total: Array, u: Array, v: Array,
) -> None:  # fmt: skip
    """total[l] = c(a, b_l) for one mixture a and one window; `u` and `v` are scratch, `u` zeros."""
    for l in range(widths[first]):
        total[l] = 0.0
    begin, end = offsets[a], offsets[a + 1]
    if bandwidth > 0.0:
        _gaussian(atoms, widths, first, last, points, weights, begin, end, n_reflect, bandwidth, total, u, v)
    elif n_reflect > 0:
        _reflected_energy(atoms, widths, first, last, points, weights, begin, end, n_reflect, total, u, v)
    else:
        _energy(atoms, widths, first, last, points, weights, begin, end, total, u)


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def finish(data_a: Array, i_a: int, data_b: Array, window: int, width: int, total: Array) -> None:
    """Turn c(a, b) in `total` into the distance; `data_a`: self term, mass, moment, features of a."""
    self_a, mass_a, moment_a = data_a[i_a, 0], data_a[i_a, 1], data_a[i_a, 2]
    for l in range(width):
        e = total[l] - 0.5 * self_a - 0.5 * data_b[window, 0, l]
        e = fma(mass_a - data_b[window, 1, l], moment_a - data_b[window, 2, l], e)
        total[l] = 0.0 if e < 0.0 else e
    for f in range(3, data_a.shape[1]):
        for l in range(width):
            total[l] += abs(data_a[i_a, f] - data_b[window, f, l])


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def covariance(power: int, outputscale: float, rate: float, width: int, values: Array) -> None:
    """Distances to hyper-kernel in place: outputscale * exp(rate * E^(power/2)), rate < 0; power 0 leaves
    E."""
    if power == 1:
        for l in range(width):
            values[l] = outputscale * exp_neg(rate * sqrt(values[l]))
    elif power == 2:
        for l in range(width):
            values[l] = outputscale * exp_neg(rate * values[l])


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def fill_pairs(
    start: int, stop: int, symmetric: bool, power: int, outputscale: float, rate: float, offsets: Array,
    weights: Array, points: Array, data: Array, n_reflect: int, bandwidth: float, atoms: Array,
    widths: Array, starts: Array, order: Array, data_b: Array, out: Array,
) -> None:  # fmt: skip
    """Tiles [start, stop) of `out`: ROWS mixtures of a by one window of b."""
    n_a, n_b = out.shape
    tile = np.empty((ROWS, LEADING))
    u, v, total = np.zeros(WINDOW), np.empty(WINDOW), np.empty(WINDOW)
    for t in range(start, stop):
        row, window = t // len(order), t % len(order)
        base_a, base_b = row * ROWS, window * WINDOW
        if symmetric and base_a >= base_b + WINDOW:
            continue
        first, last = starts[window], starts[window + 1]
        n_lanes = min(WINDOW, n_b - base_b)
        n_rows = min(ROWS, n_a - base_a)
        for r in range(n_rows):
            cross(
                atoms, widths, first, last, offsets, weights, points, base_a + r, n_reflect, bandwidth, total, u, v,
            )  # fmt: skip
            finish(data, base_a + r, data_b, window, widths[first], total)
            covariance(power, outputscale, rate, widths[first], total)
            if not symmetric:
                for l in range(n_lanes):
                    out[base_a + r, order[window, l]] = total[l]
            else:
                for l in range(n_lanes):
                    tile[r, order[window, l] - base_b] = total[l]
        if symmetric:
            _mirror(tile, base_a, n_rows, base_b, n_lanes, 0.0 if power == 0 else outputscale, out)


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _mirror(
    tile: Array, base_a: int, n_rows: int, base_b: int, n_columns: int, diagonal: float, out: Array,
) -> None:  # fmt: skip
    """Write the part of a tile above the diagonal of the symmetric `out`, its transpose and the diagonal."""
    for r in range(n_rows):
        for c in range(max(0, base_a + r + 1 - base_b), n_columns):
            out[base_a + r, base_b + c] = tile[r, c]
        if base_b <= base_a + r < base_b + n_columns:
            out[base_a + r, base_a + r] = diagonal
    for c in range(n_columns):
        for r in range(min(n_rows, base_b + c - base_a)):
            out[base_b + c, base_a + r] = tile[r, c]


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def fill_self_terms(
    start: int, stop: int, offsets: Array, weights: Array, points: Array, n_reflect: int, bandwidth: float,
    mass_correction: bool, data: Array,
) -> None:  # fmt: skip
    """c(a, a), mass and first moment; every sum in the order of `_cross`, so that they cancel exactly."""
    n = points.shape[1]
    n_dims = n // 2
    b2 = bandwidth * bandwidth
    signs = 2 if n_reflect > 0 else 1
    for a in range(start, stop):
        total, mass, moment = 0.0, 0.0, 0.0
        for j in range(offsets[a], offsets[a + 1]):
            for i in range(offsets[a], offsets[a + 1]):
                if bandwidth == 0.0:
                    g = 0.0
                    for p in range(n_reflect, n):
                        d = points[i, p] - points[j, p]
                        g = fma(d, d, g)
                    mirrored = g
                    for p in range(n_reflect):
                        d = points[i, p] - points[j, p]
                        g = fma(d, d, g)
                        d = points[i, p] + points[j, p]
                        mirrored = fma(d, d, mirrored)
                    if n_reflect > 0:
                        total = fma(0.5 * weights[i] * weights[j], sqrt(g) + sqrt(mirrored), total)
                    else:
                        total = fma(weights[i] * weights[j], sqrt(g), total)
                else:
                    for k in range(signs):
                        product, exponent = 1.0, 0.0
                        for d in range(n_dims):
                            s_i, s_j = points[i, n_dims + d], points[j, n_dims + d]
                            t = b2 / fma(s_j, s_j, fma(s_i, s_i, b2))
                            u = fma(2.0 * k - 1.0, points[j, d], points[i, d])
                            product *= t
                            exponent = fma(u * u, t * (-0.5 / b2), exponent)
                        w = -2.0 / signs * weights[i]
                        total = fma(w * weights[j], sqrt(product) * exp_neg(exponent), total)
            mass += weights[j]
            if mass_correction:
                moment = fma(weights[j], norm(points, j), moment)
        data[a, 0], data[a, 1], data[a, 2] = total, mass, moment


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def norm(points: Array, i: int) -> float:
    total = 0.0
    for p in range(points.shape[1]):
        total = fma(points[i, p], points[i, p], total)
    return sqrt(total)
