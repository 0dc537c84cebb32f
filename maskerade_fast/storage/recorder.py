"""The interface between a run and its recording: the clock and the likelihoods.

Apart from these two, a run is determined by its arguments. So with a recorder that stores both (`journal.Journal`) a
run that was killed can continue to the same bits; `NoRecord` stores neither.
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
    """Clock and likelihoods of a run; a context manager, whose end is the end of the recording."""

    def seconds(self) -> float:
        """Seconds since the start of the run."""
        ...

    def evaluated(self, mixtures: GMMBatch, grad: bool, evaluate: Evaluate) -> Sequence[Array]:
        """Return `evaluate()` for these mixtures, or the stored result of the same call in an earlier run."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None: ...


class NoRecord:
    """A `Recorder` that stores nothing: it reads the clock and evaluates every likelihood."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """Seconds since this object was made."""
        return time.perf_counter() - self._start

    def evaluated(self, mixtures: GMMBatch, grad: bool, evaluate: Evaluate) -> Sequence[Array]:
        """Return `evaluate()`."""
        return evaluate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        pass
