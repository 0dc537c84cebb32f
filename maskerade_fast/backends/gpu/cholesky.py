"""Cholesky factors of matrices, by panels through all of the card (`_blocked`)."""

from __future__ import annotations

import cupy
import numpy as np

from ..._checks import Array
from .. import to_host
from ._blocked import EPS, RETRIES, WIDTH, factor, jitters_of, padded
from ._loader import device_of
from ._mixtures import kernel_array

__all__ = ["cholesky"]

CHUNK_BYTES = 256 * 2**20  # matrices at a time, or one


def cholesky(matrices: Array, jitter: float = 0.0) -> tuple[Array, Array, Array]:
    """Factor all matrices panel by panel through all of the card; those that fail go again one by one."""
    return factored(matrices, jitter, WIDTH)


def factored(matrices: Array, jitter: float, width: int) -> tuple[Array, Array, Array]:
    """`cholesky` by blocks of `width` columns."""
    with device_of(matrices):
        originals = kernel_array(matrices)
        out = cupy.zeros(originals.shape)
        info = cupy.zeros(len(originals), dtype=np.int32)
        added = cupy.zeros(len(originals))
        if originals.size:
            at_a_time = max(1, CHUNK_BYTES // (8 * padded(originals.shape[1]) ** 2))
            for start in range(0, len(originals), at_a_time):
                stop = start + at_a_time
                _factor_batch(
                    originals[start:stop], jitter, width, out[start:stop], info[start:stop], added[start:stop]
                )
        dtype = matrices.dtype
        return out.astype(dtype, copy=False), info, added.astype(dtype, copy=False)


def _factor_batch(originals: Array, jitter: float, width: int, out: Array, info: Array, added: Array) -> None:
    """Factors of a few matrices; those that fail are tried again one by one."""
    diagonals = cupy.diagonal(originals, axis1=1, axis2=2)
    waiting = [slice(0, len(originals))]
    for attempt in range(RETRIES + 1 if jitter else 1):
        failed = []
        for part in waiting:
            added[part] = jitters_of(attempt, jitter, diagonals[part].mean(axis=1))
            codes = _factor_slice(originals[part], added[part], width, out[part])
            info[part] = codes
            failed += [slice(b, b + 1) for b in (part.start + np.flatnonzero(to_host(codes))).tolist()]
        waiting = failed
    lower = cupy.tri(originals.shape[1], dtype=bool)
    for part in waiting:
        added[part] = 0.0
        out[part] = cupy.where(lower, cupy.nan, 0.0)


def _factor_slice(originals: Array, added: Array, width: int, out: Array) -> Array:
    """Factors of matrices with `added` on their diagonals into `out`; returns info."""
    count, n_points, _ = originals.shape
    n = padded(n_points)
    diagonals = cupy.diagonal(originals, axis1=1, axis2=2)
    largest = cupy.where(cupy.isnan(diagonals), -cupy.inf, diagonals).max(axis=1) + added

    matrices: Array = cupy.zeros((count, n, n))
    matrices[:, :n_points, :n_points] = originals
    own, beyond = cupy.arange(n_points), cupy.arange(n_points, n)
    matrices[:, own, own] += added[:, None]
    matrices[:, beyond, beyond] = cupy.maximum(largest, 1.0)[:, None]
    factors = factor(matrices, n_points * EPS * largest, width)
    out[...] = cupy.tril(matrices[:, :n_points, :n_points])
    return factors.info
