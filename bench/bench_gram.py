"""Batched Gram matrices against NumPy; the floor, an exponential a pair and component, is in `floors`."""

from __future__ import annotations

from typing import Any

import numpy as np
import problems
import pytest
from peers import numpy_gram

from maskerade_fast.ops.gram import gram

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
