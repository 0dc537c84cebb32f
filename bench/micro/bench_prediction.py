"""The predictive mixture of h mixtures at M points, against the same sums in NumPy broadcasting (h x h x M arrays)."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from scipy.special import ndtr

from bench.micro import problems
from bench.micro.peers import numpy_gram
from maskerade_fast import combine_gaussians, combine_gaussians_joint
from maskerade_fast.ops.gp import predict_gp

SIZES = pytest.mark.parametrize(("h", "n_points"), problems.PAIRS_OF_PREDICTIONS)


def problem(h: int, n_points: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(h, h)) + 0.5
    means = rng.normal(size=(h, n_points))
    return factor @ factor.T, means, np.exp(rng.normal(size=(h, n_points)))


def broadcast_pairs(W: Any, means: Any, variances: Any) -> tuple[Any, Any, Any]:
    """Shares, means and variances of all pairs, (h, h, M) each."""
    both = variances[:, None] + variances[None]
    gap = means[:, None] - means[None]
    overlap = np.sqrt(2.0 * np.sqrt(variances[:, None] * variances[None]) / both)
    shares = W[:, :, None] * overlap * np.exp(-0.25 * gap**2 / both)
    shares /= shares.sum(axis=(0, 1))
    centres = (means[:, None] * variances[None] + means[None] * variances[:, None]) / both
    return shares, centres, 2.0 * variances[:, None] * variances[None] / both


@pytest.mark.benchmark(group="predictive moments")
@SIZES
def test_moments(benchmark: Any, h: int, n_points: int) -> None:
    W, means, variances = problem(h, n_points)
    factor = np.linalg.cholesky(W)
    combine_gaussians(W, means, variances, factor=factor)
    p = benchmark(combine_gaussians, W, means, variances, factor=factor)
    shares, centres, _ = broadcast_pairs(W, means, variances)
    np.testing.assert_allclose(p.mean, (shares * centres).sum(axis=(0, 1)), rtol=0.0, atol=1e-10)


@pytest.mark.benchmark(group="predictive moments")
@pytest.mark.peer("NumPy")
@SIZES
def test_moments_numpy(benchmark: Any, h: int, n_points: int) -> None:
    arguments = problem(h, n_points)

    def moments() -> tuple[Any, Any]:
        shares, centres, spreads = broadcast_pairs(*arguments)
        mean = (shares * centres).sum(axis=(0, 1))
        return mean, (shares * (spreads + (centres - mean) ** 2)).sum(axis=(0, 1))

    _, variance = benchmark.pedantic(moments, rounds=3)
    p = combine_gaussians(*arguments)
    np.testing.assert_allclose(variance, p.variance, rtol=1e-10)


@pytest.mark.benchmark(group="predictive log density")
@SIZES
def test_log_density(benchmark: Any, h: int, n_points: int) -> None:
    p = combine_gaussians(*problem(h, n_points))
    y = np.zeros(n_points)
    p.log_density(y)
    assert np.isfinite(benchmark(p.log_density, y)).all()


@pytest.mark.benchmark(group="predictive quantiles, 5 levels")
@SIZES
def test_quantiles(benchmark: Any, h: int, n_points: int) -> None:
    W, means, variances = problem(h, n_points)
    p = combine_gaussians(W, means, variances)
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    p.quantile(0.5)
    quantiles = benchmark.pedantic(p.quantile, (levels,), rounds=5)
    shares, centres, spreads = (a[:, :, :3] for a in broadcast_pairs(W, means, variances))
    below = (shares * ndtr((quantiles[:, None, None, :3] - centres) / np.sqrt(spreads))).sum(axis=(1, 2))
    np.testing.assert_allclose(below, np.array(levels)[:, None] * np.ones(3), rtol=0.0, atol=1e-10)


@pytest.mark.benchmark(group="predictive samples, 1000 a point")
@SIZES
def test_sample(benchmark: Any, h: int, n_points: int) -> None:
    p = combine_gaussians(*problem(h, n_points))
    p.sample(64, 0)
    draws = benchmark.pedantic(p.sample, (1000, 0), rounds=2)
    assert draws.shape == (1000, n_points)


@pytest.mark.benchmark(group="joint predictive density")
@pytest.mark.parametrize(("h", "n_points"), problems.JOINT_PREDICTIONS)
def test_joint(benchmark: Any, h: int, n_points: int) -> None:
    W, means, _ = problem(h, n_points)
    roots = np.random.default_rng(1).normal(size=(h, n_points, n_points))
    covariances = roots @ roots.transpose(0, 2, 1) + np.eye(n_points)
    arguments = W, means, covariances, np.zeros(n_points)
    combine_gaussians_joint(*arguments)
    joint = benchmark.pedantic(combine_gaussians_joint, arguments, rounds=3)
    assert np.isfinite(joint.log_density)


def test_memory_does_not_hold_pairs_by_points() -> None:
    """10^4 points of 100 mixtures: an h x h x M array would take 800 MB."""
    arguments = problem(100, 10_000)
    combine_gaussians(*arguments)
    tracemalloc.start()
    combine_gaussians(*arguments).quantile([0.05, 0.95])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


# ---- predictions of a batch of Gaussian processes ----

GP_SIZES = pytest.mark.parametrize(("n_points", "n_mixtures", "n_new"), problems.PREDICTIONS)


def gp_problem(n_points: int, n_mixtures: int, n_new: int) -> tuple[Any, ...]:
    g, X, y = problems.regression(n_points, n_mixtures, problems.MAX_COMPONENTS, 1)
    return g, X, y, problems.NOISE, np.linspace(0.0, 1.0, n_new)


def scipy_predictions(g: Any, X: Any, y: Any, noise: float, X_new: Any) -> tuple[Any, Any]:
    means, variances = [], []
    together = np.concatenate([X, X_new[:, None]])
    for m in g:
        K = numpy_gram(m.weights, m.means, m.scales, together)
        C, cross = K[: len(X), : len(X)] + noise * np.eye(len(X)), K[: len(X), len(X) :]
        L = scipy.linalg.cholesky(C, lower=True, check_finite=False)
        V = scipy.linalg.solve_triangular(L, np.column_stack([cross, y]), lower=True, check_finite=False)
        means.append(V[:, :-1].T @ V[:, -1])
        variances.append(m.weights.sum() - (V[:, :-1] ** 2).sum(axis=0))
    return np.array(means), np.array(variances)


@pytest.mark.benchmark(group="predictions")
@GP_SIZES
def test_predict(benchmark: Any, n_points: int, n_mixtures: int, n_new: int) -> None:
    arguments = gp_problem(n_points, n_mixtures, n_new)
    predict_gp(*arguments)
    p = benchmark.pedantic(predict_gp, arguments, rounds=5)
    mean, variance = scipy_predictions(arguments[0][:1], *arguments[1:])
    np.testing.assert_allclose(p.mean[:1], mean, atol=1e-9)
    np.testing.assert_allclose(p.variance[:1], variance, atol=1e-11)


@pytest.mark.benchmark(group="predictions")
@pytest.mark.peer("NumPy, SciPy")
@GP_SIZES
def test_predict_numpy_scipy(benchmark: Any, n_points: int, n_mixtures: int, n_new: int) -> None:
    arguments = gp_problem(n_points, n_mixtures, n_new)
    mean, _ = benchmark.pedantic(scipy_predictions, arguments, rounds=2)
    np.testing.assert_allclose(mean, predict_gp(*arguments).mean, atol=1e-9)
