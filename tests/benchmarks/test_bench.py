"""The benchmarks' own code: tables of ratios, slopes, and every peer that needs no other library."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "bench").is_dir(), reason="benchmarks are part of the source tree only")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import of a module of bench/, which is no package."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "bench")):
            del sys.modules[name]


def record(group: str, N: int, who: str, median: float) -> dict[str, Any]:
    info = {"who": who, "device": "a machine, 2 cores", "threads": 2, "commit": "0"}
    stats = {"median": median, "rounds": 3}
    return {"group": group, "name": f"test_{who}", "params": {"N": N}, "stats": stats, "extra_info": info}


def test_ratios(bench: Any, tmp_path: Path) -> None:
    given = [
        record("Gram", 144, "NumPy", 0.5),
        record("Gram", 144, "ours", 0.01),
        record("Gram", 144, "floor: exp", 0.006),
        record("matvec", 9, "NumPy", 2.0),
    ]
    path = tmp_path / "out.json"
    path.write_text(json.dumps({"benchmarks": given}))
    ratios = bench("ratios")
    rows = ratios.rows_of(json.loads(path.read_text()))
    assert [(r["who"], r["ratio"]) for r in rows] == [
        ("ours", None),
        ("NumPy", 50.0),
        ("floor: exp", pytest.approx(0.6)),
        ("NumPy", None),  # nothing of ours to compare with
    ]
    assert ratios.table(rows).splitlines() == [
        "Gram",
        "  N=144  ours            10 ms",
        "  N=144  NumPy          500 ms  50 x ours",
        "  N=144  floor: exp       6 ms  60 % of ours",
        "",
        "matvec",
        "  N=9    NumPy             2 s",
    ]
    assert "| Gram | N=144 | 10 ms | NumPy 500 ms, 50 x ours; floor: exp 6 ms, 60 % of ours |" in ratios.markdown(rows)
    command = [sys.executable, str(ROOT / "bench" / "ratios.py"), str(path), "--json"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == rows


def test_what_pytest_benchmark_writes(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    (tmp_path / "bench_sums.py").write_text("def test_sum(benchmark):\n    assert benchmark(sum, [1, 2]) == 3\n")
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)  # workers of pytest-xdist benchmark nothing
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-json=out.json"]
    subprocess.run([*command, "bench_sums.py"], cwd=tmp_path, capture_output=True, check=True)
    rows = bench("ratios").rows_of(json.loads((tmp_path / "out.json").read_text()))
    assert [(r["group"], r["who"], r["ratio"]) for r in rows] == [("test_sum", "ours", None)]
    assert rows[0]["median_s"] > 0.0


def test_slopes(bench: Any) -> None:
    scaling = bench("scaling")
    points = [{"size": n, "seconds": 1e-3 + 2e-9 * n**3, "megabytes": n / 4} for n in (10, 100, 1000, 2000, 4000)]
    assert scaling.slope(points, "seconds") == pytest.approx(3.0, abs=1e-3)
    assert scaling.slope(points, "megabytes") == pytest.approx(1.0)
    assert scaling.slope(points[:1], "seconds") is None


@pytest.mark.parametrize("limit", [60.0, 0.0])
def test_scaling(bench: Any, limit: float, tmp_path: Path) -> None:
    """The smallest sizes of three curves, and a curve whose time is up after the first."""
    pytest.importorskip("matplotlib")
    scaling = bench("scaling")
    curves = [
        scaling.measured(c._replace(sizes=c.sizes[:2]), limit)
        for c in (scaling.CURVES[k] for k in ((2, 5, 13) if limit else (0,)))
    ]
    assert [len(c["points"]) for c in curves] == [1] if not limit else all(c["points"] for c in curves)
    content = {"device": "a machine", "threads": 2, "curves": curves}
    assert len(scaling.table(content).splitlines()) == 2 + len(curves)
    scaling.plot(content, tmp_path / "chart.svg")
    assert "energy distances" in (tmp_path / "chart.svg").read_text() or not limit


def test_peers(bench: Any) -> None:
    """What runs without other libraries agrees with the package; the rest is checked where it is timed."""
    peers, problems = bench("peers"), bench("problems")
    g, X, y = problems.regression(20, 3, 2, 2)
    ours = mf.log_likelihood(g, X, y, problems.NOISE).value
    np.testing.assert_allclose(peers.scipy_loop(g, X, y)(), ours, rtol=1e-10)
    for size in problems.GRIDS[:1]:
        X = problems.series(*size)[1]
        assert (np.diff(X) == 1.0).all()
