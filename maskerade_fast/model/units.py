"""Units: the user's x and y, and the ones that the method works in.

Inside, every input axis is x̃ = (x - min)/R with R its range, and the target is ỹ = (y - mean)/s_y with the
population standard deviation s_y. Mixtures change with them: frequencies (means and scales) are cycles per
unit of x, so m = m̃/R and σ = σ̃/R; weights and noise are variances of y, so w = s_y² w̃.
A density of N targets changes by the Jacobian of y -> ỹ: log p(y) = log p(ỹ) - N log s_y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks import Array
from .._containers import own_arrays, short_repr
from ..backends import on_their_device, to_device_of
from .data import RegressionData, input_window
from .gmm import GMMBatch
from .grid import spread_evenly

_LARGEST = 1e150  # squares of it and of its inverse are still normal float64


@dataclass(frozen=True, eq=False)
class Standardiser:
    """The change of units between the user's x, y and the method's x̃, ỹ.

    Parameters
    ----------
    x_min, x_range : array, shape (D,)
        Smallest value, less `x_origin`, and range R of every axis, units of x; R = 1 for a constant column.
    y_mean, y_scale : float
        Mean and population standard deviation s_y of the targets, units of y; s_y = 1 for constant targets.
    x_origin : array, shape (D,), optional
        What was taken off every axis before x was rounded to float64, units of x; zeros by default, and unless the
        inputs have more digits than float64 (`inputs`).

    Notes
    -----
    Results are float64 whatever comes in. The units themselves are computed on the host.
    """

    x_min: Array
    x_range: Array
    y_mean: float
    y_scale: float
    x_origin: Any = None

    def __post_init__(self) -> None:
        if self.x_origin is None:
            object.__setattr__(self, "x_origin", np.zeros(np.shape(self.x_min)))
        own_arrays(self)

    __repr__ = short_repr

    @classmethod
    def from_data(cls, data: RegressionData, x_origin: Array | None = None) -> Standardiser:
        """Units in which every axis of `data` covers [0, 1] and the targets have mean 0 and variance 1.

        `x_origin` (D,) was taken off `data.X` (`inputs.Inputs`); zeros by default.

        Raises
        ------
        ValueError
            For magnitudes above 1e150 or spreads below 1e-150, whose squares leave the floating-point range.
        """
        _check_magnitudes(data.X, "X")
        _check_magnitudes(data.y[:, None], "y")
        x_min, x_range = input_window(data.X)
        y = data.y.astype(np.float64)
        mean, scale = float(y.mean()), float(y.std())
        if (y == y[0]).all():
            mean, scale = float(y[0]), 0.0  # a rounded mean would leave a spread of one ulp
        if scale <= float(np.finfo(data.y.dtype).eps) * abs(mean):
            scale = 1.0  # nothing but rounding: dividing by it would blow noise up to a signal
        return cls(x_min, x_range, mean, scale, x_origin)

    @classmethod
    def identity(cls, data: RegressionData, x_origin: Array | None = None) -> Standardiser:
        """The user's own units, for ``standardise=False``."""
        return cls(np.zeros(data.n_dims), np.ones(data.n_dims), 0.0, 1.0, x_origin)

    def to_unit(self, data: RegressionData) -> RegressionData:
        """The same data as x̃ and ỹ; a regular grid stays one (`grid.spread_evenly`)."""
        X = spread_evenly(data.X, self.X_to_unit(data.X))
        return RegressionData(X, self.y_to_unit(data.y), data.trend)

    @on_their_device
    def X_to_unit(self, X: Array) -> Array:
        """x, less `x_origin`, -> x̃, shape (N, D); where `X` lives."""
        unit: Array = (X.astype(np.float64) - to_device_of(X, self.x_min)) / to_device_of(X, self.x_range)
        return unit

    def y_to_unit(self, y: Array) -> Array:
        """y -> ỹ, any shape; where `y` lives."""
        unit: Array = (y.astype(np.float64) - self.y_mean) / self.y_scale
        return unit

    def variance_to_unit(self, variance: float) -> float:
        """A variance of y, such as the noise's -> of ỹ."""
        return variance / self.y_scale**2

    @on_their_device
    def mixtures_from_unit(self, mixtures: GMMBatch) -> GMMBatch:
        """Mixtures over x̃ and ỹ -> the same kernels over x and y."""
        frequency, variance = to_device_of(mixtures.means, 1.0 / self.x_range), self.y_scale**2
        noise = mixtures.noise_variances
        return GMMBatch.trusted(
            mixtures.offsets,
            mixtures.weights.astype(np.float64) * variance,
            mixtures.means.astype(np.float64) * frequency,
            mixtures.scales.astype(np.float64) * frequency,
            None if noise is None else noise.astype(np.float64) * variance,
        )

    def log_density_shift(self, n_targets: int) -> float:
        """-N log s_y: add it to a log density of N targets ỹ, or to the log evidence, to get that of y."""
        return -n_targets * math.log(self.y_scale)


def _check_magnitudes(columns: Array, name: str) -> None:
    largest = float(np.abs(columns).max())
    if largest > _LARGEST:
        raise ValueError(f"{name}: a magnitude of {largest:.3g}, expected at most {_LARGEST:g}; rescale the data")
    spreads = np.ptp(columns, axis=0)
    smallest = float(spreads.min(where=spreads > 0.0, initial=np.inf))
    if smallest < 1.0 / _LARGEST:
        raise ValueError(f"{name}: a range of {smallest:.3g}, expected 0 or >= {1.0 / _LARGEST:g}; rescale the data")
