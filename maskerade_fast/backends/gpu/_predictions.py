"""What predictions from dense factors and on grids have in common: their results, and covariances less squares."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from ..._checks import Array
from ._loader import load

# As in kernels/gp.cu
GP_BLOCK = 256
_TILE = 32


class Predictions:
    """Results of a batch of predictions at M points, NaN to begin with; no covariances unless `full`."""

    def __init__(self, n_mixtures: int, n_new: int, full: bool) -> None:
        self.mean: Array = cupy.full((n_mixtures, n_new), np.nan)
        self.variance: Array = cupy.full((n_mixtures, n_new), np.nan)
        self.covariance: Array | None = cupy.full((n_mixtures, n_new, n_new), np.nan) if full else None

    def at(self, mixtures: slice, points: slice) -> tuple[Array, Array, Array | None]:
        """Parts for some mixtures and test points, to be filled; covariances are those of all points."""
        own = None if self.covariance is None else self.covariance[mixtures]
        return self.mean[mixtures, points], self.variance[mixtures, points], own

    def of_type(self, dtype: Any, info: Array) -> tuple[Array, Array, Array | None, Array]:
        """What the operation returns; `info` becomes -1 where a variance is negative beyond rounding."""
        info[(info == 0) & cupy.isnan(self.variance).any(axis=1)] = -1
        mean, variance = (a.astype(dtype, copy=False) for a in (self.mean, self.variance))
        return mean, variance, None if self.covariance is None else self.covariance.astype(dtype, copy=False), info


def tiles_of(n_new: int) -> int:
    """Tiles of so many test points, as the kernels take them."""
    return -(-n_new // _TILE)


def subtract_squares(whitened: Array, covariance: Array) -> None:
    """Subtract V'V from `covariance` (count, M, M), V = `whitened` (count, N, M)."""
    count, n_points, n_new = whitened.shape
    side = tiles_of(n_new)
    args = (whitened, covariance, np.int64(n_points), np.int64(n_new))
    load("gp", "gp_covariance_f64")((count * (side * (side + 1) // 2),), (GP_BLOCK,), args)
