"""Regression data and the units the method works in.

Inside, every input axis is x̃ = (x - min)/R with R its range, and the target is ỹ = (y - mean)/s_y with the
population standard deviation s_y. Mixtures change with them: frequencies (means and scales) are cycles per
unit of x, so m = m̃/R and σ = σ̃/R; weights and noise are variances of y, so w = s_y² w̃.
A density of N targets changes by the Jacobian of y -> ỹ: log p(y) = log p(ỹ) - N log s_y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import Array, float_array, one_of
from .._containers import cached_property, own_arrays, short_repr
from ..backends import array_namespace, on_their_device, to_device, to_device_of, to_host
from .gmm import GMMBatch
from .grid import spread_evenly
from .inputs import Inputs
from .trend import TRENDS, trend_basis

_LARGEST = 1e150  # squares of it and of its inverse are still normal float64


@dataclass(frozen=True, eq=False)
class RegressionData:
    """Inputs and targets, checked when they are put together.

    Parameters
    ----------
    X : array-like, shape (N, D) or (N,)
        A 1-D array is one column. float32 stays float32, other real types become float64.
    y : array-like, shape (N,)
    trend : {"none", "constant", "linear"}
        What the targets are modelled with beside the Gaussian process (`trend.trend_basis`).

    Raises
    ------
    ValueError
        For N = 0 or D = 0, unequal lengths, wrong numbers of dimensions, NaN or infinity.
    TypeError
        For arrays that are not real numbers, or that live on different devices.
    """

    X: Array
    y: Array
    trend: str = "none"

    if TYPE_CHECKING:  # array-likes become arrays

        def __init__(self, X: Any, y: Any, trend: str = ...): ...

    @on_their_device
    def __post_init__(self) -> None:
        object.__setattr__(self, "X", input_array(self.X, "X"))
        object.__setattr__(self, "y", float_array(self.y, "y", ndim=1))
        if len(self.y) != len(self.X):
            raise ValueError(f"y: {len(self.y)} targets beside {len(self.X)} rows of X, expected as many")
        array_namespace(self.X, self.y)  # refuses a mixture of devices
        one_of(self.trend, "trend", TRENDS)
        own_arrays(self)

    __repr__ = short_repr

    def to(self, device: str) -> RegressionData:
        """The same data on "cpu" or "gpu"."""
        return RegressionData(to_device(self.X, device), to_device(self.y, device), self.trend)

    @cached_property
    def basis(self) -> Array | None:
        """Basis functions of the trend at X, shape (N, q); None without a trend."""
        return self.basis_at(self.X)

    @on_their_device
    def basis_at(self, X: Array) -> Array | None:
        """Basis functions of the trend at any points (M, D) in the units of this X: (M, q), or None."""
        if self.trend == "none":
            return None
        window = input_window(to_host(self.X))
        x_min, x_range = (to_device_of(X, edge) for edge in window)
        rms = float((self.y.astype(np.float64) ** 2).mean()) ** 0.5
        return trend_basis(self.trend, (X.astype(np.float64) - x_min) / x_range, rms if rms > 0.0 else 1.0)

    @property
    def n_points(self) -> int:
        """N."""
        return len(self.X)

    @property
    def n_dims(self) -> int:
        """D."""
        return int(self.X.shape[1])


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


def input_array(X: Any, name: str) -> Array:
    """`X` as a checked (N, D) array; a 1-D array is one column. Less its origins, where float64 has too few digits.

    Raises
    ------
    ValueError
        For N = 0 or D = 0, other numbers of dimensions, NaN or infinity.
    TypeError
        For arrays that are not real numbers.
    """
    array = Inputs.of(X, name).numbers
    if array.size == 0:
        raise ValueError(f"{name}: shape {array.shape}, expected at least one row and one column")
    return array


def input_window(X: Array) -> tuple[Array, Array]:
    """Smallest value and range R of every column of a checked (N, D) array; R = 1 for a constant column."""
    X = X.astype(np.float64)
    x_min: Array = X.min(axis=0)
    x_range: Array = X.max(axis=0) - x_min
    return x_min, np.where(x_range > 0.0, x_range, 1.0)


def _check_magnitudes(columns: Array, name: str) -> None:
    largest = float(np.abs(columns).max())
    if largest > _LARGEST:
        raise ValueError(f"{name}: a magnitude of {largest:.3g}, expected at most {_LARGEST:g}; rescale the data")
    spreads = np.ptp(columns, axis=0)
    smallest = float(spreads.min(where=spreads > 0.0, initial=np.inf))
    if smallest < 1.0 / _LARGEST:
        raise ValueError(f"{name}: a range of {smallest:.3g}, expected 0 or >= {1.0 / _LARGEST:g}; rescale the data")
