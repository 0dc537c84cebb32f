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


@contextmanager
def heartbeat(
    say: Callable[[str], Any],
    every: float = 30.0,
    *,
    stop: Callable[[], bool] = lambda: False,
    doing: Callable[[], str] = lambda: "Preparing.",
) -> Iterator[Callable[[HistoryRow], bool]]:
    """Say one line about a run every so many seconds while the block runs; gives the callback for `marginalise`.

    Parameters
    ----------
    say : callable
        Takes the line; called on another thread.
    every : float
        Seconds.
    stop : callable
        True if the run is to end; the callback calls and returns it for every row.
    doing : callable
        Words for what the run does before the first row.
    """
    newest: HistoryRow | None = None
    start = time.monotonic()

    def callback(row: HistoryRow) -> bool:
        nonlocal newest
        newest = row
        return stop()

    def tick() -> None:
        row, seconds = newest, time.monotonic() - start
        if row is None:
            say(f"{seconds:.0f} s: {doing()}")
        else:
            value = f"{row.log_evidence:.1f} ± {row.log_evidence_sd:.1f}"
            say(f"{seconds:.0f} s: {row.evaluations} likelihoods, log evidence {value}")

    with ticking(tick, every):
        yield callback


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
