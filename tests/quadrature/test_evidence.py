"""Evidence integral: golden numbers, and what must hold whatever the surrogate."""

from __future__ import annotations

import numpy as np
import pytest
from batches import random_batch
from comparisons import close
from test_surrogate import CASES, batch, golden_surrogate

from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.quadrature.evidence import integrate
from maskerade_fast.quadrature.surrogate import Surrogate


@pytest.mark.parametrize("case", CASES, ids=["q2_D1", "q1_D1", "q2_D3"])
def test_golden(case):
    s = golden_surrogate(case)
    e = integrate(s, batch(case["samples"]), case["sample_weights"])
    close(e.mean, case["integral_mean"], 1e-9, least=0.0)
    close(e.variance, case["integral_variance"], 1e-9, least=0.0)
    close(e.log_evidence, case["log_evidence"], 1e-10, least=0.0)
    close(e.weights, case["quadrature_weights"], 1e-8, least=0.0)


@pytest.mark.parametrize("h", [1, 2, 25])
def test_identities(rng, h):
    s = Surrogate.fit(random_batch(rng, h, 1), rng.normal(size=h))
    nodes, weights = random_batch(rng, 64, 1), rng.dirichlet(np.ones(64))
    e = integrate(s, nodes, weights)
    np.testing.assert_allclose(e.mean, s.epsilon + 0.5 * s.z @ e.weights @ s.z, rtol=1e-6)
    np.testing.assert_allclose(e.mean, weights @ (s.epsilon + 0.5 * s.mean(nodes) ** 2), rtol=1e-9)
    np.testing.assert_allclose(e.mean_by_size.sum(), e.mean, rtol=1e-12)
    np.testing.assert_array_equal(e.sizes, np.unique(nodes.n_components))
    u = weights * s.mean(nodes)
    jitter = s.jitter * s.outputscale * np.eye(64)
    np.testing.assert_allclose(e.variance, u @ (s.covariance(nodes) - jitter) @ u, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(e.factor @ e.factor.T, e.weights, rtol=0, atol=1e-9 * np.abs(e.weights).max())
    np.testing.assert_allclose(e.log_evidence_sd, np.sqrt(np.log1p(e.variance / e.mean**2)))


def test_fewer_nodes_than_observations(rng):
    s = Surrogate.fit(random_batch(rng, 10, 1), rng.normal(size=10))
    e = integrate(s, random_batch(rng, 3, 1), np.full(3, 1 / 3))
    assert e.factor.shape == (10, 3)
    np.testing.assert_allclose(e.factor @ e.factor.T, e.weights, rtol=0, atol=1e-9 * np.abs(e.weights).max())


def test_a_common_shift_moves_the_log_evidence_by_it(rng):
    g, values = random_batch(rng, 12, 1), np.round(rng.normal(size=12) * 8) / 8
    nodes, weights = random_batch(rng, 32, 1), np.full(32, 1 / 32)
    near, far = (integrate(Surrogate.fit(g, values + c), nodes, weights) for c in (0.0, -131072.0))
    assert far.mean == near.mean
    assert far.variance == near.variance
    assert far.log_evidence_sd == near.log_evidence_sd
    np.testing.assert_allclose(far.log_evidence, near.log_evidence - 131072.0, rtol=1e-15)


def test_known_values_at_the_nodes_give_the_plain_average(rng):
    """Observed at every node, the surrogate leaves no uncertainty and the integral is the average of f."""
    g, log_f = random_batch(rng, 40, 1), rng.normal(size=40)
    e = integrate(Surrogate.fit(g, log_f, jitter=1e-10), g, np.full(40, 1 / 40))
    np.testing.assert_allclose(e.log_evidence, np.log(np.exp(log_f).mean()), atol=1e-4)
    assert e.log_evidence_sd < 1e-3


def test_nodes_out_of_reach_leave_the_evidence_unknown(rng):
    s = Surrogate.fit(random_batch(rng, 6, 1), [0.0, 1.0, 2.0, 3.0, 4.0, -np.inf])
    e = integrate(s, GMMBatch.from_list([([1.0], [1e3], [1.0])]), [1.0])
    assert (e.mean, e.log_evidence, e.log_evidence_sd) == (0.0, -np.inf, np.inf)


@pytest.mark.parametrize(
    ("weights", "message"), [([0.5], "expected as many"), ([1.5, -0.5], "negative"), ([0.0, 0.0], "all 0")]
)
def test_bad_weights_raise(rng, weights, message):
    s = Surrogate.fit(random_batch(rng, 3, 1), np.zeros(3))
    with pytest.raises(ValueError, match=message):
        integrate(s, random_batch(rng, 2, 1), weights)
