"""The posterior of one problem, as value and gradient in latent coordinates, with a count of what it costs."""

from __future__ import annotations

import math

import numpy as np

from .._checks import Array
from ..model.data import RegressionData
from ..model.gmm import GMMBatch
from ..model.latent import Latent, LatentMap
from ..model.prior import Prior
from ..quadrature.problem import Problem

GRADIENT_COST = 3
"""Cost of a likelihood with its gradient, in likelihoods."""


class CountedPosterior:
    """The likelihood of a problem over mixtures on the host and over latent coordinates; counts its evaluations.

    Attributes
    ----------
    problem : Problem
    cost : int
        Likelihoods so far, where a value with gradient counts as 3; in `evaluations` it counts as 1.
    best : float
        Largest log-likelihood so far.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.evaluations = 0
        self.cost = 0
        self.best = -math.inf

    @property
    def data(self) -> RegressionData:
        return self.problem.data

    @property
    def prior(self) -> Prior:
        return self.problem.prior

    @property
    def latent_map(self) -> LatentMap:
        """T of the prior."""
        return self.prior.latent_map

    def values(self, mixtures: GMMBatch) -> Array:
        """Log-likelihoods, shape (B,)."""
        values = self.problem.log_likelihoods(mixtures)
        self._count(values, 1)
        return values

    def log_posteriors(self, latent: Latent) -> tuple[Array, list[Array]]:
        """Log likelihood + log N(ξ; 0, I) without its constant, shape (B,), and the gradient in ξ of each."""
        values, gradients = self.problem.log_likelihoods_with_gradients(self.latent_map.forward(latent))
        self._count(values, GRADIENT_COST)
        gradient = self.latent_map.pullback(latent, gradients) - latent.values
        own = np.array([0.5 * float(xi @ xi) for xi in latent.points()])
        return values - own, latent.with_values(gradient).points()

    def charge(self, cost: int) -> None:
        """Count other work that takes as long as `cost` likelihoods."""
        self.cost += cost

    def _count(self, values: Array, each: int) -> None:
        self.evaluations += len(values)
        self.cost += each * len(values)
        self.best = max(self.best, float(values.max(initial=-math.inf)))
