"""Log-likelihoods and gradients by one of three regimes of kernels, which fuse Gram matrix, factor and value.

The number of points alone chooses the way, so that a mixture has the same bits in any batch:

* small: one block of threads a matrix, all of it in shared memory;
* panels: one block a matrix, left-looking, as many columns as fit in shared memory and the factor in global memory;
* blocked: any size, all matrices panel by panel through all of the card (`_blocked`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import cupy
import numpy as np

from ..._checks import Array
from .. import to_host
from .._results import Likelihoods
from . import _blocked
from ._loader import device_limits, device_of
from ._mixtures import (
    BLOCK,
    Mixtures,
    diagonal_stats,
    kernel_array,
    least_values,
    mixtures_of,
    phase_tables,
    planned_chunks,
    points_by_axis,
    tile_defines,
    with_basis,
    without_basis,
)

__all__ = ["log_likelihood"]

# As in kernels/cholesky.cuh and kernels/likelihood.cu
TILE = 16
TILE_BYTES = 8 * TILE * TILE
SQUARE = 64  # entries a side that one block of covariance_f64 has
SLICE_TILES = 32  # 16 x 16 tiles of pairs in a slice of the gradient
MOST_AXES = 8  # whose sums one pass over the pairs collects
STATIC_BYTES = 4096  # more than the kernels' static shared memory, with 16 warps of 17 sums
RESERVED_BYTES = 1024  # of shared memory for each block of threads, on top of what it asks for
# Points from which one block a matrix is too slow, whatever fits: the blocked way fills the card with few matrices,
# too, and its products soon outweigh its launches. But its gradients take launches for each matrix.
LARGEST_PANEL = 320
LARGEST_PANEL_GRADIENT = 704


class Regimes(NamedTuple):
    """Which number of points goes which way."""

    small: int
    """Most points of a matrix in shared memory."""
    panels: int
    """Most points of a matrix that one block of threads factors."""
    tiles: int
    """Tiles of such a block's panel."""
    width: int = _blocked.WIDTH
    """Columns of a block beyond."""


class Problem(NamedTuple):
    """What all matrices of a call share."""

    mixtures: Mixtures
    points: Array
    """The points by axis, the last repeated until their number is a multiple of TILE: (D, padded)."""
    n_points: int
    y: Array
    noise: Array
    diagonal_stats: Array
    jitter: float
    grad: bool

    @property
    def defines(self) -> dict[str, int]:
        axes = axes_at_once(len(self.points)) if self.grad else 1
        return {"MF_GRADIENT": int(self.grad), "MF_AXES": axes, **tile_defines()}

    def inputs(self, start: int, stop: int) -> tuple[Array, ...]:
        m = self.mixtures
        tables = phase_tables(m, self.points, least_values(self.points), start, stop)
        return (*m.components, self.points, tables, self.y, self.diagonal_stats, self.noise)

    def sizes(self, start: int) -> tuple[Any, ...]:
        rows, columns = self.noise.shape
        sizes = (columns, self.n_points, len(self.points))
        return (np.int64(start), np.int64(rows), *map(np.int32, sizes))


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
    """Choose the regime by the number of points and the card's shared memory."""
    with device_of(weights, means, scales, X, y):
        limits = regimes_of(device_limits().shared_bytes, grad)
        n_mixtures, n_points = len(offsets) - 1, len(X)
        dtype = np.result_type(weights.dtype, X.dtype, y.dtype)
        noise_columns = noise.shape[1]
        plain = mixtures_of(offsets, weights, means, scales, per_axis)
        mixtures, noise = with_basis(plain, kernel_array(noise), basis)
        results = Likelihoods(cupy, n_mixtures, mixtures.weights, mixtures.means, noise.shape[1], grad)
        if n_mixtures:
            stats = diagonal_stats(plain, noise)
            points = points_by_axis(X)
            if n_points % TILE:
                points = cupy.pad(points, ((0, 0), (0, -n_points % TILE)), mode="edge")
            problem = Problem(mixtures, points, n_points, kernel_array(y), noise, stats, float(jitter), grad)
            each, run = way_of(n_points, limits, grad)
            per_component = 16 * mixtures.n_phases * points.shape[1]
            what = f"working memory for one matrix of {n_points} points"
            for start, stop in planned_chunks(mixtures.edges, each, per_component, max_bytes, what):
                run(problem, limits, start, stop, results)
        if grad:
            results.gradients = without_basis(mixtures, results.gradients, noise_columns)
        return results.of_type(dtype)


def axes_at_once(n_dims: int) -> int:
    """Axes of one pass of the gradient over the pairs: at most 8, in passes as equal as can be."""
    return -(-n_dims // -(-n_dims // MOST_AXES))


def tiles_of(n_points: int) -> int:
    """Tiles a side of a matrix."""
    return -(-n_points // TILE)


def lower_tiles(n_points: int) -> int:
    n_tiles = tiles_of(n_points)
    return n_tiles * (n_tiles + 1) // 2


def fused_bytes(n_points: int, tiles: int, grad: bool) -> int:
    """Dynamic shared memory of a block that has a matrix: `tiles` of it, and two vectors, with a gradient three."""
    return tiles * TILE_BYTES + 8 * TILE * tiles_of(n_points) * (3 if grad else 2)


def small_bytes(n_points: int, grad: bool) -> int:
    """Dynamic shared memory of likelihood_shared_f64."""
    return fused_bytes(n_points, lower_tiles(n_points), grad)


def regimes_of(shared_bytes: int, grad: bool) -> Regimes:
    """The regimes of a card whose blocks may have `shared_bytes`."""
    dynamic = shared_bytes - STATIC_BYTES
    small = max(n for n in range(0, 1024, TILE) if small_bytes(n, grad) <= dynamic)
    largest = LARGEST_PANEL_GRADIENT if grad else LARGEST_PANEL
    panels = max(n for n in range(0, largest + 1, TILE) if fused_bytes(n, tiles_of(n), grad) <= dynamic)
    return Regimes(small, panels, (dynamic - fused_bytes(panels, 0, grad)) // TILE_BYTES)


def way_of(n_points: int, limits: Regimes, grad: bool) -> tuple[int, Any]:
    """Working memory of one matrix beside its phase tables, and what computes a chunk."""
    if n_points <= limits.small:
        return 0, run_small
    if n_points <= limits.panels:
        return lower_tiles(n_points) * TILE_BYTES, run_panels
    n = _blocked.padded(n_points)
    return 8 * n * (n + 2) + (8 * n * (n + 1) if grad else 0), run_blocked


def threads_of(defines: dict[str, int]) -> int:
    """Threads that an SM has registers for, as THREADS in kernels/likelihood.cu."""
    return 512 if "MF_NO_MMA" not in defines and defines["MF_AXES"] == 1 else 256


def small_block(n_points: int, grad: bool, threads: int) -> int:
    """Threads of likelihood_shared_f64: those of an SM, shared out among the matrices that it has memory for."""
    shared = device_limits().shared_bytes + RESERVED_BYTES
    matrices = shared // (small_bytes(n_points, grad) + STATIC_BYTES + RESERVED_BYTES)
    return max(128, threads // (4 if matrices >= 4 else 2 if matrices >= 2 else 1))


def run_small(problem: Problem, limits: Regimes, start: int, stop: int, results: Likelihoods) -> None:
    """Mixtures ``start : stop``, each in the shared memory of one block."""
    defines = problem.defines
    block = small_block(problem.n_points, problem.grad, threads_of(defines))
    problem.mixtures.kernel("likelihood", "likelihood_shared_f64", MF_BLOCK=block, **defines)(
        (stop - start,),
        (block,),
        (*problem.inputs(start, stop), *results.arrays, np.float64(problem.jitter), *problem.sizes(start)),
        shared_mem=small_bytes(problem.n_points, problem.grad),
    )


def run_panels(problem: Problem, limits: Regimes, start: int, stop: int, results: Likelihoods) -> None:
    """Mixtures ``start : stop``, each by one block with a panel in shared memory."""
    n_lower = lower_tiles(problem.n_points)
    tiles = min(limits.tiles, n_lower)
    factors = cupy.empty((stop - start, n_lower, TILE, TILE))
    sizes = (*problem.sizes(start), np.int32(tiles))
    defines = problem.defines
    block = threads_of(defines)
    problem.mixtures.kernel("likelihood", "likelihood_panel_f64", MF_BLOCK=block, **defines)(
        (stop - start,),
        (block,),
        (*problem.inputs(start, stop), factors, *results.arrays, np.float64(problem.jitter), *sizes),
        shared_mem=fused_bytes(problem.n_points, tiles, problem.grad),
    )


def run_blocked(problem: Problem, limits: Regimes, start: int, stop: int, results: Likelihoods) -> None:
    """Mixtures ``start : stop`` together; those that fail are tried again one by one."""
    waiting = [(start, stop)]
    for attempt in range(_blocked.RETRIES + 1 if problem.jitter else 1):
        failed = []
        for first, last in waiting:
            inputs = problem.inputs(first, last)
            codes = _blocked_attempt(problem, inputs, limits.width, first, last, attempt, results)
            failed += [(b, b + 1) for b in (first + np.flatnonzero(codes)).tolist()]
        waiting = failed
    for first, last in waiting:
        results.jitter[first:last] = 0.0
        edges = problem.mixtures.edges
        for out in results.gradients[:3] if problem.grad else []:
            out[edges[first] : edges[last]] = cupy.nan
        if problem.grad:
            results.gradients[3][first:last] = cupy.nan


def _blocked_attempt(
    problem: Problem, inputs: tuple[Array, ...], width: int, start: int, stop: int, attempt: int, results: Likelihoods
) -> Any:
    """Values, codes and gradients of the mixtures that have a factor; returns the codes on the host."""
    n_points, count = problem.n_points, stop - start
    stats = problem.diagonal_stats[start:stop]
    added = _blocked.jitters_of(attempt, problem.jitter, stats[:, 1])
    n = _blocked.padded(n_points)
    matrices: Array = cupy.empty((count, n + 1, n))
    side = -(-n // SQUARE)
    problem.mixtures.kernel("likelihood", "covariance_f64", **problem.defines)(
        (count * (side * (side + 1) // 2),), (BLOCK,), (*inputs, added, matrices, *problem.sizes(start), np.int32(n))
    )
    bounds = n_points * _blocked.EPS * (stats[:, 2] + added)
    factors = _blocked.factor(matrices, bounds, width)
    value = -_blocked.half_values(factors, n_points) - 0.5 * n_points * math.log(2.0 * math.pi)
    results.value[start:stop] = cupy.where(factors.info == 0, value, -cupy.inf)
    results.info[start:stop] = factors.info
    results.jitter[start:stop] = added
    codes = to_host(factors.info)
    good = np.flatnonzero(codes == 0).tolist() if problem.grad else []
    if good:
        alpha = _blocked.invert(factors)
        diagonal = cupy.diagonal(matrices, axis1=1, axis2=2)
        own = 0.5 * (alpha * alpha - diagonal)[:, :n_points]
        trace = own.sum(axis=1, keepdims=True)
        by_mixture = own if problem.noise.shape[1] > 1 else trace
        first = problem.mixtures.edges[start]
        for b in good:
            results.gradients[3][start + b] = by_mixture[b]
            tables = inputs[4][int(problem.mixtures.edges[start + b] - first) :]
            _gradient(problem, tables, alpha[b], matrices[b, :n], trace[b], start + b, results)
    return codes


def _gradient(
    problem: Problem, tables: Array, alpha: Array, inverse: Array, trace: Array, mixture: int, results: Likelihoods
) -> None:
    """Gradient of one mixture from alpha (n,) and the lower triangle of C^-1 (n, n): a pass over the pairs.

    `trace` is that of G, in an array.
    """
    n_dims, n_points = len(problem.points), problem.n_points
    m = problem.mixtures
    n_slices = -(-lower_tiles(n_points) // SLICE_TILES)
    n_components = int(m.edges[mixture + 1] - m.edges[mixture])
    axes = problem.defines["MF_AXES"]
    sums: Array = cupy.empty((n_slices, n_components, -(-n_dims // axes), 1 + 2 * axes))
    m.kernel("likelihood", "gradient_slices_f64", **problem.defines)(
        (n_slices,),
        (BLOCK,),
        (
            *(*m.components, problem.points, tables, alpha, inverse, sums, np.int64(mixture)),
            *(np.int32(k) for k in (n_points, n_dims, len(inverse))),
        ),
    )
    m.kernel("likelihood", "gradient_total_f64", **problem.defines)(
        (n_components,),
        (32,),
        (*m.components, sums, trace, *results.gradients[:3], np.int64(mixture), np.int32(n_slices), np.int32(n_dims)),
    )
