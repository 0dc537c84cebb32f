"""Devices, streams and events of the stand-in for cupy."""

from __future__ import annotations

import time
from typing import Any

from fake_state import CUDARuntimeError, pool, state


class Device:
    """cupy.cuda.Device."""

    def __init__(self, device: Any = None) -> None:
        self.id = state.current if device is None else int(device)
        self._stack: list[int] = []

    def use(self) -> None:
        if not 0 <= self.id < len(state.devices):
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        state.current = self.id

    def __enter__(self) -> Device:
        self._stack.append(state.current)
        self.use()
        return self

    def __exit__(self, *args: object) -> None:
        state.current = self._stack.pop()

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def synchronize(self) -> None:
        state.synchronised += 1

    @property
    def compute_capability(self) -> str:
        return str(state.devices[self.id].capability)

    @property
    def attributes(self) -> dict[str, int]:
        device = state.devices[self.id]
        return {
            "MaxSharedMemoryPerBlock": 48 * 1024,
            "MaxSharedMemoryPerBlockOptin": device.shared_bytes,
            "MaxSharedMemoryPerMultiprocessor": device.shared_bytes + 1024,
            "MultiProcessorCount": device.multiprocessors,
            "ComputeCapabilityMajor": device.capability // 10,
            "ComputeCapabilityMinor": device.capability % 10,
            "MaxThreadsPerBlock": 1024,
            "WarpSize": 32,
        }

    @property
    def mem_info(self) -> tuple[int, int]:
        total = 80 * 10**9
        return total - pool.total_bytes(), total


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        state.synchronised += 1


class Stream:
    null: Stream

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.ptr = 0 if null else id(self)
        self._previous: list[Stream] = []

    def __enter__(self) -> Stream:
        self._previous.append(streams["current"])
        streams["current"] = self
        return self

    def __exit__(self, *args: object) -> None:
        streams["current"] = self._previous.pop()

    def use(self) -> Stream:
        streams["current"] = self
        return self

    def synchronize(self) -> None:
        state.synchronised += 1

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def wait_event(self, event: Event) -> None:
        pass


Stream.null = Stream(null=True)
streams = {"current": Stream.null}


def stream_of(stream: Any = None) -> Any:
    """`stream`, or else the current one; noted as busy."""
    chosen = streams["current"] if stream is None else stream
    if not isinstance(chosen, Stream):
        raise AttributeError(f"{type(chosen).__name__!r} object has no attribute 'ptr'")
    state.busy.add(chosen)
    return chosen


def device_count() -> int:
    if not state.devices:
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return len(state.devices)
