"""Named pieces of a part, worked through one by one: what one raises is not the others' loss."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cupy

from .clock import Clock, OutOfTime
from .report import LOST, Lines


class Item(NamedTuple):
    name: str
    seconds: float
    """What it takes and some more: where less is left, it is left out, and the report says so."""
    fill: Callable[[dict[str, Any]], Iterator[None]]
    """Fills its entry of the report, with a pause after each figure that is worth writing down; where the time was too
    short for a part of it, `missing` says which."""


def work_through(items: list[Item], clock: Clock, report: Lines) -> None:
    """Every item that the time is enough for; exit status LOST where an item has cost the process its CUDA context."""
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
        except Exception as error:  # one item's failure is not the others'
            entry["failed"] = f"{type(error).__name__}: {error}"[:2000]
            report.failure(item.name, entry["failed"])
        entry["run_seconds"] = time.monotonic() - start
        report.put(item.name, entry)
        report.end()
        if context_lost():
            if "failed" not in entry:
                report.failure(item.name, "the CUDA context was lost at this item")
            sys.stdout.flush()
            os._exit(LOST)  # libraries that put their memory back on the way out would abort, or wait for the card


def context_lost() -> bool:
    """Whether an error has come that every later call of this process would get, too: an illegal address, say."""
    try:
        cupy.cuda.Device().synchronize()
        cupy.get_default_memory_pool().free_all_blocks()
    except Exception:
        return True
    return False
