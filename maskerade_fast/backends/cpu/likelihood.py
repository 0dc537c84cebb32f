"""Log-likelihoods of a batch of mixtures, with gradients: Gram, factor and value fused, matrix by matrix.

A worker owns one N x N buffer and goes through the batch: Gram triangle, dpotrf in place, triangular solve,
value. With gradients the inverse never exists whole. For each block of columns of C^-1 two triangular solves
give the rows below the block, which is all that symmetry leaves to know, 2/3 N^3 operations in total; a pass
over them takes

    dL/dp = sum_ij G_ij dC_ij/dp,   G = (alpha alpha' - C^-1) / 2

with C rebuilt by angle addition. All blocks are fixed and their sums are added in a fixed order, so the bits
depend neither on the number of threads nor on how a batch is cut.

From `TILED_SIZE` points the factorisation itself is shared among threads: a left-looking Cholesky over fixed
square tiles, each computed by one BLAS thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..._memory import workers_that_fit
from ._lapack import addresses, potrf, solve_rows, solve_vector, subtract_product, subtract_squares
from ._math import exp_neg, fma
from ._parallel import n_threads, parallel_for, single_threaded_blas
from .gram import (
    LANES,
    ROWS,
    SPLIT_SIZE,
    TILE,
    envelope_argument,
    fill_rates,
    fill_tables,
    gram_rows,
    load_tile,
    native,
    noise_at,
    points_by_axis,
    total_weight,
)

__all__ = ["cholesky", "log_likelihood"]

Array = NDArray[Any]

BLOCK = 64  # columns of C^-1 at a time: narrower slows dtrsm, wider wastes memory
TILED_SIZE = 2048  # points from which one factorisation is shared among threads
FACTOR_TILE = 256
RETRIES = 3  # diagonal shifts tried: 1e-4, 1e-2 and 1 times the largest allowed
_EPS = 2.220446049250313e-16


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def set_diagonal(b: int, k0: float, shift: float, noise: Array, matrix: Array) -> float:
    """Write the diagonal of C_b, k(0) + noise + shift; returns its largest entry."""
    largest = -math.inf
    for i in range(matrix.shape[0]):
        value = k0 + noise_at(noise, b, i) + shift
        matrix[i, i] = value
        largest = max(largest, value)
    return largest


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def diagonal_of(b: int, offsets: Array, weights: Array, noise: Array, n_points: int) -> tuple[float, float]:
    """k(0) of mixture b, and the mean over the points of k(0) + noise."""
    k0 = total_weight(offsets[b], offsets[b + 1] - offsets[b], weights)
    total = 0.0
    for i in range(n_points):
        total += noise_at(noise, b, i)
    return k0, k0 + total / n_points


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def first_bad_pivot(factor: Array, largest: float, lapack_info: int) -> int:
    """First k whose pivot is at most N eps `largest`, or not finite; else `lapack_info`, 0 for success."""
    n = factor.shape[0]
    bound = n * _EPS * largest
    for k in range(lapack_info - 1 if lapack_info > 0 else n):
        pivot = factor[k, k] * factor[k, k]
        if not bound < pivot < math.inf:  # also true for NaN
            return k + 1
    return lapack_info


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def shift_of(attempt: int, jitter: float, mean_diagonal: float) -> float:
    """Diagonal shift of attempt 0, 1, 2, 3: none, then 1e-4, 1e-2 and 1 times the largest allowed."""
    if attempt == 0:
        return 0.0
    return jitter * mean_diagonal * (1e-4 if attempt == 1 else 1e-2 if attempt == 2 else 1.0)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def factor_once(b: int, k0: float, shift: float, noise: Array, blas: Array, matrix: Array) -> int:
    """Set the diagonal of the Gram triangle in `matrix` and factor it in place; returns info."""
    n = matrix.shape[0]
    largest = set_diagonal(b, k0, shift, noise, matrix)
    return first_bad_pivot(matrix, largest, potrf(blas, n, matrix.ctypes.data, n))  # type: ignore[no-any-return]


@njit(inline="always")  # type: ignore[untyped-decorator]
def factor_mixture(
    b: int,
    blas: Array,
    offsets: Array,
    weights: Array,
    x: Array,
    noise: Array,
    jitter: float,
    n_phases: int,
    rates: Array,
    cosines: Array,
    sines: Array,
    matrix: Array,
) -> tuple[int, float]:
    """Cholesky factor of C_b in the lower triangle of `matrix`; returns info and the shift it took."""
    n_points = x.shape[1]
    first = offsets[b]
    n = offsets[b + 1] - first
    k0, mean_diagonal = diagonal_of(b, offsets, weights, noise, n_points)
    code, used = 0, 0.0
    for attempt in range(RETRIES + 1):
        used = shift_of(attempt, jitter, mean_diagonal)
        gram_rows(
            np.int64(0),
            n_points,
            np.int64(1),
            n,
            first,
            weights,
            rates,
            x,
            cosines,
            sines,
            x,
            cosines,
            sines,
            n_phases,
            matrix,
        )
        code = factor_once(b, k0, used, noise, blas, matrix)
        if code == 0 or jitter == 0.0:
            break
    if code != 0:
        used = 0.0
    return code, used


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def whitened(blas: Array, factor: Array, y: Array, z: Array) -> None:
    """z = L^-1 y."""
    n = len(y)
    for i in range(n):
        z[i] = y[i]
    solve_vector(blas, False, n, factor.ctypes.data, n, z.ctypes.data)


@njit(inline="always")  # type: ignore[untyped-decorator]
def value_of(blas: Array, factor: Array, y: Array, z: Array) -> float:
    """Log-likelihood from the factor; z = L^-1 y."""
    n = len(y)
    whitened(blas, factor, y, z)
    square, log_diagonal = 0.0, 0.0
    for i in range(n):
        square += z[i] * z[i]
        log_diagonal += math.log(factor[i, i])
    return -0.5 * square - log_diagonal - 0.5 * n * math.log(2.0 * math.pi)


# Sums may be taken in any order, so that they vectorise. NaN and infinity keep their meaning, and the order
# is the machine code's: equal calls give equal bits.
@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator]
def sum_of(values: Array, width: int) -> float:
    """Sum of ``values[:width]``."""
    total = 0.0
    for k in range(width):
        total += values[k]
    return total


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator]
def dot(left: Array, right: Array, width: int) -> float:
    """Sum of ``left[:width] * right[:width]``."""
    total = 0.0
    for k in range(width):
        total += left[k] * right[k]
    return total


@njit(inline="always")  # type: ignore[untyped-decorator]
def gradient_block(
    block: int,
    blas: Array,
    factor: Array,
    alpha: Array,
    n: int,
    rates: Array,
    x: Array,
    cosines: Array,
    sines: Array,
    n_phases: int,
    sums: Array,
    diagonal: Array,
) -> None:
    """Share of one block of columns of C^-1 in the gradient of one mixture.

    ``sums[block, q]`` receives, over the pairs a < b with a in the block, with 2 G_ab = alpha_a alpha_b -
    C^-1_ab and the lag t = x_a - x_b, the sums of 2 G exp cos, of 2 G exp sin t_d and of 2 G exp cos t_d^2;
    `diagonal` G_aa.
    """
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


@njit(inline="always")  # type: ignore[untyped-decorator]
def finish_gradient(
    b: int,
    info: int,
    offsets: Array,
    weights: Array,
    scales: Array,
    sums: Array,
    diagonal: Array,
    d_weights: Array,
    d_means: Array,
    d_scales: Array,
    d_noise: Array,
) -> None:
    """Add the blocks' sums in order and put in the factors of MATH.md section 1; NaN where `info` says so."""
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


@njit(inline="always")  # type: ignore[untyped-decorator]
def prepare_mixture(
    b: int,
    offsets: Array,
    means: Array,
    scales: Array,
    high: Array,
    low: Array,
    n_phases: int,
    rates: Array,
    cosines: Array,
    sines: Array,
) -> None:
    """Rates and tables of mixture b."""
    first = offsets[b]
    n = offsets[b + 1] - first
    fill_rates(first, n, scales, rates)
    fill_tables(first, n, means, high, low, n_phases, cosines, sines)


FACTOR_STAGE, VALUE_STAGE, ALPHA_STAGE, BLOCKS_STAGE, FINISH_STAGE = 1, 2, 4, 8, 16


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _likelihoods(
    start: int,
    stop: int,
    stages: int,
    part_start: int,
    part_stop: int,
    blas: Array,
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    x: Array,
    high: Array,
    low: Array,
    y: Array,
    noise: Array,
    jitter: float,
    n_phases: int,
    matrix: Array,
    rates: Array,
    cosines: Array,
    sines: Array,
    alpha: Array,
    sums: Array,
    diagonal: Array,
    value: Array,
    info: Array,
    shift: Array,
    d_weights: Array,
    d_means: Array,
    d_scales: Array,
    d_noise: Array,
) -> None:
    """Mixtures ``start : stop``, one after another on this thread, or one stage of one mixture.

    One entry for all stages: each entry would compile everything below it again. `part_start` and `part_stop`
    bound the blocks of the gradient.
    """
    for b in range(start, stop):
        n = offsets[b + 1] - offsets[b]
        if stages & FACTOR_STAGE:
            prepare_mixture(b, offsets, means, scales, high, low, n_phases, rates, cosines, sines)
            code, used = factor_mixture(
                b, blas, offsets, weights, x, noise, jitter, n_phases, rates, cosines, sines, matrix
            )
            info[b] = code
            shift[b] = used
        if stages & VALUE_STAGE:
            value[b] = -math.inf
            if info[b] == 0:
                value[b] = value_of(blas, matrix, y, alpha)
        if stages & ALPHA_STAGE and info[b] == 0:
            solve_vector(blas, True, len(y), matrix.ctypes.data, len(y), alpha.ctypes.data)
        if stages & BLOCKS_STAGE and info[b] == 0:
            for block in range(part_start, part_stop):
                gradient_block(block, blas, matrix, alpha, n, rates, x, cosines, sines, n_phases, sums, diagonal)
        if stages & FINISH_STAGE:
            finish_gradient(b, info[b], offsets, weights, scales, sums, diagonal, d_weights, d_means, d_scales, d_noise)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _prepare(
    b: int,
    offsets: Array,
    means: Array,
    scales: Array,
    high: Array,
    low: Array,
    n_phases: int,
    rates: Array,
    cosines: Array,
    sines: Array,
) -> None:
    """`prepare_mixture` for callers in Python."""
    prepare_mixture(b, offsets, means, scales, high, low, n_phases, rates, cosines, sines)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _update_tile(row: int, column: int, blas: Array, matrix: Array) -> int:
    """Subtract from tile (row, column) what the columns before it explain; factor a diagonal tile."""
    n = matrix.shape[0]
    i, j = row * FACTOR_TILE, column * FACTOR_TILE
    height, width = min(FACTOR_TILE, n - i), min(FACTOR_TILE, n - j)
    out = matrix[i:, j:].ctypes.data
    if row > column:
        if j > 0:
            left, right = matrix[i:].ctypes.data, matrix[j:].ctypes.data
            subtract_product(blas, height, width, j, left, right, n, out, n)
        return 0
    if j > 0:
        subtract_squares(blas, width, j, matrix[j:].ctypes.data, n, out, n)
    return potrf(blas, width, out, n)  # type: ignore[no-any-return]


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _solve_tile(row: int, column: int, blas: Array, matrix: Array) -> None:
    """Tile (row, column) of the factor from its updated entries and the factored diagonal tile."""
    n = matrix.shape[0]
    i, j = row * FACTOR_TILE, column * FACTOR_TILE
    corner, rows = matrix[j:, j:].ctypes.data, matrix[i:, j:].ctypes.data
    solve_rows(blas, False, min(FACTOR_TILE, n - j), min(FACTOR_TILE, n - i), corner, n, rows, n)


def tiled_potrf(blas: Array, matrix: Array, threads: int) -> int:
    """Cholesky factor of the lower triangle in place on many threads; equal bits for any number of them."""
    n_tiles = -(-len(matrix) // FACTOR_TILE)
    for column in range(n_tiles):
        infos = [0] * n_tiles

        def update(row: int, stop: int, column: int = column, infos: list[int] = infos) -> None:
            infos[column + row] = _update_tile(column + row, column, blas, matrix)

        parallel_for(update, n_tiles - column, 1, threads=threads)
        if infos[column]:
            return column * FACTOR_TILE + infos[column]

        def solve(row: int, stop: int, column: int = column) -> None:
            _solve_tile(column + 1 + row, column, blas, matrix)

        parallel_for(solve, n_tiles - column - 1, 1, threads=threads)
    return 0


class Workspace:
    """Buffers of one worker: the matrix and the tables of the mixture in hand."""

    def __init__(self, n_max: int, n_points: int, n_dims: int, n_phases: int) -> None:
        self.matrix = np.empty((n_points, n_points))
        self.rates = np.empty((n_max, n_dims))
        self.cosines = np.empty((n_max * n_phases, n_points))
        self.sines = np.empty((n_max * n_phases, n_points))
        self.alpha = np.empty(n_points)
        self.sums = np.empty((-(-n_points // BLOCK), n_max, 1 + 2 * n_dims))
        self.diagonal = np.empty(n_points)

    @staticmethod
    def bytes(n_max: int, n_points: int, n_dims: int, n_phases: int, rows: int) -> int:
        """Size, with `rows` further rows of a matrix for the blocks in work."""
        return 8 * n_points * (n_points + 2 * n_max * n_phases + 2 + rows) + 16 * n_max * n_dims * (
            1 + n_points // BLOCK
        )


def factor_shared(
    b: int,
    blas: Array,
    mixtures: tuple[Array, Array, Array, Array],
    points: tuple[Array, Array, Array],
    noise: Array,
    jitter: float,
    n_phases: int,
    work: Workspace,
    threads: int,
) -> tuple[int, float]:
    """Prepare and factor one mixture with all threads; the bits of `factor_mixture` below `TILED_SIZE`."""
    offsets, weights, means, scales = mixtures
    x = points[0]
    n_points = x.shape[1]
    tables = (work.cosines, work.sines)
    first, n = int(offsets[b]), int(offsets[b + 1] - offsets[b])
    _prepare(b, offsets, means, scales, *points[1:], n_phases, work.rates, *tables)
    k0, mean_diagonal = diagonal_of(b, offsets, weights, noise, n_points)

    def rows(start: int, stop: int) -> None:
        mixture = (n, first, weights, work.rates)
        gram_rows(start, stop, 1, *mixture, x, *tables, x, *tables, n_phases, work.matrix)

    info, shift = 0, 0.0
    for attempt in range(RETRIES + 1):
        shift = shift_of(attempt, jitter, mean_diagonal)
        parallel_for(rows, n_points, ROWS, threads=threads)
        if n_points < TILED_SIZE:
            info = factor_once(b, k0, shift, noise, blas, work.matrix)
        else:
            largest = set_diagonal(b, k0, shift, noise, work.matrix)
            info = first_bad_pivot(work.matrix, largest, tiled_potrf(blas, work.matrix, threads))
        if info == 0 or jitter == 0.0:
            break
    return info, shift if info == 0 else 0.0


def log_likelihood(
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    X: Array,
    y: Array,
    noise: Array,
    *,
    per_axis: bool,
    jitter: float,
    grad: bool,
    max_bytes: int | None,
) -> tuple[Array, Array, Array, list[Array] | None]:
    """Log-likelihoods of a batch and their gradients, in float64 and returned in the inputs' type.

    Parameters
    ----------
    offsets, weights, means, scales : arrays of a GMMBatch: (B + 1,), (J,), (J, D), (J, D)
    X, y : arrays, shape (N, D) and (N,); N >= 1
    noise : array, shape (B or 1, N or 1)
    per_axis : bool
        Product over axes of cosines in place of the cosine of the sum.
    jitter : float
        Largest diagonal shift allowed, as a fraction of the mean diagonal; 0: none is tried.
    grad : bool
    max_bytes : int or None
        Bound on the working memory of all workers together.

    Returns
    -------
    value (B,), info (B,) int32, shift (B,) : arrays
    gradients : None, or a list of d weights (J,), d means (J, D), d scales (J, D), d noise (B, 1 or N)

    Raises
    ------
    MemoryError
        If one worker needs more than `max_bytes`.
    """
    n_mixtures, (n_points, n_dims) = len(offsets) - 1, X.shape
    dtype = np.result_type(weights, X, y)
    value = np.empty(n_mixtures)
    info = np.zeros(n_mixtures, dtype=np.int32)
    shift = np.zeros(n_mixtures)
    shapes = [weights.shape, means.shape, scales.shape, (n_mixtures, noise.shape[1])]
    gradients = [np.zeros(shape if grad else (0,) * len(shape)) for shape in shapes]

    def result() -> tuple[Array, Array, Array, list[Array] | None]:
        cast = [a.astype(dtype, copy=False) for a in (value, shift, *gradients)]
        return cast[0], info, cast[1], cast[2:] if grad else None

    if n_mixtures == 0:
        return result()
    points = points_by_axis(X, X[0])
    mixtures = (offsets, native(weights), native(means), native(scales))
    targets, noise = native(y), native(noise)
    n_phases = n_dims if per_axis else 1
    blas = addresses()
    sizes = (int(np.diff(offsets).max()), n_points, n_dims, n_phases)
    threads = n_threads()
    sharing = share_matrices(n_mixtures, n_points, threads)
    wanted = 1 if sharing else min(threads, n_mixtures)
    rows = (BLOCK if grad else 0) * (threads if sharing else 1)  # columns of the inverse in work
    what = f"working memory for one matrix of {n_points} points"
    workers = workers_that_fit(wanted, Workspace.bytes(*sizes, rows), max_bytes, what)
    spaces = [Workspace(*sizes) for _ in range(workers)]

    outputs = (value, info, shift, *gradients)
    n_blocks = len(spaces[0].sums)

    def run(w: Workspace, start: int, stop: int, stages: int, part_start: int, part_stop: int) -> None:
        problem = (blas, *mixtures, *points, targets, noise, jitter, n_phases)
        buffers = (w.matrix, w.rates, w.cosines, w.sines, w.alpha, w.sums, w.diagonal)
        _likelihoods(start, stop, stages, part_start, part_stop, *problem, *buffers, *outputs)

    def across(start: int, stop: int) -> None:
        w = spaces.pop()  # one worker, one workspace; lists are thread-safe
        try:
            run(w, start, stop, stages, 0, n_blocks)
        finally:
            spaces.append(w)

    def shared(b: int) -> None:
        w = spaces[0]
        info[b], shift[b] = factor_shared(b, blas, mixtures, points, noise, jitter, n_phases, w, threads)
        run(w, b, b + 1, stages & (VALUE_STAGE | ALPHA_STAGE), 0, 0)
        if grad:
            parallel_for(lambda i, j: run(w, b, b + 1, BLOCKS_STAGE, i, j), n_blocks, 1, threads=threads)
            run(w, b, b + 1, FINISH_STAGE, 0, 0)

    stages = FACTOR_STAGE | VALUE_STAGE | (ALPHA_STAGE | BLOCKS_STAGE | FINISH_STAGE if grad else 0)
    with single_threaded_blas():
        if sharing:
            for b in range(n_mixtures):
                shared(b)
        else:
            parallel_for(across, n_mixtures, max(1, n_mixtures // (16 * workers)), threads=workers)
    return result()


def share_matrices(n_mixtures: int, n_points: int, threads: int) -> bool:
    """Whether the threads work together on one matrix after another, rather than each on its own."""
    return n_points >= TILED_SIZE or (n_mixtures < threads and n_points >= SPLIT_SIZE)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _cholesky(
    start: int, stop: int, blas: Array, matrices: Array, jitter: float, out: Array, info: Array, shift: Array
) -> None:
    """Factors of the matrices ``start : stop``."""
    n = matrices.shape[1]
    for b in range(start, stop):
        mean_diagonal = 0.0
        for i in range(n):
            mean_diagonal += matrices[b, i, i] / n
        for attempt in range(RETRIES + 1):
            shift[b] = shift_of(attempt, jitter, mean_diagonal)
            largest = -math.inf
            for i in range(n):
                for j in range(n):
                    out[b, i, j] = matrices[b, i, j] if j <= i else 0.0
                out[b, i, i] += shift[b]
                largest = max(largest, out[b, i, i])
            info[b] = first_bad_pivot(out[b], largest, potrf(blas, n, out[b].ctypes.data, n))
            if info[b] == 0 or jitter == 0.0:
                break
        if info[b] != 0:
            shift[b] = 0.0
            for i in range(n):
                for j in range(i + 1):
                    out[b, i, j] = math.nan


def cholesky(matrices: Array, jitter: float = 0.0) -> tuple[Array, Array, Array]:
    """Lower Cholesky factors of a batch, with the failure and jitter rules of `log_likelihood`.

    Parameters
    ----------
    matrices : array, shape (B, N, N)
        Symmetric; the lower triangles are read and nothing is written.
    jitter : float
        Largest diagonal shift allowed, as a fraction of the mean diagonal; 0: none is tried.

    Returns
    -------
    L : array, shape (B, N, N)
        NaN in the lower triangle of a matrix whose `info` is not 0.
    info : array of int32, shape (B,)
        0, or the first k whose pivot is at most N eps max diag, or not finite.
    shift : array, shape (B,)
        Diagonal shift of each factor.
    """
    given = native(matrices)
    out = np.empty_like(given)
    info = np.zeros(len(given), dtype=np.int32)
    shift = np.zeros(len(given))
    blas = addresses()
    if given.size:
        with single_threaded_blas():
            parallel_for(
                lambda start, stop: _cholesky(start, stop, blas, given, jitter, out, info, shift),
                len(given),
                1,
            )
    return out.astype(matrices.dtype, copy=False), info, shift.astype(matrices.dtype, copy=False)
