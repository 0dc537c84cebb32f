"""Yardsticks for evidence and predictions: the best single kernel, prior Monte Carlo, tempered SMC, nested sampling.

All see the likelihood through a `CountedPosterior` (a value with gradient counts as 3), and the prior as a standard
normal distribution over the latent coordinates of each size. None is to be trusted alone: SMC with 1200 particles was
3 nats low on a problem of three components.

    from bench.studies.yardsticks import tempered_smc
    problem = Problem.of(RegressionData(x, y), prior)
    estimate = tempered_smc(CountedPosterior(problem), 512, np.random.default_rng(0))
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from maskerade_fast import GMMBatch
from maskerade_fast._optimize import maximise_in_lockstep
from maskerade_fast.adaptive.counted_posterior import GRADIENT_COST, CountedPosterior
from maskerade_fast.adaptive.modes import with_curvatures
from maskerade_fast.adaptive.starts import LatentPoint
from maskerade_fast.model.gmm import concat
from maskerade_fast.model.latent import Latent
from maskerade_fast.model.nets import power_of_two, sobol_normal

Array = np.ndarray[Any, np.dtype[Any]]

# Acceptance that the step of the moves is steered to, and the share of particles that count after a rise of temperature
_ACCEPTED, _EFFECTIVE = 0.3, 0.5
_MOST_STAGES = 500
_FEWEST_DRAWS = 32  # of each size, for starts of ascents


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a yardstick says.

    Parameters
    ----------
    log_evidence, log_evidence_sd : float
        NaN where the method has none.
    by_size : array, shape (N_max,)
        Log evidence of each size, p(n) left out.
    cost : int
        Likelihoods, a value with gradient as 3.
    seconds : float
    mixtures : GMMBatch of B mixtures, or None
        Draws from the posterior, or the best kernel.
    weights : array, shape (B,)
        Of the draws; sum to 1.
    """

    log_evidence: float
    log_evidence_sd: float
    by_size: Array
    cost: int
    seconds: float
    mixtures: GMMBatch | None
    weights: Array


class SizeEstimate(NamedTuple):
    """The evidence of one size, and M draws: latent coordinates (M, d) with the logarithms of their weights (M,)."""

    log_evidence: float
    sd: float
    points: Array
    log_weights: Array


# ---- the best single kernel ----


def map_kernel(
    target: CountedPosterior,
    rng: np.random.Generator,
    *,
    starts: int = 6,
    steps: int = 60,
    sizes: list[int] | None = None,
    likelihood_only: bool = False,
) -> Estimate:
    """The mixture of largest posterior density in latent coordinates, or of largest likelihood.

    Parameters
    ----------
    starts : int
        Ascents of each size, from the best of scrambled Sobol draws; all ascents of all sizes take their steps
        together.
    steps : int
        Likelihoods with gradient of each ascent, at most.
    sizes : list of int
        All of the prior's by default.
    likelihood_only : bool
        Without the prior; the draws that the ascents start from are still its own. The evidence is then NaN; else it
        is Laplace's, summed over the modes, without an error.
    """
    begin, cost = time.perf_counter(), target.cost
    sizes = list(range(1, target.prior.max_components + 1)) if sizes is None else sizes
    begun: list[LatentPoint] = []
    for n in sizes:
        points = sobol_normal(target.latent_map.dimension(n), power_of_two(max(starts, _FEWEST_DRAWS)), rng)
        values = _values(target, n, points)
        best = np.argsort(-values, kind="stable")[:starts]
        begun += [LatentPoint(n, points[b], float(values[b])) for b in best if values[b] > -math.inf]

    def evaluate(rows: list[int], points: list[Array]) -> list[tuple[float, Array]]:
        latent = target.latent_map.latent([begun[k].size for k in rows], np.concatenate(points))
        values, gradients = target.log_posteriors(latent)
        if likelihood_only:
            values = values + np.array([0.5 * float(xi @ xi) for xi in points])
            gradients = [gradient + xi for gradient, xi in zip(gradients, points, strict=True)]
        return list(zip(values.tolist(), gradients, strict=True))

    ends = maximise_in_lockstep(evaluate, [s.xi for s in begun], max_evaluations=steps, tolerance=1e-8, memory=40)
    maxima = [LatentPoint(s.size, e.x, e.value) for s, e in zip(begun, ends, strict=True) if e is not None]
    if not maxima:
        raise ValueError("y: no start has a finite likelihood")
    top = max(maxima, key=lambda s: s.log_posterior)
    by_size = np.full(target.prior.max_components, np.nan if likelihood_only else -np.inf)
    if not likelihood_only:
        budget = sum(GRADIENT_COST * (len(s.xi) + 1) for s in maxima)
        for mode in with_curvatures(target, maxima, budget):
            by_size[mode.size - 1] = np.logaddexp(by_size[mode.size - 1], mode.log_mass)
    return Estimate(
        float(special.logsumexp(by_size, b=target.prior.size_probabilities)),
        math.nan,
        by_size,
        target.cost - cost,
        time.perf_counter() - begin,
        target.latent_map.forward(_latent(target, top.size, top.xi[None])),
        np.ones(1),
    )


# ---- evidence ----


def prior_monte_carlo(target: CountedPosterior, draws: int, rng: np.random.Generator, *, nets: int = 8) -> Estimate:
    """Likelihoods averaged over the prior, in `nets` independent scrambled Sobol nets of draws / nets points a size.

    The error is that of the mean over the nets.
    """

    def of_size(n: int) -> SizeEstimate:
        d = target.latent_map.dimension(n)
        parts = [sobol_normal(d, power_of_two(max(draws // nets, 1)), rng) for _ in range(nets)]
        values = [_values(target, n, part) for part in parts]
        means = np.array([special.logsumexp(v) - math.log(len(v)) for v in values])
        top = float(means.max())
        if top == -math.inf:
            return SizeEstimate(-math.inf, math.nan, np.concatenate(parts), np.concatenate(values))
        ratios = np.exp(means - top)
        sd = float(ratios.std(ddof=1)) / math.sqrt(nets) / float(ratios.mean()) if nets > 1 else math.nan
        log_evidence = math.log(float(ratios.mean())) + top
        return SizeEstimate(log_evidence, sd, np.concatenate(parts), np.concatenate(values))

    return over_sizes(target, of_size)


def tempered_smc(target: CountedPosterior, particles: int, rng: np.random.Generator, *, moves: int = 5) -> Estimate:
    """Sequential Monte Carlo from the prior to the posterior of each size.

    Likelihoods are raised to powers that leave half of the particles effective; then systematic resampling and `moves`
    preconditioned Crank-Nicolson moves, whose reference is a normal distribution with the mean and covariance of the
    particles, and whose step is steered to 30 % acceptance.

    Parameters
    ----------
    particles : int
        Of each size, a power of two (rounded up); they start as a scrambled Sobol net.
    moves : int
        Of each particle at each temperature.

    Notes
    -----
    The error is Chan and Lai's (2013): the spread over the first ancestors of the weights of what descends from each.
    """
    return over_sizes(target, lambda n: _smc_of_size(target, n, power_of_two(particles), moves, rng))


def _smc_of_size(target: CountedPosterior, n: int, count: int, moves: int, rng: np.random.Generator) -> SizeEstimate:
    d = target.latent_map.dimension(n)
    if d == 0:
        value = float(_values(target, n, np.empty((1, 0)))[0])
        return SizeEstimate(value, 0.0, np.empty((1, 0)), np.zeros(1))
    points = sobol_normal(d, count, rng)
    values = _values(target, n, points)
    first = np.arange(count)
    power, log_evidence, step, sd = 0.0, 0.0, 0.5, 0.0
    for _ in range(_MOST_STAGES):
        if not np.isfinite(values).any():
            return SizeEstimate(-math.inf, math.nan, points, values)
        rise = _rise(values, 1.0 - power)
        log_weights = rise * values
        total = float(special.logsumexp(log_weights))
        weights = np.exp(log_weights - total)
        log_evidence += total - math.log(count)
        power += rise
        family = np.bincount(first, weights=weights, minlength=count)
        sd = float(np.linalg.norm(family - 1.0 / count))
        chosen = _systematic(weights, rng)
        points, values, first = points[chosen], values[chosen], first[chosen]
        mean = points.mean(axis=0)
        factor = np.linalg.cholesky(np.atleast_2d(np.cov(points.T)) + 1e-6 * np.eye(d))
        for _ in range(moves):
            moved = mean + math.sqrt(1.0 - step * step) * (points - mean)
            moved += step * rng.normal(size=(count, d)) @ factor.T
            new = _values(target, n, moved)
            log_ratio = power * (new - values) + _to_prior(moved, mean, factor) - _to_prior(points, mean, factor)
            accepted = np.log(rng.random(count)) < log_ratio
            points[accepted], values[accepted] = moved[accepted], new[accepted]
            step = min(0.99, step * math.exp(float(accepted.mean()) - _ACCEPTED))
        if power >= 1.0:
            return SizeEstimate(log_evidence, sd, points, np.zeros(count))
    raise RuntimeError(f"tempered_smc: power {power} after {_MOST_STAGES} temperatures, expected 1")


def _rise(values: Array, most: float) -> float:
    """How far the power may rise until no more than a share of the particles is effective."""

    def effective(rise: float) -> float:
        weights = np.exp(rise * (values - values.max()))
        return float(weights.sum() ** 2 / (weights @ weights))

    alive = int(np.isfinite(values).sum())
    if effective(most) >= _EFFECTIVE * alive:
        return most
    low, high = 0.0, most
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) >= _EFFECTIVE * alive else (low, middle)
    return high


def _systematic(weights: Array, rng: np.random.Generator) -> Array:
    """Indices (B,) in which each of B particles has about B times its weight."""
    count = len(weights)
    places = (np.arange(count) + rng.random()) / count
    return np.minimum(np.searchsorted(np.cumsum(weights), places), count - 1)


def _to_prior(points: Array, mean: Array, factor: Array) -> Array:
    """log N(ξ; 0, I) - log N(ξ; mean, factor factorᵀ) but for a constant."""
    z = np.linalg.solve(factor, (points - mean).T)
    ratio: Array = 0.5 * ((z * z).sum(axis=0) - (points * points).sum(axis=1))
    return ratio


def nested_sampling(target: CountedPosterior, live: int, rng: np.random.Generator, *, dlogz: float = 0.01) -> Estimate:
    """Dynesty's static nested sampler for each size, in the unit cube of the latent coordinates.

    New points come from random walks. Uniform draws from ellipsoids cost fewer likelihoods on some problems (60 live
    points, two_tones_40, n = 2: 4.0k for 10.0k; slices 14.9k), but for n = 3, and in some runs on smooth_25, hardly any
    such draw is good enough, and runs went on for minutes.

    Parameters
    ----------
    live : int
        Live points.
    dlogz : float
        Log evidence left in the live points at which a run ends; what they hold is added.

    Raises
    ------
    ModuleNotFoundError
        Without dynesty: ``pip install 'maskerade_fast[bench]'``.
    """
    import dynesty

    def of_size(n: int) -> SizeEstimate:
        d = target.latent_map.dimension(n)

        def log_likelihood(xi: Array) -> float:
            value = float(target.values(target.latent_map.forward(_latent(target, n, xi[None])))[0])
            return max(value, -1e300)  # dynesty wants numbers

        def transform(u: Array) -> Array:
            return np.asarray(special.ndtri(np.clip(u, 1e-16, 1.0 - 1e-16)))

        sampler = dynesty.NestedSampler(log_likelihood, transform, d, nlive=live, sample="rwalk", rstate=rng)
        sampler.run_nested(dlogz=dlogz, print_progress=False)
        results = sampler.results
        return SizeEstimate(float(results.logz[-1]), float(results.logzerr[-1]), results.samples, results.logwt)

    return over_sizes(target, of_size)


def over_sizes(target: CountedPosterior, of_size: Callable[[int], SizeEstimate]) -> Estimate:
    """Σ_n p(n) Z_n; the errors of the sizes are independent."""
    begin, cost = time.perf_counter(), target.cost
    p = target.prior.size_probabilities
    by_size, sds = np.full(len(p), -np.inf), np.zeros(len(p))
    mixtures, log_weights = [], []
    for n in np.flatnonzero(p > 0.0) + 1:
        estimate = of_size(int(n))
        by_size[n - 1], sds[n - 1] = estimate.log_evidence, estimate.sd
        mixtures.append(target.latent_map.forward(_latent(target, int(n), estimate.points)))
        total = special.logsumexp(estimate.log_weights)
        share = math.log(p[n - 1]) + estimate.log_evidence - (total if total > -math.inf else 0.0)
        log_weights.append(estimate.log_weights + share)
    log_evidence = float(special.logsumexp(by_size, b=p))
    finite = by_size > -np.inf
    if finite.any():
        sd = float(np.linalg.norm(p[finite] * np.exp(by_size[finite] - log_evidence) * sds[finite]))
        weights = np.exp(np.concatenate(log_weights) - log_evidence)
    else:
        sd, weights = math.inf, np.ones(sum(len(g) for g in mixtures))
    return Estimate(
        log_evidence,
        sd,
        by_size,
        target.cost - cost,
        time.perf_counter() - begin,
        concat(mixtures),
        weights / weights.sum(),
    )


def _latent(target: CountedPosterior, n: int, points: Array) -> Latent:
    return target.latent_map.latent(np.full(len(points), n), points.ravel())


def _values(target: CountedPosterior, n: int, points: Array) -> Array:
    """Log likelihoods at latent points of size n."""
    return target.values(target.latent_map.forward(_latent(target, n, points)))
