"""A batch of mixtures: its results, and the workers that go through it, each with a workspace, within the memory bound.

What likelihoods and predictions, dense and on grids, have in common around their loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from ..._checks import Array
from ..._memory import workers_that_fit
from ._likelihood_loops import LikelihoodResults
from ._parallel import parallel_for

Space = TypeVar("Space")

# Of the batch for each worker: few enough to cost nothing, so many that the last to finish keeps no one waiting long
_PIECES = 16


class Workers(Generic[Space]):
    """As many workers as fit, `most` at most, each with a workspace of its own.

    Parameters
    ----------
    most : int
        Workers that could be used.
    bytes_each : int
        Working memory of one.
    max_bytes : int or None
        Bound for all together; None: half of what is free.
    what : str
        What one holds, for the MemoryError that says that none fits.
    space : callable
        Makes a workspace.
    """

    def __init__(
        self, most: int, bytes_each: int, max_bytes: int | None, what: str, space: Callable[[], Space]
    ) -> None:
        self.count = workers_that_fit(most, bytes_each, max_bytes, what)
        self.spaces = [space() for _ in range(self.count)]

    def across(self, kernel: Callable[[Space, int, int], None], n_mixtures: int) -> None:
        """Call ``kernel(space, start, stop)`` for pieces of the batch."""

        def piece(start: int, stop: int) -> None:
            space = self.spaces.pop()  # lists are thread-safe
            try:
                kernel(space, start, stop)
            finally:
                self.spaces.append(space)

        parallel_for(piece, n_mixtures, max(1, n_mixtures // (_PIECES * self.count)), threads=self.count)


class Likelihoods:
    """Results of a batch of likelihoods; `gradients` are empty unless `grad`."""

    def __init__(self, n_mixtures: int, weights: Array, means: Array, n_noise: int, grad: bool) -> None:
        self.value = np.empty(n_mixtures)
        self.info = np.zeros(n_mixtures, dtype=np.int32)
        self.jitter = np.zeros(n_mixtures)
        self.grad = grad
        shapes = (weights.shape, means.shape, means.shape, (n_mixtures, n_noise))
        self.gradients = [np.zeros(shape if grad else (0,) * len(shape)) for shape in shapes]

    @property
    def arrays(self) -> LikelihoodResults:
        """As the compiled loops take them."""
        return LikelihoodResults(self.value, self.info, self.jitter, *self.gradients)

    def of_type(self, dtype: Any) -> tuple[Array, Array, Array, list[Array] | None]:
        """What the operation returns."""
        value, jitter, *gradients = (a.astype(dtype, copy=False) for a in (self.value, self.jitter, *self.gradients))
        return value, self.info, jitter, gradients if self.grad else None


class Predictions:
    """Results of a batch of predictions at M points, NaN to begin with; no covariances unless `full`."""

    def __init__(self, n_mixtures: int, n_new: int, full: bool) -> None:
        self.mean = np.full((n_mixtures, n_new), np.nan)
        self.variance = np.full((n_mixtures, n_new), np.nan)
        self.covariance = np.full((n_mixtures, n_new, n_new) if full else (0, 0, 0), np.nan)
        self.info = np.zeros(n_mixtures, dtype=np.int32)
        self.full = full

    def of_type(self, dtype: Any) -> tuple[Array, Array, Array | None, Array]:
        """What the operation returns; info is -1 where a variance is negative beyond rounding."""
        self.info[(self.info == 0) & np.isnan(self.variance).any(axis=1)] = -1
        mean, variance, covariance = (a.astype(dtype, copy=False) for a in (self.mean, self.variance, self.covariance))
        return mean, variance, covariance if self.full else None, self.info
