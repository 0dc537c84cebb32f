"""The paper's recipe: evaluate, refit the surrogate, integrate it over the prior, choose the next batch, and so on.

mathematics.md sections 4 to 8. The loop works with a reference measure q and values of f = likelihood * prior / q;
it makes no use of q being the prior.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._checks import Array
from ..adaptive.control_variate import effective_size
from ..adaptive.counted_posterior import CountedPosterior
from ..backends import single_threaded_blas
from ..model.gmm import GMMBatch, concat
from ..model.reference_measure import PriorMeasure, ReferenceMeasure
from ..posterior.history import HistoryRow
from ..posterior.posterior import Posterior
from ..quadrature.acquisition import propose
from ..quadrature.evidence import Evidence, integrate
from ..quadrature.problem import Problem
from ..quadrature.surrogate import Surrogate
from .budget import Limits
from .drive import history_row
from .result import from_quadrature


@dataclass(frozen=True, eq=False)
class PriorState:
    """The state of a run after a batch."""

    surrogate: Surrogate
    evidence: Evidence
    log_likelihoods: Array
    row: HistoryRow
    last_seconds: float  # of the last batch: its search, evaluation, fit and callback
    failed_starts: int


class PriorRun:
    """A `drive.Run` that integrates its surrogate over nodes drawn once."""

    def __init__(
        self, problem: Problem, limits: Limits, acquisition: str, nodes: int, rng: np.random.Generator
    ) -> None:
        self.problem, self.limits, self.acquisition, self.rng = problem, limits, acquisition, rng
        self.counted = CountedPosterior(problem)
        self.measure: ReferenceMeasure = PriorMeasure(problem.prior)
        drawn = self.measure.nodes(nodes, rng)
        self.nodes, self.node_weights = drawn.mixtures.to(problem.device), drawn.weights

    def steps(self) -> Iterator[PriorState]:
        """See `drive.Run`: draws from the prior, in batches so that a run can end among them, then searched batches."""
        design = self.measure.random_draws(self.limits.initial, self.rng).mixtures
        state: PriorState | None = None
        hopeless: GMMBatch | None = None  # evaluated before any likelihood was finite
        for start in range(0, len(design), self.limits.batch_size):
            batch = design[start : start + self.limits.batch_size]
            if state is None:
                values = self.counted.values(batch)
                if hopeless is not None:
                    values = np.concatenate([np.full(len(hopeless), -np.inf), values])
                    batch = concat([hopeless, batch])
                hopeless = batch
                state = self._first(batch, values) if (values > -np.inf).any() else None
            elif self._next_size(state):
                state = self._extended(state, batch)
            else:
                return
            if state is not None:
                yield state
        while state is not None and (size := self._next_size(state)):
            next_batch = propose(self.acquisition, state.surrogate, state.evidence, self.measure, size, self.rng)
            state = self._extended(state, next_batch.mixtures, next_batch.failed_starts)
            yield state

    def posterior(self, state: PriorState) -> Posterior:
        """See `drive.Run`."""
        return from_quadrature(self.problem, state.surrogate, state.evidence, state.log_likelihoods, _warnings(state))

    def _next_size(self, state: PriorState) -> int:
        """Evaluations of the next batch; 0 to stop."""
        return self.limits.next_batch(state.row.cost, self.problem.seconds, state.last_seconds)

    @single_threaded_blas()
    def _first(self, mixtures: GMMBatch, values: Array) -> PriorState:
        log_f = values + self.measure.log_density_ratio(mixtures)
        return self._integrated(self.problem.surrogate(mixtures, log_f), values, None, 0)

    @single_threaded_blas()
    def _extended(self, state: PriorState, mixtures: GMMBatch, failed_starts: int = 0) -> PriorState:
        """Evaluate a batch on the host, and bring surrogate and evidence up to date."""
        values = self.counted.values(mixtures)
        log_f = values + self.measure.log_density_ratio(mixtures)
        surrogate = state.surrogate.extend(mixtures.to(self.problem.device), log_f).refit()
        values = np.concatenate([state.log_likelihoods, values])
        return self._integrated(surrogate, values, state.row, state.failed_starts + failed_starts)

    def _integrated(
        self, surrogate: Surrogate, values: Array, before: HistoryRow | None, failed_starts: int
    ) -> PriorState:
        evidence = integrate(surrogate, self.nodes, self.node_weights)
        row = history_row(self.counted, evidence.log_evidence, evidence.log_evidence_sd)
        return PriorState(surrogate, evidence, values, row, row.since(before)[1], failed_starts)


def _warnings(state: PriorState) -> Iterator[str]:
    surrogate, count = state.surrogate, len(state.log_likelihoods)
    effective = effective_size(surrogate.log_values)
    if surrogate.at_bound:
        yield "the surrogate's length ended at a bound of its range: the evaluations hardly inform it"
    if surrogate.spacing_warning:
        yield surrogate.spacing_warning
    if count >= 10 and effective < max(2.0, 0.02 * count):
        yield (
            f"the likelihood rests on {effective:.1f} of {count} evaluations: the evidence may be far too low, "
            "and its sd, which is the surrogate's own, far too small"
        )
