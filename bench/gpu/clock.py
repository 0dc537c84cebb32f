"""Times of calls by CUDA events, warm, medians; and of the kernels within a call, one by one."""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np

from maskerade_fast.backends.gpu import _loader

REPEATS = 20
LONGEST = 3.0  # seconds that the repeats of one call may take; fewer than REPEATS then, and the row says how many
HOST_AHEAD = 0.05  # seconds of host work beyond which the stream is not held up to measure without it
LONG_CALL = 0.3  # seconds of a call beyond which what the host adds is lost in it
AWAKE = 0.03  # seconds of work before a call is timed: a card that has waited for the host may have slowed down
WAIT = 30e-6  # seconds the stream is held before each kernel, more than the host needs to queue one

Call = Callable[[], Any]


class OutOfTime(Exception):
    """The time of the part is used up."""


class Item(NamedTuple):
    """A named piece of a part."""

    name: str
    seconds: float
    """The item is left out, and the report says so, where less time is left."""
    fill: Callable[[dict[str, Any]], Iterator[None]]
    """Fills the item's entry of the report and pauses after each figure worth writing down; where the time was too
    short for a figure, `missing` says which."""


class Clock:
    """Measures until a deadline."""

    def __init__(self, seconds: float | None, *, dry: bool) -> None:
        self.start = time.monotonic()
        self.seconds = math.inf if seconds is None or dry else seconds
        self.dry = dry
        self._state = cupy.ones(1)
        module = cupy.RawModule(code=_loader.expand(Path(__file__).with_name("wait.cu")), options=("-std=c++17",))
        self._wait = module.get_function("wait_f64")
        self._steps_a_second = 1e6
        self._hold(1e-3)
        self._steps_a_second = max(self._rate(1000 if dry else 500_000) for _ in range(1 if dry else 30))

    def _rate(self, steps: int) -> float:
        """Steps a second of the kernel that waits; a card that was idle is slower at first."""
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        self._wait((1,), (1,), (self._state, np.int32(steps)))
        end.record()
        end.synchronize()
        return steps / max(1e-3 * float(cupy.cuda.get_elapsed_time(begin, end)), 1e-6)

    def left(self) -> float:
        """Seconds until the deadline; a dry run has none, for its length depends on the load of the machine."""
        return self.start + self.seconds - time.monotonic()

    def require(self, seconds: float) -> None:
        if self.left() < seconds:
            raise OutOfTime(f"{seconds:.0f} s needed, {self.left():.0f} s left of {self.seconds:.0f}")

    def measure(self, call: Call, longest: float = LONGEST) -> dict[str, Any]:
        """Medians over REPEATS calls, or as many as take `longest` seconds, after two to warm up, in a dry run one.

        call_ms: from an idle stream to the last kernel's end; its 10th and 90th percentile. device_ms: the stream's
        time when the host has queued the call in advance; None for calls of much host work and for long ones. host_ms:
        until the call returns, kernels perhaps still running. waits: whether the host waits for the device inside the
        call, as a copy to the host makes it do; device_ms then holds part of the host's time. repeats: their number.
        """
        self._hold(AWAKE)
        if not self.dry:
            self._once(call)
        host, total = self._once(call)
        repeats = 1 if self.dry else int(max(1, min(REPEATS, min(longest, 0.3 * self.left()) / max(total, 1e-6))))
        self.require(1.5 * total)
        times = sorted(self._timed(call, 0.0) for _ in range(repeats))
        device, waits = None, None
        if host < HOST_AHEAD and total < LONG_CALL:
            host = statistics.median(self._once(call)[0] for _ in range(min(5, repeats)))
            device = statistics.median(self._timed(call, 1.5 * host + WAIT) for _ in range(repeats))
            waits = None if self.dry else self._waits(call, 3 * host + 5e-3)
        return {
            "call_ms": statistics.median(times),
            "call_p10_ms": times[len(times) // 10],
            "call_p90_ms": times[-1 - len(times) // 10],
            "device_ms": device,
            "host_ms": 1e3 * host,
            "waits": waits,
            "repeats": repeats,
        }

    def kernels(self, call: Call, repeats: int = 5) -> dict[str, dict[str, Any]]:
        """Device time of each of our kernels within a call: {name: {launches, total_ms}}, medians of totals.

        The stream is held before each launch, so that no gap of the host's making is in the figures.
        """
        totals: dict[str, list[float]] = defaultdict(list)
        launches: dict[str, int] = {}
        start = time.monotonic()
        for _ in range(1 if self.dry else repeats):
            if launches and time.monotonic() - start > LONG_CALL:
                break
            with self._watched() as seen:
                call()
                cupy.cuda.Device().synchronize()
            sums: dict[str, float] = defaultdict(float)
            for name, begin, end in seen:
                sums[name] += cupy.cuda.get_elapsed_time(begin, end)
            for name, total in sums.items():
                totals[name].append(total)
                launches[name] = sum(other == name for other, _, _ in seen)
        return {name: {"launches": launches[name], "total_ms": statistics.median(t)} for name, t in totals.items()}

    @contextmanager
    def _watched(self) -> Iterator[list[tuple[str, Any, Any]]]:
        kind: Any = _loader.Kernel
        launch = kind.__call__
        seen: list[tuple[str, Any, Any]] = []

        def watched(kernel: Any, *args: Any, **kwargs: Any) -> None:
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            self._hold(WAIT)
            begin.record()
            launch(kernel, *args, **kwargs)
            end.record()
            seen.append((kernel.name, begin, end))

        kind.__call__ = watched
        try:
            yield seen
        finally:
            kind.__call__ = launch

    def _hold(self, seconds: float) -> None:
        """Keep the stream busy for about so long."""
        steps = 1 if self.dry else max(1, int(min(seconds, 1.0) * self._steps_a_second))
        self._wait((1,), (1,), (self._state, np.int32(steps)))

    def _waits(self, call: Call, hold: float) -> bool:
        """Whether `call` returns only after a stream that is busy for `hold` seconds is done with it."""
        cupy.cuda.Device().synchronize()
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        start = time.perf_counter()
        begin.record()
        self._hold(hold)
        end.record()
        result = call()
        host = time.perf_counter() - start
        cupy.cuda.Device().synchronize()
        del result
        return host >= 0.9e-3 * float(cupy.cuda.get_elapsed_time(begin, end))

    def _once(self, call: Call) -> tuple[float, float]:
        """Seconds until a call returns and until the device is done."""
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        result = call()
        host = time.perf_counter() - start
        cupy.cuda.Device().synchronize()
        del result
        return host, time.perf_counter() - start

    def _timed(self, call: Call, hold: float) -> float:
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        cupy.cuda.Device().synchronize()
        if hold:
            self._hold(hold)
        begin.record()
        result = call()
        end.record()
        end.synchronize()
        del result
        return float(cupy.cuda.get_elapsed_time(begin, end))
