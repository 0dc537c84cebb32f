"""Arrays of the stand-in for cupy: NumPy's memory behind CuPy's rules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import fake_memory
import numpy as np
from fake_devices import Device, stream_of
from fake_state import pool, state


def names(text: str) -> list[str]:
    return text.split()


class MemoryPointer:
    def __init__(self, array: np.ndarray[Any, Any], device: int) -> None:
        self.ptr = array.ctypes.data
        self.device_id = device


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """cupy.ndarray."""

    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        if memptr is not None or strides is not None:
            raise TypeError("this stand-in makes arrays on memory of their own only")
        self._adopt(poisoned(np.empty(shape, dtype, order)))  # type: ignore[call-overload]

    def _adopt(self, array: np.ndarray[Any, Any]) -> None:
        if array.dtype.kind not in "biufc":
            raise ValueError(f"Unsupported dtype {array.dtype}")
        if not array.dtype.isnative:
            raise ValueError(f"Unsupported byte order of {array.dtype}")
        stream_of()
        array = fake_memory.moved(array)
        pool._own(fake_memory.root_of(array))
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
    T = property(lambda self: wrap(self._a.T))
    mT = property(lambda self: wrap(np.swapaxes(self._a, -1, -2)))
    real = property(lambda self: wrap(self._a.real))
    imag = property(lambda self: wrap(self._a.imag))
    data = property(lambda self: MemoryPointer(self._a, self._device))
    device = property(lambda self: Device(self._device))
    base = property(lambda self: wrap(self._a.base) if isinstance(self._a.base, np.ndarray) else None)

    # to the host
    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        state.synchronised += 1
        stream_of(stream)
        if out is not None:
            out[...] = self._a
            return out
        return self._a.copy(order)  # type: ignore[arg-type]

    def set(self, arr: np.ndarray[Any, Any], stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray) or arr.dtype != self.dtype or arr.shape != self.shape:
            raise ValueError("set() takes a NumPy array of the same dtype and shape")
        stream_of(stream)
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
        return (wrap(row) for row in self._a)

    def __repr__(self) -> str:
        return repr(self._a)

    def __str__(self) -> str:
        return str(self._a)

    def __format__(self, spec: str) -> str:
        return format(self._a.item() if self._a.ndim == 0 else self._a, spec)

    def __copy__(self) -> Any:
        return wrap(self._a.copy())

    def __deepcopy__(self, memo: Any) -> Any:
        return wrap(self._a.copy())

    def __reduce__(self) -> Any:
        return wrap, (self._a.copy(),)

    def __getitem__(self, key: Any) -> Any:
        return wrap(self._a[unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim > 0:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        stream_of()
        self._a[unwrap(key)] = unwrap(value) if isinstance(value, ndarray) else value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if out is not None:
            kwargs["out"] = tuple(unwrap(o) for o in out)
        result = quiet(getattr(ufunc, method), *map(unwrap, inputs), **kwargs)
        if out is not None:
            return out[0] if len(out) == 1 else out
        return wrap(result)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return getattr(_cupy(), func.__name__)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(f"the stand-in's ndarray has no {name!r}: add it to fake_cupy.py if CuPy has it")

        def method(*args: Any, **kwargs: Any) -> Any:
            out = kwargs.get("out")
            keywords = {key: unwrap(value) for key, value in kwargs.items()}
            result = quiet(getattr(unwrap(self), name), *map(unwrap, args), **keywords)
            return out if out is not None else wrap(result)

        return method


ndarray.__module__ = "cupy"

_METHODS = names("""
    all any argmax argmin argsort astype clip conj conjugate copy cumprod cumsum diagonal dot fill flatten max mean min
    nonzero prod ptp put ravel repeat reshape round searchsorted sort squeeze std sum swapaxes take trace transpose var
    view
""")


def poisoned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.ravel(order="K").view(np.uint8).fill(0xFF)  # a view: new arrays are contiguous in some order
    return array


def quiet(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    stream_of()
    with np.errstate(all="ignore"):  # a card raises no floating-point warnings
        return function(*args, **kwargs)


def wrap(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        wrapped = ndarray.__new__(ndarray)
        wrapped._adopt(np.asarray(value))
        return wrapped
    if isinstance(value, (tuple, list)):
        items = [wrap(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def unwrap(value: Any) -> Any:
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
        items = [unwrap(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def delegate(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        result = quiet(function, *map(unwrap, args), **{k: unwrap(v) for k, v in kwargs.items()})
        return out if out is not None else wrap(result)

    call.__name__ = getattr(function, "__name__", "call")
    return call


def array(obj: Any, dtype: Any = None, copy: bool = True, order: str = "K", subok: bool = False, ndmin: int = 0) -> Any:
    """From the host, or a copy on the device."""
    host = bare(obj)
    if not copy and isinstance(obj, ndarray) and (dtype is None or np.dtype(dtype) == obj.dtype) and order in "KA":
        return obj
    return wrap(np.array(host, dtype=dtype, copy=True, order=order, ndmin=ndmin))  # type: ignore[call-overload]


def asarray(a: Any, dtype: Any = None, order: Any = None, *, blocking: bool = False) -> Any:
    if isinstance(a, ndarray):
        same = np.asarray(unwrap(a), dtype=dtype, order=order)
        return a if same is a._a else wrap(same)
    return wrap(np.array(bare(a), dtype=dtype, copy=True, order=order))


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    return asarray(a, dtype, "C")


def asfortranarray(a: Any, dtype: Any = None) -> Any:
    return asarray(a, dtype, "F")


def bare(value: Any) -> Any:
    """As `unwrap`, for what comes from the host."""
    if isinstance(value, ndarray):
        return unwrap(value)
    if isinstance(value, (tuple, list)):
        return type(value)(bare(item) for item in value)
    return value


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    return a.get(stream, order, out) if isinstance(a, ndarray) else np.asarray(a)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    return ndarray(shape, dtype, order=order)


def empty_like(prototype: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> Any:
    return wrap(poisoned(np.empty_like(unwrap(prototype), dtype, order, shape=shape)))  # type: ignore[call-overload]


def get_array_module(*args: Any) -> Any:
    return _cupy() if any(isinstance(a, ndarray) for a in args) else np


def _cupy() -> Any:
    """The module that stands for cupy, which imports this one."""
    return sys.modules["cupy"]
