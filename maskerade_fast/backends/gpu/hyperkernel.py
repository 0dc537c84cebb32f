"""The hyper-kernel on top of the pairwise distances.

In the product with vectors a block of threads has the covariances of one tile of pairs in shared memory and writes
a partial sum over the tile's 16 mixtures of b. The bits of a row depend neither on the other rows nor on the number of
partial sums that are kept at a time.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from ..._checks import Array
from ._loader import device_of, load
from ._mixtures import FEW, grid_for, kernel_array
from .distances import (
    PAIR_THREADS,
    TILE_A,
    TILE_B,
    add_partial_sums,
    pairwise,
    parameters,
    partial_sums_for,
    right_hand_side,
)

__all__ = ["covariance_from_distance", "hyperkernel", "hyperkernel_matvec"]


def hyperkernel(a: Any, b: Any = None, *, outputscale: float, lengthscale: float, power: int = 2) -> Array:
    """Turn distances to covariances in the block that computes them."""
    return pairwise(a, b, power, outputscale, lengthscale)


def covariance_from_distance(distance: Array, *, outputscale: float, lengthscale: float, power: int = 2) -> Array:
    """Copy the distances and map them in place by one launch."""
    with device_of(distance):
        out: Array = cupy.array(distance, dtype=np.float64, order="C")
        if out.size:
            args = (out, np.int64(out.size), *parameters(power, outputscale, lengthscale))
            load("hyperkernel", "covariance_f64")((grid_for(out.size, TILE_A, FEW),), (TILE_A,), args)
        return out


def hyperkernel_matvec(a: Any, b: Any, v: Array, *, outputscale: float, lengthscale: float, power: int = 2) -> Array:
    """Write the products of tiles as partial sums, within PARTIAL_BYTES, and add these in order."""
    with device_of(a.points, b.points, v):
        vectors = kernel_array(v)
        out: Array = cupy.zeros((len(a), vectors.shape[1]))
        if out.size == 0 or len(b) == 0:
            return out
        n_tiles = -(-len(b) // TILE_B)
        partial_sums = partial_sums_for(out, n_tiles)
        kernel = a.kernel("hyperkernel", "product_f64", a.mixed)
        args = (a.offsets, a.weights, a.points, a.data, a.starts, *right_hand_side(b), vectors, partial_sums)
        shape = (np.int32(vectors.shape[1]), np.int32(a.n_dims), np.int32(a.data.shape[1]), np.float64(a.bandwidth))
        for first in range(0, n_tiles, len(partial_sums)):
            count = min(len(partial_sums), n_tiles - first)
            sizes = (np.int64(len(a)), np.int64(len(b)), np.int64(first), np.int32(count), *shape)
            settings = parameters(power, outputscale, lengthscale)
            kernel((a.n_tiles * count,), (PAIR_THREADS,), (*args, *sizes, *settings))
            add_partial_sums(a.kernel("hyperkernel", "add_partial_sums_f64", a.mixed), partial_sums, out, count)
        return out
