"""Compiled loop of likelihoods, stage by stage; `likelihood.py` calls it."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

from ..._checks import Array
from ._arguments import GramEntries, Problem, Workspace
from ._covariance_loops import call_factor, factor_address, whitened
from ._gram_loops import gram_entries
from ._jit import inlined, loop
from ._lapack import solve_vector
from ._likelihood_gradients import call_finish, call_gradient_block, finish_address, gradient_address

FACTOR_STAGE, VALUE_STAGE, ALPHA_STAGE, BLOCKS_STAGE, FINISH_STAGE = 1, 2, 4, 8, 16


class LikelihoodEntries(NamedTuple):
    """Addresses of what `likelihoods` calls; those of gradients are 0 where only values are computed."""

    gram: GramEntries
    factor_mixture: int
    gradient_block: int
    finish_gradient: int


class LikelihoodResults(NamedTuple):
    """Results of a batch; gradients are empty where only values are computed."""

    value: Array  # (B,)
    info: Array  # (B,) int32
    jitter: Array  # (B,)
    d_weights: Array  # (J,)
    d_means: Array  # (J, D)
    d_scales: Array  # (J, D)
    d_noise: Array  # (B, 1 or N)


@cache
def likelihood_entries(grad: bool) -> LikelihoodEntries:
    """Addresses in this process; functions that are not compiled yet are."""
    gradients = (gradient_address(), finish_address()) if grad else (0, 0)
    return LikelihoodEntries(gram_entries(), factor_address(), *gradients)


@loop
def likelihoods(
    start: int,
    stop: int,
    stages: int,
    part_start: int,
    part_stop: int,
    problem: Problem,
    work: Workspace,
    sums: Array,
    diagonal: Array,
    entries: LikelihoodEntries,
    results: LikelihoodResults,
) -> None:
    """Mixtures ``start : stop``, one after another on this thread, or one stage of one mixture.

    `part_start` and `part_stop` bound the blocks of the gradient.
    """
    mixtures, points, y, _, _, _, n_phases = problem
    blas, matrix, alpha, info = entries.gram.blas, work.matrix, work.vector, results.info
    for b in range(start, stop):
        if stages & FACTOR_STAGE:
            info[b], results.jitter[b] = call_factor(entries.factor_mixture, (b, problem, work, entries.gram))
        if stages & VALUE_STAGE:
            results.value[b] = -math.inf
            if info[b] == 0:
                results.value[b] = value_of(blas, matrix, y, alpha)
        if stages & ALPHA_STAGE and info[b] == 0:
            solve_vector(blas, True, len(y), matrix.ctypes.data, len(y), alpha.ctypes.data)
        if stages & BLOCKS_STAGE and info[b] == 0:
            n = mixtures.offsets[b + 1] - mixtures.offsets[b]
            for block in range(part_start, part_stop):
                call_gradient_block(entries.gradient_block, (block, blas, n, points.x, n_phases, work, sums, diagonal))
        if stages & FINISH_STAGE:
            gradients = (results.d_weights, results.d_means, results.d_scales, results.d_noise)
            call_finish(entries.finish_gradient, (b, info[b], mixtures, sums, diagonal, *gradients))


@inlined
def value_of(blas: Array, factor: Array, y: Array, z: Array) -> float:
    """Log-likelihood from the factor; z = L^-1 y."""
    n = len(y)
    whitened(blas, factor, y, z)
    square, log_diagonal = 0.0, 0.0
    for i in range(n):
        square += z[i] * z[i]
        log_diagonal += math.log(factor[i, i])
    return -0.5 * square - log_diagonal - 0.5 * n * math.log(2.0 * math.pi)
