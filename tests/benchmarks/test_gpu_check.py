"""bench/gpu_check.py: its dry run, what it writes, and how it chooses the tests for a card."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
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
    command = [sys.executable, str(BENCH / "gpu_check.py"), "--dry-run", "--out", str(tmp_path)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    run = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dry-run.json", "dry-run.md"]
    content = json.loads((tmp_path / "dry-run.json").read_text())

    assert content["dry_run"] is True
    assert content["card"]["name"] == "emulator, no card"
    assert content["finished"] == "yes"
    assert content["failures"] == []
    found = list(figures(content))
    assert len(found) > 100
    assert [pair for pair in found if pair[1] is not None] == []
    assert "Dry run on the emulator: no card, no figures" in (tmp_path / "dry-run.md").read_text()

    kernels = content["compile"]["kernels"]
    assert kernels["new_in_cache"] >= kernels["instances"] > 60
    after = ("smoke", "rows", "variants", "profile", "end_to_end")
    assert {part: content["spent"][part]["compiled"] for part in after} == dict.fromkeys(after, 0)

    assert {word for row in content["rows"] for word in row["kernels"].split()} == {"K1", "K2", "K3", "K4", "K5"}
    for row in content["rows"]:
        assert row["done"] is True
        assert row["within_tolerance"] is True
        assert row["error"] <= row["tolerance"]
        assert row["ours"]["kernels"]
        for peer in ("plain_cupy", "fused"):
            assert peer not in row or row[peer]["error"] <= 1e-9
    assert sum("plain_cupy" in row and "fused" in row for row in content["rows"]) >= 13
    ran = {name for row in content["rows"] for name in row["ours"]["kernels"]}
    assert {
        *("likelihood_shared_f64", "likelihood_panel_f64", "panel_solve_f64", "gradient_slices_f64"),
        *("pairwise_f64", "pair_moments_f64"),
    } <= ran

    variants = dict(content["variants"])
    assert variants.pop("sweep: blocks")["tried"][0]["name"] == "MF_BLOCK 128"
    assert len(variants) == 3
    assert all(one["done"] and (one["same_bits"] or "blocked" in name) for name, one in variants.items())
    assert content["smoke"]["driver"]["last_line"] == "every door ran"
    assert set(content["ceilings"]) == {"product", "copy", "launch"}
    suite = content["tests"]["suite"]
    assert suite["passed"] == suite["collected"] > 10
    runs = content["end_to_end"]
    assert set(runs) == {"cpu, 12 points", "gpu, 12 points", "gpytorch, 12 points"}
    assert runs["gpu, 12 points"]["log_evidence_difference"] < 1e-6
    assert runs["gpu, 12 points"]["warm"]["launches"] == sum(runs["gpu, 12 points"]["launches_by_kernel"].values()) > 0
    assert runs["cpu, 12 points"]["warm"]["launches"] == 0
    assert "warm" in runs["gpytorch, 12 points"] or runs["gpytorch, 12 points"]["left_out"]
    assert {program["exit_status"] for program in content["profile"].values()} == {0}


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


@pytest.mark.usefixtures("bench")
def test_a_part_that_hangs_costs_its_own_time() -> None:
    """With all that it started: the pipe of a child that lives on would be waited for."""
    children = importlib.import_module("gpu.children")
    seconds, code, output = children.timed_run(["sh", "-c", "echo begun; sleep 60 & sleep 60"], 1.0)
    assert (code, output) == (None, "begun\n")
    assert seconds < 10
    assert children.timed_run(["sh", "-c", "echo done; exit 3"], 30.0)[1:] == (3, "done\n")


@pytest.mark.usefixtures("bench")
def test_what_a_child_leaves_behind_ends_with_it() -> None:
    """It has the child's output open: the answer came when that was closed, after all of the time."""
    children = importlib.import_module("gpu.children")
    seconds, code, output = children.timed_run(["sh", "-c", "sleep 60 & echo begun; exit 3"], 60.0)
    assert (code, output) == (3, "begun\n")
    assert seconds < 30


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize("how", ["signal.SIGKILL", "signal.SIGTERM"])
def test_children_end_with_the_check(tmp_path: Path, how: str) -> None:
    """However it ends: a command in a session of its own is no longer what its parent's killer ends."""
    child = f"import os, pathlib, time; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); "
    (tmp_path / "parent.py").write_text(
        f"import os, signal, sys, threading, time; sys.path.insert(0, {str(BENCH)!r})\n"
        "from gpu import children\n"
        "def end():\n"
        f"    while not os.path.exists({str(tmp_path / 'pid')!r}): time.sleep(0.05)\n"
        f"    os.kill(os.getpid(), {how})\n"
        "threading.Thread(target=end).start()\n"
        f"children.timed_run([sys.executable, '-c', {child + 'time.sleep(60)'!r}], 60.0)\n"
    )
    done = subprocess.run([sys.executable, str(tmp_path / "parent.py")], check=False, timeout=50)
    assert done.returncode < 0
    number = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 20
    while time.monotonic() < end and alive(number):
        time.sleep(0.05)
    assert not alive(number)


def alive(number: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_check_that_is_ended_leaves_whole_results(tmp_path: Path, name: str) -> None:
    """It says so in them, whether or not somebody still reads what it prints."""
    command = [sys.executable, str(BENCH / "gpu_check.py"), "--dry-run", "--only", "smoke", "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}) as check:
        assert check.stdout is not None
        assert any(line.startswith("== smoke") for line in check.stdout)
        check.stdout.close()
        check.send_signal(getattr(signal, name))
        assert check.wait(60) == 1
    assert json.loads((tmp_path / "dry-run.json").read_text())["finished"] == "no: cut off from outside"
    assert {path.name for path in tmp_path.iterdir()} == {"dry-run.json", "dry-run.md"}


@pytest.mark.usefixtures("bench")
def test_report_is_whole_after_every_figure(tmp_path: Path) -> None:
    """A card's figures stay, NaN does not pass for a number, and each write leaves a readable file alone."""
    report = importlib.import_module("gpu.report")
    header = {"dry_run": False, "card": {"name": "NVIDIA H100 80GB HBM3", "driver": "1"}, "commit": "0", "versions": {}}
    written = report.Report(tmp_path, header)
    entry: dict[str, Any] = {"ours": {"call_ms": 0.123456789}, "ratio_fused": 2.0, "error": float("nan")}
    written.put("rows", a=entry)
    entry["ours"]["device_ms"] = 0.1
    written.put("rows", a=entry)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "nvidia-h100-80gb-hbm3.json",
        "nvidia-h100-80gb-hbm3.md",
    ]
    content = json.loads(written.json.read_text())
    assert content["rows"] == [
        {"case": "a", "ours": {"call_ms": 0.12346, "device_ms": 0.1}, "ratio_fused": 2.0, "error": "nan"}
    ]
    assert content["finished"] == "no"
    assert "| a | 0.1 | – | 0.123 |" in written.markdown.read_text()


@pytest.mark.usefixtures("bench")
def test_a_second_run_keeps_what_the_first_finished(tmp_path: Path) -> None:
    report = importlib.import_module("gpu.report")
    header = {"dry_run": False, "kind": report.KIND, "card": {"name": "A"}, "commit": "0", "versions": {}, "parts": []}
    first = report.Report(tmp_path, header)
    first.list_items("rows", ["a", "b", "c"])
    first.put("rows", a={"error": 0.0, "done": True}, b={"failed": "no"}, c={"left_out": "no time"})
    first.put("tests", suite={"cut_off": "after 9 s", "exit_status": None})
    first.put("smoke", driver={"exit_status": 0, "done": True})
    first.failure("b", "no")
    for name, other in (("list", [1]), ("other", {"rows": []}), ("b", {"kind": report.KIND, "card": {"name": "B"}})):
        (tmp_path / f"{name}.json").write_text(json.dumps(other))  # what a folder of results has besides
    second = report.Report(tmp_path / "other", header, report.resumable(tmp_path, "A"))
    assert (second.finished("rows"), second.finished("tests"), second.finished("smoke")) == ({"a"}, set(), {"driver"})
    assert not second.all_finished("rows")
    second.put("rows", b={"done": True}, c={"done": True})
    assert second.all_finished("rows")
    content = json.loads(second.json.read_text())
    assert [row["case"] for row in content["rows"]] == ["a", "b", "c"]
    assert content["failures"] == []
    assert content["earlier_runs"][0]["failures"] == [{"where": "b", "error": "no"}]
    assert content["earlier_runs"][0]["unfinished"]["rows"]["b"] == {"case": "b", "failed": "no"}
    (tmp_path / "another.json").write_text((tmp_path / "a.json").read_text())
    with pytest.raises(ValueError, match=r"2 results of A, but of B, expected one"):
        report.resumable(tmp_path, "A")
    before = second.json.read_text()
    report.Report(tmp_path / "other", header)  # begun anew: what was measured is put aside
    assert (tmp_path / "other" / "a.json.before").read_text() == before


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("os._exit(139)", {"failed": "exit status 139: dying\n"}),
        ("print('@@[\"put\", {\"b\": {', end='', flush=True); os._exit(139)", {"failed": "exit status 139: dying\n"}),
        ("import time; time.sleep(60)", {"cut_off": "after 6 s of this part"}),
        ("sys.exit(3)", {"failed": "exit status 3: dying\n"}),
        ("lines.put(name, {'failed': 'why'}); lines.failure(name, 'why'); lines.end(); sys.exit(3)", {"failed": "why"}),
    ],
    ids=["dies", "dies within a line", "hangs", "is ended by a library", "has lost its context"],
)
def test_an_item_that_ends_its_process_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, expected: dict[str, str]
) -> None:
    """Results before it stay; where the time is not used up, a new process goes on with the items after it."""
    children, report = (importlib.import_module(f"gpu.{name}") for name in ("children", "report"))
    (tmp_path / "part.py").write_text(
        f"import json, os, sys; sys.path.insert(0, {str(BENCH)!r})\n"
        "from gpu.report import Lines\n"
        "skip, lines = json.loads(sys.argv[3]), Lines()\n"
        "names = [name for name in 'abc' if name not in skip]\n"
        "lines.items(names)\n"
        "for name in names:\n"
        "    lines.begin(name)\n"
        "    lines.put(name, {'half': 1})\n"
        "    if name == 'b':\n"
        "        print('dying', flush=True)\n"
        f"        {last}\n"
        "    lines.put(name, {'done': True})\n"
        "    lines.end()\n"
    )
    monkeypatch.setattr(children, "PART", tmp_path / "part.py")
    header = {"dry_run": False, "card": {"name": "A"}, "commit": "0", "versions": {}}
    written = report.Report(tmp_path, header)
    children.run_items("rows", 6.0 if "cut_off" in expected else 300.0, written, set())
    rows = written.content["rows"]
    assert rows["a"] == {"done": True}
    assert rows["b"] | {"half": 1} == {"half": 1} | expected
    assert rows["c"] == ({"left_out": "the time of this part was used up"} if "cut_off" in expected else {"done": True})
    assert [f["where"] for f in written.content["failures"]] == ([] if "cut_off" in expected else ["b"])


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize(
    ("asked", "seconds", "expected"),
    [
        (["rows"], 130.0, {"rows": 120.0}),
        (["tests", "sanitizer"], 390.0, {"tests": 180.0, "sanitizer": 380.0}),
        (["compile", "smoke", "rows", "variants", "profile", "end_to_end", "tests", "sanitizer"], 360.0,
         {"compile": 45.0, "rows": 180.0, "profile": 330.0, "end_to_end": 350.0, "sanitizer": 350.0}),
    ],
    ids=["one part", "more time than the timetable has", "less"],
)  # fmt: skip
def test_timetable(asked: list[str], seconds: float, expected: dict[str, float]) -> None:
    gpu_check = importlib.import_module("gpu_check")
    timetable = gpu_check.Timetable(asked, seconds, time.monotonic())
    for part, limit in expected.items():
        assert timetable.limit(part) == pytest.approx(limit, abs=1.0)
    assert gpu_check.Timetable(asked, None, time.monotonic()).limit(asked[0]) is None


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize("version", ["13.6.0", "14.2.0"])
def test_peers_by_either_cupy(emulated: Any, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Before CuPy 14 its triangular solves refuse a batch, and say that they expect a square matrix."""
    elementwise = importlib.import_module("gpu.dry").ElementwiseKernel
    monkeypatch.setitem(vars(emulated.cupy), "ElementwiseKernel", elementwise)
    baselines, problems, reference = (
        importlib.import_module(f"gpu.{n}") for n in ("baselines", "problems", "reference")
    )
    problem = problems.regression(20, 3, 2)
    solve, shapes = baselines.solve_triangular, []

    def of_this_version(a: Any, b: Any, **options: Any) -> Any:
        if a.ndim > 2 and version.startswith("13."):
            raise ValueError("expected square matrix")
        shapes.append(a.shape)
        return solve(a, b, **options)

    monkeypatch.setattr(emulated.cupy, "__version__", version)
    monkeypatch.setattr(baselines, "solve_triangular", of_this_version)
    terms = [reference.likelihood_terms(problem, b) for b in range(3)]
    assert reference.likelihood_error(baselines.plain_likelihood(problem), terms) < 1e-12
    assert reference.likelihood_gradient_error(problem, baselines.plain_gradient(problem), 3) < 1e-9
    assert shapes == ([(20, 20)] * 6 if version.startswith("13.") else [(3, 20, 20)] * 2)


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("profile", "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU counters"),
        ("profile", "==ERROR== Failed to initialize the profiler: LibraryNotLoaded"),
        ("sanitizer", "========= Error: Device not supported. Please refer to the documentation"),
        ("sanitizer", "========= ERROR SUMMARY: 1 error"),
    ],
    ids=["no counters", "no profiler", "no sanitizer", "an error that was found"],
)
def test_a_machine_may_refuse_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, says: str) -> None:
    """That is no fault of what is checked, and asked once."""
    checks, report = (importlib.import_module(f"gpu.{name}") for name in ("checks", "report"))
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\necho '{says}'\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setattr(checks.shutil, "which", lambda name: str(tool))
    written = report.Report(tmp_path, {"dry_run": False, "card": {"name": "A"}, "commit": "0", "versions": {}})
    getattr(checks, f"run_{part}")(written, 100.0)
    entries = list(written.content[part].values())
    if "SUMMARY" in says:
        assert len(entries) == len(written.content["failures"]) == 4
    else:
        assert [entry["left_out"] for entry in entries] == [says.strip("= ")]
        assert written.content["failures"] == []


@pytest.mark.usefixtures("bench", "emulated")
def test_a_fresh_machine_compiles_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another machine compiled is of no use to this one."""
    gpu_check, report = (importlib.import_module(name) for name in ("gpu_check", "gpu.report"))
    header = {"dry_run": False, "card": {"name": "A"}, "commit": "0", "versions": {}}
    written = report.Report(tmp_path / "out", header)
    written.list_items("compile", ["kernels"])
    written.put("compile", kernels={"done": True, "in_cache_after": 2})
    written.list_items("smoke", ["driver"])
    written.put("smoke", driver={"done": True})
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    assert gpu_check.left(["compile", "smoke", "rows"], written) == ["compile", "rows"]
    for name in "ab":
        (tmp_path / f"{name}.cubin").touch()
    assert gpu_check.left(["compile", "smoke", "rows"], written) == ["rows"]


@pytest.mark.usefixtures("bench")
def test_compiled_code_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy, from 14 on, cannot be imported where it cannot make its folder."""
    gpu_check = importlib.import_module("gpu_check")
    for name in ("CUPY_CACHE_DIR", "NUMBA_CACHE_DIR"):
        monkeypatch.setenv(name, "")
    (tmp_path / "home").write_text("no folder")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(gpu_check.tempfile, "gettempdir", lambda: str(tmp_path))
    writable = gpu_check.can_write
    monkeypatch.setattr(gpu_check, "can_write", lambda folder: folder != ROOT / "maskerade_fast" and writable(folder))
    gpu_check.keep_compiled()
    folders = [Path(os.environ[name]) for name in ("CUPY_CACHE_DIR", "NUMBA_CACHE_DIR")]
    assert all(folder.is_dir() and folder.parent == tmp_path for folder in folders)
    (tmp_path / "home").unlink()
    monkeypatch.setenv("CUPY_CACHE_DIR", "")
    gpu_check.keep_compiled()
    assert os.environ["CUPY_CACHE_DIR"] == ""


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
