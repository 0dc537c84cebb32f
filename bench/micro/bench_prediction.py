"""The predictive mixture of h mixtures at M points, against the same sums in NumPy broadcasting (h x h x M arrays)."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from bench.micro import problems
from maskerade_fast import combine_gaussians, combine_gaussians_joint

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
