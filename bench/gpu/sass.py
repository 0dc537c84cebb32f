"""Instruction counts of the compiled kernels, read from SASS; no card is needed.

    python -m bench.gpu.sass --check      # fails where a count differs from instruction_counts.json by more than 5 %
    python -m bench.gpu.sass --save       # rewrites the file, which the floors of rows.py are made of

Needs nvcc or NVRTC to compile (tests/emulator/cubins.py), and nvdisasm, of the extra `dev` or a toolkit.

What is counted is the fast path of one loop, which control_flow.py explains: the loop with the most arithmetic, if
every loop makes `TRIPS` passes. For a floor it must have roots or exponentials, whose number is how many passes of the
model's loop the compiled one makes at once. Float64 instructions under a predicate are in the slots, which they always
take, but not in ``fp64``: where the predicate is off in all lanes the pipe stays free.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench import ROOT
from bench.gpu.control_flow import FP32, Kernel, Loop, count, kernels, marks

FILE = Path(__file__).with_name("instruction_counts.json")
ARCH = 90  # of the floors: the card that the design is for
TOLERANCE = 0.05
TRIPS = 4  # passes of a loop for one of that around it, where the loop that does the work is chosen
TENSOR_WORK = 16  # arithmetic instructions that a tensor instruction counts as there: two rows of 8 multiply-adds


class Floor(NamedTuple):
    """A loop that a floor rests on, and what a pass through the model's loop is."""

    source: str
    entry: str
    defines: dict[str, str]
    marker: str
    """What a pass has one of: "root" or "exponential"."""
    unit: str


PAIR_OF_POINTS = "a pair of points and a component"
FLOORS = {
    **{
        f"K1 D={axes}": Floor("distances", "pairwise_f64", {"MF_D": str(axes)}, "root", "a pair of components")
        for axes in (1, 2, 5, 10)
    },
    "K2 D=1": Floor("gram", "gram_symmetric_f64", {}, "exponential", PAIR_OF_POINTS),
    "K4 D=1": Floor("likelihood", "gradient_slices_f64", {"MF_GRADIENT": "1"}, "exponential", PAIR_OF_POINTS),
    "K5": Floor("prediction", "pair_moments_f64", {}, "root", "a pair of Gaussians"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Instruction counts of the compiled kernels.")
    parser.add_argument("--check", action="store_true", help="compare the counts with the file's")
    parser.add_argument("--save", action="store_true", help="write the file")
    parser.add_argument("--jobs", type=int, default=2, help="compilers that run at once")
    options = parser.parse_args()
    current = measure(options.jobs)
    print(floors_table(current["floors"]))
    if options.save:
        FILE.write_text(json.dumps(current, indent=1) + "\n", encoding="utf-8")
        print(FILE.relative_to(ROOT))
    if not options.check:
        return 0
    moves = list(moved(current["floors"], stored()["floors"]))
    if moves and current["compiler"].split()[1] != stored()["compiler"].split()[1]:
        print(f"The file is of {stored()['compiler']}, this is {current['compiler']}.")
    print("\n".join([*moves, "run python -m bench.gpu.sass --save if that is meant"]) if moves else "as in the file")
    return bool(moves)


# ---- the file ----


@functools.cache
def stored() -> dict[str, Any]:
    """Return the file: how it was made, and ``floors`` by name."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def counts(kernel: str, axes: int = 1) -> tuple[float, float]:
    """Return float64 instructions and issue slots of one pass through the inner loop of "K1", "K2", "K4" or "K5".

    A pass is one pair of components (K1), one pair of points and one component (K2, and K4's pass over the pairs once
    C^-1 is there), or one pair of Gaussians (K5, which has no axes). Raises ValueError if the file has no such kernel
    of so many `axes`.
    """
    floors = stored()["floors"]
    name = kernel if kernel in floors else f"{kernel} D={axes}"
    if name not in floors:
        raise ValueError(f"kernel, axes: {kernel!r}, {axes}, expected one of {', '.join(floors)}; or add it to FLOORS")
    return floors[name]["fp64"], floors[name]["slots"]


# ---- compiling and disassembling ----


@functools.cache
def emulator() -> Any:
    """Return the modules `cubins` and `kernel_report` of tests/emulator."""
    sys.path += map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "kernels", ROOT / "tests" / "emulator"))
    import cubins
    import kernel_report

    return cubins, kernel_report


def disassembler() -> str:
    """Return the path of nvdisasm: from its wheel, else of a toolkit."""
    wheels = [path for entry in sys.path if entry for path in Path(entry).glob("nvidia/*/bin/nvdisasm")]
    path = str(wheels[0]) if wheels else shutil.which("nvdisasm")
    if path is None:
        raise SystemExit("nvdisasm is not on this machine: pip install nvidia-cuda-nvdisasm, or '.[dev]' on Linux")
    return path


def compiled(source: Path, defines: dict[str, str]) -> dict[str, tuple[Any, Kernel]]:
    """Return the entries of an instance of `source` by name: registers and memory (`cubins.Usage`), and the code."""
    cubins, kernel_report = emulator()
    cubin, usages = cubins.compile_cubin(kernel_report.expanded(source), defines, ARCH)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([disassembler(), "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"nvdisasm: {done.stderr.strip()[:500]}")
    entries = kernels(done.stdout)
    return {usage.entry: (usage, entries[usage.entry]) for usage in usages}


# ---- which loop, and what is in it ----


def hot_loop(kernel: Kernel, marker: str) -> Loop | None:
    """The loop that does the work, of those with a `marker` if there are any; None where no loop has arithmetic."""

    def worth(loop: Loop) -> tuple[bool, int]:
        body = loop.body()
        kinds = count(body)
        arithmetic = kinds["fp64"] + kinds["fp64 predicated"] + TENSOR_WORK * kinds["dmma"]
        arithmetic += sum(i.name in FP32 for i in body)
        return marks(loop.own(), marker) > 0, arithmetic * TRIPS**loop.depth

    best = max(kernel.loops, key=worth, default=None)
    return best if best is not None and worth(best)[1] > 0 else None


def floor_counts(floor: Floor) -> dict[str, Any]:
    """What one pass takes, and what the kernel uses."""
    alone = {"MF_ONE_ENTRY": "1", f"MF_WITH_{floor.entry}": "1"}
    usage, code = compiled(ROOT / "kernels" / f"{floor.source}.cu", {**floor.defines, **alone})[floor.entry]
    loop = hot_loop(code, floor.marker)
    path = loop.pass_through if loop else []
    passes = marks(path, floor.marker)
    if passes == 0:
        raise SystemExit(
            f"{floor.entry}: no {floor.marker} on the fast path of any loop, so FLOORS cannot count passes"
        )
    kinds = count(path)
    slots = kinds.pop("slots")
    fp64 = kinds.pop("fp64", 0)
    return {
        "kernel": " ".join([floor.source, floor.entry, *(f"{k}={v}" for k, v in floor.defines.items())]),
        "pass": floor.unit,
        "passes": passes,
        "fp64": fp64 / passes,
        "slots": slots / passes,
        "others": {kind: number / passes for kind, number in sorted(kinds.items())},
        "registers": usage.registers,
        "spilled_bytes": usage.spilled,
        "shared_bytes": usage.shared,
    }


def measure(jobs: int = 1) -> dict[str, Any]:
    """Counts of all floors, with what they are of."""
    cubins, _ = emulator()
    with ThreadPoolExecutor(jobs) as pool:
        floors = list(pool.map(floor_counts, FLOORS.values()))
    return {
        "made_by": "python -m bench.gpu.sass --save",
        "arch": ARCH,
        "compiler": cubins.compiler_version(),
        "sources": digest(),
        "commit": commit(),
        "floors": dict(zip(FLOORS, floors, strict=True)),
    }


def commit() -> str:
    """The last that touched the CUDA sources, with a "+" if they differ from it; "unknown" outside a repository."""
    last, changes = (
        subprocess.run(["git", "-C", str(ROOT), *words, "--", "kernels"], capture_output=True, text=True, check=False)
        for words in (["log", "-1", "--format=%h"], ["status", "--porcelain"])
    )
    return (last.stdout.strip() or "unknown") + ("+" if changes.stdout.strip() else "")


def digest() -> str:
    """Of all CUDA sources."""
    whole = hashlib.sha256()
    for path in sorted((ROOT / "kernels").glob("*.cu*")):
        whole.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()[:16]


def moved(current: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    """A line for each count that is not within `TOLERANCE` of the expected one."""
    for name in sorted(current.keys() | expected.keys()):
        if name not in current or name not in expected:
            yield f"{name}: only in {'the file' if name in expected else 'FLOORS'}"
            continue
        for key in ("fp64", "slots"):
            now, then = current[name][key], expected[name][key]
            if not abs(now - then) <= TOLERANCE * then:
                yield f"{name}: {key} {now:.1f} a pass, {then:.1f} in the file"


def floors_table(floors: dict[str, Any]) -> str:
    lines = ["| floor | kernel | passes at once | FP64 | slots | registers | spilled bytes |", "| --- " * 7 + "|"]
    for name, f in floors.items():
        cells = [name, f["kernel"], f["passes"], f"{f['fp64']:.1f}", f"{f['slots']:.1f}", f["registers"]]
        lines.append("| " + " | ".join(map(str, [*cells, f["spilled_bytes"]])) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
