"""Files stay short enough to be read at once."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("folder", "most"), [("maskerade_fast", 350), ("tests", 450), ("kernels", 450), ("bench", 450)]
)
def test_no_source_is_long(folder: str, most: int) -> None:
    sources = [path for end in ("py", "cu", "cuh", "hpp") for path in (ROOT / folder).rglob(f"*.{end}")]
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in sources}
    assert {name: count for name, count in lines.items() if count > most} == {}
