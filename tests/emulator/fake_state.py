"""What tests choose for the stand-in for cupy and read from it, its errors, and its memory pool."""

from __future__ import annotations

import dataclasses
import weakref
from pathlib import Path
from typing import Any

import emulate
import numpy as np


@dataclasses.dataclass
class FakeDevice:
    """What the backend may ask a card."""

    shared_bytes: int = 232448
    multiprocessors: int = 132
    capability: int = 90


@dataclasses.dataclass
class State:
    """What a test chooses and reads."""

    devices: list[FakeDevice] = dataclasses.field(default_factory=lambda: [FakeDevice()])
    current: int = 0
    options: emulate.Options = dataclasses.field(default_factory=emulate.Options)
    """Order of fibers and the barrier to leave out."""
    launches: list[str] = dataclasses.field(default_factory=list)
    """Names of the kernels launched so far."""
    streams: list[Any] = dataclasses.field(default_factory=list)
    """The stream that each of them went to."""
    busy: set[Any] = dataclasses.field(default_factory=set)
    """Streams that had work: a launch, a copy, a function or an operator, an array made or filled."""
    recording: Path | None = None
    """Where launches are written for a sanitizer's replay; see `record`."""
    recorded: dict[tuple[str, tuple[tuple[str, str], ...], int], list[Path]] = dataclasses.field(default_factory=dict)
    """Files of the recorded launches by (code, macros, capability)."""
    errors: str = "ignore"
    """cupyx.errstate's linalg."""
    pooled: bool = True
    """Whether new arrays come from the memory pool: cupy.cuda.set_allocator."""
    synchronised: int = 0
    """How often anyone waited for the device."""

    def record(self, folder: Path | None) -> None:
        """Write every launch from now on to `folder`; None stops."""
        self.recording, self.recorded = folder, {}


state = State()


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


OutOfMemoryError.__module__ = "cupy.cuda.memory"


class MemoryPool:
    """Counts the bytes of living arrays, in blocks of 512 as CuPy's pool does."""

    def __init__(self) -> None:
        self._used = self._total = 0
        self._limit = 0
        self._roots: dict[int, weakref.finalize[..., Any]] = {}

    def _own(self, array: np.ndarray[Any, Any]) -> None:
        """Count an array that is no view of another one."""
        if id(array) in self._roots or not state.pooled:
            return
        size = -(-array.nbytes // 512) * 512
        if self._limit and self._used + size > self._limit:
            raise OutOfMemoryError(
                f"Out of memory allocating {size:,} bytes (allocated so far: {self._used:,} bytes, "
                f"limit set to: {self._limit:,} bytes)."
            )
        self._used += size
        self._total = max(self._total, self._used)
        self._roots[id(array)] = weakref.finalize(array, self._free, self._roots, id(array), size)

    def _free(self, roots: dict[int, Any], key: int, size: int) -> None:
        if roots is self._roots:
            del roots[key]
            self._used -= size

    def used_bytes(self) -> int:
        return self._used

    def total_bytes(self) -> int:
        return self._total

    def free_bytes(self) -> int:
        return self._total - self._used

    def free_all_blocks(self) -> None:
        self._total = self._used

    def set_limit(self, size: int = 0) -> None:
        self._limit = size

    def get_limit(self) -> int:
        return self._limit


pool = MemoryPool()
