"""Which tests the plain command leaves out: those that take long, unless something names them.

``python -m pytest`` leaves out each test of a kind of `LONG`. ``--all`` runs them; so do ``-m``, which chooses by
marks alone, and a file or a test named on the command line. The sweeps need ``--sweep``, which runs all the rest too.

Tests with the fixture `emulated` get the mark "emulator", but for those marked "sample". The fixture `backend` has few
and small cases on the emulator, which the plain command keeps.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

LONG = {"emulator": "on the emulator", "matrix": "of the compile matrix", "slow": "slow"}
"""Marks of tests that take long, and what the summary says of them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run what the plain command leaves out, but no sweeps")
    parser.addoption("--sweep", action="store_true", help="run everything, the sweeps over CUDA variants too (hours)")
    parser.addoption(
        "--ci", action="store_true", help="fail for too few emulated cases, and where a compiler is missing"
    )
    parser.addoption(
        "--card", action="store_true", help="run the emulator's tests of the backend on this machine's card"
    )


def kind_of(item: pytest.Item) -> str | None:
    """The first kind of `LONG` that a test has, if any."""
    return next((kind for kind in LONG if item.get_closest_marker(kind)), None)


def lacking(config: pytest.Config, what: str) -> None:
    """End a test that this machine cannot run: it skips, and with ``--ci`` it fails."""
    (pytest.fail if config.getoption("--ci") else pytest.skip)(what)


class Selection:
    """Leaves tests out as they are collected, and says in the end how many, of all processes of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.left_out: Counter[str] = Counter()
        files = [Path(argument.partition("::")[0]) for argument in config.args]
        self.named = {path.resolve() for path in files if path.is_file()}
        self.everything = any(map(config.getoption, ("--all", "--sweep", "--card", "-m")))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            if "emulated" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("sample"):
                item.add_marker("emulator")
            kind = None if self.everything or item.path in self.named else kind_of(item)
            sweep = item.get_closest_marker("sweep") and not config.getoption("--sweep")
            if not sweep and kind is not None:
                self.left_out[kind] += 1
            (others if sweep or kind is not None else kept).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = kept

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["left_out"] = dict(self.left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.left_out = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            counts = ", ".join(f"{self.left_out[kind]} {what}" for kind, what in LONG.items() if self.left_out[kind])
            terminalreporter.write_line(f"left out: {counts}; --all runs them")
