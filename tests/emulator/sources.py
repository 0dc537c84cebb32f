"""What the texts of the CUDA sources say: their kernels, their barriers, and what they include."""

from __future__ import annotations

import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "kernels"
NAMES = sorted(path.name for path in KERNELS.glob("*.cu"))
"""The sources, without what they include."""
ENTRY = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)')
"""The beginning of a kernel, with its name."""
BARRIER = re.compile(r"\b__sync(?:threads|warp)\w*\s*\(")


def texts() -> dict[str, str]:
    """Every source and every included file by its name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(KERNELS.glob("*.cu*"))}


def without_comments(text: str) -> str:
    return "\n".join(line.partition("//")[0] for line in text.splitlines())


def barriers() -> list[tuple[str, int]]:
    """File and line of every barrier in the sources, but for those in comments."""
    lines = [
        (name, line) for name, text in texts().items() for line in enumerate(without_comments(text).split("\n"), 1)
    ]
    return [(name, number) for name, (number, line) in lines if BARRIER.search(line)]


@functools.cache
def files_of(source: str) -> frozenset[str]:
    """A source and all it includes."""
    included = re.findall(r'^\s*#\s*include\s+"([^"]+)"', (KERNELS / source).read_text(encoding="utf-8"), re.M)
    return frozenset({source}).union(*map(files_of, included))
