"""Kernels that keep and break the rules which the emulator checks (broken_rules.cu), as CuPy would give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fake_cupy

SOURCE = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")


def kernel(name: str, arch: int = 90) -> Any:
    """A kernel of `SOURCE`, for the first card, which becomes one of that capability."""
    from maskerade_fast.backends.gpu import _loader

    fake_cupy.state.devices[0].capability = arch
    code = _loader.expand(_loader.source_folder() / "common.cuh") + '#line 1 "test.cu"\n' + SOURCE
    return fake_cupy.cupy.RawModule(code=code, options=("-std=c++17",)).get_function(name)


def line_of(mark: str) -> int:
    """The line of `SOURCE` that carries a comment."""
    return next(k for k, line in enumerate(SOURCE.splitlines(), 1) if f"// {mark}" in line)
