"""What the cards are called."""

from __future__ import annotations

import cupy


def names() -> list[str]:
    """One name a card, in the order of their numbers."""
    runtime = cupy.cuda.runtime
    return [runtime.getDeviceProperties(k)["name"].decode() for k in range(runtime.getDeviceCount())]
