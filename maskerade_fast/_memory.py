"""How much memory an operation may use: the caller's `max_bytes` or a share of what is free; a result all of it."""

from __future__ import annotations

import math
import os
from pathlib import Path

FREE_SHARE = 0.5  # of the free memory, where the caller sets no bound
_UNKNOWN = 4 * 2**30  # taken as free where the system does not say
_SMALL = 64 * 2**20  # below this the free memory is not looked up


def workers_that_fit(most: int, bytes_each: int, max_bytes: int | None, what: str) -> int:
    """Workers, at most `most`, whose working memory stays within `max_bytes`.

    Parameters
    ----------
    most : int
        Workers that could be used; at least 1.
    bytes_each : int
        Working memory of one.
    max_bytes : int or None
        The bound; None: half of the memory that is free.
    what : str
        What one worker holds, for the message.

    Raises
    ------
    MemoryError
        If not even one fits, naming the bytes needed and the bound.
    """
    if max_bytes is None and most * bytes_each <= _SMALL:
        return most
    bound = int(FREE_SHARE * free_bytes()) if max_bytes is None else max_bytes
    if bytes_each > bound:
        origin = f"max_bytes={bound}" if max_bytes is not None else f"{bound}, half of the free memory"
        raise MemoryError(f"{what} needs {bytes_each} bytes, more than {origin}; pass a larger max_bytes")
    return min(most, bound // max(bytes_each, 1))


def require_room(shape: tuple[int, ...], what: str) -> None:
    """MemoryError for a float64 result of `shape` that memory has no room for.

    NumPy would often get the pages from a system that promises more than it has, and lose the process on the way.
    """
    needed = 8 * math.prod(shape)
    if needed > _SMALL and needed > (free := free_bytes()):
        raise MemoryError(f"{what} of shape {shape} needs {needed} bytes, more than the {free} that are free")


def require_bytes(needed: int, what: str) -> None:
    """MemoryError for `what`, an argument with its value, that needs more than half of the free memory."""
    if needed > _SMALL and needed > (bound := int(FREE_SHARE * free_bytes())):
        raise MemoryError(f"{what} needs about {needed} bytes, more than {bound}, half of the free memory; lower it")


def free_bytes() -> int:
    """Memory that can be had without swapping, within the control group's limit on Linux."""
    candidates = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                candidates.append(1024 * int(line.split()[1]))
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            candidates.append(max(0, int(limit) - int((group / "memory.current").read_text())))
    except (OSError, ValueError):
        pass
    if not candidates:
        try:
            candidates.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
        except (AttributeError, OSError, ValueError):
            candidates.append(_UNKNOWN)
    return min(candidates)
