"""Sums over pairs of the predictive mixture, without a table of pairs.

A point's h Gaussians are prepared once (precisions, their fourth roots, means less a centre); its h (h + 1) / 2 pairs
are computed where they are summed and never stored. Points go in chunks of bounded memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import cupy
import cupyx
import numpy as np

from ..._checks import Array
from ._loader import device_limits, device_of, load
from ._mixtures import FEW, grid_for, kernel_array

__all__ = ["joint_pair_moments", "pair_cdf", "pair_draws", "pair_log_density", "pair_moments", "pair_quantiles"]

# As in kernels/prediction.cu
_BLOCK = 256
_WARPS = _BLOCK // 32
_SLICE = 8192  # pairs of a block that sums moments
_GROUP = 4  # rows of values, or of levels, that a block takes at a time
_DENSITY_POINTS = 4
_STATIC_SHARED = 1024  # bytes that joint_pairs_f64 has beside its dynamic shared memory, and to spare

_CHUNK_BYTES = 256 * 2**20  # working memory of the points, or pairs, in work
_CUBIC_ERROR = 1e-7  # in probability, at the middle of an interval before it is halved for the last time
_PARTS = 16


class _Chunk(NamedTuple):
    """Points ``first : first + size``, prepared."""

    first: int
    size: int
    locals: Array


class _Mixture(NamedTuple):
    """What the kernels read: W packed with off-diagonal entries doubled, W, the Gaussian of most weight, moments."""

    packed: Array
    pair_weights: Array
    anchor: Array
    means: Array
    variances: Array
    centre: Array
    total: Array
    shift: Array
    variance: Array


def pair_moments(pair_weights: Array, means: Array, variances: Array) -> tuple[Array, Array, Array]:
    """Sum in one pass over the pairs, about the mean that the diagonal of W gives."""
    # Next to a second pass about the mixture's own mean, at most the factor 2 + 2 sum |W_ij s_ij| / trace W in rounding
    with device_of(pair_weights, means, variances):
        mixture = _prepared(pair_weights, means, variances)
        for chunk in _chunks(mixture):
            _moments(mixture, chunk)
        return mixture.total, mixture.centre + mixture.shift, mixture.variance


def pair_cdf(pair_weights: Array, means: Array, variances: Array, y: Array) -> Array:
    """Recompute each point's pairs where they are summed."""
    with device_of(pair_weights, means, variances, y):
        mixture, y = _prepared(pair_weights, means, variances), kernel_array(y)
        out: Array = cupy.empty_like(y)
        kernel = load("prediction", "pair_cdf_f64")
        for chunk in _chunks(mixture) if len(y) else ():
            args = (mixture.packed, chunk.locals, mixture.centre, y, out)
            kernel((chunk.size * _groups(y),), (_BLOCK,), (*args, *_sizes(mixture), _i64(chunk.first), _i64(len(y))))
        return out


def pair_quantiles(pair_weights: Array, means: Array, variances: Array, levels: Array) -> Array:
    """Search less a centre per point, which is added at the end."""
    with device_of(pair_weights, means, variances, levels):
        mixture, levels = _prepared(pair_weights, means, variances), kernel_array(levels)
        out: Array = cupy.empty_like(levels)
        for chunk in _chunks(mixture) if len(levels) else ():
            _moments(mixture, chunk)
            _solve(mixture, chunk, levels, out)
        out += mixture.centre
        return out


def pair_draws(pair_weights: Array, means: Array, variances: Array, levels: Array) -> Array:
    """Tabulate the CDFs of all points together, a round of launches for each halving of intervals."""
    with device_of(pair_weights, means, variances, levels):
        mixture, levels = _prepared(pair_weights, means, variances), kernel_array(levels)
        out: Array = cupy.empty_like(levels)
        if levels.size == 0:
            return out
        ends = cupy.stack([levels.min(axis=0), levels.max(axis=0)])
        limits = cupy.empty_like(ends)
        kernel = load("prediction", "pair_invert_f64")
        for chunk in _chunks(mixture):
            _moments(mixture, chunk)
            _solve(mixture, chunk, ends, limits)
            edges, left, right = _tabulated(mixture, chunk, limits)
            n_draws = len(levels) * chunk.size
            sizes = (left.shape[1], levels.shape[1], chunk.first, chunk.size, len(levels))
            kernel((grid_for(n_draws, _BLOCK, FEW),), (_BLOCK,), (edges, left, right, levels, out, *map(_i64, sizes)))
        out += mixture.centre
        return out


def pair_log_density(factor: Array, means: Array, variances: Array, y: Array) -> Array:
    """Scale directions and amplitudes apart, then sum by blocks of points."""
    with device_of(factor, means, variances, y):
        factor, means, variances, y = map(kernel_array, (factor, means, variances, y))
        h, rank = factor.shape
        norms = cupy.sqrt(cupy.sum(factor * factor, axis=1))
        weighty = norms > 0.0  # an observation without weight must not set the scale
        safe = cupy.where(weighty, norms, 1.0)
        directions = cupy.ascontiguousarray(factor / safe[:, None])
        log_norms = cupy.where(weighty, cupy.log(safe), -math.inf)
        out: Array = cupy.empty(len(y))
        amplitudes_of = load("prediction", "density_amplitudes_f64")
        density = load("prediction", "pair_log_density_f64")
        for first, count in _spans(len(y), 8 * (h + 1)):
            amplitudes, largest = cupy.empty((count, h)), cupy.empty(count)
            sizes = (_i64(h), _i64(len(y)), _i64(first))
            amplitudes_of((count,), (_BLOCK,), (log_norms, means, variances, y, amplitudes, largest, *sizes))
            grid = (-(-count // _DENSITY_POINTS),)
            sizes = (_i64(h), _i64(rank), _i64(first))
            density(grid, (_BLOCK,), (directions, amplitudes, largest, out, *sizes, _i64(count)))
        return out


def joint_pair_moments(
    pair_weights: Array, means: Array, covariances: Array, y: Array
) -> tuple[float, Array, Array, int]:
    """Factor pairs in shared memory where n allows, else by the library in batches of bounded memory."""
    with device_of(pair_weights, means, covariances, y):
        pair_weights, means, covariances, y = map(kernel_array, (pair_weights, means, covariances, y))
        h, n = means.shape
        log_dets, log_densities = cupy.empty(h), cupy.empty(h)
        in_shared = _joint_bytes(n) + _STATIC_SHARED <= device_limits().shared_bytes
        (_singles_in_shared if in_shared else _singles_by_library)(means, covariances, y, log_dets, log_densities)
        failed = cupy.isnan(log_dets).get()
        if failed.any():
            return math.nan, cupy.full(n, math.nan), cupy.full(h, math.nan), 1 + int(np.argmax(failed))
        diagonal = cupy.diagonal(pair_weights)[:, None]
        sums = cupy.ascontiguousarray(cupy.concatenate([diagonal * means, diagonal], axis=1))  # the pairs (i, i)
        pairs_of = _pairs_in_shared if in_shared else _pairs_by_library
        accumulate = load("joint", "joint_accumulate_f64")
        each = 8 * (n + 1) if in_shared else 8 * (n + 1) * (3 * (n + 1) + 1)  # the library works on copies
        for first, count in _spans(h * (h - 1) // 2, each):
            pairs = pairs_of(pair_weights, means, covariances, log_dets, first, count)
            top, bottom = _row_of(first), _row_of(first + count - 1)
            sizes = (_i64(n), _i64(top), _i64(first), _i64(first + count))
            accumulate((bottom - top + 1,), (_BLOCK,), (pairs, sums, *sizes))
        totals = sums.sum(axis=0)
        return float(totals[n]), totals[:n], log_densities, 0


def _prepared(pair_weights: Array, means: Array, variances: Array) -> _Mixture:
    pair_weights, means, variances = map(kernel_array, (pair_weights, means, variances))
    h, n_points = means.shape
    n_pairs = h * (h + 1) // 2
    packed = cupy.empty(n_pairs)
    load("prediction", "pair_pack_f64")((grid_for(n_pairs, _BLOCK, FEW),), (_BLOCK,), (pair_weights, packed, _i64(h)))
    anchor = cupy.asarray(cupy.argmax(cupy.diagonal(pair_weights)), dtype=np.int64).reshape(1)
    return _Mixture(packed, pair_weights, anchor, means, variances, *(cupy.empty(n_points) for _ in range(4)))


def _chunks(mixture: _Mixture) -> Iterator[_Chunk]:
    """Chunks of points, their locals and centres filled in."""
    h, n_points = mixture.means.shape
    kernel = load("prediction", "pair_locals_f64")
    for first, count in _spans(n_points, 8 * (3 * h + 6 * _slices(h))):
        local = cupy.empty((count, 3, h))
        args = (mixture.pair_weights, mixture.anchor, mixture.means, mixture.variances, mixture.centre, local)
        kernel((count,), (_BLOCK,), (*args, *_sizes(mixture), _i64(first)))
        yield _Chunk(first, count, local)


def _moments(mixture: _Mixture, chunk: _Chunk) -> None:
    """Fill total, mean less centre, and variance of the points of a chunk."""
    h, n_slices = len(mixture.means), _slices(len(mixture.means))
    partial = cupy.empty((chunk.size, n_slices, 6))
    sums, finish = (load("prediction", f"{name}_f64") for name in ("pair_moments", "pair_moments_finish"))
    sums((chunk.size * n_slices,), (_BLOCK,), (mixture.packed, chunk.locals, partial, _i64(h), _i64(n_slices)))
    results = (mixture.total, mixture.shift, mixture.variance)
    sizes = (_i64(n_slices), _i64(chunk.size), _i64(chunk.first))
    finish((-(-chunk.size // _WARPS),), (_BLOCK,), (partial, *results, *sizes))


def _solve(mixture: _Mixture, chunk: _Chunk, levels: Array, out: Array) -> None:
    """Quantiles less the centres, for the points of a chunk."""
    kernel = load("prediction", "pair_quantiles_f64")
    moments = (mixture.total, mixture.shift, mixture.variance)
    args = (mixture.packed, chunk.locals, *moments, levels, out, *_sizes(mixture), _i64(chunk.first), _i64(len(levels)))
    kernel((chunk.size * _groups(levels),), (_BLOCK,), args)


def _tabulated(mixture: _Mixture, chunk: _Chunk, limits: Array) -> tuple[Array, Array, Array]:
    """Piecewise cubic CDFs of the points of a chunk between their two `limits` (2, M).

    All points go together, a round for each halving of intervals. Returns the first interval of each point and one
    past the last, (count + 1,), and the nodes at the left and right of the intervals, (3, n): u, CDF, density.
    """
    lowest, highest = limits[:, chunk.first : chunk.first + chunk.size]
    u = lowest[:, None] + (highest - lowest)[:, None] * (cupy.arange(_PARTS + 1) / _PARTS)
    owners = cupy.arange(chunk.size * (_PARTS + 1)) // (_PARTS + 1)
    nodes = _nodes(mixture, chunk, owners, u.ravel()).reshape(3, chunk.size, _PARTS + 1)
    left, right = (nodes[:, :, part].reshape(3, -1) for part in (slice(0, -1), slice(1, None)))
    owners = cupy.arange(chunk.size * _PARTS) // _PARTS
    narrow = 1e-12 * (highest - lowest)
    errors_of = load("prediction", "cubic_errors_f64")
    pending = cupy.arange(chunk.size * _PARTS)
    while len(pending):
        a, b, own = cupy.ascontiguousarray(left[:, pending]), cupy.ascontiguousarray(right[:, pending]), owners[pending]
        middle = _nodes(mixture, chunk, own, 0.5 * (a[0] + b[0]))
        errors = cupy.empty(len(pending))
        errors_of((grid_for(len(pending), _BLOCK, FEW),), (_BLOCK,), (a, middle, b, errors, _i64(len(pending))))
        again = (errors > _CUBIC_ERROR) & (b[0] - a[0] > narrow[own])
        halves = cupy.ones(len(owners), dtype=np.int64)
        halves[pending] = 2
        places = cupy.cumsum(halves) - halves  # of each interval, or of its left half
        n = len(owners) + len(pending)
        owners, left, right = (_spread(array, places, n) for array in (owners, left, right))
        split = places[pending]
        right[:, split] = middle
        owners[split + 1], left[:, split + 1], right[:, split + 1] = own, middle, b
        pending = (split[again][:, None] + cupy.arange(2)).ravel()
    edges = cupy.searchsorted(owners, cupy.arange(chunk.size + 1))
    return edges.astype(np.int64, copy=False), cupy.ascontiguousarray(left), cupy.ascontiguousarray(right)


def _nodes(mixture: _Mixture, chunk: _Chunk, owners: Array, u: Array) -> Array:
    """Nodes (3, n) of the CDFs at `u` for points `owners` of the chunk."""
    nodes: Array = cupy.empty((3, len(u)))
    nodes[0] = u
    args = (mixture.packed, chunk.locals, mixture.total, cupy.ascontiguousarray(owners), nodes)
    sizes = (_i64(len(mixture.means)), _i64(chunk.first), _i64(len(u)))
    load("prediction", "pair_nodes_f64")((len(u),), (_BLOCK,), (*args, *sizes))
    return nodes


def _spread(array: Array, places: Array, n: int) -> Array:
    """`array` (..., m) with entry k moved to ``places[k]`` of n; the rest is for the caller to fill."""
    out: Array = cupy.empty((*array.shape[:-1], n), dtype=array.dtype)
    out[..., places] = array
    return out


def _singles_in_shared(means: Array, covariances: Array, y: Array, log_dets: Array, log_densities: Array) -> None:
    h, n = means.shape
    args = (means, covariances, y, log_dets, log_densities, np.int32(n))
    load("joint", "joint_singles_f64")((h,), (_BLOCK,), args, shared_mem=_joint_bytes(n))


def _pairs_in_shared(
    pair_weights: Array, means: Array, covariances: Array, log_dets: Array, first: int, count: int
) -> Array:
    h, n = means.shape
    out: Array = cupy.empty((count, n + 1))
    args = (pair_weights, means, covariances, log_dets, out, _i64(h), np.int32(n), _i64(first))
    load("joint", "joint_pairs_f64")((count,), (_BLOCK,), args, shared_mem=_joint_bytes(n))
    return out


def _singles_by_library(means: Array, covariances: Array, y: Array, log_dets: Array, log_densities: Array) -> None:
    h, n = means.shape
    border, finish = (load("joint", f"joint_{name}_singles_f64") for name in ("border", "finish"))
    for first, count in _spans(h, 24 * (n + 1) ** 2):
        bordered = cupy.empty((count, n + 1, n + 1))
        sizes = (_i64(n), _i64(first), _i64(count))
        border((grid_for(bordered.size, _BLOCK, FEW),), (_BLOCK,), (means, covariances, y, bordered, *sizes))
        factors = _factors(bordered)
        finish((count,), (_BLOCK,), (factors, log_dets, log_densities, np.int32(n), _i64(first)))


def _pairs_by_library(
    pair_weights: Array, means: Array, covariances: Array, log_dets: Array, first: int, count: int
) -> Array:
    h, n = means.shape
    bordered: Array = cupy.empty((count, n + 1, n + 1))
    out: Array = cupy.empty((count, n + 1))
    border, finish = (load("joint", f"joint_{name}_pairs_f64") for name in ("border", "finish"))
    sizes = (_i64(n), _i64(first), _i64(count))
    border((grid_for(bordered.size, _BLOCK, FEW),), (_BLOCK,), (means, covariances, bordered, *sizes))
    args = (_factors(bordered), pair_weights, means, covariances, log_dets, out, _i64(h), np.int32(n), _i64(first))
    finish((count,), (_BLOCK,), args, shared_mem=16 * n)
    return out


def _factors(matrices: Array) -> Array:
    """Cholesky factors; where there is none, a pivot that is not positive or NaN."""
    with cupyx.errstate(linalg="ignore"):
        factors: Array = cupy.ascontiguousarray(cupy.linalg.cholesky(matrices))
    return factors


def _joint_bytes(n: int) -> int:
    """Shared memory of a pair's factor, bordered by the residual, and two vectors."""
    return 8 * (n * (n + 1) // 2 + 3 * n)


def _row_of(pair: int) -> int:
    """Row i of a place in the strict lower triangle, rows (i, 0), ..., (i, i - 1) one after another."""
    return (math.isqrt(8 * pair + 1) + 1) // 2


def _spans(n: int, bytes_each: int) -> Iterator[tuple[int, int]]:
    """(first, count) of chunks of `n` things within the working memory."""
    step = max(1, min(n, _CHUNK_BYTES // bytes_each))
    for first in range(0, n, step):
        yield first, min(step, n - first)


def _slices(h: int) -> int:
    return -(-(h * (h + 1) // 2) // _SLICE)


def _groups(rows: Array) -> int:
    return -(-len(rows) // _GROUP)


def _sizes(mixture: _Mixture) -> tuple[Any, Any]:
    h, n_points = mixture.means.shape
    return _i64(h), _i64(n_points)


def _i64(n: int) -> Any:
    return np.int64(n)
