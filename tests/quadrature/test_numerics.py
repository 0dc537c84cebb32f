"""Evidence, surrogate and acquisition on values that break quadrature: huge ranges, ties, twins, one or two of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.quadrature.acquisition import propose
from maskerade_fast.quadrature.problem import default_metric

PRIOR = mf.Prior.from_data(np.linspace(0.0, 1.0, 30), 3)
METRIC = default_metric(PRIOR)


def drawn(count: int, seed: int = 0) -> mf.GMMBatch:
    return PRIOR.sample(count, np.random.default_rng(seed)).mixtures[:count]


def twins(count: int) -> mf.GMMBatch:
    """Every mixture three times, and once with its components in another order of equal weight."""
    g = drawn(count)
    return mf.concat([g, g, g])


RANGE = np.linspace(-1e5, 0.0, 12)
VALUES: dict[str, tuple[mf.GMMBatch, np.ndarray]] = {
    "range 1e5": (drawn(12), RANGE),
    "range 1e5, the best first": (drawn(12), RANGE[::-1]),
    "range 1e5, at 1e5": (drawn(12), 2e5 + RANGE),
    "range 1e5, at -1e8": (drawn(12), RANGE - 1e8),
    "range 1e5, one that counts": (drawn(12), np.where(np.arange(12) == 5, 1e5, -1e5)),
    "range 1e5, some 0": (drawn(12), np.where(np.arange(12) % 3 == 0, -np.inf, RANGE)),
    "all equal": (drawn(12), np.full(12, -3.0)),
    "all equal, huge": (drawn(12), np.full(12, 1e5)),
    "equal but one ulp": (drawn(12), np.where(np.arange(12) == 5, np.nextafter(-3.0, 0.0), -3.0)),
    "all but one 0": (drawn(12), np.where(np.arange(12) == 5, 7.0, -np.inf)),
    "twins": (twins(4), np.tile(np.arange(4.0), 3)),
    "twins that disagree": (twins(4), np.linspace(-1e5, 0.0, 12)),
    "nothing but twins": (drawn(1)[[0] * 12], np.arange(12.0)),
    "h = 1": (drawn(1), np.array([-7e4])),
    "h = 2": (drawn(2), np.array([-7e4, 3.0])),
    "h = 2, equal": (drawn(2), np.array([3.0, 3.0])),
    "h = 2, twins": (drawn(1)[[0, 0]], np.array([3.0, -1e5])),
}


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("case", VALUES)
def test_everything_is_finite(case: str, power: int) -> None:
    """A number or, for the evidence of a surrogate that underflowed at every node, -inf with an infinite sd."""
    g, log_values = VALUES[case]
    s = mf.Surrogate.fit(g, log_values, metric=METRIC, power=power)
    nodes = PRIOR.sample(64, np.random.default_rng(1))
    for surrogate in (s, s.extend(drawn(2, 5), np.array([-np.inf, log_values.max() - 2.0])).refit()):
        e = mf.integrate(surrogate, nodes.mixtures, nodes.weights)
        assert e.variance >= 0.0
        assert e.mean >= 0.0
        assert np.isfinite([e.mean, e.variance]).all()
        assert np.isfinite(e.log_evidence) or (e.mean == 0.0 and e.log_evidence_sd == np.inf)
        assert np.isfinite(e.weights).all()
        assert np.isfinite(e.factor).all()
        new = mf.concat([drawn(6, 3), g[:1]])
        assert np.isfinite(surrogate.mean(new)).all()
        assert np.isfinite(surrogate.covariance(new)).all()
        for scores in (mf.mutual_information(surrogate, e, new), mf.uncertainty(surrogate, new)):
            assert np.isfinite(scores).all()
            assert (np.asarray(scores) >= 0.0).all()
        assert np.isfinite(mf.mutual_information(surrogate, e, new, batch=True))


@pytest.mark.parametrize("acquisition", ["information", "uncertainty"])
@pytest.mark.parametrize("case", VALUES)
def test_proposals_are_mixtures(case: str, acquisition: str) -> None:
    g, log_values = VALUES[case]
    s = mf.Surrogate.fit(g, log_values, metric=METRIC, power=1)
    nodes = PRIOR.sample(32, np.random.default_rng(1))
    e = mf.integrate(s, nodes.mixtures, nodes.weights)
    options: dict[str, Any] = {"pool": 16, "n_starts": 1, "max_iterations": 3}
    proposed = propose(acquisition, s, e, mf.PriorMeasure(PRIOR), 2, np.random.default_rng(2), **options).mixtures
    assert len(proposed) == 2
    for array in (proposed.weights, proposed.means, proposed.scales, proposed.noise_variances):
        assert array is not None
        assert np.isfinite(array).all()


def test_variances_are_no_less_than_the_jitter() -> None:
    """At the observations themselves, where a difference of equal numbers is left, and by a bound of the algebra."""
    for power in (1, 2):
        for case in ("twins", "nothing but twins", "range 1e5", "all equal"):
            g, log_values = VALUES[case]
            s = mf.Surrogate.fit(g, log_values, metric=METRIC, power=power, jitter=1e-10)
            variance = s.mean_and_variance(g)[1]
            assert (variance >= 1e-10 * s.outputscale).all()
            nodes = mf.concat([g, g])
            e = mf.integrate(s, nodes, np.full(len(nodes), 1.0 / len(nodes)))
            # the surrogate knows f at every node: nothing is uncertain but what the jitter leaves
            alpha = e.coefficients[len(nodes) :]
            assert e.variance >= 1e-10 * s.outputscale * float(alpha @ alpha) > 0.0
            assert e.variance <= 1e-6 * s.outputscale * float(np.sum(np.abs(e.coefficients[: len(nodes)])) ** 2)


def test_lost_digits_are_reported() -> None:
    """Mixtures that nearly repeat each other, almost without jitter; not with the default one, however near."""
    g = drawn(8)
    near = mf.GMMBatch(g.offsets, g.weights, g.means * (1.0 + 1e-9), g.scales, g.noise_variances)
    both, log_values = mf.concat([g, near]), np.arange(16.0)
    mf.Surrogate.fit(both, log_values, metric=METRIC)
    mf.Surrogate.fit(g, np.arange(8.0), metric=METRIC, jitter=0.0)
    clear = mf.Surrogate.fit(both[:9], log_values[:9], metric=METRIC, jitter=1e-6)
    clear.extend(both[9:], log_values[9:])
    said = "condition number of their hyper-kernel matrix is about [0-9]e.*raise `jitter`"
    with pytest.warns(mf.PrecisionWarning, match=said) as caught:
        mf.Surrogate.fit(both, log_values, metric=METRIC, jitter=1e-15, lengthscale=100.0, power=2)
    assert caught[0].filename == __file__
    few = mf.Surrogate.fit(g, np.arange(8.0), metric=METRIC, jitter=1e-14, lengthscale=5.0)
    near = mf.GMMBatch(g.offsets, g.weights, g.means * (1.0 + 1e-14), g.scales, g.noise_variances)
    with pytest.warns(mf.PrecisionWarning, match=said):
        few.extend(near, np.arange(8.0))


def test_a_metric_that_does_not_suit_is_named() -> None:
    """Masses differ and the distance does not see it."""
    cure = r"weights: total masses .*; pass metric=Metric\(mass_weight=\.\.\.\), or Metric\(mass_correction=True\)"
    with pytest.raises(ValueError, match=cure):
        mf.Surrogate.fit(drawn(3), np.arange(3.0))
    s = mf.Surrogate.fit(drawn(1), np.arange(1.0))
    for call in (s.mean, lambda g: s.extend(g, np.arange(3.0)), lambda g: mf.integrate(s, g, np.full(3, 1 / 3))):
        with pytest.raises(ValueError, match=cure):
            call(drawn(3, 1))
    mf.Surrogate.fit(*VALUES["all but one 0"], metric=METRIC)


def test_twins_without_jitter_are_named() -> None:
    """No bare error of LAPACK's."""
    s = mf.Surrogate.fit(drawn(3), np.arange(3.0), metric=METRIC, jitter=0.0)
    e = mf.integrate(s, drawn(4, 1), np.full(4, 0.25))
    assert mf.mutual_information(s, e, drawn(1)[:0], batch=True) == 0.0
    with pytest.raises(ValueError, match="candidates: their covariance is not positive definite"):
        mf.mutual_information(s, e, twins(8), batch=True)
    with pytest.raises(ValueError, match="mixtures: their hyper-kernel matrix is not positive definite"):
        s.extend(twins(8), np.arange(24.0))


@pytest.mark.parametrize("proposals", ["laplace", "prior"])
def test_runs_over_a_huge_range_of_likelihoods(proposals: str) -> None:
    """Noise so small that log-likelihoods differ by 1e8: a result with numbers in it, and a warning."""
    x = np.linspace(0.0, 1.0, 40) ** 1.3
    y = np.sin(9 * x) + 0.3 * np.cos(31 * x)
    options: dict[str, Any] = {"nodes": 64, "max_components": 2, "acquisition": "random", "seed": 0, "device": "cpu"}
    post = mf.marginalise(x, y, budget=60, noise_variance=1e-7, proposals=proposals, **options)
    finite = post.log_likelihoods[np.isfinite(post.log_likelihoods)]
    assert np.ptp(finite) > 1e5
    assert np.isfinite([post.log_evidence, post.log_evidence_sd]).all()
    assert np.isfinite(post.predict(x[:3]).log_density(y[:3])).all()
    assert post.warnings


def test_values_that_only_train_may_be_far_larger_than_those_of_draws() -> None:
    """A short run whose settled draws all miss the mode of the search: no overflow on the way."""
    x = np.linspace(0.0, 1.0, 200) ** 2
    post = mf.marginalise(x, np.sin(30 * x), budget=4, nodes=64, max_components=1, seed=2, device="cpu")
    assert np.isfinite(post.pair_weights).all()
