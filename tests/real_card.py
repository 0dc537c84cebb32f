"""The real card in the place of `fake_cupy`, for ``pytest --card``: it notes launches and has nothing to set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Device:
    """Its attributes can be set to what they are."""

    def __setattr__(self, name: str, value: Any) -> None:
        import cupy

        if name != "capability" or value != int(cupy.cuda.Device().compute_capability):
            pytest.skip(f"a device's {name} of {value} is the emulator's alone")


class State:
    """What tests may see of the card."""

    def __init__(self) -> None:
        self.launches: list[str] = []
        """Names of the kernels launched, in order."""
        self.devices = (Device(),)

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"state.{name} is the emulator's alone")


class Card:
    def __init__(self) -> None:
        self.state = State()

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"{name} is the emulator's alone")


@contextmanager
def watched() -> Iterator[Card]:
    """A card whose launches by the backend are noted."""
    from maskerade_fast import backends

    if problem := backends.gpu_problem():
        pytest.skip(problem)
    from maskerade_fast.backends.gpu._loader import Kernel

    card, launch = Card(), Kernel.__call__

    def noted(kernel: Any, *args: Any, **kwargs: Any) -> None:
        card.state.launches.append(kernel.name)
        launch(kernel, *args, **kwargs)

    Kernel.__call__ = noted  # type: ignore[method-assign]
    try:
        yield card
    finally:
        Kernel.__call__ = launch  # type: ignore[method-assign]
