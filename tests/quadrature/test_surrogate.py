"""WSABI-L surrogate: golden numbers, the oracle, extension against a new fit, re-basing, ranges of log f."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from batches import random_batch
from comparisons import close

from maskerade_fast.model.gmm import GMMBatch, concat
from maskerade_fast.ops.metric import Metric
from maskerade_fast.quadrature.surrogate import Surrogate

CASES = json.loads((Path(__file__).parents[1] / "golden" / "quadrature.json").read_text())


def batch(thetas: list[dict[str, list[float]]], noise: float | None = None) -> GMMBatch:
    noises = None if noise is None else np.full(len(thetas), noise)
    return GMMBatch.from_list([(t["weights"], t["means"], t["scales"]) for t in thetas], noises)


def golden_surrogate(case: dict) -> Surrogate:
    return Surrogate.fit(
        batch(case["thetas"]),
        case["log_likelihood"],
        outputscale=case["output_scale"] ** 2,
        lengthscale=case["length_scale"],
        power=case["q"],
        jitter=case["relative_jitter"],
        epsilon_factor=case["epsilon_factor"],
    )


@pytest.mark.parametrize("case", CASES, ids=["q2_D1", "q1_D1", "q2_D3"])
def test_golden(case):
    s = golden_surrogate(case)
    assert s.log_offset == case["log_offset"]
    close(s.epsilon, case["epsilon"], 1e-10, least=0.0)
    close(s.z, case["z"], 1e-10, least=0.0)
    close(s.factor @ s.factor.T, case["kernel"], 1e-10, least=0.0)
    candidates = batch(case["candidates"])
    close(s.mean(candidates), case["posterior_mean_g"], 1e-9, least=0.0)
    close(s.covariance(candidates), case["posterior_cov_g"], 1e-9, least=0.0)
    mean, variance = s.mean_and_variance(candidates)
    close(mean, case["posterior_mean_g"], 1e-9, least=0.0)
    close(variance, np.diag(case["posterior_cov_g"]), 1e-9, least=0.0)


def test_extend_equals_a_new_fit_with_the_same_hyperparameters(rng):
    g, more = random_batch(rng, 30, 2), random_batch(rng, 7, 2)
    values, new = rng.normal(size=30), rng.normal(size=7) + 5.0  # a new maximum: everything is re-based
    s = Surrogate.fit(g, values)
    extended = s.extend(more, new)
    fresh = Surrogate.fit(concat([g, more]), np.r_[values, new], outputscale=s.outputscale, lengthscale=s.lengthscale)
    assert extended.outputscale == s.outputscale
    assert extended.lengthscale == s.lengthscale
    assert extended.log_offset == new.max()
    np.testing.assert_allclose(extended.factor, fresh.factor, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(extended.z, fresh.z)
    probe = random_batch(rng, 5, 2)
    np.testing.assert_allclose(extended.mean(probe), fresh.mean(probe), rtol=1e-6, atol=1e-8)


def test_refit_after_extend_equals_fit_of_everything(rng):
    g, more = random_batch(rng, 20, 1), random_batch(rng, 10, 1)
    values = rng.normal(size=30)
    stepwise = Surrogate.fit(g, values[:20]).extend(more, values[20:]).refit()
    at_once = Surrogate.fit(concat([g, more]), values)
    np.testing.assert_allclose(stepwise.lengthscale, at_once.lengthscale, rtol=1e-9)
    np.testing.assert_allclose(stepwise.outputscale, at_once.outputscale, rtol=1e-9)


def test_fitted_length_maximises_the_marginal_likelihood(rng):
    g = random_batch(rng, 40, 1)
    truth = Surrogate.fit(g, np.zeros(40), outputscale=1.0, lengthscale=1.5)
    z = np.abs(truth.factor @ rng.normal(size=40)) + 0.1
    s = Surrogate.fit(g, np.log(0.5 * z**2))

    def evidence(length: float) -> float:
        return oracle.profile_log_likelihood(s.distances, s.z, lengthscale=length)

    best = evidence(s.lengthscale)
    assert not s.at_bound
    assert all(best >= evidence(s.lengthscale * factor) for factor in (0.3, 0.8, 0.98, 1.02, 1.25, 3.0))


def test_values_without_shape_end_at_a_bound(rng):
    """Equal values want an infinite length; as a setting of the user it is no bound."""
    g = random_batch(rng, 20, 1)
    assert Surrogate.fit(g, np.zeros(20)).at_bound
    assert not Surrogate.fit(g, np.zeros(20), lengthscale=100.0).at_bound


def test_lengths_below_the_spacing_are_reported(rng: np.random.Generator) -> None:
    """The median over observations of the correlation with the nearest other one."""
    g, values = random_batch(rng, 15, 1), rng.normal(size=15)
    for length in (0.05, 0.5, 5.0):
        s = Surrogate.fit(g, values, outputscale=3.0, lengthscale=length)
        K = s.kernel(g) / 3.0
        K[np.diag_indices(15)] = -1.0
        expected = float(np.median(K.max(axis=1)))
        assert s.correlation_of_neighbours == pytest.approx(expected, rel=1e-9)
        assert (s.spacing_warning is not None) == (expected < 0.5)
    assert s.spacing_warning is None
    assert "shorter than the spacing" in str(Surrogate.fit(g, values, lengthscale=0.05).spacing_warning)
    assert Surrogate.fit(random_batch(rng, 1, 1), [0.0]).correlation_of_neighbours == 1.0


def test_closed_form_outputscale(rng):
    g = random_batch(rng, 15, 1)
    s = Surrogate.fit(g, rng.normal(size=15), lengthscale=2.0)
    correlation = (s.factor @ s.factor.T) / s.outputscale
    np.testing.assert_allclose(s.outputscale, s.z @ np.linalg.solve(correlation, s.z) / 15, rtol=1e-8)


def test_a_common_shift_changes_the_offset_alone(rng):
    g, values = random_batch(rng, 10, 1), np.round(rng.normal(size=10) * 8) / 8
    near, far = Surrogate.fit(g, values), Surrogate.fit(g, values - 1024.0)
    assert far.log_offset == near.log_offset - 1024.0
    np.testing.assert_array_equal(far.z, near.z)
    assert far.lengthscale == near.lengthscale


def test_one_observation(rng):
    g = random_batch(rng, 1, 1)
    one = Surrogate.fit(g, [-3.0])
    assert one.lengthscale == 1.0
    np.testing.assert_allclose(one.mean(g), one.z, rtol=1e-5)


def test_free_noise_enters_through_the_metric(rng):
    g = GMMBatch.from_list([([1.0], [1.0], [1.0])] * 3, noise_variances=[1e-3, 1e-2, 1e-1])
    s = Surrogate.fit(g, [0.0, 1.0, 0.5], metric=Metric(noise_weight=1.0))
    np.testing.assert_allclose(s.distances[0], np.log(10.0) * np.arange(3), atol=1e-12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.0, np.nan], r"log_values\[1\]"),
        ([-np.inf, -np.inf], "at least one finite"),
        ([0.0, np.inf], r"log_values\[1\]"),
        ([0.0], "log_values: 1 values for 2 mixtures"),
    ],
)
def test_bad_values_raise(rng, values, message):
    with pytest.raises(ValueError, match=message):
        Surrogate.fit(random_batch(rng, 2, 1), values)


def test_bad_hyperparameters_raise(rng):
    g = random_batch(rng, 2, 1)
    for name, value in (
        ("outputscale", 0.0),
        ("lengthscale", -1.0),
        ("power", 3),
        ("jitter", -1.0),
        ("epsilon_factor", 1.0),
    ):
        bad: Any = {name: value}
        with pytest.raises(ValueError, match=name):
            Surrogate.fit(g, [0.0, 1.0], **bad)
    with pytest.raises(TypeError, match="epsilon_factor"):
        Surrogate.fit(g, [0.0, 1.0], epsilon_factor="small")  # type: ignore[arg-type]
