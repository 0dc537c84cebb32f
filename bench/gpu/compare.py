"""Variants of the kernels against the default, by turns in one process; and sweeps over products of choices."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import cupy
import numpy as np

from .clock import Clock, OutOfTime
from .items import Item, context_lost
from .rows import Row, arrays_of
from .variants import SWEEPS, VARIANTS, Sweep, Variant, applied, case_of, label

SECONDS = 1.0  # of the repeats of a pair
NEEDED = 3.0  # seconds of a variant, its row's problem and oracle included


def items(clock: Clock, card: dict[str, Any]) -> list[Item]:
    """Every variant and sweep; a dry run has some."""
    variants, sweeps = chosen(clock.dry)
    singles = [Item(label(variant), NEEDED, functools.partial(compared, variant, clock)) for variant in variants]
    return singles + [Item(f"sweep: {sweep.name}", NEEDED, functools.partial(swept, sweep, clock)) for sweep in sweeps]


def chosen(dry: bool) -> tuple[list[Variant], list[Sweep]]:
    """All of them; for a dry run one of each kind of change, for the emulator takes seconds to compile a text."""
    if not dry:
        return VARIANTS, SWEEPS
    names = ("MF_BLOCK 128", "TILE_BLOCKS 2", "blocked from N=256")
    some = [next(variant for variant in VARIANTS if variant.name == name) for name in names]
    return some, [Sweep("blocks", some[0].case, [some[:1]])]


@functools.lru_cache(maxsize=1)
def made(name: str, dry: bool) -> tuple[Row, Any]:
    """A row and its result; of neighbours in the list one is kept, for they own memory."""
    case = case_of(name, dry)
    row = case.make(**case.sizes)
    return row, row.ours()


def compared(variant: Variant, clock: Clock, entry: dict[str, Any]) -> Iterator[None]:
    """Check a variant's result and time it: `ratio_median` is its time by the default's."""
    row, expected = made(variant.case, clock.dry)
    entry["case"] = variant.case
    call = functools.partial(called, variant, row.ours)
    result = call()
    entry["same_bits"] = same_bits(expected, result)
    entry["error"] = row.error(result)
    del result
    yield
    default = functools.partial(called, Variant("default"), row.ours)  # with what it costs to apply a variant
    entry.update(clock.compare(default, call, SECONDS))
    yield
    complain(variant, row, entry)


def swept(sweep: Sweep, clock: Clock, entry: dict[str, Any]) -> Iterator[None]:
    """Combinations of a sweep: those of one change first, then by what these let expect. The best come first in
    `tried`, which may be cut anywhere."""
    left = sweep.combinations()
    alone: dict[str, float] = {}
    wrong: list[str] = []
    entry.update(case=sweep.case, tried=[])
    while left:
        left.sort(key=lambda changes: (len(changes) > 1, math.prod(alone.get(c.name, 1.0) for c in changes)))
        changes = left.pop(0)
        variant = sweep.together(changes)
        own: dict[str, Any] = {"name": variant.name}
        try:
            clock.require(SECONDS)
            for _ in compared(variant, clock, own):
                pass
        except OutOfTime:
            entry["missing"] = f"{1 + len(left)} combinations"
            return
        except Exception as error:  # the others go on, unless their calls would fail, too
            own["failed"] = f"{type(error).__name__}: {error}"[:500]
            wrong.append(own["failed"])
            if context_lost():
                raise
        if len(changes) == 1:
            alone[changes[0].name] = own.get("ratio_median", math.inf)
        entry["tried"] = sorted([*entry["tried"], own], key=lambda one: one.get("ratio_median", math.inf))
        yield
    if wrong:
        raise ArithmeticError("; ".join(wrong))


def called(variant: Variant, call: Callable[[], Any]) -> Any:
    with applied(variant):
        return call()


def same_bits(first: Any, second: Any) -> bool:
    """Whether all arrays of two results are equal, NaN to NaN; compared on the card."""
    pairs = zip(arrays_of(first), arrays_of(second), strict=True)
    return all(bool((bits(a) == bits(b)).all()) for a, b in pairs)


def bits(array: Any) -> Any:
    whole = cupy.ascontiguousarray(array)
    return whole.view(np.dtype(f"i{whole.dtype.itemsize}"))


def complain(variant: Variant, row: Row, entry: dict[str, Any]) -> None:
    """Raise where a variant gives another result than it may."""
    if variant.same_bits and not entry["same_bits"]:
        raise ArithmeticError(f"{label(variant)}: other bits than the default's")
    if not entry["error"] <= row.tolerance:
        raise ArithmeticError(f"{label(variant)}: error {entry['error']:.3g}, tolerance {row.tolerance:.0e}")
