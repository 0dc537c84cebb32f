"""The posterior of one data set, as value and gradient in latent coordinates, with a count of what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ._checks import Array
from .backends import to_host
from .checkpoint import Unrecorded
from .data import RegressionData
from .gmm import GMMBatch, GMMGradient
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
    record : Unrecorded
        Where likelihoods are asked for: a `Journal` answers those that it has.
    """

    def __init__(self, data: RegressionData, prior: Prior, device: str, record: Unrecorded | None = None) -> None:
        self.data, self.prior, self.device = data, prior, device
        self.record = Unrecorded() if record is None else record
        self.evaluations = 0
        self.cost = 0
        self.best = -math.inf

    @property
    def latent_map(self) -> LatentMap:
        """T of the prior."""
        return self.prior.latent_map

    def values(self, mixtures: GMMBatch) -> Array:
        """Log-likelihoods, shape (B,)."""
        (values,) = self._evaluated(mixtures, grad=False)
        self._count(values, 1)
        return values

    def log_posteriors(self, latent: Latent) -> tuple[Array, list[Array]]:
        """Log likelihood + log N(ξ; 0, I) but for its constant, shape (B,), and the gradient in ξ of each."""
        mixtures = self.latent_map.forward(latent)
        values, *parts = self._evaluated(mixtures, grad=True)
        self._count(values, GRADIENT_COST)
        gradient = self.latent_map.pullback(latent, GMMGradient(*parts)) - latent.values
        own = np.array([0.5 * float(xi @ xi) for xi in latent.points()])
        return values - own, latent.with_values(gradient).points()

    def charge(self, cost: int) -> None:
        """Count work that is as much as `cost` likelihoods."""
        self.cost += cost

    def _evaluated(self, mixtures: GMMBatch, *, grad: bool) -> Sequence[Array]:
        """Log-likelihoods, and their gradients in weights, means, scales and noise variance if asked for."""

        def evaluate() -> Sequence[Array]:
            placed = mixtures.to(self.device)
            result = log_likelihood(placed, self.data.X, self.data.y, basis=self.data.basis, grad=grad)
            parts = [to_host(result.value)]
            if result.grad is not None:
                host = result.grad.to("cpu")
                assert host.noise_variance is not None
                parts += [host.weights, host.means, host.scales, host.noise_variance]
            return parts

        return self.record.evaluated(mixtures, grad, evaluate)

    def _count(self, values: Array, each: int) -> None:
        self.evaluations += len(values)
        self.cost += each * len(values)
        self.best = max(self.best, float(values.max(initial=-math.inf)))
