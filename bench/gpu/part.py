"""One part of bench/gpu_check.py in a process of its own; it prints results as lines that begin with a mark.

python bench/gpu/part.py ceilings|compile|rows|variants [--seconds S] [--skip '["item", ...]'] [--dry-run]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]


MARGIN = 1.0  # seconds between the last item's end and the cut from outside


def main() -> None:
    start = time.monotonic()
    parser = argparse.ArgumentParser(description="One part of the checks of a card.")
    parser.add_argument("part", choices=["ceilings", "compile", "rows", "variants"])
    parser.add_argument("--seconds", type=float, help="time for it (default: as long as it takes)")
    parser.add_argument("--skip", type=json.loads, default=[], help="items to leave out, a list in JSON")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    from gpu.report import Lines

    lines = Lines()
    if options.part == "compile":
        from gpu import compiling

        compiling.compile_all(options.dry_run, lines, options.skip)
        return
    if options.dry_run:
        from gpu import dry

        dry.install()
    from gpu import card, ceilings, compare, rows
    from gpu.clock import Clock
    from gpu.items import work_through

    spent = time.monotonic() - start + MARGIN
    clock = Clock(None if options.seconds is None else options.seconds - spent, dry=options.dry_run)
    described = card.describe()
    items = {"ceilings": ceilings.items, "rows": rows.items, "variants": compare.items}[options.part](clock, described)
    work_through([item for item in items if item.name not in options.skip], clock, lines)


if __name__ == "__main__":
    main()
