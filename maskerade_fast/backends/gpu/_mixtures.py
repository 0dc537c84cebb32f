"""What the kernels on mixtures read: arrays in float64, points by axis, phase tables, and batches in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import cupy
import numpy as np

from ..._checks import Array
from ..._memory import FREE_SHARE
from .. import to_host
from ._loader import device_limits, load

BLOCK = 256  # threads, as in kernels/gram.cu and kernels/cholesky.cu
FAST_MMA = (80, 90, 100)  # compute capabilities whose float64 tensor instructions are no emulation
PLANNED_SHARE = 0.9  # of the free memory, whatever the caller's bound: arrays too small to count need some, too
_GRID = 2**30  # most blocks of a grid-stride launch
FEW = 2**16  # of one whose threads have an entry each: more of them cost more than they spread


class Mixtures(NamedTuple):
    """The arrays of a batch in float64, with the offsets on both sides of the bus."""

    offsets: Array
    edges: np.ndarray[Any, np.dtype[np.int64]]
    """Offsets on the host."""
    weights: Array
    means: Array
    scales: Array
    per_axis: bool
    basis: Array | None = None
    """Of a trend, (pairs, 2, N): each mixture's last components, whose cosines and sines in the tables these are."""

    @property
    def n_phases(self) -> int:
        return int(self.means.shape[1]) if self.per_axis else 1

    @property
    def components(self) -> tuple[Array, Array, Array]:
        """Weights, scales and offsets, as the kernels take them: phases have the means' place."""
        return self.weights, self.scales, self.offsets

    def part(self, start: int, stop: int) -> tuple[Any, Array, Array, Array]:
        """Offsets, weights, means and scales of the mixtures ``start : stop``."""
        own = slice(int(self.edges[start]), int(self.edges[stop]))
        return self.edges[start : stop + 1] - own.start, self.weights[own], self.means[own], self.scales[own]

    def kernel(self, source: str, entry: str, **defines: int) -> Any:
        return load(source, entry, MF_PER_AXIS=int(self.per_axis), **defines)


def mixtures_of(offsets: Array, weights: Array, means: Array, scales: Array, per_axis: bool) -> Mixtures:
    """The arrays of a GMMBatch as the kernels read them."""
    edges = np.asarray(to_host(offsets), dtype=np.int64)
    weights, means, scales = map(kernel_array, (weights, means, scales))
    return Mixtures(kernel_array(offsets, np.int64), edges, weights, means, scales, per_axis)


def with_basis(mixtures: Mixtures, noise: Array, basis: Array | None) -> tuple[Mixtures, Array]:
    """Mixtures and noise table whose covariances have the term V V' more, V the `basis` (N, q).

    To the kernels, V V' is components of weight 1, mean 0 and scale 0, hence of envelope 1, in whose tables two basis
    functions take the places of cosine and sine, so that kernels need no case for a trend. Its diagonal goes to the
    noise; k(0) is to be taken from the mixtures as they were.
    """
    if basis is None or not basis.shape[1]:
        return mixtures, noise
    basis = kernel_array(basis)
    n_mixtures, (n_points, n_functions) = len(mixtures.edges) - 1, basis.shape
    pairs = -(-n_functions // 2)
    functions: Array = cupy.zeros((2 * pairs, n_points))
    functions[:n_functions] = basis.T
    edges = mixtures.edges + pairs * np.arange(n_mixtures + 1)
    own = cupy.asarray(own_components(edges, pairs))

    def widened(array: Array, value: float) -> Array:
        wide: Array = cupy.full((int(edges[-1]), *array.shape[1:]), value)
        wide[own] = array
        return wide

    weights, means, scales = widened(mixtures.weights, 1.0), widened(mixtures.means, 0.0), widened(mixtures.scales, 0.0)
    table = functions.reshape(pairs, 2, n_points)
    noise = kernel_array(noise + (basis * basis).sum(axis=1)[None, :])
    offsets = kernel_array(edges, np.int64)
    return Mixtures(offsets, edges, weights, means, scales, mixtures.per_axis, table), noise


def own_components(edges: Any, pairs: int) -> Any:
    """Numbers of the components that are no pair of basis functions, for offsets that count both; on the host."""
    sizes = np.diff(edges) - pairs
    return np.arange(int(sizes.sum())) + pairs * np.repeat(np.arange(len(sizes)), sizes)


def without_basis(mixtures: Mixtures, gradients: list[Array], noise_columns: int) -> list[Array]:
    """Gradients in weights, means, scales and noise without those in the pairs of `with_basis`."""
    if mixtures.basis is None:
        return gradients
    own = cupy.asarray(own_components(mixtures.edges, len(mixtures.basis)))
    noise = gradients[3] if noise_columns > 1 else gradients[3].sum(axis=1, keepdims=True)
    return [*(gradient[own] for gradient in gradients[:3]), noise]


def kernel_array(array: Any, dtype: Any = np.float64) -> Array:
    """`array` on the current device, C-contiguous, in the type the kernels are compiled for."""
    out: Array = cupy.ascontiguousarray(cupy.asarray(array, dtype=dtype))
    return out


def tile_defines() -> dict[str, int]:
    """Macros of sources that multiply tiles: tensor instructions only where they are faster than multiply-adds."""
    return {} if device_limits().capability in FAST_MMA else {"MF_NO_MMA": 1}


def points_by_axis(X: Array) -> Array:
    """Points (N, D) as (D, N)."""
    out: Array = cupy.ascontiguousarray(kernel_array(X).T)
    return out


def least_values(points: Array) -> Array:
    """The origin of phases: the least value of each axis of `points` (D, N)."""
    least: Array = points.min(axis=1)
    return least


def phase_tables(mixtures: Mixtures, points: Array, origin: Array, start: int, stop: int) -> Array:
    """Cosines and sines of the components of mixtures ``start : stop`` at `points` (D, N): (count, phases, 2, N)."""
    first = int(mixtures.edges[start])
    count = int(mixtures.edges[stop]) - first
    n_dims, n_points = points.shape
    tables: Array = cupy.empty((count, mixtures.n_phases, 2, n_points))
    blocks = grid_for(count * mixtures.n_phases * n_points, BLOCK)
    sizes = (np.int64(first), np.int64(count), np.int32(n_points), np.int32(n_dims))
    if blocks:
        args = (mixtures.means, points, origin, tables, *sizes)
        mixtures.kernel("gram", "phase_tables_f64")((blocks,), (BLOCK,), args)
    if mixtures.basis is not None:
        pairs = len(mixtures.basis)
        components = (mixtures.edges[start + 1 : stop + 1] - first)[:, None] + np.arange(-pairs, 0)
        rows = cupy.asarray(components * mixtures.n_phases)  # the other axes' phases stay at cosine 1 and sine 0
        tables.reshape(-1, 2, n_points)[:, :, : mixtures.basis.shape[2]][rows] = mixtures.basis
    return tables


def diagonal_stats(mixtures: Mixtures, noise: Array) -> Array:
    """k(0), and mean and largest entry of k(0) + noise: (B, 3)."""
    n_mixtures = len(mixtures.edges) - 1
    stats: Array = cupy.empty((n_mixtures, 3))
    args = (mixtures.weights, mixtures.offsets, noise, stats, np.int64(len(noise)), np.int32(noise.shape[1]))
    mixtures.kernel("gram", "diagonal_stats_f64")((n_mixtures,), (32,), args)
    return stats


def bound_of(max_bytes: int | None) -> tuple[int, str]:
    """Bytes the working memory may have, and the words of an error message: where they come from, and how to get more.

    They are `max_bytes`, or as much of them as is free on the device and in CuPy's pool, within that pool's limit; None
    stands for half of what is free.
    """
    pool = cupy.get_default_memory_pool()
    free = int(cupy.cuda.Device().mem_info[0]) + int(pool.free_bytes())
    left = int(pool.get_limit()) - int(pool.used_bytes()) if pool.get_limit() else free
    if left < free:
        free, where, cure = max(left, 0), "what CuPy's pool has left of its limit", "raise the pool's limit"
    else:
        where, cure = "the device's free memory", "free some of it"
    if max_bytes is None:
        bound = int(FREE_SHARE * free)
        return bound, f"{bound}, half of {where}; pass a larger max_bytes or {cure}"
    bound = int(PLANNED_SHARE * free)
    if max_bytes <= bound:
        return max_bytes, f"max_bytes={max_bytes}; pass a larger max_bytes"
    return bound, f"{bound}, nine tenths of {where}; {cure}"


def grid_for(items: int, per_block: int, most: int = _GRID) -> int:
    """Blocks of a grid-stride launch over `items`, at most `most`."""
    return min(-(-items // per_block), most)


def chunks(edges: Any, each: int, per_component: int, bound: int) -> Iterator[tuple[int, int]]:
    """Consecutive mixtures whose working memory, `each` bytes and some a component, stays within `bound`.

    At least one mixture a chunk: the caller has made sure that any one fits.
    """
    start, n_mixtures = 0, len(edges) - 1
    cost = each * np.arange(n_mixtures + 1) + per_component * np.asarray(edges, dtype=np.int64)
    while start < n_mixtures:
        stop = int(np.searchsorted(cost, cost[start] + bound, side="right")) - 1
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


def planned_chunks(
    edges: Any, each: int, per_component: int, max_bytes: int | None, what: str
) -> Iterator[tuple[int, int]]:
    """`chunks` of a batch that is not empty, within `max_bytes` as `bound_of` reads it.

    MemoryError, which begins with `what`, if the mixture of most components needs more alone.
    """
    needed = each + per_component * int(np.diff(edges).max())
    bound, account = bound_of(max_bytes)
    if needed > bound:
        raise MemoryError(f"{what} needs {needed} bytes, more than {account}")
    return chunks(edges, each, per_component, bound)
