"""One command for a machine with a card: ceilings, times, tests; written down as they come.

    python bench/gpu_check.py --seconds 360 --out FOLDER             the most telling first
    python bench/gpu_check.py --seconds 260 --rest FOLDER            what the first has not done, failed or been cut at
    python bench/gpu_check.py --only rows,tests                     some parts
    python bench/gpu_check.py --dry-run          on the emulator, no card needed: shows that the script runs

Needs what the package needs, cupy and pytest. Writes <card>.json and <card>.md into --out after every figure: a
run that is cut off leaves what it had. bench/README.md says what the figures are. Exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

TIMETABLE = {
    "compile": 45.0,
    "ceilings": 10.0,
    "smoke": 15.0,
    "rows": 120.0,
    "end_to_end": 70.0,
    "tests": 90.0,
    "sanitizer": 100.0,
}
"""Parts in their order, and the seconds that each may take of ten minutes: those that it leaves go to the parts after
it. Where there is more time than all parts together have, each gets more in proportion; where there is less, the last
parts are left to a run with --rest."""
GRACE = 5.0  # seconds before the end at which a run that hangs is cut
LEAST = 5.0  # seconds below which a part is not begun


class Timetable:
    """When each of the parts has to end; a dry run takes as long as it takes."""

    def __init__(self, parts: list[str], seconds: float | None, start: float) -> None:
        self.start = start
        self.seconds = seconds
        total = sum(TIMETABLE[part] for part in parts)
        scale = 1.0 if seconds is None else max(1.0, (seconds - 2 * GRACE) / total)
        self.ends: dict[str, float] = {}
        for part in parts:
            self.ends[part] = scale * TIMETABLE[part] + max(self.ends.values(), default=0.0)

    def limit(self, part: str) -> float | None:
        """Seconds that a part has from now on."""
        if self.seconds is None:
            return None
        return min(self.ends[part], self.seconds - 2 * GRACE) - (time.monotonic() - self.start)


def main() -> int:
    options = arguments()
    start = time.monotonic()
    keep_compiled()
    with tempfile.TemporaryDirectory() as cache:
        if options.dry_run:
            os.environ["CUPY_CACHE_DIR"] = cache  # the stand-in's, which begins empty
            from bench.gpu import dry

            dry.install()
        return run(options, start)


def keep_compiled() -> None:
    """Have folders for compiled code, where the usual ones cannot be written: CuPy would not even be imported."""
    home = Path(os.path.expanduser("~"))
    tree = ROOT / "maskerade_fast"
    usual = {"CUPY_CACHE_DIR": [home / ".cupy" / "kernel_cache"], "NUMBA_CACHE_DIR": [tree, home / ".cache" / "numba"]}
    for name, folders in usual.items():
        if not os.environ.get(name) and not any(map(can_write, folders)):
            folder = Path(tempfile.gettempdir(), f"maskerade_fast-gpu_check-{name.lower()}")
            folder.mkdir(exist_ok=True)  # a second run finds what is there
            os.environ[name] = str(folder)


def can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def run(options: argparse.Namespace, start: float) -> int:
    from bench.gpu import card, children
    from bench.gpu.report import KIND, Report, resumable, say
    from bench.surroundings import commit

    described = card.describe()
    if options.dry_run:
        described["name"] = "emulator, no card"
    header: dict[str, Any] = {
        "kind": KIND,
        "dry_run": options.dry_run,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": options.commit or commit(),
        "sources": card.sources(),
        "limit_s": options.seconds,
        "parts": options.only,
        "card": described,
        "state_before": card.state(),
        "versions": card.versions() | {"cupy_module": sys.modules["cupy"].__version__},
    }
    try:
        earlier = None if options.rest is None else resumable(options.rest, described["name"])
    except (OSError, ValueError) as error:
        sys.exit(f"--rest: {error}")
    report = Report(options.out, header, earlier)
    say(f"{described['name']}: writing {report.json}")
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: cut(report, "cut off from outside"))
    watchdog = threading.Timer(options.seconds - GRACE, cut, [report, "cut off at the time limit"])
    watchdog.daemon = True
    if not options.dry_run:
        watchdog.start()
    parts = left(options.only, report)
    run_parts(parts, Timetable(parts, None if options.dry_run else options.seconds, start), report)
    watchdog.cancel()
    children.kill_all()
    report.content["state_after"] = card.state()
    report.content["run_seconds"] = time.monotonic() - start
    not_begun = report.content.get("not_begun")
    report.finish("yes" if not not_begun else f"no: the time was up before {', '.join(not_begun)}")
    say(f"{len(report.content['failures'])} failures; {report.markdown}")
    return 1 if report.content["failures"] else 0


def left(parts: list[str], report: Any) -> list[str]:
    """Those of `parts` that an earlier run has not finished; kernels that this machine lacks are compiled again."""
    return [part for part in parts if not (compiled_before(report) if part == "compile" else report.all_finished(part))]


def compiled_before(report: Any) -> bool:
    """Whether an earlier run has compiled all kernels, and this machine still has them."""
    from bench.gpu import card

    kernels = report.content["compile"].get("kernels", {})
    return 0 < kernels.get("in_cache_after", 0) <= card.cached()


def run_parts(parts: list[str], timetable: Timetable, report: Any) -> None:
    """Parts in the timetable's order; those after `compile` find their kernels compiled."""
    from bench.gpu import card, checks
    from bench.gpu.report import say

    if not report.dry and {"end_to_end", "tests"} & set(parts):
        checks.begin_warm_up()
    for part in parts:
        limit = timetable.limit(part)
        if limit is not None and limit < LEAST:
            report.content["not_begun"] = [*report.content.get("not_begun", []), part]
            continue
        say(f"== {part}, {'no limit' if limit is None else f'{limit:.0f} s'}")
        before, start = card.cached(), time.monotonic()
        run_part(part, limit, report)
        spent = {"part_seconds": time.monotonic() - start, "compiled": card.cached() - before}
        report.put("spent", **{part: spent})


def run_part(part: str, limit: float | None, report: Any) -> None:
    from bench.gpu import checks, children

    if hasattr(checks, f"run_{part}"):
        getattr(checks, f"run_{part}")(report, limit)
    else:
        # compile all again, whatever another machine may have
        children.run_items(part, limit, report, set() if part == "compile" else report.finished(part))


def cut(report: Any, why: str) -> None:
    """End a run that has used its time: a call that hangs on the card cannot be ended otherwise."""
    from bench.gpu import children
    from bench.gpu.report import say

    try:
        report.finish(f"no: {why}", last=True)
        say(f"{why}; {report.json}")
        children.kill_all()
    finally:
        os._exit(1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Checks and times of the CUDA backend on this machine's card.")
    parser.add_argument("--seconds", type=float, default=600.0, help="time for everything (default: 600)")
    parser.add_argument("--out", type=Path, help="folder of the results (default: build/bench/gpu, or that of --rest)")
    parser.add_argument("--rest", type=Path, help="results of an earlier run, or their folder: go on with what is left")
    parser.add_argument("--only", default=",".join(TIMETABLE), help=f"parts to run (default: {','.join(TIMETABLE)})")
    parser.add_argument("--commit", help="what is measured, where the tree is no repository")
    parser.add_argument("--dry-run", action="store_true", help="on the emulator at tiny sizes; no figures, no limits")
    options = parser.parse_args()
    parts = options.only.split(",")
    if unknown := set(parts) - set(TIMETABLE):
        parser.error(f"--only: {', '.join(sorted(unknown))}, expected some of {', '.join(TIMETABLE)}")
    if options.seconds < 30:
        parser.error(f"--seconds: {options.seconds:g}, expected 30 or more")
    options.only = [part for part in TIMETABLE if part in parts]
    if options.out is None and options.rest is not None:
        options.out = options.rest if options.rest.is_dir() else options.rest.parent
    elif options.out is None:
        options.out = ROOT / "build" / "bench" / ("dry-run" if options.dry_run else "gpu")
    return options


if __name__ == "__main__":
    sys.exit(main())
