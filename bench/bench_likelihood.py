"""Batched log-likelihoods: ours, a NumPy and SciPy loop, GPyTorch, scikit-learn, JAX, and the floor of LAPACK."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import peers
import problems
import pytest

from maskerade_fast.backends.cpu import cholesky
from maskerade_fast.likelihood import log_likelihood

SIZES = pytest.mark.parametrize(("n_points", "n_mixtures", "n", "n_dims"), problems.LIKELIHOODS)
NOISE = problems.NOISE


def checked(values: Any, g: Any, X: Any, y: Any) -> None:
    np.testing.assert_allclose(values, log_likelihood(g, X, y, NOISE).value, rtol=1e-9)


def checked_products(values: Any, g: Any, X: Any, y: Any) -> None:
    """GPyTorch's kernel is ours in one dimension only."""
    expected = peers.scipy_loop(g[:1], X, y, peers.numpy_products)()
    np.testing.assert_allclose(values[:1], expected, rtol=1e-7)


@pytest.mark.benchmark(group="log-likelihood")
@SIZES
def test_log_likelihood(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    log_likelihood(g, X, y, NOISE)
    result = benchmark(log_likelihood, g, X, y, NOISE)
    np.testing.assert_allclose(result.value[:2], peers.scipy_loop(g[:2], X, y)(), rtol=1e-9)


@pytest.mark.benchmark(group="log-likelihood")
@pytest.mark.peer("NumPy, SciPy")
@SIZES
def test_log_likelihood_numpy_scipy(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    checked(benchmark.pedantic(peers.scipy_loop(g, X, y), rounds=2), g, X, y)


@pytest.mark.benchmark(group="log-likelihood")
@pytest.mark.peer("GPyTorch")
@peers.needs("torch", "gpytorch")
@SIZES
def test_log_likelihood_gpytorch(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    call = peers.gpytorch_likelihood(g, X, y)
    call()
    checked_products(benchmark.pedantic(call, rounds=2), g, X, y)


@pytest.mark.benchmark(group="log-likelihood")
@pytest.mark.peer("scikit-learn")
@peers.needs("sklearn")
@SIZES
def test_log_likelihood_sklearn(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    call = peers.sklearn_likelihood(g, X, y)
    call()
    checked(benchmark.pedantic(call, rounds=2), g, X, y)


@pytest.mark.benchmark(group="log-likelihood")
@pytest.mark.peer("JAX")
@peers.needs("jax")
@SIZES
def test_log_likelihood_jax(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    call = peers.jax_likelihood(g, X, y)
    call()
    checked(benchmark.pedantic(call, rounds=2), g, X, y)


@pytest.mark.benchmark(group="log-likelihood")
@pytest.mark.peer("floor: DPOTRF")
@SIZES
def test_log_likelihood_floor(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    """Factorisations alone, by LAPACK on one thread a matrix: its own threads do not pay at these sizes."""
    C = np.eye(n_points) + 1.0 / n_points
    matrices = np.repeat(C[None], n_mixtures, axis=0)
    cholesky(matrices)
    factors = benchmark.pedantic(cholesky, (matrices,), rounds=3)[0]
    np.testing.assert_allclose(np.tril(factors[0]) @ np.tril(factors[0]).T, C, atol=1e-13)


@pytest.mark.benchmark(group="log-likelihood with gradient")
@SIZES
def test_gradient(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    log_likelihood(g, X, y, NOISE, grad=True)
    result = benchmark.pedantic(log_likelihood, (g, X, y, NOISE), {"grad": True}, rounds=3)
    checked(result.value, g, X, y)
    alone = log_likelihood(g[0], X, y, NOISE, grad=True)
    np.testing.assert_array_equal(result.grad.means[:n], alone.grad.means)


@pytest.mark.benchmark(group="log-likelihood with gradient")
@pytest.mark.peer("GPyTorch")
@peers.needs("torch", "gpytorch")
@SIZES
def test_gradient_gpytorch(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    call = peers.gpytorch_likelihood(g, X, y, grad=True)
    call()
    checked_products(benchmark.pedantic(call, rounds=2), g, X, y)


@pytest.mark.benchmark(group="log-likelihood with gradient")
@pytest.mark.peer("JAX")
@peers.needs("jax")
@SIZES
def test_gradient_jax(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    call = peers.jax_likelihood(g, X, y, grad=True)
    call()
    value, _, d_means, _ = benchmark.pedantic(call, rounds=2)
    checked(value, g, X, y)
    ours = log_likelihood(g, X, y, NOISE, grad=True).grad
    np.testing.assert_allclose(d_means.reshape(ours.means.shape), ours.means, atol=1e-7 * abs(ours.means).max())


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
