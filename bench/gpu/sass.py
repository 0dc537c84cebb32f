"""Instruction counts of the compiled kernels, read from SASS; no card is needed.

    python bench/gpu/sass.py                              # writes instruction_counts.json, which floors are made of
    python bench/gpu/sass.py --check                      # fails where a count has moved by more than 5 %
    python bench/gpu/sass.py --table [--only gram] [--arch 80 90]     # of every instance: slots, spills, occupancy
    python bench/gpu/sass.py --table --only gram --against HEAD~1     # before and after
    python bench/gpu/sass.py --phases 144                 # of likelihood_shared: filling, factor, solve, update

Needs nvcc or NVRTC to compile (tests/emulator/cubins.py), and nvdisasm and cuobjdump, of the extra `dev` or a toolkit.

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
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpu import counts
from gpu.control_flow import FP32, Kernel, Loop, count, kernels, marks

ROOT = Path(__file__).resolve().parents[2]
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


class Compiled(NamedTuple):
    """One entry of an instance."""

    usage: Any
    """Registers and memory (`cubins.Usage`)."""
    threads: int
    """Most threads of a block, by its launch bounds."""
    code: Kernel


def main() -> int:
    parser = argparse.ArgumentParser(description="Instruction counts of the compiled kernels.")
    parser.add_argument("--check", action="store_true", help="compare the floors' counts with the file, write nothing")
    parser.add_argument("--table", action="store_true", help="every instance: slots, registers, spills, occupancy")
    parser.add_argument(
        "--phases", type=int, metavar="N", help="of likelihood_shared_f64 with N points: slots by phase"
    )
    parser.add_argument("--only", default="", help="with --table: instances with this in 'source entry [variant]'")
    parser.add_argument(
        "--arch",
        type=int,
        nargs="+",
        default=[ARCH],
        choices=emulator()[0].ARCHITECTURES,
        help="of tables, 90 for sm_90",
    )
    parser.add_argument("--against", metavar="REV", help="with tables: a commit, for figures before and after")
    parser.add_argument("--jobs", type=int, default=2, help="compilers that run at once")
    options = parser.parse_args()
    if options.phases is not None and options.phases < 1:
        parser.error(f"--phases: {options.phases} points, expected 1 or more")
    if options.table or options.phases:
        tables(options)
        return 0
    found = measure(options.jobs)
    print(floors_table(found["floors"]))
    if not options.check:
        counts.FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(counts.FILE.relative_to(ROOT))
        return 0
    moves = list(moved(found["floors"], counts.stored()["floors"]))
    if moves and found["compiler"].split()[1] != counts.stored()["compiler"].split()[1]:
        print(f"The file is of {counts.stored()['compiler']}, this is {found['compiler']}.")
    print("\n".join([*moves, "run python bench/gpu/sass.py if that is meant"]) if moves else "as in the file")
    return bool(moves)


def tables(options: argparse.Namespace) -> None:
    from gpu import phases, sass_table

    with tempfile.TemporaryDirectory() as folder:
        sides = [*([kernels_of(options.against, Path(folder))] if options.against else []), ROOT / "kernels"]
        if options.table:
            sass_table.show(sides, options.arch, options.only, options.jobs)
        if options.phases:
            phases.show(sides, options.phases, options.arch)


def kernels_of(revision: str, folder: Path) -> Path:
    """The CUDA sources of a commit, unpacked."""
    command = ["git", "-C", str(ROOT), "archive", revision, "kernels"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"--against {revision}: {done.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=done.stdout, check=True)
    return folder / "kernels"


# ---- compiling and disassembling ----


@functools.cache
def emulator() -> Any:
    """The modules `cubins` and `kernel_report` of tests/emulator."""
    for folder in (ROOT, ROOT / "tests", ROOT / "tests" / "kernels", ROOT / "tests" / "emulator"):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    import cubins
    import kernel_report

    return cubins, kernel_report


def tool(name: str) -> str:
    """Path of nvdisasm or cuobjdump: from its wheel, else of a toolkit."""
    wheels = [path for entry in sys.path if entry for path in Path(entry).glob(f"nvidia/*/bin/{name}")]
    found = str(wheels[0]) if wheels else shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not on this machine: pip install nvidia-cuda-{name}, or '.[dev]' has it on Linux")
    return found


def has_tools() -> bool:
    """Whether kernels can be compiled and disassembled here."""
    try:
        return bool(tool("nvdisasm") and tool("cuobjdump") and emulator()[0].compiler())
    except SystemExit:
        return False


def compiled(source: Path, defines: dict[str, str], arch: int, lines: bool = False) -> dict[str, Compiled]:
    """The entries of an instance of `source`, a file of kernels, by name; with the numbers of its `lines` if asked."""
    cubins, kernel_report = emulator()
    cubin, usages = cubins.compile_cubin(kernel_report.expanded(source), defines, arch, lines=lines)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = run([tool("nvdisasm"), "-c", *(["-gi"] if lines else []), file.name])
        info = run([tool("cuobjdump"), "-elf", file.name])
    found, bounds = kernels(text), launch_bounds(info)
    return {usage.entry: Compiled(usage, bounds[usage.entry], found[usage.entry]) for usage in usages}


def entries_of(source: Path) -> list[str]:
    """Names of a source's kernels."""
    heads = r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)'
    return re.findall(heads, source.read_text(encoding="utf-8"))


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{Path(command[0]).name}: {done.stderr.strip()[:500]}")
    return done.stdout


def launch_bounds(info: str) -> dict[str, int]:
    """Threads of a block by entry, from ``cuobjdump -elf``; 1024 where a kernel has no launch bounds."""
    found = {}
    for section in re.split(r"^\.nv\.info\.", info, flags=re.M)[1:]:
        name, section = re.split(r"^\.", section, maxsplit=1, flags=re.M)[0].split("\n", 1)
        bound = re.search(r"EIATTR_MAX_THREADS\s+Format:\s+\w+\s+Value:\s+(\w+) (\w+) (\w+)", section)
        x, y, z = (int(number, 16) for number in bound.groups()) if bound else (1024, 1, 1)
        found[name] = x * y * z
    return found


# ---- which loop, and what is in it ----


def hot_loop(kernel: Kernel, marker: str = "") -> Loop | None:
    """The loop that does the work, of those with a `marker` if there are any; None where no loop has arithmetic."""

    def worth(loop: Loop) -> tuple[bool, int]:
        body = loop.body()
        kinds = count(body)
        arithmetic = kinds["fp64"] + kinds["fp64 predicated"] + TENSOR_WORK * kinds["dmma"]
        arithmetic += sum(i.name in FP32 for i in body)
        return marker != "" and marks(loop.own(), marker) > 0, arithmetic * TRIPS**loop.depth

    best = max(kernel.loops, key=worth, default=None)
    return best if best is not None and worth(best)[1] > 0 else None


def floor_counts(floor: Floor, arch: int = ARCH) -> dict[str, Any]:
    """What one pass takes, and what the kernel uses."""
    alone = {"MF_ONE_ENTRY": "1", f"MF_WITH_{floor.entry}": "1"}
    entry = compiled(ROOT / "kernels" / f"{floor.source}.cu", {**floor.defines, **alone}, arch)[floor.entry]
    loop = hot_loop(entry.code, floor.marker)
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
        "registers": entry.usage.registers,
        "spilled_bytes": entry.usage.spilled,
        "shared_bytes": entry.usage.shared,
    }


def measure(jobs: int = 1) -> dict[str, Any]:
    """Counts of all floors, with what they are of."""
    cubins, _ = emulator()
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(floor_counts, FLOORS.values()))
    return {
        "made_by": "python bench/gpu/sass.py",
        "arch": ARCH,
        "compiler": cubins.compiler_version(),
        "sources": digest(),
        "commit": commit(),
        "floors": dict(zip(FLOORS, found, strict=True)),
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


def moved(found: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    """A line for each count that is not within `TOLERANCE` of the expected one."""
    for name in sorted(found.keys() | expected.keys()):
        if name not in found or name not in expected:
            yield f"{name}: only in {'the file' if name in expected else 'FLOORS'}"
            continue
        for key in ("fp64", "slots"):
            now, then = found[name][key], expected[name][key]
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
