"""Section 8: the prediction of all mixtures together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from oracle.likelihood import normal_log_density
from oracle.mixtures import Array


@dataclass(frozen=True)
class PointwiseMixture:
    """At each of M points a signed mixture of h*h Gaussians: shares (h*h, M), adding up to 1, and moments."""

    shares: Array
    means: Array
    variances: Array

    @property
    def mean(self) -> Array:
        return np.sum(self.shares * self.means, axis=0)

    @property
    def variance(self) -> Array:
        return np.sum(self.shares * (self.variances + (self.means - self.mean) ** 2), axis=0)

    def log_density(self, y: ArrayLike) -> Array:
        gap = np.asarray(y, dtype=np.float64) - self.means
        density = np.exp(-0.5 * gap**2 / self.variances) / np.sqrt(2.0 * math.pi * self.variances)
        return np.log(np.sum(self.shares * density, axis=0))

    def cdf(self, y: ArrayLike) -> Array:
        standard = (np.asarray(y, dtype=np.float64) - self.means) / np.sqrt(self.variances)
        return np.sum(self.shares * special.ndtr(standard), axis=0)


def combine_gaussians(pair_weights: ArrayLike, means: ArrayLike, variances: ArrayLike) -> PointwiseMixture:
    """sum_ij W_ij sqrt(N_i N_j) / sum_ij W_ij s_ij at each point alone; `means` and `variances` (h, M)."""
    W, mu, C = (np.asarray(a, dtype=np.float64) for a in (pair_weights, means, variances))
    h, M = mu.shape
    shares, centres, spreads = (np.zeros((h * h, M)) for _ in range(3))
    for p in range(M):
        for i in range(h):
            for j in range(h):
                total = C[i, p] + C[j, p]
                s = math.sqrt(2.0 * math.sqrt(C[i, p] * C[j, p]) / total)
                s *= math.exp(-((mu[i, p] - mu[j, p]) ** 2) / (4.0 * total))
                shares[i * h + j, p] = W[i, j] * s
                centres[i * h + j, p] = (mu[i, p] * C[j, p] + mu[j, p] * C[i, p]) / total
                spreads[i * h + j, p] = 2.0 * C[i, p] * C[j, p] / total
    return PointwiseMixture(shares / np.sum(shares, axis=0), centres, spreads)


def combine_gaussians_joint(
    pair_weights: ArrayLike, means: ArrayLike, covariances: ArrayLike, y: ArrayLike
) -> tuple[float, Array]:
    """Log density of `y` (M,) under the joint predictive, and its mean (M,); `covariances` (h, M, M)."""
    W, mu, C, y = (np.asarray(a, dtype=np.float64) for a in (pair_weights, means, covariances, y))
    h = len(mu)
    log_s, log_n, centres = np.zeros((h, h)), np.zeros((h, h)), np.zeros((h, h, len(y)))
    for i in range(h):
        for j in range(h):
            gap = mu[i] - mu[j]
            half = 0.25 * (_log_determinant(C[i]) + _log_determinant(C[j]))
            log_s[i, j] = half - 0.5 * _log_determinant(0.5 * (C[i] + C[j]))
            log_s[i, j] -= 0.25 * float(gap @ np.linalg.solve(C[i] + C[j], gap))
            precisions = np.linalg.inv(C[i]) + np.linalg.inv(C[j])
            V = 2.0 * np.linalg.inv(precisions)
            centres[i, j] = 0.5 * V @ (np.linalg.solve(C[i], mu[i]) + np.linalg.solve(C[j], mu[j]))
            log_n[i, j] = log_s[i, j] + normal_log_density(y, centres[i, j], V)
    shares = W * np.exp(log_s)
    shares /= np.sum(shares)
    top = float(np.max(log_n))
    numerator = float(np.sum(W * np.exp(log_n - top)))
    return math.log(numerator / float(np.sum(W * np.exp(log_s)))) + top, np.einsum("ij,ijp->p", shares, centres)


def _log_determinant(C: Array) -> float:
    lower = np.linalg.cholesky(C)
    return 2.0 * sum(math.log(lower[i, i]) for i in range(len(lower)))
