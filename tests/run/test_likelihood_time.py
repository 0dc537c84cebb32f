"""Waits (C51): the time of likelihoods is predicted, and what cannot end in time is refused at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.model.data import RegressionData
from maskerade_fast.run import likelihood_time
from maskerade_fast.run.likelihood_time import duration, foretold, likelihood_seconds


def rows(n: int, grid: bool, trend: str = "linear") -> RegressionData:
    x = np.linspace(0.0, 1.0, n)
    return RegressionData(x if grid else x**1.1, np.sin(9.0 * x), trend)


@pytest.fixture
def a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One on which 1024 rows take a second, and 8192 of a grid two; two threads."""
    seconds = {1024: 1.0, 2048: 4.0, 8192: 2.0}
    monkeypatch.setattr(likelihood_time, "_timed", lambda n, grid, trend, n_dims: seconds[n])
    monkeypatch.setattr(likelihood_time, "worker_threads", lambda: 2)


@pytest.mark.parametrize(
    ("data", "budget", "line"),
    [
        ((1024, False), 500, "One likelihood takes about 1 s, 500 of them about 4 min."),
        ((4096, False), 500, "One likelihood takes about 32 s, 500 of them about 4 h."),
        ((20_480, False), None, "One likelihood takes about 67 min."),
        ((200_000, True), 100, "One likelihood takes about 20 min, 100 of them about 17 h."),
        ((1024, False), 100, None),
        ((4096, False), 1, None),
    ],
)
@pytest.mark.usefixtures("a_slow_machine")
def test_c51_long_waits_are_predicted(data: tuple[int, bool], budget: int | None, line: str | None) -> None:
    assert foretold(rows(*data), budget) == line


def test_c51_small_data_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> float:
        raise AssertionError("timed")

    monkeypatch.setattr(likelihood_time, "_timed", never)
    start = time.perf_counter()
    for data in (rows(309, False), rows(309, True), rows(500, False), rows(2000, True)):
        assert foretold(data, 500) is None
        assert foretold(data, None) is None
    likelihood_time.require_time(rows(12, False), 1e-9)
    assert time.perf_counter() - start < 0.1


@pytest.mark.parametrize(
    ("data", "minutes", "words"),
    [
        ((20_000, False), 0.2, "time_budget: 12 s, but one likelihood of 20000 rows takes about 62 min"),
        ((200_000, True), 0.2, "one likelihood of 200000 rows takes about 20 min; give fewer rows"),
    ],
)
@pytest.mark.usefixtures("a_slow_machine")
def test_c51_a_time_budget_below_one_likelihood_is_refused_at_once(
    data: tuple[int, bool], minutes: float, words: str
) -> None:
    own = rows(*data)
    start = time.perf_counter()
    with pytest.raises(ValueError, match=words):
        mf.marginalise(own.X, own.y, time_budget=60.0 * minutes, budget=None, device="cpu")
    assert time.perf_counter() - start < 2.0


@pytest.mark.usefixtures("a_slow_machine")
def test_c51_the_papers_recipe_starts_with_a_batch() -> None:
    data = rows(4096, False)
    with pytest.raises(ValueError, match="about 32 s and the first 20 about 11 min; give fewer rows"):
        mf.marginalise(data.X, data.y, time_budget=120.0, budget=None, device="cpu", proposals="prior")


@pytest.mark.usefixtures("a_slow_machine")
def test_c51_a_run_that_is_finished_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file answers every likelihood, however long one would take."""
    x = np.linspace(0.0, 1.0, 14) ** 1.1
    options: dict[str, Any] = {"time_budget": 30.0, "budget": 10, "nodes": 16, "max_components": 1, "seed": 0}
    options |= {"device": "cpu", "checkpoint": tmp_path / "run"}
    first = mf.marginalise(x, np.sin(9 * x), **options)
    monkeypatch.setattr(likelihood_time, "slow_seconds", lambda data: 1e9)
    monkeypatch.setattr(likelihood_time, "_timed", lambda *_: 1e9)
    assert mf.marginalise(x, np.sin(9 * x), **options).log_evidence == first.log_evidence
    with pytest.raises(ValueError, match="time_budget: 30 s"):
        mf.marginalise(x, np.sin(9 * x), **{**options, "checkpoint": tmp_path / "another"})


def test_c51_a_matrix_without_room_is_refused_with_its_bytes() -> None:
    data = rows(1_000_000, False)
    start = time.perf_counter()
    with pytest.raises(MemoryError, match="X: the covariance of 1000000 rows needs 8000000000000 bytes, more than"):
        mf.marginalise(data.X, data.y, budget=10, device="cpu")
    assert time.perf_counter() - start < 5.0


@pytest.mark.parametrize("n_dims", [1, 2])
def test_c51_nothing_before_the_first_likelihood_is_long(n_dims: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 200,000 rows: units, prior, grid, warnings and the checkpoint's fingerprints."""
    from maskerade_fast.quadrature import problem

    class ReachedError(Exception):
        pass

    def first(*_: Any, **__: Any) -> Any:
        raise ReachedError

    monkeypatch.setattr(problem, "log_likelihood", first)
    monkeypatch.setattr("maskerade_fast.run.marginalise.require_matrix_room", lambda data: None)
    x = np.linspace(0.0, 1.0, 200_000)
    X = x if n_dims == 1 else np.stack([x**1.1, x**2], axis=1)
    start = time.perf_counter()
    with pytest.raises(ReachedError):
        mf.marginalise(X, np.sin(9 * x), budget=30, device="cpu", seed=0)
    assert time.perf_counter() - start < 10.0


@pytest.mark.slow
@pytest.mark.parametrize(("n", "grid"), [(3000, False), (1500, False), (50_000, True)])
def test_c51_predicted_times_are_right_within_a_factor_of_two(n: int, grid: bool) -> None:
    """Both times are the shortest of some, as other work on the machine only adds."""
    data = rows(n, grid)
    g = mf.GMMBatch.from_list([([0.5, 0.3, 0.2], [1.0, 15.0, 30.0], [0.5, 0.5, 1.0])], [0.05])
    estimates, measured = [], []
    for _ in range(4):
        likelihood_time._timed.cache_clear()
        start = time.perf_counter()
        estimates.append(likelihood_seconds(data))
        middle = time.perf_counter()
        mf.log_likelihood(g, data.X, data.y, basis=data.basis)
        measured.append(time.perf_counter() - middle)
        assert middle - start < 5.0
    assert 0.5 < min(estimates) / min(measured) < 2.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.37, "0.37 s"), (12.0, "12 s"), (85.0, "85 s"), (125.0, "2 min"), (11e3, "3 h"), (3e5, "3 days")],
)
def test_durations_read_well(seconds: float, words: str) -> None:
    assert duration(seconds) == words
