"""Compiled loops of sums of t densities at many draws; `_host_loops.py` calls them."""

from __future__ import annotations

import numpy as np

from ..._checks import Array
from ._jit import inlined, loop
from ._math import fma, lanes, sqrt

DRAWS = 256  # in a block: two rows of 2 kB for each coordinate, in the L2 cache up to d = 100


@loop
def fill_student_sums(
    start: int, stop: int, xi: Array, runs: Array, origins: Array, whitening: Array, centres: Array, constants: Array,
    twice: int, left_out: Array, out: Array,
) -> None:  # fmt: skip
    """Draws [start, stop) of `out`; every draw has one lane, so that its bits do not depend on its neighbours."""
    d = xi.shape[1]
    points, white = np.empty((d, DRAWS)), np.empty((d, DRAWS))
    base, power, total = np.empty(DRAWS), np.empty(DRAWS), np.empty(DRAWS)
    for first in range(start, stop, DRAWS):
        width = min(DRAWS, stop - first)
        total[:] = 0.0
        for r in range(len(runs) - 1):
            for i in range(d):
                for b in lanes(width):
                    points[i, b] = xi[first + b, i] - origins[r, i]
            for i in range(d):
                white[i, :] = 0.0
                _add_products(whitening, r, i, points, width, white)
            for k in range(runs[r], runs[r + 1]):
                base[:] = 1.0
                _add_squares(centres, k, white, width, base)
                _reciprocal_power(twice, width, base, power)
                if first <= left_out[k] < first + width:
                    power[left_out[k] - first] = 0.0
                c = constants[k]
                for b in lanes(width):
                    total[b] = fma(c, power[b], total[b])
        for b in lanes(width):
            out[first + b] = total[b]


@inlined
def _add_products(whitening: Array, r: int, i: int, points: Array, width: int, white: Array) -> None:
    """white[i, b] += sum over j <= i of W[i, j] points[j, b], four at a time."""
    n = i + 1
    for j in range(0, n - 3, 4):
        w0, w1, w2, w3 = whitening[r, i, j], whitening[r, i, j + 1], whitening[r, i, j + 2], whitening[r, i, j + 3]
        for b in lanes(width):
            s = fma(w1, points[j + 1, b], fma(w0, points[j, b], white[i, b]))
            white[i, b] = fma(w3, points[j + 3, b], fma(w2, points[j + 2, b], s))
    for j in range(n - n % 4, n):
        w0 = whitening[r, i, j]
        for b in lanes(width):
            white[i, b] = fma(w0, points[j, b], white[i, b])


@inlined
def _add_squares(centres: Array, k: int, white: Array, width: int, base: Array) -> None:
    """base[b] += |white[:, b] - centres[k]|^2, four coordinates at a time."""
    d = white.shape[0]
    for i in range(0, d - 3, 4):
        c0, c1, c2, c3 = centres[k, i], centres[k, i + 1], centres[k, i + 2], centres[k, i + 3]
        for b in lanes(width):
            d0, d1, d2, d3 = white[i, b] - c0, white[i + 1, b] - c1, white[i + 2, b] - c2, white[i + 3, b] - c3
            base[b] = fma(d3, d3, fma(d2, d2, fma(d1, d1, fma(d0, d0, base[b]))))
    for i in range(d - d % 4, d):
        c0 = centres[k, i]
        for b in lanes(width):
            d0 = white[i, b] - c0
            base[b] = fma(d0, d0, base[b])


@inlined
def _reciprocal_power(twice: int, width: int, base: Array, power: Array) -> None:
    """power[b] = base[b] ** (-twice / 2) by squares, without a logarithm; `base` is overwritten."""
    for b in lanes(width):
        base[b] = 1.0 / base[b]
        power[b] = sqrt(base[b]) if twice % 2 else 1.0
    n = twice // 2
    while n > 0:
        odd = n % 2 == 1
        for b in lanes(width):
            if odd:
                power[b] *= base[b]
            base[b] *= base[b]
        n //= 2
