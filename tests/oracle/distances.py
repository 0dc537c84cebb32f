"""Section 2: distances between mixtures.

Keywords, gathered in ``**metric``: `reflect`, `frequency_scale` and `scale_scale` (scalar or (D,)), `mass_correction`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from oracle.mixtures import Array, Batch, Mixture, floats

Arrays = tuple[Array, Array, Array]


class Atom(NamedTuple):
    """A point of the spectrum: of `component`, in whose weight, mean and scale its own have the `slopes`."""

    mass: float
    mean: Array
    scale: Array
    component: int
    slopes: tuple[Any, Any, Any]


def energy_distance(a: Batch, b: Batch | None = None, **metric: Any) -> Array:
    """E (B_a, B_b) = sum w w' |p - q| - 1/2 sum w w |p - p| - 1/2 sum w' w' |q - q|, clamped at 0."""
    return _table(_energy, a, b, **metric)


def energy_distance_vjp(a: Batch, b: Batch | None, cotangent: ArrayLike, **metric: Any) -> Arrays:
    """Gradient in the arrays of `a` of sum(cotangent * E(a, b)); b=None: through both arguments of E(a, a).

    The clamp at 0 is against rounding: a pair that it meets has gradient 0.
    """
    return _pull_back(energy_gradient, a, b, cotangent, **metric)


def gaussian_mmd2(a: Batch, b: Batch | None = None, *, bandwidth: float, **metric: Any) -> Array:
    """MMD^2 (B_a, B_b) of the spectral densities under exp(-|x - y|^2 / (2 bandwidth^2))."""
    return _table(_gaussian, a, b, bandwidth=bandwidth, **metric)


def gaussian_mmd2_vjp(a: Batch, b: Batch | None, cotangent: ArrayLike, *, bandwidth: float, **metric: Any) -> Arrays:
    """Gradient in the arrays of `a` of sum(cotangent * MMD^2(a, b)); b=None: through both arguments."""
    return _pull_back(_gaussian_gradient, a, b, cotangent, bandwidth=bandwidth, **metric)


def atoms(
    mixture: Mixture, *, reflect: bool = False, frequency_scale: Any = None, scale_scale: Any = None
) -> list[Atom]:
    """Atoms (m / c, s / c') of mass w, or with `reflect` of mass w / 2 at both signs of the mean."""
    weights, means, scales = floats(mixture)
    c, c2 = (1.0 if v is None else np.asarray(v, dtype=np.float64) for v in (frequency_scale, scale_scale))
    signs = (1.0, -1.0) if reflect else (1.0,)
    share = 1.0 / len(signs)
    return [
        Atom(weights[j] * share, sign * means[j] / c, scales[j] / c2, j, (share, sign / c, 1.0 / c2))
        for j in range(len(weights))
        for sign in signs
    ]


def gap(p: Atom, q: Atom) -> float:
    """|p - q|."""
    return math.hypot(*(p.mean - q.mean), *(p.scale - q.scale))


def _size(p: Atom) -> float:
    return math.hypot(*p.mean, *p.scale)


def _energy(a: Mixture, b: Mixture, *, mass_correction: bool = False, **metric: Any) -> float:
    p, q = atoms(a, **metric), atoms(b, **metric)
    cross = sum(x.mass * y.mass * gap(x, y) for x in p for y in q)
    self_a = sum(x.mass * y.mass * gap(x, y) for x in p for y in p)
    self_b = sum(x.mass * y.mass * gap(x, y) for x in q for y in q)
    value = cross - 0.5 * self_a - 0.5 * self_b
    if mass_correction:
        mass_gap = sum(x.mass for x in p) - sum(y.mass for y in q)
        value += mass_gap * (sum(x.mass * _size(x) for x in p) - sum(y.mass * _size(y) for y in q))
    return max(value, 0.0)


def energy_gradient(a: Mixture, b: Mixture, *, mass_correction: bool = False, **metric: Any) -> Arrays:
    """Gradient of E in the arrays of `a`; 0 where E is clamped at 0."""
    p, q = atoms(a, **metric), atoms(b, **metric)
    weights, means, scales = (np.zeros_like(x) for x in floats(a))
    if _energy(a, b, mass_correction=mass_correction, **metric) == 0.0:
        return weights, means, scales
    mass_gap = sum(x.mass for x in p) - sum(y.mass for y in q)
    moment_gap = sum(x.mass * _size(x) for x in p) - sum(y.mass * _size(y) for y in q)
    for x in p:
        by_mass = 0.0
        by_mean, by_scale = np.zeros(means.shape[1]), np.zeros(means.shape[1])
        for others, factor in ((q, 1.0), (p, -1.0)):
            for y in others:
                distance = gap(x, y)
                by_mass += factor * y.mass * distance
                if distance > 0.0:
                    by_mean += factor * x.mass * y.mass * (x.mean - y.mean) / distance
                    by_scale += factor * x.mass * y.mass * (x.scale - y.scale) / distance
        if mass_correction:
            by_mass += moment_gap + mass_gap * _size(x)
            if _size(x) > 0.0:
                by_mean += mass_gap * x.mass * x.mean / _size(x)
                by_scale += mass_gap * x.mass * x.scale / _size(x)
        weights[x.component] += by_mass * x.slopes[0]
        means[x.component] += by_mean * x.slopes[1]
        scales[x.component] += by_scale * x.slopes[2]
    return weights, means, scales


def _overlap(x: Atom, y: Atom, bandwidth: float) -> float:
    value = 1.0
    for m, m2, s, s2 in zip(x.mean, y.mean, x.scale, y.scale, strict=True):
        spread = s * s + s2 * s2 + bandwidth**2
        value *= bandwidth / math.sqrt(spread) * math.exp(-((m - m2) ** 2) / (2.0 * spread))
    return value


def _gaussian(a: Mixture, b: Mixture, *, bandwidth: float, **metric: Any) -> float:
    p, q = atoms(a, **metric), atoms(b, **metric)
    terms = ((p, p, 1.0), (p, q, -2.0), (q, q, 1.0))
    value = sum(f * x.mass * y.mass * _overlap(x, y, bandwidth) for s, t, f in terms for x in s for y in t)
    return max(value, 0.0)


def _gaussian_gradient(a: Mixture, b: Mixture, *, bandwidth: float, **metric: Any) -> Arrays:
    """Gradient of MMD^2 in the arrays of `a`; 0 where the value is clamped at 0."""
    p, q = atoms(a, **metric), atoms(b, **metric)
    weights, means, scales = (np.zeros_like(x) for x in floats(a))
    if _gaussian(a, b, bandwidth=bandwidth, **metric) == 0.0:
        return weights, means, scales
    for x in p:
        for others, factor in ((p, 2.0), (q, -2.0)):
            for y in others:
                value = factor * y.mass * _overlap(x, y, bandwidth)
                spread = x.scale**2 + y.scale**2 + bandwidth**2
                shift = x.mean - y.mean
                weights[x.component] += value * x.slopes[0]
                means[x.component] += x.mass * value * (-shift / spread) * x.slopes[1]
                by_scale = -x.scale / spread + x.scale * shift**2 / spread**2
                scales[x.component] += x.mass * value * by_scale * x.slopes[2]
    return weights, means, scales


def _table(pair: Callable[..., float], a: Batch, b: Batch | None, **options: Any) -> Array:
    others = a if b is None else b
    values = np.zeros((len(a), len(others)))
    for i, x in enumerate(a):
        for j, y in enumerate(others):
            values[i, j] = 0.0 if b is None and i == j else pair(x, y, **options)
    return values


def _pull_back(
    pair_gradient: Callable[..., Arrays], a: Batch, b: Batch | None, cotangent: ArrayLike, **options: Any
) -> Arrays:
    slopes: Array = np.asarray(cotangent, dtype=np.float64)
    if b is None:  # the gradient in the second argument is the one in the first, transposed
        b, slopes = a, slopes + slopes.T
    parts: list[list[Array]] = [[], [], []]
    for i, x in enumerate(a):
        total = [np.zeros_like(array) for array in floats(x)]
        for j, y in enumerate(b):
            for k, array in enumerate(pair_gradient(x, y, **options)):
                total[k] += slopes[i, j] * array
        for part, array in zip(parts, total, strict=True):
            part.append(array)
    return np.concatenate(parts[0]), np.concatenate(parts[1]), np.concatenate(parts[2])
