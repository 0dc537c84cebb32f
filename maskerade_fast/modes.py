"""Local maxima of the posterior in latent coordinates, with their curvatures (docs/mathematics.md section 9).

Starts of all sizes climb together: the best draws from the prior, sines fitted to the data, and modes of one
component less with one added. Every likelihood is counted by the `Target`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from ._checks import Array
from .backends import to_host
from .gmm import GMMBatch
from .latent import LatentMap, LogNormal
from .optimize import maximise_in_lockstep
from .relabelling import relabelled
from .target import GRADIENT_COST, Target

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
    """A local maximum of the posterior in the latent coordinates of one size, or another point that draws go round."""

    size: int
    xi: Array
    log_posterior: float
    factor: Array
    """Lower Cholesky factor of the inverse curvature."""

    @property
    def log_mass(self) -> float:
        """Laplace's estimate of the log of ∫ L dπ near the mode and its n! twins."""
        return self.log_posterior + float(np.log(np.diag(self.factor)).sum()) + float(special.gammaln(self.size + 1.0))


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
    curvatures = sum(curvature_cost(target.latent_map.dimension(n)) for n in sizes)
    many = target.latent_map.dimension(sizes[-1]) > _MANY
    reserve = min(curvatures, int((_RESERVE_OF_MANY if many else _RESERVE) * budget))
    first = max(int(_FIRST_WAVE * (budget - reserve)), min(GRADIENT_COST * _FEWEST_STEPS, budget))
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
        cost = curvature_cost(d)
        if cost <= budget:
            modes.append(Mode(n, xi, value, curvature_factor(target, n, xi)))
            budget -= cost
        elif all(mode.size != n for mode in modes):
            modes.append(Mode(n, xi, value, _ROUGH_SD * np.eye(d)))
    return modes


def curvature_cost(d: int) -> int:
    """Likelihoods that the curvature at a point of d coordinates takes."""
    return GRADIENT_COST * (d + 1)


def curvature_factor(target: Target, size: int, xi: Array) -> Array:
    """Lower Cholesky factor of the inverse curvature of the log posterior at `xi`, by differences of gradients."""
    d = len(xi)
    points = np.concatenate([xi[None], xi + _DIFFERENCE * np.eye(d)])
    _, gradients = target.log_posteriors(target.latent_map.latent(np.full(d + 1, size), points.ravel()))
    rows = (np.array(gradients[1:]) - gradients[0]) / _DIFFERENCE
    return inverse_factor(-0.5 * (rows + rows.T))


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
