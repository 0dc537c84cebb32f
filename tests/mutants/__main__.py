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
import threading
import time
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
        return known(noticed_before(options.quick), options.jobs)
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
        work(missing, kept, options, end)
        if not any(kept.get(drawing.key(place), {}).get("status") == "unfit" for place in missing):
            break
    record.keep_only({drawing.key(place) for place in drawn}, options.group, options.seed)
    if not sound(record.read(), options.group):
        return 1
    open_ones = [place for place in drawn if not record.settled(kept.get(drawing.key(place)))]
    for place in open_ones:
        print(record.described(place, kept.get(drawing.key(place))))
    print(f"{len(drawn)} faults, {len(open_ones)} without a test or an argument")
    return int(bool(open_ones))


def sound(kept: dict[str, Any], groups: list[str]) -> bool:
    """Whether the tests that noticed faults pass in a copy of the tree without any: else they have noticed nothing."""
    tests = sorted({e["test"] for e in kept.values() if e["status"] == "killed" and e["group"] in groups})
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        return passes(trials.Workplace(Path(folder) / "tree"), tests)


def passes(workplace: trials.Workplace, tests: list[str]) -> bool:
    """Whether tests pass without a fault; says which does not."""
    outcome = workplace.run(tests)
    if outcome.status != "survived":
        print(f"without any fault: {outcome.test or 'a test that is there no more'}: {outcome.how}")
    return outcome.status == "survived"


def stop(number: int, frame: Any) -> None:
    """End the tests that run, which know nothing of a signal to this process; what is recorded stays."""
    for process in list(trials.RUNNING):
        trials.with_all_children(process)
    os._exit(128 + number)


def work(places: list[Place], kept: dict[str, Any], options: argparse.Namespace, end: float) -> None:
    """Try the places in so many copies of the tree at once."""
    waiting: queue.SimpleQueue[Place] = queue.SimpleQueue()
    for place in places:
        waiting.put(place)
    writing = threading.Lock()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:

        def worker(number: int) -> None:
            workplace = trials.Workplace(Path(folder) / f"tree{number}")
            while time.monotonic() < end:
                try:
                    place = waiting.get_nowait()
                except queue.Empty:
                    return
                outcome = workplace.trial(place, options.whole)
                with writing:
                    record.add(kept, place, outcome, options.seed)
                    print(record.described(place, kept[drawing.key(place)]), flush=True)

        run_all(worker, options.jobs)


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


def known(places: list[tuple[Place, str]], jobs: int) -> int:
    """Try faults by the tests that noticed them before."""
    start = time.monotonic()
    waiting: queue.SimpleQueue[tuple[Place, str]] = queue.SimpleQueue()
    for pair in places:
        waiting.put(pair)
    unnoticed: list[str] = []
    done: list[Place] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:

        def worker(number: int) -> None:
            workplace = trials.Workplace(Path(folder) / f"tree{number}")
            if number == 0 and not passes(workplace, [test for _, test in places]):
                unnoticed.append("the tests fail without a fault")
            while not waiting.empty():
                try:
                    place, test = waiting.get_nowait()
                except queue.Empty:
                    return
                found = workplace.noticed(place, test)
                if found is not None:
                    done.append(place)
                if found is False:
                    unnoticed.append(f"{place.file}: {place.old.strip()} -> {place.new.strip()}: not noticed by {test}")

        run_all(worker, jobs)
    print(*unnoticed, sep="\n" if unnoticed else "")
    print(f"{len(done)} faults, {len(unnoticed)} not noticed, {time.monotonic() - start:.0f} s")
    if len(done) < QUICK_LEAST:
        print(f"expected {QUICK_LEAST} faults or more: run python tests/mutants, whose results are out of date")
    return int(bool(unnoticed) or len(done) < QUICK_LEAST)


def run_all(worker: Any, jobs: int) -> None:
    """Run the worker in so many threads; what one raises is raised here."""
    problems: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            worker(number)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/mutants", description="Faults in the sources, and the tests.")
    parser.add_argument("--seed", type=int, default=16, help="of the places that are drawn")
    parser.add_argument("--group", nargs="+", choices=list(rules.RULES), default=list(rules.RULES))
    parser.add_argument("--jobs", type=int, default=2, help="faults tried at once, each in a copy of the tree")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no fault after so long")
    parser.add_argument("--whole", action="store_true", help="run all tests, not those near a fault alone")
    parser.add_argument("--list", action="store_true", help="show what is drawn, and what is known of it")
    parser.add_argument("--again", help="forget the outcomes that have this word in them (survived, a file, a kind)")
    parser.add_argument("--known", action="store_true", help="faults of the record, each by the test that noticed it")
    parser.add_argument("--quick", action="store_true", help="faults that need no compiler, by their known tests")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
