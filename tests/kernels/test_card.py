"""``pytest --card`` without a card: its tests run on the stand-in, which is installed as if it were CuPy."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "bench").is_dir(), reason="benchmarks are part of the source tree only")

ON_CARD = [
    *("kernels/test_gpu_loader.py", "kernels/test_gpu_gram.py", "kernels/test_gpu_hyperkernel.py"),
    "backends/test_devices.py::test_memory_errors_say_what_to_do",
    "backends/test_devices.py::test_a_machine_without_cards",
    "backends/test_devices.py::test_a_usable_card",
]


def run(*arguments: str) -> tuple[int, int, str]:
    """How many tests passed and were skipped; the output, which must speak of no failure."""
    paths = [ROOT, ROOT / "tests" / "emulator", *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, paths)), "GPU_CHECK_OUTCOMES": os.devnull}
    options = ["-q", "-p", "stand_in_card", "-p", "bench.gpu.selection", "--card"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|skipped)", done.stdout.splitlines()[-1])}
    return counts["passed"], counts.get("skipped", 0), done.stdout


@pytest.mark.slow
def test_the_emulators_tests_run_on_a_card() -> None:
    """Three orders are one there, and what needs another machine than this skips and says so."""
    passed, skipped, output = run(*(f"tests/{name}" for name in ON_CARD))
    assert passed > 40
    assert skipped <= 8
    assert set(re.findall(r"SKIPPED .*: (.*)", output)) == {
        "CUDADriverError is the emulator's alone",  # more shared memory than there is
        "CUDARuntimeError is the emulator's alone",  # no driver
        "setting state.devices is the emulator's alone",  # no card
        "state.devices.append is the emulator's alone",  # two cards
        "state.devices.clear is the emulator's alone",
        "state.synchronised is the emulator's alone",
    }


@pytest.mark.sweep
def test_all_of_them_run_on_a_card() -> None:
    """As bench/gpu_check.py calls them."""
    left_out = runpy.run_path(str(ROOT / "bench" / "gpu" / "selection.py"))["NOT_ON_CARDS"]
    passed, skipped, _ = run("tests", "--sweep", *(f"--ignore=tests/{name}" for name in left_out))
    assert passed > 300
    assert skipped < 0.25 * passed
