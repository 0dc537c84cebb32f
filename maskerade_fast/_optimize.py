"""Multi-start L-BFGS-B that survives objectives which are NaN or infinite in places; many searches in lockstep.

SciPy's line search takes a NaN for a number: it reports success at NaN coordinates. Here a point where the value or the
gradient is not finite counts as worse than all points before, so that the line search shortens its step, and the result
is the best point at which the objective was finite.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from ._checks import Array, integer
from .errors import OptimisationError

Objective = Callable[[Array], tuple[float, Array]]


@dataclass(frozen=True, eq=False)
class Maximum:
    """The best point of a multi-start search.

    Parameters
    ----------
    x : array, shape (d,)
        Finite and within the bounds.
    value : float
        The objective at `x`, as it was evaluated.
    n_dropped : int
        Starts with NaN or infinite coordinates, value or gradient, from which no search ran.
    n_abnormal : int
        Searches that ended in a failed line search; their best point counts all the same.
    """

    x: Array
    value: float
    n_dropped: int
    n_abnormal: int


def maximise(
    value_and_gradient: Objective,
    starts: Array,
    *,
    lower: Any = -np.inf,
    upper: Any = np.inf,
    max_iterations: int = 100,
    max_evaluations: int | None = None,
    tolerance: float = 1e-9,
    memory: int = 10,
) -> Maximum:
    """Maximise a smooth function by L-BFGS-B from every start; return the best finite point met on the way.

    Parameters
    ----------
    value_and_gradient : callable
        ``x (d,) -> (value, gradient (d,))``; NaN and infinities allowed.
    starts : array, shape (k, d)
        Moved into the bounds first.
    lower, upper : float or array, shape (d,)
        Bounds, infinite by default; a coordinate with equal bounds is fixed there, and its gradient is not
        looked at.
    max_iterations : int
        Of each search; reaching it is no failure.
    max_evaluations : int, optional
        Calls of the objective in all; the search that would make one more ends, which is no failure.
    tolerance : float
        A search stops once a step gains less than this, relative to max(1, |value|).
    memory : int
        Steps that a search learns the curvature from.

    Raises
    ------
    ValueError
        If the shapes disagree or a lower bound exceeds its upper one, or is NaN.
    OptimisationError
        If the objective is finite at no start.
    """
    starts = np.asarray(starts, dtype=np.float64)
    if starts.ndim != 2 or starts.shape[0] == 0 or starts.shape[1] == 0:
        raise ValueError(f"starts: shape {starts.shape}, expected (k, d) with k, d >= 1")
    d = starts.shape[1]
    low, high = (np.broadcast_to(np.asarray(bound, dtype=np.float64), (d,)) for bound in (lower, upper))
    if not (low <= high).all():
        i = int(np.argmin(low <= high))
        raise ValueError(f"lower[{i}]: {low[i]}, expected a number <= upper[{i}] = {high[i]}")
    integer(max_iterations, "max_iterations", minimum=1)

    if max_evaluations is not None:
        integer(max_evaluations, "max_evaluations", minimum=1)

    record = _Record(value_and_gradient, low < high, max_evaluations)
    n_dropped = n_abnormal = 0
    for start in starts:
        start = np.clip(start, low, high)  # NaN stays NaN
        try:
            if not np.isfinite(start).all() or not record.begin(start):
                n_dropped += 1
            elif record.free.any():
                n_abnormal += not _search(record, start, low, high, max_iterations, tolerance, memory)
        except _SpentError:
            break
    if record.best is None:
        raise OptimisationError(
            f"maximise: the objective is not finite at any of {len(starts)} starts, expected a finite value "
            "and gradient at one or more"
        )
    return Maximum(record.best, record.value, n_dropped, n_abnormal)


def maximise_in_lockstep(
    evaluate: Callable[[list[int], list[Array]], Sequence[tuple[float, Array]]],
    starts: Sequence[Array],
    *,
    max_evaluations: int,
    tolerance: float = 1e-9,
    memory: int = 10,
) -> list[Maximum | None]:
    """Maximise from every start at once: each step asks for the values at all points in one call.

    L-BFGS-B takes its turns in a thread for each start; `evaluate` runs in the caller's. Which searches share a call
    is decided by their own steps alone, so the result is the same in every run.

    Parameters
    ----------
    evaluate : callable
        ``(indices of starts, their points) -> (value, gradient) for each``; NaN and infinities allowed.
    starts : sequence of arrays, each of shape (d_k,)
    max_evaluations : int
        Of each search.
    tolerance, memory
        As in `maximise`.

    Returns
    -------
    list of Maximum, None where the objective was finite at no point of the search
    """

    def search(k: int, ask: Objective) -> Maximum | None:
        options: dict[str, Any] = {"max_iterations": max_evaluations, "max_evaluations": max_evaluations}
        try:
            return maximise(ask, starts[k][None], tolerance=tolerance, memory=memory, **options)
        except OptimisationError:
            return None

    return _in_lockstep(search, len(starts), evaluate)


def _in_lockstep(search: Callable[[int, Objective], Any], count: int, evaluate: Any) -> list[Any]:
    """Results of ``search(k, ask)`` for k < count, each in a thread; `ask` waits until all that run have asked."""
    turn = threading.Condition()
    running, points, answers = set(range(count)), dict[int, Array](), dict[int, tuple[float, Array]]()
    results: list[Any] = [None] * count
    errors: list[BaseException] = []
    cancelled = False

    def ask(k: int, x: Array) -> tuple[float, Array]:
        with turn:
            points[k] = x
            turn.notify_all()
            turn.wait_for(lambda: cancelled or k in answers)
            if cancelled:
                raise _CancelledError
            return answers.pop(k)

    def work(k: int) -> None:
        try:
            results[k] = search(k, lambda x: ask(k, x))
        except _CancelledError:
            pass
        except BaseException as error:  # raised again by the caller's thread
            errors.append(error)
        finally:
            with turn:
                running.discard(k)
                turn.notify_all()

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(count)]
    try:
        for thread in threads:
            thread.start()
        while True:
            with turn:
                turn.wait_for(lambda: len(points) == len(running) or bool(errors))
                if errors or not running:
                    break
                now = dict(sorted(points.items()))
                points.clear()
            values = evaluate(list(now), list(now.values()))
            with turn:
                answers.update(zip(now, values, strict=True))
                turn.notify_all()
    finally:  # no thread may wait for ever, not after an interrupt either
        with turn:
            cancelled = True
            turn.notify_all()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if errors:
        raise errors[0]
    return results


class _CancelledError(Exception):
    """The caller's thread ended before a search did."""


class _SpentError(Exception):
    """No evaluation is left."""


class _Record:
    """The objective in the form that SciPy minimises, on the free coordinates; keeps the best finite point of all."""

    def __init__(self, objective: Objective, free: Array, max_evaluations: int | None) -> None:
        self.free = free
        self.max_evaluations = max_evaluations
        self.best: Array | None = None
        self.value = -np.inf
        self.n_evaluations = 0
        self._objective = objective
        self._lowest = np.inf  # lowest value of the present search

    def begin(self, start: Array) -> bool:
        """Start a search from `start`; False if the objective is not finite there."""
        self._start = start
        self._lowest = np.inf
        value, _ = self._evaluate(start)
        self._lowest = value
        return bool(np.isfinite(value))

    def __call__(self, free_part: Array) -> tuple[float, Array]:
        """-objective and its gradient; where these are not finite, a value worse than the search has seen."""
        x = self._start.copy()
        x[self.free] = free_part
        value, gradient = self._evaluate(x)
        if not np.isfinite(value):
            # flat and one step up: no line search accepts it, and interpolation stays finite
            return -self._lowest + (1.0 + abs(self._lowest)), np.zeros(len(free_part))
        self._lowest = min(self._lowest, value)
        return -value, -gradient[self.free]

    def _evaluate(self, x: Array) -> tuple[float, Array]:
        """Value (-inf for anything not finite) and gradient."""
        if self.n_evaluations == self.max_evaluations:
            raise _SpentError
        self.n_evaluations += 1
        value, gradient = self._objective(x.copy())
        value, gradient = float(value), np.asarray(gradient, dtype=np.float64)
        if not (np.isfinite(value) and np.isfinite(gradient[self.free]).all()):
            return -np.inf, gradient
        if value > self.value:
            self.best, self.value = x.copy(), value
        return value, gradient


def _search(
    record: _Record, start: Array, low: Array, high: Array, max_iterations: int, tolerance: float, memory: int
) -> bool:
    """One L-BFGS-B run; False if it ended in a failed line search."""
    free = record.free
    result = optimize.minimize(
        record,
        start[free],
        jac=True,
        method="L-BFGS-B",
        bounds=optimize.Bounds(low[free], high[free]),
        options={"maxiter": max_iterations, "ftol": tolerance, "maxcor": memory},
    )
    return int(result.status) != 2  # 0: converged, 1: out of iterations, 2: abnormal
