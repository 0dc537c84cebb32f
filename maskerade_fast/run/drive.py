"""The loop of any run: history, callback, progress bar, Ctrl-C, and the conversion to the user's units."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from .._streams import Stream
from ..adaptive.counted_posterior import CountedPosterior
from ..backends import compiling
from ..model.units import Standardiser
from ..posterior.history import HistoryRow
from ..posterior.posterior import Posterior
from ..quadrature.problem import Problem
from .heartbeat import ticking
from .result import in_the_users_units

Callback = Callable[[HistoryRow], Any]


class State(Protocol):
    """State of a run after a batch: a frozen value."""

    @property
    def row(self) -> HistoryRow:
        """Row of the history, in standardised units."""
        ...

    @property
    def failed_starts(self) -> int:
        """Searches for a next batch that ended abnormally, so far."""
        ...


S = TypeVar("S", bound=State)


class Run(Protocol[S]):
    """One way to spend a budget on a problem, in standardised units."""

    @property
    def problem(self) -> Problem: ...

    def steps(self) -> Iterator[S]:
        """Spend the budget batch by batch; yields a state after each, from the first finite likelihood on."""
        ...

    def posterior(self, state: S) -> Posterior:
        """The posterior of a state, with the run's own warnings; its `history` has rows that no step yielded.

        Raises
        ------
        ValueError
            If no likelihood was finite.
        """
        ...


def drive(run: Run[S], standardiser: Standardiser, bar: Any, callback: Callback | None = None) -> Posterior:
    """Run the steps until they end, the callback returns True, or Ctrl-C; return the posterior of the last state.

    Parameters
    ----------
    run : Run
    standardiser : Standardiser
        Converts what is reported and returned to the user's units.
    bar : object with the methods of a tqdm bar
    callback : callable, optional
        Takes each row.

    Raises
    ------
    KeyboardInterrupt
        If there is no state yet.
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
    except KeyboardInterrupt:  # also within `posterior`, which takes some seconds: it starts anew
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


def history_row(counted: CountedPosterior, log_evidence: float, log_evidence_sd: float) -> HistoryRow:
    """What any run reports after a batch, in standardised units; reads the clock once."""
    return HistoryRow(
        evaluations=counted.evaluations,
        cost=counted.cost,
        seconds=counted.problem.seconds,
        log_evidence=log_evidence,
        log_evidence_sd=log_evidence_sd,
        best_log_likelihood=counted.best,
    )


def no_finite_likelihood() -> NoReturn:
    """Raise the ValueError of a run in which no likelihood was finite."""
    raise ValueError("y: no drawn mixture has a finite likelihood; is the noise variance too small?")


def _posterior(run: Run[S], state: S | None) -> Posterior:
    return no_finite_likelihood() if state is None else run.posterior(state)


def _report(row: HistoryRow, bar: Any, callback: Callback | None) -> bool:
    """Show the newest row and pass it to the callback; False if the run is to stop."""
    bar.set_postfix_str(f"log evidence {row.log_evidence:.2f} ± {row.log_evidence_sd:.2f}", refresh=False)
    bar.update(row.cost - bar.n)
    answer = None if callback is None else callback(row)
    return not (isinstance(answer, bool | np.bool_) and answer)


def _warnings(post: Posterior, last: HistoryRow, state: State, interrupted: bool) -> Iterator[str]:
    """Warnings that any run may give."""
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

    # Only one thread draws the bar: its clock runs on during a long batch, and Ctrl-C cannot interrupt the drawing,
    # which would leave tqdm's lock locked
    bar = Bar(total=total, unit="likelihood", disable=not show, file=Stream(sys.stderr), miniters=math.inf)

    def draw() -> None:
        if bar.n == 0:
            bar.set_postfix_str("compiling for this machine, once" if compiling() else "", refresh=False)
        bar.refresh()

    with bar, ticking(draw, every=0.5) if show else nullcontext():
        yield bar
