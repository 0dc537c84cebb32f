"""The table of ``sass.py --table``: hot loops, registers, spills and occupancy of every instance, or of two commits."""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from gpu import sass
from gpu.control_flow import count, marks

REGISTERS = 65536  # of a multiprocessor; a warp takes them in units of 256
LIMITS = {  # by architecture: warps and blocks of a multiprocessor, its shared memory, that which each block costs
    75: (32, 16, 65536, 0),
    80: (64, 32, 167936, 1024),
    86: (48, 16, 102400, 1024),
    89: (48, 24, 102400, 1024),
    90: (64, 32, 233472, 1024),
    100: (64, 32, 233472, 1024),
    120: (48, 24, 102400, 1024),
}
COLUMNS = ("slots", "all", "FP64", "passes", "slots a pass", "registers", "spilled", "shared", "warps")
POINTS = 144
# Filling tiles and gradients take most of their time (sass.py --phases), though a row of the factor is more code.
MARKERS = dict.fromkeys(("likelihood_shared_f64", "likelihood_panel_f64"), "exponential")
LEGEND = f"""\
Slots: instructions of one pass of the hot loop on its fast path; all: of all its blocks, each once. FP64: the share of
the float64 pipe's among the slots, tensor instructions included. Passes: roots or exponentials in them, whichever are
more. Spilled: bytes of stores and loads. Shared: static and dynamic bytes of a block, the latter of {POINTS} points
for likelihood_shared_f64, "?" where it depends on the call. Warps: those of a multiprocessor by registers, shared
memory and block, of the most; 0 where a block does not fit."""


class Facts(NamedTuple):
    """One row; texts but for what is compared."""

    slots: int
    whole: int
    fp64: float
    passes: int
    registers: int
    spilled: int
    shared: str
    warps: str

    def cells(self) -> list[str]:
        """In the order of `COLUMNS`."""
        each = f"{self.slots / self.passes:.1f}" if self.passes else "–"
        hot = [str(self.slots), str(self.whole), f"{self.fp64:.0%}", str(self.passes or "–"), each]
        shown = hot if self.slots else ["–"] * len(hot)
        return [*shown, str(self.registers), str(self.spilled), self.shared, self.warps]


Key = tuple[str, str, str]
"""Source, entry and variant."""


def show(folders: list[Path], archs: list[int], only: str, jobs: int) -> None:
    """Print a table for each architecture, of the sources in one folder or of two, before and after."""
    print(LEGEND)
    for arch in archs:
        sides = [facts(folder, only, arch, jobs) for folder in folders]
        print(f"\nsm_{arch}, {sass.emulator()[0].compiler_version()}\n\n{table(*sides)}")


def facts(folder: Path, only: str, arch: int, jobs: int) -> dict[Key, Facts]:
    """Of every instance with `only` in its name."""
    cubins, _ = sass.emulator()
    wanted = []
    for source in sorted(folder.glob("*.cu")):
        entries = sass.entries_of(source)
        for defines in cubins.variants_of(source):
            variant = " ".join(f"{name}={value}" for name, value in sorted(defines.items()))
            chosen = [entry for entry in entries if only in f"{source.stem} {entry} [{variant}]"]
            if chosen:
                wanted.append((source, defines, variant, chosen))
    if not wanted:
        raise SystemExit(f"--only {only!r}: no instance has this in 'source entry [variant]'")

    def one(source: Path, defines: dict[str, str], variant: str, chosen: list[str]) -> dict[Key, Facts]:
        macros = {**defines, "MF_ONE_ENTRY": "1", **{f"MF_WITH_{entry}": "1" for entry in chosen}}
        found = sass.compiled(source, macros, arch)
        there = [entry for entry in chosen if entry in found]  # some entries are of some variants
        return {(source.stem, entry, variant): facts_of(entry, defines, found[entry], arch) for entry in there}

    with ThreadPoolExecutor(jobs) as pool:
        parts = list(pool.map(lambda item: one(*item), wanted))
    return {key: value for part in parts for key, value in part.items()}


def facts_of(entry: str, defines: dict[str, str], found: sass.Compiled, arch: int) -> Facts:
    loop = sass.hot_loop(found.code, MARKERS.get(entry, ""))
    path = loop.pass_through if loop else []
    kinds = count(path)
    passes = max(marks(path, "root"), marks(path, "exponential"))
    pipe = kinds["fp64"] + kinds["fp64 predicated"] + kinds["dmma"]
    dynamic = dynamic_bytes(entry, defines)
    usage = found.usage
    whole = sum(len(found.code.block(block)) for block in loop.blocks) if loop else 0
    static = str(usage.shared)
    return Facts(
        *(len(path), whole, pipe / len(path) if path else 0.0, passes, usage.registers, usage.spilled),
        static if dynamic == 0 else f"{static} + {'?' if dynamic is None else dynamic}",
        occupancy(arch, usage.registers, usage.shared + (dynamic or 0), found.threads),
    )


@functools.cache
def _dynamic() -> dict[str, Callable[[dict[str, str]], int] | None]:
    sass.emulator()
    import fake_cupy

    sys.modules.update(fake_cupy.modules)  # the backend needs a cupy
    from maskerade_fast.backends.gpu import _blocked, likelihood

    def stage(defines: dict[str, str]) -> int:
        return _blocked.stage_bytes(int(defines.get("MF_HEIGHT", "64")))

    return {
        "likelihood_shared_f64": lambda d: likelihood.small_bytes(POINTS, d.get("MF_GRADIENT") == "1"),
        **dict.fromkeys(("panel_solve_f64", "panel_update_f64", "whitening_f64", "inverse_f64"), stage),
        **dict.fromkeys(("likelihood_panel_f64", "joint_singles_f64", "joint_pairs_f64", "joint_finish_pairs_f64")),
    }


def dynamic_bytes(entry: str, defines: dict[str, str]) -> int | None:
    """Dynamic shared memory of a block; None where it depends on the call."""
    known = _dynamic()
    if entry not in known:
        return 0
    size = known[entry]
    return None if size is None else size(defines)


def occupancy(arch: int, registers: int, shared: int, threads: int) -> str:
    """Resident warps of the most, as "16 / 64"."""
    warps, blocks, memory, reserved = LIMITS[arch]
    own = -(-threads // 32)
    of_registers = REGISTERS // (-(-registers * 32 // 256) * 256) // 4 * 4 // own  # four schedulers share them
    of_memory = memory // max(1, -(-(shared + reserved) // 128) * 128)
    resident = min(warps // own, blocks, of_registers, of_memory)
    return f"{resident * own} / {warps}"


def table(*sides: dict[Key, Facts]) -> str:
    """One row for all variants of an entry that have the same figures, "before → after" where two sides differ."""
    keys = sorted({key for side in sides for key in side})
    rows: dict[tuple[str, ...], list[str]] = defaultdict(list)
    total: dict[tuple[str, str], int] = defaultdict(int)
    for source, entry, variant in keys:
        cells = [side[source, entry, variant].cells() if (source, entry, variant) in side else None for side in sides]
        rows[source, entry, *merged(cells)].append(variant)
        total[source, entry] += 1
    lines = ["| kernel | variant | " + " | ".join(COLUMNS) + " |", "| --- " * (len(COLUMNS) + 2) + "|"]
    for (source, entry, *texts), variants in rows.items():
        shown = in_common(variants, total[source, entry])
        lines.append(f"| {source} `{entry}` | {shown} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def in_common(variants: list[str], total: int) -> str:
    """A variant, or the macros that several have in common and how many they are."""
    if len(variants) == 1:
        return variants[0] or "–"
    if len(variants) == total:
        return f"all {total}"
    first, *others = (variant.split() for variant in variants)
    common = " ".join(macro for macro in first if all(macro in other for other in others))
    return f"{common} ({len(variants)} of {total})".strip()


def merged(sides: list[list[str] | None]) -> list[str]:
    absent = ["absent"] * len(COLUMNS)
    columns = zip(*(side or absent for side in sides), strict=True)
    return [" → ".join(dict.fromkeys(texts)) if len(set(texts)) > 1 else texts[0] for texts in columns]
