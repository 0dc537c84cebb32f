"""The posterior of one problem, as value and gradient in latent coordinates, with a count of what it costs."""

from __future__ import annotations

import math

import numpy as np

from .._checks import Array
from ..model.gmm import GMMBatch
from ..model.latent import Latent
from ..quadrature.problem import Problem

GRADIENT_COST = 3
"""Cost of a likelihood with its gradient, in likelihoods."""


class CountedPosterior:
    """The likelihood of a problem over mixtures on the host and over latent coordinates; counts its evaluations.

    Attributes
    ----------
    problem, data, prior, latent_map
        The problem and its parts.
    cost : int
        Likelihoods so far, where a value with gradient counts as 3; in `evaluations` it counts as 1.
    best : float
        Largest log-likelihood so far.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.data, self.prior = problem, problem.data, problem.prior
        self.latent_map = problem.prior.latent_map
        self.evaluations = self.cost = 0
        self.best = -math.inf

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
