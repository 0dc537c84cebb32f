"""bench/baselines.py: the yardsticks reproduce known evidence, count what they ask, and say how sure they are."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.adaptive.counted_posterior import CountedPosterior
from maskerade_fast.model.data import RegressionData
from maskerade_fast.quadrature.problem import Problem

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
pytestmark = pytest.mark.skipif(not BENCH.is_dir(), reason="benchmarks are part of the source tree only")
FIXTURES = {f["name"]: f for f in json.loads((ROOT / "tests" / "golden" / "evidence.json").read_text())}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    import baselines

    return baselines


def problem(name: str, **settings) -> tuple[CountedPosterior, dict]:
    known = FIXTURES[name]
    x, y = np.array(known["X"]), np.array(known["y"])
    prior = mf.Prior.paper(x, max_components=known["max_components"], noise_variance=known["noise_variance"])
    return CountedPosterior(Problem.of(RegressionData(x, y), prior)), known


def check(found, known: dict, target: CountedPosterior) -> None:
    """Evidence within four standard errors, of the whole and of each size; cost and weights as they should be."""
    assert abs(found.log_evidence - known["log_evidence"]) < 4.0 * found.log_evidence_sd
    by_size, p = np.array(known["log_evidence_by_size"]), target.prior.size_probabilities
    truth = np.exp(by_size - by_size.max())
    sizes = found.mixtures.n_components
    shares = np.array([found.weights[sizes == n].sum() for n in range(1, len(p) + 1)])
    np.testing.assert_allclose(shares, truth / truth.sum(), atol=4.0 * found.log_evidence_sd)
    np.testing.assert_allclose(found.weights.sum(), 1.0)
    assert found.cost == target.cost == target.evaluations
    assert found.seconds > 0.0


@pytest.mark.parametrize(("name", "draws"), [("two_tones_12", 1024), ("two_tones_40", 8192)])
def test_prior_monte_carlo(bench, name, draws):
    target, known = problem(name)
    found = bench.prior_monte_carlo(target, draws, np.random.default_rng(0))
    assert found.cost == 3 * draws
    assert found.log_evidence_sd < 0.02
    check(found, known, target)


@pytest.mark.parametrize(("name", "particles"), [("two_tones_12", 256), ("two_tones_40", 512), ("smooth_25", 512)])
@pytest.mark.parametrize("seed", [0, 1])
def test_tempered_smc(bench, name, particles, seed):
    target, known = problem(name)
    found = bench.tempered_smc(target, particles, np.random.default_rng(seed))
    assert found.log_evidence_sd < 0.15
    check(found, known, target)


def test_smc_is_the_same_in_every_run(bench):
    runs = [bench.tempered_smc(problem("smooth_25")[0], 64, np.random.default_rng(3)) for _ in range(2)]
    assert runs[0].log_evidence == runs[1].log_evidence
    np.testing.assert_array_equal(runs[0].mixtures.means, runs[1].mixtures.means)


@pytest.mark.slow  # 5 s on a busy machine
def test_smc_error_is_that_of_repeated_runs(bench):
    runs = [bench.tempered_smc(problem("smooth_25")[0], 64, np.random.default_rng(seed)) for seed in range(10)]
    spread = np.std([run.log_evidence for run in runs], ddof=1)
    assert 0.4 < np.median([run.log_evidence_sd for run in runs]) / spread < 2.5


def test_powers_rise_until_half_of_the_particles_count(bench):
    values = np.concatenate([np.random.default_rng(0).normal(0.0, 50.0, 100), [-np.inf] * 28])
    weights = np.exp(bench._rise(values, 1.0) * (values - values.max()))
    assert weights.sum() ** 2 / (weights @ weights) == pytest.approx(50.0, rel=1e-6)
    assert bench._rise(np.zeros(16), 0.3) == 0.3


def test_data_without_a_finite_likelihood_have_no_evidence(bench, monkeypatch):
    target, _ = problem("two_tones_12")
    monkeypatch.setattr(target, "values", lambda mixtures: np.full(len(mixtures), -math.inf))
    assert bench.tempered_smc(target, 16, np.random.default_rng(0)).log_evidence == -math.inf
    with pytest.raises(ValueError, match="finite likelihood"):
        bench.map_kernel(target, np.random.default_rng(0))


def test_best_kernels(bench):
    """The likelihood is highest without the prior, the posterior with it; the evidence is Laplace's."""
    target, known = problem("smooth_25")
    with_prior = bench.map_kernel(target, np.random.default_rng(0))
    assert with_prior.cost == target.cost > target.evaluations
    assert abs(with_prior.log_evidence - known["log_evidence"]) < 0.5
    alone = bench.map_kernel(target, np.random.default_rng(0), likelihood_only=True, sizes=[2])
    assert math.isnan(alone.log_evidence)
    assert alone.mixtures.n_components.tolist() == [2]
    X, y = target.data.X, target.data.y
    best, regularised = (mf.log_likelihood(run.mixtures, X, y).value[0] for run in (alone, with_prior))
    assert best > regularised + 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # dynesty's
def test_nested_sampling(bench):
    pytest.importorskip("dynesty")
    target, known = problem("two_tones_12")
    found = bench.nested_sampling(target, 50, np.random.default_rng(0))
    assert found.log_evidence_sd < 0.1
    check(found, known, target)


def test_cost_at_equal_error(bench):
    import evidence

    rows = [
        {"problem": "p", "method": method, "seed": seed, "error": sign * error, "sd": 0.1, "cost": cost, "seconds": 1.0}
        for method, error, cost in [("default", 0.1, 600), ("smc/64", 0.4, 1000), ("smc/256", 0.2, 4000)]
        for seed, sign in enumerate((-1.0, 1.0))
    ]
    summary = evidence.summaries(rows)["p"]
    cost, beyond = evidence.cost_at(0.1, [summary["smc/64"], summary["smc/256"]])
    assert cost == pytest.approx(16_000.0)
    assert beyond is True
    assert evidence.cost_at(0.3, [summary["smc/64"], summary["smc/256"]])[1] is False
    assert "16,000 = 26.7x*" in evidence.table(rows)


def test_unseen_problems_are_those_of_the_generator(bench):
    import unseen

    kept = json.loads(unseen.UNSEEN.read_text())["problems"]
    assert len(kept) >= 6
    for known in kept:
        again = unseen.generate(int(known["name"].rpartition("_")[2]))
        np.testing.assert_allclose(again["y"], known["y"], rtol=1e-12, atol=1e-12)
        assert known["standard_error"] <= unseen.WORST


def test_modules_of_the_benchmarks_load_no_optional_one(bench):
    assert "dynesty" not in sys.modules
