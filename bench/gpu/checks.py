"""Every door once, the test-suite on the card, compute-sanitizer, whole runs, a profiler: each in a process of its own
with a time limit, so that what hangs costs its own time alone."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .clock import Clock
from .report import Report
from .selection import NOT_ON_CARDS

ROOT = Path(__file__).parents[2]
WORKERS = 8  # processes of the tests that share the card
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
DRIVER = Path(__file__).with_name("driver.py")
RUNS = [(144, "cpu"), (144, "gpu"), (500, "gpu"), (500, "cpu")]  # points and device of whole runs
BUDGET = 200  # evaluations of the likelihood in a whole run
RUN_LIMIT = 40.0  # seconds of one
PROFILED = [
    "K2+K3 N=144, B=1000",
    "K4 N=144, B=1000",
    "K1 1000x1000, D=1",
    "K5 h=300, n*=150",
    "K2+K3 N=512, B=256",
    "K1 1000x1000, D=5",
    "K2+K3 N=1503, B=100",
]
MOST_LAUNCHES = 12  # profiled in one row: the large likelihoods have hundreds


def run_smoke(clock: Clock, report: Report, limit: float) -> None:
    """Every door once: what is broken altogether is known in seconds."""
    print("smoke", flush=True)
    seconds, code, output = timed_run(driver(clock), limit)
    report.put("smoke", driver={"exit_status": code, "run_seconds": seconds, "last_line": last_line(output)})
    if code != 0:
        report.failure("driver", output[-1500:] or "cut off")


def driver(clock: Clock) -> list[str]:
    return [sys.executable, str(DRIVER), *(["--dry-run"] if clock.dry else [])]


def run_tests(clock: Clock, report: Report, limit: float) -> None:
    """The tests on the backend "gpu" and those of the emulator; in a dry run one file, on the stand-in as a card."""
    print("tests", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Path(folder) / "outcomes"
        outcomes.touch()
        command = test_command(clock.dry)
        environment = {**os.environ, "GPU_CHECK_OUTCOMES": str(outcomes)}
        paths = [ROOT, ROOT / "bench", ROOT / "tests" / "emulator", *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
        seconds, code, output = timed_run(command, limit, environment)
        result = summary(outcomes)
    result.update(command=" ".join(command[1:]), exit_status=code, run_seconds=seconds)
    if code is None:
        result["cut_off"] = f"after {limit:.0f} s"
    if code not in (0, None):
        result["output"] = output[-1500:]
    report.put("tests", **result)
    if result["failed"] or result["error"] or code not in (0, None):
        report.failure("tests", "; ".join([*result["failing"], f"exit status {code}"]))


def test_command(dry: bool) -> list[str]:
    """pytest-benchmark, where it is installed, warns of several processes, and a warning is an error here."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "-p", "gpu.selection", "--card"]
    if dry:
        command += ["-p", "stand_in_card", "tests/test_gpu_gram.py"]
    else:
        command += ["tests", "--sweep", *(f"--ignore=tests/test_{name}.py" for name in NOT_ON_CARDS)]
    if importlib.util.find_spec("xdist"):  # most of the time goes into compiling
        command += ["-n", str(2 if dry else min(WORKERS, os.cpu_count() or 1))]
    return command


def summary(outcomes: Path) -> dict[str, Any]:
    """Counts by outcome, the failing tests, and why tests were skipped."""
    entries = [json.loads(line) for line in outcomes.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    tests = [entry for entry in entries if "test" in entry]
    counts = Counter(entry["outcome"] for entry in tests)
    failing = [f"{e['test']}: {e['why']}" for e in tests if e["outcome"] in ("failed", "error")]
    return {
        "collected": next((e["collected"] for e in entries if "collected" in e), 0),
        **{outcome: counts[outcome] for outcome in ("passed", "failed", "error", "skipped")},
        "failing": failing[:20],
        "skipped_because": dict(Counter(e["why"] for e in tests if e["outcome"] == "skipped").most_common(10)),
    }


def run_sanitizer(clock: Clock, report: Report, limit: float) -> None:
    """compute-sanitizer's tools over bench/gpu/driver.py."""
    print("compute-sanitizer", flush=True)
    tool = None if clock.dry else shutil.which("compute-sanitizer")
    if tool is None:
        report.put("sanitizer", compute_sanitizer="not in a dry run" if clock.dry else "not on this machine")
        return
    end = time.monotonic() + limit
    for name in TOOLS:
        rest = min(end - time.monotonic(), clock.left() - 5)
        if rest < 10:
            report.put("sanitizer", **{name: {"left_out": f"{rest:.0f} s left"}})
            continue
        command = [tool, "--tool", name, "--error-exitcode", "9", *driver(clock)]
        seconds, code, output = timed_run(command, rest)
        result = {"exit_status": code, "run_seconds": seconds, "last_line": last_line(output)}
        if code is None:
            result["cut_off"] = f"after {rest:.0f} s"
        report.put("sanitizer", **{name: result})
        if code not in (0, None):
            report.failure(name, output[-3000:])


def run_end_to_end(clock: Clock, report: Report, limit: float) -> None:
    """`marginalise` on both devices (bench/gpu/end_to_end.py)."""
    print("end to end", flush=True)
    end = time.monotonic() + limit
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for points, device in [(12, "cpu"), (12, "gpu")] if clock.dry else RUNS:
        rest = min(RUN_LIMIT, end - time.monotonic(), clock.left() - 5)
        name = f"{device}, {points} points"
        if rest < 5:
            report.put("end_to_end", **{name: {"left_out": f"{rest:.0f} s left"}})
            continue
        command = [sys.executable, str(Path(__file__).with_name("end_to_end.py")), "--points", str(points)]
        command += ["--device", device, "--budget", str(12 if clock.dry else BUDGET)]
        seconds, code, output = timed_run([*command, *(["--dry-run"] if clock.dry else [])], rest)
        result: dict[str, Any] = {"exit_status": code, "run_seconds": seconds}
        for line in output.splitlines():
            if line.startswith("{"):
                result |= json.loads(line)
        if code is None:
            result["cut_off"] = f"after {rest:.0f} s"
        found[points, device] = result
        other = found.get((points, "cpu" if device == "gpu" else "gpu"), {})
        if "warm" in other and "warm" in result:
            result["log_evidence_difference"] = abs(result["warm"]["log_evidence"] - other["warm"]["log_evidence"])
        report.put("end_to_end", **{name: result})
        if code not in (0, None):
            report.failure(name, output[-1500:])


def run_profile(clock: Clock, report: Report, limit: float) -> None:
    """Nsight Compute's details of the main rows' kernels, as text beside the results."""
    print("profile", flush=True)
    tool = None if clock.dry else shutil.which("ncu")
    if tool is None and not clock.dry:
        report.put("profile", ncu="not on this machine")
        return
    ncu = [tool, "--profile-from-start", "off", "--set", "full", "--page", "details", "--kernel-name", "regex:_f64$"]
    ncu += ["--launch-count", str(MOST_LAUNCHES)]
    text = report.json.with_name(f"{report.json.stem}-ncu.txt")
    end = time.monotonic() + limit
    for name in ["K1 20x20, D=1"] if clock.dry else PROFILED:
        rest = min(end - time.monotonic(), clock.left() - 5)
        if rest < 10 and not clock.dry:
            report.put("profile", **{name: {"left_out": f"{rest:.0f} s left"}})
            continue
        program = [sys.executable, str(Path(__file__).with_name("profiled.py")), name]
        command = [*program, "--dry-run"] if clock.dry else [*filter(None, ncu), *program]
        seconds, code, output = timed_run(command, rest)
        report.put("profile", **{name: {"exit_status": code, "run_seconds": seconds}})
        if code not in (0, None):
            report.failure(f"profile of {name}", output[-1500:])
        elif not clock.dry:
            with text.open("a" if text.exists() and name != PROFILED[0] else "w", encoding="utf-8") as file:
                file.write(f"##### {name}\n{output}\n")


def timed_run(
    command: list[str], limit: float, environment: dict[str, str] | None = None
) -> tuple[float, int | None, str]:
    """Seconds, exit status (None: cut off at `limit`) and output of a command run in the repository's root.

    A cut ends all processes that the command started: one that hangs on the card would spoil what is measured next.
    """
    start = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=max(limit, 1.0))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return time.monotonic() - start, None, output
    return time.monotonic() - start, process.returncode, output


def last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else ""
