"""Batched Gram matrices against NumPy, and against the floor of one exponential a pair and component."""

from __future__ import annotations

from typing import Any

import numpy as np
import problems
import pytest
from numba import njit
from peers import numpy_gram

from maskerade_fast.backends.cpu._math import exp_neg
from maskerade_fast.backends.cpu._parallel import parallel_for
from maskerade_fast.gram import gram

SIZES = pytest.mark.parametrize(("n_points", "n_mixtures", "n", "n_dims"), problems.LIKELIHOODS)


@pytest.mark.benchmark(group="Gram")
@SIZES
def test_gram(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, _ = problems.regression(n_points, n_mixtures, n, n_dims)
    gram(g, X)
    K = benchmark(gram, g, X)
    np.testing.assert_allclose(K[0], numpy_gram(g[0].weights, g[0].means, g[0].scales, X), rtol=0, atol=1e-12)


@pytest.mark.benchmark(group="Gram")
@pytest.mark.peer("NumPy")
@SIZES
def test_gram_numpy(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    g, X, _ = problems.regression(n_points, n_mixtures, n, n_dims)
    K = benchmark.pedantic(lambda: [numpy_gram(m.weights, m.means, m.scales, X) for m in g], rounds=3)
    np.testing.assert_allclose(K[-1], gram(g[-1:], X)[0], rtol=0, atol=1e-12)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def exponentials(repeats: int, values: Any, out: Any) -> None:
    for _ in range(repeats):
        for k in range(len(values)):
            out[k] += exp_neg(values[k])


@pytest.mark.benchmark(group="Gram")
@pytest.mark.peer("floor: exp")
@SIZES
def test_gram_floor(benchmark: Any, n_points: int, n_mixtures: int, n: int, n_dims: int) -> None:
    """One exponential a pair and component, in cache, on every thread."""
    values = -np.random.default_rng(0).uniform(size=1000)
    items = n_mixtures * n * (n_points * (n_points - 1) // 2) // len(values)

    def block(start: int, stop: int) -> None:
        out = np.zeros_like(values)
        exponentials(stop - start, values, out)
        assert (out > 0.0).all()

    block(0, 1)
    benchmark(parallel_for, block, items, 500)
