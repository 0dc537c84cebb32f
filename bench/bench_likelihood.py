"""Batched log-likelihoods: ours, a NumPy and SciPy loop, GPyTorch, scikit-learn, JAX; the floor is in `floors`."""

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

from maskerade_fast.ops.likelihood import log_likelihood

SIZES = pytest.mark.parametrize(("n_points", "n_mixtures", "n", "n_dims"), problems.LIKELIHOODS)
NOISE = problems.NOISE


def checked(values: Any, g: Any, X: Any, y: Any) -> None:
    np.testing.assert_allclose(values, log_likelihood(g, X, y, NOISE).value, rtol=1e-9)


def checked_products(values: Any, g: Any, X: Any, y: Any) -> None:
    """GPyTorch's kernel is ours in one dimension only."""
    expected = peers.scipy_loop(g[:1], X, y, peers.numpy_products)()
    np.testing.assert_allclose(values[:1], expected, rtol=1e-7)


def checked_gradient(values: Any, g: Any, X: Any, y: Any) -> None:
    """JAX's value and gradients in weights, means and scales."""
    value, _, d_means, _ = values
    checked(value, g, X, y)
    ours = log_likelihood(g, X, y, NOISE, grad=True).grad
    assert ours is not None
    np.testing.assert_allclose(d_means.reshape(ours.means.shape), ours.means, atol=1e-7 * abs(ours.means).max())


def peer(name: str, call: Any, check: Any, *modules: str) -> Any:
    """A library's call of a problem, and the check of what it returns."""
    return pytest.param(call, check, marks=[pytest.mark.peer(name), peers.needs(*modules)], id=name)


@pytest.mark.benchmark(group="log-likelihood")
@SIZES
def test_log_likelihood(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    log_likelihood(g, X, y, NOISE)
    result = benchmark(log_likelihood, g, X, y, NOISE)
    np.testing.assert_allclose(result.value[:2], peers.scipy_loop(g[:2], X, y)(), rtol=1e-9)


@pytest.mark.benchmark(group="log-likelihood")
@pytest.mark.parametrize(
    ("library", "check"),
    [
        peer("NumPy, SciPy", peers.scipy_loop, checked),
        peer("GPyTorch", peers.gpytorch_likelihood, checked_products, "torch", "gpytorch"),
        peer("scikit-learn", peers.sklearn_likelihood, checked, "sklearn"),
        peer("JAX", peers.jax_likelihood, checked, "jax"),
    ],
)
@SIZES
def test_peers(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int, library: Any, check: Any) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    call = library(g, X, y)
    call()
    check(benchmark.pedantic(call, rounds=2), g, X, y)


@pytest.mark.benchmark(group="log-likelihood with gradient")
@SIZES
def test_gradient(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    log_likelihood(g, X, y, NOISE, grad=True)
    result = benchmark.pedantic(log_likelihood, (g, X, y, NOISE), {"grad": True}, rounds=3)
    checked(result.value, g, X, y)
    alone = log_likelihood(g[0], X, y, NOISE, grad=True).grad
    assert alone is not None
    np.testing.assert_array_equal(result.grad.means[:n], alone.means)


@pytest.mark.benchmark(group="log-likelihood with gradient")
@pytest.mark.parametrize(
    ("library", "check"),
    [
        peer("GPyTorch", peers.gpytorch_likelihood, checked_products, "torch", "gpytorch"),
        peer("JAX", peers.jax_likelihood, checked_gradient, "jax"),
    ],
)
@SIZES
def test_gradient_peers(
    benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int, library: Any, check: Any
) -> None:
    g, X, y = problems.regression(n_points, n_mixtures, n, n_dims)
    call = library(g, X, y, grad=True)
    call()
    check(benchmark.pedantic(call, rounds=2), g, X, y)


@pytest.mark.benchmark(group="cold start of the log-likelihood")
@pytest.mark.parametrize("cache", ["empty", "filled"])
def test_first_log_likelihood(benchmark: Any, tmp_path: Any, cache: str) -> None:
    """First value with gradient and first prediction in a new process; the seconds are in `extra_info`."""
    code = (
        "import time; begin = time.perf_counter()\n"
        "from maskerade_fast.model.gmm import GMMBatch\n"
        "from maskerade_fast.ops.likelihood import log_likelihood\n"
        "from maskerade_fast.ops.gp import predict_gp\n"
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
