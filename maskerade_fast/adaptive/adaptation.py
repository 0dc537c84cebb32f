"""The reference measure that adapts to the posterior: a Laplace mixture, refined by weighted draws.

mathematics.md section 9. Where data are many the likelihood is a spike that draws from the prior miss. So `modes`
are sought first; each gets a t distribution shaped by its curvature, and so has each of fewer components, with
others added as the prior has them. Draws from the mixture, weighted by f = L π/q with q the average of all measures
drawn from so far, refit it round by round; where a single draw carries much of the weight, a curved ridge most often,
it gets a t distribution of its own.

A measure fitted to draws has more mass where they fell, so their own weights are too small, by tenths of a nat with a
few hundred draws. They are for adapting; the evidence comes from draws made when the measure is settled
(`importance`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from .._checks import Array
from ..backends import single_threaded_blas
from ..model.component_orders import ALL_ORDERS
from ..model.gmm import GMMBatch, concat
from ..model.latent import Latent, LatentMap
from ..model.prior import Prior
from ..model.reference_measure import PriorMeasure
from .counted_posterior import CountedPosterior
from .mixture_measure import MixtureMeasure
from .modes import Mode, ascend, curvature_cost, curvature_factor, curved, find_modes
from .starts import Summit, summits_at
from .student import LEAST_PRIOR, StudentMixture

# The t distributions round modes are this much wider than curvatures say, for tails that these do not see
_WIDER = 1.2
# Of an added component's stick the coordinate's centre and spread: as under the prior, or hardly a weight
_STICKS = ((0.0, 1.0), (-2.0, 0.7))
# Nats that an added component is expected to cost, and behind the best of a size from which others are left out
_NATS_OF_ADDED, _FAR = 1.5, 10.0
# Share of the weight that makes a draw heavy; of a round, that goes to curvatures there at most; how many are looked at
_HEAVY, _HEAVY_BUDGET, _MOST_HEAVY = 0.04, 0.5, 3
# Nats that a draw must lie above the modes of its size to be climbed from, and the share of the budget left for it
_HIGHER, _CLIMB_BUDGET = 1.0, 0.25
# Powers of the weights of draws that are tried, until enough draws count
_POWERS = tuple(0.8**k for k in range(30))
# Share of the prior p(n) in the probabilities of sizes
_SIZE_FLOOR = 0.2


@dataclass(frozen=True, eq=False)
class Sample:
    """Draws of several measures.

    Parameters
    ----------
    mixtures : GMMBatch of M mixtures, on the host
    log_likelihoods : array, shape (M,)
    measures, counts : what they were drawn from, and how many of each, in order
    """

    mixtures: GMMBatch
    log_likelihoods: Array
    measures: tuple[MixtureMeasure, ...]
    counts: tuple[int, ...]

    @property
    def measure(self) -> MixtureMeasure:
        """The average of the measures, of which the draws are a stratified sample."""
        return MixtureMeasure.average(self.measures, self.counts)

    def with_draws(self, mixtures: GMMBatch, log_likelihoods: Array, measure: MixtureMeasure) -> Sample:
        """These and more."""
        return Sample(
            concat([self.mixtures, mixtures]),
            np.concatenate([self.log_likelihoods, log_likelihoods]),
            (*self.measures, measure),
            (*self.counts, len(mixtures)),
        )


class Adaptation:
    """A measure in the making: call `design`, `ascend`, then `refine` as often as the budget allows.

    Attributes
    ----------
    proposal : MixtureMeasure
        What to draw from next: the prior, then the Laplace mixture, then refitted ones.
    sample : Sample or None
        What was drawn so far; None before `design`.
    modes : tuple of Mode
    log_evidence_by_modes : float
        Laplace's estimate from the modes that ascents ended at; minus infinity without any.
    """

    def __init__(self, counted: CountedPosterior, rng: np.random.Generator) -> None:
        self.counted, self.rng = counted, rng
        self.proposal = MixtureMeasure.of_prior(counted.prior)
        self.sample: Sample | None = None
        self.modes: tuple[Mode, ...] = ()
        self._summits: tuple[Mode, ...] = ()
        self._laplace = self.proposal
        self._best_draws: list[Summit] = []

    @property
    def log_evidence_by_modes(self) -> float:
        if not self._summits:
            return -math.inf
        p = self.counted.prior.size_probabilities
        return float(special.logsumexp([mode.log_mass + math.log(p[mode.size - 1]) for mode in self._summits]))

    def design(self, count: int, affordable: Callable[[], int] | None = None) -> None:
        """Evaluate `count` draws from the prior, or as many as are `affordable`: asked after 1, 2, 4, ... of them."""
        drawn = PriorMeasure(self.counted.prior).random_draws(count, self.rng)
        values = self.counted.values(drawn.mixtures[: count if affordable is None else 1])
        while affordable is not None and (more := min(count, 2 * len(values), affordable())) > len(values):
            values = np.append(values, self.counted.values(drawn.mixtures[len(values) : more]))
        found = [draw for draw in summits_at(drawn.latent, values) if draw.size <= ALL_ORDERS]
        self._best_draws = sorted(found, key=lambda draw: -draw.log_posterior)
        self.sample = Sample(drawn.mixtures[: len(values)], values, (self.proposal,), (len(values),))

    @single_threaded_blas()
    def ascend(self, budget: int) -> None:
        """Seek the modes for about `budget`, their curvature included, and put the Laplace mixture round them."""
        self.modes = self._summits = tuple(find_modes(self.counted, self._best_draws, budget, self.rng))
        self.proposal = self._laplace = laplace_mixture(self.counted.prior, self.modes)

    def refine(self, count: int, rest: int) -> None:
        """Evaluate `count` draws from the proposal and `absorb` them."""
        drawn = self.proposal.random_draws(count, self.rng).mixtures
        self.absorb(drawn, self.counted.values(drawn), self.proposal, rest)

    @single_threaded_blas()
    def absorb(self, mixtures: GMMBatch, log_likelihoods: Array, measure: MixtureMeasure, rest: int) -> None:
        """Refit the proposal to all draws, with these from `measure`.

        Half as many likelihoods as there are new draws, at most, go to curvatures at draws that carry much of the
        weight. Where a draw lies higher than the modes of its size, their search had not come to its end: a quarter of
        the `rest` of the budget, at most, goes to an ascent from there.
        """
        assert self.sample is not None
        sample = self.sample.with_draws(mixtures, log_likelihoods, measure)
        ratio, matched = sample.measure.match(sample.mixtures)
        log_f = sample.log_likelihoods + ratio
        found = self._climbed(matched, sample.log_likelihoods, int(_CLIMB_BUDGET * rest))
        self._summits = (*self._summits, *found)
        if not found:
            weights = special.softmax(log_f)
            found = self._heavy(matched, sample.log_likelihoods, weights, int(_HEAVY_BUDGET * len(mixtures)))
        if found:
            self.modes = (*self.modes, *found)
            self._laplace = laplace_mixture(self.counted.prior, self.modes)
        self.sample, self.proposal = sample, refined(self._laplace, matched, log_f)

    def _climbed(self, matched: Latent, log_likelihoods: Array, budget: int) -> list[Mode]:
        """The mode above the highest draw, if that is higher than what is known."""
        sizes, points = matched.sizes, matched.points()
        log_posteriors = log_likelihoods - 0.5 * np.array([float(xi @ xi) for xi in points])
        ranks = np.where(sizes <= ALL_ORDERS, log_posteriors + special.gammaln(sizes + 1.0), -np.inf)
        b = int(np.argmax(ranks))
        n, xi = int(sizes[b]), points[b]
        known = max((mode.log_posterior for mode in self.modes if mode.size == n), default=-math.inf)
        climb = budget - curvature_cost(len(xi))
        if sizes[b] > ALL_ORDERS or log_posteriors[b] < known + _HIGHER or climb <= 0:
            return []
        summits = ascend(self.counted, [Summit(n, xi, float(log_posteriors[b]))], climb)
        return curved(self.counted, summits, curvature_cost(len(xi)))

    def _heavy(self, matched: Latent, log_likelihoods: Array, weights: Array, budget: int) -> list[Mode]:
        """The heaviest draws with their curvatures, as far as `budget` goes; none that had its turn."""
        sizes, points = matched.sizes, matched.points()
        found: list[Mode] = []
        for b in np.argsort(-weights, kind="stable")[:_MOST_HEAVY]:
            n, xi = int(sizes[b]), points[b]
            cost = curvature_cost(len(xi))
            known = any(mode.size == n and np.array_equal(mode.xi, xi) for mode in self.modes)
            if weights[b] < _HEAVY or cost > budget or known or n > ALL_ORDERS:
                continue
            budget -= cost
            value = float(log_likelihoods[b]) - 0.5 * float(xi @ xi)
            found.append(Mode(n, xi, value, curvature_factor(self.counted, n, xi)))
        return found


# ---- measures ----


def laplace_mixture(prior: Prior, modes: tuple[Mode, ...]) -> MixtureMeasure:
    """A t distribution round each mode of a size, and round those of smaller sizes with components added.

    Modes are weighted by Laplace masses with a floor. A size with neither keeps the prior, and so does one of more than
    `ALL_ORDERS` components.
    """
    log_mass = np.full(prior.max_components, -np.inf)
    parts = []
    for n in range(1, prior.max_components + 1):
        found = [(mode.log_mass, mode.xi, mode.factor) for mode in modes if mode.size == n]
        for mode in modes:
            if mode.size < n <= ALL_ORDERS:
                expected = mode.log_mass - _NATS_OF_ADDED * (n - mode.size) - math.log(len(_STICKS))
                found += [(expected, *embedded(prior.latent_map, mode, n, *stick)) for stick in _STICKS]
        if not found:
            parts.append(StudentMixture.prior(prior.latent_map.dimension(n)))
            continue
        best = max(mass for mass, _, _ in found)
        masses, centres, factors = (np.array(a) for a in zip(*[f for f in found if f[0] > best - _FAR], strict=True))
        log_mass[n - 1] = special.logsumexp(masses)
        shares = (1.0 - LEAST_PRIOR) * (0.8 * special.softmax(masses) + 0.2 / len(masses))
        parts.append(StudentMixture(shares, centres, _WIDER * factors, LEAST_PRIOR))
    return MixtureMeasure(prior, size_shares(prior, log_mass), tuple(parts))


def embedded(latent_map: LatentMap, mode: Mode, size: int, stick: float, spread: float) -> tuple[Array, Array]:
    """Centre and factor of a t distribution for `size` components: those of a smaller mode, and others as in the prior.

    The others come first, for the sticks of the mode's components then keep their coordinates; `stick` and `spread` are
    centre and standard deviation of the first ones'.
    """
    extra, n_dims = size - mode.size, latent_map.n_dims
    d = latent_map.dimension(size)
    means = size - 1
    scales = means + size * n_dims
    kept = np.concatenate(
        [
            np.arange(extra, size - 1),
            means + np.arange(extra * n_dims, size * n_dims),
            scales + np.arange(extra * n_dims, d - scales),
        ]
    )
    centre, factor = np.zeros(d), np.eye(d)
    centre[:extra] = stick
    factor[:extra, :extra] *= spread
    centre[kept] = mode.xi
    factor[np.ix_(kept, kept)] = mode.factor
    return centre, factor


def refined(laplace: MixtureMeasure, matched: Latent, log_f: Array) -> MixtureMeasure:
    """The Laplace mixture, refitted to weighted draws."""
    prior = laplace.prior
    points = matched.points()
    log_mass = np.full(prior.max_components, -np.inf)
    parts = []
    for n, part in enumerate(laplace.parts, start=1):
        rows = np.flatnonzero((matched.sizes == n) & np.isfinite(log_f))
        if len(rows):
            log_mass[n - 1] = special.logsumexp(log_f[rows]) - math.log(prior.size_probabilities[n - 1])
            xi = np.array([points[b] for b in rows])
            part = part.refitted(xi, tempered(log_f[rows], 2.0 * part.dimension))
        parts.append(part)
    return replace(laplace, probabilities=size_shares(prior, log_mass), parts=tuple(parts))


def size_shares(prior: Prior, log_mass: Array) -> Array:
    """q(n) as the square root of the posterior p(n|D), with a floor of p(n).

    Smaller sizes have their share too: their evidence must be known as well, if less exactly.
    """
    p = prior.size_probabilities
    if not np.isfinite(log_mass).any():
        return p
    posterior = np.sqrt(p * np.exp(log_mass - log_mass.max()))
    shares: Array = (1.0 - _SIZE_FLOOR) * posterior / posterior.sum() + _SIZE_FLOOR * p
    return shares


def tempered(log_f: Array, least: float) -> Array:
    """Weights proportional to f^γ, γ <= 1 as large as leaves an effective sample of `least`, or of half the draws."""
    least = min(least, 0.5 * len(log_f))
    for gamma in _POWERS:
        weights = np.exp(gamma * (log_f - log_f.max()))
        weights /= weights.sum()
        if 1.0 / float(weights @ weights) >= least:
            break
    return np.asarray(weights)
