"""bench/studies: yardsticks meet a reference evidence, scripts run on tiny inputs, rows outlast an interruption."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.adaptive.counted_posterior import CountedPosterior
from maskerade_fast.model.data import RegressionData
from maskerade_fast.quadrature.problem import Problem


@pytest.fixture
def run(bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the main function of a script with arguments and return what it prints."""

    def output(name: str, *arguments: Any) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        monkeypatch.setattr(mf, "warm_up", lambda: None)
        bench(f"studies.{name}").main()
        return capsys.readouterr().out

    return output


def target_of(bench: Any, name: str) -> tuple[CountedPosterior, float]:
    (problem,) = bench("studies.evidence").problems([name])
    return CountedPosterior(Problem.of(RegressionData(problem.x, problem.y), problem.prior)), problem.log_evidence


@pytest.mark.parametrize(
    ("method", "size"), [("prior_monte_carlo", 1024), ("tempered_smc", 256), ("nested_sampling", 50)]
)
@pytest.mark.filterwarnings("ignore")  # dynesty's
def test_yardsticks(bench: Any, method: str, size: int) -> None:
    """Evidence within four standard errors; cost and weights as they should be."""
    if method == "nested_sampling":
        pytest.importorskip("dynesty")
    target, log_evidence = target_of(bench, "two_tones_12")
    estimate = getattr(bench("studies.yardsticks"), method)(target, size, np.random.default_rng(0))
    assert estimate.log_evidence_sd < 0.15
    assert abs(estimate.log_evidence - log_evidence) < 4.0 * estimate.log_evidence_sd
    np.testing.assert_allclose(estimate.weights.sum(), 1.0)
    assert estimate.cost == target.cost == target.evaluations


def test_best_kernels(bench: Any) -> None:
    """The likelihood is highest without the prior, the posterior with it; the evidence is Laplace's."""
    target, log_evidence = target_of(bench, "smooth_25")
    map_kernel = bench("studies.yardsticks").map_kernel
    with_prior = map_kernel(target, np.random.default_rng(0))
    assert abs(with_prior.log_evidence - log_evidence) < 0.5
    alone = map_kernel(target, np.random.default_rng(0), likelihood_only=True, sizes=[2])
    assert np.isnan(alone.log_evidence)
    X, y = target.data.X, target.data.y
    best, regularised = (mf.log_likelihood(run.mixtures, X, y).value[0] for run in (alone, with_prior))
    assert best > regularised + 0.5


def test_evidence(bench: Any, run: Callable[..., str], tmp_path: Path) -> None:
    """Rows, their table with the cost at equal error, and the chart of budgets."""
    pytest.importorskip("matplotlib")
    out, chart = tmp_path / "out.json", tmp_path / "chart.svg"
    table = run("evidence", "--methods", "smc/16", "--seeds", "1", "--out", out, "two_tones_12")
    assert table.splitlines()[2].startswith("| two_tones_12 | smc/16 | 1 |")
    budgets = ["--methods", "default", "--budgets", "30", "40", "--seeds", "2", "--chart", chart]
    run("evidence", *budgets, "--out", out, "two_tones_12")
    assert "<svg" in chart.read_text()
    assert len(json.loads(out.read_text())["rows"]) == 5
    rows = [
        {"problem": "p", "method": method, "seed": seed, "error": sign * error, "sd": 0.1, "cost": cost, "seconds": 1.0}
        for method, error, cost in [("default", 0.1, 600), ("smc/64", 0.4, 1000), ("smc/256", 0.2, 4000)]
        for seed, sign in enumerate((-1.0, 1.0))
    ]
    assert "16,000 = 26.7x*" in bench("studies.evidence").table(rows)


def test_unseen_problems_are_those_of_the_generator(bench: Any) -> None:
    kept = json.loads(bench("studies.evidence").UNSEEN.read_text())["problems"]
    assert len(kept) >= 6
    for problem in kept:
        again = bench("studies.unseen").generate(int(problem["name"].rpartition("_")[2]))
        np.testing.assert_allclose(again["y"], problem["y"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("what", ["grid", "trend"])
def test_accuracy(run: Callable[..., str], what: str) -> None:
    if what == "trend":
        pytest.importorskip("mpmath")
    assert len(run("accuracy", what, 12).splitlines()) == {"grid": 2 + 9, "trend": 2 + 18}[what]


# ---- the paper's tables ----


def test_splits(bench: Any) -> None:
    data = bench("studies.paper.data")
    table = np.column_stack([np.arange(391.0), np.arange(391.0) ** 2])
    for made in (data.random_tenth(table, 3), data.last_tenth(table), data.fold(table, 7), data.withheld_runs(table)):
        rows = np.concatenate([made.X[:, 0], made.X_new[:, 0]])
        assert sorted(rows) == list(range(391))  # every row once
        assert (made.y_new == made.X_new[:, 0] ** 2).all()
    assert data.last_tenth(table, 100).X[:, 0].tolist() == list(range(251, 351))
    folds = [data.fold(table, number).X_new[:, 0] for number in range(5)]
    assert sorted(np.concatenate(folds)) == list(range(391))
    split, kernel = data.from_five_components()
    assert split.X.shape == (100, 1)
    assert [len(part) for part in kernel] == [5, 5, 5]


def test_rows_outlast_an_interruption(bench: Any, tmp_path: Path) -> None:
    """With --resume what is there is not measured again, unless a smaller cap than now has limited it."""
    harness, path = bench("studies.paper.harness"), tmp_path / "series-default.jsonl"
    calls: list[int] = []

    def work(number: int) -> Callable[[float], dict[str, Any]]:
        def measured(cap: float) -> dict[str, Any]:
            calls.append(number)
            if number == 2:
                raise np.linalg.LinAlgError("singular")
            if number == 3 and len(calls) == 4:
                raise KeyboardInterrupt
            return {"rmse": np.float64(number), "warnings": ()}

        return measured

    def run_of(number: int, cap: float) -> Any:
        return harness.Run("airline", "ours", number, {"budget": 5}, work(number), cap)

    runs = [run_of(number, 60.0) for number in range(4)]
    with pytest.raises(KeyboardInterrupt):
        harness.run_all(runs, path, say=lambda _: None)
    with path.open("a") as file:
        file.write('{"set": "airline", "meth')  # a write that was cut off
    rows = harness.run_all(runs, path, resume=True, say=lambda _: None)
    assert calls == [0, 1, 2, 3, 3]
    assert [row["number"] for row in rows] == [0, 1, 2, 3]
    assert rows[2]["failed"] == "LinAlgError: singular"
    assert {"commit", "versions", "device", "date", "load", "total_seconds", "settings", "cap"} <= set(rows[0])
    harness.run_all([run_of(0, 99.0), run_of(2, 99.0)], path, resume=True, say=lambda _: None)
    assert calls == [0, 1, 2, 3, 3, 2]


def test_caps_and_absent_data(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness, data = bench("studies.paper.harness"), bench("studies.paper.data")
    monkeypatch.setattr(harness, "_GRACE_SECONDS", 0.0)
    lines: list[str] = []

    def slow(cap: float) -> dict[str, Any]:
        for _ in range(1000):
            time.sleep(0.01)
        return {}

    def absent(cap: float) -> dict[str, Any]:
        data.load("no_such_set", tmp_path)
        return {}

    runs = [harness.Run("airline", "ours", k, {}, work, 0.05) for k, work in enumerate((slow, absent, absent))]
    rows = harness.run_all(runs, tmp_path / "rows.jsonl", say=lines.append)
    assert [row["failed"] for row in rows] == ["cut off after 0 s"]
    assert lines[1:] == [f"skipped no_such_set: no file {tmp_path / 'no_such_set.csv'}"]


def test_paired_tests(bench: Any) -> None:
    """On the splits that both have; a mean with as many digits as its sd has."""
    summaries = bench("studies.paper.summaries")
    a = [{"number": k, "rmse": 1.0 + 0.1 * k} for k in range(8)]
    b = [{"number": k, "rmse": 1.5 + 0.11 * k} for k in range(1, 9)] + [{"number": 0, "failed": "cut off"}]
    difference, won, p = summaries.test(a, b, "rmse", -1.0)
    assert (difference, won) == ("-0.5400 ± 0.0082", "7 of 7")
    assert float(p) == pytest.approx(2 / 2**7, rel=0.05)
    assert summaries.spread(np.array([120.0, 140.0])) == "130 ± 14"
    assert summaries.runs([{}, {"failed": "x"}], 3) == "1 of 3 (1 failed)"


def test_the_pages_have_the_results(bench: Any) -> None:
    page = bench("studies.paper.page")
    assert page.write() == 0, "run python -m bench.studies.paper page --save"
    assert "old" not in page.filled("<!-- begin solar -->\nold\n<!-- end solar -->\n")


def test_peers(bench: Any) -> None:
    """Those that are installed forecast airline better than the season before does, and that better than the last."""
    peers, data, recipes = (bench(f"studies.paper.{name}") for name in ("peers", "data", "recipes"))
    split = data.last_tenth(data.load("airline", None))
    naive, seasonal = (recipes.score(split, peers.season_before(split, season))["rmse"] for season in (None, 12))
    assert seasonal < naive
    assert peers.strongest_period(np.sin(2 * np.pi * np.arange(120) / 12)) == pytest.approx(12.0)
    for name, module in (("ETS", "statsmodels"), ("SARIMAX", "statsmodels"), ("scikit-learn GP", "sklearn")):
        if importlib.util.find_spec(module) is not None:
            assert recipes.score(split, peers.PEERS[name](split, 12))["rmse"] < seasonal


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_quick(bench: Any, mode: str, tmp_path: Path) -> None:
    """Every table that has a run on the airline series, at settings that mean nothing."""
    runs, harness, summaries = (bench(f"studies.paper.{name}") for name in ("runs", "harness", "summaries"))
    more = mode == "default"
    counts = {"series": 1 + more, "last": 1, "ablation": 4, "nodes": 1, "forecasts": 1 + more}
    for name, count in counts.items() if more else [("series", 1)]:
        methods = ("ours", "season before") if name == "forecasts" else ()
        options = runs.Options(mode, None, range(1), methods=methods, cap=20.0, budget=30, quick=True)
        rows = harness.run_all(runs.TABLES[name].runs(options), tmp_path / f"{name}.jsonl", say=lambda _: None)
        assert len(rows) == count
        assert not [row["failed"] for row in rows if "failed" in row]
        assert "airline" in summaries.markdown(name, {mode: rows}) or name == "nodes"


def test_command(bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Absent data are skipped with a line, and what there is is shown."""
    command = bench("studies.paper.__main__").main
    assert command(["solar", "--data-dir", str(tmp_path), "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("skipped solar_lean2000: no file")
    assert shown.out.strip() == "No runs yet."
