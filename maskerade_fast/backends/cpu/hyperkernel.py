"""The hyper-kernel outputscale * exp(-E^(power/2) / lengthscale^2) on top of the pairwise distances.

docs/mathematics.md section 3.

Nothing of size B_a x B_b is formed by the product with vectors: a few mixtures of a walk over the windows of b
and add as many rows of 256 covariances at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._checks import Array
from ._distance_loops import covariance
from ._distance_tiles import WINDOW
from .distances import pairwise, run, walk_tiles

__all__ = ["covariance_from_distance", "hyperkernel", "hyperkernel_matvec"]

_ROWS = 16  # of a product's blocks: few mixtures of a share threads too


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
    lane = b.lanes.lane
    by_lane = np.zeros((v.shape[1], *lane.shape))
    by_lane[:, np.arange(len(b)) // WINDOW, lane.reshape(-1)[: len(b)]] = v.T
    # all windows of the same rows in one block, so that they are added in one order
    walk_tiles(a, b, _ROWS, len(lane), False, (power, outputscale, lengthscale), by_lane, out)
    return out
