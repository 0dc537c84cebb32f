"""Lines about a run at regular times, also while one batch takes minutes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..posterior.history import HistoryRow

_PATIENCE = 2.0  # seconds to wait for an action to end; a terminal may block it


class Heartbeat:
    """The newest row of a run, and the line about it."""

    def __init__(self, stop: Callable[[], bool], doing: Callable[[], str]) -> None:
        self._stop, self._doing = stop, doing
        self._start = time.monotonic()
        self._row: HistoryRow | None = None

    def callback(self, row: HistoryRow) -> bool:
        """Take a row; `marginalise` ends when this returns True."""
        self._row = row
        return self._stop()

    def line(self) -> str:
        """Seconds since the start, and the newest row or, before the first, what the run does."""
        row, seconds = self._row, time.monotonic() - self._start
        if row is None:
            return f"{seconds:.0f} s: {self._doing()}"
        value = f"{row.log_evidence:.1f} ± {row.log_evidence_sd:.1f}"
        return f"{seconds:.0f} s: {row.evaluations} likelihoods, log evidence {value}"


@contextmanager
def heartbeat(
    say: Callable[[str], Any],
    every: float = 30.0,
    *,
    stop: Callable[[], bool] = lambda: False,
    doing: Callable[[], str] = lambda: "Preparing.",
) -> Iterator[Heartbeat]:
    """Say one line every so many seconds while the block runs.

    Parameters
    ----------
    say : callable
        Takes the line; called on another thread.
    every : float
        Seconds.
    stop : callable
        True if the run is to end; `Heartbeat.callback` calls it for every row.
    doing : callable
        Words for what the run does before the first row.
    """
    beat = Heartbeat(stop, doing)
    with ticking(lambda: say(beat.line()), every):
        yield beat


@contextmanager
def ticking(action: Callable[[], Any], every: float) -> Iterator[None]:
    """Call `action` every so many seconds on another thread while the block runs."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(every):
            action()

    thread = threading.Thread(target=loop, name="maskerade_fast ticking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_PATIENCE)
