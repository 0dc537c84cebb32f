"""The hyper-kernel outputscale * exp(-E^(power/2) / lengthscale^2) on top of the pairwise distances.

docs/mathematics.md section 3.

Nothing of size B_a x B_b is formed by the product with vectors: a few mixtures of a walk over the windows of b
and add as many rows of 256 covariances at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ..._checks import Array
from ._distance_kernels import LEADING, WINDOW, covariance, fill_tile
from .distances import native, pairwise, run

__all__ = ["covariance_from_distance", "hyperkernel", "hyperkernel_matvec"]


def hyperkernel(a: Any, b: Any = None, *, outputscale: float, lengthscale: float, power: int = 2) -> Array:
    """Covariance of every mixture of `a` with every one of `b`, in one pass over the pairs.

    Parameters
    ----------
    a, b
        From `prepare_atoms`. Without `b`: `a` with itself, exactly symmetric with `outputscale` on the
        diagonal.
    outputscale, lengthscale : float
        lambda^2 and l.
    power : {1, 2}

    Returns
    -------
    (B_a, B_b) float64
    """
    return pairwise(a, b, power, outputscale, lengthscale)


def covariance_from_distance(distance: Array, *, outputscale: float, lengthscale: float, power: int = 2) -> Array:
    """outputscale * exp(-E^(power/2) / lengthscale^2) of an array of any shape, E >= 0; float64."""
    out = np.array(distance, dtype=np.float64, order="C")
    flat = out.reshape(-1)
    rate = -1.0 / lengthscale**2

    def block(start: int, stop: int) -> None:
        covariance(power, outputscale, rate, stop - start, flat[start:stop])

    run(block, flat.size, 1 << 16, flat.size)
    return out


def hyperkernel_matvec(a: Any, b: Any, v: Array, *, outputscale: float, lengthscale: float, power: int = 2) -> Array:
    """Product of `hyperkernel(a, b)` with vectors, in memory O(J_a + J_b + (B_a + B_b) k).

    Parameters
    ----------
    a, b
        From `prepare_atoms`.
    v : (B_b, k)

    Returns
    -------
    (B_a, k) float64
    """
    out = np.zeros((len(a), v.shape[1]))
    if out.size == 0 or len(b) == 0:
        return out
    lanes = b.lanes
    by_lane = np.zeros((len(lanes.lane), v.shape[1], WINDOW))
    by_lane[np.arange(len(b)) // WINDOW, :, lanes.lane.reshape(-1)[: len(b)]] = v
    vectors = native(by_lane, np.float64)

    def block(start: int, stop: int) -> None:
        _matvec(
            start, stop, power, outputscale, -1.0 / lengthscale**2,
            a.offsets, a.weights, a.points, a.data, a.n_reflect, a.bandwidth,
            lanes.atoms, lanes.widths, lanes.starts, lanes.data, vectors, out,
        )  # fmt: skip

    run(block, len(a), 16, len(a.weights) * len(b.weights))
    return out


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _matvec(
    start: int, stop: int, power: int, outputscale: float, rate: float, offsets: Array, weights: Array,
    points: Array, data: Array, n_reflect: int, bandwidth: float, atoms: Array, widths: Array,
    starts: Array, data_b: Array, vectors: Array, out: Array,
) -> None:  # fmt: skip
    """Rows [start, stop) of `out`; windows outermost, so that one stays in cache for the whole block."""
    n_rows = stop - start
    totals, u, v = np.empty((n_rows, LEADING)), np.zeros(WINDOW), np.empty(WINDOW)
    for window in range(len(starts) - 1):
        first, last = starts[window], starts[window + 1]
        fill_tile(
            atoms, widths, first, last, data_b, window, offsets, weights, points, data, start, n_rows, n_reflect,
            bandwidth, power, outputscale, rate, totals, u, v,
        )  # fmt: skip
        for r in range(n_rows):
            for k in range(vectors.shape[1]):
                out[start + r, k] += _dot(vectors, window, k, widths[first], totals[r])


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator]
def _dot(vectors: Array, window: int, k: int, width: int, row: Array) -> float:
    total = 0.0
    for l in range(width):
        total += vectors[window, k, l] * row[l]
    return total
