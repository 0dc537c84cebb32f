"""Log-likelihoods and predictions on regular 1-D grids, where a covariance is Toeplitz (kernels/toeplitz.cu).

A likelihood is Schur's algorithm by one block of threads a matrix: O(N^2) time and O(N) memory. A prediction writes
the factor it makes, in O(N^2) time, and goes on as on any other inputs: it needs the memory of a matrix or more.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from ..._checks import Array
from ...backends import to_host
from . import gp
from ._loader import device_of, load
from ._mixtures import BLOCK, Mixtures, diagonal_levels, mixtures_of, native, phase_tables, planned_chunks

__all__ = ["toeplitz_log_likelihood", "toeplitz_predict_gp"]


def lags_of(X: Array) -> Array:
    """Lags of a sorted regular grid X (N, 1) from its first point, (1, N), each rounded twice; exact for integers."""
    x = native(X[:, 0])
    lags: Array = ((x[-1:] - x[:1]) * cupy.arange(len(x), dtype=np.float64) / max(len(x) - 1, 1))[None]
    return lags


def toeplitz_log_likelihood(
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    X: Array,
    y: Array,
    noise: Array,
    *,
    jitter: float,
    grad: bool,
    max_bytes: int | None,
) -> tuple[Array, Array, Array, list[Array] | None]:
    """Log-likelihoods of a batch on a regular grid and their gradients, in float64 and in the inputs' type.

    Parameters
    ----------
    offsets, weights, means, scales : arrays of a GMMBatch in one dimension: (B + 1,), (J,), (J, 1), (J, 1)
    X, y : arrays, shape (N, 1) and (N,); X equally spaced and ascending, N >= 1
    noise : array, shape (B or 1, 1)
    jitter, grad, max_bytes
        As in `log_likelihood`.

    Returns
    -------
    value (B,), info (B,) int32, shift (B,) : arrays
    gradients : None, or a list of d weights (J,), d means (J, 1), d scales (J, 1), d noise (B, 1)

    Raises
    ------
    MemoryError
        If one matrix needs more than `max_bytes`.
    """
    with device_of(weights, means, scales, X, y, noise):
        n_mixtures, n_points = len(offsets) - 1, len(X)
        dtype = np.result_type(weights.dtype, X.dtype, y.dtype)
        results = _Results(n_mixtures)
        gradients: list[Array] = [cupy.zeros(a.shape if grad else (1,)) for a in (weights, means, scales)]
        gradients.append(cupy.zeros((n_mixtures, 1)))
        if n_mixtures:
            mixtures = mixtures_of(offsets, weights, means, scales, False)
            lags, targets = lags_of(X), native(y)
            levels = diagonal_levels(mixtures, native(noise))
            each, per_component = 8 * n_points * (9 if grad else 6), 16 * n_points
            what = f"working memory for one Toeplitz matrix of {n_points} points"
            for start, stop in planned_chunks(mixtures.edges, each, per_component, max_bytes, what):
                tables, scratch = _schur(mixtures, lags, targets, levels, jitter, grad, start, stop, results, None)
                if grad:
                    _gradients(mixtures, lags, tables, scratch, start, stop, results, gradients)
        cast = [a.astype(dtype, copy=False) for a in (results.value, results.shift, *gradients)]
        return cast[0], results.info, cast[1], cast[2:] if grad else None


class _Results:
    """What the kernel says of each mixture."""

    def __init__(self, n_mixtures: int) -> None:
        self.value: Array = cupy.empty(n_mixtures)
        self.info: Array = cupy.zeros(n_mixtures, dtype=np.int32)
        self.shift: Array = cupy.zeros(n_mixtures)
        self.pivots: Array = cupy.empty(n_mixtures)
        self.ends: Array = cupy.zeros(n_mixtures, dtype=np.int32)


def _schur(
    mixtures: Mixtures,
    lags: Array,
    y: Array,
    levels: Array,
    jitter: float,
    whole: bool,
    start: int,
    stop: int,
    results: _Results,
    factors: Array | None,
) -> tuple[Array, Array]:
    """Schur's algorithm on mixtures ``start : stop``; returns their phase tables and what it leaves behind.

    With `factors` (count, N, N) their lower triangles receive the factors.
    """
    n = len(y)
    tables = phase_tables(mixtures, lags, cupy.zeros(1), start, stop)
    scratch: Array = cupy.empty((stop - start, 2, (4 if whole else 3) * n))
    outputs = (results.value, results.info, results.shift, results.pivots, results.ends)
    out = cupy.empty(1) if factors is None else factors
    kernel = load("toeplitz", "toeplitz_schur_f64", MF_WHOLE=int(whole), MF_FACTOR=int(factors is not None))
    kernel(
        (stop - start,),
        (BLOCK,),
        (
            *(mixtures.weights, mixtures.scales, mixtures.offsets, lags, tables, y, levels, scratch, *outputs, out),
            *(np.float64(jitter), np.int64(start), np.int32(n)),
        ),
    )
    return tables, scratch


def _gradients(
    mixtures: Mixtures,
    lags: Array,
    tables: Array,
    scratch: Array,
    start: int,
    stop: int,
    results: _Results,
    gradients: list[Array],
) -> None:
    count, n = stop - start, lags.shape[1]
    sums: Array = cupy.empty((count, n))
    sizes = (np.int64(start), np.int32(n))
    macros = {"MF_WHOLE": 1, "MF_FACTOR": 0}
    args: tuple[Any, ...] = (scratch, results.ends, results.info, results.pivots, sums)
    load("toeplitz", "toeplitz_sums_f64", **macros)((count * -(-n // BLOCK),), (BLOCK,), (*args, *sizes))
    batch = (mixtures.weights, mixtures.scales, mixtures.offsets)
    args = (*batch, lags, tables, sums, *gradients)
    load("toeplitz", "toeplitz_gradient_f64", **macros)((count,), (BLOCK,), (*args, *sizes))


def toeplitz_predict_gp(
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    X: Array,
    y: Array,
    noise: Array,
    X_new: Array,
    *,
    full: bool,
    jitter: float,
    max_bytes: int | None,
) -> tuple[Array, Array, Array | None, Array]:
    """Latent predictions of a batch from data on a regular grid, in float64 and returned in the inputs' type.

    Parameters
    ----------
    offsets, weights, means, scales : arrays of a GMMBatch in one dimension: (B + 1,), (J,), (J, 1), (J, 1)
    X, y : arrays, shape (N, 1) and (N,); X equally spaced and ascending, N >= 1
    noise : array, shape (B or 1, 1)
    X_new : array, shape (M, 1)
        Any points, also off the grid.
    full, jitter, max_bytes
        As in `predict_gp`.

    Returns
    -------
    mean, variance : arrays, shape (B, M)
    covariance : array, shape (B, M, M), or None
    info : array of int32, shape (B,)

    Raises
    ------
    MemoryError
        If one matrix and one block of test points need more than `max_bytes`.
    """
    with device_of(weights, means, scales, X, y, noise, X_new):
        dtype = np.result_type(*(a.dtype for a in (weights, X, y, X_new)))
        mixtures = mixtures_of(offsets, weights, means, scales, False)
        X, y, noise, X_new = (native(a) for a in (X, y, noise, X_new))
        lags = lags_of(X)

        def factored(start: int, stop: int) -> tuple[gp.Chunk, Array]:
            return _factored(mixtures, lags, y, noise, start, stop, jitter)

        return gp.predictions(factored, len(offsets) - 1, X, y, X_new, None, None, full, max_bytes, dtype)


def _factored(
    mixtures: Mixtures, lags: Array, y: Array, noise: Array, start: int, stop: int, jitter: float
) -> tuple[gp.Chunk, Array]:
    """Factors of the mixtures ``start : stop``, NaN where there is none, and their info."""
    first, last = int(mixtures.edges[start]), int(mixtures.edges[stop])
    weights, means, scales = (a[first:last] for a in (mixtures.weights, mixtures.means, mixtures.scales))
    part = mixtures_of(mixtures.edges[start : stop + 1] - first, weights, means, scales, False)
    rows = cupy.ascontiguousarray(noise[start:stop] if len(noise) > 1 else noise)
    count, n = stop - start, len(y)
    results = _Results(count)
    factors: Array = cupy.zeros((count, n, n))
    _schur(part, lags, y, diagonal_levels(part, rows), jitter, False, 0, count, results, factors)
    for b in np.flatnonzero(to_host(results.info)).tolist():
        factors[b] = cupy.nan
    return gp.Chunk(part, factors, cupy.ascontiguousarray(rows[:, 0] + results.shift)), results.info
