"""Choice of backend by the type of the arrays: NumPy -> `backends.cpu`, CuPy -> `backends.gpu`.

A backend is a module of plain functions, arrays in, arrays out: those of `contract.Backend`. Nothing here imports numba
or cupy until arrays of that kind come in, and nothing moves between devices unless `to_device` and its kin are called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from .._checks import is_cupy, one_of
from ..errors import BackendUnavailableError
from ._blas import single_threaded_blas
from .contract import Backend

__all__ = [
    "Backend",
    "array_namespace",
    "compile_ahead",
    "compiling",
    "get_backend",
    "gpu_names",
    "gpu_problem",
    "host_loops",
    "is_cupy",
    "on_their_device",
    "require_gpu",
    "single_threaded_blas",
    "to_device",
    "to_device_of",
    "to_host",
    "worker_threads",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def array_namespace(*arrays: Any) -> ModuleType:
    """numpy or cupy, by the type of `arrays`; a mixture raises TypeError."""
    return importlib.import_module("cupy" if _on_gpu(arrays) else "numpy")


def get_backend(*arrays: Any) -> Backend:
    """`backends.cpu` or `backends.gpu`, by the type of `arrays`; a mixture raises TypeError."""
    return cast(Backend, _load("gpu" if _on_gpu(arrays) else "cpu"))  # each says to mypy that it is one


def host_loops() -> ModuleType:
    """Compiled loops for arrays that stay on the host on every device."""
    return importlib.import_module(f"{__name__}.cpu._host_loops")


def compile_ahead(n_dims: int, say: Callable[[], Any] | None = None) -> None:
    """Have a second process compile half of the CPU's loops where the disk cache lacks them; for a command.

    `say` is called before that begins, and where no second process can help too.
    """
    importlib.import_module(f"{__name__}.cpu._ahead").compile_ahead(n_dims, say)


def compiling() -> bool:
    """Whether loops of the CPU backend are being compiled at this moment."""
    cache = sys.modules.get(f"{__name__}.cpu._cache")
    return cache is not None and cache.Compilations.running > 0


def worker_threads() -> int:
    """Threads that the CPU backend computes on."""
    return int(importlib.import_module(f"{__name__}.cpu._parallel").n_threads())


def gpu_problem() -> str | None:
    """Why no GPU can be used, in one line; None if one can. No CUDA context is created."""
    try:
        _load("gpu")
    except BackendUnavailableError as error:
        return " ".join(str(error).split())
    return None


def require_gpu() -> None:
    """Raise BackendUnavailableError with the cause if no GPU can be used."""
    problem = gpu_problem()
    if problem is not None:
        raise BackendUnavailableError(f"device='gpu': {problem}")


def gpu_names() -> list[str]:
    """What the usable GPUs call themselves; BackendUnavailableError if there is none."""
    require_gpu()
    names: list[str] = importlib.import_module(f"{__name__}.gpu._loader").device_names()
    return names


def to_host(array: Any) -> Any:
    """`array` as a NumPy array, copied from the card if it lives there."""
    return array.get() if is_cupy(array) else np.asarray(array)


def to_device(array: Any, device: str) -> Any:
    """`array` on "cpu" or "gpu" (the current one); itself if it is there already.

    Raises
    ------
    BackendUnavailableError
        For "gpu" where there is none, with the cause.
    """
    if one_of(device, "device", ("cpu", "gpu")) == "cpu":
        return to_host(array)
    if is_cupy(array):
        return array
    require_gpu()
    return importlib.import_module("cupy").asarray(array)


def to_device_of(reference: Any, array: Any) -> Any:
    """`array` where `reference` lives, copied across the bus if need be."""
    if not is_cupy(reference):
        return to_host(array)
    with reference.device:
        return to_device(array, "gpu")


def on_their_device(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Run `function` on the device of its CuPy arguments, or of those inside dataclasses; the current one comes back.

    Nothing happens where no CuPy array can be. Arguments on several cards raise ValueError. CuPy's out-of-memory error
    is a MemoryError that says what to do about it.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if "cupy" not in sys.modules:
            return function(*args, **kwargs)
        with _device_of((*args, *kwargs.values())):
            try:
                return function(*args, **kwargs)
            except MemoryError as error:
                if not is_cupy(error):
                    raise
                raise MemoryError(f"{error} Pass a smaller max_bytes, or fewer mixtures or points at a time") from error

    return call


def _device_of(values: Any) -> contextlib.AbstractContextManager[Any]:
    devices = {device.id: device for device in _devices(values)}
    if len(devices) > 1:
        raise ValueError(f"arguments: they live on GPUs {sorted(devices)}, expected one; copy with cupy.cuda.Device(k)")
    return next(iter(devices.values()), contextlib.nullcontext())


def _devices(value: Any) -> Iterator[Any]:
    if is_cupy(value):
        yield value.device
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _devices(getattr(value, field.name))
    elif isinstance(value, (tuple, list)) and len(value) and not isinstance(value[0], (int, float)):
        for item in value:
            yield from _devices(item)


def _on_gpu(arrays: tuple[Any, ...]) -> bool:
    kinds = {is_cupy(array) for array in arrays if array is not None}
    if len(kinds) > 1:
        raise TypeError("arguments: NumPy and CuPy arrays are mixed, expected one kind; move with g.to('cpu'|'gpu')")
    return kinds == {True}


def _load(name: str) -> ModuleType:
    backend = _backend_or_reason(name)
    if isinstance(backend, str):
        raise BackendUnavailableError(backend)
    return backend


@functools.cache
def _backend_or_reason(name: str) -> ModuleType | str:
    """A backend, or why it cannot be used. Looked up once: an import takes a lock, which a fork could leave locked."""
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except BackendUnavailableError as error:
        return str(error)
