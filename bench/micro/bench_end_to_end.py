"""Whole runs: the airline series to 500 evaluations, one acquisition step, and a newcomer's first and second fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from bench import ROOT
from bench.micro import problems
from maskerade_fast.quadrature.acquisition import propose

AIRLINE = ROOT / "examples" / "airline.csv"


@pytest.mark.benchmark(group="airline, 500 evaluations, sizes 1 to 5")
@pytest.mark.parametrize("acquisition", ["information", "uncertainty", "random"])
def test_airline(benchmark: Any, acquisition: str) -> None:
    x, y = np.loadtxt(AIRLINE, delimiter=",", skiprows=1).T
    mf.warm_up()
    settings = {"budget": 500, "seed": 0, "acquisition": acquisition}
    post = benchmark.pedantic(mf.marginalise, (x, y), settings, rounds=3)
    assert post.history[-1].cost == 500
    benchmark.extra_info["log_evidence"] = post.log_evidence


@pytest.mark.benchmark(group="acquisition step")
@pytest.mark.parametrize(("h", "m", "batch"), [problems.ACQUISITION])
def test_acquisition_step(benchmark: Any, h: int, m: int, batch: int) -> None:
    s, e, measure = problems.state_of_a_run(h, m)
    step = ("information", s, e, measure, batch)
    propose(*step, np.random.default_rng(1))
    proposal = benchmark(lambda: propose(*step, np.random.default_rng(1)))
    assert len(proposal.mixtures) == batch
    gain = mf.mutual_information(s, e, proposal.mixtures, batch=True)
    others = measure.random_draws(batch, np.random.default_rng(2)).mixtures
    assert gain > mf.mutual_information(s, e, others, batch=True)


@pytest.mark.benchmark(group="first fit of a process, to its first evidence")
@pytest.mark.parametrize("cache", ["empty", "filled"])
def test_first_fit(benchmark: Any, cache: str, tmp_path: Path) -> None:
    """Import, 100 likelihoods, surrogate and evidence, with nothing compiled before, or everything."""
    program = (
        "import maskerade_fast as mf, numpy as np\n"
        f"x, y = np.loadtxt({str(AIRLINE)!r}, delimiter=',', skiprows=1).T\n"
        "mf.marginalise(x, y, budget=100, seed=0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}

    def run() -> None:
        subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd=tmp_path)

    if cache == "filled":
        run()
    benchmark.pedantic(run, rounds=1 if cache == "empty" else 3)
