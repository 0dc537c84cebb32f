"""Expand, compile, cache and launch the CUDA sources.

`load` pastes the includes of a source in place, since CuPy's disk cache sees only the text of the source itself, and
compiles one instance for each entry and set of macros: a first call does not wait for entries that it has no use for.
Entries are ``extern "C"``: every CuPy caches plain names on disk.
Instances live as long as Python, one for each device: a module belongs to the device it was loaded on.

Where the wheel was built with ``MF_BUILD_FATBIN``, an instance's binary lies beside its source and is loaded if it
holds an image for the card.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import BackendUnavailableError

try:
    import cupy
except ImportError as error:
    _cause = (str(error).strip() or "no message").splitlines()[0]
    raise BackendUnavailableError(
        "the GPU backend needs CuPy and the CUDA driver: pip install 'maskerade_fast[cuda12]' or "
        f"'maskerade_fast[cuda13]', whichever CUDA the driver supports ({_cause})"
    ) from error
except OSError as error:
    raise BackendUnavailableError(
        f"CuPy cannot be imported: {error}; if that is its folder for compiled kernels, "
        "set CUPY_CACHE_DIR to one that can be written"
    ) from error

__all__ = ["DeviceLimits", "Kernel", "device_limits", "device_names", "device_of", "expand", "load", "source_folder"]

DEFAULT_SHARED = 48 * 1024  # bytes a block may have without a request
ONE_ENTRY, WITH_ENTRY = "MF_ONE_ENTRY", "MF_WITH_"  # macros: leave out every entry but those with a macro of their own
SYNCHRONISE = "MASKERADE_FAST_SYNC_LAUNCHES"  # environment: wait after each launch, so that a fault names its kernel


def _require_device() -> None:
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendUnavailableError(f"no CUDA device can be used: {error}") from error
    if count == 0:
        raise BackendUnavailableError("no CUDA device can be used: the driver shows none (CUDA_VISIBLE_DEVICES?)")


_require_device()


class DeviceLimits(NamedTuple):
    """What launch shapes depend on."""

    shared_bytes: int
    """Most shared memory a block may ask for."""
    multiprocessors: int
    capability: int
    """Compute capability without its point: 90 for 9.0."""


def device_limits() -> DeviceLimits:
    """Limits of the current device."""
    return _limits_of(cupy.cuda.runtime.getDevice())


@functools.cache
def _limits_of(device: int) -> DeviceLimits:
    card = cupy.cuda.Device(device)
    attributes = card.attributes
    return DeviceLimits(
        int(attributes["MaxSharedMemoryPerBlockOptin"]),
        int(attributes["MultiProcessorCount"]),
        int(card.compute_capability),
    )


def device_of(*arrays: Any) -> Any:
    """The device `arrays` live on, for a ``with`` statement: what is made and launched in it stays there.

    None counts for nothing. ValueError if the arrays live on several devices.
    """
    devices = sorted({array.device.id for array in arrays if array is not None})
    if len(devices) > 1:
        raise ValueError(f"arrays live on devices {devices}, expected one; copy them with cupy.cuda.Device(k)")
    return cupy.cuda.Device(devices[0]) if devices else cupy.cuda.Device()


def device_names() -> list[str]:
    """What the cards are called, in the order of their numbers."""
    runtime = cupy.cuda.runtime
    return [runtime.getDeviceProperties(k)["name"].decode() for k in range(runtime.getDeviceCount())]


class Kernel:
    """One entry of a compiled source, on the device that was current at `load`."""

    def __init__(self, name: str, raw: Any) -> None:
        self.name = name
        self.raw = raw
        self._allowed = DEFAULT_SHARED

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], shared_mem: int = 0
    ) -> None:
        """Launch on the current stream.

        `args` are CuPy arrays or NumPy scalars of the exact C type, ``np.int64(n)`` for ``index_t``: Python numbers
        raise, since their width would be a guess. Wherever the environment has ``MASKERADE_FAST_SYNC_LAUNCHES`` the
        call waits for the kernel, and its failure is raised here with the kernel's name.
        """
        for k, arg in enumerate(args):
            if not isinstance(arg, (cupy.ndarray, np.generic)):
                kind = type(arg).__name__
                raise TypeError(f"argument {k} of {self.name}: {kind}, expected a CuPy array or a NumPy scalar")
        if shared_mem > self._allowed:
            self.raw.max_dynamic_shared_size_bytes = shared_mem
            self._allowed = shared_mem
        self.raw(grid, block, args, shared_mem=shared_mem)
        if os.environ.get(SYNCHRONISE):
            try:
                cupy.cuda.get_current_stream().synchronize()
            except cupy.cuda.runtime.CUDARuntimeError as error:
                raise RuntimeError(f"kernel {self.name}, grid {grid}, block {block}: {error}") from error


def load(source: str, entry: str, **defines: int) -> Kernel:
    """Entry `entry` of ``kernels/<source>.cu`` compiled with the macros `defines`, for the current device."""
    return _kernel(cupy.cuda.runtime.getDevice(), source, entry, tuple(sorted(defines.items())))


@functools.cache
def _kernel(device: int, source: str, entry: str, defines: tuple[tuple[str, int], ...]) -> Kernel:
    module = _binary(device, source, defines)
    if module is None:
        chosen = (f"-D{name}={value}" for name, value in defines)
        options = ("-std=c++17", *chosen, f"-D{ONE_ENTRY}", f"-D{WITH_ENTRY}{entry}")
        module = cupy.RawModule(code=expand(source_folder() / f"{source}.cu"), options=options)
    return Kernel(entry, module.get_function(entry))


@functools.cache
def _binary(device: int, source: str, defines: tuple[tuple[str, int], ...]) -> Any:
    """All entries of an instance from its file; None if there is no file, or no image for this card in it."""
    path = source_folder() / (instance_name(source, defines) + ".fatbin")
    if not path.is_file():
        return None
    module = cupy.RawModule(path=str(path))
    try:
        module.compile()
    except cupy.cuda.driver.CUDADriverError:
        return None
    return module


def instance_name(source: str, defines: tuple[tuple[str, int], ...]) -> str:
    """Name of a compiled instance; CMakeLists.txt forms the same one."""
    return "-".join([source, *(f"{name}_{value}" for name, value in sorted(defines))])


@functools.cache
def source_folder() -> Path:
    """The folder of the CUDA sources: beside the package's modules in a wheel, one level up in a checkout."""
    package = Path(__file__).parents[2]
    candidates = [package / "kernels", package.parent / "kernels"]
    for folder in candidates:
        if (folder / "common.cuh").is_file():
            return folder
    raise BackendUnavailableError(f"the CUDA sources are missing, looked in {' and '.join(map(str, candidates))}")


def expand(path: Path) -> str:
    """Text of a source with each ``#include "x.cuh"`` replaced by that file, once; ``#line`` marks name the files.

    Every entry is put between ``#if`` and ``#endif``: with ``MF_ONE_ENTRY`` only those are compiled that have a macro
    ``MF_WITH_<entry>``. So the text, and what CuPy's cache makes of it, is the same for all of them.
    """
    return "".join(_expanded(path, set()))


_INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
_ENTRY = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)')


def _expanded(path: Path, seen: set[Path]) -> list[str]:
    seen.add(path)
    lines = [f'#line 1 "{path.name}"\n']
    text = path.read_text(encoding="utf-8").splitlines()
    within = False
    for number, line in enumerate(text, 1):
        include = _INCLUDE.match(line)
        if include is None:
            entry = _ENTRY.match("\n".join(text[number - 1 : number + 2]))
            if entry is not None:
                within = True
                lines.append(f"#if !defined({ONE_ENTRY}) || defined({WITH_ENTRY}{entry[1]})\n")
                lines.append(f'#line {number} "{path.name}"\n')
            lines.append("\n" if line.strip() == "#pragma once" else line + "\n")
            if within and line.startswith("}"):
                within = False
                lines += ["#endif\n", f'#line {number + 1} "{path.name}"\n']
            continue
        other = path.parent / include[1]
        if other not in seen:
            lines += _expanded(other, seen)
        lines.append(f'#line {number + 1} "{path.name}"\n')
    return lines
