"""Every kernel that the later parts load, compiled at once by several processes into CuPy's disk cache.

The list is not written down anywhere: `noted` lets the backend walk through all that the parts will call, without a
launch, and tells which instances (source, entry, macros) it asks for. The same walks make CuPy compile its own kernels
and those of the baselines. A key of CuPy's cache holds the options, the architecture, the compiler's version and the
text, and nothing of the process.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

from .report import Lines

MOST_PROCESSES = 14  # each has a CUDA context


class Instance(NamedTuple):
    variant: int
    """Number of the variant among those to be compared, -1 for the default."""
    source: str
    entry: str
    defines: tuple[tuple[str, int], ...]


def processes(dry: bool) -> int:
    """All cores that this process may use but two."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2, min(2 if dry else MOST_PROCESSES, cores - 2))


def compile_all(dry: bool, report: Lines, skip: list[str]) -> None:
    """Walk and compile in a pool of processes; what a walk finds is compiled while others are under way.

    Where `skip` has "variants" theirs are left out.
    """
    start = time.monotonic()
    prepare(dry)
    from .card import cached

    name, seen, before = "kernels", set[Instance](), cached()
    entry: dict[str, Any] = {"processes": processes(dry), "in_cache_before": before, "slowest_seconds": {}}
    print(f"compiling in {entry['processes']} processes", flush=True)
    report.items([name])
    report.begin(name)
    failures: list[str] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(entry["processes"], context, initializer=prepare, initargs=(dry,)) as pool:
        working: dict[Future[Any], str] = {}
        walking: dict[Future[Any], str] = {}
        every = list(enumerate(walks(dry)))
        waiting = [[pair for pair in every if (pair[1].variant >= 0) is late] for late in (False, True)]
        if "variants" in skip:
            waiting.pop()
        try:
            while working or waiting:
                if waiting and not any(future in walking for future in working):  # variants after the default
                    walking = {pool.submit(walk, number, dry): one.name for number, one in waiting.pop(0)}
                    working.update(walking)
                done, _ = wait(working, return_when=FIRST_COMPLETED)
                for future in done:
                    what = working.pop(future)
                    found, seconds, error = future.result()
                    if error.startswith(("OutOfMemoryError", "MemoryError")):  # many processes at once
                        entry["short_of_memory"] = [*entry.get("short_of_memory", []), what]
                    elif error:
                        failures.append(f"{what}: {error}")
                    new = sorted(set(found) - seen)
                    seen.update(new)
                    for jobs in batches(new, dry):
                        working[pool.submit(compile_instances, jobs, dry)] = " ".join(map(str, jobs[0][:3]))
                    slowest = {**entry["slowest_seconds"], what: seconds}
                    entry["slowest_seconds"] = dict(sorted(slowest.items(), key=lambda item: -item[1])[:8])
                entry.update(instances=len(seen), waiting=len(working), compile_seconds=time.monotonic() - start)
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


def batches(instances: list[Instance], dry: bool) -> list[list[Instance]]:
    """Each compiled by itself; the emulator compiles all entries of a text together."""
    if not dry:
        return [[instance] for instance in instances]
    groups = itertools.groupby(sorted(instances, key=text_of), text_of)
    return [list(group) for _, group in groups]


def text_of(instance: Instance) -> tuple[Any, ...]:
    return instance.variant, instance.source, instance.defines


# ---- in the processes of the pool ----


def prepare(dry: bool) -> None:
    """Before a process of the pool imports CuPy."""
    if dry:
        from . import dry as stand_in

        stand_in.install()


class Walk(NamedTuple):
    """A piece of the later parts."""

    name: str
    variant: int
    make: Callable[[], Any]
    """Makes a problem, by the default kernels."""
    call: Callable[[Any], Any]
    """Calls all that the piece will call, by those of the variant."""


def walks(dry: bool) -> list[Walk]:
    """All pieces, those of the default first."""
    from maskerade_fast.backends import gpu

    from . import driver, rows, variants
    from .clock import Clock

    def nothing() -> None:
        return None

    def walked(part: Callable[..., Any], _: Any) -> Any:
        return part(gpu, lambda *arrays: None)

    found = [Walk("clock", -1, nothing, lambda _: Clock(None, dry=dry))]
    for name, part in driver.WALKS.items():
        found.append(Walk(f"smoke: {name}", -1, nothing, functools.partial(walked, part)))
    for case in rows.all_cases(dry):
        found.append(Walk(case.name, -1, functools.partial(case.make, **case.sizes), rows.call_once))
    for number, variant in enumerate(every_variant(dry)):
        case = variants.case_of(variant.case, dry)
        made = functools.partial(case.make, **case.sizes)
        found.append(Walk(variants.label(variant), number, made, lambda row: row.ours()))
    return found


@functools.cache
def every_variant(dry: bool) -> list[Any]:
    """The variants to be compared, and those that sweeps are made of."""
    from . import compare

    variants, sweeps = compare.chosen(dry)
    return [*variants, *(sweep.together(changes) for sweep in sweeps for changes in sweep.combinations())]


def walk(number: int, dry: bool) -> tuple[list[Instance], float, str]:
    """Instances that a walk asks for, its seconds, and its error, if any: what it found by then counts all the same."""
    start = time.monotonic()
    found: list[Instance] = []
    try:
        one = walks(dry)[number]
        with noted(-1, found):
            made = one.make()
        with as_variant(one.variant, dry), noted(number_in_text(one.variant, dry), found):
            one.call(made)
    except Exception as error:
        return found, time.monotonic() - start, f"{type(error).__name__}: {error}"[:1500]
    finally:
        free()
    return found, time.monotonic() - start, ""


def free() -> None:
    """Give memory back: every process has a pool of its own."""
    import gc

    import cupy

    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()


def number_in_text(variant: int, dry: bool) -> int:
    """-1 for a variant whose kernels are compiled from the default's text."""
    changed = variant >= 0 and (every_variant(dry)[variant].texts or every_variant(dry)[variant].defines)
    return variant if changed else -1


def as_variant(variant: int, dry: bool) -> contextlib.AbstractContextManager[None]:
    from . import variants

    return variants.applied(every_variant(dry)[variant]) if variant >= 0 else contextlib.nullcontext()


@contextlib.contextmanager
def noted(variant: int, found: list[Instance]) -> Iterator[None]:
    """What the backend asks its loader for goes to `found` and is not compiled; its launches do nothing.

    New arrays hold -1 meanwhile, for a walk must not hang on what memory holds: as a variance it is one below zero,
    which takes a kernel of its own, and as an error of an interval one that is small enough.
    """
    import cupy

    from maskerade_fast.backends.gpu import _loader

    def note(device: int, source: str, entry: str, defines: tuple[tuple[str, int], ...]) -> Any:
        found.append(Instance(variant, source, entry, defines))
        return lambda *args, **kwargs: None

    def filled(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            out = make(*args, **kwargs)
            if out.dtype.kind in "fi":
                out.fill(-1)
            return out

        return made

    loader: Any = _loader
    before = (loader._kernel, cupy.empty, cupy.empty_like)
    loader._kernel, cupy.empty, cupy.empty_like = note, filled(cupy.empty), filled(cupy.empty_like)
    try:
        yield
    finally:
        loader._kernel, cupy.empty, cupy.empty_like = before


def compile_instances(instances: list[Instance], dry: bool) -> tuple[list[Instance], float, str]:
    """Compile some of one variant. Returns no new instances, seconds and the error, if any."""
    from maskerade_fast.backends.gpu import _loader

    start = time.monotonic()
    try:
        with as_variant(instances[0].variant, dry):
            for instance in instances:
                _loader.load(instance.source, instance.entry, **dict(instance.defines))
    except Exception as error:
        return [], time.monotonic() - start, f"{instance}: {type(error).__name__}: {error}"[-1500:]
    return [], time.monotonic() - start, ""
