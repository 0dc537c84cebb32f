"""The hyper-kernel on top of the pairwise distances.

The product with vectors takes a few mixtures of a over the windows of b and adds as many rows of 256 covariances at
a time.
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
    """Turn distances to covariances in the pass that computes them."""
    return pairwise(a, b, power, outputscale, lengthscale)


def covariance_from_distance(distance: Array, *, outputscale: float, lengthscale: float, power: int = 2) -> Array:
    """Map blocks of the flat array on all threads."""
    out = np.array(distance, dtype=np.float64, order="C")
    flat = out.reshape(-1)
    rate = -1.0 / lengthscale**2

    def block(start: int, stop: int) -> None:
        covariance(power, outputscale, rate, stop - start, flat[start:stop])

    run(block, flat.size, 1 << 16, flat.size)
    return out


def hyperkernel_matvec(a: Any, b: Any, v: Array, *, outputscale: float, lengthscale: float, power: int = 2) -> Array:
    """Walk over the windows of b with a few mixtures of a, in memory O(J_a + J_b + (B_a + B_b) k)."""
    out = np.zeros((len(a), v.shape[1]))
    if out.size == 0 or len(b) == 0:
        return out
    lane = b.lanes.lane
    by_lane = np.zeros((v.shape[1], *lane.shape))
    by_lane[:, np.arange(len(b)) // WINDOW, lane.reshape(-1)[: len(b)]] = v.T
    # all windows of the same rows in one block, so that they are added in one order
    walk_tiles(a, b, _ROWS, len(lane), False, (power, outputscale, lengthscale), by_lane, out)
    return out
