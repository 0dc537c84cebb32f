"""Random problems as a user's calls bring them to the backend: arrays on the card, offsets on the host.

A `GMMBatch` keeps its offsets as NumPy's int64, whatever device it is on. CuPy's would have to be copied to the host
inside every timed call. The same for every run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import numpy as np

NOISE = 0.01


class Pairs(NamedTuple):
    """Two batches of mixtures of equal size: weights (B, n) and points (B, n, 2 D), scaled means then scales."""

    weights: tuple[Any, Any]
    points: tuple[Any, Any]

    @property
    def n_axes(self) -> int:
        return int(self.points[0].shape[2]) // 2

    def flat(self, side: int) -> tuple[Any, Any, Any]:
        """Offsets, weights (J,) and points (J, 2 D) as `prepare_atoms` takes them."""
        count, n = self.weights[side].shape
        return (
            np.arange(0, count * n + 1, n, dtype=np.int64),
            self.weights[side].ravel(),
            self.points[side].reshape(count * n, -1),
        )


class Regression(NamedTuple):
    """B mixtures of Q components each on N points of [0, 1]: w, m, s (B, Q), one axis."""

    w: Any
    m: Any
    s: Any
    x: Any
    y: Any

    def backend_arguments(self) -> tuple[Any, ...]:
        """offsets, weights, means, scales, X, y, noise, as `maskerade_fast.log_likelihood` passes them on."""
        count, q = self.w.shape
        flat = (self.w.ravel(), self.m.reshape(-1, 1), self.s.reshape(-1, 1))
        offsets = np.arange(0, count * q + 1, q, dtype=np.int64)
        return (offsets, *flat, self.x[:, None], self.y, cupy.full((1, 1), NOISE))


class Mixture(NamedTuple):
    """h Gaussians at M points, pair weights (h, h): what a predictive mixture is made of."""

    pair_weights: Any
    means: Any
    variances: Any


def pairs(n_left: int, n_right: int, n: int, n_axes: int) -> Pairs:
    rng = np.random.default_rng([1, n_left, n_right, n, n_axes])

    def batch(count: int) -> tuple[Any, Any]:
        weights = rng.uniform(0.1, 1.0, (count, n))
        means, scales = np.abs(rng.normal(size=(count, n, n_axes))), rng.uniform(size=(count, n, n_axes))
        return cupy.asarray(weights / weights.sum(1, keepdims=True)), cupy.asarray(np.concatenate([means, scales], 2))

    (w, p), (v, q) = batch(n_left), batch(n_right)
    return Pairs((w, v), (p, q))


def regression(n_points: int, n_mixtures: int, q: int, *, regular: bool = False) -> Regression:
    rng = np.random.default_rng([2, n_points, n_mixtures, q])
    w = rng.uniform(0.2, 1.0, (n_mixtures, q))
    m, s = rng.uniform(0.0, 20.0, (n_mixtures, q)), rng.uniform(0.5, 4.0, (n_mixtures, q))
    x = np.linspace(0.0, 1.0, n_points) if regular else np.sort(rng.uniform(size=n_points))
    y = np.sin(2 * np.pi * 3.0 * x) + 0.5 * np.cos(2 * np.pi * 8.0 * x) + np.sqrt(NOISE) * rng.normal(size=n_points)
    return Regression(*(cupy.asarray(a) for a in (w, m, s, x, y)))


def mixture(h: int, n_points: int) -> Mixture:
    rng = np.random.default_rng([3, h, n_points])
    factor = rng.normal(size=(h, 3))
    means = rng.normal(size=n_points) + 0.3 * rng.normal(size=(h, n_points))
    variances = rng.uniform(0.05, 0.5, (h, n_points))
    return Mixture(*(cupy.asarray(a) for a in (factor @ factor.T + 0.1 * np.eye(h), means, variances)))
