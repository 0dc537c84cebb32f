"""One way through any run: history, callback, progress bar and Ctrl-C, and the change to the user's units."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from ..backends import compiling
from ..model.data import Standardiser
from ..posterior.history import HistoryRow
from ..posterior.posterior import Posterior
from ..quadrature.problem import Problem
from .heartbeat import ticking
from .result import in_the_users_units
from .streams import Stream

Callback = Callable[[HistoryRow], Any]


class State(Protocol):
    """All that a run has learned after a batch: a frozen value."""

    @property
    def row(self) -> HistoryRow:
        """What to report, in standardised units."""
        ...

    @property
    def failed_starts(self) -> int:
        """Searches for a next batch, so far, that ended abnormally."""
        ...


S = TypeVar("S", bound=State)


class Run(Protocol[S]):
    """A recipe on a problem, in standardised units."""

    @property
    def problem(self) -> Problem: ...

    def steps(self) -> Iterator[S]:
        """Spend the budget, batch after batch; a state after each, once any likelihood was finite."""
        ...

    def posterior(self, state: S) -> Posterior:
        """What a state says, with the run's own warnings; `history` has rows that no step gave.

        Raises
        ------
        ValueError
            If no likelihood was finite.
        """
        ...


def drive(run: Run[S], standardiser: Standardiser, bar: Any, callback: Callback | None = None) -> Posterior:
    """Go through the steps until they end, the callback returns True, or Ctrl-C; the posterior of the last state.

    Parameters
    ----------
    run : Run
    standardiser : Standardiser
        The units of what is reported and returned.
    bar : object with the methods of a tqdm bar
    callback : callable, optional
        Takes each row.

    Raises
    ------
    KeyboardInterrupt
        Where there is no state yet.
    ValueError
        If no likelihood was finite.
    """
    shift = standardiser.log_density_shift(run.problem.data.n_points)
    rows: list[HistoryRow] = []
    state: S | None = None
    interrupted = False
    try:
        for state in run.steps():
            rows.append(state.row)
            if not _report(state.row.shifted(shift), bar, callback):
                break
        post = _posterior(run, state)
    except KeyboardInterrupt:  # in the posterior too, which takes some seconds: it is begun anew
        if state is None:
            raise
        interrupted = True
        if rows[-1:] != [state.row]:
            rows.append(state.row)
        post = _posterior(run, state)
    assert state is not None
    rows += post.history
    warnings = (*_warnings(post, rows[-1], state, interrupted), *post.warnings)
    return in_the_users_units(post, standardiser, tuple(row.shifted(shift) for row in rows), warnings)


def no_finite_likelihood() -> NoReturn:
    """Raise what a run raises that has nothing to go by."""
    raise ValueError("y: no drawn mixture has a finite likelihood; is the noise variance too small?")


def _posterior(run: Run[S], state: S | None) -> Posterior:
    return no_finite_likelihood() if state is None else run.posterior(state)


def _report(row: HistoryRow, bar: Any, callback: Callback | None) -> bool:
    """Show and hand out the newest row; False if the callback wants to stop."""
    bar.set_postfix_str(f"log evidence {row.log_evidence:.2f} ± {row.log_evidence_sd:.2f}", refresh=False)
    bar.update(row.cost - bar.n)
    answer = None if callback is None else callback(row)
    return not (isinstance(answer, bool | np.bool_) and answer)


def _warnings(post: Posterior, last: HistoryRow, state: State, interrupted: bool) -> Iterator[str]:
    """What deserves attention in any run."""
    count = len(post.log_likelihoods)
    failures = int((post.log_likelihoods == -math.inf).sum())
    if interrupted:
        yield f"interrupted after {last.evaluations} evaluations; the result rests on those"
    if failures:
        yield f"{failures} of {count} mixtures had a singular covariance and count as likelihood 0"
    if state.failed_starts:
        yield f"{state.failed_starts} searches for the next batch ended abnormally; the best point they saw was used"


@contextmanager
def progress_bar(show: bool, total: int | None) -> Iterator[Any]:
    """A bar of so many likelihoods on standard error, if it is to be shown."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # no thread of tqdm's own

    # Drawn by a thread alone: its clock goes on within a long batch, and Ctrl-C in the run cannot strike while it is
    # drawn, which would leave tqdm's lock locked
    bar = Bar(total=total, unit="likelihood", disable=not show, file=Stream(sys.stderr), miniters=math.inf)

    def draw() -> None:
        if bar.n == 0:
            bar.set_postfix_str("compiling for this machine, once" if compiling() else "", refresh=False)
        bar.refresh()

    with bar, ticking(draw, every=0.5) if show else nullcontext():
        yield bar
