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
import types
from collections.abc import Iterator
from typing import Any

import emulate
import fake_arrays
import fake_memory
import numpy as np
import scipy.linalg
import scipy.special
from fake_arrays import delegate, names, ndarray, unwrap, wrap
from fake_devices import Device, Event, Stream, device_count, streams
from fake_launch import CompileException, RawModule
from fake_memory import check as check_memory
from fake_state import CUDADriverError, CUDARuntimeError, FakeDevice, MemoryPool, OutOfMemoryError, State, pool, state

__all__ = [
    "CUDADriverError",
    "CUDARuntimeError",
    "CompileException",
    "FakeDevice",
    "State",
    "Stream",
    "check_memory",
    "modules",
    "reset",
    "sparse",
    "state",
]


def reset(order: int = 0) -> None:
    """Back to one device, nothing recorded, an empty pool."""
    state.__init__(options=emulate.Options(order=order))  # type: ignore[misc]
    pool.__init__()  # type: ignore[misc]


def sparse(*shape: int, dtype: Any = float) -> Any:
    """An array of zeros, of which only what is written takes memory."""
    array = fake_memory.empty(shape, np.dtype(dtype))
    if array.nbytes <= fake_memory.KEPT:  # pages that may have been used before
        array.fill(0)
    return wrap(array)


# ---- linear algebra ----


def _cholesky(a: Any) -> Any:
    matrices = unwrap(a)
    out = np.empty_like(matrices)
    for index in np.ndindex(matrices.shape[:-2]):
        try:
            out[index] = np.linalg.cholesky(matrices[index])
        except np.linalg.LinAlgError:
            if state.errors == "raise":
                raise
            out[index] = np.nan
    return wrap(out)


def _solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = False,
) -> Any:
    left, right = unwrap(a), unwrap(b)
    if left.ndim == 2:
        return wrap(_triangular(left, right, trans, lower, unit_diagonal))
    out = np.empty(right.shape, np.result_type(left, right))
    for index in np.ndindex(left.shape[:-2]):
        out[index] = _triangular(left[index], right[index], trans, lower, unit_diagonal)
    return wrap(out)


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

_FUNCTIONS = names("""
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
_PLAIN = names("""
    bool_ can_cast complex64 complex128 complexfloating dtype e euler_gamma finfo float16 float32 float64 floating
    iinfo inexact inf int8 int16 int32 int64 integer intp isscalar issubdtype nan newaxis number pi promote_types
    result_type uint8 uint16 uint32 uint64
""")
_SPECIAL = names("digamma erf erfc erfcinv erfcx erfinv expit gamma gammaln log_ndtr logit logsumexp ndtr ndtri xlogy")
_LINALG = names("det eigh eigvalsh inv lstsq norm qr slogdet solve svd")


class Module(types.ModuleType):
    """A module that says what to do about a missing name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"the stand-in for {self.__name__} has no {name!r}: add it to fake_cupy.py if CuPy has it")


modules: dict[str, Any] = {}
"""Every module of the stand-in by its name, as sys.modules takes them."""


def _module(name: str, **names: Any) -> Any:
    module = modules[name] = Module(name)
    module.__dict__.update(names)
    module.__dict__["__path__"] = []
    return module


_linalg = _module(
    "cupy.linalg",
    cholesky=_cholesky,
    LinAlgError=np.linalg.LinAlgError,
    **{name: delegate(getattr(np.linalg, name)) for name in _LINALG},
)
_runtime = _module(
    "cupy.cuda.runtime",
    CUDARuntimeError=CUDARuntimeError,
    getDeviceCount=device_count,
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
    get_current_stream=lambda: streams["current"],
    get_elapsed_time=lambda start, end: 1e3 * (end.time - start.time),
    is_available=lambda: bool(state.devices),
    memory=_module("cupy.cuda.memory", OutOfMemoryError=OutOfMemoryError),
    runtime=_runtime,
    set_allocator=lambda allocator=None: setattr(state, "pooled", allocator is not None),
)
cupy: Any = _module(
    "cupy",
    __version__="0.0.emulated",
    RawModule=RawModule,
    array=fake_arrays.array,
    asarray=fake_arrays.asarray,
    ascontiguousarray=fake_arrays.ascontiguousarray,
    asfortranarray=fake_arrays.asfortranarray,
    asnumpy=fake_arrays.asnumpy,
    copy=lambda a, order="K": wrap(unwrap(a).copy(order)),
    cuda=_cuda,
    empty=fake_arrays.empty,
    empty_like=fake_arrays.empty_like,
    get_array_module=fake_arrays.get_array_module,
    get_default_memory_pool=lambda: pool,
    linalg=_linalg,
    ndarray=ndarray,
    **{name: delegate(getattr(np, name)) for name in _FUNCTIONS},
    **{name: getattr(np, name) for name in _PLAIN},
)
_scipy_linalg = _module("cupyx.scipy.linalg", solve_triangular=_solve_triangular)
_scipy_special = _module("cupyx.scipy.special", **{name: delegate(getattr(scipy.special, name)) for name in _SPECIAL})
_scipy = _module("cupyx.scipy", linalg=_scipy_linalg, special=_scipy_special)
cupyx: Any = _module("cupyx", errstate=_errstate, scipy=_scipy)
