"""Information and uncertainty acquisition: golden numbers, gradients, greedy batches, the ascent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import random_batch
from comparisons import close
from test_surrogate import CASES, batch, golden_surrogate

from maskerade_fast.model.gmm import GMMBatch, concat
from maskerade_fast.model.prior import Prior
from maskerade_fast.model.reference_measure import PriorMeasure
from maskerade_fast.ops.metric import Metric
from maskerade_fast.quadrature.acquisition import propose
from maskerade_fast.quadrature.acquisition_information import GreedyInformation, Information, mutual_information
from maskerade_fast.quadrature.acquisition_uncertainty import Uncertainty, uncertainty
from maskerade_fast.quadrature.evidence import integrate
from maskerade_fast.quadrature.surrogate import Surrogate


@pytest.mark.parametrize("case", CASES, ids=["q2_D1", "q1_D1", "q2_D3"])
def test_golden(case):
    s = golden_surrogate(case)
    e = integrate(s, batch(case["samples"]), case["sample_weights"])
    candidates = batch(case["candidates"])
    single: Any = mutual_information(s, e, candidates)
    both: Any = mutual_information(s, e, candidates, batch=True)
    close(single, case["mutual_information_single"], 1e-8, least=0.0)
    close(both, case["mutual_information_batch"], 1e-8, least=0.0)
    close(uncertainty(s, candidates), case["uncertainty"], 1e-8, least=0.0)
    alone: Any = mutual_information(s, e, candidates[0], batch=True)
    close(single[0], alone, 1e-9, least=0.0)


def problem(rng, n_dims=1, metric=None, noise=False):
    g, nodes, candidates = (random_batch(rng, k, n_dims) for k in (12, 40, 5))
    if noise:
        g, nodes, candidates = (
            GMMBatch(b.offsets, b.weights, b.means, b.scales, np.exp(rng.normal(size=len(b))))
            for b in (g, nodes, candidates)
        )
    s = Surrogate.fit(g, rng.normal(size=12), metric=metric)
    return s, integrate(s, nodes, np.full(40, 1 / 40)), candidates


def moved(g: GMMBatch, name: str, index: int, step: float) -> GMMBatch:
    arrays: dict[str, Any] = {n: np.array(getattr(g, n)) for n in ("weights", "means", "scales")}
    arrays["noise_variances"] = None if g.noise_variances is None else np.array(g.noise_variances)
    arrays[name].reshape(-1)[index] += step
    return GMMBatch(g.offsets, **arrays)


@pytest.mark.parametrize("kind", ["information", "uncertainty"])
@pytest.mark.parametrize(
    ("n_dims", "metric", "noise"),
    [
        (1, None, False),
        (2, Metric(reflect=True), False),
        (1, Metric(noise_weight=0.7), True),
        (1, Metric(mass_correction=True), False),
    ],
)
def test_gradients_meet_differences(rng, kind, n_dims, metric, noise):
    """In the weights of mixtures that have to keep their mass: in those of the pairs of neighbours."""
    s, e, candidates = problem(rng, n_dims, metric, noise)
    if kind == "information":
        objective: Information | Uncertainty = Information(s, e)
    else:
        objective, candidates = Uncertainty(s, [candidates[[1, 2]]]), candidates[[0]]
    _, gradient = objective.value_and_gradient(candidates)
    assert gradient is not None
    names = [("weights", gradient.weights), ("means", gradient.means), ("scales", gradient.scales)]
    if noise:
        assert gradient.noise_variance is not None
        names.append(("noise_variances", gradient.noise_variance))
    keeps_mass = metric is None or not metric.mass_correction
    for name, analytic in names:
        numeric = np.empty(analytic.size)
        for i in range(analytic.size):
            h = 1e-5
            points = [moved(candidates, name, i, t) for t in (h, -h)]
            if name == "weights" and keeps_mass:
                other = i + 1 if i + 1 not in candidates.offsets else candidates.offsets[candidates.owner[i]]
                points = [moved(g, name, other, -t) for g, t in zip(points, (h, -h), strict=True)]
            up, down = (objective.value_and_gradient(g)[0] for g in points)
            numeric[i] = (up - down) / (2 * h)
        if name == "weights" and keeps_mass:
            last = np.append(np.isin(np.arange(1, analytic.size), candidates.offsets), True)
            neighbours = np.where(last, candidates.offsets[:-1][candidates.owner], np.arange(1, analytic.size + 1))
            analytic = analytic - analytic[neighbours]
        np.testing.assert_allclose(analytic.reshape(-1), numeric, rtol=0, atol=2e-6 * max(1e-3, np.abs(numeric).max()))


def test_uncertainty_far_from_all_observations_is_no_start(rng):
    """The mean underflows to 0 there: its logarithm is minus infinity, and no gradient overflows."""
    s, _, _ = problem(rng)
    far = GMMBatch.from_list([([1.0], [1e3], [1.0])])
    value, gradient = Uncertainty(s, []).value_and_gradient(far)
    assert value == -np.inf
    assert gradient is None
    assert uncertainty(s, far)[0] >= 0.0


def test_information_is_finite_at_an_observation_and_for_twins(rng):
    s, e, candidates = problem(rng)
    twins = concat([s.mixtures[[0]], candidates[[0, 0]]])
    value, gradient = Information(s, e).value_and_gradient(twins)
    assert np.isfinite(value)
    assert gradient is not None
    for part in (gradient.weights, gradient.means, gradient.scales):
        assert np.isfinite(part).all()


def test_without_jitter_an_observation_has_no_information(rng):
    s = Surrogate.fit(random_batch(rng, 6, 1), rng.normal(size=6), jitter=0.0)
    e = integrate(s, random_batch(rng, 40, 1), np.full(40, 1 / 40))
    np.testing.assert_array_equal(mutual_information(s, e, s.mixtures), 0.0)
    assert (uncertainty(s, s.mixtures) >= 0.0).all()
    assert (uncertainty(s, s.mixtures) <= 1e-12 * s.outputscale).all()
    pool = concat([s.mixtures, random_batch(rng, 3, 1)])
    assert set(GreedyInformation(s, e, pool).pick(np.arange(9), 3)) == {6, 7, 8}


def test_a_batch_informs_at_least_as_much_as_its_members(rng):
    s, e, candidates = problem(rng)
    single, none = (mutual_information(s, e, c) for c in (candidates, candidates[:0]))
    both = mutual_information(s, e, candidates, batch=True)
    assert both >= np.max(single) - 1e-12
    assert mutual_information(s, e, candidates[:0], batch=True) == 0.0
    assert np.shape(none) == (0,)


def test_ranking_ignores_a_common_shift_of_the_log_values(rng):
    g, nodes, candidates = (random_batch(rng, k, 1) for k in (12, 40, 30))
    values = np.round(rng.normal(size=12) * 8) / 8
    results = []
    for shift in (0.0, 1e5, -1e5):
        s = Surrogate.fit(g, values + shift)
        results.append(mutual_information(s, integrate(s, nodes, np.full(40, 1 / 40)), candidates))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-7)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-7)


def test_greedy_picks_follow_the_batch_information(rng):
    """Each greedy pick is the best extension of the batch so far, tried one by one."""
    s, e, _ = problem(rng)
    pool = random_batch(rng, 15, 1)
    picked = GreedyInformation(s, e, pool).pick(np.arange(15), 8)
    for k in range(8):
        gains = [
            -np.inf if i in picked[:k] else mutual_information(s, e, pool[[*picked[:k], i]], batch=True)
            for i in range(15)
        ]
        np.testing.assert_allclose(gains[picked[k]], max(gains), rtol=1e-7)


@pytest.fixture(scope="module")
def loop_state():
    rng = np.random.default_rng(5)
    measure = PriorMeasure(Prior.paper(np.linspace(0, 1, 12), max_components=3))
    nodes = measure.nodes(128, rng)
    g = measure.random_draws(30, rng).mixtures
    s = Surrogate.fit(g, -0.05 * g.means[g.offsets[:-1], 0] ** 2)
    return measure, s, integrate(s, nodes.mixtures, nodes.weights)


@pytest.mark.parametrize("kind", ["information", "uncertainty"])
def test_the_ascent_beats_the_pool(loop_state, kind):
    measure, s, e = loop_state
    settings = {"pool": 64, "n_starts": 2}
    still = propose(kind, s, e, measure, 4, np.random.default_rng(1), max_iterations=1, **settings)
    better = propose(kind, s, e, measure, 4, np.random.default_rng(1), max_iterations=20, **settings)

    def value(g: GMMBatch) -> float:
        if kind == "information":
            return float(mutual_information(s, e, g, batch=True))
        return float(uncertainty(s, g[[0]])[0])

    assert len(better.mixtures) == 4
    assert value(better.mixtures) > 1.0001 * value(still.mixtures)


@pytest.mark.parametrize("kind", ["information", "uncertainty", "random"])
def test_proposals_repeat_with_the_seed(loop_state, kind):
    measure, s, e = loop_state
    a, b, c = (
        propose(kind, s, e, measure, 3, np.random.default_rng(seed), pool=64, n_starts=2, max_iterations=5).mixtures
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(a.means, b.means)
    assert a.means.shape != c.means.shape or (a.means != c.means).any()
