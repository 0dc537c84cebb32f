"""Numba's disk cache: emptied when the sources change, and shared with a second process.

Numba stores compiled loops beside the sources and renews one when its own file changes, but not when a file that it
inlines functions from does: after an edit of `_math` or `_gram_loops`, or a `git pull`, old machine code would go on
giving old numbers. So the cache carries a digest of all sources of this backend, and is emptied when that differs.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from numba.core import event
from numba.core.caching import FunctionCache

_DIGEST = "maskerade_kernels.digest"


class LoopCache(FunctionCache):  # type: ignore[misc]
    """The disk cache of one function.

    Attributes
    ----------
    await_helper : callable
        Takes the name of a module; waits until the second process has compiled its functions. Whether it waited.
    """

    await_helper: ClassVar[Callable[[str], bool]] = staticmethod(lambda module: False)

    @classmethod
    def of(cls, function: Any) -> LoopCache | None:
        """None where no folder can be written."""
        try:
            return cls(function)
        except RuntimeError:
            return None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or None; waits for a second process that compiles it."""
        overload = self._load(sig, target_context)
        if overload is None and LoopCache.await_helper(self._py_func.__module__):
            overload = self._load(sig, target_context)
        return overload

    def save_overload(self, sig: Any, data: Any) -> None:
        """A full disk, a folder that is gone, or an interrupted compilation costs no more than another compilation."""
        with contextlib.suppress(OSError, RuntimeError):
            super().save_overload(sig, data)

    def _load(self, sig: Any, target_context: Any) -> Any:
        """Compare the signature that was read: two processes that save at once may give two signatures one file."""
        try:
            overload = super().load_overload(sig, target_context)
        except Exception:  # a file that is damaged: its functions are compiled and written again
            with contextlib.suppress(OSError):
                self.flush()
            return None
        arguments = getattr(sig, "args", sig)
        return overload if overload is None or tuple(overload.signature.args) == tuple(arguments) else None


class Compilations(event.Listener):  # type: ignore[misc]
    """What happens while a function of this backend is compiled.

    The collection of garbage is held back: it takes a tenth of a compiler's time, and finds nothing before its end.

    Attributes
    ----------
    at_start : list of callables
        Called, once each, when a compilation starts that is not part of another.
    running : int
        Compilations at work, each within the one before; Numba's lock lets one thread compile at a time.
    """

    at_start: ClassVar[list[Callable[[], Any]]] = []
    running: ClassVar[int] = 0
    _collects: ClassVar[bool] = False

    def on_start(self, event: Any) -> None:
        if not isinstance(event.data["dispatcher"]._cache, LoopCache) and not Compilations.running:
            return  # of another package
        Compilations.running += 1
        if Compilations.running == 1:
            Compilations._collects = gc.isenabled()
            gc.disable()
            while Compilations.at_start:
                Compilations.at_start.pop(0)()

    def on_end(self, event: Any) -> None:
        if Compilations.running:
            Compilations.running -= 1
            if not Compilations.running and Compilations._collects:
                gc.enable()


def discard_stale(cache: Path, sources: Path) -> bool:
    """Empty the index of `cache` if it was made from other `sources`; True if it was.

    Nothing happens where the folder cannot be written: Numba then reads what an installation put there.
    """
    digest = hashlib.sha256()
    for path in sorted(sources.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    current = digest.hexdigest()
    record = cache / _DIGEST
    try:
        if record.exists() and record.read_bytes() == current.encode():
            return False
        cache.mkdir(parents=True, exist_ok=True)
        for pattern in ("*.nbi", "*.nbc"):  # old code too: another process may read it before the new is written
            for path in cache.glob(pattern):
                path.unlink(missing_ok=True)
        temporary = record.with_suffix(f".{os.getpid()}")
        temporary.write_text(current)
        temporary.replace(record)
    except OSError:
        return False
    return True
