"""Uncertainty of f at candidates under the linearised surrogate, with its gradient (mathematics.md section 7)."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from .._checks import Array
from .._containers import cached_property
from ..backends import single_threaded_blas
from ..model.gmm import GMMBatch, GMMGradient, concat
from .surrogate import Surrogate

# Far from all observations the mean underflows; its logarithm has no useful slope there.
_LEAST_MEAN = 1e-100


@single_threaded_blas()
def uncertainty(surrogate: Surrogate, candidates: GMMBatch) -> Array:
    """Variance of f at each candidate under the linearised surrogate: mean^2 times variance of z, shape (b,)."""
    mean, variance = surrogate.mean_and_variance(candidates)
    return mean**2 * variance


class Uncertainty:
    """log of mean^2 times variance of z at one mixture, the variance conditioned on mixtures chosen before."""

    def __init__(self, surrogate: Surrogate, chosen: list[GMMBatch]) -> None:
        self.surrogate = surrogate
        self.chosen = chosen
        self.n_support = len(surrogate.mixtures.weights) + sum(len(g.weights) for g in chosen)
        self.support, self.factor = surrogate.prepared, surrogate.factor
        self.mean_weights = surrogate.solve_transposed(surrogate.whitened)
        if chosen:
            extra = surrogate.beside(concat(chosen))
            white = surrogate.whiten(surrogate.kernel(surrogate.prepared, extra))
            corner = surrogate._conditioned(surrogate.kernel(extra), white)
            h, b = white.shape
            self.factor = np.zeros((h + b, h + b))
            self.factor[:h, :h], self.factor[h:, :h] = surrogate.factor, white.T
            # A mixture that repeats a chosen one leaves a corner of rounding errors: a floor keeps it positive
            # definite.
            self.factor[h:, h:] = np.linalg.cholesky(corner + 1e-10 * surrogate.outputscale * np.eye(b))
            self.support = surrogate.prepare(concat([surrogate.mixtures, extra]))
            self.mean_weights = np.concatenate([self.mean_weights, np.zeros(b)])

    @cached_property
    def on_host(self) -> Uncertainty:
        """The same for mixtures on the host."""
        host = self.surrogate.on_host
        return self if host is self.surrogate else Uncertainty(host, self.chosen)

    def scores(self, pool: GMMBatch) -> Array:
        """mean^2 times variance at each mixture of the pool."""
        cross = self.surrogate.kernel(pool, self.support)
        white = solve_triangular(self.factor, cross.T, lower=True, check_finite=False)
        variance = self.surrogate.prior_variance - np.einsum("ij,ij->j", white, white)
        return np.asarray((cross @ self.mean_weights) ** 2 * variance)

    def value_and_gradient(self, batch: GMMBatch) -> tuple[float, GMMGradient | None]:
        """The value and its gradient; minus infinity and None where the mean underflows or the variance is rounding."""
        cross, pullback = self.surrogate.kernel_pullback(batch, self.support)
        white = solve_triangular(self.factor, cross[0], lower=True, check_finite=False)
        variance = self.surrogate.prior_variance - float(white @ white)
        mean = float(cross[0] @ self.mean_weights)
        if not (variance > 0.0 and abs(mean) > _LEAST_MEAN * np.sqrt(self.surrogate.outputscale)):
            return -np.inf, None
        solved = solve_triangular(self.factor, white, lower=True, trans="T", check_finite=False)
        row = 2.0 * self.mean_weights / mean - 2.0 * solved / variance
        return float(2.0 * np.log(abs(mean)) + np.log(variance)), pullback(row[None, :])
