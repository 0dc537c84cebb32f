"""Reference measures: the protocol's shared parts, and the prior as a measure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from maskerade_fast.adaptive.adaptation import laplace_mixture
from maskerade_fast.adaptive.mixture_measure import MixtureMeasure
from maskerade_fast.adaptive.modes import Mode
from maskerade_fast.model.draws import Draws
from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.model.prior import Prior
from maskerade_fast.model.reference_measure import PriorMeasure, ReferenceMeasure

PRIOR = Prior.paper(np.linspace(0.0, 1.0, 20), max_components=5)
MEASURE = PriorMeasure(PRIOR)
UNEVEN = PriorMeasure(replace(PRIOR, size_probabilities=np.array([0.7, 0.0, 0.25, 0.05])))


@dataclass(frozen=True, eq=False)
class Tilted(ReferenceMeasure):
    """Sizes of the prior in other proportions: the smallest measure that is not the prior."""

    prior: Prior
    proportions: tuple[float, ...]

    @property
    def latent_map(self):
        return self.prior.latent_map

    @property
    def size_probabilities(self):
        return np.array(self.proportions)

    def net(self, counts, rng=None) -> Draws:
        return replace(self.prior, size_probabilities=self.size_probabilities).sample(counts, rng)

    def log_density_ratio(self, mixtures: GMMBatch):
        return np.log(self.prior.size_probabilities / self.size_probabilities)[mixtures.n_components - 1]


def test_prior_measure_is_the_prior():
    draws, same = MEASURE.net(16, 4), PRIOR.sample(16, 4)
    assert_array_equal(draws.latent.values, same.latent.values)
    assert_array_equal(MEASURE.log_density_ratio(draws.mixtures), np.zeros(80))
    assert MEASURE.latent_map is PRIOR.latent_map
    assert_array_equal(MEASURE.size_probabilities, PRIOR.size_probabilities)


@pytest.mark.parametrize(
    ("measure", "total", "counts"),
    [
        (MEASURE, 4096, [512, 512, 1024, 1024, 1024]),
        (MEASURE, 5, [1, 1, 1, 1, 1]),
        (MEASURE, 2, [1, 1, 1, 1, 1]),  # no size goes without
        (MEASURE, 13, [2, 2, 2, 2, 4]),
        (UNEVEN, 1024, [512, 0, 256, 64, 0]),
        (UNEVEN, 100, [64, 0, 32, 4, 0]),
    ],
)
def test_nodes_are_shared_in_powers_of_two(measure, total, counts):
    draws = measure.nodes(total, 1)
    sizes = draws.latent.sizes
    assert_array_equal(np.bincount(sizes, minlength=6)[1:], counts)
    assert_allclose(draws.weights.sum(), 1.0, rtol=1e-14)
    share = np.bincount(sizes, draws.weights, minlength=len(measure.size_probabilities) + 1)[1:]
    assert_allclose(share, measure.size_probabilities, rtol=1e-13)  # up to 1024 terms added one by one


@pytest.mark.parametrize("count", [1, 2, 7, 20, 100])
@pytest.mark.parametrize("measure", [MEASURE, UNEVEN], ids=["even", "uneven"])
def test_candidates_are_exactly_count(measure, count):
    draws = measure.random_draws(count, 3)
    assert len(draws) == len(draws.mixtures) == len(draws.latent) == count
    assert_array_equal(draws.weights, 1.0 / count)
    numbers = np.bincount(draws.latent.sizes, minlength=6)[1 : len(measure.size_probabilities) + 1]
    assert (np.abs(numbers - count * measure.size_probabilities) < 1.0 + 1e-9).all()
    assert_array_equal(draws.mixtures.n_components, draws.latent.sizes)
    again = measure.latent_map.forward(draws.latent)
    assert_array_equal(again.weights, draws.mixtures.weights)


def test_sizes_of_candidates_have_the_right_mean():
    sizes = [UNEVEN.random_draws(3, s).latent.sizes for s in range(400)]
    numbers = np.mean([np.bincount(n, minlength=5)[1:] for n in sizes], axis=0)
    assert_allclose(numbers, 3 * UNEVEN.size_probabilities, atol=0.06)


def test_order_of_candidates_is_mixed():
    sizes = MEASURE.random_draws(200, 0).latent.sizes
    assert len(set(sizes[:20])) == 5


def test_importance_weights_do_not_change_an_integral():
    """∫ g dπ = ∫ g π/q dq, with q(n) far from p(n); g = mass times scale has mean known in closed form."""
    tilted = Tilted(PRIOR, (0.05, 0.05, 0.1, 0.2, 0.6))
    expected = np.exp(PRIOR.log_scale_mean[0] + 0.5 * PRIOR.log_scale_sd[0] ** 2) * np.mean(np.arange(1, 6))
    for measure in (MEASURE, tilted):
        draws = measure.nodes(8192, 9)
        g = draws.mixtures
        sums = np.add.reduceat(g.scales[:, 0], g.offsets[:-1])
        value = (draws.weights * np.exp(measure.log_density_ratio(g))) @ sums
        assert_allclose(value, expected, rtol=2e-3)


@pytest.mark.parametrize("largest", [3, 6, 8])
def test_the_mean_of_the_density_ratio_is_one(largest, rng):
    """E_q[π/q] = 1, whatever the modes; beyond six components only the prior's part keeps it so."""
    prior = Prior.from_data(np.linspace(0.0, 1.0, 20), max_components=largest)
    dimension = prior.latent_map.dimension
    modes = [Mode(n, 0.5 * rng.normal(size=dimension(n)), 0.0, 0.6 * np.eye(dimension(n))) for n in (1, 2, 3, 3)]
    measure = laplace_mixture(prior, tuple(modes))
    draws = measure.random_draws(2000, rng)
    ratio = np.exp(measure.log_density_ratio(draws.mixtures))
    assert abs(ratio.mean() - 1.0) < 4.0 * ratio.std() / np.sqrt(len(ratio)) < 0.2
    by_size = np.bincount(draws.latent.sizes, ratio, minlength=largest + 1)[1:] / len(ratio)
    assert_allclose(by_size, prior.size_probabilities, atol=0.08)
    for n in range(7, largest + 1):
        rows = draws.latent.sizes == n
        assert_allclose(ratio[rows], prior.size_probabilities[n - 1] / measure.size_probabilities[n - 1], rtol=1e-12)


@pytest.mark.parametrize("measure", [MEASURE, MixtureMeasure.of_prior(PRIOR)], ids=["prior", "mixtures"])
def test_reproducibility(measure):
    """A seed is as good as its Generator, which draws on; another seed gives other draws."""
    for call in (measure.nodes, measure.random_draws, measure.net):
        rng = np.random.default_rng(7)
        first, same, other = call(64, 7), call(64, rng), call(64, 8)
        again = call(64, rng)
        assert (
            again.latent.values.shape != first.latent.values.shape or (again.latent.values != first.latent.values).any()
        )
        assert_array_equal(first.latent.values, same.latent.values)
        assert (
            first.latent.values.shape != other.latent.values.shape or (first.latent.values != other.latent.values).any()
        )


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match="total: 0"):
        MEASURE.nodes(0)
    with pytest.raises(ValueError, match="count: 0"):
        MEASURE.random_draws(0)
    with pytest.raises(TypeError, match="rng"):
        MEASURE.random_draws(3, "seven")
