"""The reference measure that adapts to the posterior: a Laplace mixture, refined by weighted draws.

mathematics.md section 9. Where data are many the likelihood is a spike that draws from the prior miss. So the
search for `modes` comes first. Each mode gets a t distribution shaped by its curvature; so do modes of fewer
components, with components from the prior added. Rounds of draws from the mixture, weighted by f = L π/q with q the
average of all measures that were drawn from, then refit it. A single draw that carries much of the weight, often on a
curved ridge, gets a t distribution of its own.

A measure that was fitted to draws has more mass where they fell, so their weights come out too small, by tenths of a
nat with a few hundred draws. These draws only adapt the measure; the evidence comes from draws of the settled measure
(`control_variate`).
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
from .modes import Mode, ascend, curvature_cost, curvature_factor, find_modes, with_curvatures
from .starts import LatentPoint, latent_points
from .student import LEAST_PRIOR, StudentMixture

# Standard deviations of the t distributions over those of the curvatures, which miss the tails
_WIDER = 1.2
# Centre and spread of the stick-breaking coordinate of an added component: as under the prior, or for hardly a weight
_ADDED = ((0.0, 1.0), (-2.0, 0.7))
# Nats that an added component costs, as a guess; modes so many nats below the best of their size are left out
_NATS_OF_ADDED, _FAR = 1.5, 10.0
# Share of the weight that makes a draw heavy
_HEAVY = 0.04
# Largest share of a round's likelihoods for curvatures at heavy draws, and the largest number of these
_HEAVY_BUDGET, _MOST_HEAVY = 0.5, 3
# An ascent starts from a draw that lies so many nats above the modes of its size; it may use this share of the rest
_HIGHER, _CLIMB_BUDGET = 1.0, 0.25
# Powers of the weights of draws; the first with enough effective draws is taken
_POWERS = tuple(0.8**k for k in range(30))
# Share of the prior p(n) in the probabilities of sizes
_SIZE_FLOOR = 0.2


@dataclass(frozen=True, eq=False)
class Sample:
    """Draws from several measures.

    Parameters
    ----------
    mixtures : GMMBatch of M mixtures, on the host
    log_likelihoods : array, shape (M,)
    measures, counts : tuples of MixtureMeasure and int
        The measures in the order of their draws, and the number of draws from each.
    """

    mixtures: GMMBatch
    log_likelihoods: Array
    measures: tuple[MixtureMeasure, ...]
    counts: tuple[int, ...]

    @property
    def measure(self) -> MixtureMeasure:
        """The average of the measures; the draws are a stratified sample of it."""
        return MixtureMeasure.average(self.measures, self.counts)

    def with_draws(self, mixtures: GMMBatch, log_likelihoods: Array, measure: MixtureMeasure) -> Sample:
        """Append draws from `measure`."""
        return Sample(
            concat([self.mixtures, mixtures]),
            np.concatenate([self.log_likelihoods, log_likelihoods]),
            (*self.measures, measure),
            (*self.counts, len(mixtures)),
        )


class Adaptation:
    """Adapts a measure to the posterior: call `design`, `ascend`, then `refine` as often as the budget allows.

    Attributes
    ----------
    measure : MixtureMeasure
        The measure to draw from next: the prior, then the Laplace mixture, then its refits.
    sample : Sample or None
        All draws so far; None before `design`.
    modes : tuple of Mode
        Centres of t distributions: modes, and heavy draws with their curvatures.
    log_evidence_by_modes : float
        Laplace's estimate from the ends of ascents; minus infinity without any.
    """

    def __init__(self, counted: CountedPosterior, rng: np.random.Generator) -> None:
        self.counted, self.rng = counted, rng
        self.measure = MixtureMeasure.of_prior(counted.prior)
        self.sample: Sample | None = None
        self.modes: tuple[Mode, ...] = ()
        self._maxima: tuple[Mode, ...] = ()  # of `modes` those that ascents ended at
        self._laplace = self.measure
        self._best_draws: list[LatentPoint] = []

    @property
    def log_evidence_by_modes(self) -> float:
        if not self._maxima:
            return -math.inf
        p = self.counted.prior.size_probabilities
        return float(special.logsumexp([mode.log_mass + math.log(p[mode.size - 1]) for mode in self._maxima]))

    def design(self, count: int, affordable: Callable[[], int] | None = None) -> None:
        """Evaluate `count` draws from the prior, or as many as `affordable()` says after 1, 2, 4, ... of them."""
        drawn = PriorMeasure(self.counted.prior).random_draws(count, self.rng)
        values = self.counted.values(drawn.mixtures[: count if affordable is None else 1])
        while affordable is not None and (more := min(count, 2 * len(values), affordable())) > len(values):
            values = np.append(values, self.counted.values(drawn.mixtures[len(values) : more]))
        points = [point for point in latent_points(drawn.latent, values) if point.size <= ALL_ORDERS]
        self._best_draws = sorted(points, key=lambda point: -point.log_posterior)
        self.sample = Sample(drawn.mixtures[: len(values)], values, (self.measure,), (len(values),))

    @single_threaded_blas()
    def ascend(self, budget: int) -> None:
        """Search for the modes at a cost of about `budget`, curvatures included, and make the Laplace mixture."""
        self.modes = self._maxima = tuple(find_modes(self.counted, self._best_draws, budget, self.rng))
        self.measure = self._laplace = laplace_mixture(self.counted.prior, self.modes)

    def refine(self, count: int, rest: int) -> None:
        """Evaluate `count` draws from the measure and `absorb` them."""
        drawn = self.measure.random_draws(count, self.rng).mixtures
        self.absorb(drawn, self.counted.values(drawn), self.measure, rest)

    @single_threaded_blas()
    def absorb(self, mixtures: GMMBatch, log_likelihoods: Array, measure: MixtureMeasure, rest: int) -> None:
        """Refit the measure to all draws, of which these are new and come from `measure`.

        Curvatures at draws that carry much of the weight take at most half as many likelihoods as there are new draws.
        A draw that lies higher than the modes of its size shows that their search ended too early: an ascent from it
        takes at most a quarter of the `rest` of the budget.
        """
        assert self.sample is not None
        sample = self.sample.with_draws(mixtures, log_likelihoods, measure)
        ratio, matched = sample.measure.match(sample.mixtures)
        log_f = sample.log_likelihoods + ratio
        new = self._above_modes(matched, sample.log_likelihoods, int(_CLIMB_BUDGET * rest))
        self._maxima = (*self._maxima, *new)
        if not new:
            weights = special.softmax(log_f)
            new = self._at_heavy_draws(matched, sample.log_likelihoods, weights, int(_HEAVY_BUDGET * len(mixtures)))
        if new:
            self.modes = (*self.modes, *new)
            self._laplace = laplace_mixture(self.counted.prior, self.modes)
        self.sample, self.measure = sample, refit_mixture(self._laplace, matched, log_f)

    def _above_modes(self, matched: Latent, log_likelihoods: Array, budget: int) -> list[Mode]:
        """The mode that an ascent from the highest draw ends at, if this draw is higher than the modes of its size."""
        sizes, points = matched.sizes, matched.points()
        log_posteriors = log_likelihoods - 0.5 * np.array([float(xi @ xi) for xi in points])
        ranks = np.where(sizes <= ALL_ORDERS, log_posteriors + special.gammaln(sizes + 1.0), -np.inf)
        b = int(np.argmax(ranks))
        n, xi = int(sizes[b]), points[b]
        highest = max((mode.log_posterior for mode in self.modes if mode.size == n), default=-math.inf)
        climb = budget - curvature_cost(len(xi))
        if sizes[b] > ALL_ORDERS or log_posteriors[b] < highest + _HIGHER or climb <= 0:
            return []
        ends = ascend(self.counted, [LatentPoint(n, xi, float(log_posteriors[b]))], climb)
        return with_curvatures(self.counted, ends, curvature_cost(len(xi)))

    def _at_heavy_draws(self, matched: Latent, log_likelihoods: Array, weights: Array, budget: int) -> list[Mode]:
        """The heaviest draws that are no centres yet, with their curvatures, while `budget` lasts."""
        sizes, points = matched.sizes, matched.points()
        centres: list[Mode] = []
        for b in np.argsort(-weights, kind="stable")[:_MOST_HEAVY]:
            n, xi = int(sizes[b]), points[b]
            cost = curvature_cost(len(xi))
            is_centre = any(mode.size == n and np.array_equal(mode.xi, xi) for mode in self.modes)
            if weights[b] < _HEAVY or cost > budget or is_centre or n > ALL_ORDERS:
                continue
            budget -= cost
            value = float(log_likelihoods[b]) - 0.5 * float(xi @ xi)
            centres.append(Mode(n, xi, value, curvature_factor(self.counted, n, xi)))
        return centres


def laplace_mixture(prior: Prior, modes: tuple[Mode, ...]) -> MixtureMeasure:
    """Mixtures of t distributions around the modes of each size and around smaller modes with components added.

    The weights are Laplace masses with a floor. A size without modes keeps the prior, and so does one of more than
    `ALL_ORDERS` components.
    """
    log_mass = np.full(prior.max_components, -np.inf)
    parts = []
    for n in range(1, prior.max_components + 1):
        centres = [(mode.log_mass, mode.xi, mode.factor) for mode in modes if mode.size == n]
        for mode in modes:
            if mode.size < n <= ALL_ORDERS:
                expected = mode.log_mass - _NATS_OF_ADDED * (n - mode.size) - math.log(len(_ADDED))
                centres += [(expected, *embed_mode(prior.latent_map, mode, n, *stick)) for stick in _ADDED]
        if not centres:
            parts.append(StudentMixture.prior(prior.latent_map.dimension(n)))
            continue
        best = max(mass for mass, _, _ in centres)
        near = [centre for centre in centres if centre[0] > best - _FAR]
        masses, points, factors = (np.array(a) for a in zip(*near, strict=True))
        log_mass[n - 1] = special.logsumexp(masses)
        shares = (1.0 - LEAST_PRIOR) * (0.8 * special.softmax(masses) + 0.2 / len(masses))
        parts.append(StudentMixture(shares, points, _WIDER * factors, LEAST_PRIOR))
    return MixtureMeasure(prior, size_shares(prior, log_mass), tuple(parts))


def embed_mode(latent_map: LatentMap, mode: Mode, size: int, stick: float, spread: float) -> tuple[Array, Array]:
    """Centre and factor of a t distribution for `size` components: those of a smaller mode, and others from the prior.

    The others come first: the mode's components then keep their stick-breaking coordinates. `stick` and `spread` are
    centre and standard deviation of these coordinates of the others.
    """
    extra, n_dims = size - mode.size, latent_map.n_dims
    d = latent_map.dimension(size)
    means = size - 1
    scales = means + size * n_dims
    kept = np.r_[extra:means, means + extra * n_dims : scales, scales + extra * n_dims : d]
    centre, factor = np.zeros(d), np.eye(d)
    centre[:extra] = stick
    factor[:extra, :extra] *= spread
    centre[kept] = mode.xi
    factor[np.ix_(kept, kept)] = mode.factor
    return centre, factor


def refit_mixture(laplace: MixtureMeasure, matched: Latent, log_f: Array) -> MixtureMeasure:
    """Refit the Laplace mixture to weighted draws."""
    prior = laplace.prior
    points = matched.points()
    log_mass = np.full(prior.max_components, -np.inf)
    parts = []
    for n, part in enumerate(laplace.parts, start=1):
        rows = np.flatnonzero((matched.sizes == n) & np.isfinite(log_f))
        if len(rows):
            log_mass[n - 1] = special.logsumexp(log_f[rows]) - math.log(prior.size_probabilities[n - 1])
            xi = np.array([points[b] for b in rows])
            part = part.refitted(xi, tempered_weights(log_f[rows], 2.0 * part.dimension))
        parts.append(part)
    return replace(laplace, probabilities=size_shares(prior, log_mass), parts=tuple(parts))


def size_shares(prior: Prior, log_mass: Array) -> Array:
    """q(n) as the square root of the posterior p(n|D), with a floor of p(n).

    So less likely sizes get a share too: their evidence must be estimated as well, if less exactly.
    """
    p = prior.size_probabilities
    if not np.isfinite(log_mass).any():
        return p
    posterior = np.sqrt(p * np.exp(log_mass - log_mass.max()))
    shares: Array = (1.0 - _SIZE_FLOOR) * posterior / posterior.sum() + _SIZE_FLOOR * p
    return shares


def tempered_weights(log_f: Array, least: float) -> Array:
    """Weights proportional to f^γ with the largest γ <= 1 whose effective sample is `least`, or half the draws."""
    least = min(least, 0.5 * len(log_f))
    for gamma in _POWERS:
        weights = np.exp(gamma * (log_f - log_f.max()))
        weights /= weights.sum()
        if 1.0 / float(weights @ weights) >= least:
            break
    return np.asarray(weights)
