"""The reference: float64 loops written straight from the formulas, sharing no code with the package.

Slow on purpose. It meets the golden numbers (`test_golden.py`), and every path of the package meets it.
A mixture is a plain tuple ``(weights (n,), means (n, D), scales (n, D))`` and a batch is a list of mixtures;
`mixtures_of` reads them out of a GMMBatch. Gradients are flat, (J,), (J, D), (J, D), as in GMMGradient. The
sections are those of mathematics.md: 1 spectral mixtures, 2 distances, 3 hyper-kernel, 4 prior, 5 surrogate,
6 evidence, 7 acquisition, 8 prediction, 9 latent coordinates.

Keywords of the distances, gathered in ``**metric``: `reflect`, `frequency_scale` and `scale_scale` (scalar or
(D,)), `mass_correction`; `squared_distance` and all that rests on it also take `noise_weight`, `mass_weight`,
and the noise variances of the mixtures in `noise_a` and `noise_b`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array = NDArray[np.float64]
Mixture = tuple[Any, Any, Any]
Batch = Sequence[Mixture]
Atom = tuple[float, Array, Array, int, float]  # mass, mean, scale, its component, sign of the mean


def mixtures_of(batch: Any) -> list[Mixture]:
    """The mixtures of anything with `offsets`, `weights`, `means` and `scales`, as float64 tuples."""
    arrays = [np.asarray(a, dtype=np.float64) for a in (batch.weights, batch.means, batch.scales)]
    edges = [int(o) for o in batch.offsets]
    return [(arrays[0][i:j], arrays[1][i:j], arrays[2][i:j]) for i, j in itertools.pairwise(edges)]


def central_differences(f: Callable[[Array], float], x: ArrayLike, step: float = 1e-6) -> Array:
    """Gradient of `f` at `x` (any shape) by central differences with steps `step` * max(1, abs(x))."""
    at: Array = np.array(x, dtype=np.float64)
    gradient = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        h = step * max(1.0, abs(float(at[index])))
        up, down = at.copy(), at.copy()
        up[index] += h
        down[index] -= h
        gradient[index] = (f(up) - f(down)) / (up[index] - down[index])
    return gradient


# 1. Spectral mixtures: kernel, Gram, likelihood, prediction of one Gaussian process a mixture


def kernel(mixture: Mixture, lag: ArrayLike, phase: str = "joint") -> float:
    """k(t) = sum_j w_j exp(-2 pi^2 sum_d s_jd^2 t_d^2) cos(2 pi sum_d m_jd t_d).

    ``phase="per_axis"``: a product over d of cosines in place of the cosine of the sum.
    """
    weights, means, scales = _floats(mixture)
    lag = np.atleast_1d(np.asarray(lag, dtype=np.float64))
    total = 0.0
    for w, m, s in zip(weights, means, scales, strict=True):
        total += w * _decay(s, lag) * _wave(m, lag, phase)
    return total


def gram(
    mixtures: Batch,
    X: ArrayLike,
    Y: ArrayLike | None = None,
    *,
    noise_variance: Any = 0.0,
    phase: str = "joint",
) -> Array:
    """Gram matrices (B, N, M); Y=None: with `noise_variance`, as in `noise_table`, on the diagonal."""
    left = _points(X)
    right = left if Y is None else _points(Y)
    K = np.zeros((len(mixtures), len(left), len(right)))
    for b, mixture in enumerate(mixtures):
        for i, x in enumerate(left):
            for j, y in enumerate(right):
                K[b, i, j] = kernel(mixture, x - y, phase)
    if Y is None:
        noise = noise_table(noise_variance, len(mixtures), len(left))
        for b in range(len(mixtures)):
            for i in range(len(left)):
                K[b, i, i] += noise[b, i]
    return K


def noise_table(noise_variance: Any, B: int, N: int) -> Array:
    """Scalar, (B,), (1, N) or (B, N) noise variances as (B, N): a 1-D array is one number a mixture."""
    noise = np.asarray(noise_variance, dtype=np.float64)
    return np.array(np.broadcast_to(noise[:, None] if noise.ndim == 1 else noise, (B, N)))


def products(left: ArrayLike | None, right: ArrayLike | None) -> Any:
    """Inner products of the rows of two bases (N, q) and (M, q): what a trend adds to a covariance (N, M)."""
    if left is None or right is None:
        return 0.0
    left, right = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    return np.array([[sum(a * b for a, b in zip(u, v, strict=True)) for v in right] for u in left])


def log_likelihood(
    mixtures: Batch,
    X: ArrayLike,
    y: ArrayLike,
    noise_variance: Any,
    phase: str = "joint",
    basis: ArrayLike | None = None,
) -> Array:
    """L = -1/2 y' C^-1 y - sum log diag chol(C) - N/2 log 2 pi, shape (B,)."""
    y = np.asarray(y, dtype=np.float64)
    values = np.zeros(len(mixtures))
    for b, K in enumerate(gram(mixtures, X, noise_variance=noise_variance, phase=phase)):
        C = K + products(basis, basis)
        values[b] = normal_log_density(y, np.zeros(len(y)), C)
    return values


def log_likelihood_gradient(
    mixtures: Batch,
    X: ArrayLike,
    y: ArrayLike,
    noise_variance: Any,
    phase: str = "joint",
    basis: ArrayLike | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Gradient of each L in its weights (J,), means (J, D), scales (J, D) and in each point's noise (B, N).

    Sum the last over the points where the noise is one number a mixture.
    """
    points, y = _points(X), np.asarray(y, dtype=np.float64)
    covariances = gram(mixtures, X, noise_variance=noise_variance, phase=phase) + products(basis, basis)
    d_weights, d_means, d_scales = [], [], []
    d_noise = np.zeros((len(mixtures), len(points)))
    for b, mixture in enumerate(mixtures):
        inverse = np.linalg.inv(covariances[b])
        alpha = np.linalg.solve(covariances[b], y)
        G = 0.5 * (np.outer(alpha, alpha) - inverse)
        d_noise[b] = np.diag(G)
        for w, m, s in zip(*_floats(mixture), strict=True):
            gw, gm, gs = 0.0, np.zeros(len(m)), np.zeros(len(m))
            for i, x in enumerate(points):
                for j, x2 in enumerate(points):
                    t = x - x2
                    value = _decay(s, t) * _wave(m, t, phase)
                    gw += G[i, j] * value
                    for d in range(len(m)):
                        gm[d] += G[i, j] * w * _decay(s, t) * _wave_slope(m, t, d, phase)
                        gs[d] += G[i, j] * w * value * (-4.0 * math.pi**2 * s[d] * t[d] ** 2)
            d_weights.append(gw)
            d_means.append(gm)
            d_scales.append(gs)
    return np.array(d_weights), np.array(d_means), np.array(d_scales), d_noise


def predict_gp(
    mixtures: Batch,
    X: ArrayLike,
    y: ArrayLike,
    noise_variance: Any,
    X_new: ArrayLike,
    *,
    observed: bool = False,
    phase: str = "joint",
    basis: ArrayLike | None = None,
    basis_new: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """Means (B, M) and covariances (B, M, M) at `X_new`; `observed` adds one noise variance a mixture."""
    y = np.asarray(y, dtype=np.float64)
    C = gram(mixtures, X, noise_variance=noise_variance, phase=phase) + products(basis, basis)
    cross = gram(mixtures, X, X_new, phase=phase) + products(basis, basis_new)
    prior = gram(mixtures, X_new, phase=phase) + products(basis_new, basis_new)
    noise = noise_table(noise_variance, len(mixtures), len(y))
    means, covariances = np.zeros(cross.shape[::2]), np.zeros(prior.shape)
    for b in range(len(mixtures)):
        means[b] = cross[b].T @ np.linalg.solve(C[b], y)
        half = np.linalg.solve(np.linalg.cholesky(C[b]), cross[b])
        covariances[b] = prior[b] - half.T @ half
        if observed:
            covariances[b] += noise[b, 0] * np.eye(len(covariances[b]))
    return means, covariances


def normal_log_density(y: Array, mean: Array, covariance: Array) -> float:
    """log N(y; mean, covariance)."""
    lower = np.linalg.cholesky(covariance)
    half = np.linalg.solve(lower, y - mean)
    log_diagonal = sum(math.log(lower[i, i]) for i in range(len(lower)))
    return -0.5 * float(half @ half) - log_diagonal - 0.5 * len(lower) * math.log(2.0 * math.pi)


def _decay(s: Array, t: Array) -> float:
    return math.exp(-2.0 * math.pi**2 * sum(s[d] ** 2 * t[d] ** 2 for d in range(len(t))))


def _wave(m: Array, t: Array, phase: str) -> float:
    if phase == "joint":
        return math.cos(2.0 * math.pi * sum(m[d] * t[d] for d in range(len(t))))
    return math.prod(math.cos(2.0 * math.pi * m[d] * t[d]) for d in range(len(t)))


def _wave_slope(m: Array, t: Array, d: int, phase: str) -> float:
    """Derivative of `_wave` in m_d."""
    if phase == "joint":
        return -2.0 * math.pi * t[d] * math.sin(2.0 * math.pi * sum(m[e] * t[e] for e in range(len(t))))
    others = math.prod(math.cos(2.0 * math.pi * m[e] * t[e]) for e in range(len(t)) if e != d)
    return -2.0 * math.pi * t[d] * math.sin(2.0 * math.pi * m[d] * t[d]) * others


def _points(X: ArrayLike) -> Array:
    points = np.asarray(X, dtype=np.float64)
    return points[:, None] if points.ndim == 1 else points


def _floats(mixture: Mixture) -> tuple[Array, Array, Array]:
    weights, means, scales = (np.asarray(a, dtype=np.float64) for a in mixture)
    if means.ndim == 1:
        means, scales = means[:, None], scales[:, None]
    return weights, means, scales


# 2. Distances between mixtures


def energy_distance(a: Batch, b: Batch | None = None, **metric: Any) -> Array:
    """E (B_a, B_b) = sum w w' |p - q| - 1/2 sum w w |p - p| - 1/2 sum w' w' |q - q|, clamped at 0."""
    return _table(_energy, a, b, **metric)


def energy_distance_vjp(a: Batch, b: Batch | None, cotangent: ArrayLike, **metric: Any) -> tuple[Array, Array, Array]:
    """Gradient in the arrays of `a` of sum(cotangent * E(a, b)); b=None: through both slots of E(a, a).

    That of the formula: the clamp at 0 is against rounding and has no part in it.
    """
    return _pull_back(_energy_gradient, a, b, cotangent, **metric)


def gaussian_mmd2(a: Batch, b: Batch | None = None, *, bandwidth: float, **metric: Any) -> Array:
    """MMD^2 (B_a, B_b) of the spectral densities under exp(-|x - y|^2 / (2 bandwidth^2))."""
    return _table(_gaussian, a, b, bandwidth=bandwidth, **metric)


def gaussian_mmd2_vjp(
    a: Batch, b: Batch | None, cotangent: ArrayLike, *, bandwidth: float, **metric: Any
) -> tuple[Array, Array, Array]:
    """Gradient in the arrays of `a` of sum(cotangent * MMD^2(a, b)); b=None: through both slots."""
    return _pull_back(_gaussian_gradient, a, b, cotangent, bandwidth=bandwidth, **metric)


def _atoms(mixture: Mixture, reflect: bool, frequency_scale: Any, scale_scale: Any) -> list[Atom]:
    """Atoms (m / c, s / c') of mass w, or with `reflect` of mass w / 2 at both signs of the mean."""
    weights, means, scales = _floats(mixture)
    c, c2 = (1.0 if v is None else np.asarray(v, dtype=np.float64) for v in (frequency_scale, scale_scale))
    signs = (1.0, -1.0) if reflect else (1.0,)
    return [
        (weights[j] / len(signs), sign * means[j] / c, scales[j] / c2, j, sign)
        for j in range(len(weights))
        for sign in signs
    ]


def _gap(p: Atom, q: Atom) -> float:
    return math.hypot(*(p[1] - q[1]), *(p[2] - q[2]))


def _size(p: Atom) -> float:
    return math.hypot(*p[1], *p[2])


def _energy(
    a: Mixture,
    b: Mixture,
    *,
    reflect: bool = False,
    frequency_scale: Any = None,
    scale_scale: Any = None,
    mass_correction: bool = False,
) -> float:
    p = _atoms(a, reflect, frequency_scale, scale_scale)
    q = _atoms(b, reflect, frequency_scale, scale_scale)
    cross = sum(x[0] * y[0] * _gap(x, y) for x in p for y in q)
    self_a = sum(x[0] * y[0] * _gap(x, y) for x in p for y in p)
    self_b = sum(x[0] * y[0] * _gap(x, y) for x in q for y in q)
    value = cross - 0.5 * self_a - 0.5 * self_b
    if mass_correction:
        mass_gap = sum(x[0] for x in p) - sum(y[0] for y in q)
        value += mass_gap * (sum(x[0] * _size(x) for x in p) - sum(y[0] * _size(y) for y in q))
    return max(value, 0.0)


def _energy_gradient(
    a: Mixture,
    b: Mixture,
    *,
    reflect: bool = False,
    frequency_scale: Any = None,
    scale_scale: Any = None,
    mass_correction: bool = False,
) -> tuple[Array, Array, Array]:
    """0 where the value is clamped at 0."""
    p = _atoms(a, reflect, frequency_scale, scale_scale)
    q = _atoms(b, reflect, frequency_scale, scale_scale)
    weights, means, scales = (np.zeros_like(x) for x in _floats(a))
    metric = {"reflect": reflect, "frequency_scale": frequency_scale, "scale_scale": scale_scale}
    if _energy(a, b, mass_correction=mass_correction, **metric) == 0.0:
        return weights, means, scales
    c, c2 = (1.0 if v is None else np.asarray(v, dtype=np.float64) for v in (frequency_scale, scale_scale))
    mass_gap = sum(x[0] for x in p) - sum(y[0] for y in q)
    moment_gap = sum(x[0] * _size(x) for x in p) - sum(y[0] * _size(y) for y in q)
    halves = 2.0 if reflect else 1.0
    for x in p:
        j, sign = x[3], x[4]
        by_mass = 0.0
        by_mean, by_scale = np.zeros(means.shape[1]), np.zeros(means.shape[1])
        for others, factor in ((q, 1.0), (p, -1.0)):
            for y in others:
                gap = _gap(x, y)
                by_mass += factor * y[0] * gap
                if gap > 0.0:
                    by_mean += factor * x[0] * y[0] * (x[1] - y[1]) / gap
                    by_scale += factor * x[0] * y[0] * (x[2] - y[2]) / gap
        if mass_correction:
            by_mass += moment_gap + mass_gap * _size(x)
            if _size(x) > 0.0:
                by_mean += mass_gap * x[0] * x[1] / _size(x)
                by_scale += mass_gap * x[0] * x[2] / _size(x)
        weights[j] += by_mass / halves
        means[j] += sign * by_mean / c
        scales[j] += by_scale / c2
    return weights, means, scales


def _overlap(x: Atom, y: Atom, bandwidth: float) -> float:
    value = 1.0
    for m, m2, s, s2 in zip(x[1], y[1], x[2], y[2], strict=True):
        spread = s * s + s2 * s2 + bandwidth**2
        value *= bandwidth / math.sqrt(spread) * math.exp(-((m - m2) ** 2) / (2.0 * spread))
    return value


def _gaussian(
    a: Mixture,
    b: Mixture,
    *,
    bandwidth: float,
    reflect: bool = False,
    frequency_scale: Any = None,
    scale_scale: Any = None,
) -> float:
    p = _atoms(a, reflect, frequency_scale, scale_scale)
    q = _atoms(b, reflect, frequency_scale, scale_scale)
    terms = ((p, p, 1.0), (p, q, -2.0), (q, q, 1.0))
    value = sum(f * x[0] * y[0] * _overlap(x, y, bandwidth) for s, t, f in terms for x in s for y in t)
    return max(value, 0.0)


def _gaussian_gradient(
    a: Mixture,
    b: Mixture,
    *,
    bandwidth: float,
    reflect: bool = False,
    frequency_scale: Any = None,
    scale_scale: Any = None,
) -> tuple[Array, Array, Array]:
    """0 where the value is clamped at 0."""
    p = _atoms(a, reflect, frequency_scale, scale_scale)
    q = _atoms(b, reflect, frequency_scale, scale_scale)
    weights, means, scales = (np.zeros_like(x) for x in _floats(a))
    metric = {"reflect": reflect, "frequency_scale": frequency_scale, "scale_scale": scale_scale}
    if _gaussian(a, b, bandwidth=bandwidth, **metric) == 0.0:
        return weights, means, scales
    c, c2 = (1.0 if v is None else np.asarray(v, dtype=np.float64) for v in (frequency_scale, scale_scale))
    halves = 2.0 if reflect else 1.0
    for x in p:
        j, sign = x[3], x[4]
        for others, factor in ((p, 2.0), (q, -2.0)):
            for y in others:
                value = factor * y[0] * _overlap(x, y, bandwidth)
                spread = x[2] ** 2 + y[2] ** 2 + bandwidth**2
                gap = x[1] - y[1]
                weights[j] += value / halves
                means[j] += sign * x[0] * value * (-gap / spread) / c
                scales[j] += x[0] * value * (-x[2] / spread + x[2] * gap**2 / spread**2) / c2
    return weights, means, scales


def _table(pair: Callable[..., float], a: Batch, b: Batch | None, **options: Any) -> Array:
    others = a if b is None else b
    values = np.zeros((len(a), len(others)))
    for i, x in enumerate(a):
        for j, y in enumerate(others):
            values[i, j] = 0.0 if b is None and i == j else pair(x, y, **options)
    return values


def _pull_back(
    pair_gradient: Callable[..., tuple[Array, Array, Array]],
    a: Batch,
    b: Batch | None,
    cotangent: ArrayLike,
    **options: Any,
) -> tuple[Array, Array, Array]:
    slopes: Array = np.asarray(cotangent, dtype=np.float64)
    if b is None:  # the gradient in the second slot is the one in the first, transposed
        b, slopes = a, slopes + slopes.T
    parts: list[list[Array]] = [[], [], []]
    for i, x in enumerate(a):
        total = [np.zeros_like(array) for array in _floats(x)]
        for j, y in enumerate(b):
            for k, array in enumerate(pair_gradient(x, y, **options)):
                total[k] += slopes[i, j] * array
        for part, array in zip(parts, total, strict=True):
            part.append(array)
    return np.concatenate(parts[0]), np.concatenate(parts[1]), np.concatenate(parts[2])


# 3. Hyper-kernel


def squared_distance(
    a: Batch,
    b: Batch | None = None,
    *,
    noise_weight: float = 0.0,
    mass_weight: float = 0.0,
    noise_a: ArrayLike | None = None,
    noise_b: ArrayLike | None = None,
    **metric: Any,
) -> Array:
    """E plus ``noise_weight * |log s2_a - log s2_b|`` plus ``mass_weight * |log M_a - log M_b|``.

    With mass_weight > 0, E is that of the weights divided by their mass M.
    """
    left, right = (a, a if b is None else b)
    if mass_weight > 0.0:
        scaled = [[(w / np.sum(w), m, s) for w, m, s in map(_floats, side)] for side in (left, right)]
        distance = energy_distance(scaled[0], None if b is None else scaled[1], **metric)
    else:
        distance = energy_distance(a, b, **metric)
    noise_b = noise_a if b is None else noise_b
    for i, x in enumerate(left):
        for j, y in enumerate(right):
            if mass_weight > 0.0:
                distance[i, j] += mass_weight * abs(math.log(np.sum(x[0])) - math.log(np.sum(y[0])))
            if noise_weight > 0.0:
                gap = math.log(np.asarray(noise_a)[i]) - math.log(np.asarray(noise_b)[j])
                distance[i, j] += noise_weight * abs(gap)
    return distance


def covariance_from_distance(E: ArrayLike, *, outputscale: float, lengthscale: float, power: int = 2) -> Array:
    """outputscale * exp(-d^power / lengthscale^2), d = sqrt(E); `outputscale` is lambda^2."""
    return np.vectorize(lambda e: outputscale * math.exp(-(math.sqrt(e) ** power) / lengthscale**2), otypes=[float])(E)


def hyperkernel(
    a: Batch, b: Batch | None = None, *, outputscale: float, lengthscale: float, power: int = 2, **metric: Any
) -> Array:
    """Covariance (B_a, B_b) between mixtures; keywords of `squared_distance`."""
    E = squared_distance(a, b, **metric)
    return covariance_from_distance(E, outputscale=outputscale, lengthscale=lengthscale, power=power)


def hyperkernel_vjp(
    a: Batch,
    b: Batch | None,
    cotangent: ArrayLike,
    *,
    outputscale: float,
    lengthscale: float,
    power: int = 2,
    noise_weight: float = 0.0,
    mass_weight: float = 0.0,
    noise_a: ArrayLike | None = None,
    noise_b: ArrayLike | None = None,
    **metric: Any,
) -> tuple[Array, Array, Array, Array]:
    """Gradient of sum(cotangent * K(a, b)) in the weights, means, scales and noise variances (B_a,) of `a`.

    b=None: through both slots. Where two mixtures coincide the gradient of d (power 1) is taken as 0.
    """
    E = squared_distance(
        a, b, noise_weight=noise_weight, mass_weight=mass_weight, noise_a=noise_a, noise_b=noise_b, **metric
    )
    slopes: Array = np.array(cotangent, dtype=np.float64)
    if b is None:
        b, noise_b, slopes = a, noise_a, slopes + slopes.T
    parts: list[list[Array]] = [[], [], []]
    noise = np.zeros(len(a))
    for i, (w, m, s) in enumerate(map(_floats, a)):
        total = [np.zeros_like(w), np.zeros_like(m), np.zeros_like(s)]
        M = float(np.sum(w))
        for j, other in enumerate(map(_floats, b)):
            value = outputscale * math.exp(-(math.sqrt(E[i, j]) ** power) / lengthscale**2)
            if power == 2:
                slope = -value / lengthscale**2
            else:
                slope = -value / (2.0 * lengthscale**2 * math.sqrt(E[i, j])) if E[i, j] > 0.0 else 0.0
            slope *= float(slopes[i, j])
            if mass_weight > 0.0:
                M2 = float(np.sum(other[0]))
                gw, gm, gs = _energy_gradient((w / M, m, s), (other[0] / M2, *other[1:]), **metric)
                gw = (gw - np.sum(w * gw) / M) / M + mass_weight * np.sign(math.log(M) - math.log(M2)) / M
            else:
                gw, gm, gs = _energy_gradient((w, m, s), other, **metric)
            for array, gradient in zip(total, (gw, gm, gs), strict=True):
                array += slope * gradient
            if noise_weight > 0.0:
                s2, s2_other = float(np.asarray(noise_a)[i]), float(np.asarray(noise_b)[j])
                noise[i] += slope * noise_weight * np.sign(math.log(s2) - math.log(s2_other)) / s2
        for part, array in zip(parts, total, strict=True):
            part.append(array)
    return np.concatenate(parts[0]), np.concatenate(parts[1]), np.concatenate(parts[2]), noise


# 4. Prior densities, and 9. latent coordinates


def dirichlet_log_density(x: ArrayLike, concentration: ArrayLike) -> float:
    """log Dirichlet(x; concentration), with 0 log 0 = 0; Lebesgue in the first n - 1 coordinates."""
    x = np.asarray(x, dtype=np.float64)
    alpha = np.broadcast_to(np.asarray(concentration, dtype=np.float64), x.shape)
    value = math.lgamma(float(np.sum(alpha)))
    for xi, ai in zip(x, alpha, strict=True):
        value -= math.lgamma(ai)
        if ai != 1.0:
            value += (ai - 1.0) * (math.log(xi) if xi > 0.0 else -math.inf)
    return value


def prior_log_density(
    mixture: Mixture,
    *,
    size_probability: float,
    concentration: float,
    mean_sd: ArrayLike,
    log_scale_mean: ArrayLike,
    log_scale_sd: ArrayLike,
    fold: bool,
) -> float:
    """log p(n) + log p(w, m, s), Lebesgue in (w_1..w_{n-1}, m, s), components labelled; `fold`: m >= 0.

    Means are N(0, mean_sd^2), log scales N(log_scale_mean, log_scale_sd^2); the three are scalar or (D,).
    """
    weights, means, scales = _floats(mixture)
    sd, nu, tau = (np.broadcast_to(v, means.shape[1:]) for v in (mean_sd, log_scale_mean, log_scale_sd))
    value = math.log(size_probability) + dirichlet_log_density(weights, concentration)
    for m, s in zip(means, scales, strict=True):
        for d in range(len(m)):
            value += _log_normal_density(m[d], 0.0, sd[d])
            if fold:
                value += math.log(2.0) if m[d] >= 0.0 else -math.inf
            value += _log_normal_density(math.log(s[d]), nu[d], tau[d]) - math.log(s[d])
    return value


def from_latent(
    xi: ArrayLike,
    n: int,
    *,
    concentration: float,
    mean_sd: ArrayLike,
    log_scale_mean: ArrayLike,
    log_scale_sd: ArrayLike,
    fold: bool,
) -> Mixture:
    """T(xi), a mixture of mass 1; xi is ``[n-1 weights][n*D means][n*D log scales]``, standard normal."""
    xi = np.asarray(xi, dtype=np.float64)
    D = (len(xi) - (n - 1)) // (2 * n)
    sd, nu, tau = (np.broadcast_to(v, (D,)) for v in (mean_sd, log_scale_mean, log_scale_sd))
    weights, left = np.zeros(n), 1.0
    for j in range(1, n):
        v = float(special.betaincinv(concentration, (n - j) * concentration, special.ndtr(xi[j - 1])))
        weights[j - 1] = v * left
        left *= 1.0 - v
    weights[n - 1] = left
    means, scales = np.zeros((n, D)), np.zeros((n, D))
    for j in range(n):
        for d in range(D):
            u = xi[n - 1 + j * D + d]
            means[j, d] = sd[d] * (-special.ndtri(0.5 * special.ndtr(-u)) if fold else u)
            scales[j, d] = math.exp(nu[d] + tau[d] * xi[n - 1 + n * D + j * D + d])
    return weights, means, scales


def _log_normal_density(x: float, mean: float, sd: float) -> float:
    return -0.5 * ((x - mean) / sd) ** 2 - math.log(sd) - 0.5 * math.log(2.0 * math.pi)


# 5. WSABI-L surrogate


@dataclass(frozen=True)
class Surrogate:
    """z = sqrt(2 (f - epsilon)) at h mixtures; `options`: keywords of `hyperkernel`, but no noise."""

    mixtures: Batch
    noise: ArrayLike | None
    z: Array
    epsilon: float
    log_offset: float
    K: Array
    jitter: float
    options: dict[str, Any]

    def covariance_to(self, g: Batch, noise: ArrayLike | None = None) -> Array:
        """kappa(Theta, g), (h, b)."""
        return hyperkernel(self.mixtures, g, noise_a=self.noise, noise_b=noise, **self.options)


def warp(log_values: ArrayLike, epsilon_factor: float = 0.8) -> tuple[Array, float, float]:
    """z = sqrt(2 (f - epsilon)), epsilon = factor * min f, offset = max log f; f = e^(log f - offset)."""
    logs = np.asarray(log_values, dtype=np.float64)
    offset = float(np.max(logs))
    f = np.array([math.exp(v - offset) for v in logs])
    epsilon = epsilon_factor * float(np.min(f))
    return np.sqrt(2.0 * (f - epsilon)), epsilon, offset


def fit_surrogate(
    mixtures: Batch,
    log_values: ArrayLike,
    *,
    outputscale: float,
    lengthscale: float,
    power: int = 2,
    jitter: float = 1e-6,
    epsilon_factor: float = 0.8,
    noise: ArrayLike | None = None,
    **metric: Any,
) -> Surrogate:
    """Surrogate with given hyperparameters; K = kappa(Theta, Theta) + jitter * lambda^2 * I."""
    z, epsilon, offset = warp(log_values, epsilon_factor)
    options = {"outputscale": outputscale, "lengthscale": lengthscale, "power": power, **metric}
    K = hyperkernel(mixtures, noise_a=noise, **options) + jitter * outputscale * np.eye(len(mixtures))
    return Surrogate(mixtures, noise, z, epsilon, offset, K, jitter, options)


def surrogate_mean(s: Surrogate, g: Batch, noise: ArrayLike | None = None) -> Array:
    """mu(g) = kappa(g, Theta) K^-1 z, shape (b,)."""
    return s.covariance_to(g, noise).T @ np.linalg.solve(s.K, s.z)


def surrogate_covariance(s: Surrogate, g: Batch, noise: ArrayLike | None = None) -> Array:
    """kappa(g, g) + jitter * lambda^2 * I - kappa(g, Theta) K^-1 kappa(Theta, g), shape (b, b)."""
    cross = s.covariance_to(g, noise)
    prior = hyperkernel(g, noise_a=noise, **s.options)
    return prior + s.jitter * s.options["outputscale"] * np.eye(len(g)) - cross.T @ np.linalg.solve(s.K, cross)


def profile_outputscale(
    E: ArrayLike, z: ArrayLike, *, lengthscale: float, power: int = 2, jitter: float = 1e-6
) -> float:
    """lambda^2 = z' K~^-1 z / h, of largest likelihood; K~ = K / lambda^2 from squared distances E (h, h)."""
    z = np.asarray(z, dtype=np.float64)
    unit = covariance_from_distance(E, outputscale=1.0, lengthscale=lengthscale, power=power) + jitter * np.eye(len(z))
    return float(z @ np.linalg.solve(unit, z)) / len(z)


def profile_log_likelihood(
    E: ArrayLike, z: ArrayLike, *, lengthscale: float, power: int = 2, jitter: float = 1e-6
) -> float:
    """log N(z; 0, K) at that lambda^2."""
    z = np.asarray(z, dtype=np.float64)
    scale = profile_outputscale(E, z, lengthscale=lengthscale, power=power, jitter=jitter)
    K = covariance_from_distance(E, outputscale=scale, lengthscale=lengthscale, power=power)
    return normal_log_density(z, np.zeros(len(z)), K + jitter * scale * np.eye(len(z)))


# 6. Evidence


@dataclass(frozen=True)
class Evidence:
    """E[Z] and V[Z] in units of e^offset, Q (h, h), u (m,), and what section 7 needs."""

    mean: float
    variance: float
    log_evidence: float
    log_evidence_sd: float
    weights: Array
    mean_by_size: dict[int, float]
    nodes: Batch
    nodes_noise: ArrayLike | None
    u: Array


def integrate(s: Surrogate, nodes: Batch, node_weights: ArrayLike, noise: ArrayLike | None = None) -> Evidence:
    """Integral over nodes S of weights v; `mean_by_size` holds sum_{s in n} v_s (epsilon + mu_s^2 / 2)."""
    v = np.asarray(node_weights, dtype=np.float64)
    cross = s.covariance_to(nodes, noise)
    A = cross @ np.diag(v) @ cross.T
    Q = np.linalg.solve(s.K, np.linalg.solve(s.K, A).T)
    mu = surrogate_mean(s, nodes, noise)
    u = v * mu
    by_size: dict[int, float] = {}
    for node, weight, value in zip(nodes, v, mu, strict=True):
        n = len(np.asarray(node[0]))
        by_size[n] = by_size.get(n, 0.0) + float(weight * (s.epsilon + 0.5 * value**2))
    mean = s.epsilon + 0.5 * float(s.z @ Q @ s.z)
    projected = cross @ u
    variance = float(u @ hyperkernel(nodes, noise_a=noise, **s.options) @ u)
    variance -= float(projected @ np.linalg.solve(s.K, projected))
    sd = math.sqrt(math.log1p(max(variance, 0.0) / mean**2))
    return Evidence(mean, variance, math.log(mean) + s.log_offset, sd, Q, by_size, nodes, noise, u)


# 7. Acquisition


def covariance_with_integral(s: Surrogate, e: Evidence, g: Batch, noise: ArrayLike | None = None) -> Array:
    """c(B) = kappa(B, S) u - kappa(B, Theta) K^-1 kappa(Theta, S) u, shape (b,)."""
    direct = hyperkernel(g, e.nodes, noise_a=noise, noise_b=e.nodes_noise, **s.options) @ e.u
    projected = s.covariance_to(e.nodes, e.nodes_noise) @ e.u
    return direct - s.covariance_to(g, noise).T @ np.linalg.solve(s.K, projected)


def mutual_information(
    s: Surrogate, e: Evidence, candidates: Batch, batch: bool = False, noise: ArrayLike | None = None
) -> Any:
    """-1/2 log(1 - c' Sigma^-1 c / V[Z]) of the whole batch, or of each candidate alone, shape (b,)."""
    c = covariance_with_integral(s, e, candidates, noise)
    Sigma = surrogate_covariance(s, candidates, noise)
    if batch:
        return -0.5 * math.log1p(-float(c @ np.linalg.solve(Sigma, c)) / e.variance)
    return np.array([-0.5 * math.log1p(-(c[i] ** 2) / (Sigma[i, i] * e.variance)) for i in range(len(c))])


def uncertainty(s: Surrogate, candidates: Batch, noise: ArrayLike | None = None) -> Array:
    """mu^2 Sigma of each candidate, shape (b,)."""
    return surrogate_mean(s, candidates, noise) ** 2 * np.diag(surrogate_covariance(s, candidates, noise))


# 8. Prediction


@dataclass(frozen=True)
class PointwiseMixture:
    """At each of M points a signed mixture of h*h Gaussians: shares (h*h, M), adding up to 1, and moments."""

    shares: Array
    means: Array
    variances: Array

    @property
    def mean(self) -> Array:
        return np.sum(self.shares * self.means, axis=0)

    @property
    def variance(self) -> Array:
        return np.sum(self.shares * (self.variances + (self.means - self.mean) ** 2), axis=0)

    def log_density(self, y: ArrayLike) -> Array:
        gap = np.asarray(y, dtype=np.float64) - self.means
        density = np.exp(-0.5 * gap**2 / self.variances) / np.sqrt(2.0 * math.pi * self.variances)
        return np.log(np.sum(self.shares * density, axis=0))

    def cdf(self, y: ArrayLike) -> Array:
        standard = (np.asarray(y, dtype=np.float64) - self.means) / np.sqrt(self.variances)
        return np.sum(self.shares * special.ndtr(standard), axis=0)


def combine_gaussians(pair_weights: ArrayLike, means: ArrayLike, variances: ArrayLike) -> PointwiseMixture:
    """sum_ij W_ij sqrt(N_i N_j) / sum_ij W_ij s_ij at each point alone; `means` and `variances` (h, M)."""
    W, mu, C = (np.asarray(a, dtype=np.float64) for a in (pair_weights, means, variances))
    h, M = mu.shape
    shares, centres, spreads = (np.zeros((h * h, M)) for _ in range(3))
    for p in range(M):
        for i in range(h):
            for j in range(h):
                total = C[i, p] + C[j, p]
                s = math.sqrt(2.0 * math.sqrt(C[i, p] * C[j, p]) / total)
                s *= math.exp(-((mu[i, p] - mu[j, p]) ** 2) / (4.0 * total))
                shares[i * h + j, p] = W[i, j] * s
                centres[i * h + j, p] = (mu[i, p] * C[j, p] + mu[j, p] * C[i, p]) / total
                spreads[i * h + j, p] = 2.0 * C[i, p] * C[j, p] / total
    return PointwiseMixture(shares / np.sum(shares, axis=0), centres, spreads)


def combine_gaussians_joint(
    pair_weights: ArrayLike, means: ArrayLike, covariances: ArrayLike, y: ArrayLike
) -> tuple[float, Array]:
    """Log density of `y` (M,) under the joint predictive, and its mean (M,); `covariances` (h, M, M)."""
    W, mu, C, y = (np.asarray(a, dtype=np.float64) for a in (pair_weights, means, covariances, y))
    h = len(mu)
    log_s, log_n, centres = np.zeros((h, h)), np.zeros((h, h)), np.zeros((h, h, len(y)))
    for i in range(h):
        for j in range(h):
            gap = mu[i] - mu[j]
            half = 0.25 * (_log_determinant(C[i]) + _log_determinant(C[j]))
            log_s[i, j] = half - 0.5 * _log_determinant(0.5 * (C[i] + C[j]))
            log_s[i, j] -= 0.25 * float(gap @ np.linalg.solve(C[i] + C[j], gap))
            precisions = np.linalg.inv(C[i]) + np.linalg.inv(C[j])
            V = 2.0 * np.linalg.inv(precisions)
            centres[i, j] = 0.5 * V @ (np.linalg.solve(C[i], mu[i]) + np.linalg.solve(C[j], mu[j]))
            log_n[i, j] = log_s[i, j] + normal_log_density(y, centres[i, j], V)
    shares = W * np.exp(log_s)
    shares /= np.sum(shares)
    top = float(np.max(log_n))
    numerator = float(np.sum(W * np.exp(log_n - top)))
    return math.log(numerator / float(np.sum(W * np.exp(log_s)))) + top, np.einsum("ij,ijp->p", shares, centres)


def _log_determinant(C: Array) -> float:
    lower = np.linalg.cholesky(C)
    return 2.0 * sum(math.log(lower[i, i]) for i in range(len(lower)))
