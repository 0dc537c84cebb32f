"""The disk cache of compiled loops: renewed when any source of the backend changes, and no result depends on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba import int64, void
from numba.core.caching import FunctionCache

from maskerade_fast.backends.cpu._cache import LoopCache, discard_stale

PACKAGE = Path(__file__).parents[2] / "maskerade_fast"


def test_an_index_made_from_other_sources_is_discarded(tmp_path: Path) -> None:
    sources, cache = tmp_path / "sources", tmp_path / "cache"
    sources.mkdir()
    (sources / "a.py").write_text("one")
    assert discard_stale(cache, sources)
    (cache / "kernel.nbi").write_text("index")
    assert not discard_stale(cache, sources)
    assert (cache / "kernel.nbi").exists()
    (sources / "a.py").write_text("two")
    assert discard_stale(cache, sources)
    assert not (cache / "kernel.nbi").exists()


def test_an_edit_of_a_shared_file_reaches_the_kernels(tmp_path: Path) -> None:
    """Distances call functions of `_math` or other files: a changed one must not leave old machine code in use."""
    copy = tmp_path / "maskerade_fast"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import sys\n"  # an editable installation's finder goes before PYTHONPATH
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in type(f).__module__]\n"
        "import maskerade_fast as mf, numpy as np\n"
        "g = mf.GMMBatch.from_list([([1.0], [0.0], [0.5])])\n"
        "print(mf.gram(g, [0.0, 1.0])[0, 0, 1])"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run() -> float:
        result = subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return float(result.stdout)

    before = run()
    assert before > 0.0
    math = copy / "backends" / "cpu" / "_math.py"
    text = math.read_text()
    assert text.count("return 0.0 if x < -708.0 else value") == 1
    math.write_text(text.replace("return 0.0 if x < -708.0 else value", "return 0.0 if x < -708.0 else 2.0 * value"))
    assert run() == 2.0 * before


def loop() -> None: ...


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), RuntimeError("no compiled object yet")])
def test_what_cannot_be_stored_costs_no_result(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    """A disk that is full, a compilation that was interrupted."""

    def fail(*_: Any) -> None:
        raise problem

    monkeypatch.setattr(FunctionCache, "save_overload", fail)
    cache = LoopCache.of(loop)
    assert cache is not None
    cache.save_overload((), None)


def test_code_of_another_signature_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that save at once may give two signatures one file."""
    stored = type("Stored", (), {"signature": void(int64)})
    monkeypatch.setattr(FunctionCache, "load_overload", lambda *_: stored)
    cache = LoopCache.of(loop)
    assert cache is not None
    assert cache.load_overload(void(int64), None) is stored
    assert cache.load_overload((int64,), None) is stored
    assert cache.load_overload(void(int64, int64), None) is None


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["nbi", "nbc", "digest"])
@pytest.mark.parametrize("content", [b"", b"\x80\xff cut"])
def test_damaged_files_are_written_again(tmp_path: Path, suffix: str, content: bytes) -> None:
    """A crash or a full disk may leave them."""
    code = "import numpy as np; from maskerade_fast.backends import cpu; "
    code += "print(cpu.covariance_from_distance(np.ones(2), outputscale=1.0, lengthscale=1.0))"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    first = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
    files = list(tmp_path.rglob(f"*.{suffix}"))
    assert files
    for file in files:
        file.write_bytes(content)
    for _ in range(2):
        assert subprocess.run(command, env=environment, check=True, capture_output=True).stdout == first
    assert not [file for file in files if file.exists() and file.read_bytes() == content]
