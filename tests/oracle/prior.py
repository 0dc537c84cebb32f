"""Section 4: prior densities; section 9: latent coordinates."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from oracle.mixtures import Mixture, floats


def dirichlet_log_density(x: ArrayLike, concentration: ArrayLike) -> float:
    """log Dirichlet(x; concentration), with 0 log 0 = 0; Lebesgue in the first n - 1 coordinates."""
    x = np.asarray(x, dtype=np.float64)
    alpha = np.broadcast_to(np.asarray(concentration, dtype=np.float64), x.shape)
    value = math.lgamma(float(np.sum(alpha)))
    for xi, ai in zip(x, alpha, strict=True):
        value -= math.lgamma(ai)
        if ai != 1.0:
            value += (ai - 1.0) * (math.log(xi) if xi > 0.0 else -math.inf)
    return value


def prior_log_density(
    mixture: Mixture,
    *,
    size_probability: float,
    concentration: float,
    mean_sd: ArrayLike,
    log_scale_mean: ArrayLike,
    log_scale_sd: ArrayLike,
    fold: bool,
) -> float:
    """log p(n) + log p(w, m, s), Lebesgue in (w_1..w_{n-1}, m, s), components labelled; `fold`: m >= 0.

    Means are N(0, mean_sd^2), log scales N(log_scale_mean, log_scale_sd^2); the three are scalar or (D,).
    """
    weights, means, scales = floats(mixture)
    sd, nu, tau = (np.broadcast_to(v, means.shape[1:]) for v in (mean_sd, log_scale_mean, log_scale_sd))
    value = math.log(size_probability) + dirichlet_log_density(weights, concentration)
    for m, s in zip(means, scales, strict=True):
        for d in range(len(m)):
            value += _log_normal_density(m[d], 0.0, sd[d])
            if fold:
                value += math.log(2.0) if m[d] >= 0.0 else -math.inf
            value += _log_normal_density(math.log(s[d]), nu[d], tau[d]) - math.log(s[d])
    return value


def from_latent(
    xi: ArrayLike,
    n: int,
    *,
    concentration: float,
    mean_sd: ArrayLike,
    log_scale_mean: ArrayLike,
    log_scale_sd: ArrayLike,
    fold: bool,
) -> Mixture:
    """T(xi), a mixture of mass 1; xi is ``[n-1 weights][n*D means][n*D log scales]``, standard normal."""
    xi = np.asarray(xi, dtype=np.float64)
    D = (len(xi) - (n - 1)) // (2 * n)
    sd, nu, tau = (np.broadcast_to(v, (D,)) for v in (mean_sd, log_scale_mean, log_scale_sd))
    weights, left = np.zeros(n), 1.0
    for j in range(1, n):
        v = float(special.betaincinv(concentration, (n - j) * concentration, special.ndtr(xi[j - 1])))
        weights[j - 1] = v * left
        left *= 1.0 - v
    weights[n - 1] = left
    means, scales = np.zeros((n, D)), np.zeros((n, D))
    for j in range(n):
        for d in range(D):
            u = xi[n - 1 + j * D + d]
            means[j, d] = sd[d] * (-special.ndtri(0.5 * special.ndtr(-u)) if fold else u)
            scales[j, d] = math.exp(nu[d] + tau[d] * xi[n - 1 + n * D + j * D + d])
    return weights, means, scales


def _log_normal_density(x: float, mean: float, sd: float) -> float:
    return -0.5 * ((x - mean) / sd) ** 2 - math.log(sd) - 0.5 * math.log(2.0 * math.pi)
