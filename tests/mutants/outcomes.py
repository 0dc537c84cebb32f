"""A pytest plugin (``-p outcomes``): a JSON line for each test that starts and for each that fails.

The last line of a process that hung or died names its test. OUTCOMES names the file.
"""

from __future__ import annotations

import json
import os

import pytest


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(started=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _write(failed=report.nodeid, why=str(report.longrepr)[-2000:])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(failed=report.nodeid, why=str(report.longrepr)[-2000:])


def _write(**entry: str) -> None:
    with open(os.environ["OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
