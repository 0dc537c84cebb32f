"""CASES, formulas and conventions, probability range and prior edges (C09 to C16), where other modules lack them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import maskerade_fast as mf
from maskerade_fast.adaptive.control_variate import effective_size, plain_estimate
from maskerade_fast.adaptive.counted_posterior import CountedPosterior
from maskerade_fast.adaptive.starts import spectral_starts
from maskerade_fast.model.data import RegressionData
from maskerade_fast.quadrature.problem import Problem


@pytest.mark.parametrize("dropped", [0.0, 0.3])
def test_c11_frequencies_of_a_spectrum_are_cycles_per_unit_of_x(dropped: float) -> None:
    """Start frequencies are over x̃, whose unit is the range of x; uneven spacing makes no difference."""
    x = 0.05 * np.arange(200)
    x = x[np.random.default_rng(0).uniform(size=200) >= dropped]
    window = float(np.ptp(x))
    data = RegressionData(((x - x[0]) / window)[:, None], np.sin(2 * np.pi * 2 * x))
    target = CountedPosterior(Problem.of(data, mf.Prior.from_data(x, 2)))
    leading = next(start for start in spectral_starts(target) if start.size == 1)
    mixture = target.latent_map.forward(target.latent_map.latent([1], leading.xi))
    frequency = float(mixture.means[0, 0]) / window
    assert frequency == pytest.approx(2.0, abs=0.05)


def test_c13_weights_of_far_log_likelihoods() -> None:
    values = np.array([-5000.0, -5001.0, -120000.0])
    replicates = np.zeros(3, dtype=np.int64)
    log_mean, _ = plain_estimate(values, replicates)
    assert log_mean == pytest.approx(-5000.78535060115, rel=1e-14)
    assert plain_estimate(np.array([900.0, 899.0]), replicates[:2])[0] == pytest.approx(899.620114506958, rel=1e-14)
    weights = np.exp(values - special.logsumexp(values))
    np.testing.assert_allclose(weights, [0.731058578630005, 0.268941421369995, 0.0], atol=1e-15)
    assert effective_size(values) == pytest.approx(1.0 / float(weights @ weights), rel=1e-14)
    for shift in (1e5, -1e5):
        assert plain_estimate(values + shift, replicates)[0] - shift == pytest.approx(log_mean, abs=1e-10)
        assert effective_size(values + shift) == pytest.approx(effective_size(values), rel=1e-10)
        np.testing.assert_allclose(plain_estimate(values + shift, replicates)[1], plain_estimate(values, replicates)[1])


@pytest.mark.parametrize("concentration", [1e-3, 1e-5, 1.0, 1e3])
def test_c14_c15_draws_of_any_concentration_can_be_scored(concentration: float) -> None:
    prior = mf.Prior.from_data(np.linspace(0.0, 1.0, 20), 3, concentration=concentration)
    draws = prior.sample(1024, np.random.default_rng(0))
    g = draws.mixtures
    assert np.isfinite(g.weights).all()
    assert (g.weights >= 0.0).all()
    sums = np.add.reduceat(g.weights, g.offsets[:-1])
    np.testing.assert_allclose(sums, g.mass, rtol=1e-12)
    assert not np.isnan(prior.log_density(g)).any()


def test_c16_dead_and_split_components() -> None:
    padded = mf.GMMBatch.from_list([([0.6, 0.4, 0.0], [0.0, 3.0, 1e8], [1.0, 1.0, 5.0]), ([1.0], [0.0], [1.0])])
    np.testing.assert_allclose(mf.energy_distance(padded)[0, 1], 0.48, rtol=1e-15)
    dead = mf.GMMBatch.from_list([([1.0, 0.0], [0.3, 5.0], [0.1, 2.0])])
    np.testing.assert_allclose(mf.gram(dead, [0.0, 0.4])[0, 0, 1], 0.706305569548513, rtol=1e-14)
    for bad in (np.inf, np.nan, -np.inf):
        with pytest.raises(ValueError, match="means of mixture 0, component 1"):
            mf.GMMBatch.from_list([([1.0, 0.0], [0.3, bad], [0.1, 2.0])])
    rng = np.random.default_rng(0)
    for n_dims in (1, 3):
        w, m, s = rng.dirichlet(np.ones(4)), rng.normal(size=(4, n_dims)), rng.uniform(0.1, 1.0, (4, n_dims))
        order = rng.permutation(4)
        halves = (np.concatenate([0.5 * w, 0.5 * w]), np.concatenate([m, m]), np.concatenate([s, s]))
        g = mf.GMMBatch.from_list([(w, m, s), (w[order], m[order], s[order]), halves])
        E = mf.energy_distance(g)
        assert E.max() <= 1e-14 * float(np.abs(m).max() + s.max())
        X: Any = rng.uniform(size=(5, n_dims))
        K = mf.gram(g, X)
        np.testing.assert_allclose(K[1:], K[:1].repeat(2, axis=0), rtol=0, atol=1e-15)
