"""Drivers: small runs of every kernel of a topic, through the backend's operations, that assert the results.

`tests/kernels/test_barriers.py` runs them in every order of threads, under the sanitizers, and without each barrier in
turn. A driver therefore meets every barrier of its sources, several times where one guards the reuse of memory, on
inputs as small as that allows, and compiles few instances: each is built once for each sanitizer.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import pkgutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Driver(NamedTuple):
    """One topic's run."""

    name: str
    sources: tuple[str, ...]
    """The .cu files whose barriers, and whose includes', it answers for."""
    run: Callable[[], None]


class Recording(NamedTuple):
    """What a driver did, on a stream of its own."""

    files: Any
    """Of its launches, as `sanitize.replay` takes them."""
    launches: list[tuple[str, Any]]
    """Name and stream of each."""
    stream: Any
    busy: frozenset[Any]
    """Streams that had work."""
    operations: frozenset[str]
    """Those of the backend that were called."""


_registry: dict[str, Driver] = {}


def driver(*sources: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a function without arguments as the driver of `sources`."""

    def register(run: Callable[[], None]) -> Callable[[], None]:
        name = run.__module__.rpartition(".")[2] + "-" + run.__name__
        _registry[name] = Driver(name, sources, run)
        return run

    return register


def all_drivers() -> dict[str, Driver]:
    """Every driver by name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return _registry


def recorded(driver: Driver, emulated: Any, recordings: dict[str, Any]) -> Recording:
    """The recording of a driver in forward order: made once, then kept in `recordings`."""
    import cupy
    import emulate

    if driver.name not in recordings:
        state = emulated.state
        state.options = emulate.Options()
        state.launches.clear()
        state.streams.clear()
        state.busy.clear()
        state.record(Path(tempfile.mkdtemp(dir=recordings["folder"])))
        stream = cupy.cuda.Stream(non_blocking=True)
        with _operations() as called, stream:
            driver.run()
        launches = list(zip(state.launches, state.streams, strict=True))
        recordings[driver.name] = Recording(state.recorded, launches, stream, frozenset(state.busy), frozenset(called))
        state.record(None)
    return recordings[driver.name]


@contextmanager
def _operations() -> Iterator[set[str]]:
    """Names of the backend's operations that are called meanwhile."""
    from maskerade_fast.backends import gpu

    called: set[str] = set()

    def noted(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(operation)
        def call(*args: Any, **options: Any) -> Any:
            called.add(name)
            return operation(*args, **options)

        return call

    operations = {name: getattr(gpu, name) for name in gpu.__all__}
    places = [(gpu, name) for name in operations] + [
        (sys.modules[f.__module__], name) for name, f in operations.items()
    ]
    for place, name in places:
        setattr(place, name, noted(name, operations[name]))
    try:
        yield called
    finally:
        for place, name in places:
            setattr(place, name, operations[name])


def same_as_cpu(operation: str, *args: Any, tolerance: float = 1e-9, **options: Any) -> None:
    """Call an operation of both backends on NumPy arrays; every result within `tolerance` of its largest entry."""
    import cupy

    gpu_operation = getattr(importlib.import_module(f"maskerade_fast.backends.gpu.{_module_of(operation)}"), operation)
    there = gpu_operation(*(cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in args), **options)
    compare(there, _expected(operation, pickle.dumps((args, options))), tolerance)


def compare(there: Any, here: Any, tolerance: float = 1e-9) -> None:
    """A result of the GPU backend against the CPU's, entry by entry; NaN only where that has NaN."""
    if isinstance(here, (tuple, list)):
        assert len(there) == len(here)
        for one, other in zip(there, here, strict=True):
            compare(one, other, tolerance)
    elif here is not None:
        finite = np.abs(np.asarray(here)[np.isfinite(here)])
        bound = tolerance * float(np.max(finite, initial=0.0))
        got = there.get() if hasattr(there, "get") else there
        np.testing.assert_allclose(got, here, rtol=0.0, atol=bound, equal_nan=True)
    else:
        assert there is None


@functools.cache
def _module_of(operation: str) -> str:
    return str(getattr(importlib.import_module("maskerade_fast.backends.cpu"), operation).__module__.rpartition(".")[2])


@functools.cache
def _expected(operation: str, arguments: bytes) -> Any:
    args, options = pickle.loads(arguments)
    return getattr(importlib.import_module("maskerade_fast.backends.cpu"), operation)(*args, **options)


def mixtures(rng: np.random.Generator, sizes: list[int], n_dims: int) -> tuple[Any, Any, Any, Any]:
    """offsets, weights, means, scales of a ragged batch with so many components each."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = int(offsets[-1])
    weights = rng.uniform(0.2, 1.0, n)
    return offsets, weights, rng.normal(size=(n, n_dims)), rng.uniform(0.05, 0.4, (n, n_dims))
