"""Predictions of a batch of Gaussian processes: ours against a loop in NumPy and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

from bench.micro import problems
from bench.micro.peers import numpy_gram
from maskerade_fast.ops.gp import predict_gp

SIZES = pytest.mark.parametrize(("n_points", "n_mixtures", "n_new"), problems.PREDICTIONS)


def problem(n_points: int, n_mixtures: int, n_new: int) -> tuple[Any, ...]:
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
@SIZES
def test_predict(benchmark: Any, n_points: int, n_mixtures: int, n_new: int) -> None:
    arguments = problem(n_points, n_mixtures, n_new)
    predict_gp(*arguments)
    p = benchmark.pedantic(predict_gp, arguments, rounds=5)
    mean, variance = scipy_predictions(arguments[0][:1], *arguments[1:])
    np.testing.assert_allclose(p.mean[:1], mean, atol=1e-9)
    np.testing.assert_allclose(p.variance[:1], variance, atol=1e-11)


@pytest.mark.benchmark(group="predictions")
@pytest.mark.peer("NumPy, SciPy")
@SIZES
def test_predict_numpy_scipy(benchmark: Any, n_points: int, n_mixtures: int, n_new: int) -> None:
    arguments = problem(n_points, n_mixtures, n_new)
    mean, _ = benchmark.pedantic(scipy_predictions, arguments, rounds=2)
    np.testing.assert_allclose(mean, predict_gp(*arguments).mean, atol=1e-9)
