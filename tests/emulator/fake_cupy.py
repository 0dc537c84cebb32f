"""A stand-in for cupy, for tests: NumPy's arrays behind CuPy's rules, kernels run by the emulator.

Kept from CuPy is what a backend can get wrong without noticing on NumPy:

* nothing crosses the bus unasked: ``numpy.asarray(a)`` and operations with NumPy arrays raise TypeError;
* reductions and integer indices give 0-d arrays, not scalars;
* ``empty`` holds garbage (NaN here); a failed ``linalg.cholesky`` is silent unless ``cupyx.errstate`` says otherwise;
* arrays have a device, and all that meet, in a launch too, must live on the current one;
* a block may have 48 KB of shared memory unless the kernel was told otherwise, and never more than the device;
* kernel arguments must have the parameter's exact type, which a card does not check, and be C-contiguous.

A name that is not here raises AttributeError: add it if CuPy has it. `modules` gives all modules to install, and
`state` what a test may choose (devices, order of fibers) and read (launches, recordings).
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
import time
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import emulate
import numpy as np
import scipy.linalg
import scipy.special


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
    recording: Path | None = None
    """Where launches are written for a sanitizer's replay; see `record`."""
    recorded: dict[tuple[str, tuple[tuple[str, str], ...], int], list[Path]] = dataclasses.field(default_factory=dict)
    """Files of the recorded launches by (code, macros, capability)."""
    errors: str = "ignore"
    """cupyx.errstate's linalg."""
    synchronised: int = 0
    """How often anyone waited for the device."""

    def record(self, folder: Path | None) -> None:
        """Write every launch from now on to `folder`; None stops."""
        self.recording, self.recorded = folder, {}


state = State()


def reset(order: int = 0) -> None:
    """Back to one device, nothing recorded, an empty pool."""
    global state
    state = State(options=emulate.Options(order=order))
    _pool.__init__()  # type: ignore[misc]


# ---- memory ----


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
        while isinstance(array.base, np.ndarray):
            array = array.base
        if id(array) in self._roots:
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


_pool = MemoryPool()


class MemoryPointer:
    def __init__(self, array: np.ndarray[Any, Any], device: int) -> None:
        self.ptr = array.ctypes.data
        self.device_id = device


# ---- arrays ----


def _names(text: str) -> list[str]:
    return text.split()


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """cupy.ndarray."""

    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        if memptr is not None or strides is not None:
            raise TypeError("this stand-in makes arrays on memory of their own only")
        self._adopt(_poisoned(np.empty(shape, dtype, order)))  # type: ignore[call-overload]

    def _adopt(self, array: np.ndarray[Any, Any]) -> None:
        if array.dtype.kind not in "biufc":
            raise ValueError(f"Unsupported dtype {array.dtype}")
        if not array.dtype.isnative:
            raise ValueError(f"Unsupported byte order of {array.dtype}")
        _pool._own(array)
        self._a = array
        self._device = state.current

    # what the array is
    shape = property(lambda self: self._a.shape, lambda self, shape: setattr(self._a, "shape", shape))
    dtype = property(lambda self: self._a.dtype)
    ndim = property(lambda self: self._a.ndim)
    size = property(lambda self: self._a.size)
    nbytes = property(lambda self: self._a.nbytes)
    itemsize = property(lambda self: self._a.itemsize)
    strides = property(lambda self: self._a.strides)
    flags = property(lambda self: self._a.flags)
    T = property(lambda self: _wrap(self._a.T))
    mT = property(lambda self: _wrap(np.swapaxes(self._a, -1, -2)))
    real = property(lambda self: _wrap(self._a.real))
    imag = property(lambda self: _wrap(self._a.imag))
    data = property(lambda self: MemoryPointer(self._a, self._device))
    device = property(lambda self: Device(self._device))
    base = property(lambda self: None if self._a.base is None else _wrap(self._a.base))

    # to the host
    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        state.synchronised += 1
        if out is not None:
            out[...] = self._a
            return out
        return self._a.copy(order)  # type: ignore[arg-type]

    def set(self, arr: np.ndarray[Any, Any], stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray) or arr.dtype != self.dtype or arr.shape != self.shape:
            raise ValueError("set() takes a NumPy array of the same dtype and shape")
        self._a[...] = arr

    def item(self, *args: Any) -> Any:
        state.synchronised += 1
        return self._a.item(*args)

    def tolist(self) -> Any:
        state.synchronised += 1
        return self._a.tolist()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self._a.dtype.kind not in "iu":
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(self.item())

    def __len__(self) -> int:
        return len(self._a)

    def __iter__(self) -> Iterator[Any]:
        return (_wrap(row) for row in self._a)

    def __repr__(self) -> str:
        return repr(self._a)

    def __str__(self) -> str:
        return str(self._a)

    def __format__(self, spec: str) -> str:
        return format(self._a.item() if self._a.ndim == 0 else self._a, spec)

    def __copy__(self) -> Any:
        return _wrap(self._a.copy())

    def __deepcopy__(self, memo: Any) -> Any:
        return _wrap(self._a.copy())

    def __reduce__(self) -> Any:
        return _wrap, (self._a.copy(),)

    def __getitem__(self, key: Any) -> Any:
        return _wrap(self._a[_unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim > 0:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self._a[_unwrap(key)] = _unwrap(value) if isinstance(value, ndarray) else value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if out is not None:
            kwargs["out"] = tuple(_unwrap(o) for o in out)
        result = _quiet(getattr(ufunc, method), *map(_unwrap, inputs), **kwargs)
        if out is not None:
            return out[0] if len(out) == 1 else out
        return _wrap(result)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return getattr(cupy, func.__name__)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(f"the stand-in's ndarray has no {name!r}: add it to fake_cupy.py if CuPy has it")

        def method(*args: Any, **kwargs: Any) -> Any:
            out = kwargs.get("out")
            keywords = {key: _unwrap(value) for key, value in kwargs.items()}
            result = _quiet(getattr(_unwrap(self), name), *map(_unwrap, args), **keywords)
            return out if out is not None else _wrap(result)

        return method


ndarray.__module__ = "cupy"

_METHODS = _names("""
    all any argmax argmin argsort astype clip conj conjugate copy cumprod cumsum diagonal dot fill flatten max mean min
    nonzero prod ptp put ravel repeat reshape round searchsorted sort squeeze std sum swapaxes take trace transpose var
    view
""")


def _poisoned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.ravel(order="K").view(np.uint8).fill(0xFF)  # a view: new arrays are contiguous in some order
    return array


def _quiet(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with np.errstate(all="ignore"):  # a card raises no floating-point warnings
        return function(*args, **kwargs)


def _wrap(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        wrapped = ndarray.__new__(ndarray)
        wrapped._adopt(np.asarray(value))
        return wrapped
    if isinstance(value, (tuple, list)):
        items = [_wrap(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _unwrap(value: Any) -> Any:
    if isinstance(value, ndarray):
        if value._device != state.current:
            raise ValueError(
                f"Array device must be same as the current device: array device = {value._device} while "
                f"current = {state.current}"
            )
        return value._a
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, (tuple, list)):
        items = [_unwrap(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _delegate(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        result = _quiet(function, *map(_unwrap, args), **{k: _unwrap(v) for k, v in kwargs.items()})
        return out if out is not None else _wrap(result)

    call.__name__ = getattr(function, "__name__", "call")
    return call


def array(obj: Any, dtype: Any = None, copy: bool = True, order: str = "K", subok: bool = False, ndmin: int = 0) -> Any:
    """From the host, or a copy on the device."""
    host = _bare(obj)
    if not copy and isinstance(obj, ndarray) and (dtype is None or np.dtype(dtype) == obj.dtype) and order in "KA":
        return obj
    return _wrap(np.array(host, dtype=dtype, copy=True, order=order, ndmin=ndmin))  # type: ignore[call-overload]


def asarray(a: Any, dtype: Any = None, order: str | None = None, *, blocking: bool = False) -> Any:
    if isinstance(a, ndarray):
        same = np.asarray(_unwrap(a), dtype=dtype, order=order)  # type: ignore[call-overload]
        return a if same is a._a else _wrap(same)
    return _wrap(np.array(_bare(a), dtype=dtype, copy=True, order=order))  # type: ignore[call-overload]


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    return asarray(a, dtype, "C")


def asfortranarray(a: Any, dtype: Any = None) -> Any:
    return asarray(a, dtype, "F")


def _bare(value: Any) -> Any:
    """As `_unwrap`, for what comes from the host."""
    if isinstance(value, ndarray):
        return _unwrap(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_bare(item) for item in value)
    return value


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    return a.get(order=order, out=out) if isinstance(a, ndarray) else np.asarray(a)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    return ndarray(shape, dtype, order=order)


def empty_like(prototype: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> Any:
    return _wrap(_poisoned(np.empty_like(_unwrap(prototype), dtype, order, shape=shape)))  # type: ignore[call-overload]


def get_array_module(*args: Any) -> Any:
    return cupy if any(isinstance(a, ndarray) for a in args) else np


# ---- launches ----

_CODES = dict(zip(_names("f8 f4 i8 i4 i2 i1 u8 u4 u2 u1 b1"), "dfqihbQIHB?", strict=True))  # dtype: letter of `struct`


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
        library = self.module._library()
        codes = library.entries[self.name]
        if len(args) != len(codes):
            raise emulate.LaunchError(f"{self.name}: {len(args)} arguments, expected {len(codes)}")
        packed = [self._packed(k, arg, code) for k, (arg, code) in enumerate(zip(args, codes, strict=True))]
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise CUDADriverError(
                f"CUDA_ERROR_INVALID_VALUE: {self.name} may not have {shared_mem} bytes of shared memory in a block"
            )
        state.launches.append(self.name)
        limit = state.devices[state.current].shared_bytes
        roots = {} if state.recording is None else self._record(grid, block, args, shared_mem, limit)
        library.launch(self.name, grid, block, packed, shared_mem, limit, state.options)
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
                root = arg._a
                while isinstance(root.base, np.ndarray):
                    root = root.base
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


# ---- devices, streams ----


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
        return total - _pool.total_bytes(), total


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
        self._previous.append(_streams["current"])
        _streams["current"] = self
        return self

    def __exit__(self, *args: object) -> None:
        _streams["current"] = self._previous.pop()

    def use(self) -> Stream:
        _streams["current"] = self
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
_streams = {"current": Stream.null}


def _device_count() -> int:
    if not state.devices:
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return len(state.devices)


# ---- linear algebra ----


def _cholesky(a: Any) -> Any:
    matrices = _unwrap(a)
    out = np.empty_like(matrices)
    for index in np.ndindex(matrices.shape[:-2]):
        try:
            out[index] = np.linalg.cholesky(matrices[index])
        except np.linalg.LinAlgError:
            if state.errors == "raise":
                raise
            out[index] = np.nan
    return _wrap(out)


def _solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = False,
) -> Any:
    left, right = _unwrap(a), _unwrap(b)
    if left.ndim == 2:
        return _wrap(_triangular(left, right, trans, lower, unit_diagonal))
    out = np.empty(right.shape, np.result_type(left, right))
    for index in np.ndindex(left.shape[:-2]):
        out[index] = _triangular(left[index], right[index], trans, lower, unit_diagonal)
    return _wrap(out)


def _triangular(a: Any, b: Any, trans: Any, lower: bool, unit: bool) -> Any:
    if b.size == 0:
        return b.copy()
    try:
        return scipy.linalg.solve_triangular(a, b, trans=trans, lower=lower, unit_diagonal=unit, check_finite=False)
    except scipy.linalg.LinAlgError:  # a zero on the diagonal; cuBLAS divides by it
        return np.full_like(b, np.nan)


@contextlib.contextmanager
def _errstate(
    *,
    divide: Any = None,
    over: Any = None,
    under: Any = None,
    invalid: Any = None,
    linalg: Any = None,
    fallback_mode: Any = None,
) -> Iterator[None]:
    before = state.errors
    state.errors = linalg or before
    try:
        yield
    finally:
        state.errors = before


# ---- the modules ----

_FUNCTIONS = _names("""
    abs absolute add all allclose amax amin any append arange arccos arcsin arctan arctan2 argmax argmin argsort
    argwhere array_equal atleast_1d atleast_2d bincount bitwise_and bitwise_or broadcast_arrays broadcast_to ceil clip
    column_stack concatenate copysign copyto cos cosh count_nonzero cumprod cumsum deg2rad diag diagonal diff digitize
    divide dot einsum equal exp exp2 expand_dims expm1 eye flatnonzero flip floor floor_divide fmax fmin full full_like
    greater greater_equal hstack hypot identity indices inner interp invert isclose isfinite isinf isnan kron less
    less_equal lexsort linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor logspace
    matmul max maximum mean median meshgrid min minimum mod moveaxis multiply nan_to_num nanmax nanmin nanmean nansum
    negative nonzero not_equal ones ones_like outer pad percentile power prod ptp quantile ravel reciprocal remainder
    repeat reshape rint roll rollaxis round searchsorted sign signbit sin sinh sort split sqrt square squeeze stack std
    subtract sum swapaxes take take_along_axis tan tanh tensordot tile trace transpose tri tril tril_indices triu
    triu_indices trunc unique unravel_index var vstack where zeros zeros_like
""")
_PLAIN = _names("""
    bool_ can_cast complex64 complex128 complexfloating dtype e euler_gamma finfo float16 float32 float64 floating
    iinfo inexact inf int8 int16 int32 int64 integer intp isscalar issubdtype nan newaxis number pi promote_types
    result_type uint8 uint16 uint32 uint64
""")
_SPECIAL = _names("digamma erf erfc erfcinv erfcx erfinv expit gamma gammaln log_ndtr logit logsumexp ndtr ndtri xlogy")
_LINALG = _names("det eigh eigvalsh inv lstsq norm qr slogdet solve svd")


class Module(types.ModuleType):
    """A module that says what to do about a missing name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"the stand-in for {self.__name__} has no {name!r}: add it to fake_cupy.py if CuPy has it")


def _module(name: str, **names: Any) -> Any:
    module = Module(name)
    module.__dict__.update(names)
    module.__dict__["__path__"] = []
    return module


_linalg = _module(
    "cupy.linalg",
    cholesky=_cholesky,
    LinAlgError=np.linalg.LinAlgError,
    **{name: _delegate(getattr(np.linalg, name)) for name in _LINALG},
)
_runtime = _module(
    "cupy.cuda.runtime",
    CUDARuntimeError=CUDARuntimeError,
    getDeviceCount=_device_count,
    getDevice=lambda: state.current,
    setDevice=lambda device: Device(device).use(),
    deviceSynchronize=lambda: Device().synchronize(),
    memGetInfo=lambda: Device().mem_info,
    driverGetVersion=lambda: 13000,
    runtimeGetVersion=lambda: 13000,
    getDeviceProperties=lambda device: {"name": b"emulated device"},
)
_cuda = _module(
    "cupy.cuda",
    Device=Device,
    Event=Event,
    MemoryPool=MemoryPool,
    Stream=Stream,
    compiler=_module("cupy.cuda.compiler", CompileException=CompileException),
    driver=_module("cupy.cuda.driver", CUDADriverError=CUDADriverError),
    get_current_stream=lambda: _streams["current"],
    get_elapsed_time=lambda start, end: 1e3 * (end.time - start.time),
    is_available=lambda: bool(state.devices),
    memory=_module("cupy.cuda.memory", OutOfMemoryError=OutOfMemoryError),
    runtime=_runtime,
)
cupy: Any = _module(
    "cupy",
    __version__="0.0.emulated",
    RawModule=RawModule,
    array=array,
    asarray=asarray,
    ascontiguousarray=ascontiguousarray,
    asfortranarray=asfortranarray,
    asnumpy=asnumpy,
    copy=lambda a, order="K": _wrap(_unwrap(a).copy(order)),
    cuda=_cuda,
    empty=empty,
    empty_like=empty_like,
    get_array_module=get_array_module,
    get_default_memory_pool=lambda: _pool,
    linalg=_linalg,
    ndarray=ndarray,
    **{name: _delegate(getattr(np, name)) for name in _FUNCTIONS},
    **{name: getattr(np, name) for name in _PLAIN},
)
_scipy_linalg = _module("cupyx.scipy.linalg", solve_triangular=_solve_triangular)
_scipy_special = _module("cupyx.scipy.special", **{name: _delegate(getattr(scipy.special, name)) for name in _SPECIAL})
_scipy = _module("cupyx.scipy", linalg=_scipy_linalg, special=_scipy_special)
cupyx: Any = _module("cupyx", errstate=_errstate, scipy=_scipy)

modules: dict[str, Any] = {
    module.__name__: module
    for module in (
        cupy,
        _linalg,
        _cuda,
        _runtime,
        _cuda.compiler,
        _cuda.driver,
        _cuda.memory,
        cupyx,
        _scipy,
        _scipy_linalg,
        _scipy_special,
    )
}
