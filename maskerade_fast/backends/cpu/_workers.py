"""Workers that go through a batch of mixtures, each with a workspace of its own, within the memory bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ..._memory import workers_that_fit
from ._parallel import parallel_for

Space = TypeVar("Space")

# Of the batch for each worker: few enough to cost nothing, so many that the last to finish keeps no one waiting long
_PIECES = 16


class Workers(Generic[Space]):
    """As many workers as fit, `most` at most, each with a workspace of its own.

    Parameters
    ----------
    most : int
        Workers that could be used.
    bytes_each : int
        Working memory of one.
    max_bytes : int or None
        Bound for all together; None: half of what is free.
    what : str
        What one holds, for the MemoryError that says that none fits.
    space : callable
        Makes a workspace.
    """

    def __init__(
        self, most: int, bytes_each: int, max_bytes: int | None, what: str, space: Callable[[], Space]
    ) -> None:
        self.count = workers_that_fit(most, bytes_each, max_bytes, what)
        self.spaces = [space() for _ in range(self.count)]

    def across(self, kernel: Callable[[Space, int, int], None], n_mixtures: int) -> None:
        """Call ``kernel(space, start, stop)`` for pieces of the batch."""

        def piece(start: int, stop: int) -> None:
            space = self.spaces.pop()  # lists are thread-safe
            try:
                kernel(space, start, stop)
            finally:
                self.spaces.append(space)

        parallel_for(piece, n_mixtures, max(1, n_mixtures // (_PIECES * self.count)), threads=self.count)
