"""What the card itself can do: its clocks at work, a copy, cuBLAS's products, and what a launch costs the host."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from maskerade_fast.backends.gpu import _loader

from . import card as cards
from .clock import Clock, Item


def items(clock: Clock, card: dict[str, Any]) -> list[Item]:
    measures = {"launch": (launch, 1.0), "copy": (copy, 1.0), "product": (product, 3.0)}  # the shortest first
    return [Item(name, seconds, functools.partial(call, clock)) for name, (call, seconds) in measures.items()]


def product(clock: Clock, entry: dict[str, Any]) -> Iterator[None]:
    """cuBLAS's product in float64, large enough for the card's highest rate, and its clocks and power meanwhile."""
    n = 64 if clock.dry else 8192
    rng = np.random.default_rng(8)  # some random columns again and again: all of them would take the host seconds
    a, b = (cupy.concatenate([cupy.asarray(rng.normal(size=(n, n // 16)))] * 16, axis=1) for _ in range(2))
    c = cupy.zeros((n, n))
    entry.update(order=n, **clock.measure(functools.partial(cupy.matmul, a, b, out=c), longest=1.0))
    entry["flops_per_second"] = 2e3 * n**3 / entry["call_ms"]
    yield
    for _ in range(1 if clock.dry else 100):  # some seconds, while nvidia-smi looks
        cupy.matmul(a, b, out=c)
    entry["state_at_work"] = cards.state()
    cupy.cuda.Device().synchronize()
    yield


def copy(clock: Clock, entry: dict[str, Any]) -> Iterator[None]:
    """A copy on the card, bytes read and written."""
    source = cupy.zeros(1000 if clock.dry else 2**28)
    target = cupy.zeros_like(source)
    entry.update(bytes=source.nbytes, **clock.measure(functools.partial(cupy.copyto, target, source), longest=1.0))
    entry["bytes_per_second"] = 2e3 * source.nbytes / entry["call_ms"]
    yield


def launch(clock: Clock, entry: dict[str, Any]) -> Iterator[None]:
    """The host's time for one launch by the backend, the kernel being shorter than that."""
    code = _loader.expand(Path(__file__).with_name("wait.cu"))
    raw = cupy.RawModule(code=code, options=("-std=c++17",)).get_function("wait_f64")
    kernel, args = _loader.Kernel("wait_f64", raw), (cupy.ones(1), np.int32(1))
    kernel((1,), (1,), args)
    cupy.cuda.Device().synchronize()
    launches = 10 if clock.dry else 1000  # no more than the driver queues
    start = time.perf_counter()
    for _ in range(launches):
        kernel((1,), (1,), args)
    entry.update(launches=launches, host_ms=1e3 * (time.perf_counter() - start) / launches)
    cupy.cuda.Device().synchronize()
    yield
