"""Signs of life of a long fit, and how an interrupted session ends it."""

from __future__ import annotations

import threading
import time

import pytest

from maskerade_fast.cli.console import Session
from maskerade_fast.posterior.history import HistoryRow
from maskerade_fast.run.heartbeat import heartbeat, ticking


def test_a_fit_is_ended_by_its_heartbeat() -> None:
    row = HistoryRow(1, 1, 0.0, 0.0, 1.0, 0.0)
    session = Session()
    with heartbeat(print, stop=lambda: session.interrupted) as beat:
        assert beat(row) is False
        session.interrupts = 1
        assert beat(row) is True


def test_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    heard = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        heard.set()

    with heartbeat(say, every=0.01) as beat:
        assert heard.wait(20.0)
        beat(HistoryRow(120, 120, 1.0, -613.24, 0.41, -600.0))
        heard.clear()
        assert heard.wait(20.0)
        heard.clear()
        assert heard.wait(20.0)
    assert lines[0] == "0 s: Preparing."
    assert lines[-1].endswith(" s: 120 likelihoods, log evidence -613.2 ± 0.4")
    count = len(lines)
    time.sleep(0.05)
    assert len(lines) == count


def test_nothing_is_said_in_a_short_block() -> None:
    lines: list[str] = []
    with heartbeat(lines.append):
        pass
    assert lines == []


def test_ticking_ends_with_its_block() -> None:
    with pytest.raises(ZeroDivisionError), ticking(lambda: None, every=0.01):
        raise ZeroDivisionError
    assert not [t for t in threading.enumerate() if "ticking" in t.name]
