"""Functions of the GPU backend called with NumPy arrays, and random problems for them.

A `module` below is one of `maskerade_fast.backends.gpu`, on the emulator or on a card, or `cpu`.
"""

from __future__ import annotations

import contextlib
import itertools
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import oracle
import pytest
from emulate import ORDERS
from numpy.testing import assert_allclose, assert_array_equal

from maskerade_fast.backends import cpu

EVERY_ORDER = pytest.mark.parametrize("emulated", ORDERS, indirect=True)
Batch = list[tuple[Any, Any, Any]]
"""Mixtures as the oracle takes them: weights, means and scales of each."""


def card(value: Any) -> Any:
    """An array on the card; anything else as it is."""
    import cupy

    return cupy.asarray(value) if isinstance(value, np.ndarray) else value


def host(value: Any) -> Any:
    """A result on the host."""
    if isinstance(value, (tuple, list)):
        return tuple(map(host, value))
    return value.get() if hasattr(value, "get") else value


def call(function: Any, *args: Any, **options: Any) -> Any:
    """Results on the host, of NumPy arrays; offsets, which are integers, stay there."""

    def placed(value: Any) -> Any:
        return value if isinstance(value, np.ndarray) and value.dtype.kind == "i" else card(value)

    return host(function(*map(placed, args), **{name: placed(value) for name, value in options.items()}))


def assert_close(computed: Any, expected: Any, tolerance: float = 1e-12, least: float = 0.0) -> None:
    """Within `tolerance` of the largest expected entry, or of `least` if all are smaller."""
    scale = max(least, float(np.max(np.abs(expected), initial=0.0)))
    assert_allclose(host(computed), expected, rtol=0.0, atol=tolerance * scale)


def assert_all_equal(computed: Any, expected: Any) -> None:
    """Equal bits of every array."""
    for one, other in zip(computed, expected, strict=True):
        assert_array_equal(one, other)


# ---- batches of mixtures ----


def ragged(rng: np.random.Generator, counts: list[int], n_dims: int, least: float = 0.05) -> Batch:
    """Mixtures of mass 1 with so many components, scales from `least` to 0.4."""
    return [
        (rng.dirichlet(np.ones(n)), rng.normal(size=(n, n_dims)), rng.uniform(least, 0.4, size=(n, n_dims)))
        for n in counts
    ]


def flat(batch: Batch) -> tuple[Any, ...]:
    """offsets, weights, means, scales"""
    offsets = np.concatenate([[0], np.cumsum([len(weights) for weights, _, _ in batch])]).astype(np.int64)
    return offsets, *(np.concatenate([mixture[k] for mixture in batch]) for k in range(3))


def gram(module: ModuleType, batch: Batch, X: Any, Y: Any = None, noise: Any = 0.0, phase: str = "joint") -> Any:
    return call(module.gram, *flat(batch), X, Y, np.atleast_2d(noise), per_axis=phase == "per_axis")


# ---- log-likelihoods ----


def regimes(module: ModuleType, name: str) -> Any:
    """Regimes in which every number of points goes one way; blocks of 128 columns."""
    limits = {"small": (10**6, 10**6), "panels": (0, 10**6), "blocked": (0, 0)}[name]
    return module.Regimes(*limits, tiles=9, width=128)


def likelihood(module: Any, batch: Batch, X: Any, y: Any, noise: Any, limits: Any = None, **settings: Any) -> Any:
    """value, info, jitter and gradients; without `limits` in the regime that the card's memory gives."""
    options = {"per_axis": False, "jitter": 0.0, "grad": False, "max_bytes": None, **settings}
    arguments = (*flat(batch), X, y, np.atleast_2d(noise))
    if module is cpu:
        return cpu.log_likelihood(*arguments, **options)
    chosen = mock.patch.object(module, "regimes_of", return_value=limits) if limits else contextlib.nullcontext()
    with chosen:
        return call(module.log_likelihood, *arguments, **options)


def assert_gradients(gradients: Any, expected: Any, rtol: float = 1e-9) -> None:
    """In weights, means, scales and noise; the noise's of each mixture or of each of its points."""
    *components, noise = expected
    noise = noise if gradients[3].shape == noise.shape else noise.sum(axis=1, keepdims=True)
    for one, other in zip(gradients, (*components, noise), strict=True):
        # a single point leaves gradients in means and scales that are exactly 0
        assert_allclose(one, other, rtol=0.0, atol=rtol * np.abs(other).max())


def assert_meets_the_oracle(
    module: ModuleType, batch: Batch, X: Any, y: Any, noise: Any, limits: Any = None, phase: str = "joint"
) -> Any:
    """value and gradients, which are the oracle's, of matrices that all have a factor; `noise` of each mixture."""
    noise = np.broadcast_to(noise, (len(batch), 1)) if np.ndim(noise) == 0 else np.asarray(noise)
    options: dict[str, Any] = {"grad": True, "per_axis": phase == "per_axis"}
    value, info, jitter, gradients = likelihood(module, batch, X, y, noise, limits, **options)
    full = np.broadcast_to(noise, (len(batch), len(y)))
    assert_allclose(value, oracle.log_likelihood(batch, X, y, full, phase), rtol=1e-12)
    assert_gradients(gradients, oracle.log_likelihood_gradient(batch, X, y, full, phase))
    assert_array_equal(info, np.zeros(len(batch)))
    assert_array_equal(jitter, np.zeros(len(batch)))
    return value, gradients


def positive(rng: np.random.Generator, count: int, n: int) -> Any:
    """Positive definite matrices."""
    half = rng.normal(size=(count, n, n))
    return half @ np.swapaxes(half, 1, 2) + np.eye(n)


# ---- predictions ----


def gp_problem(rng: np.random.Generator, sizes: list[int], n_dims: int, n_points: int, n_new: int) -> list[Any]:
    """offsets, weights, means, scales, X, y, noise, X_new"""
    n = sum(sizes)
    arrays = rng.dirichlet(np.ones(n)), 3.0 * rng.normal(size=(n, n_dims)), rng.lognormal(size=(n, n_dims))
    X, X_new = rng.uniform(-1, 1, size=(n_points, n_dims)), rng.uniform(-1, 1, size=(n_new, n_dims))
    noise = rng.uniform(0.02, 0.3, size=(len(sizes), 1))
    return [np.concatenate([[0], np.cumsum(sizes)]), *arrays, X, rng.normal(size=n_points), noise, X_new]


def predict(module: Any, arguments: list[Any], **options: Any) -> tuple[Any, ...]:
    """mean, variance, covariance, info"""
    options = {"per_axis": False, "full": True, "jitter": 0.0, "max_bytes": None, **options}
    return tuple(
        module.predict_gp(*arguments, **options) if module is cpu else call(module.predict_gp, *arguments, **options)
    )


def gp_oracle(arguments: list[Any], phase: str = "joint") -> Any:
    """mean and covariance"""
    offsets, weights, means, scales, *data = arguments
    mixtures = [(weights[i:j], means[i:j], scales[i:j]) for i, j in itertools.pairwise(offsets)]
    return oracle.predict_gp(mixtures, *data, phase=phase)


def pair_problem(rng: np.random.Generator, h: int, n_points: int, spread: float = 1.0) -> tuple[Any, Any, Any]:
    """Pair weights of trace 1 with entries of both signs, means and variances."""
    factor = rng.normal(size=(h, h)) + 0.5
    weights = factor @ factor.T
    means = spread * rng.normal(size=(h, n_points))
    return weights / np.trace(weights), means, np.exp(rng.normal(size=(h, n_points)))


def covariances(rng: np.random.Generator, h: int, n: int) -> Any:
    return positive(rng, h, n) - 0.5 * np.eye(n)


# ---- distances ----


class Side(NamedTuple):
    """A batch as the distances take it: means and scales side by side."""

    offsets: Any
    weights: Any
    points: Any

    def part(self, start: int, stop: int) -> Side:
        """Some mixtures."""
        first, last = self.offsets[start], self.offsets[stop]
        return Side(self.offsets[start : stop + 1] - first, self.weights[first:last], self.points[first:last])

    def mixtures(self) -> Batch:
        D = self.points.shape[1] // 2
        bounds = itertools.pairwise(self.offsets)
        return [(self.weights[i:j], self.points[i:j, :D], self.points[i:j, D:]) for i, j in bounds]


FORMS: dict[str, dict[str, Any]] = {
    "energy": {},
    "reflected": {"reflect": True},
    "gaussian": {"bandwidth": 0.6},
    "reflected-gaussian": {"bandwidth": 0.6, "reflect": True},
}
FORM_CASES = [
    *((1, form) for form in FORMS),
    (2, "reflected"),
    (5, "energy"),
    (5, "reflected-gaussian"),
    (10, "energy"),
    (11, "energy"),
    (18, "energy"),
    (18, "reflected-gaussian"),
    *((19, form) for form in FORMS),
]
"""Numbers of axes on both sides of each limit (10: registers hold gradients, 18: atoms), with the forms to run."""


def side_of(rng: np.random.Generator, counts: Any, D: int) -> Side:
    """Mixtures of mass 1 with so many components."""
    counts = np.asarray(counts)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    weights = rng.random(offsets[-1]) + 0.01
    weights /= np.repeat(np.add.reduceat(weights, offsets[:-1]), counts)
    return Side(offsets, weights, np.hstack([rng.normal(size=(offsets[-1], D)), rng.random((offsets[-1], D))]))


def ragged_side(rng: np.random.Generator, B: int, D: int, largest: int = 5) -> Side:
    """Mixtures of 1 to `largest` components."""
    return side_of(rng, rng.integers(1, largest + 1, B), D)


def atoms(module: Any, side: Side, reflect: bool = False, **options: Any) -> Any:
    """`side`, prepared by the distances of `module`."""
    if module is not cpu:
        side, options = Side(*map(card, side)), {name: card(value) for name, value in options.items()}
    return module.prepare_atoms(*side, side.points.shape[1] // 2 if reflect else 0, **options)


def distance_oracle(a: Side, b: Side | None, **options: Any) -> Any:
    distance = oracle.gaussian_mmd2 if "bandwidth" in options else oracle.energy_distance
    return distance(a.mixtures(), None if b is None else b.mixtures(), **options)


def distance_oracle_vjp(a: Side, b: Side, cotangent: Any, **options: Any) -> Any:
    """Gradients in the weights and in the points of `a`."""
    vjp = oracle.gaussian_mmd2_vjp if "bandwidth" in options else oracle.energy_distance_vjp
    weights, means, scales = vjp(a.mixtures(), b.mixtures(), cotangent, **options)
    return weights, np.hstack([means, scales])
