"""Put small faults into the sources, one at a time, and see which test notices each.

    python tests/mutants [--seed 16] [--group gpu cpu] [--jobs 2] [--minutes M] [--list] [--again WORD] [--whole]
    python tests/mutants --known          every fault of the record, each by the test it fails
    python tests/mutants --quick          what .ci/run does: faults that need no compiler, each by the test it fails

Results are kept in bench/results/mutants.json and written after every fault: a run that is cut off goes on where it
was. A fault that no test notices needs a test, or an ``argument`` in that file for why nothing can notice it; it stays
there for as long as the fault is drawn. Exit status 1 if one has neither. tests/mutants/rules.py has the kinds.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import drawing
import record
import rules
import trials
from rules import Place

QUICK_SECONDS = 8.0  # the longest single test of a quick run
QUICK_TOTAL = 80.0  # of all their tests, one after another, when they were recorded
QUICK_LEAST = 24  # faults of a quick run, fewer of which say that the file is out of date


def main() -> int:
    options = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    if options.quick or options.known:
        return try_again(noticed_before(options.quick), options.jobs)
    kept = record.read()
    if options.again:
        kept = {key: entry for key, entry in kept.items() if options.again not in json.dumps(entry)}
    end = time.monotonic() + 60 * options.minutes
    while True:
        unfit = frozenset(key for key, entry in kept.items() if entry["status"] == "unfit")
        drawn = [place for group in options.group for place in drawing.faults(group, options.seed, unfit)]
        missing = [place for place in drawn if not record.settled(kept.get(drawing.key(place)))]
        if options.list:
            for place in drawn:
                print(record.described(place, kept.get(drawing.key(place))))
            return 0
        if not missing or time.monotonic() > end:
            break
        try_new(missing, kept, options, end)
        if not any(kept.get(drawing.key(place), {}).get("status") == "unfit" for place in missing):
            break
    record.keep_only({drawing.key(place) for place in drawn}, options.group, options.seed)
    killed = [e["test"] for e in record.read().values() if e["status"] == "killed" and e["group"] in options.group]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        if not passes(trials.Workplace(Path(folder) / "tree"), killed):
            return 1
    open_ones = [place for place in drawn if not record.settled(kept.get(drawing.key(place)))]
    for place in open_ones:
        print(record.described(place, kept.get(drawing.key(place))))
    print(f"{len(drawn)} faults, {len(open_ones)} without a test or an argument")
    return int(bool(open_ones))


def passes(workplace: trials.Workplace, tests: list[str]) -> bool:
    """Whether the tests that noticed faults pass without any: else they have noticed nothing. Says which does not."""
    outcome = workplace.run(sorted(set(tests)))
    if outcome.status != "survived":
        print(f"without any fault: {outcome.test or 'a test that is there no more'}: {outcome.how}")
    return outcome.status == "survived"


def stop(number: int, frame: Any) -> None:
    """End the tests that run, which a signal to this process does not reach; what is recorded stays."""
    for process in list(trials.RUNNING):
        trials.with_all_children(process)
    os._exit(128 + number)


def in_copies(
    act: Callable[[trials.Workplace, Any], Any], items: Iterable[Any], jobs: int
) -> Iterator[tuple[Any, Any]]:
    """Each item and what `act` returns for it, in the order of their ends; in so many copies of the tree at once."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        free: queue.SimpleQueue[trials.Workplace] = queue.SimpleQueue()
        for number in range(jobs):
            free.put(trials.Workplace(Path(folder) / f"tree{number}"))

        def one(item: Any) -> tuple[Any, Any]:
            workplace = free.get()
            try:
                return item, act(workplace, item)
            finally:
                free.put(workplace)

        for future in as_completed([pool.submit(one, item) for item in items]):
            yield future.result()


def try_new(places: list[Place], kept: dict[str, Any], options: argparse.Namespace, end: float) -> None:
    """Run tests on each fault, and record the outcome; none begins after `end`."""

    def act(workplace: trials.Workplace, place: Place) -> trials.Outcome | None:
        return workplace.trial(place, options.whole) if time.monotonic() < end else None

    for place, outcome in in_copies(act, places, options.jobs):
        if outcome is not None:
            record.add(kept, place, outcome, options.seed)
            print(record.described(place, kept[drawing.key(place)]), flush=True)


def noticed_before(quick: bool) -> list[tuple[Place, str]]:
    """Faults of the record that some test noticed, with that test; for a quick run those that need no compiler."""
    chosen: list[tuple[Place, str]] = []
    total = 0.0
    for entry in sorted(record.read().values(), key=lambda entry: entry.get("seconds_alone") or 1e9):
        place = record.place_of(entry)
        alone = entry.get("seconds_alone") or 1e9
        path = rules.ROOT / place.file
        if entry["status"] != "killed" or not path.exists() or place.old not in path.read_text("utf-8").split("\n"):
            continue
        if quick:
            crash = "exit status" in (entry.get("how") or "")  # which need not come again
            if crash or not place.file.endswith(rules.PYTHON) or alone > QUICK_SECONDS or total + alone > QUICK_TOTAL:
                continue
            total += alone
        chosen.append((place, entry["test"]))
    return chosen


def try_again(places: list[tuple[Place, str]], jobs: int) -> int:
    """Try faults by the tests that noticed them before; exit status 1 if one does not, or too few are left."""
    start = time.monotonic()
    everything: list[tuple[Place, str] | None] = [None, *places]  # None: all the tests, without a fault

    def act(workplace: trials.Workplace, pair: tuple[Place, str] | None) -> bool | None:
        return passes(workplace, [test for _, test in places]) if pair is None else workplace.noticed(*pair)

    outcomes = list(in_copies(act, everything, jobs))
    for pair, noticed in outcomes:
        if pair is not None and noticed is False:
            place, test = pair
            print(f"{place.file}: {place.old.strip()} -> {place.new.strip()}: not noticed by {test}")
    tried = [noticed for pair, noticed in outcomes if pair is not None and noticed is not None]
    bad = sum(noticed is False for _, noticed in outcomes)
    print(f"{len(tried)} faults, {tried.count(False)} not noticed, {time.monotonic() - start:.0f} s")
    if len(tried) < QUICK_LEAST:
        print(f"expected {QUICK_LEAST} faults or more: run python tests/mutants, whose results are out of date")
    return int(bool(bad) or len(tried) < QUICK_LEAST)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/mutants", description="Faults in the sources, and the tests.")
    parser.add_argument("--seed", type=int, default=16, help="of the places that are drawn")
    parser.add_argument("--group", nargs="+", choices=list(rules.RULES), default=list(rules.RULES))
    parser.add_argument("--jobs", type=int, default=2, help="faults tried at once, each in a copy of the tree")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no fault after so long")
    parser.add_argument("--whole", action="store_true", help="run all tests, not those near a fault alone")
    parser.add_argument("--list", action="store_true", help="show what is drawn, with the outcomes so far")
    parser.add_argument("--again", help="forget the outcomes that have this word in them (survived, a file, a kind)")
    parser.add_argument("--known", action="store_true", help="faults of the record, each by the test that noticed it")
    parser.add_argument("--quick", action="store_true", help="of these the faults that need no compiler")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
