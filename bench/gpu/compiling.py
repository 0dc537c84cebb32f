"""Every kernel that the later parts load, compiled by several processes into CuPy's disk cache.

Each process makes some of the calls that the parts will make, once. CuPy's cache then holds our kernels, its own and
those of the peers: a key of it holds the options, the architecture, the compiler's version and the text, and nothing
of the process.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from .report import Lines

MOST_PROCESSES = 14  # each has a CUDA context


def processes(dry: bool) -> int:
    """Return two less than the cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2, min(2 if dry else MOST_PROCESSES, cores - 2))


def compile_all(dry: bool, report: Lines) -> None:
    """Make all calls in a pool of processes."""
    start = time.monotonic()
    prepare(dry)
    from .card import cached

    name, before = "kernels", cached()
    entry: dict[str, Any] = {"processes": processes(dry), "in_cache_before": before, "slowest_seconds": {}}
    print(f"compiling in {entry['processes']} processes", flush=True)
    report.items([name])
    report.begin(name)
    failures: list[str] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(entry["processes"], context, initializer=prepare, initargs=(dry,)) as pool:
        names = list(calls(dry))
        working = {pool.submit(call, one, dry): one for one in names}
        try:
            for count, future in enumerate(as_completed(working), 1):
                seconds, error = future.result()
                if error.startswith(("OutOfMemoryError", "MemoryError")):  # many processes at once
                    entry["short_of_memory"] = [*entry.get("short_of_memory", []), working[future]]
                elif error:
                    failures.append(f"{working[future]}: {error}")
                slowest = {**entry["slowest_seconds"], working[future]: seconds}
                entry["slowest_seconds"] = dict(sorted(slowest.items(), key=lambda item: -item[1])[:8])
                entry.update(calls=count, waiting=len(names) - count, compile_seconds=time.monotonic() - start)
                report.put(name, entry)
        except BrokenProcessPool as error:
            failures.append(f"a process died: {error}")
    after = cached()
    entry.update(compile_seconds=time.monotonic() - start, in_cache_after=after, new_in_cache=after - before)
    entry["done"] = not failures
    for failure in failures:
        report.failure(name, failure)
        entry["failed"] = failure
    report.put(name, entry)
    report.end()


# ---- in the processes of the pool ----


def prepare(dry: bool) -> None:
    """Put the stand-in in the place of a card before a process imports CuPy."""
    if dry:
        from . import dry as stand_in

        stand_in.install()


def calls(dry: bool) -> dict[str, Callable[[], Any]]:
    """Return the calls by name: the clock, the driver's, the rows with their peers."""
    from maskerade_fast.backends import gpu

    from . import driver, rows
    from .clock import Clock

    named: dict[str, Callable[[], Any]] = {"clock": lambda: Clock(None, dry=dry)}
    for name, part in driver.WALKS.items():
        named[f"smoke: {name}"] = functools.partial(part, gpu, driver.finite)
    for case in rows.all_cases(dry):
        named[case.name] = functools.partial(rows.call_once, case)
    return named


def call(name: str, dry: bool) -> tuple[float, str]:
    """Make one of the calls; return its seconds, and its error if there was one."""
    import gc

    import cupy

    start, error = time.monotonic(), ""
    try:
        calls(dry)[name]()
        cupy.cuda.Device().synchronize()
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"[:1500]
    gc.collect()  # every process has a pool of its own
    with contextlib.suppress(Exception):
        cupy.get_default_memory_pool().free_all_blocks()
    return time.monotonic() - start, error
