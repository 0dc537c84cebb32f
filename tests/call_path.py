"""Follow X from `marginalise` to the first log-likelihood: calls between modules, and climbs to a higher layer.

python tests/call_path.py [--list]
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from test_layers import PACKAGE, layer

LOOPS = "backends.cpu.likelihood"


class Call(NamedTuple):
    """One call from a function of one module into another module."""

    caller: str
    callee: str
    climb: bool


def calls() -> list[Call]:
    """Calls between modules of the package on the way, in order."""
    sys.path.insert(0, str(PACKAGE.parent))
    import maskerade_fast as mf

    x = np.linspace(0.0, 10.0, 40)

    def run(likelihoods: int) -> None:
        mf.marginalise(x, np.sin(3.0 * x) + 0.01 * x, budget=likelihoods, max_components=2, seed=0)

    run(50)  # imports and compiled loops
    made: list[Call] = []

    class Arrived(Exception):
        pass

    def profile(frame: FrameType, event: str, _: Any) -> None:
        callee = _module(frame)
        if event != "call" or callee is None:
            return
        caller = frame.f_back
        while caller is not None and _module(caller) is None:
            caller = caller.f_back
        source = _module(caller) if caller else None
        if caller is None or source is None or source == callee:
            return
        climb = (layer(callee) or 0) > (layer(source) or 0)
        made.append(Call(f"{source}.{caller.f_code.co_qualname}", f"{callee}.{frame.f_code.co_qualname}", climb))
        if callee == LOOPS:
            sys.setprofile(None)
            raise Arrived

    sys.setprofile(profile)
    try:
        run(50)
    except Arrived:
        return made
    finally:
        sys.setprofile(None)
    raise AssertionError(f"no call of {LOOPS}")


def _module(frame: FrameType) -> str | None:
    """Name of a frame's module below the package; None outside of it."""
    path = Path(frame.f_code.co_filename)
    if PACKAGE not in path.parents:
        return None
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


if __name__ == "__main__":
    path = calls()
    for call in path if "--list" in sys.argv else ():
        print(f"{'^' if call.climb else ' '} {call.caller} -> {call.callee}")
    print(f"{len(path)} calls between modules, {sum(call.climb for call in path)} of them into a higher layer")
