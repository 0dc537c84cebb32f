"""Starts of ascents: sines fitted to the data, and a mode of one component less with a component added."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg, special

from .._checks import Array
from ..backends import to_host
from ..model.gmm import GMMBatch
from ..model.latent import Latent, LogNormal
from ..ops.gram import host_factor
from .counted_posterior import GRADIENT_COST, CountedPosterior
from .mixture_measure import adapted_sizes

_SPECTRUM_POINTS = 2000  # most rows of data in a spectrum
_BLOCK = 256  # frequencies at a time


class LatentPoint(NamedTuple):
    """A point in the latent coordinates of one mixture size, with its log posterior: where an ascent starts or ends."""

    size: int
    xi: Array
    log_posterior: float

    @property
    def rank(self) -> float:
        """Log posterior of the point in all n! orders of its components together."""
        return self.log_posterior + float(special.gammaln(self.size + 1.0))


def spectral_starts(counted: CountedPosterior) -> list[LatentPoint]:
    """Fit sines to the data one after another and return them as mixtures of 1, 2, ... narrow components.

    Each costs a likelihood. Empty for several input axes, where a spectrum has no grid.
    """
    latent_map, n_max = counted.latent_map, int(adapted_sizes(counted.prior)[-1])
    if latent_map.n_dims != 1 or len(counted.data.y) < 3:
        return []
    step = _row_step(counted)
    x, rest = (to_host(a)[::step].ravel() for a in (counted.data.X, counted.data.y))
    if counted.data.basis is not None:  # sines do not explain the trend
        basis = to_host(counted.data.basis)[::step]
        rest = rest - basis @ np.linalg.lstsq(basis, rest, rcond=None)[0]
    grid = _frequencies(counted, x)
    waves = np.exp(2j * np.pi * np.outer(grid, x - x.min()))
    powers, frequencies = np.empty(n_max), np.empty(n_max)
    mixtures, noises = [], []
    scale = np.exp(latent_map.log_scale_mean - 2.0 * latent_map.log_scale_sd)
    for k in range(n_max):
        best = int(np.argmax(np.abs(waves @ rest)))
        sines = np.stack([waves[best].real, waves[best].imag], axis=1)
        fit = sines @ np.linalg.lstsq(sines, rest, rcond=None)[0]
        rest = rest - fit
        powers[k], frequencies[k] = max(float(fit @ fit) / len(x), 1e-6), grid[best]
        order = np.argsort(-powers[: k + 1], kind="stable")
        weights = powers[order] if isinstance(counted.prior.mass, LogNormal) else powers[order] / powers[order].sum()
        mixtures.append((weights, frequencies[order, None], np.repeat(scale[None], k + 1, axis=0)))
        noises.append(max(float(rest @ rest) / len(x), 1e-6))
    fixed = counted.prior.noise_variance
    batch = GMMBatch.from_list(mixtures, noises if isinstance(fixed, LogNormal) else np.full(n_max, fixed))
    usable = adapted_sizes(counted.prior) - 1
    return latent_points(latent_map.inverse(batch[usable]), counted.values(batch[usable]))


def grown_start(counted: CountedPosterior, mode: LatentPoint, rng: np.random.Generator) -> LatentPoint | None:
    """Add a component to `mode` in several ways, at a likelihood each, and return the best result.

    The heaviest component is split; a small one is drawn from the prior; a small slow one is added; and for one input
    axis the sine that raises the likelihood most.
    """
    latent_map = counted.latent_map
    g = latent_map.forward(latent_map.latent([mode.size], mode.xi))
    fresh = latent_map.forward(latent_map.latent([1], rng.normal(size=latent_map.dimension(1))))
    heavy = int(np.argmax(g.weights))
    halved = np.append(g.weights, 0.5 * g.weights[heavy])
    halved[heavy] *= 0.5
    reduced = np.append(0.95 * g.weights, 0.05 * g.mass)
    slow = np.exp(latent_map.log_scale_mean - 2.0 * latent_map.log_scale_sd)
    ways = [
        (halved, 1.02 * g.means[heavy], 0.7 * g.scales[heavy]),
        (reduced, fresh.means[0], fresh.scales[0]),
        (reduced, slow if latent_map.fold else np.zeros(g.n_dims), slow),  # folded means have no 0
    ]
    if (sine := missing_sine(counted, g)) is not None:
        weight, frequency = sine
        kept = 1.0 if isinstance(counted.prior.mass, LogNormal) else float(g.mass[0] / (g.mass[0] + weight))
        ways.append((kept * np.append(g.weights, weight), np.array([frequency]), slow))
    mixtures = []
    for weights, mean, scale in ways:
        order = np.argsort(-weights, kind="stable")
        means, scales = np.vstack([g.means, mean]), np.vstack([g.scales, scale])
        mixtures.append((weights[order], means[order], scales[order]))
    noise = None if g.noise_variances is None else np.repeat(g.noise_variances, len(ways))
    batch = GMMBatch.from_list(mixtures, noise)
    points = latent_points(latent_map.inverse(batch), counted.values(batch))
    return max(points, key=lambda start: start.log_posterior, default=None)


def latent_points(latent: Latent, log_likelihoods: Array) -> list[LatentPoint]:
    """Points of finite likelihood with their log posteriors; with fewer likelihoods, of the first points."""
    rows = zip(latent.sizes, latent.points(), log_likelihoods, strict=False)
    return [LatentPoint(int(n), xi, float(v) - 0.5 * float(xi @ xi)) for n, xi, v in rows if np.isfinite(v)]


def growing_cost(counted: CountedPosterior) -> int:
    """Most likelihoods that `grown_start` counts."""
    return 3 + (1 + GRADIENT_COST if counted.latent_map.n_dims == 1 else 0)


def missing_sine(counted: CountedPosterior, g: GMMBatch) -> tuple[float, float] | None:
    """Weight and frequency of the sine that raises the likelihood of one mixture most; None for more input axes.

    A component without width at the frequency m adds w (c c' + s s') to the covariance K, c and s the cosine and sine
    of 2 pi m x. With a = K^-1 y and t = |(c + i s)' a|^2 / tr([c s]' K^-1 [c s]), w = (t - 1) / g is best, where g is
    half of that trace, and the log-likelihood rises by t - 1 - log t. The work is that of a gradient and is counted as
    one.
    """
    if counted.latent_map.n_dims != 1:
        return None
    counted.charge(GRADIENT_COST)
    step = _row_step(counted)
    x, y = (to_host(a)[::step] for a in (counted.data.X, counted.data.y))
    noise = None if g.noise_variances is not None else counted.prior.noise_variance
    basis = None if counted.data.basis is None else counted.data.basis[::step]
    factor = host_factor(g, x, noise_variance=noise, basis=basis)
    if factor is None:
        return None
    white = linalg.solve_triangular(factor, y, lower=True, check_finite=False)
    grid = _frequencies(counted, x)
    gains, weights = np.empty(len(grid)), np.empty(len(grid))
    for start in range(0, len(grid), _BLOCK):
        phase = 2.0 * np.pi * (x - x.min()) * grid[start : start + _BLOCK]
        cosines, sines = (
            linalg.solve_triangular(factor, f(phase), lower=True, check_finite=False) for f in (np.cos, np.sin)
        )
        trace = 0.5 * ((cosines * cosines).sum(axis=0) + (sines * sines).sum(axis=0))
        t = np.maximum(0.5 * ((white @ cosines) ** 2 + (white @ sines) ** 2) / trace, 1.0)
        rows = slice(start, start + len(t))
        gains[rows], weights[rows] = t - 1.0 - np.log(t), (t - 1.0) / trace
    best = int(np.argmax(gains))
    return (float(weights[best]), float(grid[best])) if gains[best] > 0.0 else None


def _row_step(counted: CountedPosterior) -> int:
    """k, if spectra use every k-th row of the data."""
    return -(-len(counted.data.y) // _SPECTRUM_POINTS)


def _frequencies(counted: CountedPosterior, x: Array) -> Array:
    """A grid up to the prior's highest frequencies, finer than the window resolves where 4000 points suffice."""
    highest = 5.0 * float(counted.latent_map.mean_sd[0])
    count = min(2 * _SPECTRUM_POINTS, max(32, int(8 * highest * float(np.ptp(x)))))
    return np.linspace(
        highest / count, highest, count
    )  # without 0, whose latent coordinate is infinite for folded means
