"""Parts that are commands: each function of the backend once, the tests, compute-sanitizer, whole runs.

Each command has a process and a time limit of its own: one that hangs costs its own time alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench import ROOT

from .children import description, last_line, timed_run
from .compiling import processes
from .report import Report
from .selection import NOT_ON_CARDS

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
RUNS = [  # of irregular points: their number, what computes, seconds at least
    (500, "gpu", 8),
    (500, "cpu", 8),
    (500, "gpytorch", 10),
    (1500, "gpu", 10),
    (1500, "gpytorch", 12),
    (1500, "cpu", 12),
]
BUDGET = 600  # of a whole run: likelihoods, one with its gradient as 3
WARM_UP = "import maskerade_fast; maskerade_fast.warm_up()"
WARM_UP_LIMIT = 300.0
ONE_LIMIT = 30.0  # seconds of one whole run
REFUSED = "Device not supported"  # by compute-sanitizer, whatever the program


class Limit:
    """Time that a part has; a dry run has no end of it."""

    def __init__(self, seconds: float | None) -> None:
        self.end = None if seconds is None else time.monotonic() + seconds

    def left(self, most: float | None = None) -> float | None:
        """Seconds left, `most` of them at most."""
        left = None if self.end is None else self.end - time.monotonic()
        return left if left is None or most is None else min(left, most)

    def short_of(self, seconds: float) -> str | None:
        """What to say where less than `seconds` are left."""
        left = self.left()
        return None if left is None or left >= seconds else f"{seconds:.0f} s needed, {left:.0f} s left"


def run_smoke(report: Report, limit: float | None) -> None:
    """Call every function of the backend once: what fails altogether shows in seconds."""
    report.list_items("smoke", ["driver"])
    seconds, code, output = timed_run(driver(report.dry), limit)
    report.put("smoke", driver=description(code, seconds, limit) | {"last_line": last_line(output)})
    if code != 0:
        report.failure("driver", output[-1500:] or "cut off")


def driver(dry: bool, *options: str) -> list[str]:
    return [sys.executable, "-m", "bench.gpu.driver", *options, *(["--dry-run"] if dry else [])]


def run_tests(report: Report, limit: float | None) -> None:
    """The tests on the backend "gpu" and those of the emulator; in a dry run one file, on the stand-in as a card."""
    report.list_items("tests", ["suite"])
    end = Limit(limit)
    end_warm_up(end)
    limit = end.left()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Path(folder) / "outcomes"
        outcomes.touch()
        command = test_command(report.dry)
        environment = {**os.environ, "GPU_CHECK_OUTCOMES": str(outcomes)}
        paths = [ROOT, ROOT / "tests" / "emulator", *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
        seconds, code, output = timed_run(command, limit, environment)
        result = summary(outcomes) | description(code, seconds, limit) | {"command": " ".join(command[1:])}
    if code not in (0, None):
        result["output"] = output[-1500:]
    report.put("tests", suite=result)
    if result["failed"] or result["error"] or code not in (0, None):
        report.failure("suite", "; ".join([*result["failing"], f"exit status {code}"]))


def test_command(dry: bool) -> list[str]:
    """pytest-benchmark, where it is installed, warns of several processes, and a warning is an error here. A file that
    cannot be imported, for want of a package say, is an error of its own and no reason to leave out all others."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "--continue-on-collection-errors"]
    command += [*(["-p", "stand_in_card"] if dry else []), "-p", "bench.gpu.selection", "--card"]
    if dry:
        command += ["tests/kernels/test_gpu_gram.py"]
    else:
        command += ["tests", "--sweep", *(f"--ignore=tests/{name}" for name in NOT_ON_CARDS)]
    if importlib.util.find_spec("xdist"):  # most of the time goes into compiling
        command += ["-n", str(processes(dry))]
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


def run_sanitizer(report: Report, limit: float | None) -> None:
    """compute-sanitizer's tools over bench/gpu/driver.py, each array an allocation of its own."""
    tool = None if report.dry else shutil.which("compute-sanitizer")
    report.list_items("sanitizer", list(TOOLS))
    if tool is None:
        report.put("sanitizer", memcheck={"left_out": "not in a dry run" if report.dry else "no compute-sanitizer"})
        return
    time_left = Limit(limit)
    for name in TOOLS:
        if name in report.finished("sanitizer"):
            continue
        if short := time_left.short_of(10):
            report.put("sanitizer", **{name: {"left_out": short}})
            continue
        rest = time_left.left()
        seconds, code, output = timed_run(sanitizer_command(tool, name), rest)
        summed = [line.strip("= ") for line in output.splitlines() if "SUMMARY" in line]
        entry = description(code, seconds, rest) | {"last_line": last_line(output), "summary": summed[-1:]}
        if code and REFUSED in output:
            why = next(line.strip("= ") for line in output.splitlines() if REFUSED in line)
            report.put("sanitizer", **{name: {"left_out": why}})
            break
        report.put("sanitizer", **{name: entry})
        if code not in (0, None):
            report.failure(name, output[-3000:])


def sanitizer_command(tool: str, name: str) -> list[str]:
    """Errors of kernels alone: a call of CUDA's that fails raises in Python, and CuPy may have called it on purpose."""
    quiet = ["--report-api-errors", "no"] if name == "memcheck" else []
    return [tool, "--tool", name, "--error-exitcode", "9", *quiet, *driver(False, "--no-pool")]


def run_end_to_end(report: Report, limit: float | None) -> None:
    """`marginalise` on both devices and GPyTorch on the card, on the same data (bench/gpu/end_to_end.py)."""
    time_left = Limit(limit)
    end_warm_up(time_left)
    runs = [(12, "cpu", 5), (12, "gpu", 5), (12, "gpytorch", 5)] if report.dry else RUNS
    report.list_items("end_to_end", [f"{what}, {points} points" for points, what, _ in runs])
    for points, what, needed in runs:
        name = f"{what}, {points} points"
        if name in report.finished("end_to_end"):
            continue
        if short := time_left.short_of(needed):
            report.put("end_to_end", **{name: {"left_out": short}})
            continue
        rest = time_left.left(ONE_LIMIT)
        entry: dict[str, Any] = {}

        def take(line: str, entry: dict[str, Any] = entry) -> None:
            if line.startswith("{"):
                entry.update(json.loads(line))

        seconds, code, output = timed_run(end_to_end_command(points, what, report.dry), rest, take=take)
        entry |= description(code, seconds, rest)
        others = (report.content["end_to_end"].get(f"{other}, {points} points", {}) for other in ("cpu", "gpu"))
        for other in others:
            if what != "gpytorch" and "warm" in other and "warm" in entry:
                gap = abs(entry["warm"]["log_evidence"] - other["warm"]["log_evidence"])
                entry["log_evidence_difference"] = gap
        report.put("end_to_end", **{name: entry})
        if code not in (0, None):
            report.failure(name, output[-1500:])


_warm_up: list[threading.Thread] = []


def begin_warm_up() -> None:
    """Have one process compile the CPU's code, on one core beside the parts before whole runs and tests: each of their
    processes would compile it anew."""

    def compile_all() -> None:
        timed_run([sys.executable, "-c", WARM_UP], WARM_UP_LIMIT, {**os.environ, "CUDA_VISIBLE_DEVICES": ""})

    _warm_up.append(threading.Thread(target=compile_all, daemon=True))
    _warm_up[-1].start()


def end_warm_up(limit: Limit) -> None:
    """Wait for that process, but no more than a third of the time. Nothing to wait for in a dry run."""
    left = limit.left()
    while _warm_up:
        _warm_up.pop().join(None if left is None else max(left / 3, 0.0))


def end_to_end_command(points: int, what: str, dry: bool) -> list[str]:
    command = [sys.executable, "-m", "bench.gpu.end_to_end", "--points", str(points)]
    return [*command, "--with", what, "--budget", str(12 if dry else BUDGET), *(["--dry-run"] if dry else [])]
