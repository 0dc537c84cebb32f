"""Compiled loops of Gram matrices; `gram.py` explains the phases."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numba import types

from ..._checks import Array
from ._addresses import by_address
from ._arguments import GramEntries, Mixtures, Points, f1, f2, i8
from ._jit import inlined, inner, loop
from ._lapack import addresses
from ._math import cos_sin_turns, exp_neg, fma, lanes

TILE = 256  # columns at a time: lags, sines and cosines of a tile stay in L1
LANES = 16  # widths are rounded up to whole vectors: scalar remainders cost more than the extra columns
ROWS = 64  # rows of an item where the rows of one matrix are shared among threads
SPLIT_SIZE = 512  # points from which sharing one matrix among threads pays
_ROUNDING = 6755399441055744.0  # 1.5 * 2**52: adding and subtracting it rounds to an integer
_STEEPEST = -1e300  # bound of an envelope's rate, so that rate * 0 stays 0 for any scale


@inner
def fill_tables(
    first: int, n: int, means: Array, high: Array, low: Array, n_phases: int, cosines: Array, sines: Array
) -> None:
    """cos and sin of the phases of components ``first : first + n`` at points ``high + low`` (D, N).

    Row ``q * n_phases + p`` of `cosines` and `sines` (n * n_phases, >= N) belongs to phase p of component q.
    """
    n_dims, n_points = high.shape
    for q in range(n):
        for p in range(n_phases):
            turns = sines[q * n_phases + p]
            cosine = cosines[q * n_phases + p]
            for i in range(n_points):
                turns[i] = 0.0
            for d in range(0 if n_phases == 1 else p, n_dims if n_phases == 1 else p + 1):
                m = means[first + q, d]
                for i in range(n_points):
                    product = m * high[d, i]
                    rest = fma(m, high[d, i], -product) + m * low[d, i]
                    whole = (product + _ROUNDING) - _ROUNDING
                    turns[i] += (product - whole) + rest
            for i in range(n_points):
                c, s = cos_sin_turns(turns[i])
                cosine[i] = c
                turns[i] = s


@inlined
def fill_rates(first: int, n: int, scales: Array, rates: Array) -> None:
    """-2 pi^2 sigma^2 of components ``first : first + n`` into `rates` (n, D)."""
    for q in range(n):
        for d in range(scales.shape[1]):
            s = scales[first + q, d]
            rates[q, d] = max(-2.0 * math.pi**2 * s * s, _STEEPEST)


@inlined
def load_tile(start: int, width: int, x: Array, cosines: Array, sines: Array, n_rows: int, tile: Array) -> None:
    """Copy points and tables of columns ``start : start + width`` to the rows of `tile`: x, cosines, sines.

    Loops over a tile run from 0 over one small array, the form LLVM vectorises without index checks.
    """
    n_dims = x.shape[0]
    for d in range(n_dims):
        for k in lanes(width):
            tile[d, k] = x[d, start + k]
    for r in range(n_rows):
        for k in lanes(width):
            tile[n_dims + r, k] = cosines[r, start + k]
            tile[n_dims + n_rows + r, k] = sines[r, start + k]


@inlined
def envelope_argument(q: int, width: int, rates: Array, squares: Array, argument: Array) -> None:
    """Sum over all axes of rate * lag^2 into `argument`."""
    rate = rates[q, 0]
    for k in lanes(width):
        argument[k] = rate * squares[0, k]
    for d in range(1, rates.shape[1]):
        rate = rates[q, d]
        for k in lanes(width):
            argument[k] = fma(rate, squares[d, k], argument[k])


@loop
def gram_rows(
    row_start: int,
    row_stop: int,
    triangle: int,
    n: int,
    first: int,
    weights: Array,
    rates: Array,
    x: Array,
    cos_x: Array,
    sin_x: Array,
    y: Array,
    cos_y: Array,
    sin_y: Array,
    n_phases: int,
    basis_x: Array,
    basis_y: Array,
    out: Array,
) -> None:
    """k(x_i - y_j), plus the product of the columns i and j of the bases, for rows i of ``row_start : row_stop`` into
    ``out[i, j]``.

    With `triangle` (1, else 0) only j < i. x (D, N) and y (D, M); tables as `fill_tables` made them; basis_x (q, N) and
    basis_y (q, M), q = 0 for none.
    """
    n_dims, n_columns = y.shape
    n_rows = n * n_phases
    tile = np.zeros((n_dims + 2 * n_rows, TILE))
    squares = np.empty((n_dims, TILE))
    argument = np.empty(TILE)
    wave = np.empty(TILE)
    total = np.empty(TILE)
    for start in range(0, row_stop - 1 if triangle else n_columns, TILE):
        load_tile(start, min(TILE, n_columns - start), y, cos_y, sin_y, n_rows, tile)
        for i in range(max(row_start, start + 1) if triangle else row_start, row_stop):
            width = min(TILE, (i if triangle else n_columns) - start)
            padded = (width + LANES - 1) // LANES * LANES
            for d in range(n_dims):
                x_i = x[d, i]
                for k in lanes(padded):
                    lag = x_i - tile[d, k]
                    squares[d, k] = lag * lag
            for k in lanes(padded):
                total[k] = 0.0
            for q in range(n):
                w = weights[first + q]
                row = q * n_phases
                c_i = cos_x[row, i]
                s_i = sin_x[row, i]
                cosines = tile[n_dims + row]
                sines = tile[n_dims + n_rows + row]
                envelope_argument(q, padded, rates, squares, argument)
                if n_phases == 1:
                    for k in lanes(padded):
                        value = fma(c_i, cosines[k], s_i * sines[k])
                        total[k] = fma(w * exp_neg(argument[k]), value, total[k])
                    continue
                for k in lanes(padded):
                    wave[k] = fma(c_i, cosines[k], s_i * sines[k])
                for r in range(row + 1, row + n_phases):
                    c_i = cos_x[r, i]
                    s_i = sin_x[r, i]
                    cosines = tile[n_dims + r]
                    sines = tile[n_dims + n_rows + r]
                    for k in lanes(padded):
                        wave[k] *= fma(c_i, cosines[k], s_i * sines[k])
                for k in lanes(padded):
                    total[k] = fma(w * exp_neg(argument[k]), wave[k], total[k])
            for c in range(basis_x.shape[0]):
                v_i = basis_x[c, i]
                functions = basis_y[c, start : start + width]
                for k in lanes(width):
                    total[k] = fma(v_i, functions[k], total[k])
            target = out[i, start : start + width]
            for k in lanes(width):
                target[k] = total[k]


fill_tables_address, call_tables = by_address(types.void(i8, i8, f2, f2, f2, i8, f2, f2), fill_tables)
gram_rows_address, call_rows = by_address(types.void(*[i8] * 5, f1, *[f2] * 7, i8, *[f2] * 3), gram_rows)


@cache
def gram_entries() -> GramEntries:
    """Addresses in this process, for likelihoods, predictions and Gram matrices."""
    return GramEntries(addresses(), fill_tables_address(), gram_rows_address())


@inlined
def total_weight(first: int, n: int, weights: Array) -> float:
    """k(0), summed in the order of the components."""
    total = 0.0
    for q in range(first, first + n):
        total += weights[q]
    return total


@inlined
def mirror(matrix: Array) -> None:
    """Copy the lower triangle to the upper one, in squares that stay in cache."""
    size = matrix.shape[0]
    for i0 in range(0, size, 32):
        for j0 in range(0, i0 + 1, 32):
            for i in range(i0, min(i0 + 32, size)):
                for j in range(j0, min(j0 + 32, i)):
                    matrix[j, i] = matrix[i, j]


@loop
def gram_items(
    start: int,
    stop: int,
    rows: int,
    entries: GramEntries,
    mixtures: Mixtures,
    points: Points,
    others: Points,
    triangle: int,
    n_phases: int,
    no_basis: Array,
    out: Array,
) -> None:
    """Items ``start : stop``: blocks of `rows` rows of the matrices, numbered through the batch."""
    offsets, weights, means, scales = mixtures
    n_points, n_columns = points.x.shape[1], others.x.shape[1]
    per_matrix = (n_points + rows - 1) // rows
    n_max = 0
    for item in range(start, stop):
        b = item // per_matrix
        n_max = max(n_max, offsets[b + 1] - offsets[b])
    rates = np.empty((n_max, points.x.shape[0]))
    cos_x = np.empty((n_max * n_phases, n_points))
    sin_x = np.empty((n_max * n_phases, n_points))
    cos_y, sin_y = cos_x, sin_x
    if not triangle:
        cos_y = np.empty((n_max * n_phases, n_columns))
        sin_y = np.empty((n_max * n_phases, n_columns))
    loaded = -1
    for item in range(start, stop):
        b = item // per_matrix
        first = offsets[b]
        n = offsets[b + 1] - first
        if b != loaded:
            fill_rates(first, n, scales, rates)
            call_tables(entries.fill_tables, (first, n, means, points.high, points.low, n_phases, cos_x, sin_x))
            if not triangle:
                call_tables(entries.fill_tables, (first, n, means, others.high, others.low, n_phases, cos_y, sin_y))
            loaded = b
        i0 = (item - b * per_matrix) * rows
        i1 = min(i0 + rows, n_points)
        sides = (weights, rates, points.x, cos_x, sin_x, others.x, cos_y, sin_y)
        call_rows(entries.gram_rows, (i0, i1, triangle, n, first, *sides, n_phases, no_basis, no_basis, out[b]))


@loop
def finish_triangles(start: int, stop: int, offsets: Array, weights: Array, noise: Array, out: Array) -> None:
    """Diagonals, exactly sum w + noise, and upper triangles of the matrices ``start : stop``."""
    for b in range(start, stop):
        diagonal = total_weight(offsets[b], offsets[b + 1] - offsets[b], weights)
        for i in range(out.shape[1]):
            out[b, i, i] = diagonal + noise_at(noise, b, i)
        mirror(out[b])


@inlined
def noise_at(noise: Array, b: int, i: int) -> float:
    """Entry (b, i) of a noise table whose axes have their full length or 1."""
    return noise[b if noise.shape[0] > 1 else 0, i if noise.shape[1] > 1 else 0]  # type: ignore[no-any-return]
