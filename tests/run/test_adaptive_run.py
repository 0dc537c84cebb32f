"""The default run: budgets kept, histories, interrupts, acquisitions, predictions that survive saving, warnings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.quadrature.problem import Problem
from maskerade_fast.run.budget import Limits

QUICK: dict[str, Any] = {"budget": 150, "batch_size": 10, "nodes": 128, "max_components": 2, "seed": 3, "device": "cpu"}


def waves(n: int = 25) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(0.0, 1.0, n)
    return x, np.sin(2 * np.pi * 3 * x) + 0.1 * np.cos(40 * x)


def fit(**settings: Any) -> mf.Posterior:
    return mf.marginalise(*waves(), **{**QUICK, **settings})


@pytest.fixture(scope="module")
def post() -> mf.Posterior:
    return fit()


def test_result_is_whole(post: mf.Posterior) -> None:
    np.testing.assert_allclose(post.component_probabilities.sum(), 1.0)
    np.testing.assert_allclose(post.pair_weights.sum(), 1.0)
    assert np.linalg.eigvalsh(post.pair_weights).min() > -1e-10
    np.testing.assert_allclose(post.factor @ post.factor.T, post.pair_weights, atol=1e-10)
    assert len(post.log_likelihoods) == len(post.mixtures) == len(post.pair_weights)
    costs = [row.cost for row in post.history]
    assert costs == sorted(costs)
    assert costs[-1] == 150
    assert post.history[-1].log_evidence == post.log_evidence
    assert post.history[-1].best_log_likelihood >= post.log_likelihoods.max()


@pytest.mark.parametrize("budget", [1, 7, 12, 40, 63, 100, 333])
def test_budgets_are_spent_and_kept(budget: int) -> None:
    post = fit(budget=budget, max_components=5)
    assert post.history[-1].cost <= budget
    assert post.history[-1].cost >= budget - 5
    assert np.isfinite(post.log_evidence)


def test_same_seed_same_bits(post: mf.Posterior) -> None:
    state = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    again = fit()
    assert again.log_evidence == post.log_evidence
    np.testing.assert_array_equal(again.pair_weights, post.pair_weights)
    assert fit(seed=4).log_evidence != post.log_evidence
    np.testing.assert_array_equal(np.random.get_state(legacy=False)["state"]["key"], state)  # noqa: NPY002


@pytest.mark.parametrize("acquisition", ["information", "uncertainty"])
def test_acquisitions_take_turns_with_draws(acquisition: str) -> None:
    post = fit(acquisition=acquisition)
    assert post.history[-1].cost == 150
    assert np.isfinite(post.log_evidence)
    assert len(post.log_likelihoods) == len(post.mixtures)


def test_a_measure_with_few_effective_draws_is_refitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as half of the draws are left; those made before no longer count for the evidence, but train."""
    refits = []
    for share in (0.0, 1.1):  # no draws are few, any are
        monkeypatch.setattr("maskerade_fast.run.adaptive_run._FEW_SHARE", share)
        post = fit(budget=400)
        costs = np.array([row.cost for row in post.history[:-1]])
        assert costs[-1] == 400
        refits.append(costs[1:-1][np.diff(costs[:-1]) < 10])  # a draw costs one, and replicates but the last are of ten
    assert len(refits[0]) == 0
    assert len(refits[1]) > 0
    assert refits[1].max() < 400 - 50


def test_few_effective_draws_raise_the_sd() -> None:
    """Where hardly a draw counts, the distance to Laplace's estimate does."""
    from maskerade_fast.adaptive.control_variate import ControlledEstimate
    from maskerade_fast.run.adaptive_run import with_doubt

    blank = ControlledEstimate.__new__(ControlledEstimate)
    for name in ControlledEstimate.__dataclass_fields__:
        object.__setattr__(blank, name, None)
    estimate = replace(blank, log_evidence=2.0, log_evidence_sd=1.0, effective_sample_size=5.0)
    assert with_doubt(estimate, -10.0).log_evidence_sd == pytest.approx(np.hypot(1.0, 6.0))
    assert with_doubt(replace(estimate, effective_sample_size=10.0), -10.0).log_evidence_sd == 1.0
    assert with_doubt(estimate, -np.inf) is estimate


def test_callback_ends_the_run() -> None:
    for rows in (1, 2, 4):
        seen: list[mf.HistoryRow] = []

        def stop(row: Any, seen: list[Any] = seen, rows: int = rows) -> bool:
            seen.append(row)
            return len(seen) == rows

        post = fit(callback=stop)
        assert len(seen) == rows
        assert np.isfinite(post.log_evidence)
        assert rows > 2 or any("before the measure was settled" in warning for warning in post.warnings)


def test_a_time_budget_holds_where_likelihoods_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first draws tell how slow: a hundred of them at once would take twelve seconds."""
    import time

    from maskerade_fast.adaptive.counted_posterior import GRADIENT_COST
    from maskerade_fast.quadrature import problem

    likelihood = mf.log_likelihood

    def slow(g: mf.GMMBatch, *args: Any, **options: Any) -> Any:
        time.sleep(0.12 * len(g) * (GRADIENT_COST if options.get("grad") else 1))
        return likelihood(g, *args, **options)

    monkeypatch.setattr(problem, "log_likelihood", slow)
    start = time.perf_counter()
    limited = fit(budget=None, time_budget=3.0)
    assert time.perf_counter() - start < 5.0
    assert 10 <= limited.history[-1].cost <= 40
    first = limited.history[0]
    assert first.cost <= 4


def test_a_batch_is_as_large_as_the_time_left() -> None:
    """One draw that took 22 s lets no twenty follow at once within a minute."""
    limits = Limits.checked(None, 60.0, 100, 20)
    assert limits.in_time(20, 22.0, (1, 22.0)) == 1
    assert limits.in_time(20, 10.0, (1, 10.0)) == 5
    assert limits.in_time(20, 10.0, (20, 50.0)) == 20
    assert Limits.checked(500, None, 100, 20).in_time(20, 1e9, (1, 22.0)) == 20


def test_predictions(post: mf.Posterior, tmp_path: Any) -> None:
    """Close to the truth between the data, the joint density consistent with the pointwise one, saved and read."""
    x = waves()[0]
    new = (x[:-1] + x[1:]) / 2
    truth = np.sin(2 * np.pi * 3 * new) + 0.1 * np.cos(40 * new)
    assert np.sqrt(np.mean((post.predict(new).mean - truth) ** 2)) < 0.15
    one = post.joint_log_density(new[:1], truth[:1])
    assert one == pytest.approx(float(post.predict(new[:1]).log_density(truth[:1])[0]), abs=1e-8)
    post.save(tmp_path / "post.npz")
    again = mf.load(tmp_path / "post.npz")
    assert again.joint_log_density(new, truth) == post.joint_log_density(new, truth)


def test_joint_density_in_pieces(post: mf.Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary mixture is summed a few covariances at a time; the pieces do not change it."""
    import dataclasses

    own = np.diag(np.diag(post.pair_weights))
    plain = dataclasses.replace(post, pair_weights=own / own.trace(), factor=np.sqrt(own / own.trace()))
    x = np.linspace(0.1, 0.9, 9)
    whole = plain.joint_log_density(x, np.sin(2 * np.pi * 3 * x))
    monkeypatch.setattr("maskerade_fast.posterior.posterior._JOINT_BYTES", 1)
    assert plain.joint_log_density(x, np.sin(2 * np.pi * 3 * x)) == pytest.approx(whole, abs=1e-10)


def test_few_effective_draws_are_reported() -> None:
    x = np.linspace(0.0, 1.0, 200)
    y = np.sin(40 * x) * np.cos(7 * x) + 0.5 * np.sin(90 * x)
    post = mf.marginalise(x, y, budget=60, max_components=3, seed=0, noise_variance=1e-6, device="cpu")
    assert any("effective draws" in warning for warning in post.warnings)


def test_evidence_of_many_components_is_that_of_draws_from_the_prior() -> None:
    """So much noise that these are a good yardstick; taking some orders of seven and more gave three nats too many."""
    x, y = waves(20)
    settings: dict[str, Any] = {"max_components": 8, "noise_variance": 0.2, "nodes": 512}
    post = mf.marginalise(x, y, budget=600, seed=3, device="cpu", **settings)
    data = mf.RegressionData(x, y, "linear")
    units = mf.Standardiser.from_data(data)
    prior = mf.Prior.from_data(x, max_components=8).with_noise_variance(units.variance_to_unit(0.2))
    problem = Problem.of(units.to_unit(data), prior)
    draws = mf.PriorMeasure(prior).random_draws(20_000, 1)
    values = problem.log_likelihoods(draws.mixtures)
    f = np.exp(values - values.max())
    expected = values.max() + np.log(f.mean()) + units.log_density_shift(len(x))
    error = f.std() / f.mean() / np.sqrt(len(f))
    assert abs(post.log_evidence - expected) < 3.0 * np.hypot(post.log_evidence_sd, error)
    beyond = post.component_probabilities[6:].sum()
    assert abs(beyond - f[draws.latent.sizes > 6].sum() / f.sum()) < 0.1
    assert any("7 components or more were drawn from the prior alone" in line for line in post.warnings)


@pytest.mark.parametrize("n_dims", [1, 2])
def test_large_mixtures_alone(n_dims: int) -> None:
    x, y = waves()
    X = np.stack([x, x**2], axis=1)[:, :n_dims]
    prior = mf.Prior.from_data(X, max_components=8)
    prior = replace(prior, size_probabilities=np.array([0.0] * 7 + [1.0]))
    post = mf.marginalise(X, y, prior=prior, budget=60, nodes=64, seed=0, device="cpu")
    assert post.component_probabilities[7] == pytest.approx(1.0)
    assert np.isfinite(post.log_evidence)
    assert any("8 components or more" in line for line in post.warnings)


def test_scale_and_shift_equivariance() -> None:
    x, y = waves()
    plain, moved = fit(), mf.marginalise(7.0 + 3.0 * x, -2.0 + 5.0 * y, **QUICK)
    assert moved.log_evidence == pytest.approx(plain.log_evidence - len(y) * np.log(5.0), abs=1e-6)
    np.testing.assert_allclose(moved.predict(7.0 + 3.0 * x).mean, -2.0 + 5.0 * plain.predict(x).mean, rtol=1e-6)


def test_a_long_time_budget_plans_no_more_than_memory_holds() -> None:
    """Twenty hours for thirty rows: draws grew with the time until memory refused them."""
    rng = np.random.default_rng(0)
    rows: list[int] = []

    def stop(row: Any) -> bool:
        rows.append(row.evaluations)
        return len(rows) > 3

    x = np.linspace(0.0, 1.0, 30)
    post = mf.marginalise(
        x, rng.normal(size=30), budget=None, time_budget=1e12, callback=stop, max_components=1, seed=0
    )
    assert post.history[-1].evaluations < 60_000
