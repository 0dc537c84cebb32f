"""Batched Gram matrices against NumPy, and against the floor of one exponential a pair and component."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench_likelihood import SIZES, numpy_gram, problem
from numba import njit

from maskerade_fast.backends.cpu._math import exp_neg
from maskerade_fast.gram import gram


@pytest.mark.benchmark(group="Gram")
@SIZES
def test_gram(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, _ = problem(n_points, n_mixtures, n, n_dims)
    gram(g, X)
    K = benchmark(gram, g, X)
    benchmark.extra_info["exponentials"] = n_mixtures * n * n_points * (n_points - 1) // 2
    np.testing.assert_allclose(K[0], numpy_gram(g[0].weights, g[0].means, g[0].scales, X), rtol=0, atol=1e-12)


@pytest.mark.benchmark(group="Gram")
@SIZES
def test_gram_numpy(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, _ = problem(n_points, n_mixtures, n, n_dims)
    K = benchmark.pedantic(lambda: [numpy_gram(m.weights, m.means, m.scales, X) for m in g], rounds=3)
    assert len(K) == n_mixtures


@njit  # type: ignore[untyped-decorator]
def exponentials(values: Any, out: Any, repeats: int) -> None:
    for _ in range(repeats):
        for k in range(len(values)):
            out[k] += exp_neg(values[k])


@pytest.mark.benchmark(group="Gram")
def test_exponential_floor(benchmark: Any) -> None:
    """256000 exponentials in cache on one thread."""
    values, out = -np.random.default_rng(0).uniform(size=256), np.zeros(256)
    exponentials(values, out, 1)
    benchmark(exponentials, values, out, 1000)
    benchmark.extra_info["exponentials"] = 256_000
    assert (out > 0).all()
