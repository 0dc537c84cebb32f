"""Local maxima of the posterior in latent coordinates, with their curvatures (mathematics.md section 9).

Starts of all sizes climb together: the best draws from the prior, sines fitted to the data, and modes of one
component less with one added. Every likelihood is counted by the `CountedPosterior`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from .._checks import Array
from .._optimize import maximise_in_lockstep
from ..model.component_orders import relabelled
from ..model.latent import LatentMap
from .counted_posterior import GRADIENT_COST, CountedPosterior
from .starts import Summit, growing_cost, grown_start, spectral_starts

# Ascents: evaluations of each, at least, as planned from draws, and at most
_FEWEST_STEPS, _USUAL_STEPS, _MOST_STEPS = 6, 30, 60
_TOLERANCE = 1e-6
# Steps that an ascent learns the curvature from: nearly all. With SciPy's ten the modes of the CO2 record in 16
# coordinates were 14 nats lower (mean of six splits)
_MEMORY = 40
# Share of the budget for modes kept for curvatures; with many coordinates ascents need the more, and are the longer
_RESERVE, _RESERVE_OF_MANY, _MANY = 0.5, 0.3, 12
# Share of the ascents' budget for starts from draws and sines, of many coordinates the lesser; the rest is for starts
# from modes
_FIRST_WAVE, _FIRST_WAVE_OF_MANY = 0.5, 0.3
# Step in ξ, where one unit is a prior standard deviation, for differences of gradients
_DIFFERENCE = 1e-4
# Curvatures below this are taken for it: a posterior is hardly wider than the prior, whose curvature is 1
_LEAST_CURVATURE = 0.5
# Nats behind the best mode, d more allowed, from which a mode is not worth its curvature's cost
_BEHIND = 12.0
# Standard deviation round a mode whose curvature was not affordable
_ROUGH_SD = 0.3


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


def find_modes(counted: CountedPosterior, draws: list[Summit], budget: int, rng: np.random.Generator) -> list[Mode]:
    """Modes of all sizes, best first, from sines, from draws given best first, and from modes of one component less.

    Most of the budget is for ascents, and curvatures have what these leave.
    """
    end = counted.cost + budget
    # sines first: they rise from far below to where no draw has been
    starts = [*spectral_starts(counted), *draws]
    if not starts:
        return []
    sizes = sorted({start.size for start in starts})
    rounds = max((sum(s.size == n for s in starts) for n in sizes), default=0)
    by_size = [[s for s in starts if s.size == n] for n in sizes]
    in_turn = [own[k] for k in range(rounds) for own in by_size if k < len(own)]  # the best of each size, then the next
    curvatures = sum(curvature_cost(counted.latent_map.dimension(n)) for n in sizes)
    many = counted.latent_map.dimension(sizes[-1]) > _MANY
    kept, wave = (_RESERVE_OF_MANY, _FIRST_WAVE_OF_MANY) if many else (_RESERVE, _FIRST_WAVE)
    reserve = min(curvatures, int(kept * budget))
    first = max(int(wave * (budget - reserve)), min(GRADIENT_COST * _FEWEST_STEPS, budget))
    summits = ascend(counted, in_turn[: max(first // (GRADIENT_COST * _USUAL_STEPS), len(sizes))], first)
    best = {n: max((s for s in summits if s.size == n), key=lambda s: s.rank) for n in {s.size for s in summits}}
    for k, n in enumerate(sizes):  # each from the best of one component less, which may have grown itself
        share = (end - counted.cost - reserve) // (len(sizes) - k + 1)
        if n - 1 in best and share >= growing_cost(counted) + GRADIENT_COST * _FEWEST_STEPS:
            start = grown_start(counted, best[n - 1], rng)
            grown = ascend(counted, [start], share - growing_cost(counted)) if start is not None else []
            summits += grown
            best[n] = max([*grown, best[n]] if n in best else grown, key=lambda s: s.rank)
    left = end - counted.cost - reserve
    again = sorted(best.values(), key=lambda s: -s.rank)[: max(1, left // (GRADIENT_COST * _USUAL_STEPS))]
    summits += ascend(counted, again, left)
    return curved(counted, summits, end - counted.cost)


def ascend(counted: CountedPosterior, starts: list[Summit], budget: int) -> list[Summit]:
    """Ascents together, one batched likelihood with gradient a step, from as many of the starts as `budget` allows."""
    starts = starts[: max(0, budget) // (GRADIENT_COST * _FEWEST_STEPS)]
    if not starts:
        return []
    steps = min(budget // (GRADIENT_COST * len(starts)), _MOST_STEPS)

    def evaluate(rows: list[int], points: list[Array]) -> list[tuple[float, Array]]:
        latent = counted.latent_map.latent([starts[k].size for k in rows], np.concatenate(points))
        values, gradients = counted.log_posteriors(latent)
        return list(zip(values.tolist(), gradients, strict=True))

    options: dict[str, Any] = {"max_evaluations": steps, "tolerance": _TOLERANCE, "memory": _MEMORY}
    ends = maximise_in_lockstep(evaluate, [s.xi for s in starts], **options)
    return [Summit(s.size, end.x, end.value) for s, end in zip(starts, ends, strict=True) if end is not None]


def curved(counted: CountedPosterior, summits: list[Summit], budget: int) -> list[Mode]:
    """Distinct modes, best first, with curvatures by differences of gradients as far as `budget` goes."""
    modes: list[Mode] = []
    ranked = sorted(summits, key=lambda s: -s.rank)
    for summit in ranked:
        n, xi, value = summit
        d = len(xi)
        if summit.rank < ranked[0].rank - _BEHIND - d or any(
            is_twin(counted.latent_map, mode, summit) for mode in modes
        ):
            continue
        cost = curvature_cost(d)
        if cost <= budget:
            modes.append(Mode(n, xi, value, curvature_factor(counted, n, xi)))
            budget -= cost
        elif all(mode.size != n for mode in modes):
            modes.append(Mode(n, xi, value, _ROUGH_SD * np.eye(d)))
    return modes


def curvature_cost(d: int) -> int:
    """Likelihoods that the curvature at a point of d coordinates takes."""
    return GRADIENT_COST * (d + 1)


def curvature_factor(counted: CountedPosterior, size: int, xi: Array) -> Array:
    """Lower Cholesky factor of the inverse curvature of the log posterior at `xi`, by differences of gradients."""
    d = len(xi)
    points = np.concatenate([xi[None], xi + _DIFFERENCE * np.eye(d)])
    _, gradients = counted.log_posteriors(counted.latent_map.latent(np.full(d + 1, size), points.ravel()))
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
