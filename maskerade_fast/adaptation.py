"""The reference measure that adapts to the posterior: ascents, a Laplace mixture, and refinement by weighted draws.

docs/mathematics.md section 9. Where data are many the likelihood is a spike that draws from the prior miss. So the
modes are sought first, each gets a t distribution shaped by its curvature, and draws from the mixture, weighted by
f = L π/q, refit it round by round. Draws of all rounds count, under the average of all measures drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from ._checks import Array
from .backends import to_host
from .data import RegressionData
from .gmm import GMMBatch, concat
from .latent import Latent
from .likelihood import log_likelihood
from .measure import MixtureMeasure, PriorMeasure
from .optimize import maximise_in_lockstep
from .prior import Prior
from .relabelling import relabelled
from .student import StudentMixture

GRADIENT_COST = 3
"""Likelihoods that one with its gradient counts as."""
ASCENT_SHARE = 0.35
"""Of the budget, for ascents; as much again at most for the curvature at their ends."""
ROUNDS = 4
FLOOR = 0.5
PRIOR_SHARE = 0.1
"""Of the prior in every proposal."""
SIZE_FLOOR = 0.2
"""Of the prior p(n) in the probabilities of sizes."""
FEWEST_STEPS, MOST_STEPS = 8, 60
DIFFERENCE = 1e-4
BEHIND = 12.0
"""Nats of Laplace mass behind the best mode from which a mode's curvature is not worth its cost."""


class Target:
    """The likelihood of one data set in latent coordinates; counts what is asked of it."""

    def __init__(self, data: RegressionData, prior: Prior, device: str) -> None:
        self.data, self.prior, self.device = data, prior, device
        self.evaluations = 0
        self.cost = 0
        self.best = -math.inf

    def values(self, mixtures: GMMBatch) -> Array:
        """Log-likelihoods of mixtures given on the host, shape (B,)."""
        values: Array = to_host(log_likelihood(mixtures.to(self.device), self.data.X, self.data.y).value)
        self._count(values, 1)
        return values

    def log_posterior(self, latent: Latent) -> tuple[Array, list[Array]]:
        """Log likelihood less |ξ|²/2, shape (B,), and its gradient in ξ for each."""
        latent_map = self.prior.latent_map
        mixtures = latent_map.forward(latent)
        result = log_likelihood(mixtures.to(self.device), self.data.X, self.data.y, grad=True)
        values = to_host(result.value)
        self._count(values, GRADIENT_COST)
        assert result.grad is not None
        gradient = latent_map.pullback(latent, result.grad.to("cpu")) - latent.values
        parts = np.split(latent.values, latent.offsets[1:-1])
        prior_part = np.array([0.5 * float(xi @ xi) for xi in parts])
        return values - prior_part, np.split(gradient, latent.offsets[1:-1])

    def _count(self, values: Array, each: int) -> None:
        self.evaluations += len(values)
        self.cost += each * len(values)
        self.best = max(self.best, float(values.max(initial=-math.inf)))


@dataclass(frozen=True, eq=False)
class Mode:
    """A local maximum of the posterior in the latent coordinates of one size."""

    size: int
    xi: Array
    log_posterior: float
    factor: Array
    """Lower Cholesky factor of the inverse curvature."""

    @property
    def log_mass(self) -> float:
        """Laplace's log of the posterior mass near it and near its relabelled twins, against the prior's 1."""
        return self.log_posterior + float(np.log(np.diag(self.factor)).sum()) + float(special.gammaln(self.size + 1.0))


@dataclass(frozen=True, eq=False)
class Adapted:
    """Draws and the measure they are a sample of.

    Parameters
    ----------
    measure : MixtureMeasure
        The average of all measures drawn from.
    mixtures : GMMBatch of M draws
    log_likelihoods : array, shape (M,)
    modes : tuple of Mode
    """

    measure: MixtureMeasure
    mixtures: GMMBatch
    log_likelihoods: Array
    modes: tuple[Mode, ...]


def adapt(target: Target, initial: int, budget: int, rng: np.random.Generator) -> Adapted:
    """Spend about `budget` on a measure close to the posterior."""
    prior = target.prior
    design = PriorMeasure(prior).candidates(initial, rng)
    values = target.values(design.mixtures)
    modes = find_modes(target, design.latent, values, int(ASCENT_SHARE * budget), rng)

    measures, counts = [MixtureMeasure.of_prior(prior)], [len(values)]
    mixtures, log_likelihoods = design.mixtures, values
    proposal = laplace = laplace_mixture(prior, modes)
    for k in range(ROUNDS):
        count = (budget - target.cost) // (ROUNDS - k)
        if count <= 0:
            break
        drawn = proposal.candidates(count, rng)
        measures.append(proposal)
        counts.append(len(drawn))
        mixtures = concat([mixtures, drawn.mixtures])
        log_likelihoods = np.concatenate([log_likelihoods, target.values(drawn.mixtures)])
        measure = MixtureMeasure.average(measures, counts)
        ratio, matched = measure.match(mixtures)
        proposal = refined(proposal, laplace, matched, log_likelihoods + ratio)
    return Adapted(proposal, mixtures, log_likelihoods, tuple(modes))


def find_modes(target: Target, latent: Latent, values: Array, budget: int, rng: np.random.Generator) -> list[Mode]:
    """Ascents of all sizes together, from the best draws and then from the modes of one component less."""
    prior = target.prior
    sizes = [n for n in range(1, prior.max_components + 1) if prior.size_probabilities[n - 1] > 0.0]
    starts: list[tuple[int, Array]] = []
    points = np.split(latent.values, latent.offsets[1:-1])
    per_size = max(1, budget // (2 * GRADIENT_COST * 2 * FEWEST_STEPS * len(sizes)))
    for n in sizes:
        rows = np.flatnonzero((latent.sizes == n) & np.isfinite(values))
        rows = rows[np.argsort(-values[rows], kind="stable")][:per_size]
        starts += [(n, points[b]) for b in rows]
    if not starts:
        return []
    found = ascend(target, starts, steps_each(budget // 2, len(starts)))
    grown = [start for n in sizes if (start := grown_start(target, found, n, rng)) is not None]
    best = {n: max((m for m in found if m[0] == n), key=lambda m: m[2]) for n in {m[0] for m in found}}
    again = grown + [(n, xi) for n, xi, _ in best.values()]
    found += ascend(target, again, steps_each(budget // 2, len(again)))
    return curved(target, found, budget)


def steps_each(budget: int, count: int) -> int:
    return int(np.clip(budget // (GRADIENT_COST * count), FEWEST_STEPS, MOST_STEPS))


def ascend(target: Target, starts: list[tuple[int, Array]], steps: int) -> list[tuple[int, Array, float]]:
    """Ends of ascents: (size, ξ, log posterior)."""
    latent_map = target.prior.latent_map

    def evaluate(rows: list[int], points: list[Array]) -> list[tuple[float, Array]]:
        latent = latent_map.latent([starts[k][0] for k in rows], np.concatenate(points))
        values, gradients = target.log_posterior(latent)
        return list(zip(values.tolist(), gradients, strict=True))

    ends = maximise_in_lockstep(evaluate, [xi for _, xi in starts], max_evaluations=steps, tolerance=1e-6)
    return [(n, end.x, end.value) for (n, _), end in zip(starts, ends, strict=True) if end is not None]


def grown_start(
    target: Target, found: list[tuple[int, Array, float]], n: int, rng: np.random.Generator
) -> tuple[int, Array] | None:
    """The best of the ways to add a component to the best mode of n - 1 components."""
    smaller = [mode for mode in found if mode[0] == n - 1]
    if not smaller:
        return None
    latent_map = target.prior.latent_map
    _, xi, _ = max(smaller, key=lambda mode: mode[2])
    g = latent_map.forward(latent_map.latent([n - 1], xi))
    noise = g.noise_variances
    fresh = latent_map.forward(latent_map.latent([1], rng.normal(size=latent_map.dimension(1))))
    heavy = int(np.argmax(g.weights))
    ways = []
    split = np.concatenate([g.weights, g.weights[heavy : heavy + 1]])
    split[[heavy, -1]] *= 0.5
    ways.append((split, append(g.means, g.means[heavy] * 1.02), append(g.scales, 0.7 * g.scales[heavy])))
    small = np.concatenate([0.95 * g.weights, [0.05 * float(g.weights.sum())]])
    ways.append((small, append(g.means, fresh.means[0]), append(g.scales, fresh.scales[0])))
    ways.append((small, append(g.means, np.zeros(g.n_dims)), append(g.scales, np.exp(latent_map.log_scale_mean - 2 * latent_map.log_scale_sd))))
    order = [np.argsort(-w, kind="stable") for w, _, _ in ways]
    batch = GMMBatch.from_list(
        [(w[o], m[o], s[o]) for (w, m, s), o in zip(ways, order, strict=True)],
        None if noise is None else np.repeat(noise, len(ways)),
    )
    values = target.values(batch)
    if not np.isfinite(values).any():
        return None
    return n, latent_map.inverse(batch[int(np.argmax(values))]).values


def append(rows: Array, row: Array) -> Array:
    return np.concatenate([rows, row[None]])


def curved(target: Target, found: list[tuple[int, Array, float]], budget: int) -> list[Mode]:
    """Distinct modes with the curvature there, as long as `budget` lasts; best first."""
    latent_map = target.prior.latent_map
    modes: list[Mode] = []
    spent = target.cost
    ranked = sorted(found, key=lambda mode: -(mode[2] + float(special.gammaln(mode[0] + 1.0))))
    top = ranked[0][2]
    for n, xi, value in ranked:
        d = len(xi)
        if value < top - BEHIND - d or any(m.size == n and same(target, m, xi) for m in modes):
            continue
        affordable = target.cost - spent + GRADIENT_COST * (d + 1) <= budget
        if not affordable and any(m.size == n for m in modes):
            continue
        if not affordable:
            modes.append(Mode(n, xi, value, 0.3 * np.eye(d)))
            continue
        points = np.concatenate([xi[None], xi + DIFFERENCE * np.eye(d)])
        _, gradients = target.log_posterior(latent_map.latent(np.full(d + 1, n), points.ravel()))
        rows = (np.array(gradients[1:]) - gradients[0]) / DIFFERENCE
        modes.append(Mode(n, xi, value, inverse_factor(-0.5 * (rows + rows.T))))
    return modes


def inverse_factor(curvature: Array) -> Array:
    """Lower Cholesky factor of the inverse of a curvature, made positive: floors as in docs/mathematics.md."""
    values, vectors = np.linalg.eigh(np.where(np.isfinite(curvature), curvature, 0.0))
    values = np.where(values > 0.0, np.maximum(values, FLOOR), 1.0)
    return np.linalg.cholesky((vectors / values) @ vectors.T)


def same(target: Target, mode: Mode, xi: Array) -> bool:
    """Whether `xi` lies within a standard deviation of a mode, in some order of its components."""
    latent_map = target.prior.latent_map
    g = latent_map.forward(latent_map.latent([mode.size], xi))
    for _, turned in relabelled(latent_map, g, mode.size):
        z = np.linalg.solve(mode.factor, (turned[0] - mode.xi).T)
        if float(np.einsum("dp,dp->p", z, z).min()) < 1.0:
            return True
    return False


def laplace_mixture(prior: Prior, modes: list[Mode]) -> MixtureMeasure:
    """The first proposal: a t distribution round each mode, weighted by Laplace masses with a floor."""
    log_mass = np.full(prior.max_components, -np.inf)
    parts = []
    for n in range(1, prior.max_components + 1):
        own = [mode for mode in modes if mode.size == n]
        if not own:
            parts.append(StudentMixture.prior(prior.latent_map.dimension(n)))
            continue
        masses = np.array([mode.log_mass for mode in own])
        log_mass[n - 1] = special.logsumexp(masses)
        shares = 0.8 * np.exp(masses - log_mass[n - 1]) + 0.2 / len(own)
        parts.append(
            StudentMixture(
                (1.0 - PRIOR_SHARE) * shares,
                np.array([mode.xi for mode in own]),
                np.array([mode.factor for mode in own]),
                PRIOR_SHARE,
            )
        )
    return MixtureMeasure(prior, size_shares(prior, log_mass), tuple(parts))


def size_shares(prior: Prior, log_mass: Array) -> Array:
    """q(n) from the log masses of the sizes, with a floor of the prior's p(n)."""
    p = prior.size_probabilities
    if not np.isfinite(log_mass).any():
        return p
    posterior = p * np.exp(log_mass - log_mass[np.isfinite(log_mass)].max())
    posterior = np.sqrt(posterior / posterior.sum())
    return (1.0 - SIZE_FLOOR) * posterior / posterior.sum() + SIZE_FLOOR * p


def refined(proposal: MixtureMeasure, laplace: MixtureMeasure, matched: Latent, log_f: Array) -> MixtureMeasure:
    """The proposal, refitted to weighted draws."""
    prior = proposal.prior
    points = np.split(matched.values, matched.offsets[1:-1])
    log_mass = np.full(prior.max_components, -np.inf)
    parts = []
    for n, part in enumerate(proposal.parts, start=1):
        rows = np.flatnonzero(matched.sizes == n)
        if len(rows) == 0 or not np.isfinite(log_f[rows]).any():
            parts.append(part)
            continue
        log_mass[n - 1] = special.logsumexp(log_f[rows]) - np.log(prior.size_probabilities[n - 1])
        xi = np.array([points[b] for b in rows])
        weights = tempered(log_f[rows], 2.0 * part.dimension)
        parts.append(part.refitted(xi, weights, laplace.parts[n - 1]) if len(laplace.parts[n - 1].shares) else part)
    return replace(proposal, probabilities=size_shares(prior, log_mass), parts=tuple(parts))


def tempered(log_f: Array, least: float) -> Array:
    """Weights ∝ f^γ with the largest γ <= 1 whose effective sample size is `least`, or half the draws."""
    least = min(least, 0.5 * len(log_f))
    scaled = np.where(np.isfinite(log_f), log_f - log_f.max(), -np.inf)
    gamma = 1.0
    for _ in range(20):
        weights = np.exp(gamma * scaled)
        weights /= weights.sum()
        if 1.0 / float(weights @ weights) >= least:
            break
        gamma *= 0.7
    return weights
