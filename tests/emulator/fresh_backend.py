"""The GPU backend imported anew, for one test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fresh_backend(*packages: str) -> Iterator[None]:
    """Forget the backend's modules and those of `packages` meanwhile; what was imported before comes back."""
    from maskerade_fast import backends

    def ours() -> list[str]:
        names = list(sys.modules)
        return [n for n in names if n.split(".")[0] in packages or n.startswith("maskerade_fast.backends.gpu")]

    before = {name: sys.modules.pop(name) for name in ours()}
    package = backends.__dict__.pop("gpu", None)
    backends._backend_or_reason.cache_clear()
    try:
        yield
    finally:
        for name in ours():
            del sys.modules[name]
        backends.__dict__.pop("gpu", None)
        backends._backend_or_reason.cache_clear()
        sys.modules.update(before)
        if package is not None:
            backends.__dict__["gpu"] = package
