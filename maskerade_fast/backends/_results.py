"""What operations on a batch of B mixtures return, for both backends: `xp` is the module numpy or cupy."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._checks import Array


class Likelihoods:
    """Results of a batch of likelihoods; `gradients` are empty unless `grad`."""

    def __init__(self, xp: Any, n_mixtures: int, weights: Array, means: Array, n_noise: int, grad: bool) -> None:
        self.value: Array = xp.empty(n_mixtures)
        self.info: Array = xp.zeros(n_mixtures, dtype=np.int32)
        self.jitter: Array = xp.zeros(n_mixtures)
        self.grad = grad
        shapes = (weights.shape, means.shape, means.shape, (n_mixtures, n_noise))
        self.gradients: list[Array] = [xp.zeros(shape if grad else (0,) * len(shape)) for shape in shapes]

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Value, info, jitter and gradients, as loops and kernels take them."""
        return (self.value, self.info, self.jitter, *self.gradients)

    def of_type(self, dtype: Any) -> tuple[Array, Array, Array, list[Array] | None]:
        """What the operation returns."""
        value, jitter, *gradients = (a.astype(dtype, copy=False) for a in (self.value, self.jitter, *self.gradients))
        return value, self.info, jitter, gradients if self.grad else None


class Predictions:
    """Results of a batch of predictions at M points, NaN to begin with; no covariances unless `full`."""

    def __init__(self, xp: Any, n_mixtures: int, n_new: int, full: bool) -> None:
        self.mean: Array = xp.full((n_mixtures, n_new), np.nan)
        self.variance: Array = xp.full((n_mixtures, n_new), np.nan)
        self.covariance: Array = xp.full((n_mixtures, n_new, n_new) if full else (0, 0, 0), np.nan)
        self.info: Array = xp.zeros(n_mixtures, dtype=np.int32)
        self.full = full

    def of_type(self, dtype: Any) -> tuple[Array, Array, Array | None, Array]:
        """What the operation returns; info is -1 where a variance is negative beyond rounding."""
        self.info[(self.info == 0) & (self.variance != self.variance).any(axis=1)] = -1  # NaN differs from itself
        mean, variance, covariance = (a.astype(dtype, copy=False) for a in (self.mean, self.variance, self.covariance))
        return mean, variance, covariance if self.full else None, self.info
