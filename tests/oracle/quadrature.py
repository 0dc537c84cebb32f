"""Sections 5 to 7: the WSABI-L surrogate, the evidence, the acquisition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oracle.hyperkernels import covariance_from_distance, hyperkernel
from oracle.likelihood import normal_log_density
from oracle.mixtures import Array, Batch


@dataclass(frozen=True)
class Surrogate:
    """z = sqrt(2 (f - epsilon)) at h mixtures; `options`: keywords of `hyperkernel`, but no noise."""

    mixtures: Batch
    noise: ArrayLike | None
    z: Array
    epsilon: float
    log_offset: float
    K: Array
    jitter: float
    options: dict[str, Any]

    def covariance_to(self, g: Batch, noise: ArrayLike | None = None) -> Array:
        """kappa(Theta, g), (h, b)."""
        return hyperkernel(self.mixtures, g, noise_a=self.noise, noise_b=noise, **self.options)


def warp(log_values: ArrayLike, epsilon_factor: float = 0.8) -> tuple[Array, float, float]:
    """z = sqrt(2 (f - epsilon)), epsilon = factor * min f, offset = max log f; f = e^(log f - offset)."""
    logs = np.asarray(log_values, dtype=np.float64)
    offset = float(np.max(logs))
    f = np.array([math.exp(v - offset) for v in logs])
    epsilon = epsilon_factor * float(np.min(f))
    return np.sqrt(2.0 * (f - epsilon)), epsilon, offset


def fit_surrogate(
    mixtures: Batch,
    log_values: ArrayLike,
    *,
    outputscale: float,
    lengthscale: float,
    power: int = 2,
    jitter: float = 1e-6,
    epsilon_factor: float = 0.8,
    noise: ArrayLike | None = None,
    **metric: Any,
) -> Surrogate:
    """Surrogate of these hyperparameters; K = kappa(Theta, Theta) + jitter * lambda^2 * I."""
    z, epsilon, offset = warp(log_values, epsilon_factor)
    options = {"outputscale": outputscale, "lengthscale": lengthscale, "power": power, **metric}
    K = hyperkernel(mixtures, noise_a=noise, **options) + jitter * outputscale * np.eye(len(mixtures))
    return Surrogate(mixtures, noise, z, epsilon, offset, K, jitter, options)


def surrogate_mean(s: Surrogate, g: Batch, noise: ArrayLike | None = None) -> Array:
    """mu(g) = kappa(g, Theta) K^-1 z, shape (b,)."""
    return s.covariance_to(g, noise).T @ np.linalg.solve(s.K, s.z)


def surrogate_covariance(s: Surrogate, g: Batch, noise: ArrayLike | None = None) -> Array:
    """kappa(g, g) + jitter * lambda^2 * I - kappa(g, Theta) K^-1 kappa(Theta, g), shape (b, b)."""
    cross = s.covariance_to(g, noise)
    prior = hyperkernel(g, noise_a=noise, **s.options)
    return prior + s.jitter * s.options["outputscale"] * np.eye(len(g)) - cross.T @ np.linalg.solve(s.K, cross)


def profile_outputscale(
    E: ArrayLike, z: ArrayLike, *, lengthscale: float, power: int = 2, jitter: float = 1e-6
) -> float:
    """lambda^2 = z' K~^-1 z / h, of largest likelihood; K~ = K / lambda^2 from squared distances E (h, h)."""
    z = np.asarray(z, dtype=np.float64)
    unit = covariance_from_distance(E, outputscale=1.0, lengthscale=lengthscale, power=power) + jitter * np.eye(len(z))
    return float(z @ np.linalg.solve(unit, z)) / len(z)


def profile_log_likelihood(
    E: ArrayLike, z: ArrayLike, *, lengthscale: float, power: int = 2, jitter: float = 1e-6
) -> float:
    """log N(z; 0, K) at that lambda^2."""
    z = np.asarray(z, dtype=np.float64)
    scale = profile_outputscale(E, z, lengthscale=lengthscale, power=power, jitter=jitter)
    K = covariance_from_distance(E, outputscale=scale, lengthscale=lengthscale, power=power)
    return normal_log_density(z, np.zeros(len(z)), K + jitter * scale * np.eye(len(z)))


@dataclass(frozen=True)
class Evidence:
    """E[Z] and V[Z] in units of e^offset, Q (h, h), u (m,), and what section 7 needs."""

    mean: float
    variance: float
    log_evidence: float
    log_evidence_sd: float
    weights: Array
    mean_by_size: dict[int, float]
    nodes: Batch
    nodes_noise: ArrayLike | None
    u: Array


def integrate(s: Surrogate, nodes: Batch, node_weights: ArrayLike, noise: ArrayLike | None = None) -> Evidence:
    """Integral over nodes S of weights v; `mean_by_size` holds sum_{s in n} v_s (epsilon + mu_s^2 / 2)."""
    v = np.asarray(node_weights, dtype=np.float64)
    cross = s.covariance_to(nodes, noise)
    A = cross @ np.diag(v) @ cross.T
    Q = np.linalg.solve(s.K, np.linalg.solve(s.K, A).T)
    mu = surrogate_mean(s, nodes, noise)
    u = v * mu
    by_size: dict[int, float] = {}
    for node, weight, value in zip(nodes, v, mu, strict=True):
        n = len(np.asarray(node[0]))
        by_size[n] = by_size.get(n, 0.0) + float(weight * (s.epsilon + 0.5 * value**2))
    mean = s.epsilon + 0.5 * float(s.z @ Q @ s.z)
    projected = cross @ u
    variance = float(u @ hyperkernel(nodes, noise_a=noise, **s.options) @ u)
    variance -= float(projected @ np.linalg.solve(s.K, projected))
    sd = math.sqrt(math.log1p(max(variance, 0.0) / mean**2))
    return Evidence(mean, variance, math.log(mean) + s.log_offset, sd, Q, by_size, nodes, noise, u)


def covariance_with_integral(s: Surrogate, e: Evidence, g: Batch, noise: ArrayLike | None = None) -> Array:
    """c(B) = kappa(B, S) u - kappa(B, Theta) K^-1 kappa(Theta, S) u, shape (b,)."""
    direct = hyperkernel(g, e.nodes, noise_a=noise, noise_b=e.nodes_noise, **s.options) @ e.u
    projected = s.covariance_to(e.nodes, e.nodes_noise) @ e.u
    return direct - s.covariance_to(g, noise).T @ np.linalg.solve(s.K, projected)


def mutual_information(
    s: Surrogate, e: Evidence, candidates: Batch, batch: bool = False, noise: ArrayLike | None = None
) -> Any:
    """-1/2 log(1 - c' Sigma^-1 c / V[Z]) of the whole batch, or of each candidate alone, shape (b,)."""
    c = covariance_with_integral(s, e, candidates, noise)
    Sigma = surrogate_covariance(s, candidates, noise)
    if batch:
        return -0.5 * math.log1p(-float(c @ np.linalg.solve(Sigma, c)) / e.variance)
    return np.array([-0.5 * math.log1p(-(c[i] ** 2) / (Sigma[i, i] * e.variance)) for i in range(len(c))])


def uncertainty(s: Surrogate, candidates: Batch, noise: ArrayLike | None = None) -> Array:
    """mu^2 Sigma of each candidate, shape (b,)."""
    return surrogate_mean(s, candidates, noise) ** 2 * np.diag(surrogate_covariance(s, candidates, noise))
