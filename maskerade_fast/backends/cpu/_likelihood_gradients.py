"""Gradient of a log-likelihood, from the factor, by blocks of columns of the inverse covariance.

    dL/dp = sum_ij G_ij dC_ij/dp,   G = (alpha alpha' - C^-1) / 2

The inverse never exists whole: for each block of its columns two triangular solves give the rows below the block (the
others follow from symmetry), 2/3 N^3 operations in total, and one pass over them rebuilds dC by angle addition.
Blocks are fixed and their sums are added in order, so the bits depend neither on threads nor on how a batch is cut.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from ..._checks import Array
from ._addresses import by_address
from ._arguments import MIXTURES, WORKSPACE, Mixtures, Workspace, f1, f2, f3, i1, i8
from ._gram_loops import LANES, TILE, envelope_argument, load_tile
from ._jit import inner
from ._lapack import solve_rows
from ._math import dot, exp_neg, fma, sum_of

BLOCK = 64  # columns of C^-1 at a time: narrower slows dtrsm, wider wastes memory


@inner
def gradient_block(
    block: int, blas: Array, n: int, x: Array, n_phases: int, work: Workspace, sums: Array, diagonal: Array
) -> None:
    """Share of one block of columns of C^-1 in the gradient of one mixture.

    ``sums[block, q]`` receives, over the pairs a < b with a in the block, with 2 G_ab = alpha_a alpha_b -
    C^-1_ab and the lag t = x_a - x_b, the sums of 2 G exp cos, of 2 G exp sin t_d and of 2 G exp cos t_d^2;
    `diagonal` G_aa.
    """
    factor, rates, cosines, sines, alpha = work
    n_dims, n_points = x.shape
    n_rows = n * n_phases
    first_row = block * BLOCK
    height = min(BLOCK, n_points - first_row)
    length = n_points - first_row
    inverse = np.zeros((height, length))  # row r: column first_row + r of C^-1, from row first_row down
    for r in range(height):
        inverse[r, r] = 1.0
    corner = factor[first_row:, first_row:].ctypes.data
    solve_rows(blas, False, length, height, corner, n_points, inverse.ctypes.data, length)
    solve_rows(blas, True, length, height, corner, n_points, inverse.ctypes.data, length)
    for r in range(height):
        diagonal[first_row + r] = 0.5 * (alpha[first_row + r] * alpha[first_row + r] - inverse[r, r])

    tile = np.zeros((n_dims + 2 * n_rows, TILE))
    lags = np.empty((n_dims, TILE))
    squares = np.empty((n_dims, TILE))
    waves = np.empty((n_phases, TILE))
    slopes = np.empty((n_phases, TILE))
    argument = np.empty(TILE)
    product = np.empty(TILE)
    twice_g = np.empty(TILE)
    for q in range(n):
        for c in range(1 + 2 * n_dims):
            sums[block, q, c] = 0.0
    for start in range(first_row, n_points, TILE):
        tile_width = min(TILE, n_points - start)
        width = (tile_width + LANES - 1) // LANES * LANES
        load_tile(start, tile_width, x, cosines, sines, n_rows, tile)
        for r in range(height):
            a = first_row + r
            begin = max(a + 1 - start, 0)
            for k in range(width):
                twice_g[k] = 0.0  # also before the diagonal and beyond the end: those columns add nothing
            alpha_a = alpha[a]
            for k in range(begin, tile_width):
                twice_g[k] = alpha_a * alpha[start + k] - inverse[r, start - first_row + k]
            for d in range(n_dims):
                x_a = x[d, a]
                for k in range(width):
                    lag = x_a - tile[d, k]
                    lags[d, k] = lag
                    squares[d, k] = lag * lag
            for q in range(n):
                row = q * n_phases
                envelope_argument(q, width, rates, squares, argument)
                for p in range(n_phases):
                    c_a = cosines[row + p, a]
                    s_a = sines[row + p, a]
                    c_b = tile[n_dims + row + p]
                    s_b = tile[n_dims + n_rows + row + p]
                    for k in range(width):
                        waves[p, k] = fma(c_a, c_b[k], s_a * s_b[k])
                        slopes[p, k] = fma(s_a, c_b[k], -c_a * s_b[k])
                if n_phases > 1:  # the product of all waves, and each slope times the other axes' waves
                    for k in range(width):
                        product[k] = 1.0
                    for p in range(n_phases):
                        for k in range(width):
                            slopes[p, k] *= product[k]
                            product[k] *= waves[p, k]
                    for k in range(width):
                        product[k] = 1.0
                    for p in range(n_phases - 1, -1, -1):
                        for k in range(width):
                            slopes[p, k] *= product[k]
                            product[k] *= waves[p, k]
                    for k in range(width):
                        waves[0, k] = product[k]
                for k in range(width):
                    weight = twice_g[k] * exp_neg(argument[k])
                    argument[k] = weight
                    waves[0, k] *= weight
                for p in range(n_phases):
                    for k in range(width):
                        slopes[p, k] *= argument[k]
                sums[block, q, 0] += sum_of(waves[0], width)
                for d in range(n_dims):
                    sums[block, q, 1 + d] += dot(slopes[d if n_phases > 1 else 0], lags[d], width)
                    sums[block, q, 1 + n_dims + d] += dot(waves[0], squares[d], width)


@inner
def finish_gradient(
    b: int,
    info: int,
    mixtures: Mixtures,
    sums: Array,
    diagonal: Array,
    d_weights: Array,
    d_means: Array,
    d_scales: Array,
    d_noise: Array,
) -> None:
    """Add the blocks' sums in order, with the factors of mathematics.md section 1; NaN where `info` says so."""
    offsets, weights, _, scales = mixtures
    n_dims = scales.shape[1]
    trace = 0.0
    for i in range(len(diagonal)):
        trace += diagonal[i]
    if info != 0:
        trace = math.nan
    if d_noise.shape[1] > 1:
        for i in range(len(diagonal)):
            d_noise[b, i] = diagonal[i] if info == 0 else math.nan
    else:
        d_noise[b, 0] = trace
    for q in range(offsets[b + 1] - offsets[b]):
        j = offsets[b] + q
        for c in range(1 + 2 * n_dims):
            total = 0.0 if info == 0 else math.nan
            for block in range(sums.shape[0]):
                total += sums[block, q, c]
            if c == 0:
                d_weights[j] = total + trace
            elif c <= n_dims:
                d_means[j, c - 1] = -2.0 * math.pi * weights[j] * total
            else:
                d = c - 1 - n_dims
                d_scales[j, d] = -4.0 * math.pi**2 * weights[j] * scales[j, d] * total


gradient_address, call_gradient_block = by_address(types.void(i8, i1, i8, f2, i8, WORKSPACE, f3, f1), gradient_block)
finish_address, call_finish = by_address(types.void(i8, i8, MIXTURES, f3, f1, f1, f2, f2, f2), finish_gradient)
