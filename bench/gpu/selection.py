"""A pytest plugin (``-p bench.gpu.selection``): only the tests on the real card, outcomes written as they come.

A test is one on the card if a parameter of it is "gpu", it is marked ``gpu``, or ``--card`` brings it there from the
emulator. The file that GPU_CHECK_OUTCOMES names gets a JSON line for each, so that a run that is cut off has said
what it knew.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import pytest

with contextlib.suppress(ImportError):
    import cupy  # noqa: F401  what it warns of, a library that is missing say, would be an error in the first test

NOT_ON_CARDS = (
    "benchmarks",
    "kernels/test_barriers.py",
    "kernels/test_card.py",
    "kernels/test_emulator.py",
    "kernels/test_fake_cupy.py",
    "kernels/test_kernel_common.py",
    "kernels/test_kernel_sources.py",
)
"""Files and folders of tests/ with nothing that a card could run."""


def on_card(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    values = [value for value in parameters.values() if isinstance(value, str)]
    brought = "emulated" in getattr(item, "fixturenames", ()) and item.config.getoption("--card", False)
    own = "gpu" in values or (brought and not {"gpu-emulated", "reverse", "shuffled"} & set(values))
    return own or item.get_closest_marker("gpu") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = sorted(filter(on_card, items), key=lambda item: item.get_closest_marker("slow") is not None)
    config.hook.pytest_deselected(items=[item for item in items if not on_card(item)])
    items[:] = chosen
    _write({"collected": len(chosen)})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:  # of all workers alike, written down once
        _write({"test": report.nodeid, "outcome": "error", "why": str(report.longrepr)[-400:]})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # the process that gathers the workers' reports writes them
    if report.when == "call" or report.outcome != "passed":
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")[-400:]
        outcome = "error" if report.failed and report.when != "call" else report.outcome
        _write({"test": report.nodeid, "outcome": outcome, "why": why})


def _write(entry: dict[str, Any]) -> None:
    with open(os.environ["GPU_CHECK_OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
