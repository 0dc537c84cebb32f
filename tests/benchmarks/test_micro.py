"""bench/micro: tables of ratios, shares of floors, slopes, and scripts at sizes that mean nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def record(group: str, N: int, who: str, median: float) -> dict[str, Any]:
    stats = {"median": median, "rounds": 3}
    return {"group": group, "name": f"test_{who}", "params": {"N": N}, "stats": stats, "extra_info": {"who": who}}


def test_ratios(bench: Any) -> None:
    ratios = bench("micro.ratios")
    records = [record("Gram", 144, "NumPy", 0.5), record("Gram", 144, "ours", 0.01), record("matvec", 9, "NumPy", 2.0)]
    rows = ratios.rows_of({"benchmarks": records})
    assert [(r["who"], r["ratio"]) for r in rows] == [("ours", None), ("NumPy", 50.0), ("NumPy", None)]
    assert ratios.table(rows).splitlines()[2:] == [
        "| Gram | N=144 | 10 ms | NumPy 500 ms, 50 x ours |",
        "| matvec | N=9 | – | NumPy 2 s |",
    ]


def test_benchmarks_run(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every benchmark is collected, and the rows of one have what a timing carries with it."""
    pytest.importorskip("pytest_benchmark")
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)  # workers of pytest-xdist benchmark nothing
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    collect = [*command, "--collect-only", "bench/micro"]
    done = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("::") > 60
    only = ["bench/micro/bench_prediction.py::test_joint[100-15]", f"--benchmark-json={tmp_path / 'out.json'}"]
    subprocess.run([*command, *only], cwd=ROOT, capture_output=True, check=True)
    rows = bench("micro.ratios").rows_of(json.loads((tmp_path / "out.json").read_text()))
    assert [(r["group"], r["who"]) for r in rows] == [("joint predictive density", "ours")]
    assert {"device", "threads", "dtype", "versions", "commit"} <= set(rows[0])


def test_floors(bench: Any) -> None:
    """A row has the shares, and says which targets are met."""
    floors = bench("micro.floors")
    a = np.ones((64, 64))
    operation = floors.Operation("product", "64", lambda: a @ a, "sqrt", lambda: 64 * floors.root(), {"least": 1e9})
    samples = floors.Samples(operation)
    samples.take()
    row = samples.row()
    assert row["share"] > 0.0
    assert row["met"] is False
    assert "≥ 100000000000% of the floor: missed" in floors.table([row])


def test_slopes(bench: Any) -> None:
    scaling = bench("micro.scaling")
    points = [{"size": n, "seconds": 1e-3 + 2e-9 * n**3, "megabytes": n / 4} for n in (10, 100, 1000, 2000, 4000)]
    assert scaling.slope(points, "seconds") == pytest.approx(3.0, abs=1e-3)
    assert scaling.slope(points, "megabytes") == pytest.approx(1.0)
    assert scaling.slope(points[:1], "seconds") is None


@pytest.mark.parametrize("limit", [60.0, 0.0])
def test_scaling(bench: Any, limit: float, tmp_path: Path) -> None:
    """The smallest sizes of three curves, and a curve whose time is up after the first."""
    pytest.importorskip("matplotlib")
    scaling = bench("micro.scaling")
    chosen = [scaling.CURVES[k] for k in ((2, 5, 13) if limit else (0,))]
    curves = [scaling.measured(c._replace(sizes=c.sizes[:2]), limit) for c in chosen]
    assert all(c["points"] if limit else len(c["points"]) == 1 for c in curves)
    content = {"device": "a machine", "threads": 2, "curves": curves}
    assert len(scaling.table(content).splitlines()) == 2 + len(curves)
    scaling.plot(content, tmp_path / "chart.svg")
    assert "<svg" in (tmp_path / "chart.svg").read_text()


def test_where_time_goes(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script, out = bench("micro.where_time_goes"), tmp_path / "profile.json"
    monkeypatch.setattr(sys, "argv", ["", "--budget", "30", "--out", str(out)])
    script.main()
    (row,) = json.loads(out.read_text())["rows"]
    assert row["set"] == "airline"
    assert 0.0 <= row["rest"] < 1.0
    assert any(kernel["calls"] > 0 for kernel in row["kernels"].values())


def test_same_bits(bench: Any, tmp_path: Path) -> None:
    """Arrays that differ in one bit are named, and those on one side only."""
    one: dict[str, Any] = {"a": np.array([1.0, np.nan]), "b": np.ones(2), "c": np.array(["x"])}
    np.savez(tmp_path / "one.npz", **one)
    np.savez(tmp_path / "two.npz", **(one | {"b": np.nextafter(one["b"], 2.0), "d": np.ones(1)}))
    assert bench("micro.same_bits").differences(tmp_path / "one.npz", tmp_path / "two.npz") == ["b", "d"]
