"""Starts of ascents: sines in the data, and the sine that a kernel misses most."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest

import maskerade_fast as mf
from maskerade_fast.adaptive.counted_posterior import CountedPosterior
from maskerade_fast.adaptive.starts import growing_cost, grown_start, latent_points, missing_sine, spectral_starts
from maskerade_fast.model.data import RegressionData
from maskerade_fast.quadrature.problem import Problem

X = np.linspace(0.0, 1.0, 60)


def target_of(y: np.ndarray, trend: str = "none", x: np.ndarray = X, **options: Any) -> CountedPosterior:
    return CountedPosterior(Problem.of(RegressionData(x, y, trend), mf.Prior.from_data(x, max_components=3, **options)))


def smooth_kernel(noise: float = 0.05) -> mf.GMMBatch:
    return mf.GMMBatch.from_list([([1.0], [[0.5]], [[0.7]])], [noise])


@pytest.mark.parametrize("trend", ["none", "linear"])
def test_the_missing_sine_is_the_best_of_all_narrow_components(trend: str) -> None:
    """Its frequency is that of the sine in the data; its weight is the likelihood's maximum, and the gain as stated."""
    y = np.sin(2.0 * X) + 0.2 * np.sin(2.0 * np.pi * 13.0 * X + 0.4) + 3.0 * X * (trend == "linear")
    target = target_of(y, trend)
    sine: Any = missing_sine(target, smooth_kernel())
    weight, frequency = sine
    assert frequency == pytest.approx(13.0, abs=0.2)

    def value(w: float, m: float) -> float:
        g = mf.GMMBatch.from_list([([1.0, w], [[0.5], [m]], [[0.7], [1e-9]])], [0.05])
        return float(target.values(g)[0])

    assert value(weight, frequency) > value(0.8 * weight, frequency)
    assert value(weight, frequency) > value(1.25 * weight, frequency)
    assert value(weight, frequency) > value(1e-12, frequency) + 3.0
    others = [value(weight, m) for m in np.linspace(0.0, 28.0, 57) if abs(m - frequency) > 1.0]
    assert value(weight, frequency) > max(others)


def test_no_sine_is_missing_where_the_kernel_explains_all() -> None:
    """Noise below what the kernel takes it for; a failed covariance says nothing; more input axes have no grid."""
    rng = np.random.default_rng(1)
    assert missing_sine(target_of(1e-3 * rng.normal(size=60)), smooth_kernel(1.0)) is None
    twins = np.zeros(60)
    assert missing_sine(target_of(rng.normal(size=60), x=twins + 1e-12 * X), smooth_kernel(0.0)) is None
    X2 = rng.random((20, 2))
    data = RegressionData(X2, rng.normal(size=20))
    target = CountedPosterior(Problem.of(data, mf.Prior.from_data(X2, max_components=2)))
    g = mf.GMMBatch.from_list([([1.0], [[0.5, 0.1]], [[0.7, 0.3]])], [0.1])
    assert missing_sine(target, g) is None
    assert target.cost == 0
    assert growing_cost(target) == 3


@pytest.mark.parametrize("fixed_mass", [False, True])
def test_a_kernel_grows_by_the_sine(fixed_mass: bool) -> None:
    """Costs what it says, keeps a fixed mass, and starts far above the best without the sine, for its likelihood."""
    y = np.sin(2.0 * X) + 0.2 * np.sin(2.0 * np.pi * 13.0 * X + 0.4)
    options: dict[str, Any] = {"mass": 1.0} if fixed_mass else {}
    target = target_of(y, **options)
    g = smooth_kernel()
    (mode,) = latent_points(target.latent_map.inverse(g), target.values(g))
    cost = target.cost
    start: Any = grown_start(target, mode, np.random.default_rng(0))
    assert target.cost - cost == growing_cost(target)
    assert start.size == 2
    rise = start.log_posterior + 0.5 * start.xi @ start.xi - mode.log_posterior - 0.5 * mode.xi @ mode.xi
    assert rise > 3.0
    grown = target.latent_map.forward(target.latent_map.latent([2], start.xi))
    assert np.abs(grown.means.ravel() - 13.0).min() < 0.2
    if fixed_mass:
        assert float(grown.mass[0]) == pytest.approx(1.0)


@pytest.mark.parametrize("trend", ["none", "linear"])
def test_starts_are_where_the_prior_has_room(trend: str) -> None:
    """Also where nothing is left but a constant: a frequency of 0 would lie 37 standard deviations out."""
    target = target_of(np.sin(2.0 * np.pi * 5.0 * X) + 4.0 + X, trend)
    starts = spectral_starts(target)
    grown: Any = grown_start(target, starts[0], np.random.default_rng(0))
    for start in (*starts, grown):
        assert np.abs(start.xi).max() < 8.0
        values, _ = target.log_posteriors(target.latent_map.latent([start.size], start.xi))
        assert start.log_posterior == pytest.approx(float(values[0]))


def test_sines_are_sought_beside_the_trend() -> None:
    """A steep line hides the sine from a spectrum of the raw data."""
    y = 50.0 * (X - 0.5) + np.sin(2.0 * np.pi * 9.0 * X)
    target = target_of(y, "linear")
    (first, *_) = spectral_starts(target)
    mixture = target.latent_map.forward(target.latent_map.latent([1], first.xi))
    assert mixture.means[0, 0] == pytest.approx(9.0, abs=0.3)


@pytest.mark.parametrize("trend", ["none", "linear"])
def test_gradients_of_log_posteriors_meet_differences(trend: str) -> None:
    """Likelihood and prior, in the latent coordinates."""
    target = target_of(np.sin(2.0 * np.pi * 5.0 * X) + X, trend)
    for n in (1, 2, 3):
        start = 0.7 * np.random.default_rng(4).normal(size=target.latent_map.dimension(n))

        def value(xi: np.ndarray, n: int = n) -> float:
            return float(target.log_posteriors(target.latent_map.latent([n], xi))[0][0])

        _, (gradient,) = target.log_posteriors(target.latent_map.latent([n], start))
        slopes = oracle.central_differences(value, start, step=1e-5)
        np.testing.assert_allclose(gradient, slopes, rtol=0, atol=1e-5 * np.abs(slopes).max())


@pytest.mark.parametrize("dropped", [0.0, 0.3])
def test_c11_frequencies_of_a_spectrum_are_cycles_per_unit_of_x(dropped: float) -> None:
    """Start frequencies are over x̃, whose unit is the range of x; uneven spacing makes no difference."""
    x = 0.05 * np.arange(200)
    x = x[np.random.default_rng(0).uniform(size=200) >= dropped]
    window = float(np.ptp(x))
    target = target_of(np.sin(2 * np.pi * 2 * x), x=(x - x[0]) / window)
    leading = next(start for start in spectral_starts(target) if start.size == 1)
    mixture = target.latent_map.forward(target.latent_map.latent([1], leading.xi))
    assert float(mixture.means[0, 0]) / window == pytest.approx(2.0, abs=0.05)
