"""One command for a machine with a card: tests, times, open questions; in minutes, written down as it goes.

    python bench/gpu_check.py [--seconds 300] [--out bench/results] [--only smoke,rows,questions,tests,...]
    python bench/gpu_check.py --dry-run          on the emulator, no card needed: shows that the script runs

Needs numpy, scipy, cupy, numba and pytest. Writes <card>.json and <card>.md into --out after every figure: a
run that is cut off leaves what it had. bench/README.md says what the figures are. Exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCH), str(BENCH.parent)]

PARTS = ("smoke", "rows", "questions", "tests", "sanitizer", "end_to_end")  # in this order
ON_DEMAND = ("profile",)
SHARES = {"smoke": 0.2, "tests": 0.5, "sanitizer": 0.5, "end_to_end": 1.0, "profile": 1.0}
"""Of the time that is left, the most that a part may take; what it does not take goes to those after it."""
GRACE = 5.0  # seconds before the end at which a run that hangs is cut


def main() -> int:
    options = arguments()
    if options.dry_run:
        from gpu import dry

        dry.install()
    from conftest import commit
    from gpu import card
    from gpu.clock import Clock
    from gpu.report import Report

    described = card.describe()
    if options.dry_run:
        described["name"] = "emulator, no card"
    header: dict[str, Any] = {
        "kind": "maskerade_fast gpu_check",
        "dry_run": options.dry_run,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": options.commit or commit(),
        "limit_s": options.seconds,
        "parts": options.only,
        "card": described,
        "state_before": card.state(),
        "versions": card.versions() | {"cupy_module": sys.modules["cupy"].__version__},
    }
    report = Report(options.out, header)
    print(f"{described['name']}: writing {report.json}", flush=True)
    clock = Clock(options.seconds, dry=options.dry_run)
    watchdog = threading.Timer(max(0.1, clock.left() - GRACE), cut, [report])
    watchdog.daemon = True
    watchdog.start()
    run_parts(options, clock, report, described)
    watchdog.cancel()
    report.content["state_after"] = card.state()
    report.content["run_seconds"] = time.monotonic() - clock.start
    report.finish("yes")
    print(f"{len(report.content['failures'])} failures; {report.markdown}", flush=True)
    return 1 if report.content["failures"] else 0


def run_parts(options: argparse.Namespace, clock: Any, report: Any, described: dict[str, Any]) -> None:
    """The parts that were asked for."""
    from gpu import checks, questions, rows

    for part in (*PARTS, *ON_DEMAND):
        if part not in options.only:
            continue
        if part == "rows":
            rows.measure_all(rows.all_cases(clock.dry), clock, report, described)
        elif part == "questions":
            questions.ask_all(clock, report, options.fatbin)
        else:
            limit = (clock.left() - 2 * GRACE) * (SHARES[part] if part != options.only[-1] else 1.0)
            if limit < 5.0:
                report.put(part, left_out=f"{clock.left():.0f} s left")
            else:
                getattr(checks, f"run_{part}")(clock, report, limit)


def cut(report: Any) -> None:
    """End a run that has used its time: a call that hangs on the card cannot be ended otherwise."""
    for _ in range(5):
        try:
            report.finish("no: cut off at the time limit")
            break
        except RuntimeError:  # the other thread was writing in the dictionaries
            time.sleep(0.05)
    print(f"cut off at the time limit; {report.json}", flush=True)
    os._exit(1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Checks and times of the CUDA backend on this machine's card.")
    parser.add_argument("--seconds", type=float, default=300.0, help="time for everything (default: 300)")
    parser.add_argument("--out", type=Path, help="folder of the results (default: bench/results)")
    parser.add_argument(
        "--only",
        default=",".join(PARTS),
        help=f"parts to run (default: {','.join(PARTS)}; also: {','.join(ON_DEMAND)})",
    )
    parser.add_argument("--commit", help="what is measured, where the tree is no repository")
    parser.add_argument("--fatbin", type=Path, help="a fatbin of bench/gpu/questions.cu made elsewhere by nvcc")
    parser.add_argument("--dry-run", action="store_true", help="on the emulator at tiny sizes; no figures")
    options = parser.parse_args()
    known = (*PARTS, *ON_DEMAND)
    if unknown := set(asked := options.only.split(",")) - set(known):
        parser.error(f"--only: {', '.join(sorted(unknown))}, expected some of {', '.join(known)}")
    options.only = [part for part in known if part in asked]
    if options.out is None:
        options.out = BENCH.parent / "build" / "gpu_check" if options.dry_run else BENCH / "results"
    return options


if __name__ == "__main__":
    sys.exit(main())
