"""The prior: the paper's figures, the default's choices, draws and density."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats

from maskerade_fast.model.gmm import GMMBatch, GMMGradient
from maskerade_fast.model.latent import Latent, LatentMap, LogNormal
from maskerade_fast.model.nets import sobol_normal
from maskerade_fast.model.prior import Prior

EVIDENCE = json.loads((Path(__file__).parents[1] / "golden" / "evidence.json").read_text())


def paper(n_points=20, **keywords) -> Prior:
    return Prior.paper(np.linspace(0.0, 1.0, n_points), **keywords)


@pytest.mark.parametrize("problem", [p for p in EVIDENCE if "X" in p], ids=lambda p: p["name"])
def test_paper_reproduces_the_golden_figures(problem):
    count, noise = problem["max_components"], problem["noise_variance"]
    prior = Prior.paper(problem["X"], count, noise)
    for name in ("mean_sd", "log_scale_mean", "log_scale_sd"):
        assert_allclose(getattr(prior, name), [problem[name]], rtol=1e-14)
    assert_array_equal(prior.size_probabilities, np.full(count, 1.0 / count))
    assert (prior.noise_variance, prior.mass, prior.concentration, prior.fold) == (noise, 1.0, 1.0, True)


def test_paper_reproduces_the_airline_figures():
    problem = next(p for p in EVIDENCE if p["name"] == "airline")
    prior = Prior.paper(1949.0 + np.arange(144) / 12.0, problem["max_components"])
    for name in ("mean_sd", "log_scale_mean", "log_scale_sd", "noise_variance"):
        assert_allclose(getattr(prior, name), problem[name], rtol=1e-14)


@pytest.mark.parametrize(("rule", "frequency"), [("average", 0.5 * 81**0.25), ("axis", 1.0)])
def test_nyquist_rules_in_four_dimensions(rule, frequency):
    """A 3 x 3 x 3 x 3 grid, every point twice: 81 distinct points, 3 distinct values an axis."""
    grid = np.stack(np.meshgrid(*[np.arange(3.0)] * 4), axis=-1).reshape(-1, 4)
    X = np.concatenate([grid, grid]) * [1.0, 10.0, 0.1, 1e6]
    prior = Prior.from_data(X, nyquist=rule)
    assert_allclose(prior.mean_sd, np.full(4, frequency / 5.0), rtol=1e-14)
    assert not prior.fold
    if rule == "average":
        assert_allclose(Prior.paper(X).log_scale_sd, np.full(4, math.log(frequency) / 10.0), rtol=1e-13)
    else:
        with pytest.raises(ValueError, match="distinct points"):
            Prior.paper(X, nyquist="axis")


def test_default_choices():
    prior = Prior.from_data(np.linspace(0.0, 1.0, 144), max_components=3)
    low, high = math.log(0.05), math.log(71.5)
    assert_allclose(prior.mean_sd, [14.3])
    assert_allclose(prior.log_scale_mean, [(low + high) / 2])
    assert_allclose(prior.log_scale_sd, [(high - low) / 10])
    assert prior.noise_variance == LogNormal(math.log(1e-2), 2.0)
    assert prior.mass == LogNormal(0.0, 1.0)
    assert prior.max_components == 3


@pytest.mark.parametrize("X", [[3.0], [3.0, 3.0], [1.0, 2.0], np.ones((5, 2)), np.arange(20.0).reshape(4, 5)])
def test_default_is_proper_for_few_or_constant_points(X):
    """The scales' range never falls below e^3/R, and the paper's prior refuses all of these."""
    prior = Prior.from_data(X)
    assert_allclose(prior.log_scale_sd, (3.0 - math.log(0.05)) / 10.0)
    assert (prior.mean_sd >= 0.1).all()
    assert np.isfinite(prior.log_density(prior.sample(4, 0).mixtures)).all()
    with pytest.raises(ValueError, match="cycles on axis 0"):
        Prior.paper(X)


def test_fixed_noise_and_mass_by_keyword():
    prior = Prior.from_data([0.0, 1.0], noise_variance=0.2, mass=3.0, concentration=0.5)
    draws = prior.sample(8, 1)
    assert_array_equal(draws.mixtures.noise_variances, 0.2)
    assert_allclose(draws.mixtures.mass, 3.0, rtol=1e-14)
    assert prior.latent_map.n_extra == 0


@pytest.mark.parametrize("make", [Prior.from_data, Prior.paper])
def test_same_prior_for_raw_and_standardised_inputs(make, rng):
    X = rng.random((40, 2))
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    first, second = make(X), make(X * [100.0, 0.01] - [3.0, 4.0])
    third = make(X, standardise=False)
    for field in dataclasses.fields(Prior):
        assert_array_equal(getattr(first, field.name), getattr(second, field.name))
        assert_array_equal(getattr(first, field.name), getattr(third, field.name))


@pytest.mark.parametrize("make", [Prior.from_data, Prior.paper])
def test_own_units_stretch_with_the_window(make):
    X = np.linspace(0.0, 1.0, 60)
    unit, own = make(X), make(12.0 * X, standardise=False)
    assert_allclose(own.mean_sd, unit.mean_sd / 12.0, rtol=1e-14)
    assert_allclose(own.log_scale_mean, unit.log_scale_mean - math.log(12.0), rtol=1e-14)
    assert_allclose(own.log_scale_sd, unit.log_scale_sd, rtol=1e-13)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"mean_sd": [0.0]}, "mean_sd: 0.0, expected > 0"),
        ({"log_scale_sd": [1.0, 1.0]}, "log_scale_sd: shape"),
        ({"log_scale_mean": [np.nan]}, "log_scale_mean"),
        ({"size_probabilities": [0.5, 0.4]}, "size_probabilities"),
        ({"size_probabilities": [1.5, -0.5]}, "size_probabilities"),
        ({"concentration": 0.0}, "concentration: 0.0, expected > 0"),
        ({"noise_variance": -1.0}, "noise_variance: -1.0"),
        ({"mass": 0.0}, "mass: 0.0, expected > 0"),
    ],
)
def test_bad_parts_are_named(keywords, words):
    parts = {"mean_sd": [1.0], "log_scale_mean": [0.0], "log_scale_sd": [1.0], **keywords}
    with pytest.raises(ValueError, match=words):
        Prior(**parts)


def test_folding_is_for_one_dimension():
    with pytest.raises(ValueError, match="fold"):
        Prior(np.ones(2), np.zeros(2), np.ones(2), fold=True)
    assert not Prior([1.0], [0.0], [1.0], fold=False).fold


def test_noise_variance_is_fixed_once():
    free = Prior.from_data([0.0, 1.0])
    fixed = free.with_noise_variance(0.3)
    assert fixed.noise_variance == 0.3
    assert fixed.latent_map.dimension(1) == free.latent_map.dimension(1) - 1
    assert fixed.with_noise_variance(0.3).noise_variance == 0.3
    with pytest.raises(ValueError, match="but the prior fixes"):
        fixed.with_noise_variance(0.4)


# draws


def test_draws_are_pooled_over_the_sizes():
    prior = Prior([1.0], [0.0], [1.0], size_probabilities=[0.5, 0.0, 0.3, 0.2])
    draws = prior.sample(100, 3)
    sizes = draws.latent.sizes
    assert_array_equal(np.bincount(sizes, minlength=5), [0, 128, 0, 128, 128])
    assert_array_equal(draws.mixtures.n_components, sizes)
    assert_allclose(draws.weights, prior.size_probabilities[sizes - 1] / 128, rtol=1e-14)
    assert_allclose(draws.weights.sum(), 1.0, rtol=1e-14)
    for name in ("weights", "means", "scales", "noise_variances"):
        assert_array_equal(getattr(prior.latent_map.forward(draws.latent), name), getattr(draws.mixtures, name))
    each = prior.sample([3, 0, 16, 1], 3)
    assert_array_equal(np.bincount(each.latent.sizes, minlength=5), [0, 4, 0, 16, 1])
    assert_allclose(each.weights.sum(), 1.0, rtol=1e-14)


def test_bad_counts_are_named():
    prior = paper()
    with pytest.raises(ValueError, match="m: 0"):
        prior.sample(0)
    with pytest.raises(ValueError, match="m: 2 counts"):
        prior.sample([1, 2])
    with pytest.raises(ValueError, match=r"m\[2\]: 0"):
        prior.sample([1, 1, 0, 1, 1])
    with pytest.raises(ValueError, match="21202 latent dimensions"):
        sobol_normal(21202, 2, np.random.default_rng(0))


@pytest.mark.parametrize("concentration", [1e-5, 1e-3, 1e-2, 1.0, 1e3])
def test_extreme_concentration(concentration):
    prior = Prior([1.0], [0.0], [1.0], [0.0, 0.0, 1.0], concentration, 0.1, 1.0)
    g = prior.sample(1024, 0).mixtures
    assert np.isfinite(g.weights).all()
    assert (g.weights > 0.0).all()
    assert_allclose(g.mass, 1.0, rtol=0, atol=1e-12)
    assert np.isfinite(prior.log_density(g)).all()
    # each component as often the heaviest, for small concentrations with nearly all the mass
    owners = g.weights.reshape(-1, 3).argmax(axis=1)
    assert_allclose(np.bincount(owners, minlength=3) / 1024, 1 / 3, atol=0.02)


def test_draws_are_finite_for_every_seed():
    """Small nets, where an unscrambled one would start at minus infinity."""
    prior = Prior.from_data(np.linspace(0.0, 1.0, 30), max_components=2)
    for seed in range(200):
        draws = prior.sample([1, 2, 4, 64][seed % 4], seed)
        assert np.isfinite(draws.latent.values).all()
        for name in ("weights", "means", "scales", "noise_variances"):
            assert np.isfinite(getattr(draws.mixtures, name)).all()


def test_points_of_the_net_stay_inside_the_cube(monkeypatch):
    """A scrambled point may be exactly 0, once in 2^30."""
    ends = np.array([[0.0, 1.0 - 2.0**-30]] * 2)
    monkeypatch.setattr("maskerade_fast.model.nets.scrambled_net", lambda *_: ends)
    low, high = sobol_normal(2, 2, np.random.default_rng(0))[0]
    assert_allclose([low, high], [special.ndtri(2.0**-31), -special.ndtri(2.0**-31)], rtol=1e-9)


def test_a_net_of_one_point_is_uniform():
    rng = np.random.default_rng(3)
    points = np.concatenate([sobol_normal(3, 1, rng) for _ in range(2000)])
    assert points.shape == (2000, 3)
    assert np.isfinite(points).all()
    for column in points.T:
        assert stats.kstest(column, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(points.T) - np.eye(3)).max() < 0.1


def test_reproducibility():
    """An int, a Generator or None; the global generator is left alone."""
    prior = paper()
    before = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    first, same = prior.sample(16, 7), prior.sample(16, np.random.default_rng(7))
    other, unseeded = prior.sample(16, 8), prior.sample(16)
    assert_array_equal(first.latent.values, same.latent.values)
    assert (first.latent.values != other.latent.values).all()
    assert (first.latent.values != unseeded.latent.values).all()
    assert_array_equal(before, np.random.get_state(legacy=False)["state"]["key"])  # noqa: NPY002
    generator = np.random.default_rng(7)
    assert_array_equal(prior.sample(16, generator).latent.values, first.latent.values)
    assert (prior.sample(16, generator).latent.values != first.latent.values).all()  # freshly scrambled


def kernel_value(g: GMMBatch, lag: float) -> np.ndarray:
    phase = 2.0 * np.pi * g.means[:, 0] * lag
    terms = g.weights * np.exp(-2.0 * (np.pi * lag * g.scales[:, 0]) ** 2) * np.cos(phase)
    return np.add.reduceat(terms, g.offsets[:-1])


def test_low_discrepancy_is_kept():
    """The prior kernel at a lag by N = 1000, 1024 and 4 x 256 draws a size, 200 seeds."""
    prior, lag = paper(10, max_components=2), 0.1
    one = prior.sample(2**16, 12345)
    truth = one.weights @ kernel_value(one.mixtures, lag)
    at_1024, at_1000, appended, bars = [], [], [], []
    for seed in range(200):
        draws = prior.sample(1024, seed)
        values = kernel_value(draws.mixtures, lag)
        at_1024.append(draws.weights @ values)
        at_1000.append(values.reshape(2, 1024)[:, :1000].mean())  # what not rounding up would give
        rng = np.random.default_rng(seed)
        replicates = [d.weights @ kernel_value(d.mixtures, lag) for d in (prior.sample(256, rng) for _ in range(4))]
        appended.append(np.mean(replicates))
        bars.append(np.std(replicates, ddof=1) / 2.0)
    rms = [np.sqrt(np.mean((np.array(values) - truth) ** 2)) for values in (at_1024, at_1000, appended)]
    plain = kernel_value(one.mixtures, lag).std() / math.sqrt(2048)
    assert rms[0] <= rms[1]
    assert rms[0] <= rms[2]
    assert rms[0] < plain / 5.0
    assert 0.7 < np.sqrt(np.mean(np.square(bars))) / rms[2] < 1.4  # the spread of replicates is an error bar
    assert_array_equal(prior.sample(1000, 0).latent.values, prior.sample(1024, 0).latent.values)


# density


def log_abs_det(latent_map: LatentMap, latent: Latent) -> float:
    """log |det dT/dxi| of one mixture, T into (p_1..p_{n-1}, m, s[, noise][, mass]) with p = w/mass, row by row."""
    g = latent_map.forward(latent)
    nothing = GMMGradient(np.zeros_like(g.weights), np.zeros_like(g.means), np.zeros_like(g.scales), np.zeros(1))
    n, fields = len(g.weights), {}
    fields["weights"] = (np.eye(n)[: n - 1] - (g.weights / g.mass)[: n - 1, None]) / g.mass
    for name in ("means", "scales"):
        fields[name] = np.eye(g.means.size).reshape(-1, *g.means.shape)
    rows = [dataclasses.replace(nothing, **{name: row}) for name, rows in fields.items() for row in rows]
    if isinstance(latent_map.noise_variance, LogNormal):
        rows.append(dataclasses.replace(nothing, noise_variance=np.ones(1)))
    if isinstance(latent_map.mass, LogNormal):
        rows.append(dataclasses.replace(nothing, weights=np.ones(n)))
    return float(np.linalg.slogdet([latent_map.pullback(latent, row) for row in rows])[1])


def test_density_is_that_of_the_latent_normal():
    """log density(T(xi)) = log p(n) + log N(xi) - log |det dT/dxi|, for every combination of parts."""
    for keywords in (
        {"noise_variance": 0.1, "mass": 1.0},
        {"noise_variance": LogNormal(-2.0, 1.0), "mass": 2.5},
        {"concentration": 0.4},
        {"concentration": 2.0, "mass": 1.0},
    ):
        for D in (1, 3):
            prior = Prior(np.full(D, 2.0), np.zeros(D), np.full(D, 0.5), [0.2, 0.5, 0.3], **keywords)
            draws = prior.sample(16, 1)
            latent = draws.latent
            log_normal = stats.norm.logpdf(latent.values)
            expected = np.add.reduceat(log_normal, latent.offsets[:-1])
            expected -= [log_abs_det(prior.latent_map, latent[b]) for b in range(len(latent))]
            expected += np.log(prior.size_probabilities[latent.sizes - 1])
            assert_allclose(prior.log_density(draws.mixtures), expected, rtol=0, atol=1e-10)


def test_density_outside_the_support():
    prior = paper(20, max_components=2)
    inside = ([0.5, 0.5], [1.0, 2.0], [1.0, 1.0])
    outside = [
        ([0.4, 0.3, 0.3], [1.0, 2.0, 3.0], [1.0, 1.0, 1.0]),  # too many components
        ([0.5, 0.6], [1.0, 2.0], [1.0, 1.0]),  # another mass
        ([0.0, 0.0], [1.0, 2.0], [1.0, 1.0]),
        ([0.5, 0.5], [1.0, -2.0], [1.0, 1.0]),  # a negative mean
        ([0.5, 0.5], [1.0, 2.0], [1.0, 0.0]),  # a scale of 0
    ]
    density = prior.log_density(GMMBatch.from_list([inside, *outside]))
    assert np.isfinite(density[0])
    assert_array_equal(density[1:], -np.inf)
    noisy = GMMBatch.from_list([inside, inside], [1e-3, 2e-3])
    assert_array_equal(np.isfinite(prior.log_density(noisy)), [True, False])
    thirds = np.full(2, 1.0) / [3.0, 1.5]
    single = GMMBatch([0, 2], *(a.astype(np.float32) for a in (thirds, noisy.means[:2], noisy.scales[:2])))
    assert np.isfinite(prior.log_density(single)).all()  # a mass of 1 in float32
    edge = GMMBatch.from_list([([1.0, 0.0], [1.0, 2.0], [1.0, 1.0])])
    assert_allclose(prior.log_density(edge) - density[0], 0.0, atol=1e-12)  # a weight of 0 is on the simplex


def test_density_asks_for_what_it_needs():
    prior = Prior.from_data([0.0, 1.0])
    with pytest.raises(ValueError, match="no noise_variances"):
        prior.log_density(GMMBatch.from_list([([1.0], [1.0], [1.0])]))
    with pytest.raises(ValueError, match="2 dimensions, expected 1"):
        prior.log_density(GMMBatch.from_list([([1.0], [[1.0, 1.0]], [[1.0, 1.0]])], [0.1]))
    free = GMMBatch.from_list([([1.0], [1.0], [1.0]), ([1.0], [1.0], [1.0])], [0.0, 0.1])
    assert_array_equal(np.isfinite(prior.log_density(free)), [False, True])


@pytest.mark.parametrize(("concentration", "log_ratio"), [(1.0, 0.0), (2.0, -np.inf), (0.5, np.inf)])
def test_dirichlet_edges(concentration, log_ratio):
    """A weight of 0, C14: 0 log 0 is 0, a zero of the density for a > 1, a pole for a < 1."""
    prior = Prior([1.0], [0.0], [1.0], [0.5, 0.5], concentration, 0.1, 1.0)
    rest = [1.0, 2.0], [1.0, 1.0]
    edge, inside = prior.log_density(GMMBatch.from_list([([0.0, 1.0], *rest), ([0.5, 0.5], *rest)]))
    assert edge - inside == log_ratio
