"""Compiled loops of the pairwise distances; `distances.py` explains the layout, `Lanes` the arrays.

Sums over components are chains of `fma` in a fixed order, so that vectors and remainders round alike; no fast-math but
in `_dot`, whose order is the machine code's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._checks import Array
from ._distance_tiles import WINDOW, call_tile
from ._jit import inlined, inner, loop, summing
from ._math import clamped, exp_neg, fma, lanes, sqrt, unsigned

ROWS = 64  # mixtures of a in a tile of pairs, of 135 kB in the 512 kB of L2
LEADING = WINDOW + 8  # row length of a tile: no power of two, or its columns would share cache sets
VECTOR = 4  # ranks are padded to this many lanes, so that the vectorised loops leave no remainder


class Side(NamedTuple):
    """The left-hand side."""

    offsets: Array  # (B + 1,) int64
    weights: Array  # (J,)
    points: Array  # (J, P)
    data: Array  # (B, 3 + F) self term, mass, moment, features
    n_reflect: int
    bandwidth: float


class Lanes(NamedTuple):
    """The right-hand side in the layout of `distances.py`; L ranks in V windows."""

    atoms: Array  # (L * (1 + P) * WINDOW,): weight, then point; padded with weight 0
    widths: Array  # (L,) lanes in use, a multiple of VECTOR
    starts: Array  # (V + 1,) ranks of a window
    lane: Array  # (V, WINDOW) of each mixture in its window
    data: Array  # (V, 3 + F, WINDOW) `Side.data` by lane


@loop
def fill_lanes(side: Side, lanes_b: Lanes) -> None:
    """Fill the arrays of `Lanes`, which come as zeros, given `starts`."""
    offsets, weights, points, data, _, _ = side
    atoms, widths, starts, lane, data_b = lanes_b
    n_mixtures, n = len(offsets) - 1, points.shape[1]
    for window in range(len(lane)):
        begin, end = window * WINDOW, min((window + 1) * WINDOW, n_mixtures)
        first = starts[window]
        larger = np.zeros(starts[window + 1] - first + 1, dtype=np.int64)  # mixtures with more components than k
        for b in range(begin, end):
            for k in range(offsets[b + 1] - offsets[b]):
                larger[k] += 1
        for k in range(len(larger) - 1):
            widths[first + k] = -(-larger[k] // VECTOR) * VECTOR
        for b in range(begin, end):
            size = offsets[b + 1] - offsets[b]
            l = larger[size]  # the first lane of a size; counted up, its next free one
            larger[size] += 1
            lane[window, b - begin] = l
            for f in range(data.shape[1]):
                data_b[window, f, l] = data[b, f]
            for k in range(size):
                q = (first + k) * (1 + n) * WINDOW + l
                atoms[q] = weights[offsets[b] + k]
                for p in range(n):
                    atoms[q + (1 + p) * WINDOW] = points[offsets[b] + k, p]


@inner
def _finish(data_a: Array, i_a: int, data_b: Array, window: int, width: int, total: Array) -> None:
    """Turn c(a, b) in `total` into the distance; `data_a`: self term, mass, moment, features of a."""
    self_a, mass_a, moment_a = data_a[i_a, 0], data_a[i_a, 1], data_a[i_a, 2]
    for l in lanes(width):
        e = total[l] - 0.5 * self_a - 0.5 * data_b[window, 0, l]
        e = fma(mass_a - data_b[window, 1, l], moment_a - data_b[window, 2, l], e)
        total[l] = clamped(e)
    for f in range(3, data_a.shape[1]):
        for l in lanes(width):
            total[l] += abs(data_a[i_a, f] - data_b[window, f, l])


@loop
def covariance(power: int, outputscale: float, rate: float, width: int, values: Array) -> None:
    """Distances to hyper-kernel in place: outputscale * exp(rate * E^(power/2)), rate < 0; power 0 leaves
    E."""
    if power == 1:
        for l in lanes(width):
            values[l] = outputscale * exp_neg(rate * sqrt(values[l]))
    elif power == 2:
        for l in lanes(width):
            values[l] = outputscale * exp_neg(rate * values[l])


@loop
def fill_pairs(
    start: int, stop: int, tile: int, rows: int, symmetric: bool, power: int, outputscale: float, rate: float,
    side: Side, lanes_b: Lanes, vectors: Array, out: Array,
) -> None:  # fmt: skip
    """Tiles [start, stop) of distances or covariances, each of `rows` mixtures of a by one window of b.

    They are `out`, or, where there are `vectors` (k, V, WINDOW), `out` (B_a, k) gets its products with these added:
    one function for both, since what it calls is compiled again with each that calls it. `tile` is an address.
    """
    offsets, weights, points, data, n_reflect, bandwidth = side
    atoms, widths, starts, lane, data_b = lanes_b
    n_a = len(offsets) - 1
    totals, u, v = np.empty((rows, LEADING)), np.empty(WINDOW), np.empty(WINDOW)
    for t in range(start, stop):
        row, window = t // len(lane), t % len(lane)
        base_a, base_b = row * rows, window * WINDOW
        if symmetric and base_a >= base_b + WINDOW:
            continue
        first, last = starts[window], starts[window + 1]
        n_rows, width = min(rows, n_a - base_a), widths[first]
        for r in range(n_rows):
            for l in range(width):
                totals[r, l] = 0.0
        # ranks are outermost in these, so that one stays in the L1 cache for all rows
        rank = (atoms, widths, first, last, offsets, weights, points, base_a, n_rows)
        call_tile(tile, (*rank, n_reflect, bandwidth, totals, u, v))
        for r in range(n_rows):
            _finish(data, base_a + r, data_b, window, width, totals[r])
            covariance(power, outputscale, rate, width, totals[r])
            for k in range(len(vectors)):
                out[base_a + r, k] += _dot(vectors, k, window, width, totals[r])
        if len(vectors) > 0:
            continue
        n_lanes = min(WINDOW, out.shape[1] - base_b)
        if symmetric:
            _mirror(totals, lane, window, base_a, n_rows, n_lanes, 0.0 if power == 0 else outputscale, out)
        else:
            begin = unsigned(base_b)
            for r in range(n_rows):
                for c in range(unsigned(n_lanes)):
                    out[base_a + r, begin + c] = totals[r, unsigned(lane[window, c])]


@summing
def _dot(vectors: Array, k: int, window: int, width: int, row: Array) -> float:
    """Sum over the lanes of one window; equal calls give equal bits."""
    total = 0.0
    for l in range(width):
        total += vectors[k, window, l] * row[l]
    return total


@inner
def _mirror(
    totals: Array, lane: Array, window: int, base_a: int, n_rows: int, n_columns: int, diagonal: float, out: Array,
) -> None:  # fmt: skip
    """Write the part of a tile above the diagonal of the symmetric `out`, its transpose and the diagonal."""
    base_b = window * WINDOW
    for r in range(n_rows):
        for c in range(max(0, base_a + r + 1 - base_b), n_columns):
            out[base_a + r, base_b + c] = totals[r, unsigned(lane[window, c])]
        if base_b <= base_a + r < base_b + n_columns:
            out[base_a + r, base_a + r] = diagonal
    for c in range(n_columns):
        l = unsigned(lane[window, c])
        for r in range(min(n_rows, base_b + c - base_a)):
            out[base_b + c, base_a + r] = totals[r, l]


@loop
def fill_self_terms(start: int, stop: int, side: Side, mass_correction: bool) -> None:
    """c(a, a), mass and first moment; every sum in the order of the tiles, so that they cancel exactly."""
    offsets, weights, points, data, n_reflect, bandwidth = side
    n = points.shape[1]
    n_dims = n // 2
    b2 = bandwidth * bandwidth
    signs = 2 if n_reflect > 0 else 1
    for a in range(start, stop):
        total, mass, moment = 0.0, 0.0, 0.0
        for j in range(offsets[a], offsets[a + 1]):
            for i in range(offsets[a], offsets[a + 1]):
                if bandwidth == 0.0:
                    if i == j and n_reflect == 0:
                        continue  # a distance of 0
                    if n_reflect > 0:
                        g = _chain(points, i, j, 1.0, n_dims, n, 0.0)
                        same = _chain(points, i, j, 1.0, 0, n_dims, g)
                        mirrored = _chain(points, i, j, -1.0, 0, n_dims, g)
                        total = fma(0.5 * weights[i] * weights[j], sqrt(same) + sqrt(mirrored), total)
                    else:
                        g = _chain(points, i, j, 1.0, n_dims, n, 0.0)
                        if n <= 10:
                            g += _chain(points, i, j, 1.0, 0, n_dims, 0.0)
                        else:
                            g = _chain(points, i, j, 1.0, 0, n_dims, g)
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


@inlined
def _chain(points: Array, i: int, j: int, sign: float, begin: int, end: int, s: float) -> float:
    """s + the squares of p_i - sign p_j in the coordinates [begin, end)."""
    for p in range(begin, end):
        d = points[i, p] - sign * points[j, p]
        s = fma(d, d, s)
    return s


@inner
def norm(points: Array, i: int) -> float:
    total = 0.0
    for p in range(points.shape[1]):
        total = fma(points[i, p], points[i, p], total)
    return sqrt(total)  # type: ignore[no-any-return]
