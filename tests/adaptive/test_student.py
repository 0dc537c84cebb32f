"""Mixtures of t distributions: normalised densities, draws that follow them, refits that keep moments and fall back."""

from __future__ import annotations

import numpy as np
import pytest
from comparisons import one_thread
from scipy import stats
from scipy.special import logsumexp

from maskerade_fast.adaptive.student import FREEDOM, LEAST_PRIOR, StudentMixture
from maskerade_fast.model.nets import sobol_normal


def mixture(rng: np.random.Generator, d: int = 3, count: int = 2, prior_share: float = 0.25) -> StudentMixture:
    shares = rng.dirichlet(np.ones(count)) * (1.0 - prior_share)
    scale = rng.normal(size=(count, d, d))
    factors = np.linalg.cholesky(0.2 * scale @ scale.transpose(0, 2, 1) + 0.3 * np.eye(d))
    return StudentMixture(shares, rng.normal(size=(count, d)), factors, prior_share)


def test_density_against_scipy(rng: np.random.Generator) -> None:
    q = mixture(rng)
    xi = 2.0 * rng.normal(size=(50, 3))
    prior = stats.multivariate_normal(np.zeros(3))
    terms = [np.log(q.prior_share) + prior.logpdf(xi)]
    for share, centre, factor in zip(q.shares, q.centres, q.factors, strict=True):
        terms.append(np.log(share) + stats.multivariate_t(centre, factor @ factor.T, df=FREEDOM).logpdf(xi))
    np.testing.assert_allclose(q.log_ratio(xi), logsumexp(terms, axis=0) - prior.logpdf(xi), atol=1e-12)


def test_draws_follow_the_density(rng: np.random.Generator) -> None:
    """The prior's density over the mixture's has mean 1 over its draws, and so have the prior's moments."""
    q = mixture(rng)
    xi = q.transform(sobol_normal(5, 2**15, rng))
    ratio = np.exp(-q.log_ratio(xi))
    assert ratio.mean() == pytest.approx(1.0, abs=2e-3)
    np.testing.assert_allclose((ratio[:, None] * xi).mean(axis=0), 0.0, atol=1e-2)
    np.testing.assert_allclose((ratio[:, None] * xi**2).mean(axis=0), 1.0, atol=2e-2)


def test_shares_of_the_draws(rng: np.random.Generator) -> None:
    q = StudentMixture(np.array([0.6, 0.3]), np.array([[50.0], [-50.0]]), np.full((2, 1, 1), 0.1), 0.1)
    xi = q.transform(sobol_normal(3, 2**12, rng))[:, 0]
    np.testing.assert_allclose([(xi > 25).mean(), (xi < -25).mean()], [0.6, 0.3], atol=2e-3)


def test_average_is_the_mixture_of_mixtures(rng: np.random.Generator) -> None:
    parts, weights = [mixture(rng), mixture(rng, count=3), StudentMixture.prior(3)], np.array([0.5, 0.3, 0.2])
    xi = rng.normal(size=(20, 3))
    expected = logsumexp([p.log_ratio(xi) for p in parts], axis=0, b=weights[:, None])
    np.testing.assert_allclose(StudentMixture.average(parts, weights).log_ratio(xi), expected, atol=1e-13)


def test_refit_finds_the_moments_of_many_draws(rng: np.random.Generator) -> None:
    start = StudentMixture(np.array([0.9]), np.zeros((1, 2)), np.eye(2)[None], 0.1)
    covariance = np.array([[0.09, 0.03], [0.03, 0.04]])
    xi = rng.multivariate_normal([1.0, -2.0], covariance, size=4000)
    fitted = start.refitted(xi, np.full(4000, 1.0 / 4000))
    np.testing.assert_allclose(fitted.centres[0], [1.0, -2.0], atol=0.02)
    scale = fitted.factors[0] @ fitted.factors[0].T
    np.testing.assert_allclose(scale / scale[0, 0], covariance / covariance[0, 0], atol=0.05)
    assert fitted.prior_share == pytest.approx(LEAST_PRIOR, abs=0.01)
    assert fitted.log_ratio(xi).mean() > start.log_ratio(xi).mean() + 1.0


def test_refit_to_one_draw_keeps_the_spread(rng: np.random.Generator) -> None:
    """A single draw that carries all weight must not shrink the proposal to a point."""
    start = StudentMixture(np.array([0.9]), np.zeros((1, 4)), np.eye(4)[None], 0.1)
    weights = np.zeros(30)
    weights[3] = 1.0
    fitted = start.refitted(rng.normal(size=(30, 4)), weights)
    widths = np.linalg.svd(fitted.factors[0], compute_uv=False)
    assert widths.min() > 0.5


def test_refit_follows_a_curved_ridge(rng: np.random.Generator) -> None:
    """Kernels round the draws score better on fresh draws of a banana than one t distribution does."""

    def banana(count: int) -> np.ndarray:
        a = rng.normal(size=(count, 2))
        return np.stack([a[:, 0], a[:, 0] ** 2 - 1.0 + 0.15 * a[:, 1]], axis=1)

    start = StudentMixture(np.array([0.9]), np.zeros((1, 2)), np.eye(2)[None], 0.1)
    xi, fresh = banana(300), banana(2000)
    fitted = start.refitted(xi, np.full(300, 1.0 / 300))
    covariance = np.cov(xi.T)
    single = StudentMixture(np.array([0.9]), xi.mean(axis=0)[None], np.linalg.cholesky(covariance)[None], 0.1)
    assert len(fitted.shares) > 10
    assert fitted.log_ratio(fresh).mean() > single.log_ratio(fresh).mean() + 0.2


def test_the_prior_alone_is_left_alone(rng: np.random.Generator) -> None:
    prior = StudentMixture.prior(3)
    xi = rng.normal(size=(10, 3))
    np.testing.assert_array_equal(prior.log_ratio(xi), 0.0)
    assert prior.refitted(xi, np.full(10, 0.1)) is prior


@pytest.mark.parametrize("d", [*range(1, 10), 40, 85])
def test_ratio_is_the_sum_of_the_terms(d: int, rng: np.random.Generator) -> None:
    """More draws than one block, kernels that share factors, draws far off, and some that a kernel does not see."""
    roots = rng.normal(size=(2, d, d))
    factors = np.repeat(np.linalg.cholesky(1e-3 * roots @ roots.transpose(0, 2, 1) + 1e-5 * np.eye(d)), 5, axis=0)
    mixture = StudentMixture(np.full(10, 0.07), rng.normal(size=(10, d)), factors, 0.3)
    xi = np.concatenate([3.0 * rng.normal(size=(600, d)), mixture.centres + 1e-3, 1e4 * rng.normal(size=(5, d))])
    left_out = np.where(np.arange(10) % 2, -1, 600 + np.arange(10))
    terms = mixture.log_terms(xi)
    np.testing.assert_allclose(
        mixture.log_ratio(xi), np.logaddexp(np.log(0.3), logsumexp(terms, axis=0)), rtol=1e-13, atol=1e-13
    )
    terms[np.arange(0, 10, 2), left_out[::2]] = -np.inf
    expected = np.logaddexp(np.log(0.3), logsumexp(terms, axis=0))
    np.testing.assert_allclose(mixture.log_ratio(xi, left_out=left_out), expected, rtol=1e-13, atol=1e-13)


def test_far_off_in_many_dimensions_no_power_is_lost() -> None:
    """Coordinates of a weight and a scale of 0 beside a narrow kernel: the powers themselves underflow."""
    mixture = StudentMixture(np.array([0.9]), np.zeros((1, 85)), 0.005 * np.eye(85)[None], 0.1)
    xi = np.zeros((3, 85))
    xi[1, :2] = 37.5, -37.5
    ratio = mixture.log_ratio(xi)
    np.testing.assert_allclose(ratio, np.logaddexp(np.log(0.1), mixture.log_terms(xi)[0]), rtol=1e-12)
    assert ratio[1] > 1000.0
    np.testing.assert_allclose(mixture.log_ratio(xi, left_out=np.array([1]))[1], np.log(0.1))


def test_bits_of_a_ratio_depend_on_its_draw_alone(rng: np.random.Generator) -> None:
    roots = rng.normal(size=(3, 5, 5))
    factors = np.linalg.cholesky(roots @ roots.transpose(0, 2, 1) + np.eye(5))
    mixture = StudentMixture(np.full(3, 0.2), rng.normal(size=(3, 5)), factors, 0.4)
    xi = rng.normal(size=(1500, 5))
    together = mixture.log_ratio(xi)
    for rows in (slice(0, 1), slice(7, 300), slice(1499, 1500)):
        np.testing.assert_array_equal(mixture.log_ratio(xi[rows]), together[rows])
    with one_thread():
        np.testing.assert_array_equal(mixture.log_ratio(np.tile(xi, (20, 1)))[:1500], together)
    np.testing.assert_array_equal(mixture.log_ratio(np.tile(xi, (20, 1)))[-1500:], together)
    np.testing.assert_array_equal(mixture.log_ratio(xi[::2]), together[::2])
