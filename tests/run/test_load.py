"""Load: flat memory over many fits, `max_bytes` kept by the process itself, and results that no memory has room for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def load(*arguments: str) -> dict[str, Any]:
    """A row of bench/micro/load.py, from a process of its own."""
    command = [sys.executable, "-m", "bench.micro.load", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_fits_leave_no_memory_behind() -> None:
    """A posterior kept would be some 60 kB; docs/measured/limits.md has the slope over 2000 fits."""
    assert load("fits", "50")["bytes_a_fit"] < 20_000


def test_the_largest_problem_of_a_bound_and_one_point_more() -> None:
    """What the process grows by is what it said it would; one point more is refused before anything is allocated."""
    bound = 100_000_000
    row = load("largest", str(bound))
    assert row["n_points"] > 3000
    assert row["grown_by_bytes"] < bound + 20_000_000
    needed = re.search(rf"needs (\d+) bytes, more than max_bytes={bound}", row["one_more"])
    assert needed is not None
    assert bound < int(needed[1]) < 1.001 * bound
    assert row["one_more_seconds"] < 0.5


@pytest.mark.parametrize(
    ("call", "needed"),
    [
        (lambda g, x: mf.gram(g[:1], x), 8 * 10**12),
        (lambda g, x: mf.energy_distance(g[np.zeros(10**6, dtype=int)]), 8 * 10**12),
        (lambda g, x: mf.hyperkernel(g[np.zeros(10**6, dtype=int)], outputscale=1.0, lengthscale=1.0), 8 * 10**12),
        (lambda g, x: mf.predict_gp(g[:1], x[:3], x[:3], 0.1, x, covariance="full"), 8 * 10**12),
    ],
    ids=["gram", "energy_distance", "hyperkernel", "predict_gp"],
)
def test_results_without_room_say_their_bytes(call: Any, needed: int) -> None:
    """A million by a million: said at once, not by an allocation that a system with overcommit grants."""
    g = mf.GMMBatch.from_list([([1.0], [1.0], [0.5]), ([1.0], [2.0], [0.5])])
    with pytest.raises(MemoryError, match=f"needs {needed} bytes, more than the [0-9]+ that are free"):
        call(g, np.linspace(0.0, 1.0, 10**6))
