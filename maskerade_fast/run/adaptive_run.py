"""A run that adapts its reference measure to the posterior, then draws from it (mathematics.md section 9).

How the budget is divided: draws from the prior get a tenth at most. Where half of these are effective, the prior is the
settled measure. Else ascents and curvatures get a third to a half, by the number of coordinates. Of the rest, rounds
that refit the measure get two fifths, and draws from the settled measure, which alone give the evidence, three fifths.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .._checks import Array
from ..adaptive.adaptation import Adaptation, Sample
from ..adaptive.control_variate import (
    FEW_EFFECTIVE,
    MOST_REPLICATES,
    NETS,
    ControlledEstimate,
    controlled_estimate,
    effective_size,
    plain_estimate,
)
from ..adaptive.counted_posterior import CountedPosterior
from ..adaptive.mixture_measure import MixtureMeasure, adapted_sizes
from ..adaptive.modes import curvature_cost
from ..model.component_orders import ALL_ORDERS
from ..model.gmm import GMMBatch, concat
from ..model.prior import Prior
from ..posterior.history import HistoryRow
from ..posterior.posterior import Posterior
from ..quadrature.acquisition import propose
from ..quadrature.evidence import integrate
from ..quadrature.problem import POWER, Problem
from .budget import Limits
from .drive import history_row, no_finite_likelihood
from .result import from_draws

# Share of the budget for draws from the prior, and of the rest after the modes for rounds of refits
_DESIGN, _ROUNDS_OF_REST = 0.1, 0.4
# The share of the mode search is the number of coordinates over this, between these bounds: ascents grow longer with it
_COORDINATES, _LEAST_SHARE, _MOST_SHARE = 32, 1 / 3, 1 / 2
# Rounds of refits
_ROUNDS = 4
# With this share of effective draws the prior needs no adapting
_HITS = 0.5
# With more effective draws from the prior the mode search shrinks
_FEW_HITS = 3.0
# Least evaluations for a mode search, and for a round
_LEAST_ASCENTS, _LEAST_ROUND = 36, 10
# Replicates from the settled measure that suffice to judge it, and the share of its draws that must be effective
_TELLING, _FEW_SHARE = 3, 0.1
# Most draws from the settled measure, for the surrogate's time grows with the cube of their number; the rest of a
# larger budget goes into refits
_MOST_DRAWS = 1000
# Most earlier mixtures that train the surrogate
_MOST_TRAINING = 300
# Seconds of the surrogates at the end per cube of their mixtures
_SECONDS_PER_CUBE = 1.5e-9
# Most likelihoods planned for, however long a time budget is: refits keep all of their draws
_MOST_PLANNED = 50_000
# Share of a time budget for likelihoods; the surrogate at the end takes the rest
_TIME_SHARE = 0.85
# Least seconds per likelihood, with the work around it
_LEAST_SECONDS = 1.5e-3


@dataclass(frozen=True, eq=False)
class AdaptiveState:
    """The state of a run after a batch. `settled` is None while the measure adapts; then it has no draws yet."""

    sample: Sample
    settled: MixtureMeasure | None
    draws: GMMBatch | None
    values: Array
    log_f: Array
    replicates: Array  # the replicate of each draw; -1 where one only trains the surrogate
    row: HistoryRow
    last: tuple[int, float]  # cost and seconds of the last batch
    turn: int  # rows so far
    failed_starts: int

    @property
    def n_replicates(self) -> int:
        """Batches drawn from the settled measure."""
        return int(self.replicates.max(initial=-1)) + 1

    @property
    def rests_on_few(self) -> bool:
        """Whether enough draws from the settled measure show that it misses much of the posterior."""
        own = self.log_f[self.replicates >= 0]
        return self.n_replicates >= _TELLING and effective_size(own) < _FEW_SHARE * len(own)

    @property
    def finish_seconds(self) -> float:
        """Seconds that the surrogates at the end will take, about."""
        return _SECONDS_PER_CUBE * (_MOST_TRAINING + len(self.values)) ** 3

    def everything(self) -> tuple[GMMBatch, Array, Array]:
        """Draws and the latest mixtures before them, log-likelihoods, and replicates; -1 for those that only train."""
        if self.draws is None:  # there is no settled measure: the sample is taken instead
            rows = slice(0, _MOST_DRAWS)
            values = self.sample.log_likelihoods[rows]
            return self.sample.mixtures[rows], values, np.zeros(len(values), dtype=np.int64)
        earlier = slice(max(0, len(self.sample.log_likelihoods) - _MOST_TRAINING), None)
        mixtures = concat([self.sample.mixtures[earlier], self.draws])
        values = np.concatenate([self.sample.log_likelihoods[earlier], self.values])
        return mixtures, values, np.concatenate([np.full(len(values) - len(self.values), -1), self.replicates])


class AdaptiveRun:
    """A `drive.Run` that adapts its measure before draws from it count."""

    def __init__(
        self, problem: Problem, limits: Limits, acquisition: str, nodes: int, rng: np.random.Generator
    ) -> None:
        self.problem, self.limits, self.acquisition = problem, limits, acquisition
        self.nodes, self.rng = nodes, rng
        self.counted = CountedPosterior(problem)
        self.adaptation = Adaptation(self.counted, rng)

    def steps(self) -> Iterator[AdaptiveState]:
        """See `drive.Run`: a design, modes and refits, then replicates of draws from the settled measure."""
        limits = self.limits
        design = limits.initial if limits.budget is None else min(limits.initial, max(1, int(_DESIGN * limits.budget)))
        self.adaptation.design(design, None if limits.seconds is None else lambda: int(_DESIGN * self._planned()))
        state = self._adapted(None)
        yield state
        effective = effective_size(state.sample.log_likelihoods)
        if effective < _HITS * len(state.sample.log_likelihoods):
            for settling in self._settling(state, effective):
                state = settling
                yield state
        first, draws = self._left(), self._replicate_limits()
        while True:
            if state.rests_on_few and self._left() >= max(0.5 * first, _LEAST_ROUND):
                state = self._unsettled(state)
                yield state
                draws = self._replicate_limits()
            informed = self.acquisition != "random" and state.values.size > 0 and state.turn % 2
            seconds = self.problem.seconds + state.finish_seconds
            size = (limits if informed else draws).next_batch(self.counted.cost, seconds, state.last[1])
            size = min(size, _MOST_DRAWS - len(state.values))
            if size == 0:
                return
            size = limits.in_time(size, seconds, state.last)
            state = self._informed(state, size) if informed else self._drawn(state, size)
            yield state

    def posterior(self, state: AdaptiveState) -> Posterior:
        """See `drive.Run`."""
        mixtures, values, replicates = state.everything()
        if not np.isfinite(values[replicates >= 0]).any():
            no_finite_likelihood()
        problem, measure = self.problem, state.settled or state.sample.measure
        nets = [measure.nodes(max(1, self.nodes // NETS), self.rng) for _ in range(NETS)]
        controlled = controlled_estimate(
            measure, mixtures, values, replicates, nets, problem.metric, POWER, problem.device
        )
        controlled = with_doubt(controlled, self.adaptation.log_evidence_by_modes)
        last = history_row(self.counted, controlled.log_evidence, controlled.log_evidence_sd)
        return from_draws(problem, controlled, values, last, _warnings(state, controlled, problem.prior))

    # ---- the budget ----

    def _planned(self) -> int:
        """The whole budget in likelihoods; for a time budget, by the seconds per likelihood so far."""
        limits = self.limits
        if limits.seconds is None:
            assert limits.budget is not None
            return limits.budget
        rate = max(self.problem.seconds / max(self.counted.cost, 1), _LEAST_SECONDS)
        affordable = min(int(_TIME_SHARE * limits.seconds / rate), _MOST_PLANNED)
        return affordable if limits.budget is None else min(limits.budget, affordable)

    def _left(self) -> int:
        """Draws from the settled measure that the rest of the budget allows."""
        return min(self._planned() - self.counted.cost, _MOST_DRAWS)

    def _replicate_limits(self) -> Limits:
        """Limits with batches as large as `MOST_REPLICATES` replicates allow, since long nets have smaller errors."""
        return replace(self.limits, batch_size=max(self.limits.batch_size, -(-self._left() // MOST_REPLICATES)))

    # ---- steps ----

    def _settling(self, state: AdaptiveState, effective: float) -> Iterator[AdaptiveState]:
        """Search for the modes and refit the measure to draws.

        The mode search shrinks when prior draws are effective, but never below twice the cost of the curvatures.
        """
        prior, planned = self.problem.prior, self._planned()
        dimensions = [prior.latent_map.dimension(int(n)) for n in adapted_sizes(prior)]
        if not dimensions:
            return
        most = min(max(max(dimensions) / _COORDINATES, _LEAST_SHARE), _MOST_SHARE) * planned
        curvatures = sum(curvature_cost(d) for d in dimensions)
        ascents = int(min(max(most * min(_FEW_HITS / effective, 1.0), 2.0 * curvatures), most))
        if ascents >= _LEAST_ASCENTS:
            self.adaptation.ascend(ascents)
            state = self._adapted(state)
            yield state
        for k in range(_ROUNDS, 0, -1):
            rest = self._planned() - self.counted.cost
            count = int(max(_ROUNDS_OF_REST * rest * k / _ROUNDS, rest - _MOST_DRAWS) / k)
            if count >= _LEAST_ROUND:
                self.adaptation.refine(count, rest)
                state = self._adapted(state)
                yield state

    def _unsettled(self, state: AdaptiveState) -> AdaptiveState:
        """Refit the measure to its draws; these no longer count, since the new measure depends on where they fell."""
        assert state.draws is not None
        assert state.settled is not None
        own = np.flatnonzero(state.replicates >= 0)
        rest = self._planned() - self.counted.cost
        self.adaptation.absorb(state.draws[own], state.values[own], state.settled, rest)
        return self._adapted(state)

    def _adapted(self, state: AdaptiveState | None) -> AdaptiveState:
        """The state after the adaptation's last draws."""
        sample = self.adaptation.sample
        assert sample is not None
        log_f = sample.log_likelihoods + sample.measure.log_density_ratio(sample.mixtures)
        row = history_row(self.counted, *plain_estimate(log_f, np.zeros(len(log_f), dtype=np.int64)))
        empty, replicates = np.empty(0), np.empty(0, dtype=np.int64)
        turn, failed = (0, 0) if state is None else (state.turn, state.failed_starts)
        last = row.since(None if state is None else state.row)
        return AdaptiveState(sample, None, None, empty, empty, replicates, row, last, turn + 1, failed)

    def _drawn(self, state: AdaptiveState, size: int) -> AdaptiveState:
        """Draw a batch from the settled measure; every batch is a replicate."""
        measure = self.adaptation.measure if state.settled is None else state.settled
        mixtures = measure.random_draws(size, self.rng).mixtures
        return self._learned(state, mixtures, measure, np.full(size, state.n_replicates))

    def _informed(self, state: AdaptiveState, size: int) -> AdaptiveState:
        """Evaluate where the surrogate learns most; such mixtures only train it."""
        measure = state.settled
        assert measure is not None
        mixtures, values, _ = state.everything()
        surrogate = self.problem.surrogate(mixtures, values + measure.log_density_ratio(mixtures))
        nodes = measure.nodes(self.nodes, self.rng)
        evidence = integrate(surrogate, nodes.mixtures.to(self.problem.device), nodes.weights)
        next_batch = propose(self.acquisition, surrogate, evidence, measure, size, self.rng)
        return self._learned(state, next_batch.mixtures, measure, np.full(size, -1), next_batch.failed_starts)

    def _learned(
        self,
        state: AdaptiveState,
        mixtures: GMMBatch,
        measure: MixtureMeasure,
        replicates: Array,
        failed_starts: int = 0,
    ) -> AdaptiveState:
        values = self.counted.values(mixtures)
        log_f = np.concatenate([state.log_f, values + measure.log_density_ratio(mixtures)])
        replicates = np.concatenate([state.replicates, replicates])
        own = replicates >= 0
        row = history_row(self.counted, *plain_estimate(log_f[own], replicates[own]))
        return replace(
            state,
            settled=measure,
            draws=mixtures if state.draws is None else concat([state.draws, mixtures]),
            values=np.concatenate([state.values, values]),
            log_f=log_f,
            replicates=replicates,
            row=row,
            last=row.since(state.row),
            turn=state.turn + 1,
            failed_starts=state.failed_starts + failed_starts,
        )


def with_doubt(controlled: ControlledEstimate, log_evidence_by_modes: float) -> ControlledEstimate:
    """Enlarge the sd where few draws are effective, by the distance from Laplace's estimate."""
    doubt = max(0.0, 1.0 - controlled.effective_sample_size / FEW_EFFECTIVE)
    gap = controlled.log_evidence - log_evidence_by_modes
    if doubt == 0.0 or not math.isfinite(gap):
        return controlled
    return replace(controlled, log_evidence_sd=math.hypot(controlled.log_evidence_sd, doubt * gap))


def _warnings(state: AdaptiveState, controlled: ControlledEstimate, prior: Prior) -> Iterator[str]:
    sizes = np.flatnonzero(prior.size_probabilities) + 1
    if sizes[-1] > ALL_ORDERS:
        yield (
            f"mixtures of {max(sizes[0], ALL_ORDERS + 1)} components or more were drawn from the prior alone: their "
            "probability, and with it the evidence, may be too low"
        )
    if state.draws is None:
        yield "the budget ended before the measure was settled: the evidence may be too low by tenths of a nat"
    if controlled.trusted and controlled.surrogate.spacing_warning:
        yield controlled.surrogate.spacing_warning
    effective, count = controlled.effective_sample_size, int(controlled.sampled.sum())
    if effective < FEW_EFFECTIVE and controlled.explained < 0.9:
        yield (
            f"evidence and predictions rest on {effective:.1f} effective draws of {count}: the evidence may be too "
            "low and its sd too small; a larger budget helps"
        )
