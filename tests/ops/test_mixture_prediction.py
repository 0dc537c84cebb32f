"""The predictive mixture: golden values, oracle, identities, tails, independence of points and threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from comparisons import close, one_thread
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr, ndtri

from maskerade_fast import combine_gaussians, combine_gaussians_joint

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "prediction.json").read_text())
GOLDEN_CASES = pytest.mark.parametrize("case", GOLDEN, ids=[f"D{c['D']}" for c in GOLDEN])


def problem(rng: np.random.Generator, h: int, n_points: int, spread: float = 1.0) -> tuple[Any, Any, Any]:
    """Pair weights with entries of both signs, means and variances."""
    factor = rng.normal(size=(h, h)) + 0.5
    means = spread * rng.normal(size=(h, n_points))
    return factor @ factor.T, means, np.exp(rng.normal(size=(h, n_points)))


def covariances(rng: np.random.Generator, h: int, n: int) -> Any:
    roots = rng.normal(size=(h, n, n))
    return roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(n)


@GOLDEN_CASES
def test_golden_pointwise(case: dict[str, Any]) -> None:
    variances = [np.diagonal(C) for C in np.array(case["gp_covariances"])]
    p = combine_gaussians(case["pair_weights"], case["gp_means"], variances)
    close(p.mean, case["mean"], 1e-10, least=0.0)
    close(p.variance, case["variance"], 1e-10, least=0.0)
    close(p.log_density(case["y_test"]), case["log_density"], 1e-10, least=0.0)


@GOLDEN_CASES
def test_golden_joint(case: dict[str, Any]) -> None:
    joint = combine_gaussians_joint(case["pair_weights"], case["gp_means"], case["gp_covariances"], case["y_test"])
    close(joint.mean, case["joint_mean"], 1e-10, least=0.0)
    close(joint.log_density, case["joint_log_density"], 1e-10, least=0.0)


@pytest.mark.parametrize("h", [1, 2, 7])
def test_pointwise_is_the_oracle(rng: np.random.Generator, h: int) -> None:
    W, means, variances = problem(rng, h, 6)
    p, expected = combine_gaussians(W, means, variances), oracle.combine_gaussians(W, means, variances)
    y = rng.normal(size=6)
    assert_allclose(p.mean, expected.mean, rtol=0.0, atol=1e-12)
    assert_allclose(p.variance, expected.variance, rtol=1e-12)
    assert_allclose(p.log_density(y), expected.log_density(y), rtol=0.0, atol=1e-11)
    assert_allclose(p.cdf(y), expected.cdf(y), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(("h", "n"), [(1, 3), (4, 1), (5, 4)])
def test_joint_is_the_oracle(rng: np.random.Generator, h: int, n: int) -> None:
    W, means, _ = problem(rng, h, n)
    C, y = covariances(rng, h, n), rng.normal(size=n)
    joint = combine_gaussians_joint(W, means, C, y)
    log_density, mean = oracle.combine_gaussians_joint(W, means, C, y)
    assert joint.log_density == pytest.approx(log_density, abs=1e-10)
    assert_allclose(joint.mean, mean, rtol=0.0, atol=1e-11)


def test_one_observation_is_its_gaussian() -> None:
    means, variances, y = np.array([[3.0, -1e9]]), np.array([[0.25, 4.0]]), np.array([2.5, -1e9 + 1.0])
    p = combine_gaussians([[7.0]], means, variances)
    assert_array_equal(p.mean, means[0])
    assert_allclose(p.variance, variances[0], rtol=1e-15)
    gaussian = -0.5 * (y - means[0]) ** 2 / variances[0] - 0.5 * np.log(2.0 * np.pi * variances[0])
    assert_allclose(p.log_density(y), gaussian, rtol=1e-15)
    q = np.array([1e-300, 1e-12, 0.3, 0.5, 0.99, 1.0 - 1e-12])
    scores = ndtri(q)[:, None]
    expected = means[0] + scores * np.sqrt(variances[0])
    assert_allclose(p.quantile(q)[:, 0], expected[:, 0], rtol=1e-11)
    assert_allclose(p.quantile(q)[:, 1], expected[:, 1], rtol=0.0, atol=1e-6)  # the spacing of doubles at 1e9
    assert_allclose(p.cdf([2.5, -1e9 + 1.0]), ndtr([-1.0, 0.5]), rtol=1e-14)


def test_tails_of_the_normal_distribution() -> None:
    """Every z the polynomial serves, deep tail included."""
    z = np.linspace(-37.0, 8.0, 2001)
    p = combine_gaussians([[1.0]], np.zeros((1, len(z))), np.ones((1, len(z))))
    assert_allclose(p.cdf(z), ndtr(z), rtol=4e-13)
    assert_allclose(p.cdf(z)[z > -5.0], ndtr(z[z > -5.0]), rtol=8e-15)


@pytest.mark.parametrize("spread", [0.0, 1.0, 50.0])  # one mode to many far apart
def test_quantile_inverts_cdf(rng: np.random.Generator, spread: float) -> None:
    W, means, variances = problem(rng, 6, 20, spread)
    p = combine_gaussians(W, means, variances)
    q = np.array([1e-9, 0.01, 0.25, 0.5, 0.75, 0.999, 1.0 - 1e-9])
    quantiles = p.quantile(q)
    assert quantiles.shape == (7, 20)
    assert (np.diff(quantiles, axis=0) > 0.0).all()
    tail = np.minimum(q, 1.0 - q)[:, None]
    assert (np.abs(p.cdf(quantiles) - q[:, None]) <= 1e-8 * tail + 1e-14).all()
    assert_array_equal(p.quantile(0.25), quantiles[2])
    assert_array_equal(p.quantile([0.0, 1.0]), [[-np.inf] * 20, [np.inf] * 20])


def test_far_tail_is_finite_and_that_of_the_widest(rng: np.random.Generator) -> None:
    W, means, _ = problem(rng, 4, 1)
    sds = np.array([[0.1], [1.0], [3.0], [0.5]])
    y = 1e3 * 3.0
    p = combine_gaussians(W, means, sds**2)
    widest = combine_gaussians(W[2:3, 2:3], means[2:3], sds[2:3] ** 2)
    expected = widest.log_density([y]) + np.log(p.pair_weights[2, 2] / p.total)
    assert_allclose(p.log_density([y]), expected, rtol=1e-12)


def test_weights_up_to_a_factor(rng: np.random.Generator) -> None:
    W, means, variances = problem(rng, 5, 4)
    p = combine_gaussians(W, means, variances)
    for factor in (1e-280, 1e280):
        other = combine_gaussians(factor * W, means, variances)
        assert_allclose(other.mean, p.mean, rtol=0.0, atol=1e-14)
        assert_allclose(other.log_density(means[0]), p.log_density(means[0]), rtol=0.0, atol=1e-13)


def test_a_factor_is_used(rng: np.random.Generator) -> None:
    factor = rng.normal(size=(5, 3))
    means, variances = rng.normal(size=(5, 4)), np.ones((5, 4))
    by_factor = combine_gaussians(factor @ factor.T, means, variances, factor=factor)
    by_eigenvectors = combine_gaussians(factor @ factor.T, means, variances)
    y = rng.normal(size=4)
    assert by_factor.factor.shape == (5, 3)
    assert_allclose(by_factor.log_density(y), by_eigenvectors.log_density(y), rtol=0.0, atol=1e-12)
    with pytest.raises(ValueError, match=r"factor: F F\^T differs"):
        combine_gaussians(factor @ factor.T, means, variances, factor=2.0 * factor)


def test_observation_without_weight_changes_no_bit(rng: np.random.Generator) -> None:
    factor = rng.normal(size=(4, 4))
    W, means, variances = factor @ factor.T, rng.normal(size=(4, 3)), np.ones((4, 3))
    more = [np.insert(a, 2, 0.0, axis=0) for a in (factor, means, variances)]
    more[1][2], more[2][2] = 1e6, 1e12  # far away and wide: it would own the tails
    p = combine_gaussians(W, means, variances, factor=factor)
    other = combine_gaussians(np.insert(np.insert(W, 2, 0.0, 0), 2, 0.0, 1), *more[1:], factor=more[0])
    far = np.full(3, 1e4)
    for name, a, b in (
        ("mean", p.mean, other.mean),
        ("variance", p.variance, other.variance),
        ("quantile", p.quantile(0.9), other.quantile(0.9)),
        ("log_density", p.log_density(far), other.log_density(far)),
    ):
        assert_array_equal(a, b, err_msg=name)


def test_a_point_does_not_depend_on_others_or_on_threads(rng: np.random.Generator) -> None:
    W, means, variances = problem(rng, 40, 150)
    y, levels = rng.normal(size=150), [0.05, 0.5, 0.9]

    def everything(columns: Any) -> tuple[Any, ...]:
        p = combine_gaussians(W, means[:, columns], variances[:, columns])
        return p.mean, p.variance, p.log_density(y[columns]), p.cdf(y[columns]), *p.quantile(levels)

    together = everything(slice(None))
    with one_thread():
        serial = everything(slice(None))
    alone = everything([137])
    for a, b, c in zip(together, serial, alone, strict=True):
        assert_array_equal(a, b)
        assert_array_equal(a[137], c[0])


def test_joint_does_not_depend_on_threads(rng: np.random.Generator) -> None:
    W, means, _ = problem(rng, 12, 150)
    C = covariances(rng, 12, 150)
    joint = combine_gaussians_joint(W, means, C, means[0])
    with one_thread():
        serial = combine_gaussians_joint(W, means, C, means[0])
    assert joint.log_density == serial.log_density
    assert_array_equal(joint.mean, serial.mean)


def test_scaled_is_a_change_of_units(rng: np.random.Generator) -> None:
    W, means, variances = problem(rng, 5, 4)
    p, y = combine_gaussians(W, means, variances), rng.normal(size=4)
    scaled = p.scaled(3.0, 10.0)
    assert_allclose(scaled.mean, 10.0 * p.mean + 3.0, rtol=1e-14)
    assert_allclose(scaled.variance, 100.0 * p.variance, rtol=1e-14)
    assert_allclose(scaled.log_density(10.0 * y + 3.0), p.log_density(y) - np.log(10.0), rtol=0.0, atol=1e-12)
    assert_allclose(scaled.quantile(0.9), 10.0 * p.quantile(0.9) + 3.0, rtol=0.0, atol=1e-8)
    constant = combine_gaussians(W, np.zeros((5, 4)), variances).scaled(2.0, 1.0)
    assert_array_equal(constant.mean, np.full(4, 2.0))  # a constant target comes back exactly
    assert (constant.variance > 0.0).all()


def test_a_large_offset_costs_no_variance(rng: np.random.Generator) -> None:
    """Second moments about 0 would lose all digits at an offset of 1e8 standard deviations."""
    W, means, variances = problem(rng, 5, 4)
    means = np.round(means * 2.0**20) / 2.0**20  # exact after the shift
    p = combine_gaussians(W, means, variances)
    shifted = combine_gaussians(W, means + 2.0**26, variances)
    assert_allclose(shifted.variance, p.variance, rtol=1e-12)


def test_samples_follow_the_distribution(rng: np.random.Generator) -> None:
    W, means, variances = problem(rng, 3, 2, spread=4.0)
    p = combine_gaussians(W, means, variances)
    draws = p.sample(4000, rng=7)
    assert draws.shape == (4000, 2)
    assert_array_equal(draws, p.sample(4000, rng=np.random.default_rng(7)))
    uniforms = np.sort(p.cdf(draws), axis=0)
    distance = np.max(np.abs(uniforms - (np.arange(4000)[:, None] + 0.5) / 4000), axis=0)
    assert (distance < 1.95 / np.sqrt(4000)).all()  # Kolmogorov-Smirnov at 1e-3
    assert abs(np.corrcoef(draws.T)[0, 1]) < 4.0 / np.sqrt(4000)
    assert p.sample(0).shape == (0, 2)
    few, many = p.sample(10, rng=7), p.sample(64, rng=7)[:10]  # below and above the table's threshold
    assert_allclose(p.cdf(few), p.cdf(many), rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("spread", [0.0, 3.0, 1e4])
def test_many_draws_are_quantiles(rng: np.random.Generator, spread: float) -> None:
    """Modes much narrower than their distance, one of them in the very middle, are not stepped over."""
    W, means, variances = problem(rng, 5, 8, spread)
    means[:, 0], variances[:, 0] = spread * np.array([-1.0, -1.0, 0.0, 1.0, 1.0]), 1e-4
    p = combine_gaussians(W, means, variances)
    uniforms = 1.0 - np.random.default_rng(5).random((500, 8))
    assert (np.abs(p.cdf(p.sample(500, rng=5)) - uniforms) <= 1e-7).all()


def test_extreme_ranges_stay_finite() -> None:
    variances = np.array([[1e-100], [1.0], [1e100]])
    p = combine_gaussians(np.eye(3) + 0.1, np.array([[0.0], [1.0], [-1.0]]), variances)
    results = [p.mean, p.variance, p.log_density([5.0]), p.quantile(0.3), p.cdf(0.0)]
    assert np.isfinite(np.concatenate(results)).all()
    dead = np.exp(np.array([0.0, -1.0, -115000.0]))  # weights of log-likelihoods -5000, -5001, -120000
    q = combine_gaussians(np.outer(dead, dead), np.array([[1.0], [1.0], [9.0]]), np.ones((3, 1)))
    assert_allclose(q.mean, 1.0, rtol=1e-15)


def test_indefinite_weights_by_rounding_only(rng: np.random.Generator) -> None:
    vector = rng.normal(size=(6, 1))
    W = vector @ vector.T
    noise = 1e-12 * rng.normal(size=(6, 6))
    p = combine_gaussians(W + noise + noise.T, rng.normal(size=(6, 3)), np.ones((6, 3)))
    assert np.isfinite(p.log_density(np.zeros(3))).all()
    with pytest.raises(ValueError, match="pair_weights: smallest eigenvalue"):
        combine_gaussians([[1.0, 2.0], [2.0, 1.0]], np.zeros((2, 1)), np.ones((2, 1)))


def test_float32_comes_back(rng: np.random.Generator) -> None:
    W, means, variances = problem(rng, 5, 4)
    p = combine_gaussians(W, means.astype(np.float32), variances.astype(np.float32))
    exact = combine_gaussians(W, means, variances)
    for a, b in (
        (p.mean, exact.mean),
        (p.variance, exact.variance),
        (p.log_density(means[0]), exact.log_density(means[0])),
        (p.quantile(0.1), exact.quantile(0.1)),
    ):
        assert a.dtype == np.float32
        assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def test_draws_where_terms_nearly_cancel() -> None:
    """Rounding in the sums is then above the table's error, and halving intervals would never end."""
    weights = np.array([[1.0, -1.0 + 1e-10], [-1.0 + 1e-10, 1.0]])
    p = combine_gaussians(weights, [[0.0], [1e-7]], np.ones((2, 1)))
    assert_allclose(p.sample(64, 0)[:32], p.sample(32, 0), rtol=0.0, atol=1e-4)


def test_a_weight_below_rounding_counts_as_none() -> None:
    """Its row of the factor is 0: nothing may be divided by the length of that."""
    weights = np.diag([1.0, 1e-30])
    p = combine_gaussians(weights, np.zeros((2, 1)), np.ones((2, 1)))
    joint = combine_gaussians_joint(weights, np.zeros((2, 1)), np.ones((2, 1, 1)), [0.5])
    assert_allclose(joint.log_density, p.log_density([0.5])[0], rtol=1e-12)
    assert len(p.means) == 1


def test_a_joint_density_may_be_zero() -> None:
    weights = np.array([[1.0, -1.0], [-1.0, 1.0]])
    joint = combine_gaussians_joint(weights, [[-1.0], [1.0]], np.ones((2, 1, 1)), [0.0])
    assert joint.log_density == -np.inf


def test_no_points() -> None:
    p = combine_gaussians(np.eye(2), np.empty((2, 0)), np.empty((2, 0)))
    assert p.mean.shape == p.variance.shape == p.log_density([]).shape == p.quantile(0.5).shape == (0,)
    assert p.quantile([0.1, 0.2, 0.3]).shape == p.sample(3).shape == (3, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((2, 3)), np.zeros((2, 1)), np.ones((2, 1))), r"pair_weights: shape \(2, 3\)"),
        (([[1.0, 0.5], [0.0, 1.0]], np.zeros((2, 1)), np.ones((2, 1))), "pair_weights: not symmetric"),
        ((np.zeros((2, 2)), np.zeros((2, 1)), np.ones((2, 1))), "pair_weights: all 0"),
        ((np.eye(2), np.zeros((3, 1)), np.ones((3, 1))), r"means: shape \(3, 1\)"),
        ((np.eye(2), np.zeros((2, 1)), np.ones((2, 2))), r"variances: shape \(2, 2\)"),
        ((np.eye(2), np.zeros((2, 1)), [[1.0], [0.0]]), r"variances\[1, 0\]: 0.0, expected > 0"),
        ((np.eye(2), [[np.nan], [0.0]], np.ones((2, 1))), r"means\[\(0, 0\)\]: nan"),
        (([[1.0, -1.0], [-1.0, 1.0]], np.zeros((2, 1)), np.ones((2, 1))), "vanishes at point 0"),
    ],
)
def test_bad_arguments(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        combine_gaussians(*arguments)


def test_bad_arguments_of_methods() -> None:
    p = combine_gaussians(np.eye(2), np.zeros((2, 3)), np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"y: shape \(2,\), expected \(3,\)"):
        p.log_density([0.0, 1.0])
    with pytest.raises(ValueError, match=r"q: 1.5, expected probabilities"):
        p.quantile(1.5)
    with pytest.raises(ValueError, match=r"scale: -1\.0, expected > 0"):
        p.scaled(0.0, -1.0)


def test_joint_names_the_bad_covariance() -> None:
    C = np.stack([np.eye(2)] * 3)
    C[1] = [[1.0, 2.0], [2.0, 1.0]]
    with pytest.raises(ValueError, match=r"covariances\[1\]: not positive definite"):
        combine_gaussians_joint(np.eye(3), np.zeros((3, 2)), C, np.zeros(2))
    C[1] = [[1.0, 0.5], [0.0, 1.0]]
    with pytest.raises(ValueError, match=r"covariances\[1\]: not symmetric"):
        combine_gaussians_joint(np.eye(3), np.zeros((3, 2)), C, np.zeros(2))


@pytest.mark.usefixtures("backend")
def test_every_backend(rng: np.random.Generator) -> None:
    test_pointwise_is_the_oracle(rng, 7)
    test_joint_is_the_oracle(rng, 5, 4)
    test_scaled_is_a_change_of_units(rng)
    test_joint_names_the_bad_covariance()
    test_no_points()
