"""Batched log-likelihoods and Gram matrices: ours and those of peers; `floors` has the floors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.micro import peers, problems
from maskerade_fast.ops.gram import gram
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


@pytest.mark.benchmark(group="Gram")
@SIZES
def test_gram(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, _ = problems.regression(n_points, n_mixtures, n, n_dims)
    gram(g, X)
    K = benchmark(gram, g, X)
    np.testing.assert_allclose(K[0], peers.numpy_gram(g[0].weights, g[0].means, g[0].scales, X), rtol=0, atol=1e-12)


@pytest.mark.benchmark(group="Gram")
@pytest.mark.peer("NumPy")
@SIZES
def test_gram_numpy(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, _ = problems.regression(n_points, n_mixtures, n, n_dims)
    K = benchmark.pedantic(lambda: [peers.numpy_gram(m.weights, m.means, m.scales, X) for m in g], rounds=3)
    np.testing.assert_allclose(K[-1], gram(g[-1:], X)[0], rtol=0, atol=1e-12)
