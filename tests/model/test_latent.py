"""The latent map: one-to-one, standard normal under the prior, with exact derivatives and finite far out."""

from __future__ import annotations

import dataclasses

import numpy as np
import oracle
import pytest
from comparisons import gradients
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

from maskerade_fast.model.gmm import GMMBatch, GMMGradient
from maskerade_fast.model.latent import Latent, LatentMap, LogNormal

FREE = LogNormal(-4.0, 2.0), LogNormal(0.0, 1.0)


def build(D=1, concentration=1.0, free=True, fold=None) -> LatentMap:
    noise, mass = FREE if free else (0.01, 1.0)
    sd = np.linspace(2.0, 0.5, D)
    return LatentMap(sd, sd - 1.0, 0.2 + 0.1 * sd, concentration, D == 1 if fold is None else fold, noise, mass)


MAPS = [
    pytest.param(build(), id="folded, all free"),
    pytest.param(build(free=False), id="folded, fixed"),
    pytest.param(build(D=1, fold=False), id="not folded"),
    pytest.param(build(D=3), id="D=3"),
    pytest.param(build(D=2, concentration=0.4, free=False), id="concentration 0.4"),
    pytest.param(build(D=1, concentration=3.0), id="concentration 3"),
]
SIZES = [3, 1, 5, 2, 1, 4]


def random_latent(latent_map, rng, sizes=SIZES, spread=1.0) -> Latent:
    dimension = sum(latent_map.dimension(n) for n in sizes)
    return latent_map.latent(sizes, rng.uniform(-spread, spread, dimension))


@pytest.mark.parametrize("latent_map", MAPS)
def test_forward_against_the_formulas(latent_map, rng):
    """mathematics.md section 9: the oracle's, mixture by mixture; noise variance and mass come last."""
    latent = random_latent(latent_map, rng, spread=2.5)
    g = latent_map.forward(latent)
    names = ("concentration", "mean_sd", "log_scale_mean", "log_scale_sd", "fold")
    options = {name: getattr(latent_map, name) for name in names}
    for b, n in enumerate(SIZES):
        xi = list(latent.values[latent.offsets[b] : latent.offsets[b + 1]])
        assert len(xi) == latent_map.dimension(n)
        noise, mass = latent_map.noise_variance, latent_map.mass
        mass = np.exp(mass.log_mean + mass.log_sd * xi.pop()) if isinstance(mass, LogNormal) else mass
        noise = np.exp(noise.log_mean + noise.log_sd * xi.pop()) if isinstance(noise, LogNormal) else noise
        weights, means, scales = oracle.from_latent(xi, n, **options)
        assert_allclose(g[b].weights, mass * weights, rtol=1e-9)
        assert_allclose(g[b].means, means, rtol=1e-10)
        assert_allclose(g[b].scales, scales, rtol=1e-14)
        assert_allclose(g[b].noise_variances, noise, rtol=1e-14)


@pytest.mark.parametrize("latent_map", MAPS)
def test_round_trip(latent_map, rng):
    """Over |xi| <= 5. A weight holds its digits relative to itself only for the smaller of v and 1 - v."""
    latent = random_latent(latent_map, rng, sizes=SIZES * 50, spread=5.0)
    back = latent_map.inverse(latent_map.forward(latent))
    assert_array_equal(back.offsets, latent.offsets)
    assert_allclose(back.values, latent.values, rtol=0, atol=2e-9)


@pytest.mark.parametrize("latent_map", MAPS)
def test_batch_is_the_loop(latent_map, rng):
    latent = random_latent(latent_map, rng, spread=3.0)
    g = latent_map.forward(latent)
    for b in range(len(latent)):
        alone = latent_map.forward(latent[b])
        for name in ("weights", "means", "scales", "noise_variances"):
            assert_array_equal(getattr(alone, name), getattr(g[b], name))


@pytest.mark.parametrize("latent_map", MAPS)
def test_pullback_against_differences(latent_map, rng):
    latent = random_latent(latent_map, rng, spread=3.0)
    g = latent_map.forward(latent)
    shapes = (g.weights.shape, g.means.shape, g.scales.shape, len(g))
    cotangent = GMMGradient(*(rng.normal(size=shape) for shape in shapes))

    def scalar(values):
        h = latent_map.forward(latent.with_values(values))
        parts = zip(gradients(cotangent), (h.weights, h.means, h.scales, h.noise_variances), strict=True)
        return sum((c * a).sum() for c, a in parts)

    slopes = oracle.central_differences(scalar, latent.values, step=1e-5)
    gradient = latent_map.pullback(latent, cotangent)
    assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-8 * np.abs(slopes).max())
    without_noise = latent_map.pullback(latent, dataclasses.replace(cotangent, noise_variance=None))
    only_noise = gradient - without_noise
    assert np.count_nonzero(only_noise) == (len(g) if isinstance(latent_map.noise_variance, LogNormal) else 0)


@pytest.mark.parametrize("latent_map", MAPS)
@pytest.mark.parametrize("value", [-37.5, -10.0, -1e-300, 0.0, 10.0, 37.5])
def test_finite_far_out(latent_map, value):
    sizes = [1, 2, 7]
    latent = latent_map.latent(sizes, np.full(sum(latent_map.dimension(n) for n in sizes), value))
    g = latent_map.forward(latent)
    GMMBatch(*(getattr(g, name) for name in g.__dataclass_fields__))  # refuses anything not finite or negative
    ones = GMMGradient(np.ones(g.weights.shape), np.ones(g.means.shape), np.ones(g.scales.shape), np.ones(len(g)))
    assert np.isfinite(latent_map.pullback(latent, ones)).all()
    mass = latent_map.mass
    expected = mass if isinstance(mass, float) else np.exp(mass.log_mean + mass.log_sd * value)
    assert_allclose(g.mass, expected, rtol=1e-13)


@pytest.mark.parametrize("latent_map", MAPS)
@pytest.mark.parametrize("value", [-1e5, 1e5])
def test_never_nan_beyond(latent_map, value):
    latent = latent_map.latent([3], np.full(latent_map.dimension(3), value))
    g = latent_map.forward(latent)
    for name in ("weights", "means", "scales", "noise_variances"):
        assert not np.isnan(getattr(g, name)).any()


def test_folded_means_keep_their_digits_on_both_sides():
    """Phi(m/s) = 1/2 + Phi(xi)/2 through erf below and erfc above, and back."""
    latent_map = build(free=False)
    xi = np.array([-12.0, -6.0, -1e-9, 0.0, 1e-9, 6.0, 12.0, 30.0])
    latent = latent_map.latent(np.ones(len(xi), dtype=int), np.column_stack([xi, np.zeros(len(xi))]).ravel())
    g = latent_map.forward(latent)
    z = g.means[:, 0] / latent_map.mean_sd[0]
    assert_allclose(latent_map.inverse(g).values[::2], xi, rtol=1e-10, atol=1e-15)
    low = xi <= 0
    assert_allclose(special.erf(z[low] / np.sqrt(2.0)), special.ndtr(xi[low]), rtol=1e-13)
    assert_allclose(special.erfc(z[~low] / np.sqrt(2.0)), special.ndtr(-xi[~low]), rtol=1e-12)


def test_edge_of_the_support_has_finite_coordinates():
    latent_map = build()
    g = GMMBatch.from_list([([1.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 1.0, 1.0])], [0.0])
    values = latent_map.inverse(g).values
    assert np.isfinite(values).all()
    assert np.abs(values).max() == 37.5


def test_inverse_refuses_what_the_map_cannot_reach():
    latent_map = build()
    with pytest.raises(ValueError, match="mean is negative"):
        latent_map.inverse(GMMBatch.from_list([([1.0], [-1.0], [1.0])], [0.1]))
    with pytest.raises(ValueError, match="no noise_variances"):
        latent_map.inverse(GMMBatch.from_list([([1.0], [1.0], [1.0])]))
    with pytest.raises(ValueError, match="2 dimensions, expected 1"):
        latent_map.inverse(GMMBatch.from_list([([1.0], [[1.0, 1.0]], [[1.0, 1.0]])], [0.1]))


def test_empty_batch():
    latent_map = build(D=2)
    latent = latent_map.latent([], np.zeros(0))
    g = latent_map.forward(latent)
    assert (len(g), g.n_dims, len(latent)) == (0, 2, 0)
    gradient = GMMGradient(np.zeros(0), np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0))
    assert latent_map.pullback(latent, gradient).shape == (0,)
    assert len(latent_map.inverse(g)) == 0


def test_take(rng):
    latent_map = build(D=2)
    latent = random_latent(latent_map, rng)
    order = [4, 0, 2, 2]
    taken = latent[order]
    assert_array_equal(taken.sizes, np.array(SIZES)[order])
    for row, b in enumerate(order):
        own = latent.values[latent.offsets[b] : latent.offsets[b + 1]]
        assert_array_equal(taken.values[taken.offsets[row] : taken.offsets[row + 1]], own)


def test_log_normal_density(rng):
    from scipy import stats

    value = np.array([1e-300, 0.02, 1.0, 50.0, 1e300])
    expected = stats.lognorm(s=2.0, scale=np.exp(-4.0)).logpdf(value)
    assert_allclose(LogNormal(-4.0, 2.0).log_density(value), expected, rtol=1e-12)
    assert LogNormal(-4.0, 2.0).log_density(np.zeros(1))[0] == -np.inf
    with pytest.raises(ValueError, match="log_sd"):
        LogNormal(0.0, 0.0)
