"""Modules and kernels of the stand-in for cupy: compiled by g++, launched by the emulator, recorded if asked."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import emulate
import fake_memory
import numpy as np
from fake_arrays import names, ndarray
from fake_devices import stream_of
from fake_state import CUDADriverError, state

_CODES = dict(zip(names("f8 f4 i8 i4 i2 i1 u8 u4 u2 u1 b1"), "dfqihbQIHB?", strict=True))  # dtype: letter of `struct`


class CompileException(Exception):
    pass


class RawModule:
    """cupy.RawModule: compiled by g++ for the emulator."""

    def __init__(
        self, *, code: str | None = None, path: str | None = None, options: tuple[str, ...] = (), backend: str = "nvrtc"
    ) -> None:
        if (code is None) == (path is None):
            raise TypeError("Exactly one of `code` and `path` keyword arguments must be given.")
        if not isinstance(options, tuple):
            raise TypeError("options must be a tuple")
        self.code, self.path, self.options = code, path, options
        self.defines: dict[str, str] = {}
        for option in options:
            if option.startswith("-D"):
                name, _, value = option[2:].partition("=")
                if name != "MF_ONE_ENTRY" and not name.startswith("MF_WITH_"):  # all entries at once: g++ is slow
                    self.defines[name] = value or "1"
            elif option != "-std=c++17":
                raise ValueError(f"option {option!r} means nothing to the emulator")

    def compile(self, log_stream: Any = None) -> None:
        self._library()

    def _library(self) -> emulate.Library:
        if self.code is None:
            raise CUDADriverError("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image for the device")
        try:
            return emulate.load(self.code, tuple(sorted(self.defines.items())), state.devices[state.current].capability)
        except emulate.CompileError as error:
            raise CompileException(str(error)) from error

    def get_function(self, name: str) -> RawKernel:
        library = self._library()
        if name not in library.entries:
            raise CUDADriverError(f"CUDA_ERROR_NOT_FOUND: no kernel {name}, the source has {sorted(library.entries)}")
        return RawKernel(self, name)


class RawKernel:
    """One kernel of a RawModule, for every device as CuPy's."""

    def __init__(self, module: RawModule, name: str) -> None:
        self.module, self.name = module, name
        self._shared: dict[int, int] = {}

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return self._shared.get(state.current, 48 * 1024)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        if size > state.devices[state.current].shared_bytes:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        self._shared[state.current] = size

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch on `stream`, or else on the current one, which `state.streams` notes.

        As in CuPy the kernel's own ``enable_cooperative_groups`` is no keyword of a launch, and others raise TypeError.
        """
        library = self.module._library()
        codes = library.entries[self.name]
        if len(args) != len(codes):
            raise emulate.LaunchError(f"{self.name}: {len(args)} arguments, expected {len(codes)}")
        packed = [self._packed(k, arg, code) for k, (arg, code) in enumerate(zip(args, codes, strict=True))]
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise CUDADriverError(
                f"CUDA_ERROR_INVALID_VALUE: {self.name} may not have {shared_mem} bytes of shared memory in a block"
            )
        extents = [fake_memory.extent_of(arg._a) if isinstance(arg, ndarray) else None for arg in args]
        state.launches.append(self.name)
        state.streams.append(stream_of(stream))
        limit = state.devices[state.current].shared_bytes
        roots = {} if state.recording is None else self._record(grid, block, args, shared_mem, limit)
        library.launch(self.name, grid, block, packed, shared_mem, limit, state.options, extents)
        if roots:
            with self._last_record().open("ab") as file:
                file.write(b"".join(root.tobytes("K") for root in roots.values()))

    def _packed(self, k: int, arg: Any, code: str) -> Any:
        where = f"argument {k} of {self.name}"
        if isinstance(arg, ndarray):
            own = "*" + _CODES[arg.dtype.str[1:]]
            if own != code and (own, code) != ("*?", "*B"):
                raise emulate.LaunchError(f"{where}: an array of {arg.dtype}, expected {code!r}")
            if arg._device != state.current:
                raise emulate.LaunchError(f"{where} lives on device {arg._device}, the launch is on {state.current}")
            if not arg.flags.c_contiguous:
                raise emulate.LaunchError(f"{where} is not C-contiguous")
            return emulate.ctypes.c_void_p(arg._a.ctypes.data)
        if isinstance(arg, bool | int | float) and not isinstance(arg, np.generic):
            arg = {bool: np.bool_, int: np.int64, float: np.float64}[type(arg)](arg)
        if isinstance(arg, np.generic):
            if _CODES.get(arg.dtype.str[1:]) != code:
                raise emulate.LaunchError(f"{where}: a {arg.dtype}, expected {code!r}")
            return arg.tobytes()
        raise TypeError(f"Unsupported type {type(arg)}")

    def _record(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], shared: int, limit: int
    ) -> dict[int, np.ndarray[Any, Any]]:
        """Write a launch for `sanitize.replay`; the allocations it reads and writes, whose later contents follow."""
        assert state.recording is not None
        roots: dict[int, np.ndarray[Any, Any]] = {}
        parts: list[bytes] = []
        for arg in args:
            if isinstance(arg, ndarray):
                root = fake_memory.root_of(arg._a)
                roots.setdefault(id(root), root)
                offset = arg._a.ctypes.data - root.ctypes.data if arg.size else 0
                parts.append(struct.pack("<qq", list(roots).index(id(root)), offset))
            else:
                value = np.asarray(arg).tobytes()
                parts.append(struct.pack("<qq", -1, len(value)) + value)
        name = self.name.encode()
        sizes = [*grid, *[1] * (3 - len(grid)), *block, *[1] * (3 - len(block)), shared, limit, len(roots)]
        head = struct.pack("<q", len(name)) + name + struct.pack("<9q", *sizes)
        for root in roots.values():
            content = root.tobytes("K")
            head += struct.pack("<q", len(content)) + content
        defines = tuple(sorted(self.module.defines.items()))
        key = (self.module.code or "", defines, state.devices[state.current].capability)
        path = state.recording / f"{sum(map(len, state.recorded.values())):05d}-{self.name}"
        path.write_bytes(head + struct.pack("<q", len(args)) + b"".join(parts))
        state.recorded.setdefault(key, []).append(path)
        return roots

    @staticmethod
    def _last_record() -> Path:
        return max(path for paths in state.recorded.values() for path in paths)
