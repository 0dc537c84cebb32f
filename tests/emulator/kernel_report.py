"""Write docs/measured/kernels.md: of every kernel what it uses, its error, its barriers, and which card has timed it.

    python tests/emulator/kernel_report.py

Registers and memory come from ``build/kernels``, which the compile matrix fills (``sweep.py --only kernel_sources``);
errors are measured here (`kernel_errors`); barriers are those that a call of the kernel can meet, by the text of the
sources; times are those of ``bench/results``. Nothing is typed by hand, and what is missing is an error.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import cubins
import emulate
from sources import BARRIER, KERNELS, ROOT

USES = ROOT / "build" / "kernels"
FORMER = {
    "add_slots_f64": "add_partial_sums_f64",
    "diagonal_levels_f64": "diagonal_stats_f64",
    "pulls_f64": "partial_gradients_f64",
}
"""What kernels are called today that results of a card have under another name."""
PAGE = ROOT / "docs" / "measured" / "kernels.md"


def main() -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import kernel_errors

    PAGE.write_text(report(all_uses(), kernel_errors.errors(), timed()), encoding="utf-8")
    print(PAGE)


Uses = dict[tuple[str, str], dict[int, list[tuple[str, cubins.Usage]]]]
"""By source and entry, then by architecture: variant and use."""


def all_uses() -> Uses:
    """What the compile matrix found, for all variants of all sources."""
    uses: Uses = defaultdict(lambda: defaultdict(list))
    for source in sorted(KERNELS.glob("*.cu")):
        for arch in cubins.ARCHITECTURES:
            path = USES / f"{source.name}-sm_{arch}.tsv"
            newest = max(file.stat().st_mtime for file in KERNELS.glob("*.cu*"))
            if not path.exists() or path.stat().st_mtime < newest:
                raise SystemExit(f"{path} is missing, or older than the sources: run sweep.py --only kernel_sources")
            for line in path.read_text(encoding="utf-8").splitlines()[1:]:
                variant, entry, *numbers = line.split("\t")
                uses[source.name, entry][arch].append((variant, cubins.Usage(entry, *map(int, numbers))))
    return uses


def timed() -> dict[str, list[str]]:
    """By kernel, "card at commit" of each result that has its time."""
    cards: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "bench" / "results").glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("kind") != "maskerade_fast gpu_check":
            continue
        kernels = {FORMER.get(name, name) for row in content["rows"] for name in row.get("ours", {}).get("kernels", {})}
        card = content["card"]["name"].removeprefix("NVIDIA ").split()[0]
        for name in kernels:
            cards[name].append(f"{card} at {content['commit'][:7]}")
    return cards


# ---- barriers, by the text of the sources ----


def barriers_of(source: Path, defines: dict[str, str]) -> dict[str, set[str]]:
    """By entry, the barriers ("file:line") of its body and of every function that it calls, directly or not."""
    sites: dict[str, set[str]] = defaultdict(set)
    calls: dict[str, set[str]] = defaultdict(set)
    entries = set()
    for name, is_entry, body in functions(preprocessed(source, defines)):
        entries |= {name} if is_entry else set()
        for place, line in body:
            sites[name] |= {place} if BARRIER.search(line) else set()
            calls[name] |= set(re.findall(r"\w+", line))
    return {entry: set().union(*(sites[name] for name in reached(entry, calls))) for entry in entries}


def preprocessed(source: Path, defines: dict[str, str]) -> str:
    marks = ["-D__global__=EMU_GLOBAL", "-D__device__=", "-D__CUDA_ARCH__=900"]
    marks += [f"-D{name}={value}" for name, value in defines.items()]
    return emulate._run([emulate._compiler(), "-std=c++20", "-w", "-E", *marks, "-xc++", "-"], expanded(source))


def expanded(source: Path) -> str:
    import fake_cupy

    sys.modules.update(fake_cupy.modules)  # the loader needs a cupy
    from maskerade_fast.backends.gpu._loader import expand

    return expand(source)


def reached(entry: str, calls: dict[str, set[str]]) -> set[str]:
    """`entry` and every function that it can call: names that are followed by others in `calls`."""
    all_of_them, new = set(), {entry}
    while new:
        all_of_them |= new
        new = {other for name in new for other in calls[name] if other in calls} - all_of_them
    return all_of_them


def functions(text: str) -> Iterator[tuple[str, bool, list[tuple[str, str]]]]:
    """Name, whether it is a kernel, and lines ("file:line", text) of every function in preprocessed text.

    A function is a name before parentheses and a brace at the outermost level; members of structures count as the
    structure's, which whoever names it can call.
    """
    file, number, depth = "", 0, 0
    head, body = "", []
    for line in text.splitlines():
        mark = re.match(r'# (\d+) "([^"]*)"', line)
        if mark:
            number, file = int(mark[1]), mark[2]
            continue
        if depth == 0:
            head += " " + line.partition("{")[0]
        else:
            body.append((f"{file}:{number}", line))
        if depth == 0 and "{" in line:
            body.append((f"{file}:{number}", line.partition("{")[2]))
        depth += line.count("{") - line.count("}")
        if depth == 0 and ("{" in line or body):
            if (name := name_of(head)) is not None:
                yield name, "EMU_GLOBAL" in head, body
            head, body = "", []
        elif depth == 0 and ";" in line:
            head, body = "", []
        number += 1


def name_of(head: str) -> str | None:
    """Of a function, or a structure; None for constants and the like."""
    structure = re.search(r"\b(?:struct|class|namespace)\s+(\w+)\s*(?:<[^{};]*>)?\s*$", head.strip())
    if structure:
        return structure[1]
    plain = re.sub(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|template\s*<[^{};]*?>\s", " ", head)
    function = re.search(r"(\w+)\s*\(", plain)
    return function[1] if function else None


@functools.cache
def all_barriers() -> dict[tuple[str, str], set[str]]:
    """By source and entry, the barriers of all variants."""
    sites_of: dict[tuple[str, str], set[str]] = defaultdict(set)
    for source in sorted(KERNELS.glob("*.cu")):
        for variant in cubins.variants_of(source):
            for entry, sites in barriers_of(source, variant).items():
                sites_of[source.name, entry] |= sites
    return sites_of


def tested_barriers() -> set[str]:
    """Barriers whose absence the last sweep of these sources reported."""
    import sweep

    names = [case for name in sweep.pieces() if "barriers" in name and (case := sweep.outcome_of(name)) is not None]
    failed = {test.rpartition("[")[2].rstrip("]") for outcome in names for test in outcome["failures"]}
    ran = {t.rpartition("[")[2].rstrip("]") for o in names for t in o["tests"] if "test_a_missing_barrier" in t}
    return ran - failed


# ---- the text ----


INTRODUCTION = """\
# The kernels

`python tests/emulator/kernel_report.py` writes this page; do not edit it.

* Registers: the most of all variants, per architecture (sm_{architectures}); one number where they are equal.
* Shared: static shared memory in bytes, likewise.
* Spills: the most bytes of stores and loads, and of the stack frame, and the number of variants that have any.
  `tests/kernel_exceptions.toml` has the reasons.
* Error: on the emulator, of the operations that launch the kernel, against `tests/oracle`; the largest, relative to
  the largest entry of a result. For draws it is the error of a probability, by interpolation.
* Barriers: the number of places in the sources where the kernel can meet one, and how many of them the last sweep
  deleted one by one, each with a report.
* Timed: card and commit of `bench/results`. Later changes are not measured yet.
"""


def report(uses: Uses, errors: dict[str, float], times: dict[str, list[str]]) -> str:
    tested, sites = tested_barriers(), all_barriers()
    every = set().union(*sites.values())
    architectures = " / ".join(map(str, cubins.ARCHITECTURES))
    numbers = f"In all {len(uses)} kernels, {len(every)} barriers, {len(every & tested)} of them tested as they are."
    columns = ["kernel", "source", "registers", "shared", "spills", "error", "barriers, tested", "timed"]
    lines = [*INTRODUCTION.format(architectures=architectures).splitlines(), "", numbers, ""]
    lines += ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|"]
    for (source, entry), by_arch in sorted(uses.items()):
        own = sites[source, entry]
        cells = [
            f"`{entry}`",
            source.removesuffix(".cu"),
            one_or_each([max(use.registers for _, use in by_arch[arch]) for arch in cubins.ARCHITECTURES]),
            one_or_each([max(use.shared for _, use in by_arch[arch]) for arch in cubins.ARCHITECTURES]),
            spills(by_arch),
            f"{errors[entry]:.1e}" if entry in errors else "not launched",
            f"{len(own)}, {len(own & tested)}" if own else "none",
            "; ".join(times.get(entry, ["not timed"])),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def one_or_each(numbers: list[int]) -> str:
    return str(numbers[0]) if len(set(numbers)) == 1 else " / ".join(map(str, numbers))


def spills(by_arch: dict[int, list[tuple[str, cubins.Usage]]]) -> str:
    """For each architecture with any: most bytes spilled, largest stack frame, and in how many variants."""
    texts = []
    for arch in cubins.ARCHITECTURES:
        spilling = [use for _, use in by_arch[arch] if use.spilled or use.stack]
        if spilling:
            worst, frame = max(use.spilled for use in spilling), max(use.stack for use in spilling)
            texts.append(f"sm_{arch} {worst} (stack {frame}) in {len(spilling)} of {len(by_arch[arch])}")
    return "; ".join(texts) or "0"


if __name__ == "__main__":
    main()
