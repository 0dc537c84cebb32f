"""One part of ``bench/gpu_check.py`` in a process of its own; it prints results as lines that begin with a mark.

    python -m bench.gpu.part ceilings|compile|rows [--seconds S] [--skip '["item", ...]'] [--dry-run]

A part works through named items one by one. An item that raises costs the others nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from bench.gpu.report import LOST, Lines

MARGIN = 1.0  # seconds between the last item's end and the cut from outside


def work_through(items: list[Any], clock: Any, report: Lines) -> None:
    """Measure every item that the time is enough for; end with status LOST where the CUDA context is lost."""
    from bench.gpu.clock import OutOfTime

    report.items([item.name for item in items])
    for item in items:
        print(item.name, flush=True)
        start = time.monotonic()
        entry: dict[str, Any] = {}
        report.begin(item.name)
        try:
            clock.require(item.seconds)
            for _ in item.fill(entry):
                report.put(item.name, entry)
            entry["done"] = "missing" not in entry
        except OutOfTime as stop:
            entry["left_out"] = str(stop)
        except Exception as error:  # the other items go on
            entry["failed"] = f"{type(error).__name__}: {error}"[:2000]
            report.failure(item.name, entry["failed"])
        entry["run_seconds"] = time.monotonic() - start
        report.put(item.name, entry)
        report.end()
        if context_lost():
            if "failed" not in entry:
                report.failure(item.name, "the CUDA context was lost at this item")
            sys.stdout.flush()
            os._exit(LOST)  # libraries that return their memory on exit would abort, or wait for the card


def context_lost() -> bool:
    """Return whether every later call of this process would fail, as after an illegal address."""
    import cupy

    try:
        cupy.cuda.Device().synchronize()
        cupy.get_default_memory_pool().free_all_blocks()
    except Exception:
        return True
    return False


def main() -> None:
    start = time.monotonic()
    parser = argparse.ArgumentParser(description="One part of the checks of a card.")
    parser.add_argument("part", choices=["ceilings", "compile", "rows"])
    parser.add_argument("--seconds", type=float, help="time for it (default: as long as it takes)")
    parser.add_argument("--skip", type=json.loads, default=[], help="items to leave out, a list in JSON")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    if options.part == "compile":
        from bench.gpu import compiling

        compiling.compile_all(options.dry_run, Lines())
        return
    if options.dry_run:
        from bench.gpu import dry

        dry.install()
    from bench.gpu import card, ceilings, clock, rows

    spent = time.monotonic() - start + MARGIN
    timer = clock.Clock(None if options.seconds is None else options.seconds - spent, dry=options.dry_run)
    described = card.describe()
    items = {"ceilings": ceilings.items, "rows": rows.items}[options.part](timer, described)
    work_through([item for item in items if item.name not in options.skip], timer, Lines())


if __name__ == "__main__":
    main()
