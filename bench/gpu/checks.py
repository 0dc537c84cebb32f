"""The test-suite on the card, and compute-sanitizer over every door, each in a process with a time limit."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
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


def run_tests(clock: Clock, report: Report, limit: float) -> None:
    """The tests on the backend "gpu"; in a dry run one file of them, whose cases skip for want of a card."""
    print("tests", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Path(folder) / "outcomes"
        outcomes.touch()
        ignored = [f"--ignore=tests/test_{name}.py" for name in NOT_ON_CARDS]
        files = ["tests/test_gram.py"] if clock.dry else ["tests", "--sweep", *ignored]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "gpu.selection", "--card", *files]
        if importlib.util.find_spec("xdist") and not clock.dry:  # most of the time goes into compiling
            command += ["-n", str(min(WORKERS, os.cpu_count() or 1))]
        environment = {**os.environ, "GPU_CHECK_OUTCOMES": str(outcomes)}
        paths = [str(ROOT), str(ROOT / "bench"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        seconds, code, output = timed_run(command, limit, environment)
        result = summary(outcomes)
    result.update(command=" ".join(command[1:]), exit_status=code, run_seconds=seconds)
    if code is None:
        result["cut_off"] = f"after {limit:.0f} s"
    nothing_chosen = code == 5
    if code not in (0, None):
        result["output"] = output[-1500:]
    report.put("tests", **result)
    if result["failed"] or result["error"] or (code not in (0, None) and not (clock.dry and nothing_chosen)):
        report.failure("tests", "; ".join([*result["failing"], f"exit status {code}"]))


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
    """compute-sanitizer's tools over bench/gpu/driver.py; without them, the driver alone."""
    print("compute-sanitizer", flush=True)
    tool = None if clock.dry else shutil.which("compute-sanitizer")
    driver = [sys.executable, str(Path(__file__).with_name("driver.py")), *(["--dry-run"] if clock.dry else [])]
    seconds, code, output = timed_run(driver, limit)
    report.put("sanitizer", driver={"exit_status": code, "run_seconds": seconds, "last_line": last_line(output)})
    if code != 0:
        report.failure("driver", output[-1500:] or "cut off")
        return
    if tool is None:
        report.put("sanitizer", compute_sanitizer="not on this machine" if not clock.dry else "not in a dry run")
        return
    end = time.monotonic() + limit - seconds
    for name in TOOLS:
        rest = min(end - time.monotonic(), clock.left() - 5)
        if rest < 10:
            report.put("sanitizer", **{name: {"left_out": f"{rest:.0f} s left"}})
            continue
        command = [tool, "--tool", name, "--error-exitcode", "9", *driver]
        seconds, code, output = timed_run(command, rest)
        result = {"exit_status": code, "run_seconds": seconds, "last_line": last_line(output)}
        if code is None:
            result["cut_off"] = f"after {rest:.0f} s"
        report.put("sanitizer", **{name: result})
        if code not in (0, None):
            report.failure(name, output[-3000:])


def timed_run(
    command: list[str], limit: float, environment: dict[str, str] | None = None
) -> tuple[float, int | None, str]:
    """Seconds, exit status (None: cut off at `limit`) and output of a command run in the repository's root."""
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=max(limit, 1.0),
            check=False,
        )
    except subprocess.TimeoutExpired as cut:
        output = cut.stdout.decode(errors="replace") if isinstance(cut.stdout, bytes) else cut.stdout or ""
        return time.monotonic() - start, None, output
    return time.monotonic() - start, done.returncode, done.stdout


def last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else ""
