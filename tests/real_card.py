"""The real card in the place of `fake_cupy`, for ``pytest --card``: it notes launches and has nothing to set.

A test that asks for what only the emulator has (another card, an order of threads, a machine without cards) skips
there, with what it asked for as the reason. tests/kernels/test_card.py walks this with the stand-in installed as if it
were CuPy.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import emulate
import pytest
from fresh_backend import fresh_backend


def only_emulated(what: str) -> NoReturn:
    pytest.skip(f"{what} is the emulator's alone")


class Device:
    """A card may be taken for one with less shared memory or fewer multiprocessors, by the backend that is loaded."""

    def __setattr__(self, name: str, value: Any) -> None:
        from maskerade_fast.backends.gpu import _loader

        limits = _loader.device_limits()
        if getattr(limits, name) == value:
            return
        if name == "capability" or value > getattr(limits, name):
            only_emulated(f"a device's {name} of {value}")
        lesser = limits._replace(**{name: value})
        _loader._limits_of = lambda device: lesser  # type: ignore[assignment]


class Devices:
    """One device, which can be neither joined nor taken away."""

    def __getitem__(self, index: int) -> Device:
        return Device() if index == 0 else only_emulated(f"device {index}")

    def __getattr__(self, name: str) -> NoReturn:
        only_emulated(f"state.devices.{name}")


class State:
    """What tests may see of the card."""

    launches: list[str]
    """Names of the kernels launched, in order."""
    devices: Devices
    options: emulate.Options
    """May name another order of threads, which changes nothing: a loop over orders repeats the card's own."""

    def __init__(self) -> None:
        self.__dict__.update(launches=[], devices=Devices(), options=emulate.Options())

    def __getattr__(self, name: str) -> NoReturn:
        only_emulated(f"state.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "options" or value.skip is not None:
            only_emulated(f"setting state.{name}")


class Card:
    def __init__(self) -> None:
        self.state = State()

    def __getattr__(self, name: str) -> NoReturn:
        only_emulated(name)


@contextmanager
def watched() -> Iterator[Card]:
    """A card whose launches by the backend are noted.

    As on the emulator the backend is imported anew, so that no test meets the kernels or the limits that another one
    left in its memory; CuPy's cache on disk keeps that cheap. The memory pool starts without free blocks.
    """
    import cupy

    from maskerade_fast import backends

    if problem := backends.gpu_problem():
        pytest.skip(problem)

    with fresh_backend():
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        from maskerade_fast.backends.gpu._loader import Kernel

        card = Card()
        kind: Any = Kernel
        launch = kind.__call__

        def noted(kernel: Any, *args: Any, **kwargs: Any) -> None:
            card.state.launches.append(kernel.name)
            launch(kernel, *args, **kwargs)

        kind.__call__ = noted
        yield card
