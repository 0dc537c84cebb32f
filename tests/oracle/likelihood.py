"""Section 1: the likelihood of each mixture and its gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oracle.grams import decay, gram, products, wave, wave_slope
from oracle.mixtures import Array, Batch, floats, points_of


def log_likelihood(
    mixtures: Batch,
    X: ArrayLike,
    y: ArrayLike,
    noise_variance: Any,
    phase: str = "joint",
    basis: ArrayLike | None = None,
) -> Array:
    """L = -1/2 y' C^-1 y - sum log diag chol(C) - N/2 log 2 pi, shape (B,)."""
    y = np.asarray(y, dtype=np.float64)
    values = np.zeros(len(mixtures))
    for b, K in enumerate(gram(mixtures, X, noise_variance=noise_variance, phase=phase)):
        C = K + products(basis, basis)
        values[b] = normal_log_density(y, np.zeros(len(y)), C)
    return values


def log_likelihood_gradient(
    mixtures: Batch,
    X: ArrayLike,
    y: ArrayLike,
    noise_variance: Any,
    phase: str = "joint",
    basis: ArrayLike | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Gradient of each L in its weights (J,), means (J, D), scales (J, D) and in each point's noise (B, N).

    Sum the last over the points where the noise is one number per mixture.
    """
    points, y = points_of(X), np.asarray(y, dtype=np.float64)
    covariances = gram(mixtures, X, noise_variance=noise_variance, phase=phase) + products(basis, basis)
    d_weights, d_means, d_scales = [], [], []
    d_noise = np.zeros((len(mixtures), len(points)))
    for b, mixture in enumerate(mixtures):
        inverse = np.linalg.inv(covariances[b])
        alpha = np.linalg.solve(covariances[b], y)
        G = 0.5 * (np.outer(alpha, alpha) - inverse)
        d_noise[b] = np.diag(G)
        for w, m, s in zip(*floats(mixture), strict=True):
            gw, gm, gs = 0.0, np.zeros(len(m)), np.zeros(len(m))
            for i, x in enumerate(points):
                for j, x2 in enumerate(points):
                    t = x - x2
                    value = decay(s, t) * wave(m, t, phase)
                    gw += G[i, j] * value
                    for d in range(len(m)):
                        gm[d] += G[i, j] * w * decay(s, t) * wave_slope(m, t, d, phase)
                        gs[d] += G[i, j] * w * value * (-4.0 * math.pi**2 * s[d] * t[d] ** 2)
            d_weights.append(gw)
            d_means.append(gm)
            d_scales.append(gs)
    return np.array(d_weights), np.array(d_means), np.array(d_scales), d_noise


def normal_log_density(y: Array, mean: Array, covariance: Array) -> float:
    """log N(y; mean, covariance)."""
    lower = np.linalg.cholesky(covariance)
    half = np.linalg.solve(lower, y - mean)
    log_diagonal = sum(math.log(lower[i, i]) for i in range(len(lower)))
    return -0.5 * float(half @ half) - log_diagonal - 0.5 * len(lower) * math.log(2.0 * math.pi)
