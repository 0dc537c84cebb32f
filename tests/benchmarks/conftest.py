"""Fixture of the tests of ``bench``, which is part of the source tree only."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
collect_ignore_glob = [] if (ROOT / "bench").is_dir() else ["test_*.py"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import a module of ``bench`` by its name below it; what imports cupy is imported anew by every test."""
    monkeypatch.syspath_prepend(str(ROOT))
    yield lambda name: importlib.import_module(f"bench.{name}")
    for name in [name for name in sys.modules if name.startswith("bench.gpu")]:
        del sys.modules[name]
