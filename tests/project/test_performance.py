"""docs/measured/performance.md: its tables are those of the results, and what they say follows from them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "bench").is_dir(), reason="benchmarks are part of the source tree only")


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    yield importlib.import_module("bench.gpu.tables")
    sys.modules.pop("bench.gpu.tables")


def test_the_page_has_the_results() -> None:
    command = [sys.executable, "-m", "bench.gpu.tables"]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 0, "run python -m bench.gpu.tables --save"


def test_what_is_missed(tables: Any) -> None:
    def row(case: str, milliseconds: float, ratio: float | None) -> dict[str, Any]:
        return {"case": case, "ours": {"device_ms": None, "call_ms": milliseconds}, "ratio_plain_cupy": ratio}

    lines = list(tables.missed([row("K1 1000x1000, D=1", 0.05, 8.0), row("K5 h=300, n*=150", 0.14, None)]))
    assert lines[1:] == [
        "Targets met: K1 1000x1000, D=1. Missed: K5 h=300, n*=150 by 2 times.",
        "Half of the ratio to plain CuPy that the design expects is missed by: K1 1000x1000, D=1 (8.0, asked 8.5).",
    ]


def test_a_run_that_was_cut_off(tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without figures, no questions, half a test run: what there is is shown."""
    content: dict[str, Any] = {
        "card": {"name": "A card", "driver": "1", "cuda_of_cupy": 12090},
        **{"versions": {"cupy": "14"}, "commit": "0", "started": "2026-01-01T00:00:00Z", "limit_s": 300.0},
        "parts": ["rows", "tests"],
        "rows": [{"case": "a", "left_out": "no time"}, {"case": "b", "failed": "OutOfMemoryError"}],
        **{"questions": {}, "sanitizer": {"memcheck": {"exit_status": None, "cut_off": "after 9 s"}}},
        "tests": {"collected": 9, "passed": 3, "failed": 0, "error": 0, "skipped": 1, "cut_off": "after 30 s"},
        "end_to_end": {"gpu, 144 points": {"cut_off": "after 40 s", "budget": 200}},
    }
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    text = tables.section(content, tmp_path / "bench" / "results" / "a-card.json")
    for line in (
        "Commit 0, 2026-01-01; driver 1, CUDA 12.9; cupy 14.",
        "| a | – | – | – | – | – | – | – | – | – | – | no time |",
        "Tests on the card: 3 passed, 0 failed, 0 error, 1 skipped of 9, cut off after 30 s.",
        "compute-sanitizer over every operation: memcheck cut off.",
        "| gpu, 144 points (cut off) | 200 | – | – | – | – | – | – |",
    ):
        assert line in text.splitlines()
