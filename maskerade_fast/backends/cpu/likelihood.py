"""Log-likelihoods of a batch of mixtures, with gradients: Gram, factor and value fused, matrix by matrix.

A worker owns one N x N buffer and goes through the batch: Gram triangle, dpotrf in place, triangular solve, value, and
with ``grad=True`` the gradient of `_likelihood_gradients`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._checks import Array
from .._results import Likelihoods
from ._arguments import Problem, Workspace
from ._covariance import factor_shared, share_matrices
from ._jit import repeated
from ._likelihood_gradients import BLOCK
from ._likelihood_loops import (
    ALPHA_STAGE,
    BLOCKS_STAGE,
    FACTOR_STAGE,
    FINISH_STAGE,
    VALUE_STAGE,
    LikelihoodResults,
    likelihood_entries,
    likelihoods,
)
from ._loop_arrays import basis_by_function, least_values, loop_array, loop_batch, noise_with_basis, points_by_axis
from ._parallel import n_threads, parallel_for, single_threaded_blas
from ._workers import Workers

__all__ = ["log_likelihood"]


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
    results = Likelihoods(np, n_mixtures, weights, means, noise.shape[1], grad)
    if n_mixtures == 0:
        return results.of_type(dtype)
    points = points_by_axis(X, least_values(X))
    mixtures = loop_batch(offsets, weights, means, scales)
    functions = basis_by_function(basis)
    targets, noise = loop_array(y), noise_with_basis(noise, functions)
    n_phases = n_dims if per_axis else 1
    problem = Problem(mixtures, points, targets, noise, functions, float(jitter), n_phases)
    entries = likelihood_entries(grad)
    n_max = int(np.diff(offsets).max())
    sizes = (n_max, n_points, n_dims, n_phases)
    threads = n_threads()
    sharing = share_matrices(n_mixtures, n_points, threads)
    most = 1 if sharing else min(threads, n_mixtures)
    rows = (BLOCK if grad else 0) * (threads if sharing else 1)  # columns of the inverse in work
    n_blocks = -(-n_points // BLOCK)
    sums_shape = (n_blocks, n_max, 1 + 2 * n_dims)
    each = Workspace.bytes(*sizes, rows + 1) + 8 * math.prod(sums_shape)
    what = f"working memory for one matrix of {n_points} points"
    workers = Workers(
        most, each, max_bytes, what, lambda: (Workspace.empty(*sizes), np.empty(sums_shape), np.empty(n_points))
    )

    fill, arrays = repeated(likelihoods), LikelihoodResults(*results.arrays)

    def run(space: Any, start: int, stop: int, stages: int, part_start: int, part_stop: int) -> None:
        work, sums, diagonal = space
        fill(start, stop, stages, part_start, part_stop, problem, work, sums, diagonal, entries, arrays)

    def shared(b: int) -> None:
        space = workers.spaces[0]
        results.info[b], results.jitter[b] = factor_shared(b, problem, space[0], entries.gram, threads)
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
