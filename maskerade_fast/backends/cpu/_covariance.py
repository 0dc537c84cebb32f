"""The covariance C_b of one mixture, Gram matrix plus noise and trend, built and factored in a worker's buffers.

A trend is V V' for basis functions V' (q, N): `gram_rows` adds its entries, and the noise table here holds its
diagonal already (`_loop_arrays.noise_with_basis`).

Likelihood and prediction both start here: by one thread for each mixture (`factor_mixture`), or by all threads together
where there are fewer mixtures than threads or the matrix is large (`factor_shared`), with the same bits.
"""

from __future__ import annotations

from ._arguments import GramEntries, Problem, Workspace
from ._cholesky_loops import RETRIES, first_bad_pivot, jitter_of
from ._covariance_loops import diagonal_of, factor_once, prepare_mixture, set_diagonal
from ._gram_loops import ROWS, SPLIT_SIZE, gram_rows
from ._parallel import parallel_for
from .cholesky import tiled_potrf

TILED_SIZE = 2048  # points from which one factorisation is shared among threads


def share_matrices(n_mixtures: int, n_points: int, threads: int) -> bool:
    """Whether the threads work together on one matrix after another, rather than each on its own."""
    return n_points >= TILED_SIZE or (n_mixtures < threads and n_points >= SPLIT_SIZE)


def factor_shared(b: int, problem: Problem, work: Workspace, entries: GramEntries, threads: int) -> tuple[int, float]:
    """Prepare and factor one mixture with all threads; the bits of `factor_mixture` below `TILED_SIZE`."""
    mixtures, points, _, noise, basis, jitter, n_phases = problem
    offsets, weights, x = mixtures.offsets, mixtures.weights, points.x
    n_points = x.shape[1]
    tables = (work.cosines, work.sines)
    first, n = int(offsets[b]), int(offsets[b + 1] - offsets[b])
    prepare_mixture(b, mixtures, points, n_phases, work, entries)
    k0, mean_diagonal = diagonal_of(b, offsets, weights, noise, n_points)

    def rows(start: int, stop: int) -> None:
        mixture = (n, first, weights, work.rates)
        gram_rows(start, stop, 1, *mixture, x, *tables, x, *tables, n_phases, basis, basis, work.matrix)

    info, added = 0, 0.0
    for attempt in range(RETRIES + 1):
        added = jitter_of(attempt, jitter, mean_diagonal)
        parallel_for(rows, n_points, ROWS, threads=threads)
        if n_points < TILED_SIZE:
            info = factor_once(b, k0, added, noise, entries.blas, work.matrix)
        else:
            largest = set_diagonal(b, k0, added, noise, work.matrix)
            info = first_bad_pivot(work.matrix, largest, tiled_potrf(entries.blas, work.matrix, threads))
        if info == 0 or jitter == 0.0:
            break
    return info, added if info == 0 else 0.0
