"""Orders of components: every one once, coordinates that map back to the same kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from maskerade_fast.model.component_orders import ALL_ORDERS, in_every_order, orders
from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.model.latent import LogNormal
from maskerade_fast.model.prior import Prior
from maskerade_fast.ops.gram import gram

X = np.linspace(0.0, 1.0, 7)


def some_orders(n: int, count: int) -> Any:
    """The first orders of few components, of many the identity and random ones."""
    if n <= ALL_ORDERS:
        return orders(n)[:count]
    rng = np.random.default_rng(1)
    return np.array([np.arange(n), *(rng.permutation(n) for _ in range(count - 1))])


@pytest.mark.parametrize("n", range(1, ALL_ORDERS + 1))
def test_every_order_once(n: int) -> None:
    table = orders(n)
    assert len(table) == math.factorial(n) == len({tuple(row) for row in table})
    np.testing.assert_array_equal(table[0], np.arange(n))


@pytest.mark.parametrize("n", [1, 3, 6])
def test_coordinates_of_the_same_kernel(n: int, rng: np.random.Generator) -> None:
    prior = Prior.from_data(X, max_components=n)
    draws = prior.sample([1] * (n - 1) + [4], rng)
    mixtures = draws.mixtures[draws.latent.sizes == n]
    expected = gram(mixtures, X)
    seen = 0
    for rows, xi in in_every_order(prior.latent_map, mixtures, n):
        for b, turned in zip(range(rows.start, rows.stop), xi, strict=True):
            for point in turned[:10]:
                back = prior.latent_map.forward(prior.latent_map.latent([n], point))
                np.testing.assert_allclose(gram(back, X)[0], expected[b], atol=1e-9)
            seen += 1
    assert seen == len(mixtures)


@pytest.mark.parametrize("n", [1, 2, 4, 6, 9])
@pytest.mark.parametrize("options", [{}, {"concentration": 0.3}, {"noise_variance": 0.01, "mass": LogNormal(0.0, 0.5)}])
def test_orders_are_inverses_of_turned_mixtures(n: int, options: dict[str, Any], rng: np.random.Generator) -> None:
    latent_map = Prior.from_data(X, max_components=n, **options).latent_map
    d = latent_map.dimension(n)
    g = latent_map.forward(latent_map.latent([n] * 9, rng.normal(size=9 * d)))
    table = some_orders(n, 40)
    coordinates = latent_map.in_orders(g, table)
    np.testing.assert_array_equal(coordinates[:, 0].ravel(), latent_map.inverse(g).values)
    for k, order in enumerate(table):
        rows = (n * np.arange(9)[:, None] + order).ravel()
        turned = GMMBatch(g.offsets, g.weights[rows], g.means[rows], g.scales[rows], g.noise_variances)
        np.testing.assert_allclose(coordinates[:, k].ravel(), latent_map.inverse(turned).values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 4, 5, 6, 9])
def test_bits_of_orders_depend_on_the_mixture_alone(n: int, rng: np.random.Generator) -> None:
    latent_map = Prior.from_data(X, max_components=n).latent_map
    d = latent_map.dimension(n)
    g = latent_map.forward(latent_map.latent([n] * 50, rng.normal(size=50 * d)))
    table = some_orders(n, 60).astype(np.int32)  # any integers will do
    together = latent_map.in_orders(g, table)
    for b in range(50):
        np.testing.assert_array_equal(latent_map.in_orders(g[b], table)[0], together[b])
    assert latent_map.in_orders(g[:0], table).shape == (0, len(table), d)
