"""Compiled loop of likelihoods, stage by stage; `likelihood.py` calls it."""

from __future__ import annotations

import math
from typing import Any

from numba import njit
from numpy.typing import NDArray

from ._covariance_loops import factor_mixture, whitened
from ._lapack import solve_vector
from ._likelihood_gradients import finish_gradient, gradient_block

Array = NDArray[Any]

FACTOR_STAGE, VALUE_STAGE, ALPHA_STAGE, BLOCKS_STAGE, FINISH_STAGE = 1, 2, 4, 8, 16


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def likelihoods(
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
