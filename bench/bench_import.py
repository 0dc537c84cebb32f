"""Time from starting Python to a usable package, beside that of its heaviest requirement alone."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest


@pytest.mark.parametrize("module", ["numpy", "maskerade_fast"])
@pytest.mark.benchmark(group="import")
def bench_import(benchmark: Any, module: str) -> None:
    command = [sys.executable, "-c", f"import {module}"]
    benchmark.pedantic(subprocess.run, args=(command,), kwargs={"check": True}, rounds=7, warmup_rounds=1)
