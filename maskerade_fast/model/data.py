"""Regression data: inputs, targets and a trend, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import Array, float_array, one_of
from .._containers import cached_property, own_arrays, short_repr
from ..backends import array_namespace, on_their_device, to_device, to_device_of, to_host
from .inputs import Inputs
from .trend import TRENDS, trend_basis


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
