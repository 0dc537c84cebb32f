"""Follow X from `marginalise` to the first kernel: which calls cross modules, and which climb to a higher layer.

python tests/call_path.py [--list]
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
LAYERS = ["_", "backends", "model", "ops", "storage", "quadrature", "adaptive", "posterior", "run", "plotting", "cli"]


class Call(NamedTuple):
    """One call from a function of one module into another module."""

    caller: str
    callee: str
    climb: bool


class _Arrived(Exception):
    pass


def calls() -> list[Call]:
    """Calls between modules of the package from `marginalise` until the first likelihood's loop."""
    import maskerade_fast as mf

    package = str(Path(mf.__file__).parent)
    crossings: list[Call] = []

    def module(frame: FrameType | None) -> str | None:
        if frame is None or not frame.f_code.co_filename.startswith(package):
            return None
        return str(Path(frame.f_code.co_filename).relative_to(package).with_suffix("")).replace("/", ".")

    def nearest(frame: FrameType | None) -> FrameType | None:
        while frame is not None and module(frame) is None:
            frame = frame.f_back
        return frame

    def layer(name: str) -> int:
        top, dot, _ = name.partition(".")
        return LAYERS.index(top) if dot else (len(LAYERS) if name == "__init__" else 0)

    def profile(frame: FrameType, event: str, _: Any) -> None:
        own = module(frame)
        if event != "call" or own is None:
            return
        caller = nearest(frame.f_back)
        source = module(caller)
        if caller is None or source is None or source == own:
            return
        names = [f"{source}.{caller.f_code.co_qualname}", f"{own}.{frame.f_code.co_qualname}"]
        crossings.append(Call(names[0], names[1], layer(own) > layer(source)))
        if own == "backends.cpu.likelihood":
            sys.setprofile(None)
            raise _Arrived

    x = np.linspace(0.0, 10.0, 40)
    sys.setprofile(profile)
    try:
        mf.marginalise(x, np.sin(3.0 * x) + 0.01 * x, budget=50, max_components=2, seed=0)
    except _Arrived:
        pass
    finally:
        sys.setprofile(None)
    return crossings


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for call in (crossings := calls()):
        if "--list" in sys.argv:
            print(f"{'^' if call.climb else ' '} {call.caller} -> {call.callee}")
    climbs = sum(call.climb for call in crossings)
    print(f"{len(crossings)} calls between modules, {climbs} of them into a higher layer")
