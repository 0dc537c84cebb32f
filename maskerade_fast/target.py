"""The posterior of one data set, as value and gradient in latent coordinates, with a count of what it costs."""

from __future__ import annotations

import math

import numpy as np

from ._checks import Array
from .backends import to_host
from .data import RegressionData
from .gmm import GMMBatch
from .latent import Latent, LatentMap
from .likelihood import log_likelihood
from .prior import Prior

GRADIENT_COST = 3
"""Likelihoods that one with its gradient counts as."""


class Target:
    """The likelihood of one data set over mixtures on the host and over latent coordinates; counts what it is asked.

    Attributes
    ----------
    cost : int
        Likelihoods evaluated, a value with gradient as 3; `evaluations` counts both alike.
    best : float
        Largest log-likelihood so far.
    """

    def __init__(self, data: RegressionData, prior: Prior, device: str) -> None:
        self.data, self.prior, self.device = data, prior, device
        self.evaluations = 0
        self.cost = 0
        self.best = -math.inf

    @property
    def latent_map(self) -> LatentMap:
        """T of the prior."""
        return self.prior.latent_map

    def values(self, mixtures: GMMBatch) -> Array:
        """Log-likelihoods, shape (B,)."""
        values: Array = to_host(
            log_likelihood(mixtures.to(self.device), self.data.X, self.data.y, basis=self.data.basis).value
        )
        self._count(values, 1)
        return values

    def log_posteriors(self, latent: Latent) -> tuple[Array, list[Array]]:
        """Log likelihood + log N(ξ; 0, I) but for its constant, shape (B,), and the gradient in ξ of each."""
        mixtures = self.latent_map.forward(latent)
        result = log_likelihood(mixtures.to(self.device), self.data.X, self.data.y, basis=self.data.basis, grad=True)
        values = to_host(result.value)
        self._count(values, GRADIENT_COST)
        assert result.grad is not None
        gradient = self.latent_map.pullback(latent, result.grad.to("cpu")) - latent.values
        own = np.array([0.5 * float(xi @ xi) for xi in latent.points()])
        return values - own, latent.with_values(gradient).points()

    def charge(self, cost: int) -> None:
        """Count work that is as much as `cost` likelihoods."""
        self.cost += cost

    def _count(self, values: Array, each: int) -> None:
        self.evaluations += len(values)
        self.cost += each * len(values)
        self.best = max(self.best, float(values.max(initial=-math.inf)))
