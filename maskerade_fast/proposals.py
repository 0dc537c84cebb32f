"""The reference measure that adapts to the posterior: ascents, a Laplace mixture, refinement by weighted draws.

docs/mathematics.md section 9. Where data are many the likelihood is a spike that draws from the prior miss. So modes
are sought first, each gets a t distribution shaped by its curvature, and draws from the mixture, weighted by f = L π/q
with q the average of all measures drawn from so far, refit it round by round.

A measure fitted to draws has more mass where they fell, so their own weights are too small, by tenths of a nat with a
few hundred draws. They are for adapting; the evidence comes from draws made when the measure is settled
(`importance`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from ._checks import Array
from .backends import single_threaded_blas, to_host
from .data import RegressionData
from .gmm import GMMBatch, concat
from .latent import Latent, LatentMap, LogNormal
from .likelihood import log_likelihood
from .measure import MixtureMeasure, PriorMeasure
from .optimize import maximise_in_lockstep
from .prior import Prior
from .relabelling import relabelled
from .student import LEAST_PRIOR, StudentMixture

GRADIENT_COST = 3
"""Likelihoods that one with its gradient counts as."""

# Ascents: evaluations of each, at least, as planned from draws, and at most
_FEWEST_STEPS, _USUAL_STEPS, _MOST_STEPS = 6, 30, 60
_WAYS = 3  # to add a component
_SPECTRUM_POINTS = 2000  # most points that a spectrum is sought with
_TOLERANCE = 1e-6
# Share of the budget for modes kept for curvatures; with many coordinates ascents need the more, and are the longer
_RESERVE, _RESERVE_OF_MANY, _MANY = 0.5, 0.3, 12
# Share of the ascents' budget for starts from draws; the rest is for starts from modes
_FIRST_WAVE = 0.5
# Step in ξ, where one unit is a prior standard deviation, for differences of gradients
_DIFFERENCE = 1e-4
# Curvatures below this are taken for it: a posterior is hardly wider than the prior, whose curvature is 1
_LEAST_CURVATURE = 0.5
# Nats behind the best mode, d more allowed, from which a mode is not worth its curvature's cost
_BEHIND = 12.0
# Standard deviation round a mode whose curvature was not affordable
_ROUGH_SD = 0.3
# Powers of the weights of draws that are tried, until enough draws count
_POWERS = tuple(0.8**k for k in range(30))
# Share of the prior p(n) in the probabilities of sizes
_SIZE_FLOOR = 0.2


class Target:
    """The likelihood of one data set over mixtures on the host and over latent coordinates; counts what it is asked.

    Attributes
    ----------
    cost : int
        Likelihoods evaluated, a value with gradient as 3; `evaluations` counts both alike.
    best : float
        Largest log-likelihood so far.
    """

    def __init__(self, data: RegressionData, prior: Prior, device: str) -> None:
        self.data, self.prior, self.device = data, prior, device
        self.evaluations = 0
        self.cost = 0
        self.best = -math.inf

    @property
    def latent_map(self) -> LatentMap:
        """T of the prior."""
        return self.prior.latent_map

    def values(self, mixtures: GMMBatch) -> Array:
        """Log-likelihoods, shape (B,)."""
        values: Array = to_host(
            log_likelihood(mixtures.to(self.device), self.data.X, self.data.y, basis=self.data.basis).value
        )
        self._count(values, 1)
        return values

    def log_posteriors(self, latent: Latent) -> tuple[Array, list[Array]]:
        """Log likelihood + log N(ξ; 0, I) but for its constant, shape (B,), and the gradient in ξ of each."""
        mixtures = self.latent_map.forward(latent)
        result = log_likelihood(mixtures.to(self.device), self.data.X, self.data.y, basis=self.data.basis, grad=True)
        values = to_host(result.value)
        self._count(values, GRADIENT_COST)
        assert result.grad is not None
        gradient = self.latent_map.pullback(latent, result.grad.to("cpu")) - latent.values
        own = np.array([0.5 * float(xi @ xi) for xi in latent.points()])
        return values - own, latent.with_values(gradient).points()

    def _count(self, values: Array, each: int) -> None:
        self.evaluations += len(values)
        self.cost += each * len(values)
        self.best = max(self.best, float(values.max(initial=-math.inf)))


class Summit(NamedTuple):
    """Where an ascent ended."""

    size: int
    xi: Array
    log_posterior: float

    @property
    def rank(self) -> float:
        """Log posterior with the n! relabelled twins of the point."""
        return self.log_posterior + float(special.gammaln(self.size + 1.0))


class Mode(NamedTuple):
    """A local maximum of the posterior in the latent coordinates of one size."""

    size: int
    xi: Array
    log_posterior: float
    factor: Array
    """Lower Cholesky factor of the inverse curvature."""

    @property
    def log_mass(self) -> float:
        """Laplace's estimate of the log of ∫ L dπ near the mode and its n! twins."""
        return self.log_posterior + float(np.log(np.diag(self.factor)).sum()) + float(special.gammaln(self.size + 1.0))


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
    """

    def __init__(self, target: Target, rng: np.random.Generator) -> None:
        self.target, self.rng = target, rng
        self.proposal = MixtureMeasure.of_prior(target.prior)
        self.sample: Sample | None = None
        self.modes: tuple[Mode, ...] = ()
        self._laplace = self.proposal
        self._best_draws: list[Summit] = []

    def design(self, count: int) -> None:
        """Evaluate `count` draws from the prior."""
        drawn = PriorMeasure(self.target.prior).candidates(count, self.rng)
        values = self.target.values(drawn.mixtures)
        sizes, points = drawn.latent.sizes, drawn.latent.points()
        order = np.flatnonzero(np.isfinite(values))
        order = order[np.argsort(-values[order], kind="stable")]
        self._best_draws = [Summit(int(sizes[b]), points[b], float(values[b])) for b in order]
        self.sample = Sample(drawn.mixtures, values, (self.proposal,), (count,))

    @single_threaded_blas()
    def ascend(self, budget: int) -> None:
        """Seek the modes for about `budget`, their curvature included, and put the Laplace mixture round them."""
        self.modes = tuple(find_modes(self.target, self._best_draws, budget, self.rng))
        self.proposal = self._laplace = laplace_mixture(self.target.prior, self.modes)

    @single_threaded_blas()
    def refine(self, count: int) -> None:
        """Evaluate `count` draws from the proposal and refit it to all draws."""
        assert self.sample is not None
        drawn = self.proposal.candidates(count, self.rng).mixtures
        sample = self.sample.with_draws(drawn, self.target.values(drawn), self.proposal)
        ratio, matched = sample.measure.match(sample.mixtures)
        proposal = refined(self._laplace, matched, sample.log_likelihoods + ratio)
        self.sample, self.proposal = sample, proposal


# ---- modes ----


def find_modes(target: Target, draws: list[Summit], budget: int, rng: np.random.Generator) -> list[Mode]:
    """Modes of all sizes, best first, from the best draws and then from modes of one component less.

    Most of the budget is for ascents, and curvatures have what these leave.
    """
    end = target.cost + budget
    draws = sorted([*draws, *spectral_starts(target)], key=lambda draw: -draw.log_posterior)
    sizes = sorted({draw.size for draw in draws})
    rounds = max((sum(d.size == n for d in draws) for n in sizes), default=0)
    by_size = [[d for d in draws if d.size == n] for n in sizes]
    in_turn = [own[k] for k in range(rounds) for own in by_size if k < len(own)]  # the best of each size, then the next
    curvatures = sum(GRADIENT_COST * (target.latent_map.dimension(n) + 1) for n in sizes)
    many = target.latent_map.dimension(sizes[-1]) > _MANY
    reserve = min(curvatures, int((_RESERVE_OF_MANY if many else _RESERVE) * budget))
    first = int(_FIRST_WAVE * (budget - reserve))
    summits = ascend(target, in_turn[: max(first // (GRADIENT_COST * _USUAL_STEPS), len(sizes))], first)
    best = {n: max((s for s in summits if s.size == n), key=lambda s: s.rank) for n in {s.size for s in summits}}
    left = end - target.cost - reserve
    grown = []
    for n in sizes:
        if n - 1 in best and left >= _WAYS + GRADIENT_COST * _FEWEST_STEPS:
            start = grown_start(target, best[n - 1], rng)
            grown += [start] if start is not None else []
            left -= _WAYS
    again = sorted([*grown, *best.values()], key=lambda s: -s.rank)
    summits += ascend(target, again, left)
    return curved(target, summits, end - target.cost)


def spectral_starts(target: Target) -> list[Summit]:
    """For one input axis: sines fitted to the data one after another, as mixtures of 1, 2, ... narrow components.

    A likelihood each. None for more axes, where a spectrum has no grid to be sought on.
    """
    latent_map, n_max = target.latent_map, target.prior.max_components
    if latent_map.n_dims != 1 or len(target.data.y) < 3:
        return []
    step = -(-len(target.data.y) // _SPECTRUM_POINTS)
    x, rest = (to_host(a)[::step].ravel() for a in (target.data.X, target.data.y))
    highest = 5.0 * float(latent_map.mean_sd[0])
    grid = np.linspace(0.0, highest, min(2 * _SPECTRUM_POINTS, max(32, int(8 * highest * float(np.ptp(x))))))
    waves = np.exp(2j * np.pi * np.outer(grid, x - x[0]))
    powers, frequencies = np.empty(n_max), np.empty(n_max)
    mixtures, noises = [], []
    scale = np.exp(latent_map.log_scale_mean - 2.0 * latent_map.log_scale_sd)
    for k in range(n_max):
        best = int(np.argmax(np.abs(waves @ rest)))
        basis = np.stack([waves[best].real, waves[best].imag], axis=1)
        fitted = basis @ np.linalg.lstsq(basis, rest, rcond=None)[0]
        rest = rest - fitted
        powers[k], frequencies[k] = max(float(fitted @ fitted) / len(x), 1e-6), grid[best]
        order = np.argsort(-powers[: k + 1], kind="stable")
        weights = powers[order] if isinstance(target.prior.mass, LogNormal) else powers[order] / powers[order].sum()
        mixtures.append((weights, frequencies[order, None], np.repeat(scale[None], k + 1, axis=0)))
        noises.append(max(float(rest @ rest) / len(x), 1e-6))
    fixed = target.prior.noise_variance
    batch = GMMBatch.from_list(mixtures, noises if isinstance(fixed, LogNormal) else np.full(n_max, fixed))
    usable = np.flatnonzero(target.prior.size_probabilities > 0.0)
    values = target.values(batch[usable])
    return [
        Summit(int(n) + 1, latent_map.inverse(batch[int(n)]).values, float(value))
        for n, value in zip(usable, values, strict=True)
        if np.isfinite(value)
    ]


def ascend(target: Target, starts: list[Summit], budget: int) -> list[Summit]:
    """Ascents together, one batched likelihood with gradient a step, from as many of the starts as `budget` allows."""
    starts = starts[: max(0, budget) // (GRADIENT_COST * _FEWEST_STEPS)]
    if not starts:
        return []
    steps = min(budget // (GRADIENT_COST * len(starts)), _MOST_STEPS)

    def evaluate(rows: list[int], points: list[Array]) -> list[tuple[float, Array]]:
        latent = target.latent_map.latent([starts[k].size for k in rows], np.concatenate(points))
        values, gradients = target.log_posteriors(latent)
        return list(zip(values.tolist(), gradients, strict=True))

    ends = maximise_in_lockstep(evaluate, [s.xi for s in starts], max_evaluations=steps, tolerance=_TOLERANCE)
    return [Summit(s.size, end.x, end.value) for s, end in zip(starts, ends, strict=True) if end is not None]


def grown_start(target: Target, summit: Summit, rng: np.random.Generator) -> Summit | None:
    """The best of three ways to add a component: the heaviest split, a small one from the prior, a small slow one."""
    latent_map = target.latent_map
    g = latent_map.forward(latent_map.latent([summit.size], summit.xi))
    fresh = latent_map.forward(latent_map.latent([1], rng.normal(size=latent_map.dimension(1))))
    heavy = int(np.argmax(g.weights))
    halved = np.append(g.weights, 0.5 * g.weights[heavy])
    halved[heavy] *= 0.5
    reduced = np.append(0.95 * g.weights, 0.05 * g.mass)
    slow = np.exp(latent_map.log_scale_mean - 2.0 * latent_map.log_scale_sd)
    ways = [
        (halved, 1.02 * g.means[heavy], 0.7 * g.scales[heavy]),
        (reduced, fresh.means[0], fresh.scales[0]),
        (reduced, np.zeros(g.n_dims), slow),
    ]
    mixtures = []
    for weights, mean, scale in ways:
        order = np.argsort(-weights, kind="stable")
        means, scales = np.vstack([g.means, mean]), np.vstack([g.scales, scale])
        mixtures.append((weights[order], means[order], scales[order]))
    noise = None if g.noise_variances is None else np.repeat(g.noise_variances, len(ways))
    batch = GMMBatch.from_list(mixtures, noise)
    values = target.values(batch)
    if not np.isfinite(values).any():
        return None
    best = int(np.argmax(values))
    return Summit(summit.size + 1, latent_map.inverse(batch[best]).values, float(values[best]))


def curved(target: Target, summits: list[Summit], budget: int) -> list[Mode]:
    """Distinct modes, best first, with curvatures by differences of gradients as far as `budget` goes."""
    modes: list[Mode] = []
    ranked = sorted(summits, key=lambda s: -s.rank)
    for summit in ranked:
        n, xi, value = summit
        d = len(xi)
        if summit.rank < ranked[0].rank - _BEHIND - d or any(
            is_twin(target.latent_map, mode, summit) for mode in modes
        ):
            continue
        cost = GRADIENT_COST * (d + 1)
        if cost <= budget:
            points = np.concatenate([xi[None], xi + _DIFFERENCE * np.eye(d)])
            _, gradients = target.log_posteriors(target.latent_map.latent(np.full(d + 1, n), points.ravel()))
            rows = (np.array(gradients[1:]) - gradients[0]) / _DIFFERENCE
            modes.append(Mode(n, xi, value, inverse_factor(-0.5 * (rows + rows.T))))
            budget -= cost
        elif all(mode.size != n for mode in modes):
            modes.append(Mode(n, xi, value, _ROUGH_SD * np.eye(d)))
    return modes


def inverse_factor(curvature: Array) -> Array:
    """Lower Cholesky factor of the inverse of a curvature (d, d), whose small eigenvalues are raised."""
    if not np.isfinite(curvature).all():
        return _ROUGH_SD * np.eye(len(curvature))
    values, vectors = np.linalg.eigh(curvature)
    values = np.where(values > 0.0, np.maximum(values, _LEAST_CURVATURE), 1.0)
    return np.linalg.cholesky((vectors / values) @ vectors.T)


def is_twin(latent_map: LatentMap, mode: Mode, summit: Summit) -> bool:
    """Whether the summit lies within a standard deviation of the mode in some order of its components."""
    if mode.size != summit.size:
        return False
    g = latent_map.forward(latent_map.latent([summit.size], summit.xi))
    for _, turned in relabelled(latent_map, g, summit.size):
        z = np.linalg.solve(mode.factor, (turned[0] - mode.xi).T)
        if float((z * z).sum(axis=0).min()) < 1.0:
            return True
    return False


# ---- measures ----


def laplace_mixture(prior: Prior, modes: tuple[Mode, ...]) -> MixtureMeasure:
    """A t distribution round each mode, weighted by Laplace masses with a floor; the prior for sizes without one."""
    log_mass = np.full(prior.max_components, -np.inf)
    parts = []
    for n in range(1, prior.max_components + 1):
        own = [mode for mode in modes if mode.size == n]
        if not own:
            parts.append(StudentMixture.prior(prior.latent_map.dimension(n)))
            continue
        masses = np.array([mode.log_mass for mode in own])
        log_mass[n - 1] = special.logsumexp(masses)
        shares = (1.0 - LEAST_PRIOR) * (0.8 * np.exp(masses - log_mass[n - 1]) + 0.2 / len(own))
        centres, factors = (np.array([getattr(mode, name) for mode in own]) for name in ("xi", "factor"))
        parts.append(StudentMixture(shares, centres, factors, LEAST_PRIOR))
    return MixtureMeasure(prior, size_shares(prior, log_mass), tuple(parts))


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
