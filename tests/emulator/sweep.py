"""All tests marked ``sweep``, in pieces that can be run one by one, and their log.

    python tests/emulator/sweep.py [--minutes M] [--processes N] [--only TEXT] [--list]

A piece is up to `LARGEST` tests of a file. The outcome of each stays in ``build/sweep`` under a hash of all that its
tests run (`SOURCES`), so that a sweep which was cut off goes on, and one of other sources begins anew. After every
piece ``sweep.log`` beside this file is written: commit, counts, seconds, failures. Exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "sweep"
LOG = Path(__file__).with_name("sweep.log")
LARGEST = 40
SOURCES = ("kernels", "maskerade_fast", "tests", "bench/gpu")
BACKENDS = tuple(f"maskerade_fast/{name}" for name in ("backends", "_checks.py", "_memory.py", "errors.py"))
EMULATOR = (
    *("kernels", *BACKENDS, "tests/conftest.py", "tests/oracle"),
    *("tests/emulator/*.hpp", "tests/emulator/emulate.py", "tests/emulator/fake_*.py", "tests/emulator/sanitize.py"),
)
SOURCES_OF = {  # tests that run no more than this: half an hour and more, which few changes touch
    "test_kernel_sources": (
        *(
            "kernels",
            "maskerade_fast/backends/gpu/_loader.py",
            "tests/kernels/test_kernel_sources.py",
            "tests/conftest.py",
        ),
        *("tests/emulator/cubins.py", "tests/kernel_exceptions.toml"),
    ),
    "test_barriers": (*EMULATOR, "tests/kernels/test_barriers.py", "tests/emulator/drivers"),
    "test_gpu_likelihood": (*EMULATOR, "tests/kernels/test_gpu_likelihood.py"),
}
OUTCOMES = ("passed", "failed", "skipped", "emulated")
RUN = [sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "--sweep", "-m", "sweep"]


def main() -> int:
    parser = argparse.ArgumentParser(description="The tests marked sweep, in pieces.")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no piece after so long")
    parser.add_argument("--processes", type=int, default=1, help="of pytest-xdist")
    parser.add_argument("--only", default="", help="pieces with this in their name")
    parser.add_argument("--list", action="store_true", help="show the pieces and run none")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    everything = pieces()
    chosen = {name: tests for name, tests in everything.items() if options.only in name}
    for name, tests in chosen.items():
        known = outcome_of(name)
        if options.list:
            print(f"{name}: {len(tests)} tests, {'not run' if known is None else summary(known)}")
        elif known is None and time.monotonic() < end:
            print(f"{name}: {len(tests)} tests", flush=True)
            print(f"    {summary(run(name, tests, options.processes))}", flush=True)
            LOG.write_text(log(everything), encoding="utf-8")
    if not options.list:
        LOG.write_text(log(everything), encoding="utf-8")
    outcomes = [outcome for name in chosen if (outcome := outcome_of(name)) is not None]
    return int(any(outcome["failed"] for outcome in outcomes))


def pieces() -> dict[str, list[str]]:
    """The sweep's tests by piece, in the order of collection."""
    done = subprocess.run([*RUN, "--collect-only"], cwd=ROOT, capture_output=True, text=True, check=False)
    tests = [line for line in done.stdout.splitlines() if "::" in line and line.startswith("tests/")]
    if done.returncode != 0 or not tests:
        raise RuntimeError(done.stdout + done.stderr)
    found: dict[str, list[str]] = {}
    for test in tests:
        stem = Path(test.partition("::")[0]).stem
        number = 1 + sum(len(found[name]) == LARGEST for name in found if name.rpartition("-")[0] == stem)
        found.setdefault(f"{stem}-{number}", []).append(test)
    return found


def run(name: str, tests: list[str], processes: int) -> dict[str, Any]:
    """The outcome of a piece, which is kept."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    report = FOLDER / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [*RUN, f"--junitxml={report}", *(["-n", str(processes)] if processes > 1 else []), *tests]
    start = time.monotonic()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    outcome: dict[str, Any] = read(report) if report.exists() else {"failures": {"pytest itself": "no report"}}
    unseen = len(tests) - sum(outcome.get(word, 0) for word in OUTCOMES[:3])
    if unseen > 0:
        outcome["failures"]["pytest itself"] = f"{unseen} tests without outcome"
    outcome = dict.fromkeys(OUTCOMES, 0) | outcome | {"failed": len(outcome["failures"])}
    outcome |= {"key": key(name), "commit": commit(), "tests": tests}
    outcome["seconds"] = round(time.monotonic() - start, 1)
    (FOLDER / f"{name}.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
    return outcome


def read(report: Path) -> dict[str, Any]:
    """Counts and failures of pytest's report in XML."""
    cases = ET.parse(report).getroot().iter("testcase")
    counts = dict.fromkeys(OUTCOMES, 0)
    failures: dict[str, str] = {}
    for case in cases:
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            failures[f"{case.get('classname')}::{case.get('name')}"] = (bad.get("message") or "")[:200]
        elif case.find("skipped") is not None:
            counts["skipped"] += 1
        else:
            counts["passed"] += 1
            counts["emulated"] += any(p.get("name") == "emulated" for p in case.iter("property"))
    return {**counts, "failed": len(failures), "failures": failures}


def outcome_of(name: str) -> dict[str, Any] | None:
    """What is kept of a piece, if it ran with the sources as they are."""
    path = FOLDER / f"{name}.json"
    outcome: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return outcome if outcome is not None and outcome["key"] == key(name) else None


def key(piece: str = "") -> str:
    """Hash of all that a piece's tests run: for want of more the sources, the package and the tests."""
    return _hash_of(SOURCES_OF.get(piece.rpartition("-")[0], SOURCES))


@functools.cache
def _hash_of(paths: tuple[str, ...]) -> str:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    content = hashlib.sha256()
    for name in sorted(listed.stdout.splitlines()):
        path = ROOT / name
        if path.is_file() and path.suffix not in (".log", ".md") and path.name != "emulated_cases.toml":
            content.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return content.hexdigest()[:16]


@functools.cache
def commit() -> str:
    """The commit, with a "+" if sources differ from it."""
    head = ["git", "rev-parse", "--short=12", "HEAD"]
    changed = ["git", "status", "--porcelain", "--", "kernels", "maskerade_fast", "tests", ":!tests/emulator/sweep.log"]
    said = [subprocess.run(c, cwd=ROOT, capture_output=True, text=True, check=True).stdout for c in (head, changed)]
    return said[0].strip() + ("+" if said[1].strip() else "")


def summary(outcome: dict[str, Any]) -> str:
    counts = ", ".join(f"{outcome[word]} {word}" for word in OUTCOMES)
    return f"{counts}, {outcome['seconds']} s"


def log(everything: dict[str, list[str]]) -> str:
    """The log: what has run of the sweep, and what has not."""
    outcomes = {name: outcome_of(name) for name in everything}
    ran = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
    total = {word: sum(outcome[word] for outcome in ran.values()) for word in (*OUTCOMES, "seconds")}
    least = tomllib.loads((ROOT / "tests" / "emulated_cases.toml").read_text(encoding="utf-8"))["sweep"]
    lines = [
        "The sweep over CUDA variants: python tests/emulator/sweep.py",
        f"commit {', '.join(sorted({outcome['commit'] for outcome in ran.values()})) or commit()}",
        f"sources {key()}",
        f"written {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}",
        f"machine {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        f"{len(ran)} of {len(everything)} pieces, "
        f"{sum(len(o['tests']) for o in ran.values())} of {sum(map(len, everything.values()))} tests",
        f"total: {summary(total | {'seconds': round(total['seconds'], 1)})}",
    ]
    if len(ran) == len(everything) and total["emulated"] < least:
        lines.append(f"TOO FEW: {total['emulated']} emulated cases, expected {least} or more")
    lines.append("")
    for name, tests in everything.items():
        outcome = outcomes[name]
        lines.append(f"{name}: {f'{len(tests)} tests not run' if outcome is None else summary(outcome)}")
        if outcome is not None:
            lines += [f"    FAILED {test}: {' '.join(why.split())}" for test, why in outcome["failures"].items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
