"""A run that adapts its reference measure to the posterior, then draws from it (docs/mathematics.md section 9).

How a budget is shared: a tenth at most for draws from the prior. Where half of these count, the prior is the settled
measure. Else a third to a half, by the number of coordinates, goes to ascents and curvatures; of the rest two fifths to
rounds that refit the measure and three to draws from the settled one, which alone give the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ._checks import Array
from .acquisition import propose
from .checkpoint import Unrecorded
from .data import RegressionData, Standardiser
from .distances import Metric
from .gmm import GMMBatch, concat
from .importance import (
    FEW_EFFECTIVE,
    MOST_GROUPS,
    NETS,
    Controlled,
    controlled_estimate,
    effective_size,
    plain_estimate,
)
from .integrals import integrate
from .limits import Limits, last_batch
from .measure import MixtureMeasure
from .modes import curvature_cost
from .posterior import HistoryRow, Posterior
from .prior import Prior
from .proposals import Adaptation, Sample
from .surrogate import Surrogate
from .target import Target

# Shares of the budget, see the module's text
_DESIGN, _ROUNDS_OF_REST = 0.1, 0.4
# That of the modes grows with the coordinates, in which the way to them is longer
_COORDINATES, _LEAST_SHARE, _MOST_SHARE = 32, 1 / 3, 1 / 2
_ROUNDS = 4
# Effective draws from the prior: as a share of all, from which it needs no adapting; as many as leave the whole search
# for modes to be done
_HITS, _FEW_HITS = 0.5, 3.0
# Fewer evaluations than these are no ascent, and no round
_LEAST_ASCENTS, _LEAST_ROUND = 36, 10
# Replicates from the settled measure that tell whether it is good, and the share of them that must be effective
_TELLING, _FEW_SHARE = 3, 0.1
# Most draws from the settled measure, for the surrogate takes the cube of their number: what a larger budget has over
# goes into refits, and ends there. Most earlier mixtures that train the surrogate. Seconds by the cube, in all.
_MOST_DRAWS, _MOST_TRAINING = 1000, 300
_SECONDS_A_CUBE = 1.5e-9
# Of a time budget, what planning counts on: the surrogate at the end takes the rest
_MOST_PLANNED = 50_000  # likelihoods, however long a time budget is: refits hold all of their draws
_TIME_SHARE = 0.85
# A likelihood with all that belongs to it, at least
_LEAST_SECONDS = 1.5e-3


@dataclass(frozen=True)
class _State:
    """What a run knows; the parts belong together. `settled` is None while the measure adapts."""

    sample: Sample
    settled: MixtureMeasure | None
    draws: GMMBatch | None
    values: Array
    log_f: Array
    groups: Array
    history: tuple[HistoryRow, ...]


class SamplingRun:
    """A run in progress. Its state is replaced in one assignment, so that an interrupt finds it whole at any moment."""

    def __init__(
        self,
        data: RegressionData,
        prior: Prior,
        metric: Metric,
        power: int,
        nodes: int,
        log_density_shift: float,
        device: str,
        rng: np.random.Generator,
        record: Unrecorded,
    ) -> None:
        self.data, self.metric, self.power, self.nodes = data, metric, power, nodes
        self.shift, self.device, self.rng = log_density_shift, device, rng
        self.target = Target(data, prior, device, record)
        self.adaptation = Adaptation(self.target, rng)
        self.interrupted = False
        self.failed_starts = 0
        self.state: _State | None = None

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self.target.record.seconds()

    def steps(self, limits: Limits, acquisition: str) -> Iterator[HistoryRow]:
        """Spend the budget, a history row at a time; the iteration can end after any of them."""
        design = limits.initial if limits.budget is None else min(limits.initial, max(1, int(_DESIGN * limits.budget)))
        self.adaptation.design(design, None if limits.seconds is None else lambda: int(_DESIGN * self._planned(limits)))
        yield self._adapted()
        effective = effective_size(self.known.sample.log_likelihoods)
        if effective < _HITS * len(self.known.sample.log_likelihoods):
            yield from self._settling(limits, effective)
        first, draws = self._left(limits), self._replicates(limits)
        while True:
            if self._rests_on_few and self._left(limits) >= max(0.5 * first, _LEAST_ROUND):
                yield self._unsettled(limits)
                draws = self._replicates(limits)
            informed = acquisition != "random" and self.known.values.size > 0 and self._turn % 2
            seconds = self.seconds + self._finish_seconds
            last = last_batch(self.known.history)
            size = (limits if informed else draws).next_batch(self.target.cost, seconds, last[1])
            size = min(size, _MOST_DRAWS - len(self.known.values))
            if size == 0:
                return
            size = limits.in_time(size, seconds, last)
            yield self._informed(acquisition, size) if informed else self._drawn(size)

    def _left(self, limits: Limits) -> int:
        """Draws that the rest of the budget allows, as far as they are wanted."""
        return min(self._planned(limits) - self.target.cost, _MOST_DRAWS)

    def _replicates(self, limits: Limits) -> Limits:
        """With batches for as many replicates as are told apart, each as large as may be: long nets gain by it."""
        return replace(limits, batch_size=max(limits.batch_size, -(-self._left(limits) // MOST_GROUPS)))

    @property
    def _rests_on_few(self) -> bool:
        """Whether the draws from the settled measure, if they are enough to tell, have found what it misses."""
        known = self.known
        own = known.log_f[known.groups >= 0]
        return int(known.groups.max(initial=-1)) + 1 >= _TELLING and effective_size(own) < _FEW_SHARE * len(own)

    def _unsettled(self, limits: Limits) -> HistoryRow:
        """Refit the measure to the draws from it, which no longer count: where they fell is why it changes."""
        known = self.known
        assert known.draws is not None
        assert known.settled is not None
        own = np.flatnonzero(known.groups >= 0)
        rest = self._planned(limits) - self.target.cost
        self.adaptation.absorb(known.draws[own], known.values[own], known.settled, rest)
        return self._adapted()

    def _settling(self, limits: Limits, effective: float) -> Iterator[HistoryRow]:
        """Seek the modes and refit the measure to draws.

        Less is spent on modes the more draws from the prior were effective, but always what curvatures take twice.
        """
        prior, planned = self.target.prior, self._planned(limits)
        dimensions = [prior.latent_map.dimension(int(n) + 1) for n in np.flatnonzero(prior.size_probabilities)]
        most = min(max(max(dimensions) / _COORDINATES, _LEAST_SHARE), _MOST_SHARE) * planned
        curvatures = sum(curvature_cost(d) for d in dimensions)
        ascents = int(min(max(most * min(_FEW_HITS / effective, 1.0), 2.0 * curvatures), most))
        if ascents >= _LEAST_ASCENTS:
            self.adaptation.ascend(ascents)
            yield self._adapted()
        for k in range(_ROUNDS, 0, -1):
            rest = self._planned(limits) - self.target.cost
            count = int(max(_ROUNDS_OF_REST * rest * k / _ROUNDS, rest - _MOST_DRAWS) / k)
            if count >= _LEAST_ROUND:
                self.adaptation.refine(count, rest)
                yield self._adapted()

    def _planned(self, limits: Limits) -> int:
        """The whole budget in likelihoods, as the seconds spent so far make it look."""
        if limits.seconds is None:
            assert limits.budget is not None
            return limits.budget
        rate = max(self.seconds / max(self.target.cost, 1), _LEAST_SECONDS)
        affordable = min(int(_TIME_SHARE * limits.seconds / rate), _MOST_PLANNED)
        return affordable if limits.budget is None else min(limits.budget, affordable)

    @property
    def _finish_seconds(self) -> float:
        """About what the surrogates at the end will take."""
        return _SECONDS_A_CUBE * (_MOST_TRAINING + len(self.known.values)) ** 3

    @property
    def known(self) -> _State:
        """The state, once there is one."""
        assert self.state is not None
        return self.state

    @property
    def _turn(self) -> int:
        return len(self.known.history)

    def _adapted(self) -> HistoryRow:
        """Take over what the adaptation has drawn."""
        sample = self.adaptation.sample
        assert sample is not None
        log_f = sample.log_likelihoods + sample.measure.log_density_ratio(sample.mixtures)
        estimate = plain_estimate(log_f, np.zeros(len(log_f), dtype=np.int64))
        history = () if self.state is None else self.state.history
        row = self._row(*estimate)
        self.state = _State(sample, None, None, np.empty(0), np.empty(0), np.empty(0, dtype=np.int64), (*history, row))
        return row

    def _drawn(self, size: int) -> HistoryRow:
        """Draw a batch from the settled measure; every batch is a replicate."""
        known = self.known
        measure = self.adaptation.proposal if known.settled is None else known.settled
        mixtures = measure.candidates(size, self.rng).mixtures
        return self._learn(mixtures, measure, np.full(size, int(known.groups.max(initial=-1)) + 1))

    def _informed(self, acquisition: str, size: int) -> HistoryRow:
        """Evaluate where the surrogate wants to know more; such mixtures only train it."""
        known = self.known
        measure = known.settled
        assert measure is not None
        mixtures, values, _ = self._everything()
        log_f = values + measure.log_density_ratio(mixtures)
        surrogate = Surrogate.fit(mixtures.to(self.device), log_f, metric=self.metric, power=self.power)
        nodes = measure.draw(self.nodes, self.rng)
        evidence = integrate(surrogate, nodes.mixtures.to(self.device), nodes.weights)
        proposal = propose(acquisition, surrogate, evidence, measure, size, self.rng)
        self.failed_starts += proposal.n_dropped + proposal.n_abnormal
        return self._learn(proposal.mixtures, measure, np.full(size, -1))

    def _learn(self, mixtures: GMMBatch, measure: MixtureMeasure, groups: Array) -> HistoryRow:
        known = self.known
        values = self.target.values(mixtures)
        log_f = np.concatenate([known.log_f, values + measure.log_density_ratio(mixtures)])
        values = np.concatenate([known.values, values])
        draws = mixtures if known.draws is None else concat([known.draws, mixtures])
        groups = np.concatenate([known.groups, groups])
        own = groups >= 0
        row = self._row(*plain_estimate(log_f[own], groups[own]))
        self.state = _State(known.sample, measure, draws, values, log_f, groups, (*known.history, row))
        return row

    def _row(self, log_evidence: float, log_evidence_sd: float) -> HistoryRow:
        return HistoryRow(
            evaluations=self.target.evaluations,
            cost=self.target.cost,
            seconds=self.seconds,
            log_evidence=log_evidence + self.shift,
            log_evidence_sd=log_evidence_sd,
            best_log_likelihood=self.target.best + self.shift,
        )

    def _everything(self) -> tuple[GMMBatch, Array, Array]:
        """Draws and the latest mixtures before them, log-likelihoods, and replicates; -1 for those that only train."""
        known = self.known
        if known.draws is None:  # nothing was drawn from a settled measure: the sample stands in for it
            rows = slice(0, _MOST_DRAWS)
            values = known.sample.log_likelihoods[rows]
            return known.sample.mixtures[rows], values, np.zeros(len(values), dtype=np.int64)
        earlier = slice(max(0, len(known.sample.log_likelihoods) - _MOST_TRAINING), None)
        mixtures = concat([known.sample.mixtures[earlier], known.draws])
        values = np.concatenate([known.sample.log_likelihoods[earlier], known.values])
        return mixtures, values, np.concatenate([np.full(len(values) - len(known.values), -1), known.groups])

    def posterior(self, standardiser: Standardiser, max_components: int) -> Posterior:
        """Of what was evaluated so far.

        Raises
        ------
        ValueError
            If no likelihood was finite.
        """
        mixtures, values, groups = self._everything()
        if not np.isfinite(values[groups >= 0]).any():
            raise ValueError("y: no drawn mixture has a finite likelihood; is the noise variance too small?")
        measure = self.known.settled or self.known.sample.measure
        nets = [measure.draw(max(1, self.nodes // NETS), self.rng) for _ in range(NETS)]
        controlled = controlled_estimate(measure, mixtures, values, groups, nets, self.metric, self.power, self.device)
        controlled = self._doubted(controlled)
        final = self._row(controlled.log_evidence, controlled.log_evidence_sd)
        return Posterior.from_controlled(
            self.data,
            standardiser,
            controlled,
            values,
            max_components,
            tuple(self._warnings(controlled, values)),
            (*self.known.history, final),
        )

    def _doubted(self, controlled: Controlled) -> Controlled:
        """With a larger sd where few draws count: the less, the more it is Laplace's estimate that tells the error."""
        doubt = max(0.0, 1.0 - controlled.effective_sample_size / FEW_EFFECTIVE)
        gap = controlled.log_evidence - self.adaptation.log_evidence_by_modes
        if doubt == 0.0 or not math.isfinite(gap):
            return controlled
        return replace(controlled, log_evidence_sd=math.hypot(controlled.log_evidence_sd, doubt * gap))

    def _warnings(self, controlled: Controlled, values: Array) -> Iterator[str]:
        if self.interrupted:
            yield f"interrupted after {self.target.evaluations} evaluations; the result rests on those"
        failures = int((values == -math.inf).sum())
        if failures:
            yield f"{failures} of {len(values)} mixtures had a singular covariance and count as likelihood 0"
        if self.known.draws is None:
            yield "the budget ended before the measure was settled: the evidence may be too low by tenths of a nat"
        if self.failed_starts:
            yield f"{self.failed_starts} searches for the next batch ended abnormally; the best point they saw was used"
        if controlled.trusted and controlled.surrogate.spacing_warning:
            yield controlled.surrogate.spacing_warning
        effective, count = controlled.effective_sample_size, int(controlled.sampled.sum())
        if effective < FEW_EFFECTIVE and controlled.explained < 0.9:
            yield (
                f"evidence and predictions rest on {effective:.1f} effective draws of {count}: the evidence may be too "
                "low and its sd too small; a larger budget helps"
            )
