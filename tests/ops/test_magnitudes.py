"""Numbers whose squares overflow: refused by name with the cure, or computed without a warning."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.backends import to_device

X = np.linspace(0.0, 1.0, 9)
TARGETS = np.sin(9.0 * X)
ONES = np.ones((2, 2))
MAGNITUDES = (1e140, 1e150, 1e155, 1e160, 1e200, 1e299, 1e300, 1.7e308)


def pair(what: str, value: float) -> mf.GMMBatch:
    """Two mixtures, one of which has `value` for its weights, means, scales or noise."""
    numbers = {"weights": 1.0, "means": 1.0, "scales": 1.0, "noise": 0.1, what: value}
    one = ([0.5 * numbers["weights"]] * 2, [numbers["means"], 1.5], [numbers["scales"], 0.5])
    other = ([numbers["weights"]], [0.3], [0.2])  # of the same mass
    return mf.GMMBatch.from_list([one, other], [numbers["noise"], 0.1])


METRIC = mf.Metric(mass_weight=1.0, noise_weight=1.0)
KERNEL: dict[str, Any] = {"outputscale": 1.0, "lengthscale": 1.0}
PRIOR = mf.Prior([1.0], [0.0], [1.0])
OPERATIONS: dict[str, Callable[[mf.GMMBatch], Any]] = {
    "gram": lambda g: mf.gram(g, X),
    "likelihood": lambda g: mf.log_likelihood(g, X, TARGETS, grad=True, structure="dense"),
    "grid": lambda g: mf.log_likelihood(g, X, TARGETS, grad=True, structure="toeplitz"),
    "prediction": lambda g: mf.predict_gp(g, X, TARGETS, None, X[:3], covariance="full"),
    "energy": lambda g: (mf.energy_distance(g), mf.energy_distance(g, g), mf.energy_distance_vjp(g, g, ONES)),
    "corrected": lambda g: mf.energy_distance(g, metric=mf.Metric(mass_correction=True)),
    "mmd": lambda g: (mf.gaussian_mmd2(g, g, bandwidth=1.0), mf.gaussian_mmd2_vjp(g, g, ONES, bandwidth=1.0)),
    "kernel": lambda g: (
        mf.hyperkernel(g, metric=METRIC, **KERNEL),
        mf.hyperkernel_vjp(g, g, ONES, metric=METRIC, **KERNEL),
    ),
    "surrogate": lambda g: mf.Surrogate.fit(g, [-1.0, -2.0], metric=METRIC).mean(g),
    "prior": lambda g: np.exp(PRIOR.log_density(g)),
    "latent": lambda g: PRIOR.latent_map.inverse(g).values,
}


def numbers_in(value: Any) -> np.ndarray:
    if isinstance(value, tuple):
        return np.concatenate([numbers_in(part) for part in value])
    if hasattr(value, "__dataclass_fields__"):
        return numbers_in(tuple(getattr(value, name) for name in value.__dataclass_fields__))
    return np.empty(0) if value is None else np.asarray(value, dtype=float).ravel()


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("what", ["weights", "means", "scales", "noise"])
@pytest.mark.parametrize("value", MAGNITUDES)
def test_large_numbers_are_refused_or_computed(name: str, what: str, value: float) -> None:
    """Warnings are errors here."""
    try:
        numbers = numbers_in(OPERATIONS[name](pair(what, value)))
    except ValueError as error:
        refusal = str(error)
    else:
        assert np.isfinite(numbers).all()
        return
    assert value > 1e149
    assert re.search(rf"{what}.*(expected|exceed)", refusal)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (
            [2e150],
            "weights of mixture 1: a total of 2e+150, expected at most 1e+150, as squares would overflow; rescale y",
        ),
        ([6e149, 6e149], "weights of mixture 1: a total of 1.2e+150"),
        ([1e300] * 4, "weights of mixture 1: a total of 4e+300"),
        ([1e308] * 4, "weights of mixture 1, component 0: 1e+308, expected a finite number >= 0, up to 1e+300"),
    ],
)
def test_masses_whose_squares_overflow_are_refused_when_a_batch_is_built(weights: list[float], words: str) -> None:
    n = len(weights)
    with pytest.raises(ValueError, match=re.escape(words)):
        mf.GMMBatch.from_list([([1.0], [0.5], [0.1]), (weights, [0.5] * n, [0.1] * n)])


def test_any_mass_up_to_the_bound_is_taken() -> None:
    """Of each mixture by itself, whatever all together weigh; and float32 as far as it goes."""
    many = mf.GMMBatch.from_list([([5e149, 5e149], [0.5, 1.5], [0.1, 0.2])] * 3)
    assert np.isfinite(mf.energy_distance(many)).all()
    single = [np.full(2, 3e38, np.float32), np.ones((2, 1), np.float32), np.ones((2, 1), np.float32)]
    assert mf.GMMBatch(np.array([0, 2]), *single).dtype == np.float32


def test_masses_are_checked_on_the_card(emulated: Any) -> None:
    parts = (np.array([1.0, 2e150]), np.ones((2, 1)), np.ones((2, 1)))
    with pytest.raises(ValueError, match="weights of mixture 1: a total of 2e"):
        mf.GMMBatch(np.array([0, 1, 2]), *(to_device(a, "gpu") for a in parts))


def test_mixtures_in_the_units_of_huge_targets_are_refused_by_distances() -> None:
    """They come from a fit, unchecked; likelihoods of them are fine."""
    g = pair("weights", 1.0)
    assert g.noise_variances is not None
    huge = mf.GMMBatch.trusted(g.offsets, 1e298 * g.weights, g.means, g.scales, 1e298 * g.noise_variances)
    with pytest.raises(ValueError, match=r"weights of mixture 0: a total of 1e.298, expected at most .*; rescale y"):
        mf.energy_distance(huge)
    assert np.isfinite(mf.log_likelihood(huge, X, 1e149 * TARGETS).value).all()
    assert np.isfinite(mf.hyperkernel(huge, metric=METRIC, **KERNEL)).all()


def combined(mean: float = 0.0) -> mf.Prediction:
    return mf.combine_gaussians(np.eye(2) + 0.1, np.array([[0.0], [mean]]), np.ones((2, 1)))


COVARIANCES = np.ones((2, 1, 1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: combined(1e160), "means: entries up to 1e.160, expected at most 1e.150; rescale"),
        (lambda: combined().log_density([1e160]), "y: entries up to 1e.160"),
        (lambda: combined().scaled(0.0, 1e160), "scale: entries up to 1e.160"),
        (lambda: combined().scaled(-1e160, 1.0), "offset: entries up to 1e.160"),
        (lambda: mf.combine_gaussians_joint(np.eye(2), [[0.0], [1e160]], COVARIANCES, [0.0]), "means: entries up to"),
        (lambda: mf.combine_gaussians_joint(np.eye(2), [[0.0], [1.0]], COVARIANCES, [1e160]), "y: entries up to"),
        (
            lambda: mf.integrate(
                mf.Surrogate.fit(pair("weights", 1.0), [-1.0, -2.0]), pair("weights", 1.0), [1e160, 1]
            ),
            "node_weights: entries up to 1e.160",
        ),
    ],
)
def test_large_arguments_are_refused_by_name(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_predictions_far_apart_up_to_the_bound_are_numbers() -> None:
    p = combined(1e150)
    results = [p.mean, p.variance, p.quantile(0.3), p.log_density([1e149]), p.cdf(1e300), p.scaled(1e149, 10.0).mean]
    assert np.isfinite(np.concatenate(results)).all()


def test_distances_in_float32() -> None:
    """Sums of 1e39 have no place in float32; they are refused, and in float64 they are numbers."""
    w, m, s = np.array([2e19, 2e19], np.float32), np.array([[0], [3]], np.float32), np.array([[1], [1]], np.float32)
    g = mf.GMMBatch(np.array([0, 1, 2]), w, m, s)
    for distance in (mf.energy_distance, lambda g: mf.gaussian_mmd2(g, bandwidth=1.0)):
        with pytest.raises(ValueError, match=r"weights: squared distances up to .*, which float32 does not hold"):
            distance(g)
    assert np.isfinite(mf.energy_distance(mf.GMMBatch(g.offsets, w.astype(float), m, s))).all()
