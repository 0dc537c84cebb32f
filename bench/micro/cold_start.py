"""What a start of the command line takes, cold and warm: ``python -m bench.micro.cold_start [--runs 5]``.

The command is the first of README.md, with and without its picture. Cold: in an empty folder for compiled code. Warm:
the same command again. Clock and processor time are of the command with its children; "before the first likelihood" is
the processor time of the command from its start until it calls the first likelihood. Medians of all runs; the clock of
a cold start needs two idle cores.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from bench import ROOT

COMMAND = ["fit", str(ROOT / "examples" / "airline.csv"), "--test-fraction", "0.1", "--device", "cpu", "--quiet"]
# Ends the command at its first likelihood and prints the processor time until then
FIRST = """
import os, sys, time
from maskerade_fast.backends import cpu

def first(*args, **kwargs):
    print(time.process_time())
    sys.stdout.flush()
    os._exit(0)

cpu.log_likelihood = first
from maskerade_fast.cli import main
main(sys.argv[1:])
"""


def timed(command: list[str], cache: str) -> tuple[float, float]:
    """Seconds by the clock, and of the processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, env={**os.environ, "NUMBA_CACHE_DIR": cache}, check=True, cwd=cache)
    clock = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def before_first_likelihood(cache: str) -> float:
    """Processor seconds of a warm command."""
    command = [sys.executable, "-c", FIRST, *COMMAND]
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=cache)
    return float(done.stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="of which the medians are (default 5)")
    runs = parser.parse_args().runs
    program = [sys.executable, "-m", "maskerade_fast", *COMMAND]
    rows: dict[str, list[tuple[float, float]]] = {}
    first = []
    for _ in range(runs):
        for name, options in (("with --plot", ["--plot", "airline.png"]), ("without", [])):
            with tempfile.TemporaryDirectory() as cache:
                rows.setdefault(f"cold, {name}", []).append(timed(program + options, cache))
                rows.setdefault(f"warm, {name}", []).append(timed(program + options, cache))
                if not options:
                    first.append(before_first_likelihood(cache))
    print("| start | clock, s | processors, s |\n| --- | --- | --- |")
    for name, times in rows.items():
        clock, spent = (statistics.median(values) for values in zip(*times, strict=True))
        print(f"| {name} | {clock:.2f} | {spent:.2f} |")
    print(f"| warm, before the first likelihood | | {statistics.median(first):.2f} |")


if __name__ == "__main__":
    main()
