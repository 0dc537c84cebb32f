"""Time of one likelihood: for a message before a fit, and to refuse a fit that cannot end in its time.

A dense likelihood of N rows takes N^3 / 3 multiplications and additions and some N^2 exponentials; on a regular grid it
takes N^2 steps of Schur's algorithm. So one small problem of the same kind is timed, once per process, and scaled up.
The time depends on what else the machine does; it is used in messages and refusals, never in a result.
"""

from __future__ import annotations

import functools
import time

import numpy as np

from .._checks import is_cupy
from ..backends import worker_threads
from ..model.data import RegressionData
from ..model.gmm import GMMBatch
from ..model.grid import on_grid
from ..ops.likelihood import log_likelihood

# Rows of the timed problems. One thread factorises a matrix of fewer than 2048 rows, all threads together a larger one.
_SMALL_DENSE, _LARGE_DENSE = 1024, 2048
_GRID = 8192
# Times of a slow machine, some 20 times those of two cores of 2024: where even these are short, nothing is timed.
_SLOW_DENSE, _SLOW_GRID = 0.4e-9, 5e-9  # seconds per N^3 and per N^2
_SLOW_PAIR = 50e-9  # seconds per N^2 of the exponentials
_UNTIMED = 0.05  # seconds on the slow machine below which one likelihood is never refused
_LONG_RUN, _LONG_LIKELIHOOD = 60.0, 5.0  # seconds of a run, or of one likelihood, from which there is a message
_ENOUGH = 0.05  # seconds of one timing after which it is not repeated


def foretold(data: RegressionData, budget: int | None) -> str | None:
    """A message about how long the likelihoods of `data` will take, for data on the host.

    Parameters
    ----------
    data : RegressionData of N rows
    budget : int or None
        Likelihoods to be evaluated, a value with gradient as 3; None where a time budget ends the run.

    Returns
    -------
    str or None
        None if `budget` likelihoods will take less than a minute (or, without a budget, one less than 5 s), and for
        data on a GPU, whose times small problems do not show.

    Notes
    -----
    The first call for large data takes up to 0.4 s and the loading of compiled code; others take microseconds.
    """
    if is_cupy(data.X):
        return None
    slow = slow_seconds(data)
    if slow < _LONG_LIKELIHOOD if budget is None else slow * budget < _LONG_RUN:
        return None
    one = likelihood_seconds(data)
    if budget is None:
        return f"One likelihood takes about {duration(one)}." if one >= _LONG_LIKELIHOOD else None
    whole = _together(data, one, budget)
    if whole < _LONG_RUN:
        return None
    return f"One likelihood takes about {duration(one)}, {budget} of them about {duration(whole)}."


def require_time(data: RegressionData, time_budget: float | None, count: int = 1) -> None:
    """Raise ValueError for a `time_budget` in seconds that is too short for the first batch of `count` likelihoods."""
    if time_budget is None or is_cupy(data.X):
        return
    slow = slow_seconds(data)
    if slow < _UNTIMED or slow * count < time_budget:
        return
    one = likelihood_seconds(data)
    whole = _together(data, one, count)
    if whole > time_budget:
        first = "" if count == 1 else f" and the first {count} about {duration(whole)}"
        raise ValueError(
            f"time_budget: {duration(time_budget)}, but one likelihood of {data.n_points} rows takes about "
            f"{duration(one)}{first}; {fewer_rows(data)}, or give the fit more time"
        )


def likelihood_seconds(data: RegressionData) -> float:
    """Seconds of one likelihood of data on the host, about."""
    n = data.n_points
    if is_grid(data):
        rows = min(n, _GRID)
        return _timed(rows, True, data.trend, 1) * (n / rows) ** 2
    rows = _LARGE_DENSE if n >= _LARGE_DENSE else min(n, _SMALL_DENSE)
    return _timed(rows, False, data.trend, data.n_dims) * (n / rows) ** 3


def slow_seconds(data: RegressionData) -> float:
    """Seconds of one likelihood on a slow machine, from counts of operations alone."""
    n = data.n_points
    if is_grid(data):
        return _SLOW_GRID * n**2
    return _SLOW_DENSE * n**3 + _SLOW_PAIR * n**2


def duration(seconds: float) -> str:
    """A time with two digits at most, in seconds, minutes, hours or days."""
    for unit, size, least in (("days", 86400.0, 2.0), ("h", 3600.0, 1.5), ("min", 60.0, 1.5), ("s", 1.0, 0.0)):
        if seconds >= least * size:
            number = seconds / size
            return f"{number:.0f} {unit}" if number >= 9.95 or unit != "s" else f"{number:.2g} {unit}"
    return f"{seconds:.2g} s"


def _together(data: RegressionData, one: float, count: int) -> float:
    """Seconds of `count` likelihoods if a single one takes `one`; small matrices are computed on one thread each."""
    shared = data.n_points >= _LARGE_DENSE and not is_grid(data)
    return count * one / (1 if shared else min(worker_threads(), count))


def is_grid(data: RegressionData) -> bool:
    """Whether likelihoods of `data` take the way of regular grids."""
    return on_grid(data.X, data.y, np.zeros((1, 1)), "auto") is not None


def fewer_rows(data: RegressionData) -> str:
    """What a user can do about data that are too many, for a message."""
    elsewhere = "" if is_grid(data) else ", values on a regular grid"
    return f"give fewer rows, such as averages of neighbours{elsewhere}"


@functools.cache
def _timed(rows: int, grid: bool, trend: str, n_dims: int) -> float:
    """Seconds of one likelihood of a made-up problem: the shortest of up to three."""
    x = np.arange(rows) / rows
    first = x if grid else x**1.1
    X = np.stack([first, *(np.cos(k * first) for k in range(1, n_dims))], axis=1)
    data = RegressionData(X, np.sin(9.0 * first), trend)
    means = np.tile([[1.0], [20.0], [40.0]], n_dims)
    g = GMMBatch(np.array([0, 3]), np.array([0.5, 0.3, 0.2]), means, np.full((3, n_dims), 0.5), np.array([0.1]))
    structure = "toeplitz" if grid else "dense"
    few = data.X[:4]
    log_likelihood(g, few, few[:, 0], basis=data.basis_at(few), structure=structure)  # loads or compiles the code
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        log_likelihood(g, data.X, data.y, basis=data.basis, structure=structure)
        best = min(best, time.perf_counter() - start)
        if best > _ENOUGH:
            break
    return best
