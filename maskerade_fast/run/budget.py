"""Limits of a run: when it stops, how much it evaluates at a time, and whether memory and time suffice for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks import integer, positive
from .._memory import FREE_SHARE, free_bytes, require_bytes
from ..model.data import RegressionData
from ..model.prior import Prior
from ..quadrature.evidence import MOST_SECONDS, integral_seconds
from .likelihood_time import duration, fewer_rows, is_grid

MOST_NODES = 2**20
_MOST_TRAINED = 1300  # mixtures of the surrogate at the end of a "laplace" run


@dataclass(frozen=True)
class Limits:
    """Budgets, and the numbers of evaluations at the start and at a time."""

    budget: int | None
    seconds: float | None
    initial: int
    batch_size: int

    @classmethod
    def checked(cls, budget: Any, time_budget: Any, initial: Any, batch_size: Any) -> Limits:
        """Check arguments of `marginalise`; ValueError or TypeError with the name of the wrong one."""
        if budget is None and time_budget is None:
            raise ValueError("budget: None beside time_budget=None, expected at least one of them")
        if budget is not None:
            budget = integer(budget, "budget", minimum=1)
        if isinstance(time_budget, bool | np.bool_):
            raise TypeError(f"time_budget: expected seconds, got {time_budget!r}")
        if time_budget is not None:
            time_budget = positive(time_budget, "time_budget")
        initial = integer(initial, "initial", minimum=1)
        initial = initial if budget is None else min(initial, budget)
        return cls(budget, time_budget, initial, integer(batch_size, "batch_size", minimum=1))

    def next_batch(self, cost: int, seconds: float, last_batch_seconds: float) -> int:
        """Number of evaluations in the next batch; 0 to stop."""
        if self.seconds is not None and seconds + last_batch_seconds > self.seconds:
            return 0
        return self.batch_size if self.budget is None else min(self.batch_size, self.budget - cost)

    def in_time(self, size: int, seconds: float, last: tuple[int, float]) -> int:
        """As many of `size` evaluations as end in time at the rate of the `last` batch, at least 1.

        `last` is the cost of that batch and its seconds.
        """
        each = last[1] / max(last[0], 1)
        if self.seconds is None or size * each <= self.seconds - seconds:
            return size
        return max(1, int((self.seconds - seconds) / each))


def check_room(limits: Limits, nodes: int, prior: Prior, proposals: str, device: str) -> None:
    """Refuse a run that needs more memory than is free, or in which a single integral takes too long.

    Raises
    ------
    ValueError
        For more than `MOST_NODES`, or nodes whose integral takes more than `MOST_SECONDS` on one core of a CPU.
    MemoryError
        If the mixtures of `initial`, `batch_size`, `budget` or `nodes` need more than half of the free memory; the
        message has the bytes.
    """
    sizes = range(1, prior.max_components + 1)
    mixture = max(prior.latent_map.mixture_bytes(n) for n in sizes)
    budget = limits.budget if limits.seconds is None else None  # with seconds, a budget may mean "no limit"
    trained = budget if proposals == "prior" else _MOST_TRAINED
    observations = min(trained or limits.initial, limits.budget or _MOST_TRAINED)
    # per node and observation: the hyper-kernel, whitened, and the influence of a draw
    needed = nodes * (mixture + 3 * 8 * observations)
    components = nodes * float(prior.size_probabilities @ sizes)
    seconds = integral_seconds(components)
    if nodes > MOST_NODES or (device == "cpu" and seconds > MOST_SECONDS):
        raise ValueError(
            f"nodes: {nodes}, of some {components:.0f} components, need about {needed} bytes and {duration(seconds)} "
            f"for one integral on one core; expected at most {MOST_NODES}, and {duration(MOST_SECONDS)}; the default "
            "is 4096"
        )
    require_bytes(needed, f"nodes: {nodes}")
    for name, count in (("initial", limits.initial), ("batch_size", limits.batch_size), ("budget", budget)):
        if count is not None:
            count = min(count, limits.budget or count)
            square = 3 * 8 * count**2 if proposals == "prior" and name == "budget" else 0  # of the surrogate
            require_bytes(count * mixture + square, f"{name}: {count}")


def require_matrix_room(data: RegressionData) -> None:
    """Raise MemoryError if the covariance of `data` is dense and needs more than half of the free memory."""
    needed = 8 * data.n_points**2
    if needed < 2**26 or is_grid(data):
        return
    bound = int(FREE_SHARE * free_bytes())
    if needed > bound:
        raise MemoryError(
            f"X: the covariance of {data.n_points} rows needs {needed} bytes, more than {bound}, half of the free "
            f"memory; {fewer_rows(data)}"
        )
