"""The paper's tables by command: splits, rows that outlast an interruption, caps, tests and pages."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "bench").is_dir(), reason="benchmarks are part of the source tree only")


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import of a module of bench/paper, a package of the folder bench, which is none."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    before = set(sys.modules)
    yield lambda name: importlib.import_module(f"paper.{name}")
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "bench")):
            del sys.modules[name]


def run_of(paper: Any, number: int, work: Any, cap: float = 60.0) -> Any:
    return paper("harness").Run("airline", "ours", number, {"budget": 5}, work, cap)


def test_splits(paper: Any) -> None:
    data = paper("data")
    table = np.column_stack([np.arange(391.0), np.arange(391.0) ** 2])
    for made in (data.random_tenth(table, 3), data.last_tenth(table), data.fold(table, 7), data.withheld_runs(table)):
        rows = np.concatenate([made.X[:, 0], made.X_new[:, 0]])
        assert sorted(rows) == list(range(391))  # every row once
        assert (made.y == made.X[:, 0] ** 2).all()
        assert (made.y_new == made.X_new[:, 0] ** 2).all()
    assert len(data.random_tenth(table, 0).y_new) == 40
    assert data.last_tenth(table, 100).X[:, 0].tolist() == list(range(251, 351))
    folds = [data.fold(table, number).X_new[:, 0] for number in range(5)]
    assert sorted(np.concatenate(folds)) == list(range(391))
    assert not np.array_equal(data.fold(table, 5).X_new, data.fold(table, 0).X_new)
    withheld = data.withheld_runs(table).X_new[:, 0]
    assert len(withheld) == 100
    assert (np.diff(withheld) != 1.0).sum() == 4
    with pytest.raises(ValueError, match="144 rows"):
        data.withheld_runs(table[:144])


def test_data_from_a_kernel(paper: Any) -> None:
    split, (weights, means, scales) = paper("data").from_five_components()
    assert split.X.shape == (100, 1)
    assert split.X_new.shape == (50, 1)
    assert len(weights) == len(means) == len(scales) == 5
    again = paper("data").from_five_components()[0]
    assert (again.y == split.y).all()


def test_rows_outlast_an_interruption(paper: Any, tmp_path: Path) -> None:
    harness, path = paper("harness"), tmp_path / "series-default.jsonl"
    counted: list[int] = []

    def work(number: int) -> Callable[[float], dict[str, Any]]:
        def measured(cap: float) -> dict[str, Any]:
            counted.append(number)
            if number == 2:
                raise np.linalg.LinAlgError("singular")
            if number == 3 and len(counted) == 4:
                raise KeyboardInterrupt
            return {"rmse": np.float64(number) + len(counted), "warnings": (), "cap_given": cap}

        return measured

    runs = [run_of(paper, number, work(number)) for number in range(4)]
    with pytest.raises(KeyboardInterrupt):
        harness.run_all(runs, path, say=lambda _: None)
    with path.open("a") as file:
        file.write('{"set": "airline", "meth')  # a write that was cut off
    rows = harness.run_all(runs, path, resume=True, say=lambda _: None)
    assert counted == [0, 1, 2, 3, 3]
    assert [row["number"] for row in rows] == [0, 1, 2, 3]
    assert rows[2]["failed"] == "LinAlgError: singular"
    assert rows[0]["cap_given"] == 60.0
    assert {"commit", "versions", "device", "date", "load", "total_seconds", "settings", "cap"} <= set(rows[0])
    harness.run_all(runs, path, resume=True, retry_failed=True, say=lambda _: None)
    assert counted == [0, 1, 2, 3, 3, 2]
    harness.run_all([run_of(paper, 2, work(2), cap=99.0)], path, resume=True, say=lambda _: None)  # no longer limited
    assert counted == [0, 1, 2, 3, 3, 2, 2]
    harness.run_all([run_of(paper, 0, work(0), cap=99.0)], path, resume=True, say=lambda _: None)  # was not limited
    assert counted == [0, 1, 2, 3, 3, 2, 2]
    rows = harness.run_all(runs[:1], path, say=lambda _: None)  # without resume: the new row counts
    assert rows[0]["rmse"] == 8.0
    assert len(rows) == 4


def test_caps_and_absent_data(paper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness, data = paper("harness"), paper("data")
    monkeypatch.setattr(harness, "_GRACE_SECONDS", 0.0)
    said: list[str] = []

    def slow(cap: float) -> dict[str, Any]:
        for _ in range(1000):
            time.sleep(0.01)
        return {}

    def absent(cap: float) -> dict[str, Any]:
        data.load("no_such_set", tmp_path)
        return {}

    runs = [run_of(paper, 0, slow, cap=0.05), run_of(paper, 1, absent), run_of(paper, 2, absent)]
    rows = harness.run_all(runs, tmp_path / "rows.jsonl", say=said.append)
    assert [row["failed"] for row in rows] == ["cut off after 0 s"]
    assert said[1:] == [f"skipped no_such_set: no file {tmp_path / 'no_such_set.csv'}"]
    with pytest.raises(data.Absent, match="give --data-dir or set MASKERADE_DATA"):
        data.load("yacht", None)


def test_paired_tests(paper: Any) -> None:
    """Against scipy, on the splits that both have; a mean with as many digits as its sd has."""
    summaries = paper("summaries")
    a = [{"number": k, "rmse": 1.0 + 0.1 * k} for k in range(8)]
    b = [{"number": k, "rmse": 1.5 + 0.11 * k} for k in range(1, 9)] + [{"number": 0, "failed": "cut off"}]
    difference, won, p = summaries.test(a, b, "rmse", -1.0)
    assert difference == "-0.5400 ± 0.0082"
    assert won == "7 of 7"
    assert float(p) == pytest.approx(2 / 2**7, rel=0.05)
    assert summaries.test(a[:2], b, "rmse", -1.0) is None
    assert summaries.spread(np.array([1.0, 1.2, 1.1])) == "1.10 ± 0.10"
    assert summaries.spread(np.array([120.0, 140.0])) == "130 ± 14"
    assert summaries.spread(np.array([0.01234])) == "0.0123"
    assert summaries.runs([{}, {"failed": "x"}], 3) == "1 of 3 (1 failed)"


def test_pages(paper: Any, tmp_path: Path) -> None:
    """Tables between their marks, what was not run said; and those in the tree are up to date."""
    page, path = paper("page"), tmp_path / "solar-default.jsonl"
    row = {
        "set": "solar_lean2000",
        "method": "ours",
        "number": 0,
        "settings": {"budget": 9},
        "rmse": 0.123,
        "cap": 60.0,
    }
    row |= {"device": "a machine", "threads": 2, "commit": "abc", "date": "2026-01-01", "seconds": 3.0, "load": 9.0}
    path.write_text(json.dumps(row) + "\n")
    text = "# Title\n<!-- begin solar -->\nold\n<!-- end solar -->\nby hand\n"
    filled = page.filled(text, tmp_path)
    assert "| solar irradiance | ours | 1 of 10 | 0.123 |" in filled
    assert "3* |" in filled  # seconds on a busy machine
    assert "Commit abc, 2026-01-01, a machine" in filled
    assert "Not run: the paper's recipe, all of it." in filled
    assert "old" not in filled
    assert filled.endswith("by hand\n")
    assert page.filled(filled, tmp_path) == filled
    with pytest.raises(ValueError, match="nonsense"):
        page.filled("<!-- begin nonsense -->\n<!-- end nonsense -->", tmp_path)


def test_the_pages_have_the_results() -> None:
    command = [sys.executable, str(ROOT / "bench" / "paper"), "page", "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run python bench/paper page"


def test_peers(paper: Any) -> None:
    """What needs no other library; and those that are installed forecast airline better than the last row does."""
    peers, data, recipes = paper("peers"), paper("data"), paper("recipes")
    split = data.last_tenth(data.load("airline", None))
    naive = recipes.score(split, peers.season_before(split, None))
    seasonal = recipes.score(split, peers.season_before(split, 12))
    assert seasonal["rmse"] < naive["rmse"]
    assert peers.season_before(split, 12).mean[12] == split.y[-12]
    assert peers.strongest_period(np.sin(2 * np.pi * np.arange(120) / 12)) == pytest.approx(12.0)
    for name, module in (("ETS", "statsmodels"), ("SARIMAX", "statsmodels"), ("scikit-learn GP", "sklearn")):
        if importlib.util.find_spec(module) is not None:
            assert recipes.score(split, peers.PEERS[name](split, 12))["rmse"] < seasonal["rmse"]


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_quick(paper: Any, mode: str, tmp_path: Path) -> None:
    """Every table that has a run on the airline series, at settings that mean nothing."""
    runs, harness, summaries = paper("runs"), paper("harness"), paper("summaries")
    wanted = {"series": 1 + (mode == "default"), "ablation": 4, "nodes": 1, "forecasts": 2 if mode == "default" else 1}
    for name, count in wanted.items():
        methods = ("ours", "season before") if name == "forecasts" else ()
        given = runs.Options(mode, None, (), None, cap=20.0, budget=30, quick=True, methods=methods)
        rows = harness.run_all(runs.TABLES[name].runs(given), tmp_path / f"{name}.jsonl", say=lambda _: None)
        assert len(rows) == count
        assert not [row["failed"] for row in rows if "failed" in row]
        assert "airline" in summaries.markdown(name, {mode: rows}) or name == "nodes"


def test_command(tmp_path: Path) -> None:
    """Absent data are skipped with a line, and what there is is shown."""
    command = [sys.executable, str(ROOT / "bench" / "paper"), "solar", "--data-dir", str(tmp_path)]
    run = subprocess.run([*command, "--results", str(tmp_path)], capture_output=True, text=True, check=True)
    assert run.stderr.startswith("skipped solar_lean2000: no file")
    assert run.stdout.strip() == "No runs yet."
