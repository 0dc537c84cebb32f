"""The loop: budgets, units, seeds, interruption, limits of the data, evidence of small problems."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from comparisons import one_thread

import maskerade_fast as mf
from maskerade_fast.quadrature import problem
from maskerade_fast.quadrature.acquisition import propose
from maskerade_fast.run import adaptive_run, prior_run

SIZES = {"budget": 30, "initial": 20, "batch_size": 5, "nodes": 64, "max_components": 2}
QUICK: dict[str, Any] = {**SIZES, "proposals": "prior"}


def waves(n: int = 25) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(0.0, 1.0, n)
    return x, np.sin(2 * np.pi * 3 * x) + 0.3 * np.cos(2 * np.pi * 7 * x)


def fit(**settings):
    return mf.marginalise(*waves(), **{**QUICK, "seed": 3, **settings})


@pytest.fixture(scope="module")
def post():
    return fit()


def test_result_is_whole(post):
    assert len(post.mixtures) == len(post.log_likelihoods) == 30
    assert post.component_probabilities.shape == (2,)
    np.testing.assert_allclose(post.component_probabilities.sum(), 1.0)
    assert (post.component_probabilities >= 0).all()
    np.testing.assert_allclose(post.pair_weights.sum(), 1.0)
    assert np.linalg.eigvalsh(post.pair_weights).min() > -1e-10 * np.abs(post.pair_weights).max()
    np.testing.assert_allclose(post.factor @ post.factor.T, post.pair_weights, atol=1e-8 * post.pair_weights.max())
    assert post.log_evidence_sd > 0
    assert post.effective_sample_size > 0
    assert [row.evaluations for row in post.history] == [5, 10, 15, 20, 25, 30]
    assert post.history[-1].cost == 30
    assert post.history[-1].log_evidence == post.log_evidence
    assert post.history[-1].best_log_likelihood == post.log_likelihoods.max()
    assert all(b.seconds > a.seconds for a, b in zip(post.history, post.history[1:], strict=False))


def test_log_likelihoods_are_the_mixtures_in_user_units():
    x, y = waves()
    x, y = 1950 + 12 * x, 10 * y + 3
    post = mf.marginalise(x, y, **QUICK, seed=3)
    trend = y.std() * post.data_standardised.basis
    direct = mf.log_likelihood(post.mixtures, x, y - y.mean(), basis=trend).value
    np.testing.assert_allclose(post.log_likelihoods, direct, rtol=1e-9)


@pytest.mark.parametrize("n_dims", [1, 2])
def test_units(n_dims, rng):
    """Targets times 10 plus 3, inputs shifted and stretched: the same answer in other units."""
    X = rng.uniform(size=(20, n_dims))
    y = np.sin(5 * X.sum(axis=1)) + 0.1 * rng.normal(size=20)
    stretch, shift = np.array([4.0, 0.5])[:n_dims], np.array([-3.0, 64.0])[:n_dims]
    X_new, y_new = X[:4] + 0.03, y[:4]
    a = mf.marginalise(X, y, **QUICK, seed=1)
    b = mf.marginalise(X * stretch + shift, 10 * y + 3, **QUICK, seed=1)
    log10 = np.log(10.0)
    np.testing.assert_allclose(b.log_evidence, a.log_evidence - 20 * log10, atol=1e-4)
    np.testing.assert_allclose(b.log_evidence_sd, a.log_evidence_sd, rtol=1e-3)
    np.testing.assert_allclose(b.component_probabilities, a.component_probabilities, atol=1e-4)
    np.testing.assert_allclose(b.mixtures[:20].means, a.mixtures[:20].means / stretch, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(b.mixtures[:20].scales, a.mixtures[:20].scales / stretch, rtol=1e-6)
    np.testing.assert_allclose(b.mixtures[:20].weights, a.mixtures[:20].weights * 100, rtol=1e-6)
    noises = [np.asarray(m.mixtures[:20].noise_variances) for m in (a, b)]
    np.testing.assert_allclose(noises[1], noises[0] * 100, rtol=1e-6)
    p, q = a.predict(X_new), b.predict(X_new * stretch + shift)
    np.testing.assert_allclose(q.mean, 10 * p.mean + 3, rtol=1e-4)
    np.testing.assert_allclose(q.variance, 100 * p.variance, rtol=1e-3)
    np.testing.assert_allclose(q.log_density(10 * y_new + 3), p.log_density(y_new) - log10, atol=1e-3)
    np.testing.assert_allclose(q.quantile(0.9), 10 * p.quantile(0.9) + 3, rtol=1e-3)
    joints = [a.joint_log_density(X_new, y_new), b.joint_log_density(X_new * stretch + shift, 10 * y_new + 3)]
    np.testing.assert_allclose(joints[1], joints[0] - 4 * log10, atol=1e-3)
    lag = 0.1 * np.ones((1, n_dims))
    np.testing.assert_allclose(b.kernel(lag * stretch).mean, 100 * a.kernel(lag).mean, rtol=1e-3)
    f = np.array([1.0, 3.0])
    np.testing.assert_allclose(
        b.spectral_density(f / stretch[0]).mean, 100 * stretch[0] * a.spectral_density(f).mean, rtol=1e-3
    )


def test_standardise_off_takes_the_numbers_as_they_are():
    x, y = waves()
    y = (y - y.mean()) / y.std()
    on, off = (mf.marginalise(x, y, **QUICK, seed=2, standardise=s, acquisition="random") for s in (True, False))
    np.testing.assert_allclose(on.log_evidence, off.log_evidence, atol=1e-9)


def test_same_seed_same_bits_whatever_the_threads(post):
    state = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    again, other = fit(), fit(seed=4)
    generator = fit(seed=np.random.default_rng(3))
    with one_thread():
        alone = fit()
    for same in (again, generator, alone):
        assert same.log_evidence == post.log_evidence
        np.testing.assert_array_equal(same.mixtures.means, post.mixtures.means)
        np.testing.assert_array_equal(same.pair_weights, post.pair_weights)
    assert other.log_evidence != post.log_evidence
    np.testing.assert_array_equal(np.random.get_state(legacy=False)["state"]["key"], state)  # noqa: NPY002


@pytest.mark.parametrize("acquisition", ["uncertainty", "random"])
def test_other_acquisitions(acquisition):
    post = fit(acquisition=acquisition)
    assert len(post.mixtures) == 30
    assert np.isfinite(post.log_evidence)


def test_a_spike_is_reported():
    """One draw in a hundred carries the likelihood: the evidence cannot be trusted, and the run says so."""
    settings = {"budget": 120, "initial": 100, "acquisition": "random"}
    spike, flat = fit(noise_variance=1e-5, **settings), fit(noise_variance=10.0, **settings)
    assert any("rests on" in warning for warning in spike.warnings)
    assert not any("rests on" in warning for warning in flat.warnings)


def test_budget_smaller_than_the_design_or_not_a_multiple():
    assert len(fit(budget=7).mixtures) == 7
    assert [row.evaluations for row in fit(budget=28).history] == [5, 10, 15, 20, 25, 28]
    assert len(fit(budget=1).mixtures) == 1


def test_time_budget_ends_the_first_design(post):
    post = fit(budget=None, time_budget=0.5, initial=100_000)
    assert 5 <= len(post.mixtures) < 100_000
    assert post.history[0].evaluations == QUICK["batch_size"]


def test_no_batch_starts_that_would_end_late(monkeypatch):
    """What a batch takes is mostly the search for it, which counts too."""
    clock = [0.0]

    def slow(*args, **kwargs):
        clock[0] += 10.0
        return real(*args, **kwargs)

    real = propose
    monkeypatch.setattr(prior_run, "propose", slow)
    monkeypatch.setattr("maskerade_fast.storage.recorder.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    post = fit(budget=None, time_budget=25.0, acquisition="random")
    assert [row.seconds for row in post.history] == [0.0, 0.0, 0.0, 0.0, 10.0, 20.0]


@pytest.mark.parametrize(("stop_at", "count"), [(2, 5), (6, 25)], ids=["in the design", "after it"])
def test_interrupt_returns_what_there_is(monkeypatch, stop_at, count):
    calls = []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    real = mf.log_likelihood
    monkeypatch.setattr(problem, "log_likelihood", interrupted)
    post = fit()
    assert len(post.mixtures) == count
    assert any("interrupted" in w for w in post.warnings)
    assert np.isfinite(post.predict(waves()[0][:3]).mean).all()
    calls[:] = [1] * (stop_at - 1)
    with pytest.raises(KeyboardInterrupt):
        fit()


def test_progress_bar_reports_on_standard_error(capsys):
    fit(progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "30/30" in err
    assert "log evidence" in err


def test_the_measure_is_a_value(monkeypatch):
    """With any other reference measure, f is L * prior / q: a measure of half the density gives the same evidence."""

    class Halved(mf.PriorMeasure):
        def log_density_ratio(self, mixtures):
            return np.full(len(mixtures), np.log(2.0))

    plain = fit(acquisition="random")
    monkeypatch.setattr(prior_run, "PriorMeasure", Halved)
    np.testing.assert_allclose(fit(acquisition="random").log_evidence, plain.log_evidence + np.log(2.0), atol=1e-9)


def test_noise_and_prior_arguments():
    x, y = waves()
    fixed = fit(noise_variance=0.01)
    np.testing.assert_allclose(fixed.mixtures.noise_variances, 0.01, rtol=1e-12)
    prior = mf.Prior.paper(x, max_components=2, noise_variance=0.01 / y.var())
    settings: dict[str, Any] = {k: v for k, v in QUICK.items() if k != "max_components"}
    same = mf.marginalise(x, y, prior=prior, noise_variance=0.01, **settings, seed=3)
    np.testing.assert_allclose(np.asarray(same.mixtures.noise_variances), 0.01, rtol=1e-9)
    with pytest.raises(ValueError, match="noise_variance"):
        mf.marginalise(x, y, prior=prior, noise_variance=0.02, **settings)
    with pytest.raises(ValueError, match="max_components"):
        mf.marginalise(x, y, prior=prior, **QUICK)
    with pytest.raises(TypeError, match="prior: str, expected a Prior"):
        mf.marginalise(x, y, prior="paper", **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prior: made for 1 inputs, X has 2"):
        mf.marginalise(np.c_[x, x], y, prior=prior, **settings)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"acquisition": "best"}, ValueError, "acquisition: 'best', expected one of"),
        ({"proposals": "best"}, ValueError, "proposals"),
        ({"trend": "cubic"}, ValueError, "trend: 'cubic', expected one of 'none', 'constant', 'linear'"),
        ({"checkpoint": 5}, TypeError, "checkpoint: 5, expected a path or None"),
        ({"device": "tpu"}, ValueError, "device"),
        ({"budget": 0}, ValueError, "budget"),
        ({"budget": 1.5}, TypeError, "budget"),
        ({"budget": None}, ValueError, "budget"),
        ({"time_budget": -1.0}, ValueError, "time_budget"),
        ({"initial": 0}, ValueError, "initial"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"nodes": 0}, ValueError, "nodes"),
        ({"max_components": 0}, ValueError, "max_components"),
        ({"noise_variance": 0.0}, ValueError, "noise_variance"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": "a"}, TypeError, "seed"),
        ({"callback": 5}, TypeError, "callback"),
    ],
)
def test_bad_arguments_raise_by_name(settings, error, message):
    with pytest.raises(error, match=message):
        fit(**settings)


@pytest.mark.parametrize("proposals", ["laplace", "prior"])
@pytest.mark.parametrize("trend", ["none", "linear"])
@pytest.mark.parametrize(
    ("x", "y"), [(range(4), [2.0] * 4), (range(4), [0.0] * 4), ([0.0], [2.0]), ([0.0, 1.0], [-1e9] * 2)]
)
def test_constant_target(x, y, trend, proposals):
    """The mean is exactly the constant, the spread is positive away from the data. Warnings are errors here."""
    settings = {**QUICK, "proposals": proposals, "trend": trend, "seed": 0}
    post = mf.marginalise(list(x), y, **settings)
    prediction = post.predict([0.5, 40.0])
    assert (prediction.mean == y[0]).all()
    assert np.isfinite(prediction.variance).all()
    assert (prediction.variance > 0.0).all()
    assert post.standardiser.y_scale == 1.0


def test_draws_without_a_finite_likelihood_wait_for_one_with_it(monkeypatch):
    real, calls = mf.log_likelihood, []

    def failing(g, *args, **kwargs):
        calls.append(len(g))
        result = real(g, *args, **kwargs)
        if len(calls) <= failures:
            result.value[:] = -np.inf
        return result

    failures = 2
    monkeypatch.setattr(problem, "log_likelihood", failing)
    post = fit()
    assert len(post.mixtures) == 30
    assert (post.log_likelihoods[:10] == -np.inf).all()
    assert any("10 of 30 mixtures" in w for w in post.warnings)
    failures, calls[:] = 100, []
    with pytest.raises(ValueError, match="no drawn mixture has a finite likelihood"):
        fit()


@pytest.mark.parametrize("proposals", ["prior", "laplace"])
def test_searches_that_end_abnormally_are_counted(monkeypatch, proposals):
    """Starts without a finite value, and searches that the optimiser gave up."""
    module = prior_run if proposals == "prior" else adaptive_run
    batches = []

    def troubled(*args, **kwargs):
        batches.append(dataclasses.replace(real(*args, **kwargs), failed_starts=5))
        return batches[-1]

    real = module.propose
    monkeypatch.setattr(module, "propose", troubled)
    post = fit(acquisition="information", proposals=proposals)
    assert batches
    assert any(w.startswith(f"{5 * len(batches)} searches for the next batch") for w in post.warnings)


def test_merged_inputs_are_reported():
    """Seconds since 1970 as float32, nanoseconds as float64: neighbours have become equal."""
    for x in ((1.7e9 + np.arange(12)).astype(np.float32), 1e18 + np.arange(12.0)):
        with pytest.warns(mf.CollapsedInputsWarning, match="X: column 0"):
            mf.marginalise(x, np.sin(np.arange(12.0)), **QUICK, seed=0)


def test_two_rows():
    assert np.isfinite(mf.marginalise([0.0, 1.0], [1.0, -1.0], **QUICK, seed=0).log_evidence)


def test_layouts_orders_and_types_of_a_whole_run():
    """The same bits for read-only, strided, Fortran, big-endian, lists, float32; integers and bools are numbers."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, size=(12, 2)).astype(float) + np.arange(12.0)[:, None], rng.integers(-5, 5, 12) * 1.0
    options: dict[str, Any] = {"budget": 12, "nodes": 32, "max_components": 1, "seed": 0, "device": "cpu"}
    expected = mf.marginalise(X, y, **options).log_evidence
    locked, wide = X.copy(), np.repeat(X, 2, axis=1)
    locked.setflags(write=False)
    for other in (locked, wide[:, ::2], np.asfortranarray(X), X.astype(">f8"), X.tolist(), X.astype(np.int32)):
        before = np.array(other)
        assert mf.marginalise(other, y, **options).log_evidence == expected
        np.testing.assert_array_equal(other, before)
    for other in (y.astype(">f8"), y.astype(np.int16), list(y), np.stack([y, y], axis=1)[:, 0]):
        assert mf.marginalise(X, other, **options).log_evidence == expected
    assert mf.marginalise(X.astype(np.float32), y.astype(np.float32), **options).log_evidence == expected
    flags = np.array([1, 0] * 6)
    same = {mf.marginalise(flags.astype(kind), y, **options).log_evidence for kind in (float, np.uint8, bool)}
    assert len(same) == 1
    for bad in (X + 0j, X.astype(object), X.astype("datetime64[s]")):
        with pytest.raises(TypeError, match="X: expected real numbers"):
            mf.marginalise(bad, y, **options)


def test_warm_up_leaves_nothing_to_compile():
    """In a process of its own: fits and every public operation find their loops compiled."""
    code = """
import numpy as np
import maskerade_fast as mf
from test_compiled_once import operations, signatures

mf.warm_up()
before = signatures()
X, y = np.random.default_rng(0).uniform(size=(30, 2)), np.arange(30.0)
for acquisition in ("information", "uncertainty"):
    post = mf.marginalise(X, y, budget=12, initial=8, batch_size=2, nodes=32, seed=0, acquisition=acquisition)
prediction = post.predict(np.float32(X))
prediction.sample(3), prediction.sample(300), prediction.cdf(y), prediction.log_density(y), prediction.quantile([0.1])
post.joint_log_density(X, y), post.kernel(X), post.spectral_density(y)
operations()
mf.log_likelihood(post.mixtures[0], np.zeros((600, 2)), np.zeros(600), 1.0, grad=True)
after = signatures()
compiled = {name.rpartition(".")[2] for name in after if after[name] != before.get(name)}
assert compiled <= {"factor_matrices", "take_out"}, compiled  # `cpu.cholesky` alone, gradients on a grid with a trend
"""
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests.parent), str(tests), str(tests / "backends")])
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True)
