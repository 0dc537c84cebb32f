"""What the golden numbers leave open in the oracle: its gradients, latent coordinates and prior density."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import oracle
import pytest

METRICS: dict[str, dict[str, Any]] = {
    "paper": {},
    "reflect": {"reflect": True},
    "scales": {"frequency_scale": [2.0, 0.5], "scale_scale": 3.0},
    "mass correction": {"mass_correction": True},
    "all of E": {"reflect": True, "frequency_scale": 2.0, "scale_scale": [3.0, 0.7], "mass_correction": True},
}


def batch(rng: np.random.Generator, sizes: list[int], masses: tuple[float, float] = (1.0, 1.0)) -> list[oracle.Mixture]:
    """Mixtures in two dimensions with masses between `masses`."""
    return [
        (rng.uniform(*masses) * rng.dirichlet(np.full(n, 3.0)), rng.normal(size=(n, 2)), rng.uniform(0.1, 1.0, (n, 2)))
        for n in sizes
    ]


def differences(f: Any, mixtures: list[oracle.Mixture]) -> list[np.ndarray]:
    """Gradient of `f(mixtures)` in all weights, means and scales, flat."""

    def with_part(b: int, k: int, value: np.ndarray) -> list[oracle.Mixture]:
        changed = [list(m) for m in mixtures]
        changed[b][k] = value
        return [(m[0], m[1], m[2]) for m in changed]

    def moved(b: int, k: int, value: np.ndarray) -> float:
        return f(with_part(b, k, value))

    return [
        np.concatenate(
            [oracle.central_differences(functools.partial(moved, b, k), m[k]) for b, m in enumerate(mixtures)]
        )
        for k in range(3)
    ]


def agree(computed: Any, expected: Any) -> None:
    for a, b in zip(computed, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8 * max(1.0, np.max(np.abs(b))))


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("both", [False, True], ids=["first argument", "both arguments"])
def test_energy_distance_gradient(metric: dict[str, Any], both: bool, rng: np.random.Generator) -> None:
    masses = (0.5, 2.0) if metric.get("mass_correction") else (1.0, 1.0)
    a, b = batch(rng, [1, 3], masses), None if both else batch(rng, [2, 1, 2], masses)
    cotangent = rng.normal(size=(2, 2 if both else 3))
    computed = oracle.energy_distance_vjp(a, b, cotangent, **metric)
    agree(computed, differences(lambda g: np.sum(cotangent * oracle.energy_distance(g, b, **metric)), a))


@pytest.mark.parametrize("metric", [METRICS["paper"], METRICS["reflect"], METRICS["scales"]])
@pytest.mark.parametrize("both", [False, True], ids=["first argument", "both arguments"])
def test_gaussian_mmd2_gradient(metric: dict[str, Any], both: bool, rng: np.random.Generator) -> None:
    a, b = batch(rng, [1, 3], (0.5, 2.0)), None if both else batch(rng, [2, 1, 2], (0.5, 2.0))
    cotangent = rng.normal(size=(2, 2 if both else 3))
    computed = oracle.gaussian_mmd2_vjp(a, b, cotangent, bandwidth=0.8, **metric)
    value = lambda g: np.sum(cotangent * oracle.gaussian_mmd2(g, b, bandwidth=0.8, **metric))  # noqa: E731
    agree(computed, differences(value, a))


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("extra", [{}, {"noise_weight": 0.7, "mass_weight": 0.4}], ids=["E", "noise and mass"])
@pytest.mark.parametrize("both", [False, True], ids=["first argument", "both arguments"])
def test_hyperkernel_gradient(power: int, extra: dict[str, float], both: bool, rng: np.random.Generator) -> None:
    masses = (0.5, 2.0) if extra else (1.0, 1.0)
    a, b = batch(rng, [1, 3], masses), None if both else batch(rng, [2, 1, 2], masses)
    noise_a, noise_b = rng.uniform(0.1, 1, 2), None if both else rng.uniform(0.1, 1, 3)
    cotangent = rng.normal(size=(2, 2 if both else 3))
    options: dict[str, Any] = {"outputscale": 1.7, "lengthscale": 1.3, "power": power, "noise_b": noise_b, **extra}

    def value(g: list[oracle.Mixture], noise: np.ndarray) -> float:
        return float(np.sum(cotangent * oracle.hyperkernel(g, b, noise_a=noise, **options)))

    *arrays, by_noise = oracle.hyperkernel_vjp(a, b, cotangent, noise_a=noise_a, **options)
    agree(arrays, differences(lambda g: value(g, noise_a), a))
    agree([by_noise], [oracle.central_differences(lambda v: value(a, v), noise_a)])


@pytest.mark.parametrize("phase", ["joint", "per_axis"])
def test_likelihood_gradient(phase: str, rng: np.random.Generator) -> None:
    g = batch(rng, [1, 2])
    X, y, noise = rng.uniform(size=(5, 2)), rng.normal(size=5), rng.uniform(0.1, 0.5, (2, 5))
    value = lambda h: np.sum(oracle.log_likelihood(h, X, y, noise, phase))  # noqa: E731
    *arrays, by_noise = oracle.log_likelihood_gradient(g, X, y, noise, phase)
    agree(arrays, differences(value, g))
    by_differences = oracle.central_differences(lambda v: np.sum(oracle.log_likelihood(g, X, y, v, phase)), noise)
    agree([by_noise], [by_differences])


def test_phases_differ_only_for_several_dimensions() -> None:
    mixture = ([1.0], [[1.0, 2.0]], [[0.1, 0.2]])
    assert oracle.kernel(mixture, [0.3, 0.2]) == pytest.approx(-0.294137766569626, rel=1e-13)
    assert oracle.kernel(mixture, [0.3, 0.2], "per_axis") == pytest.approx(0.237962451842318, rel=1e-13)
    two = ([0.7, 0.3], [[1.0, 2.0], [0.5, 0.1]], [[0.1, 0.2], [0.3, 0.05]])
    assert oracle.kernel(two, [0.3, 0.2]) == pytest.approx(-0.082968461281489, rel=1e-12)
    assert oracle.kernel(two, [0.3, 0.2], "per_axis") == pytest.approx(0.315374858042612, rel=1e-13)


@pytest.mark.parametrize("concentration", [1.0, 2.5])
@pytest.mark.parametrize("fold", [False, True])
def test_prior_density_is_that_of_the_latent_map(concentration: float, fold: bool, rng: np.random.Generator) -> None:
    """p(T(xi)) |dT/dxi| is the standard normal density of xi."""
    n, D = 3, 1 if fold else 2
    xi = rng.normal(size=n * (1 + 2 * D) - 1)
    options: dict[str, Any] = {
        "concentration": concentration,
        "mean_sd": 1.3,
        "log_scale_mean": -0.4,
        "log_scale_sd": 0.6,
        "fold": fold,
    }

    def coordinate(i: int, x: np.ndarray) -> float:
        weights, means, scales = oracle.from_latent(x, n, **options)
        return float(np.concatenate([weights[:-1], np.ravel(means), np.ravel(scales)])[i])

    rows = [oracle.central_differences(functools.partial(coordinate, i), xi) for i in range(len(xi))]
    jacobian = np.array(rows)
    density = oracle.prior_log_density(oracle.from_latent(xi, n, **options), size_probability=1.0, **options)
    normal = -0.5 * float(xi @ xi) - 0.5 * len(xi) * math.log(2 * math.pi)
    assert density + np.linalg.slogdet(jacobian)[1] == pytest.approx(normal, abs=1e-6)


def test_dirichlet_edge_of_the_simplex() -> None:
    assert oracle.dirichlet_log_density([0.0, 1.0], [1.0, 2.0]) == pytest.approx(math.log(2.0), rel=1e-15)
