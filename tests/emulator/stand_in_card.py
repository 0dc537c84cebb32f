"""A pytest plugin (``-p stand_in_card``): `fake_cupy` as if it were CuPy and the machine had a card.

With ``--card``, the tests that a card would run then run on the emulator through `real_card`, and one that only the
way it is written would fail there fails here. What is of compiled code in CuPy cannot be given attributes here either.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))

import fake_cupy


class Immutable(type):
    """The type of classes whose attributes cannot be set."""

    def __setattr__(cls, name: str, value: Any) -> NoReturn:
        raise TypeError(f"cannot set {name!r} attribute of immutable type {cls.__name__!r}")


def immutable(cls: type) -> type:
    return Immutable(cls.__name__, (cls,), {"__module__": cls.__module__})


fake_cupy.reset()
cuda = fake_cupy.cupy.cuda
cuda.Device = immutable(cuda.Device)
cuda.MemoryPool = immutable(cuda.MemoryPool)
fake_cupy.cupy.RawModule = immutable(fake_cupy.cupy.RawModule)
for missing in ("cupy.cuda.runtime", "cupy.cuda.driver"):  # attributes of cupy.cuda, but modules of another package
    module = fake_cupy.modules.pop(missing)
    fake_cupy.modules[missing.replace("cupy.cuda", "cupy_backends.cuda.api")] = module
sys.modules.update(fake_cupy.modules)
