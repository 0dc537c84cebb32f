"""bench/gpu_check.py: its dry run, what it writes, and how it chooses the tests for a card."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "bench"
pytestmark = pytest.mark.skipif(not BENCH.is_dir(), reason="benchmarks are part of the source tree only")

H100 = {"MultiProcessorCount": 132, "ClockRate": 1_755_000, "MemoryClockRate": 2_343_750, "GlobalMemoryBusWidth": 5120}
FIGURES = ("ms", "seconds", "ratio", "share")  # words in the names of figures


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package bench/gpu can be imported, as `gpu`."""
    monkeypatch.syspath_prepend(str(BENCH))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "gpu"]:
        del sys.modules[name]


def figures(value: Any, name: str = "", inside: bool = False) -> Iterator[tuple[str, Any]]:
    """Names and values of everything under a name that speaks of time, a ratio or a share."""
    inside = inside or any(part in name.split("_") for part in FIGURES)
    if isinstance(value, dict):
        for key, other in value.items():
            yield from figures(other, key, inside)
    elif isinstance(value, list):
        for other in value:
            yield from figures(other, name, inside)
    elif inside:
        yield name, value


@pytest.mark.slow
def test_dry_run(tmp_path: Path) -> None:
    """It walks all of the script, each answer is right, and nothing it leaves could pass for a figure of a card."""
    parts = ["smoke", "rows", "questions", "tests", "sanitizer", "end_to_end", "profile"]
    command = [sys.executable, str(BENCH / "gpu_check.py"), "--dry-run", "--out", str(tmp_path)]
    command += ["--only", ",".join(parts), "--seconds", "1500"]  # the emulator compiles, on machines that are not idle
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    run = subprocess.run(command, capture_output=True, text=True, timeout=1600, check=False, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dry-run.json", "dry-run.md"]
    content = json.loads((tmp_path / "dry-run.json").read_text())

    assert content["dry_run"] is True
    assert content["card"]["name"] == "emulator, no card"
    assert content["finished"] == "yes"
    assert content["failures"] == []
    assert content["parts"] == parts
    found = list(figures(content))
    assert len(found) > 100
    assert [pair for pair in found if pair[1] is not None] == []

    assert {word for row in content["rows"] for word in row["kernels"].split()} == {"K1", "K2", "K3", "K4", "K5"}
    for row in content["rows"]:
        assert row["within_tolerance"] is True
        assert row["error"] <= row["tolerance"]
        assert row["ours"]["kernels"]
        for peer in ("plain_cupy", "fused"):
            assert peer not in row or row[peer]["error"] <= 1e-9
    assert sum("plain_cupy" in row and "fused" in row for row in content["rows"]) >= 11
    ran = {name for row in content["rows"] for name in row["ours"]["kernels"]}
    assert {
        "likelihood_shared_f64",
        "likelihood_panel_f64",
        "panel_solve_f64",
        "pairwise_f64",
        "pair_moments_f64",
    } <= ran

    questions = content["questions"]
    assert set(questions) == {"mma_against_fma", "shuffle_against_shared", "fatbin", "potrf_batched", "library"}
    assert questions["library"]["5 products of 40x8x8"]["same_bits_beside_fewer"] is True
    for pair in questions["mma_against_fma"].values():
        assert pair["largest_relative_difference"] < 1e-12
    for way in ("shuffle", "memory"):
        assert questions["shuffle_against_shared"][way]["error"] < 1e-14
    assert all(size["failed_matrices"] == 0 for size in questions["potrf_batched"].values())
    assert content["smoke"]["driver"] == {"exit_status": 0, "run_seconds": None, "last_line": "every door ran"}
    assert content["tests"]["passed"] == content["tests"]["collected"] > 10
    runs = content["end_to_end"]
    assert set(runs) == {"cpu, 12 points", "gpu, 12 points"}
    assert runs["gpu, 12 points"]["log_evidence_difference"] < 1e-6
    assert runs["gpu, 12 points"]["warm"]["launches"] == sum(runs["gpu, 12 points"]["launches_by_kernel"].values()) > 0
    assert runs["cpu, 12 points"]["warm"]["launches"] == 0
    assert {program["exit_status"] for program in content["profile"].values()} == {0}
    assert "Dry run on the emulator: no card, no figures" in (tmp_path / "dry-run.md").read_text()


@pytest.mark.usefixtures("bench")
def test_a_door_that_the_driver_leaves_out_is_known() -> None:
    driver = importlib.import_module("gpu.driver")
    backend = ModuleType("backend")
    backend.__dict__.update(__all__=["first", "second"], first=lambda x: x + 1, second=lambda: None)
    doors, entered = driver.noting(backend)
    assert doors.first(1) == 2
    assert set(backend.__all__) - entered == {"second"}


@pytest.mark.usefixtures("bench")
def test_a_kernel_that_the_driver_leaves_out_is_known() -> None:
    driver = importlib.import_module("gpu.driver")
    loader = ModuleType("loader")
    loader.__dict__.update(_kernel=lambda device, source, entry, defines: f"{source}/{entry} {device} {defines}")
    loaded = driver.noting_kernels(loader)
    assert loader._kernel(0, "gram", "gram_f64", ()) == "gram/gram_f64 0 ()"
    every = driver.all_kernels(BENCH.parent / "kernels")
    assert loaded == {("gram", "gram_f64")} < every
    texts = [path.read_text() for path in (BENCH.parent / "kernels").glob("*.cu")]
    assert len(every) == sum(text.count('extern "C" __global__') for text in texts)


@pytest.mark.usefixtures("bench", "emulated")
def test_a_part_that_hangs_costs_its_own_time() -> None:
    """With all that it started: the pipe of a child that lives on would be waited for."""
    checks = importlib.import_module("gpu.checks")
    seconds, code, output = checks.timed_run(["sh", "-c", "echo begun; sleep 60 & sleep 60"], 1.0)
    assert (code, output) == (None, "begun\n")
    assert seconds < 10
    assert checks.timed_run(["sh", "-c", "echo done; exit 3"], 30.0)[1:] == (3, "done\n")


@pytest.mark.usefixtures("bench")
def test_report_is_whole_after_every_figure(tmp_path: Path) -> None:
    """A card's figures stay, NaN does not pass for a number, and each write leaves a readable file alone."""
    report = importlib.import_module("gpu.report")
    header = {"dry_run": False, "card": {"name": "NVIDIA H100 80GB HBM3", "driver": "1"}, "commit": "0", "versions": {}}
    written = report.Report(tmp_path, header)
    row: dict[str, Any] = {"case": "a", "ours": {"call_ms": 0.123456789}, "ratio_fused": 2.0, "error": float("nan")}
    written.row(row)
    row["ours"]["device_ms"] = 0.1
    written.row(row)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "nvidia-h100-80gb-hbm3.json",
        "nvidia-h100-80gb-hbm3.md",
    ]
    content = json.loads(written.json.read_text())
    assert content["rows"] == [
        {"case": "a", "ours": {"call_ms": 0.12346, "device_ms": 0.1}, "ratio_fused": 2.0, "error": "nan"}
    ]
    assert content["finished"] == "no"
    assert "| a | 0.1 | 0.123 |" in written.markdown.read_text()


@pytest.mark.usefixtures("bench", "emulated")
@pytest.mark.parametrize(
    ("steps", "fp64", "slots", "multiply_adds", "expected"),
    [
        (25e6, 13, 34, 0.0, 0.029),
        (25e6, 29, 59, 0.0, 0.050),
        (144 * 145 / 2 * 3000, 21, 26, 1000 * 144**3 / 6, 0.061),
        (300 * 301 / 2 * 150, 67, 141, 0.0, 0.032),
    ],
    ids=["distances D=1", "distances D=5", "likelihood N=144", "moments"],
)
def test_floors(steps: float, fp64: float, slots: float, multiply_adds: float, expected: float) -> None:
    """Floors of an H100 at 1.755 GHz and 3 TB/s, in ms, as they were worked out by hand."""
    card = importlib.import_module("gpu.card")
    work = card.Work(steps, fp64, slots, multiply_adds)
    floor = card.floor({"attributes": H100, "capability": 90}, work)
    assert floor["floor_estimate_ms"] == pytest.approx(expected, rel=0.04)
    assert card.floor({"attributes": {}, "capability": 90}, work)["floor_estimate_ms"] is None


@pytest.mark.usefixtures("bench")
def test_selection(tmp_path: Path) -> None:
    """Only cases on the card run, slow ones last; every outcome is on disk, with reasons."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu: on a card\n    slow: long\n")
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "backends = pytest.mark.parametrize('backend', ['cpu', 'gpu', 'gpu-emulated'])\n"
        "@pytest.mark.slow\n@backends\ndef test_slow(backend): assert backend == 'gpu'\n"
        "@backends\ndef test_fails(backend): assert backend == 'cpu'\n"
        "@backends\ndef test_skips(backend): pytest.skip('no card')\n"
        "@pytest.mark.gpu\ndef test_marked(): pass\n"
        "def test_other(): assert False\n"
    )
    outcomes = tmp_path / "outcomes"
    environment = {**os.environ, "PYTHONPATH": str(BENCH), "GPU_CHECK_OUTCOMES": str(outcomes)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "gpu.selection", "-p", "no:cacheprovider", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    lines = [json.loads(line) for line in outcomes.read_text().splitlines()]
    assert lines[0] == {"collected": 4}
    assert [(entry["test"].split("::")[1], entry["outcome"]) for entry in lines[1:]] == [
        ("test_fails[gpu]", "failed"),
        ("test_skips[gpu]", "skipped"),
        ("test_marked", "passed"),
        ("test_slow[gpu]", "passed"),
    ]
    assert "no card" in lines[2]["why"]
