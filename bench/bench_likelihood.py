"""Batched log-likelihoods against a loop of a NumPy Gram (broadcast differences, exp, cos) and SciPy's Cholesky."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from maskerade_fast.gmm import GMMBatch
from maskerade_fast.likelihood import log_likelihood

NOISE = 0.01
SIZES = pytest.mark.parametrize(
    ("n_points", "n_mixtures", "n", "n_dims"), [(144, 100, 5, 1), (500, 20, 5, 1), (1503, 4, 5, 5)]
)


def problem(n_points: int, n_mixtures: int, n: int, n_dims: int) -> tuple[GMMBatch, Any, Any]:
    rng = np.random.default_rng(0)
    parts = [
        (rng.dirichlet(np.ones(n)), 5 * rng.normal(size=(n, n_dims)), rng.lognormal(size=(n, n_dims)))
        for _ in range(n_mixtures)
    ]
    return GMMBatch.from_list(parts), rng.uniform(size=(n_points, n_dims)), rng.normal(size=n_points)


def numpy_gram(w: Any, m: Any, s: Any, X: Any) -> Any:
    """One Gram matrix the plain way; a component at a time, as (n, N, N) arrays are slower."""
    lags = X[:, None] - X[None]
    K = np.zeros(lags.shape[:2])
    for q in range(len(w)):
        K += w[q] * np.exp(-2 * np.pi**2 * lags**2 @ s[q] ** 2) * np.cos(2 * np.pi * lags @ m[q])
    return K


def numpy_scipy_loop(g: GMMBatch, X: Any, y: Any) -> Any:
    values = []
    for mixture in g:
        C = numpy_gram(mixture.weights, mixture.means, mixture.scales, X)
        C[np.diag_indices(len(X))] += NOISE
        L = scipy.linalg.cholesky(C, lower=True, overwrite_a=True, check_finite=False)
        z = scipy.linalg.solve_triangular(L, y, lower=True, check_finite=False)
        values.append(-0.5 * z @ z - np.log(np.diag(L)).sum() - 0.5 * len(y) * np.log(2 * np.pi))
    return np.array(values)


@pytest.mark.benchmark(group="log-likelihood")
@SIZES
def test_log_likelihood(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problem(n_points, n_mixtures, n, n_dims)
    log_likelihood(g, X, y, NOISE)
    result = benchmark(log_likelihood, g, X, y, NOISE)
    np.testing.assert_allclose(result.value[:2], numpy_scipy_loop(g[:2], X, y), rtol=1e-9)


@pytest.mark.benchmark(group="log-likelihood")
@SIZES
def test_log_likelihood_with_gradient(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problem(n_points, n_mixtures, n, n_dims)
    log_likelihood(g, X, y, NOISE, grad=True)
    result = benchmark.pedantic(log_likelihood, (g, X, y, NOISE), {"grad": True}, rounds=5)
    assert np.isfinite(result.grad.means).all()


@pytest.mark.benchmark(group="log-likelihood")
@SIZES
def test_log_likelihood_numpy_scipy(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problem(n_points, n_mixtures, n, n_dims)
    values = benchmark.pedantic(numpy_scipy_loop, (g, X, y), rounds=3)
    assert np.isfinite(values).all()


@pytest.mark.benchmark(group="cold start of the log-likelihood")
@pytest.mark.parametrize("cache", ["empty", "filled"])
def test_first_log_likelihood(benchmark: Any, tmp_path: Any, cache: str) -> None:
    """First value with gradient and first prediction in a new process; the seconds are in `extra_info`."""
    code = (
        "import time; begin = time.perf_counter()\n"
        "from maskerade_fast.gmm import GMMBatch\n"
        "from maskerade_fast.likelihood import log_likelihood\n"
        "from maskerade_fast.gp import predict_gp\n"
        "g = GMMBatch.from_list([([1.0], [0.3], [0.1])])\n"
        "log_likelihood(g, [0.0, 1.0], [1.0, 2.0], 0.1, grad=True); print(time.perf_counter() - begin)\n"
        "predict_gp(g, [0.0, 1.0], [1.0, 2.0], 0.1, [0.5]); print(time.perf_counter() - begin)\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    seconds: list[str] = []

    def first() -> None:
        run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        seconds[:] = run.stdout.split()

    if cache == "filled":
        first()
    begin = time.perf_counter()
    benchmark.pedantic(first, rounds=1)
    benchmark.extra_info.update(seconds_to_likelihood=float(seconds[0]), seconds_to_prediction=float(seconds[1]))
    assert 0 < float(seconds[0]) <= float(seconds[1]) < time.perf_counter() - begin
