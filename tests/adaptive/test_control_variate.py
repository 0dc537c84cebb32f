"""Evidence from draws with the surrogate as control variate: unbiased, calibrated, exact where it must be."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from maskerade_fast.adaptive.control_variate import (
    ControlledEstimate,
    controlled_estimate,
    cut_outliers,
    effective_size,
    plain_estimate,
    standard_error,
)
from maskerade_fast.adaptive.mixture_measure import MixtureMeasure
from maskerade_fast.adaptive.student import StudentMixture
from maskerade_fast.model.gmm import GMMBatch, concat
from maskerade_fast.model.prior import Prior
from maskerade_fast.quadrature.problem import default_metric

X = np.linspace(0.0, 1.0, 12)
PRIOR = Prior.paper(X, max_components=3, noise_variance=1e-2)


def measure(rng: np.random.Generator) -> MixtureMeasure:
    """Some measure that favours no order of components in particular."""
    parts = []
    for n in (1, 2, 3):
        d = PRIOR.latent_map.dimension(n)
        factors = np.linalg.cholesky(0.3 * np.eye(d) + 0.2 * np.ones((d, d)))[None]
        parts.append(StudentMixture(np.array([0.7]), 0.3 * rng.normal(size=(1, d)), factors, 0.3))
    return MixtureMeasure(PRIOR, np.array([0.5, 0.3, 0.2]), tuple(parts))


def log_likelihood(g: GMMBatch) -> np.ndarray:
    """Something smooth that forgets the order of components, in place of a likelihood."""
    mean = np.add.reduceat(g.weights * g.means[:, 0], g.offsets[:-1])
    return -0.5 * ((mean - 1.0) / 0.3) ** 2 - 40.0


def estimate(seed: int, count: int = 120, outlier: float = 0.0):
    rng = np.random.default_rng(seed)
    q = measure(np.random.default_rng(5))
    batches = [q.random_draws(20, rng).mixtures for _ in range(count // 20)]
    mixtures = concat([PRIOR.sample(8, rng).mixtures, *batches])
    replicates = np.concatenate([np.full(24, -1), np.repeat(np.arange(count // 20), 20)])
    nets = [q.nodes(512, rng) for _ in range(8)]
    values = log_likelihood(mixtures)
    if outlier:
        log_f = values + q.log_density_ratio(mixtures)
        values[50] += np.log(outlier * np.exp(log_f[24:] - log_f[50]).sum())
    return controlled_estimate(q, mixtures, values, replicates, nets, default_metric(PRIOR), 1, "cpu")


def by_draws_alone(estimate: ControlledEstimate) -> float:
    """Log of the mean of f over the draws, outliers cut."""
    log_f = estimate.log_f[estimate.sampled]
    return plain_estimate(log_f, np.zeros(len(log_f), dtype=np.int64))[0]


@pytest.fixture(scope="module")
def truth() -> tuple[float, np.ndarray]:
    """Log evidence and posterior of sizes, by many draws from the prior."""
    draws = PRIOR.sample(2**14, 3)
    values = draws.weights * np.exp(log_likelihood(draws.mixtures) + 40.0)
    by_size = np.bincount(draws.latent.sizes - 1, values)
    return float(np.log(values.sum()) - 40.0), by_size / by_size.sum()


def test_averages_over_labels(rng: np.random.Generator) -> None:
    """The measure's own ratio integrates to p(n) for every size, and f to the same evidence as under the prior."""
    q = measure(rng)
    draws = q.net(2**12, rng)
    ratio = draws.weights * np.exp(q.log_density_ratio(draws.mixtures))
    np.testing.assert_allclose(np.bincount(draws.latent.sizes - 1, ratio), 1.0 / 3.0, rtol=0.02)
    mean, _ = plain_estimate(
        log_likelihood(draws.mixtures) + np.log(ratio * len(draws)), np.zeros(len(draws), dtype=int)
    )
    reference = PRIOR.sample(2**13, 1)
    expected = np.log(reference.weights @ np.exp(log_likelihood(reference.mixtures) + 40.0)) - 40.0
    assert mean == pytest.approx(expected, abs=0.03)


def test_ratio_does_not_depend_on_the_order(rng: np.random.Generator) -> None:
    q = measure(rng)
    draws = q.net([1, 1, 16], rng)
    g = draws.mixtures[draws.latent.sizes == 3]
    turned = np.arange(len(g.weights)).reshape(-1, 3)[:, [2, 0, 1]].ravel()
    other = dataclasses.replace(g, weights=g.weights[turned], means=g.means[turned], scales=g.scales[turned])
    np.testing.assert_allclose(q.log_density_ratio(other), q.log_density_ratio(g), atol=1e-9)


@pytest.mark.slow
def test_unbiased_and_calibrated(truth: tuple[float, np.ndarray]) -> None:
    """Thirty seeds: the mean error is within three standard errors of 0, the reported sd neither proud nor shy."""
    results = [estimate(seed) for seed in range(30)]
    errors = np.array([r.log_evidence for r in results]) - truth[0]
    sds = np.array([r.log_evidence_sd for r in results])
    rms = float(np.sqrt(np.mean(errors**2)))
    assert abs(errors.mean()) < 3.0 * errors.std() / np.sqrt(30)
    assert (np.abs(errors) < 2.0 * sds).mean() >= 0.9
    assert rms / 2 < np.median(sds) < 3.0 * rms
    plain = np.array([by_draws_alone(r) for r in results]) - truth[0]
    assert rms < 0.5 * np.sqrt(np.mean(plain**2))  # the surrogate explains this one
    assert np.median([r.explained for r in results]) > 0.8
    by_size = np.mean([r.by_size for r in results], axis=0)
    np.testing.assert_allclose(by_size, truth[1], atol=0.02)


def test_leaving_out_is_exact() -> None:
    """The predictions and integrals without a draw are those of a surrogate that never saw it."""
    from maskerade_fast.adaptive.control_variate import _Fit, _Prediction
    from maskerade_fast.quadrature.surrogate import Surrogate

    rng = np.random.default_rng(0)
    q = measure(rng)
    g, nodes = q.random_draws(12, rng).mixtures, q.nodes(64, rng)
    values = log_likelihood(g)
    values -= values.max()
    settings: dict[str, Any] = {"metric": default_metric(PRIOR), "power": 1, "outputscale": 1.0, "lengthscale": 1.5}
    whole = Surrogate.fit(g, values, epsilon_factor=0.0, **settings)
    prediction = _Prediction.of(whole, np.ones(12), np.arange(12))
    fit = _Fit.of(prediction, nodes.mixtures, nodes.weights, np.zeros(len(nodes), dtype=int))
    np.testing.assert_allclose(fit.node_values, 0.5 * whole.mean(nodes.mixtures) ** 2, rtol=1e-8)
    for i in (0, 5, 11):
        others = np.delete(np.arange(12), i)
        part = Surrogate.fit(g[others], values[others], epsilon_factor=0.0, **settings)
        scale = np.exp(part.log_offset - whole.log_offset)
        mean = np.sqrt(scale) * part.mean(g[i])
        np.testing.assert_allclose(prediction.predicted[i], 0.5 * mean[0] ** 2, rtol=1e-8)
        at_nodes = 0.5 * scale * part.mean(nodes.mixtures) ** 2
        np.testing.assert_allclose(fit.integrals[i, 0], nodes.weights @ at_nodes, rtol=1e-8)


def test_standard_error() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(2000, 240))
    replicates = np.repeat(np.arange(12), 20)
    errors = np.array([standard_error(v, replicates) for v in values])
    assert np.mean(np.abs(values.mean(axis=1)) < 2.0 * errors) == pytest.approx(0.954, abs=0.015)
    few = standard_error(values[0], np.zeros(240, dtype=int))
    assert few == pytest.approx(values[0].std(ddof=1) / np.sqrt(240))


def test_nothing_finite() -> None:
    log_mean, sd = plain_estimate(np.full(5, -np.inf), np.arange(5))
    assert log_mean == -np.inf
    assert sd == np.inf


def test_single_outliers_are_cut_at_twice_the_root(rng: np.random.Generator) -> None:
    """The second result is what the cut took from the mean; draws without a clear outlier stay."""
    log_f = rng.normal(size=400)
    np.testing.assert_array_equal(cut_outliers(log_f)[0], log_f)
    assert cut_outliers(log_f)[1] == 0.0
    log_f[7] = np.log(3.0 * np.exp(log_f).sum())
    mean = np.exp(log_f).mean()
    cut, taken = cut_outliers(log_f)
    assert np.exp(cut[7]) == pytest.approx(2.0 * np.sqrt(400) * mean)
    np.testing.assert_array_equal(np.delete(cut, 7), np.delete(log_f, 7))
    assert taken == pytest.approx(np.log(mean / np.exp(cut).mean()))
    for hopeless in (np.array([0.0, *np.full(399, -50.0)]), np.full(5, -np.inf)):
        np.testing.assert_array_equal(cut_outliers(hopeless)[0], hopeless)
        assert cut_outliers(hopeless)[1] == 0.0


def test_what_is_cut_enters_the_sd() -> None:
    """One draw of 240 with as much as all others: the estimate moves little, and the sd tells what was cut."""
    plain, outlier = estimate(1, count=240), estimate(1, count=240, outlier=1.0)
    assert 0.0 < by_draws_alone(outlier) - by_draws_alone(plain) < 0.3 < np.log(2.0)
    assert abs(outlier.log_evidence - plain.log_evidence) < 2.0 * outlier.log_evidence_sd
    assert outlier.log_evidence_sd > 0.4


def test_c13_weights_of_far_log_likelihoods() -> None:
    values = np.array([-5000.0, -5001.0, -120000.0])
    groups = np.zeros(3, dtype=np.int64)
    log_mean, sd = plain_estimate(values, groups)
    assert log_mean == pytest.approx(-5000.78535060115, rel=1e-14)
    assert plain_estimate(np.array([900.0, 899.0]), groups[:2])[0] == pytest.approx(899.620114506958, rel=1e-14)
    weights = np.array([0.731058578630005, 0.268941421369995, 0.0])
    assert effective_size(values) == pytest.approx(1.0 / float(weights @ weights), rel=1e-14)
    for shift in (1e5, -1e5):
        assert plain_estimate(values + shift, groups)[0] - shift == pytest.approx(log_mean, abs=1e-10)
        assert plain_estimate(values + shift, groups)[1] == pytest.approx(sd, rel=1e-7)
        assert effective_size(values + shift) == pytest.approx(effective_size(values), rel=1e-10)
