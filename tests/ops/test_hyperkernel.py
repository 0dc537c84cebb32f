"""The hyper-kernel: oracle, positive definiteness, gradients, prepared batches and the streamed product."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import oracle
import pytest
from batches import as_type, random_batch
from comparisons import close, one_thread, peak
from kernel_functions import covariance_from_distance, hyperkernel_pullback

from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.ops.distances import energy_distance
from maskerade_fast.ops.hyperkernel import HyperKernel, hyperkernel, hyperkernel_matvec, hyperkernel_vjp
from maskerade_fast.ops.metric import Metric
from maskerade_fast.ops.metric_distances import prepare, squared_distance

METRICS: list[dict[str, Any]] = [
    {},
    {"reflect": True, "frequency_scale": 0.7},
    {"noise_weight": 0.3},
    {"mass_weight": 0.4, "scale_scale": 2.0},
    {"noise_weight": 0.3, "mass_weight": 0.4, "reflect": True},
    {"mass_correction": True, "noise_weight": 0.1},
]
METRIC_IDS = ["plain", "reflect", "noise", "mass", "both", "correction"]
PARAMETERS: list[dict[str, Any]] = [{"outputscale": 1.3, "lengthscale": 0.8, "power": q} for q in (1, 2)]
PARTS = ("weights", "means", "scales", "noise_variance")

every_metric = pytest.mark.parametrize("options", METRICS, ids=METRIC_IDS)
both_powers = pytest.mark.parametrize("parameters", PARAMETERS, ids=["power1", "power2"])


def for_metric(rng: np.random.Generator, B: int, D: int, options: dict[str, Any]) -> GMMBatch:
    """Unequal masses where the metric has a cure for them."""
    return random_batch(rng, B, D, noise=True, unit=not {"mass_weight", "mass_correction"} & set(options))


def reference_options(options: dict[str, Any], a: GMMBatch, b: GMMBatch | None) -> dict[str, Any]:
    return options | {"noise_a": a.noise_variances, "noise_b": None if b is None else b.noise_variances}


@every_metric
@both_powers
@pytest.mark.parametrize("alone", [False, True])
def test_meets_oracle(
    options: dict[str, Any], parameters: dict[str, Any], alone: bool, rng: np.random.Generator
) -> None:
    a = for_metric(rng, 4, 2, options)
    b = None if alone else for_metric(rng, 5, 2, options)
    left, right = oracle.mixtures_of(a), None if b is None else oracle.mixtures_of(b)
    metric, reference = Metric(**options), reference_options(options, a, b)
    E = squared_distance(a, b, metric=metric)
    close(E, oracle.squared_distance(left, right, **reference))
    K = hyperkernel(a, b, **parameters, metric=metric)
    close(K, oracle.hyperkernel(left, right, **parameters, **reference))
    close(covariance_from_distance(E, **parameters), K)
    G = rng.normal(size=K.shape)
    g = hyperkernel_vjp(a, b, G, **parameters, metric=metric)
    expected = oracle.hyperkernel_vjp(left, right, G, **parameters, **reference)
    for part, value in zip(PARTS, expected, strict=True):
        if part == "noise_variance" and metric.noise_weight == 0.0:
            assert g.noise_variance is None
        else:
            close(getattr(g, part), value)


@every_metric
@both_powers
def test_positive_definite_and_exactly_symmetric(
    options: dict[str, Any], parameters: dict[str, Any], rng: np.random.Generator
) -> None:
    K = hyperkernel(for_metric(rng, 140, 2, options), **parameters, metric=Metric(**options))
    assert (K == K.T).all()
    assert (np.diag(K) == parameters["outputscale"]).all()
    assert np.linalg.eigvalsh(K)[0] > -1e-12


def test_without_noise_and_mass_terms_it_is_the_energy_distance(rng: np.random.Generator) -> None:
    a, b = random_batch(rng, 5, 2, noise=True), random_batch(rng, 6, 2, noise=True)
    np.testing.assert_array_equal(squared_distance(a, b), energy_distance(a, b))
    loaded = Metric(noise_weight=2.0, mass_weight=3.0)
    np.testing.assert_array_equal(energy_distance(a, b, metric=loaded), energy_distance(a, b))


def test_cusp_of_coinciding_mixtures(rng: np.random.Generator) -> None:
    a = random_batch(rng, 3, 2, noise=True)
    for b, cotangent in ((None, np.eye(3)), (a[:], np.eye(3))):
        g = hyperkernel_vjp(a, b, cotangent, outputscale=1.0, lengthscale=1.0, power=1)
        for part in PARTS[:3]:
            assert (getattr(g, part) == 0.0).all()


# pullback and prepared batches


@every_metric
def test_pullback_and_prepared_batches(options: dict[str, Any], rng: np.random.Generator) -> None:
    a, b, metric = for_metric(rng, 4, 2, options), for_metric(rng, 300, 2, options), Metric(**options)
    parameters: dict[str, Any] = {"outputscale": 0.7, "lengthscale": 1.1}
    ready = prepare(b, metric=metric)
    G = rng.normal(size=(4, 300))
    K, pullback = hyperkernel_pullback(a, ready, **parameters)
    np.testing.assert_array_equal(K, hyperkernel(a, b, **parameters, metric=metric))
    expected = hyperkernel_vjp(a, b, G, **parameters, metric=metric)
    _, of_prepared = hyperkernel_pullback(prepare(a, metric=metric), b, **parameters)
    for g in (pullback(G), pullback(G.tolist()), of_prepared(G)):
        for part in PARTS:
            np.testing.assert_array_equal(getattr(g, part), getattr(expected, part))
    np.testing.assert_array_equal(squared_distance(a, ready), squared_distance(a, b, metric=metric))
    assert prepare(ready) is prepare(ready, metric=metric) is ready
    a = random_batch(rng, 4, 2, noise=True)
    with pytest.raises(ValueError, match="prepared for"):
        hyperkernel(a, ready, **parameters, metric=Metric(scale_scale=17.0))


# the streamed product


@every_metric
@both_powers
def test_matvec(options: dict[str, Any], parameters: dict[str, Any], rng: np.random.Generator) -> None:
    a, b, metric = for_metric(rng, 301, 2, options), for_metric(rng, 600, 2, options), Metric(**options)
    v = rng.normal(size=(600, 3))
    K = hyperkernel(a, b, **parameters, metric=metric)
    product = hyperkernel_matvec(a, b, v, **parameters, metric=metric)
    close(product, K @ v)
    single = hyperkernel_matvec(a, b, v[:, 1], **parameters, metric=metric)
    assert single.shape == (301,)
    np.testing.assert_array_equal(single, product[:, 1])
    np.testing.assert_array_equal(hyperkernel_matvec(a[20:], b, v, **parameters, metric=metric), product[20:])
    with one_thread():
        np.testing.assert_array_equal(hyperkernel_matvec(a, b, v, **parameters, metric=metric), product)
    own = hyperkernel_matvec(b, None, v, **parameters, metric=metric)
    close(own, hyperkernel(b, **parameters, metric=metric) @ v)


def test_matvec_memory(rng: np.random.Generator) -> None:
    """The matrix would take 800 MB; the product takes the layout of b and its vectors."""
    g = random_batch(rng, 10_000, 1, noise=True)
    v = rng.normal(size=10_000)
    hyperkernel_matvec(g[:2], g[:2], v[:2], outputscale=1.0, lengthscale=1.0)
    assert peak(lambda: hyperkernel_matvec(g[:500], g, v, outputscale=1.0, lengthscale=1.0)) < 20e6


# types, empty batches, bad input


def test_float32_in_float32_out(rng: np.random.Generator) -> None:
    g = random_batch(rng, 6, 2, noise=True)
    small = as_type(g, np.float32)
    metric = Metric(noise_weight=0.5, mass_weight=0.5)
    K, pullback = hyperkernel_pullback(small, small, outputscale=1.0, lengthscale=1.0, metric=metric)
    assert K.dtype == np.float32
    close(K, hyperkernel(g, g, outputscale=1.0, lengthscale=1.0, metric=metric), 2e-4)
    assert {getattr(pullback(np.ones((6, 6))), part).dtype for part in PARTS} == {np.dtype(np.float32)}
    v = np.ones(6, dtype=np.float32)
    assert hyperkernel_matvec(small, small, v, outputscale=1.0, lengthscale=1.0).dtype == np.float32
    assert (
        covariance_from_distance(np.array([0.0, 1.0], np.float32), outputscale=1.0, lengthscale=1.0).dtype == np.float32
    )
    values = covariance_from_distance([0, 1], outputscale=1.0, lengthscale=1.0)
    np.testing.assert_allclose(values, [1.0, 0.36787944117144233], rtol=4e-16)  # NumPy's own exp may be an ulp off


@every_metric
def test_empty_batches(options: dict[str, Any], rng: np.random.Generator) -> None:
    metric = Metric(**options)
    parameters: dict[str, Any] = {"outputscale": 1.0, "lengthscale": 1.0}
    none = GMMBatch([0], np.zeros(0), np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0))
    some = for_metric(rng, 3, 2, options)
    assert hyperkernel(none, metric=metric, **parameters).shape == (0, 0)
    for a, b in ((none, some), (some, none)):
        shape = (len(a), len(b))
        K, pullback = hyperkernel_pullback(a, b, metric=metric, **parameters)
        assert K.shape == squared_distance(a, b, metric=metric).shape == shape
        assert (pullback(np.zeros(shape)).means == np.zeros(a.means.shape)).all()
        product = hyperkernel_matvec(a, b, np.zeros((len(b), 2)), metric=metric, **parameters)
        assert product.tolist() == np.zeros((len(a), 2)).tolist()


def test_settings_are_values() -> None:
    two: Any = np.float32(2.0)
    square: Any = np.int64(2)
    kernel = HyperKernel(two, 1, metric=Metric(noise_weight=1.0))
    assert kernel == HyperKernel(2.0, 1.0, 2, Metric(noise_weight=1.0))
    assert len({kernel, HyperKernel(2.0, 1.0), HyperKernel(2, 1, square)}) == 2
    assert [type(x) for x in (kernel.outputscale, kernel.lengthscale, kernel.power)] == [float, float, int]
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.power = 1  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"outputscale: -1\.0, expected > 0"):
        dataclasses.replace(kernel, outputscale=-1.0)
    with pytest.raises(ValueError, match="lengthscale: 1e-200, expected between"):
        dataclasses.replace(kernel, lengthscale=1e-200)
    with pytest.raises(ValueError, match="power: 3, expected one of 1, 2"):
        dataclasses.replace(kernel, power=3)
    with pytest.raises(TypeError, match="metric: str, expected a Metric"):
        dataclasses.replace(kernel, metric="energy")  # type: ignore[arg-type]


def test_a_kernel_without_a_metric_takes_that_of_a_prepared_batch(rng: np.random.Generator) -> None:
    a, metric = random_batch(rng, 3, 1, unit=False, noise=True), Metric(mass_weight=0.4)
    ready, bare = prepare(a, metric=metric), HyperKernel(1.0, 1.0)
    np.testing.assert_array_equal(bare.matrix(a, ready), HyperKernel(1.0, 1.0, metric=metric).matrix(a, a))
    with pytest.raises(ValueError, match="but the batch was prepared for"):
        HyperKernel(1.0, 1.0, metric=Metric()).matrix(ready)


def test_bad_input_is_named(rng: np.random.Generator) -> None:
    g = random_batch(rng, 3, 2, noise=True)
    bare = GMMBatch(g.offsets, g.weights, g.means, g.scales)
    dead = GMMBatch([0, 1, 2], [0.5, 0.0], [[1.0], [1.0]], [[1.0], [1.0]])
    quiet = GMMBatch(g.offsets, g.weights, g.means, g.scales, [1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="carries no noise_variances"):
        squared_distance(g, bare, metric=Metric(noise_weight=1.0))
    with pytest.raises(ValueError, match=r"noise_variances of mixture 1: 0\.0"):
        squared_distance(quiet, metric=Metric(noise_weight=1.0))
    with pytest.raises(ValueError, match=r"weights of mixture 1: total 0\.0"):
        squared_distance(dead, metric=Metric(mass_weight=1.0))
    for wrong in ({"outputscale": 0.0}, {"lengthscale": -1.0}, {"lengthscale": 1e-200}, {"power": 3}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            hyperkernel(g, **({"outputscale": 1.0, "lengthscale": 1.0} | wrong))
    with pytest.raises(ValueError, match="v: 4 rows, expected 3"):
        hyperkernel_matvec(g, g, np.zeros(4), outputscale=1.0, lengthscale=1.0)
    with pytest.raises(ValueError, match=r"distance: -1\.0"):
        covariance_from_distance([-1.0], outputscale=1.0, lengthscale=1.0)
    with pytest.raises(ValueError, match="cotangent"):
        hyperkernel_vjp(g, g, np.zeros((3, 4)), outputscale=1.0, lengthscale=1.0)


@pytest.mark.usefixtures("backend")
def test_every_backend(rng: np.random.Generator) -> None:
    for alone in (False, True):
        test_meets_oracle(METRICS[4], PARAMETERS[0], alone, rng)
    test_meets_oracle(METRICS[5], PARAMETERS[1], False, rng)
    test_matvec(METRICS[4], PARAMETERS[0], rng)
    test_empty_batches(METRICS[4], rng)
    test_bad_input_is_named(rng)
