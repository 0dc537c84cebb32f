"""Gaussian process predictions for a batch of mixtures.

Gram matrices and their factors come from `gram` and `cholesky`; then blocks of `gp_solve_f64` solve V = L^-1 K(X, X*)
for a few test points each, with mean V'z, z = L^-1 y, and latent variance k(0) - |v|^2 on the way: no explicit inverse,
which would lose variances where C is ill-conditioned. A test point's sums are taken in the order of the data alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import cupy
import numpy as np

from ..._checks import Array
from .._results import Predictions
from ._blocked import padded
from ._gp_chunks import GP_BLOCK, chunk_of, subtract_squares, tiles_of
from ._loader import device_of, load
from ._mixtures import Mixtures, kernel_array, mixtures_of
from .cholesky import cholesky
from .gram import gram

__all__ = ["predict_gp"]

_POINTS = 31  # test points that a block solves for, as in kernels/gp.cu
_COLUMNS = 128  # test points that must fit beside one matrix, where there are as many


class Chunk(NamedTuple):
    """Some mixtures and the factors of their covariances."""

    mixtures: Mixtures
    factors: Array
    largest_noise: Array
    """Largest noise and trend plus jitter of each, (B,)."""


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
    """Factor chunks of mixtures, then solve for blocks of test points."""
    with device_of(weights, means, scales, X, y, noise, X_new):
        dtype = np.result_type(*(a.dtype for a in (weights, X, y, X_new)))
        n_mixtures, n_new = len(offsets) - 1, len(X_new)
        mixtures = mixtures_of(offsets, weights, means, scales, per_axis)
        X, y, noise, X_new = map(kernel_array, (X, y, noise, X_new))
        V, V_new = (kernel_array(a) if a is not None else None for a in (basis, basis_new))
        results = Predictions(cupy, n_mixtures, n_new, full)
        height, width = _shape_of_chunks(n_mixtures, len(X), n_new, full, max_bytes, trend=V is not None)
        for start, stop in _spans(n_mixtures, height):
            chunk, results.info[start:stop] = _factored(mixtures, X, noise, V, start, stop, jitter)
            own = results.covariance[start:stop] if full else None
            for first, last in _spans(n_new, width):
                filled = (results.mean[start:stop], results.variance[start:stop], own)
                _predict(chunk, X, y, X_new, V, V_new, first, last, *filled)
        return results.of_type(dtype)


def _factored(
    mixtures: Mixtures, X: Array, noise: Array, basis: Array | None, start: int, stop: int, jitter: float
) -> tuple[Chunk, Array]:
    """Factors of the mixtures ``start : stop``, and their info."""
    part = mixtures_of(*mixtures.part(start, stop), mixtures.per_axis)
    rows = noise[start:stop] if len(noise) > 1 else noise
    matrices = gram(part.edges, part.weights, part.means, part.scales, X, None, rows, per_axis=part.per_axis)
    if basis is not None:
        matrices += _outer(basis, basis)
        rows = rows + (basis * basis).sum(axis=1)
    factors, info, added = cholesky(matrices, jitter)
    return Chunk(part, factors, cupy.ascontiguousarray(rows.max(axis=1) + added)), info


def _predict(
    chunk: Chunk,
    X: Array,
    y: Array,
    X_new: Array,
    basis: Array | None,
    basis_new: Array | None,
    first: int,
    last: int,
    mean: Array,
    variance: Array,
    covariance: Array | None,
) -> None:
    """Predictions at the test points ``first : last``, all of them where there is a `covariance`."""
    part = chunk.mixtures
    size, n_points, n_new = len(part.edges) - 1, len(X), last - first
    batch = (part.edges, part.weights, part.means, part.scales)
    points, nothing = X_new[first:last], cupy.zeros((1, 1))
    cross = gram(*batch, X, points, nothing, per_axis=part.per_axis)
    functions = basis_new[first:last] if basis_new is not None else None
    if basis is not None and functions is not None:
        cross += _outer(basis, functions)
    tiles = -(-n_new // _POINTS)
    whitened = cupy.empty((size, tiles, n_points))
    sizes = tuple(np.int64(n) for n in (n_points, n_new, len(X_new), first))
    components = (part.offsets, part.weights)
    args = (chunk.factors, y, *components, cross, whitened, mean, variance, *sizes)
    load("gp", "gp_solve_f64")((size * tiles,), (GP_BLOCK,), args)
    if functions is not None:
        variance[:, first:last] += (functions * functions).sum(axis=1)
    if covariance is not None:
        covariance[...] = gram(*batch, points, None, nothing, per_axis=part.per_axis)
        if functions is not None:
            covariance += _outer(functions, functions)
        subtract_squares(cross, covariance)
    args = (chunk.factors, *components, chunk.largest_noise, cross, variance, *sizes)  # last: it overwrites V
    load("gp", "gp_clip_f64")((size * tiles_of(n_new),), (GP_BLOCK,), args)
    if covariance is not None:
        diagonal = cupy.arange(n_new)
        covariance[:, diagonal, diagonal] = variance


def _outer(left: Array, right: Array) -> Array:
    """``left @ right.T``, each entry summed in order, whatever the others are: a library's product would not be."""
    product: Array = left[:, :1] * right[:, 0]
    for column in range(1, left.shape[1]):
        product += left[:, column : column + 1] * right[:, column]
    return product


def _shape_of_chunks(
    n_mixtures: int, n_points: int, n_new: int, full: bool, max_bytes: int | None, *, trend: bool
) -> tuple[int, int]:
    def needed(width: int) -> int:  # a matrix, its factor, two in the making, and columns with their whitened targets
        columns = n_points * (width + -(-width // _POINTS))
        outer = 2 * max(n_points**2, n_points * width, n_new**2 if full else 0) if trend else 0  # a product in work
        return 8 * (4 * padded(n_points) ** 2 + columns + outer + (n_new**2 if full else 0))

    least = n_new if full else min(n_new, _COLUMNS)
    return chunk_of(n_mixtures, n_new, least, needed, max_bytes, f"one matrix of {n_points} points")


def _spans(n: int, step: int) -> Iterator[tuple[int, int]]:
    for start in range(0, n, step):
        yield start, min(start + step, n)
