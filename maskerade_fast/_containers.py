"""What frozen dataclasses have in common: they own their arrays, print none, and keep what is derived from them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar, dataclass_transform

import numpy as np

from ._checks import is_cupy

_T = TypeVar("_T")

if sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:  # that of 3.11 has one lock for all instances: threads wait for each other, and forked children for ever

    class cached_property(Generic[_T]):
        """`functools.cached_property` of Python 3.12, without a lock."""

        def __init__(self, function: Callable[[Any], _T]) -> None:
            self.function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> _T:
            if self.name not in instance.__dict__:
                instance.__dict__[self.name] = self.function(instance)
            value: _T = instance.__dict__[self.name]
            return value


_LONG = 60  # characters of a text that are printed
_FEW = 5  # numbers that are printed rather than counted


@dataclass_transform(eq_default=False, frozen_default=True)
def container(kind: type[_T]) -> type[_T]:
    """Make a frozen dataclass that owns its arrays and prints none; two of them are equal only if they are one."""
    kind.__repr__ = short_repr  # type: ignore[method-assign]
    kind.__post_init__ = own_arrays  # type: ignore[attr-defined]
    return dataclass(frozen=True, eq=False, repr=False)(kind)


def own_arrays(container: Any) -> None:
    """Replace the arrays among the fields of a frozen dataclass by copies that nobody else can change."""
    for field in fields(container):
        value = getattr(container, field.name)
        if isinstance(value, np.ndarray):
            object.__setattr__(container, field.name, np.array(value, order="C"))
        elif is_cupy(value):
            with value.device:
                object.__setattr__(container, field.name, value.copy())


def built(kind: type[_T], *values: Any, **named: Any) -> _T:
    """A container of arrays that the package itself made and nobody else holds: without the copies of `own_arrays`."""
    container = object.__new__(kind)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for field in fields(kind):  # type: ignore[arg-type]
        if field.default is not MISSING:
            object.__setattr__(container, field.name, field.default)
    for name, value in (*zip(names, values, strict=False), *named.items()):
        object.__setattr__(container, name, value)
    return container


def short_repr(container: Any) -> str:
    """One line for `__repr__` of a dataclass: its fields, with arrays by type and shape, private fields left out."""
    parts = (f"{f.name}={_shown(getattr(container, f.name))}" for f in fields(container) if not f.name.startswith("_"))
    return f"{type(container).__name__}({', '.join(parts)})"


def _shown(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        if isinstance(value, np.ndarray) and value.ndim == 1 and 0 < len(value) <= _FEW:
            return "[" + ", ".join(f"{x:.4g}" for x in value.tolist()) + "]"
        return f"<{value.dtype} {'x'.join(map(str, value.shape)) or 'number'}>"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple) and len(value) > _FEW:
        return f"<{len(value)} entries>"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_shown, value)) + ")"
    if is_dataclass(value):
        return repr(value)
    if isinstance(value, str):
        return repr(value if len(value) <= _LONG else value[: _LONG - 3] + "...")
    return repr(value) if isinstance(value, bool | int | None) else f"<{type(value).__name__}>"
