"""bench/gpu_check.py: its dry run, what it writes, and how it chooses the tests for a card."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast import backends

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "bench" / "gpu_check.py"
FIGURES = ("ms", "seconds", "ratio", "share")  # words in the names of figures
HEADER: dict[str, Any] = {
    **{"dry_run": False, "kind": "maskerade_fast gpu_check", "commit": "0", "versions": {}, "parts": [], "limit_s": 9},
    **{"started": "2026-01-01T00:00:00Z", "card": {"name": "A", "driver": "1", "cuda_of_cupy": 12090}},
}


def figures(value: Any, name: str = "", inside: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield names and values of everything under a name that speaks of time, a ratio or a share."""
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
    command = [sys.executable, str(SCRIPT), "--dry-run", "--out", str(tmp_path)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    run = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dry-run.json", "dry-run.md"]
    content = json.loads((tmp_path / "dry-run.json").read_text())
    assert (content["card"]["name"], content["finished"], content["failures"]) == ("emulator, no card", "yes", [])
    shown = list(figures(content))
    assert len(shown) > 100
    assert [pair for pair in shown if pair[1] is not None] == []
    assert "Dry run on the emulator: no card, no figures" in (tmp_path / "dry-run.md").read_text()

    assert content["compile"]["kernels"]["new_in_cache"] > 60
    after = ("ceilings", "smoke", "rows")
    assert {part: content["spent"][part]["compiled"] for part in after} == dict.fromkeys(after, 0)
    assert {word for row in content["rows"] for word in row["kernels"].split()} == {"K1", "K2", "K3", "K4", "K5"}
    for row in content["rows"]:
        assert row["done"] is True
        assert row["error"] <= row["tolerance"]
        assert row["ours"]["kernels"]
        for peer in ("plain_cupy", "fused"):
            assert peer not in row or row[peer]["error"] <= 1e-9
        if row["sizes"].get("N", 0) < 336:  # the units of coordinates and weights alone are copied to the host
            assert row["ours"]["copies_to_host"] == int("mixed" in row["case"])
    assert sum("plain_cupy" in row and "fused" in row for row in content["rows"]) >= 13
    assert content["smoke"]["driver"]["last_line"] == "every function ran"
    assert set(content["ceilings"]) == {"product", "copy", "launch"}
    suite = content["tests"]["suite"]
    assert suite["passed"] == suite["collected"] > 10
    runs = content["end_to_end"]
    assert set(runs) == {"cpu, 12 points", "gpu, 12 points", "gpytorch, 12 points"}
    assert runs["gpu, 12 points"]["log_evidence_difference"] < 1e-6
    assert runs["gpu, 12 points"]["warm"]["launches"] > 0 == runs["cpu, 12 points"]["warm"]["launches"]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_check_that_is_ended_leaves_whole_results(tmp_path: Path) -> None:
    """It says so in them, whether or not somebody still reads what it prints."""
    command = [sys.executable, str(SCRIPT), "--dry-run", "--only", "smoke", "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}) as check:
        assert check.stdout is not None
        assert any(line.startswith("== smoke") for line in check.stdout)
        check.stdout.close()
        check.send_signal(signal.SIGTERM)
        assert check.wait(60) == 1
    assert json.loads((tmp_path / "dry-run.json").read_text())["finished"] == "no: cut off from outside"


def test_the_driver_notes_what_it_leaves_out(bench: Any) -> None:
    driver = bench("gpu.driver")
    backend, loader = ModuleType("backend"), ModuleType("loader")
    backend.__dict__.update(__all__=["first", "second"], first=lambda x: x + 1, second=lambda: None)
    loader.__dict__.update(_kernel=lambda device, source, entry, defines: f"{source}/{entry} {device} {defines}")
    functions, entered = driver.noting(backend)
    assert functions.first(1) == 2
    assert set(backend.__all__) - entered == {"second"}
    loaded = driver.noting_kernels(loader)
    assert loader._kernel(0, "gram", "gram_f64", ()) == "gram/gram_f64 0 ()"
    assert loaded == {("gram", "gram_f64")} < driver.all_kernels(ROOT / "kernels")


@pytest.mark.parametrize(
    ("command", "expected"), [("echo begun; sleep 60 & sleep 60", None), ("sleep 60 & echo begun; exit 3", 3)]
)
def test_a_command_costs_its_own_time(bench: Any, command: str, expected: int | None) -> None:
    """It ends with all that it started: the pipe of a child that lives on would be waited for."""
    seconds, code, output = bench("gpu.children").timed_run(["sh", "-c", command], 1.0 if expected is None else 60.0)
    assert (code, output) == (expected, "begun\n")
    assert seconds < 30


def test_children_end_with_the_check(tmp_path: Path) -> None:
    """However it ends: a command in a session of its own is no longer what its parent's killer ends."""
    child = f"import os, pathlib, time; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); "
    (tmp_path / "parent.py").write_text(
        f"import os, signal, sys, threading, time; sys.path.insert(0, {str(ROOT)!r})\n"
        "from bench.gpu import children\n"
        "def end():\n"
        f"    while not os.path.exists({str(tmp_path / 'pid')!r}): time.sleep(0.05)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "threading.Thread(target=end).start()\n"
        f"children.timed_run([sys.executable, '-c', {child + 'time.sleep(60)'!r}], 60.0)\n"
    )
    assert subprocess.run([sys.executable, str(tmp_path / "parent.py")], check=False, timeout=50).returncode < 0
    number, end = int((tmp_path / "pid").read_text()), time.monotonic() + 20
    while time.monotonic() < end and alive(number):
        time.sleep(0.05)
    assert not alive(number)


def alive(number: int) -> bool:
    """Return whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_report_is_whole_after_every_figure(bench: Any, tmp_path: Path) -> None:
    """NaN does not pass for a number, and each write leaves a readable file alone."""
    written = bench("gpu.report").Report(tmp_path, HEADER)
    written.put("rows", a={"ours": {"call_ms": 0.123456789}, "ratio_fused": 2.0, "error": float("nan")})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.md"]
    content = json.loads(written.json.read_text())
    assert content["rows"] == [{"case": "a", "ours": {"call_ms": 0.12346}, "ratio_fused": 2.0, "error": "nan"}]
    assert content["finished"] == "no"
    assert "| a | – | 0.123 |" in written.markdown.read_text()


def test_a_second_run_keeps_what_the_first_finished(bench: Any, tmp_path: Path) -> None:
    report = bench("gpu.report")
    first = report.Report(tmp_path, HEADER)
    first.list_items("rows", ["a", "b", "c"])
    first.put("rows", a={"error": 0.0, "done": True}, b={"failed": "no"}, c={"left_out": "no time"})
    first.put("smoke", driver={"exit_status": 0, "done": True})
    first.failure("b", "no")
    for name, other in (("list", [1]), ("other", {"rows": []}), ("b", {"kind": report.KIND, "card": {"name": "B"}})):
        (tmp_path / f"{name}.json").write_text(json.dumps(other))  # what a folder of results has besides
    second = report.Report(tmp_path / "other", HEADER, report.resumable(tmp_path, "A"))
    assert (second.finished("rows"), second.finished("smoke")) == ({"a"}, {"driver"})
    assert not second.all_finished("rows")
    second.put("rows", b={"done": True}, c={"done": True})
    assert second.all_finished("rows")
    content = json.loads(second.json.read_text())
    assert [row["case"] for row in content["rows"]] == ["a", "b", "c"]
    assert content["failures"] == []
    assert content["earlier_runs"][0]["failures"] == [{"where": "b", "error": "no"}]
    (tmp_path / "another.json").write_text((tmp_path / "a.json").read_text())
    with pytest.raises(ValueError, match=r"2 results of A, but of B, expected one"):
        report.resumable(tmp_path, "A")


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("print('@@[\"put\", {\"b\": {', end='', flush=True); os._exit(139)", {"failed": "exit status 139: dying\n"}),
        ("import time; time.sleep(60)", {"cut_off": "after 6 s of this part"}),
        ("lines.put(name, {'failed': 'why'}); lines.failure(name, 'why'); lines.end(); sys.exit(3)", {"failed": "why"}),
    ],
    ids=["dies within a line", "hangs", "has lost its context"],
)
def test_an_item_that_ends_its_process_costs_itself_alone(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, expected: dict[str, str]
) -> None:
    """Results before it stay; where the time is not used up, a new process goes on with the items after it."""
    children = bench("gpu.children")
    (tmp_path / "part.py").write_text(
        f"import json, os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from bench.gpu.report import Lines\n"
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
    monkeypatch.setattr(children, "PART", (str(tmp_path / "part.py"),))
    written = bench("gpu.report").Report(tmp_path, HEADER)
    children.run_items("rows", 6.0 if "cut_off" in expected else 300.0, written, set())
    rows = written.content["rows"]
    assert rows["a"] == {"done": True}
    assert rows["b"] | {"half": 1} == {"half": 1} | expected
    assert rows["c"] == ({"left_out": "the time of this part was used up"} if "cut_off" in expected else {"done": True})
    assert [f["where"] for f in written.content["failures"]] == ([] if "cut_off" in expected else ["b"])


def test_timetable(bench: Any) -> None:
    """Seconds that a part leaves go to the parts after it; the last parts are left to another run."""
    parts = ["compile", "smoke", "rows", "end_to_end", "tests", "sanitizer"]
    timetable = bench("gpu_check").Timetable(parts, 360.0, time.monotonic())
    limits = {part: timetable.limit(part) for part in ("compile", "rows", "tests", "sanitizer")}
    assert limits == pytest.approx({"compile": 45.0, "rows": 180.0, "tests": 340.0, "sanitizer": 350.0}, abs=1.0)
    assert bench("gpu_check").Timetable(parts, None, time.monotonic()).limit("rows") is None


@pytest.mark.parametrize(
    "says",
    ["========= Error: Device not supported. Please refer to the documentation", "========= ERROR SUMMARY: 1 error"],
    ids=["no sanitizer", "an error that was found"],
)
def test_a_machine_may_refuse_the_sanitizer(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    """That is no fault of the program, and one tool is enough to know it."""
    checks, tool = bench("gpu.checks"), tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\necho '{says}'\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setattr(checks.shutil, "which", lambda name: str(tool))
    written = bench("gpu.report").Report(tmp_path, HEADER)
    checks.run_sanitizer(written, 100.0)
    entries = list(written.content["sanitizer"].values())
    if "SUMMARY" in says:
        assert len(entries) == len(written.content["failures"]) == 4
    else:
        assert [entry["left_out"] for entry in entries] == [says.strip("= ")]
        assert written.content["failures"] == []


@pytest.mark.usefixtures("emulated")
def test_a_fresh_machine_compiles_again(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another machine compiled is of no use to this one."""
    left, written = bench("gpu_check").left, bench("gpu.report").Report(tmp_path / "out", HEADER)
    written.list_items("compile", ["kernels"])
    written.put("compile", kernels={"done": True, "in_cache_after": 2})
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    assert left(["compile", "rows"], written) == ["compile", "rows"]
    for name in "ab":
        (tmp_path / f"{name}.cubin").touch()
    assert left(["compile", "rows"], written) == ["rows"]


def noting(seen: list[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, whose positional arguments are kept."""

    def call(*args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize("regular", [False, True])
def test_rows_call_the_backend_as_users_do(
    bench: Any, emulated: Any, monkeypatch: pytest.MonkeyPatch, regular: bool
) -> None:
    """CuPy's offsets, which no GMMBatch has, put a wait for the device into every timed call."""
    problems = bench("gpu.problems")
    problem = problems.regression(260 if regular else 20, 3, 2, regular=regular)
    offsets, *arrays, X, y, noise = problem.backend_arguments()
    name = "toeplitz_log_likelihood" if regular else "log_likelihood"
    module, seen = backends.get_backend(X), list[Any]()
    monkeypatch.setattr(module, name, noting(seen, getattr(module, name)))
    mf.log_likelihood(mf.GMMBatch(offsets, *arrays).to("gpu"), X, y, problems.NOISE)
    kinds = [[(type(a), a.dtype, a.shape) for a in args] for args in (seen[0], (offsets, *arrays, X, y, noise))]
    assert kinds[0] == kinds[1]
    assert type(offsets) is np.ndarray


def test_the_reference_is_the_oracle(bench: Any, emulated: Any) -> None:
    """NumPy's formulas for likelihoods, at sizes that the oracle's loops can do."""
    import oracle

    problems, reference = bench("gpu.problems"), bench("gpu.reference")
    problem = problems.regression(12, 2, 2)
    offsets, w, m, s, X, y, _ = (
        emulated.cupy.asnumpy(a) for a in map(emulated.cupy.asarray, problem.backend_arguments())
    )
    batch = oracle.mixtures_of(mf.GMMBatch(offsets, w, m, s))
    K = oracle.gram(batch, X, noise_variance=problems.NOISE)
    np.testing.assert_allclose(reference.covariance(problem, 1)[0], K[1], rtol=0, atol=1e-14)
    values = oracle.log_likelihood(batch, X, y, problems.NOISE)
    assert reference.likelihood_error(values, [reference.likelihood_terms(problem, b) for b in range(2)]) < 1e-12
    *gradients, noise = oracle.log_likelihood_gradient(batch, X, y, problems.NOISE)
    assert reference.likelihood_gradient_error(problem, [*gradients, noise.sum(axis=1)[:, None]]) < 1e-9
    gradients[1] = gradients[1] * 1.001
    assert reference.likelihood_gradient_error(problem, [*gradients, noise.sum(axis=1)[:, None]]) > 1e-4


def test_arrays_without_a_pool(bench: Any, emulated: Any) -> None:
    """The memory checker sees each array's own allocation."""
    assert bench("gpu.checks").sanitizer_command("compute-sanitizer", "memcheck")[-1] == "--no-pool"
    bench("gpu.driver").without_pool()
    held = emulated.cupy.zeros(1000)
    assert emulated.cupy.get_default_memory_pool().used_bytes() == 0
    del held
