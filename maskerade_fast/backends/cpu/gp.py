"""Gaussian process predictions for a batch of mixtures.

Test points go in fixed blocks: V = L^-1 K(X, X*) for one block at a time, mean V'z with z = L^-1 y, latent
variance k(0) - |v|^2. The cross-covariance of all points never exists, and the bits do not depend on how
points or mixtures are spread. Variances come from triangular solves: an explicit inverse loses them all where
C is ill-conditioned.
"""

from __future__ import annotations

import numpy as np

from ..._checks import Array
from .._results import Predictions
from ._arguments import NewPoints, Problem, Workspace
from ._covariance import factor_shared, share_matrices
from ._gp_loops import POINTS, PredictionResults, prediction_entries, predictions
from ._jit import repeated
from ._likelihood_loops import BLOCKS_STAGE, FACTOR_STAGE, FINISH_STAGE, VALUE_STAGE
from ._loop_arrays import basis_by_function, least_values, loop_array, loop_batch, noise_with_basis, points_by_axis
from ._parallel import n_threads, parallel_for, single_threaded_blas
from ._workers import Workers

__all__ = ["predict_gp"]


def predict_gp(
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    X: Array,
    y: Array,
    noise: Array,
    X_new: Array,
    *,
    basis: Array | None = None,
    basis_new: Array | None = None,
    per_axis: bool,
    full: bool,
    jitter: float,
    max_bytes: int | None,
) -> tuple[Array, Array, Array | None, Array]:
    """Factor each covariance in a worker's buffer and solve for a block of test points at a time."""
    n_mixtures, (n_points, n_dims), n_new = len(offsets) - 1, X.shape, len(X_new)
    dtype = np.result_type(weights, X, y, X_new)
    results = Predictions(np, n_mixtures, n_new, full)
    added = np.zeros(n_mixtures)
    if n_mixtures:
        origin = least_values(X)
        points, new = points_by_axis(X, origin), points_by_axis(X_new, origin)
        mixtures = loop_batch(offsets, weights, means, scales)
        functions, new_functions = basis_by_function(basis), basis_by_function(basis_new)
        targets, noise = loop_array(y), noise_with_basis(noise, functions)
        n_phases = n_dims if per_axis else 1
        problem = Problem(mixtures, points, targets, noise, functions, float(jitter), n_phases)
        test, entries = NewPoints(*new, new_functions), prediction_entries(full)
        outputs = PredictionResults(results.mean, results.variance, results.covariance, results.info)
        sizes = (int(np.diff(offsets).max()), n_points, n_dims, n_phases)
        threads = n_threads()
        largest_noise = np.broadcast_to(noise.max(axis=1), n_mixtures).copy()
        height = max(n_new, 1) if full else min(max(n_new, 1), POINTS)
        # Tables of one block, and of all test points if `full`.
        in_work = height + 2 * sizes[0] * n_phases * height // n_points + 1
        sharing = share_matrices(n_mixtures, n_points, threads)
        most = 1 if sharing else min(threads, n_mixtures)
        each = Workspace.bytes(*sizes, in_work * (threads if sharing and not full else 1))
        what = f"working memory for one matrix of {n_points} points and {height} test points"
        workers = Workers(most, each, max_bytes, what, lambda: (Workspace.empty(*sizes), np.empty((height, n_points))))

        n_blocks = -(-n_new // POINTS)
        last = FINISH_STAGE if full and n_new else 0  # LAPACK's kin refuse matrices without rows

        fill = repeated(predictions)

        def run(w: Workspace, solved: Array, start: int, stop: int, stages: int, i: int, j: int) -> None:
            fill(start, stop, stages, i, j, problem, test, full, largest_noise, w, solved, entries, outputs, added)

        def across(space: tuple[Workspace, Array], start: int, stop: int) -> None:
            run(*space, start, stop, FACTOR_STAGE | VALUE_STAGE | BLOCKS_STAGE | last, 0, n_blocks)

        def shared(b: int) -> None:
            w, solved = workers.spaces[0]
            results.info[b], added[b] = factor_shared(b, problem, w, entries.gram, threads)
            run(w, solved, b, b + 1, VALUE_STAGE, 0, 0)

            def blocks(i: int, j: int) -> None:
                run(w, solved if full else np.empty_like(solved), b, b + 1, BLOCKS_STAGE, i, j)

            parallel_for(blocks, n_blocks, 1, threads=threads)
            run(w, solved, b, b + 1, last, 0, 0)

        with single_threaded_blas():
            if sharing:
                for b in range(n_mixtures):
                    shared(b)
            else:
                workers.across(across, n_mixtures)
    return results.of_type(dtype)
