"""Where the instructions of ``likelihood_shared`` go, by phase: the table of ``sass.py --phases``.

A loop belongs to the function that most of its own instructions come from, by the line numbers in the binary. The
function says how many passes the warps of a block make together: its loop runs over tiles, so that follows from the
number of points. All of a loop's blocks count, not only its fast path: the branches in them are by lane, as on a
tile's diagonal, or around a few instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from gpu import sass
from gpu.control_flow import Instruction, Loop

TILE = 16
AXES, COMPONENTS = 1, 3
SOURCE, ENTRY = "likelihood", "likelihood_shared_f64"
DEFINES = {"MF_AXES": "1", "MF_BLOCK": "256", "MF_GRADIENT": "0", "MF_PER_AXIS": "0"}

# By function: the phase, and passes of its loop for so many rows of tiles (kernels/likelihood.cuh, elimination.cuh)
PASSES: dict[str, tuple[str, Callable[[int], int]]] = {
    "fill_tiles": ("fill", lambda n: n * (n + 1) // 2),
    "gram_tile": ("fill", lambda n: n * (n + 1) // 2 * COMPONENTS * AXES),
    "factor_and_invert": ("factor", lambda n: n),
    "solve_row": ("solve", lambda n: sum(-(-(n - 1 - k) // 2) for k in range(n))),
    "add_product": ("update", lambda n: sum((n - 1 - k) * (n - k) // 2 for k in range(n))),
}


def show(folders: list[Path], n_points: int, archs: list[int]) -> None:
    """Print the phases of one matrix, in warp instructions, for each architecture, by the sources of each folder."""
    for arch in archs:
        sides = [phases(folder, n_points, arch) for folder in folders]
        print(f"\n{ENTRY}, N={n_points}, Q={COMPONENTS}, sm_{arch}, {sass.emulator()[0].compiler_version()}\n")
        print("| phase | issue slots | share |\n| --- | --- | --- |")
        for phase in sides[-1]:
            slots = " → ".join(str(side[phase]) for side in sides)
            shares = " → ".join(f"{side[phase] / sum(side.values()):.0%}" for side in sides)
            print(f"| {phase} | {slots} | {shares} |")


def phases(folder: Path, n_points: int, arch: int) -> dict[str, int]:
    """Warp instructions by phase."""
    source = folder / f"{SOURCE}.cu"
    alone = {**DEFINES, "MF_ONE_ENTRY": "1", f"MF_WITH_{ENTRY}": "1"}
    kernel = sass.compiled(source, alone, arch, lines=True)[ENTRY].code
    report = sass.emulator()[1]
    functions = report.functions(report.preprocessed(source, alone))
    owners = {place: name for name, _, body in functions for place, _ in body}
    found = dict.fromkeys((phase for phase, _ in PASSES.values()), 0)
    seen = set()
    for loop in kernel.loops:
        function = function_of(loop, owners)
        if function:
            phase, passes = PASSES[function]
            found[phase] += len(loop.body()) * passes(-(-n_points // TILE))
            seen.add(function)
    if missing := PASSES.keys() - seen:
        raise SystemExit(f"{ENTRY}: no loop is of {', '.join(sorted(missing))}: PASSES in {Path(__file__).name} is old")
    return found


def function_of(loop: Loop | None, owners: dict[str, str]) -> str | None:
    """The function of `PASSES` that most of the loop's own instructions are of.

    Less than a quarter of them, as in a loop that only advances an index, leave it to the loop around.
    """
    if loop is None:
        return None
    body = loop.body()
    names = Counter(name for i in body if (name := known(i, owners)))
    best, number = names.most_common(1)[0] if names else ("", 0)
    return best if 4 * number > len(body) else function_of(loop.outer, owners)


def known(instruction: Instruction, owners: dict[str, str]) -> str | None:
    """The innermost function of `PASSES` that an instruction was inlined from."""
    names = (owners.get(place, "") for place in instruction.places)
    return next((name for name in names if name in PASSES), None)
