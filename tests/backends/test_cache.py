"""The disk cache of compiled kernels is renewed when any source of the backend changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from maskerade_fast.backends.cpu._cache import discard_stale

PACKAGE = Path(__file__).parents[2] / "maskerade_fast"


def test_an_index_made_from_other_sources_is_discarded(tmp_path):
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


def test_an_edit_of_a_shared_file_reaches_the_kernels(tmp_path):
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
