"""What stands between a run and the world: a clock, and the likelihoods that it asks for.

A run is determined by its arguments but for these two. So a recorder that keeps both (`journal.Journal`) can carry a
run that was killed to the same bits; `NoRecord` keeps neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from .._checks import Array
from ..model.gmm import GMMBatch

Evaluate = Callable[[], Sequence[Array]]


class Recorder(Protocol):
    """Clock and likelihoods of a run: all that a run asks of the world.

    A context manager; leaving it ends the recording.
    """

    def seconds(self) -> float:
        """Since the start of the run."""
        ...

    def evaluated(self, mixtures: GMMBatch, grad: bool, evaluate: Evaluate) -> Sequence[Array]:
        """What `evaluate` returns for these mixtures, or returned when an earlier run asked for the same."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None: ...


class NoRecord:
    """The `Recorder` of a run that keeps nothing: the clock of this process, and every likelihood evaluated."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """Since this object was made."""
        return time.perf_counter() - self._start

    def evaluated(self, mixtures: GMMBatch, grad: bool, evaluate: Evaluate) -> Sequence[Array]:
        """What `evaluate` returns."""
        return evaluate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        pass
