"""Log-likelihoods of a batch of mixtures, with gradients: Gram, factor and value fused, matrix by matrix.

A worker owns one N x N buffer and goes through the batch: Gram triangle, dpotrf in place, triangular solve, value, and
where asked for the gradient of `_likelihood_gradients`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ._batch import Likelihoods, Workers
from ._covariance import Workspace, factor_mixture, factor_shared, share_matrices, whitened
from ._lapack import addresses, solve_vector
from ._likelihood_gradients import BLOCK, finish_gradient, gradient_block
from ._native import native, native_batch
from ._parallel import n_threads, parallel_for, single_threaded_blas
from .gram import basis_by_function, least_values, noise_with_basis, points_by_axis

__all__ = ["log_likelihood"]

Array = NDArray[Any]

FACTOR_STAGE, VALUE_STAGE, ALPHA_STAGE, BLOCKS_STAGE, FINISH_STAGE = 1, 2, 4, 8, 16


def log_likelihood(
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    X: Array,
    y: Array,
    noise: Array,
    *,
    basis: Array | None = None,
    per_axis: bool,
    jitter: float,
    grad: bool,
    max_bytes: int | None,
) -> tuple[Array, Array, Array, list[Array] | None]:
    """Go through the batch with one N x N buffer per worker."""
    n_mixtures, (n_points, n_dims) = len(offsets) - 1, X.shape
    dtype = np.result_type(weights, X, y)
    results = Likelihoods(n_mixtures, weights, means, noise.shape[1], grad)
    if n_mixtures == 0:
        return results.of_type(dtype)
    points = points_by_axis(X, least_values(X))
    mixtures = native_batch(offsets, weights, means, scales)
    functions = basis_by_function(basis)
    targets, noise = native(y), noise_with_basis(noise, functions)
    n_phases = n_dims if per_axis else 1
    blas = addresses()
    n_max = int(np.diff(offsets).max())
    sizes = (n_max, n_points, n_dims, n_phases)
    threads = n_threads()
    sharing = share_matrices(n_mixtures, n_points, threads)
    wanted = 1 if sharing else min(threads, n_mixtures)
    rows = (BLOCK if grad else 0) * (threads if sharing else 1)  # columns of the inverse in work
    n_blocks = -(-n_points // BLOCK)
    sums_shape = (n_blocks, n_max, 1 + 2 * n_dims)
    each = Workspace.bytes(*sizes, rows + 1) + 8 * math.prod(sums_shape)
    what = f"working memory for one matrix of {n_points} points"
    workers = Workers(
        wanted, each, max_bytes, what, lambda: (Workspace(*sizes), np.empty(sums_shape), np.empty(n_points))
    )

    def run(space: Any, start: int, stop: int, stages: int, part_start: int, part_stop: int) -> None:
        w, sums, diagonal = space
        problem = (blas, *mixtures, *points, targets, noise, jitter, n_phases, functions)
        buffers = (w.matrix, w.rates, w.cosines, w.sines, w.vector, sums, diagonal)
        _likelihoods(start, stop, stages, part_start, part_stop, *problem, *buffers, *results.arrays)

    def shared(b: int) -> None:
        space = workers.spaces[0]
        results.info[b], results.shift[b] = factor_shared(
            b, blas, mixtures, points, noise, jitter, n_phases, functions, space[0], threads
        )
        run(space, b, b + 1, stages & (VALUE_STAGE | ALPHA_STAGE), 0, 0)
        if grad:
            parallel_for(lambda i, j: run(space, b, b + 1, BLOCKS_STAGE, i, j), n_blocks, 1, threads=threads)
            run(space, b, b + 1, FINISH_STAGE, 0, 0)

    stages = FACTOR_STAGE | VALUE_STAGE | (ALPHA_STAGE | BLOCKS_STAGE | FINISH_STAGE if grad else 0)
    with single_threaded_blas():
        if sharing:
            for b in range(n_mixtures):
                shared(b)
        else:
            workers.across(lambda space, i, j: run(space, i, j, stages, 0, n_blocks), n_mixtures)
    return results.of_type(dtype)


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
    basis: Array,
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
            info[b], shift[b] = factor_mixture(
                b, blas, offsets, weights, means, scales, x, high, low, noise, jitter, n_phases, basis,
                rates, cosines, sines, matrix,
            )  # fmt: skip
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
