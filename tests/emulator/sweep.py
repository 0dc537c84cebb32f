"""All tests marked ``sweep``, in pieces that can be run one by one.

    python tests/emulator/sweep.py [--minutes M] [--processes N] [--only TEXT] [--list]

A piece is up to `LARGEST` tests of a file. The outcome of each stays in ``build/sweep`` under a hash of all that its
tests run (`SOURCES`), so that a sweep which was cut off goes on, and one of other sources begins anew. The end of the
output is a summary with commit, counts, seconds and failures. Exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from sources import ROOT

FOLDER = ROOT / "build" / "sweep"
LARGEST = 40
SOURCES = ("kernels", "maskerade_fast", "tests", "bench/gpu")
BACKENDS = tuple(f"maskerade_fast/{name}" for name in ("backends", "_checks.py", "_memory.py", "errors.py"))
EMULATOR = (
    *("kernels", *BACKENDS, "tests/conftest.py", "tests/oracle", "tests/gpu_calls.py"),
    *("tests/emulator/*.hpp", "tests/emulator/emulate.py", "tests/emulator/fake_*.py", "tests/emulator/sanitize.py"),
)
SOURCES_OF = {  # tests that run no more than this: half an hour and more, which few changes touch
    "test_kernel_sources": (
        *("kernels", "maskerade_fast/backends/gpu/_loader.py", "tests/kernels/test_kernel_sources.py"),
        *("tests/conftest.py", "tests/emulator/cubins.py", "tests/kernel_exceptions.toml"),
    ),
    "test_barriers": (*EMULATOR, "tests/kernels/test_barriers.py", "tests/emulator/drivers"),
    "test_gpu_likelihood": (*EMULATOR, "tests/kernels/test_gpu_likelihood.py"),
}
COUNTS = ("passed", "failed", "skipped", "emulated")
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
    for name, tests in everything.items():
        if options.only in name and not options.list and outcome_of(name) is None and time.monotonic() < end:
            print(f"{name}: {len(tests)} tests", flush=True)
            print(f"    {text_of(run(name, tests, options.processes))}", flush=True)
    print(summary(everything))
    outcomes = [outcome_of(name) for name in everything if options.only in name]
    return int(any(outcome["failed"] for outcome in outcomes if outcome is not None))


def pieces() -> dict[str, list[str]]:
    """The sweep's tests by piece, in the order of collection."""
    done = subprocess.run([*RUN, "--collect-only"], cwd=ROOT, capture_output=True, text=True, check=False)
    tests = [line for line in done.stdout.splitlines() if "::" in line and line.startswith("tests/")]
    if done.returncode != 0 or not tests:
        raise RuntimeError(done.stdout + done.stderr)
    by_piece: dict[str, list[str]] = {}
    for test in tests:
        stem = Path(test.partition("::")[0]).stem
        number = 1 + sum(len(own) == LARGEST for name, own in by_piece.items() if name.rpartition("-")[0] == stem)
        by_piece.setdefault(f"{stem}-{number}", []).append(test)
    return by_piece


def run(name: str, tests: list[str], processes: int) -> dict[str, Any]:
    """The outcome of a piece, which is kept."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    report = FOLDER / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [*RUN, f"--junitxml={report}", *(["-n", str(processes)] if processes > 1 else []), *tests]
    start = time.monotonic()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    outcome: dict[str, Any] = read(report) if report.exists() else {"failures": {"pytest itself": "no report"}}
    missing = len(tests) - sum(outcome.get(word, 0) for word in COUNTS[:3])
    if missing > 0:
        outcome["failures"]["pytest itself"] = f"{missing} tests without outcome"
    outcome = dict.fromkeys(COUNTS, 0) | outcome | {"failed": len(outcome["failures"])}
    outcome |= {"key": key(name), "commit": commit(), "tests": tests, "seconds": round(time.monotonic() - start, 1)}
    (FOLDER / f"{name}.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
    return outcome


def read(report: Path) -> dict[str, Any]:
    """Counts and failures of pytest's report in XML."""
    counts = dict.fromkeys(COUNTS, 0)
    failures: dict[str, str] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
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


def key(piece: str) -> str:
    """Hash of all that a piece's tests run: for want of more the sources, the package and the tests."""
    return _hash_of(SOURCES_OF.get(piece.rpartition("-")[0], SOURCES))


@functools.cache
def _hash_of(paths: tuple[str, ...]) -> str:
    content = hashlib.sha256()
    for name in sorted(_git("ls-files", "-co", "--exclude-standard", *paths).splitlines()):
        path = ROOT / name
        if path.is_file() and path.suffix != ".md" and path.name != "emulated_cases.toml":
            content.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return content.hexdigest()[:16]


@functools.cache
def commit() -> str:
    """The commit, with a "+" if sources differ from it."""
    changed = _git("status", "--porcelain", "--", "kernels", "maskerade_fast", "tests")
    return _git("rev-parse", "--short=12", "HEAD").strip() + ("+" if changed.strip() else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def text_of(outcome: dict[str, Any]) -> str:
    return ", ".join(f"{outcome[word]} {word}" for word in COUNTS) + f", {outcome['seconds']:.0f} s"


def summary(everything: dict[str, list[str]]) -> str:
    """What has run of the sweep, and what has not."""
    outcomes = {name: outcome_of(name) for name in everything}
    ran = [outcome for outcome in outcomes.values() if outcome is not None]
    total = {word: sum(outcome[word] for outcome in ran) for word in (*COUNTS, "seconds")}
    lines = []
    for name, outcome in outcomes.items():
        lines.append(f"{name}: {f'{len(everything[name])} tests not run' if outcome is None else text_of(outcome)}")
        lines += [
            f"    FAILED {t}: {' '.join(why.split())}" for t, why in (outcome or {"failures": {}})["failures"].items()
        ]
    least = tomllib.loads((ROOT / "tests" / "emulated_cases.toml").read_text(encoding="utf-8"))["sweep"]
    if len(ran) == len(everything) and total["emulated"] < least:
        lines.append(f"TOO FEW: {total['emulated']} emulated cases, expected {least} or more")
    commits = ", ".join(sorted({outcome["commit"] for outcome in ran}))
    lines.append(f"{len(ran)} of {len(everything)} pieces at {commits or commit()}: {text_of(total)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
