"""The decorators of compiled functions, one for each way in which they are called.

| decorator | called from | compiled |
| --- | --- | --- |
| `loop` | Python, and other compiled functions | at its first call, or read from the disk cache |
| `inner` | compiled functions, also by its address (`_addresses`) | with its first caller; kept in the disk cache |
| `summing` | as `inner` | its sums are taken in any order, which lets them be vectorised |
| `joined` | compiled functions, into which LLVM copies it | with each of its callers |
| `inlined` | compiled functions, into which Numba copies it before types are known | with each of its callers |

An `inner` or `joined` function has no wrapper for Python, which takes time to compile; a call from Python would end the
process, so it raises TypeError instead. ``error_model="numpy"`` drops a test for division by zero, which would keep
loops from being vectorised. With NUMBA_DISABLE_JIT=1 all are plain functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from numba import config, njit
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from ._cache import Compilations, LoopCache

__all__ = ["cache_folder", "inlined", "inner", "joined", "loop", "repeated", "summing"]

_F = TypeVar("_F", bound=Callable[..., Any])

_COMMON = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_INNER = {**_COMMON, "no_cpython_wrapper": True}


class _Inner(CPUDispatcher):  # type: ignore[misc]
    """A compiled function without a wrapper for Python."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__}: has no wrapper for Python; call it from a compiled function")


def loop(function: _F) -> _F:
    """Compile a function that Python calls."""
    return _kept(njit(**_COMMON)(function))  # type: ignore[no-any-return]


def inner(function: _F) -> _F:
    """Compile a function that only compiled functions call."""
    return _guarded(_kept(njit(**_INNER)(function)))  # type: ignore[no-any-return]


def summing(function: _F) -> _F:
    """Compile a function that only compiled functions call, its sums in any order; NaN keeps its meaning."""
    return _guarded(_kept(njit(**_INNER, fastmath={"reassoc", "contract"})(function)))  # type: ignore[no-any-return]


def joined(function: _F) -> _F:
    """Have LLVM copy a function into each compiled function that calls it."""
    return _guarded(njit(**_INNER, forceinline=True)(function))  # type: ignore[no-any-return]


def inlined(function: _F) -> _F:
    """Have Numba copy a function into each compiled function that calls it."""
    return njit(**_COMMON, inline="always")(function)  # type: ignore[no-any-return]


def repeated(function: _F) -> _F:
    """A `loop` for many calls with arguments of the same types: the first one finds the machine code for all.

    Numba takes 4 of a call's 5.5 µs to tell the types of named tuples.
    """
    if config.DISABLE_JIT:
        return function
    code: list[Any] = []

    def call(*arguments: Any) -> Any:
        if code:
            return code[0](*arguments)
        result = function(*arguments)
        if len(function.overloads) == 1:  # type: ignore[attr-defined]  # of several, one cannot tell which one ran
            code.append(_entry_point(function))
        return result

    return call  # type: ignore[return-value]


@cache
def _entry_point(function: Any) -> Any:
    """What Python calls of a loop that was compiled for one list of types; to look it up takes 15 µs."""
    (compiled,) = function.overloads.values()
    return compiled.entry_point


def cache_folder() -> Path | None:
    """Where the disk cache of this backend is; None where no folder can be written, and without compilation."""
    cache = LoopCache.of(cache_folder)
    return None if config.DISABLE_JIT or cache is None else Path(cache.cache_path)


def _kept(dispatcher: Any) -> Any:
    """With the disk cache, where there is a folder for it."""
    if not config.DISABLE_JIT:
        cache = LoopCache.of(dispatcher.py_func)
        if cache is not None:
            dispatcher._cache = cache
    return dispatcher


def _guarded(dispatcher: Any) -> Any:
    """That raises where Python calls it."""
    if not config.DISABLE_JIT:
        dispatcher.__class__ = _Inner
    return dispatcher


event.register("numba:compile", Compilations())

if hasattr(os, "register_at_fork"):
    # A child forked while another thread compiles would wait for Numba's lock for ever; so the fork waits instead.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )
