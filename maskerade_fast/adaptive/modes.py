"""Local maxima of the posterior in latent coordinates, with their curvatures (mathematics.md section 9).

Ascents of all sizes run together. They start from the best draws from the prior, from sines fitted to the data, and
from modes of one component less with a component added. `CountedPosterior` counts every likelihood.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from .._checks import Array
from .._optimize import maximise_in_lockstep
from ..model.component_orders import in_every_order
from ..model.latent import LatentMap
from .counted_posterior import GRADIENT_COST, CountedPosterior
from .starts import LatentPoint, growing_cost, grown_start, spectral_starts

# Evaluations of an ascent: at least, as planned for draws, at most
_FEWEST_STEPS, _USUAL_STEPS, _MOST_STEPS = 6, 30, 60
_TOLERANCE = 1e-6
# Steps from which L-BFGS-B estimates the curvature: nearly all. With SciPy's ten the modes of the CO2 record in 16
# coordinates were 14 nats lower (mean of six splits)
_MEMORY = 40
# Share of the mode search's budget reserved for curvatures; smaller for many coordinates, where ascents are longer
_RESERVE, _RESERVE_OF_MANY, _MANY = 0.5, 0.3, 12
# Share of the ascents' budget for starts from draws and sines; smaller for many coordinates. The rest is for starts
# from modes
_FIRST_WAVE, _FIRST_WAVE_OF_MANY = 0.5, 0.3
# Step in ξ, where one unit is a prior standard deviation, for differences of gradients
_DIFFERENCE = 1e-4
# Smaller curvatures are raised to this: a posterior is hardly wider than the prior, whose curvature is 1
_LEAST_CURVATURE = 0.5
# A mode further than this plus d nats below the best one is not worth the cost of its curvature
_BEHIND = 12.0
# Standard deviation around a mode whose curvature was not affordable
_ROUGH_SD = 0.3


class Mode(NamedTuple):
    """A local maximum of the posterior in the latent coordinates of one size, or another centre of a t distribution."""

    size: int
    xi: Array
    log_posterior: float
    factor: Array
    """Lower Cholesky factor of the inverse curvature."""

    @property
    def log_mass(self) -> float:
        """Laplace's estimate of the log of ∫ L dπ near the mode, in all n! orders of its components."""
        return self.log_posterior + float(np.log(np.diag(self.factor)).sum()) + float(special.gammaln(self.size + 1.0))


def find_modes(
    counted: CountedPosterior, draws: list[LatentPoint], budget: int, rng: np.random.Generator
) -> list[Mode]:
    """Find modes of all sizes, best first, from sines, from `draws` (best first), and from modes of one component less.

    Most of the budget is for ascents; curvatures get the rest.
    """
    end = counted.cost + budget
    # sines first: ascents from them reach heights that no draw has
    starts = [*spectral_starts(counted), *draws]
    if not starts:
        return []
    sizes = sorted({start.size for start in starts})
    by_size = [[s for s in starts if s.size == n] for n in sizes]
    in_turn = [
        s for rank in itertools.zip_longest(*by_size) for s in rank if s is not None
    ]  # the first of each size, ...
    curvatures = sum(curvature_cost(counted.latent_map.dimension(n)) for n in sizes)
    many = counted.latent_map.dimension(sizes[-1]) > _MANY
    reserved, wave = (_RESERVE_OF_MANY, _FIRST_WAVE_OF_MANY) if many else (_RESERVE, _FIRST_WAVE)
    reserve = min(curvatures, int(reserved * budget))
    first = max(int(wave * (budget - reserve)), min(GRADIENT_COST * _FEWEST_STEPS, budget))
    ends = ascend(counted, in_turn[: max(first // (GRADIENT_COST * _USUAL_STEPS), len(sizes))], first)
    best = {n: max((s for s in ends if s.size == n), key=lambda s: s.rank) for n in {s.size for s in ends}}
    for k, n in enumerate(sizes):  # from the best of one component less, which may come from this loop too
        share = (end - counted.cost - reserve) // (len(sizes) - k + 1)
        if n - 1 in best and share >= growing_cost(counted) + GRADIENT_COST * _FEWEST_STEPS:
            start = grown_start(counted, best[n - 1], rng)
            grown = ascend(counted, [start], share - growing_cost(counted)) if start is not None else []
            ends += grown
            best[n] = max([*grown, best[n]] if n in best else grown, key=lambda s: s.rank)
    left = end - counted.cost - reserve
    again = sorted(best.values(), key=lambda s: -s.rank)[: max(1, left // (GRADIENT_COST * _USUAL_STEPS))]
    ends += ascend(counted, again, left)
    return with_curvatures(counted, ends, end - counted.cost)


def ascend(counted: CountedPosterior, starts: list[LatentPoint], budget: int) -> list[LatentPoint]:
    """Ascend from as many of the starts as `budget` allows, with one batched likelihood and gradient per step."""
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
    return [LatentPoint(s.size, end.x, end.value) for s, end in zip(starts, ends, strict=True) if end is not None]


def with_curvatures(counted: CountedPosterior, ends: list[LatentPoint], budget: int) -> list[Mode]:
    """Distinct modes among `ends`, best first, with curvatures by differences of gradients while `budget` lasts."""
    modes: list[Mode] = []
    ranked = sorted(ends, key=lambda s: -s.rank)
    for point in ranked:
        n, xi, value = point
        d = len(xi)
        far_below = point.rank < ranked[0].rank - _BEHIND - d
        if far_below or any(is_same_mode(counted.latent_map, mode, point) for mode in modes):
            continue
        cost = curvature_cost(d)
        if cost <= budget:
            modes.append(Mode(n, xi, value, curvature_factor(counted, n, xi)))
            budget -= cost
        elif all(mode.size != n for mode in modes):
            modes.append(Mode(n, xi, value, _ROUGH_SD * np.eye(d)))
    return modes


def curvature_cost(d: int) -> int:
    """Cost, in likelihoods, of the curvature at a point of d coordinates."""
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


def is_same_mode(latent_map: LatentMap, mode: Mode, point: LatentPoint) -> bool:
    """Whether `point` lies within a standard deviation of the mode in some order of its components."""
    if mode.size != point.size:
        return False
    g = latent_map.forward(latent_map.latent([point.size], point.xi))
    for _, orders in in_every_order(latent_map, g, point.size):
        z = np.linalg.solve(mode.factor, (orders[0] - mode.xi).T)
        if float((z * z).sum(axis=0).min()) < 1.0:
            return True
    return False
