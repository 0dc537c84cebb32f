"""Instruction counts of the inner loops that floors rest on, as ``instruction_counts.json`` has them.

``python bench/gpu/sass.py`` writes the file from the compiled kernels; nothing in it is typed by hand.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("instruction_counts.json")


@functools.cache
def stored() -> dict[str, Any]:
    """The whole file: how it was made, and ``floors`` by name."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def counts(kernel: str, axes: int = 1) -> tuple[float, float]:
    """Float64 instructions and issue slots of one pass through the inner loop of `kernel`: "K1", "K2", "K4" or "K5".

    A pass is one pair of components (K1), one pair of points and one component (K2, and K4's pass over the pairs once
    C^-1 is known), or one pair of Gaussians (K5, which has no axes). ValueError if the file has no such kernel of so
    many `axes`.
    """
    floors = stored()["floors"]
    name = kernel if kernel in floors else f"{kernel} D={axes}"
    if name not in floors:
        raise ValueError(f"kernel, axes: {kernel!r}, {axes}, expected one of {', '.join(floors)}; or add it to sass.py")
    return floors[name]["fp64"], floors[name]["slots"]
