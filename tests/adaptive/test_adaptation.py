"""Ascents, modes and the measures made of them: gradients, costs, twins, shares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from maskerade_fast.adaptive.adaptation import Adaptation, embed_mode, laplace_mixture, size_shares, tempered_weights
from maskerade_fast.adaptive.counted_posterior import CountedPosterior
from maskerade_fast.adaptive.mixture_measure import MixtureMeasure
from maskerade_fast.adaptive.modes import Mode, ascend, inverse_factor, is_same_mode
from maskerade_fast.adaptive.starts import LatentPoint
from maskerade_fast.model.component_orders import in_every_order
from maskerade_fast.model.data import RegressionData
from maskerade_fast.model.prior import Prior
from maskerade_fast.ops.likelihood import log_likelihood
from maskerade_fast.quadrature.problem import Problem
from maskerade_fast.run.marginalise import marginalise

X = np.linspace(0.0, 1.0, 30)
Y = np.sin(2 * np.pi * 3 * X) + 0.3 * np.cos(2 * np.pi * 7 * X) + 0.1 * np.sin(1e4 * np.arange(30.0) ** 2)
PRIOR = Prior.from_data(X, max_components=3)


@pytest.fixture
def target() -> CountedPosterior:
    return CountedPosterior(Problem.of(RegressionData(X, Y), PRIOR))


def test_values_and_costs_of_every_size(target: CountedPosterior, rng: np.random.Generator) -> None:
    """The likelihood less half the square of the coordinates; a gradient counts three (slopes: test_starts)."""
    latent = PRIOR.sample(2, rng).latent
    values, gradients = target.log_posteriors(latent)
    assert target.cost == 3 * len(latent)
    assert target.evaluations == len(latent) == len(gradients)
    expected = log_likelihood(PRIOR.latent_map.forward(latent), X, Y).value
    np.testing.assert_allclose(values + [0.5 * xi @ xi for xi in latent.points()], expected, atol=1e-10)


def test_ascents_rise_within_their_budget(target: CountedPosterior, rng: np.random.Generator) -> None:
    latent = PRIOR.sample(2, rng).latent
    starts = [LatentPoint(int(n), xi, 0.0) for n, xi in zip(latent.sizes, latent.points(), strict=True)]
    first, _ = target.log_posteriors(latent)
    before = target.cost
    ends = ascend(target, starts, 240)
    assert target.cost - before <= 240
    assert len(ends) == len(starts)
    assert all(end.log_posterior >= value for end, value in zip(ends, first, strict=True))
    assert max(end.log_posterior for end in ends) > first.max() + 1.0
    assert ascend(target, starts, 5) == []


def test_an_ascent_does_not_depend_on_others(target: CountedPosterior, rng: np.random.Generator) -> None:
    latent = PRIOR.sample(2, rng).latent
    starts = [LatentPoint(int(n), xi, 0.0) for n, xi in zip(latent.sizes, latent.points(), strict=True)]
    together = ascend(target, starts, 3 * 10 * len(starts))
    alone = ascend(target, starts[2:3], 30)
    np.testing.assert_array_equal(alone[0].xi, together[2].xi)


def test_twins_are_recognised(rng: np.random.Generator) -> None:
    latent_map = PRIOR.latent_map
    draws = PRIOR.sample([1, 1, 2], rng)
    g = draws.mixtures[draws.latent.sizes == 3][0]
    ((_, xi),) = in_every_order(latent_map, g, 3)
    mode = Mode(3, xi[0, 0], 0.0, 0.05 * np.eye(xi.shape[2]))
    assert all(is_same_mode(latent_map, mode, LatentPoint(3, turned, 0.0)) for turned in xi[0])
    assert not is_same_mode(latent_map, mode, LatentPoint(3, xi[0, 0] + 0.2, 0.0))


def test_curvature_is_inverted_and_raised(rng: np.random.Generator) -> None:
    factor = rng.normal(size=(4, 4))
    curvature = factor @ factor.T + np.eye(4)
    root = inverse_factor(curvature)
    np.testing.assert_allclose(root @ root.T @ curvature, np.eye(4), atol=1e-10)
    flat = inverse_factor(np.diag([1e-9, -3.0, 100.0]))
    np.testing.assert_allclose(np.diag(flat @ flat.T), [2.0, 1.0, 0.01])
    assert np.isfinite(inverse_factor(np.full((3, 3), np.nan))).all()


def test_laplace_mixture_of_a_gaussian_posterior() -> None:
    """Where log L is quadratic the mixture's centre, spread and log mass are exact."""
    d = PRIOR.latent_map.dimension(1)
    factor = 0.5 * np.eye(d)
    mode = Mode(1, np.ones(d), -3.0, factor)
    assert mode.log_mass == pytest.approx(-3.0 + d * math.log(0.5))
    q = laplace_mixture(PRIOR, (mode,))
    np.testing.assert_array_equal(q.parts[0].centres[0], mode.xi)
    assert len(laplace_mixture(PRIOR, (Mode(2, np.ones(7), -3.0, np.eye(7)),)).parts[0].shares) == 0
    assert q.size_probabilities[0] > q.size_probabilities[1] > q.size_probabilities[2] > 0.1


def test_components_are_added_to_a_smaller_mode(rng: np.random.Generator) -> None:
    """The others keep mixture, spread and noise, but for the mass that the added ones take."""
    latent_map = PRIOR.latent_map
    d = latent_map.dimension(2)
    root = np.tril(rng.normal(size=(d, d)))
    mode = Mode(2, rng.normal(size=d), 0.0, root)
    g = latent_map.forward(latent_map.latent([2], mode.xi))
    centre, factor = embed_mode(latent_map, mode, 3, -2.0, 0.7)
    h = latent_map.forward(latent_map.latent([3], centre))
    left = 1.0 - h.weights[0] / h.weights.sum()
    assert 0.95 < left < 1.0
    np.testing.assert_allclose(h.weights[1:] / left, g.weights, rtol=1e-12)
    np.testing.assert_allclose(h.means[1:], g.means, rtol=1e-12)
    np.testing.assert_allclose(h.scales[1:], g.scales, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(h.noise_variances), np.asarray(g.noise_variances), rtol=1e-12)
    # a move of the mode's coordinates by its factor moves those of the larger mixture by its own
    step = rng.normal(size=latent_map.dimension(3))
    added = [0, 2, 5]  # stick, mean and scale of the added component
    kept = [i for i in range(len(step)) if i not in added]
    np.testing.assert_allclose((factor @ step)[kept], root @ step[kept], rtol=1e-12)
    np.testing.assert_allclose((factor @ step)[added], [0.7 * step[0], step[2], step[5]], rtol=1e-12)


def test_a_draw_that_carries_the_weight_gets_its_own_distribution(target: CountedPosterior) -> None:
    adaptation = Adaptation(target, np.random.default_rng(0))
    adaptation.design(20)
    before = target.cost
    adaptation.refine(60, 0)
    sample: Any = adaptation.sample
    log_f = sample.log_likelihoods + sample.measure.log_density_ratio(sample.mixtures)
    heaviest = int(np.argmax(log_f))
    mode = adaptation.modes[0]
    twin = PRIOR.latent_map.forward(PRIOR.latent_map.latent([mode.size], mode.xi))
    np.testing.assert_allclose(np.sort(twin.means[:, 0]), np.sort(sample.mixtures[heaviest].means[:, 0]))
    assert 60 < target.cost - before <= 90


def test_a_draw_above_the_modes_is_climbed_from(target: CountedPosterior) -> None:
    adaptation = Adaptation(target, np.random.default_rng(0))
    adaptation.design(20)
    assert adaptation.log_evidence_by_modes == -np.inf
    before = target.cost
    adaptation.refine(60, 800)
    assert 60 < target.cost - before <= 60 + 200
    assert adaptation.sample is not None
    (mode,) = adaptation.modes
    values, gradients = target.log_posteriors(target.latent_map.latent([mode.size], mode.xi))
    assert values[0] == pytest.approx(mode.log_posterior)
    assert np.abs(mode.factor.T @ gradients[0]).max() < 0.1  # of a standard deviation: a maximum
    assert adaptation.log_evidence_by_modes == pytest.approx(mode.log_mass - np.log(PRIOR.max_components))
    adaptation.refine(60, 500)  # nothing is higher now
    assert adaptation.modes[0] is mode
    assert adaptation.log_evidence_by_modes == pytest.approx(mode.log_mass - np.log(PRIOR.max_components))


def test_modes_get_their_share_only_where_the_prior_misses() -> None:
    """A flat likelihood is sampled from the prior, at one likelihood a draw."""
    run: dict[str, Any] = {
        "prior": Prior.paper(X, 2, noise_variance=100.0),
        "budget": 200,
        "standardise": False,
        "seed": 0,
    }
    history = marginalise(X, Y, device="cpu", **run).history
    assert history[-1].evaluations == history[-1].cost == 200
    sharp = marginalise(X, Y, device="cpu", **{**run, "prior": PRIOR}).history
    assert sharp[-1].evaluations < sharp[-1].cost


def test_shares_and_tempered() -> None:
    shares = size_shares(PRIOR, np.array([-np.inf, 0.0, -1.0]))
    assert shares.sum() == pytest.approx(1.0)
    assert shares[1] > shares[2] > shares[0] > 0.0
    np.testing.assert_array_equal(size_shares(PRIOR, np.full(3, -np.inf)), PRIOR.size_probabilities)
    weights = tempered_weights(np.array([0.0, *np.full(49, -50.0)]), 10.0)
    assert 1.0 / (weights @ weights) >= 10.0
    np.testing.assert_allclose(tempered_weights(np.zeros(8), 100.0), 1.0 / 8.0)


def test_adaptation_counts_and_ends_near_the_posterior(target: CountedPosterior, rng: np.random.Generator) -> None:
    adaptation = Adaptation(target, rng)
    adaptation.design(60)
    assert target.cost == 60
    adaptation.ascend(300)
    assert target.cost <= 360
    for _ in range(3):
        adaptation.refine(40, 500)
    assert adaptation.sample is not None
    assert adaptation.sample.counts == (60, 40, 40, 40)
    assert len(adaptation.sample.log_likelihoods) == 180

    def effective(q: MixtureMeasure) -> float:
        draws = q.random_draws(400, 7).mixtures
        log_f = log_likelihood(draws, X, Y).value + q.log_density_ratio(draws)
        f = np.exp(log_f - log_f.max())
        return float(f.sum() ** 2 / (f @ f))

    assert effective(adaptation.measure) > 4.0 * effective(MixtureMeasure.of_prior(PRIOR))
