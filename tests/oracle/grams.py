"""Section 1: the kernel of a spectral mixture and its Gram matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oracle.mixtures import Array, Batch, Mixture, floats, points_of


def kernel(mixture: Mixture, lag: ArrayLike, phase: str = "joint") -> float:
    """k(t) = sum_j w_j exp(-2 pi^2 sum_d s_jd^2 t_d^2) cos(2 pi sum_d m_jd t_d).

    ``phase="per_axis"``: a product over d of cosines instead of the cosine of the sum.
    """
    weights, means, scales = floats(mixture)
    lag = np.atleast_1d(np.asarray(lag, dtype=np.float64))
    total = 0.0
    for w, m, s in zip(weights, means, scales, strict=True):
        total += w * decay(s, lag) * wave(m, lag, phase)
    return total


def gram(
    mixtures: Batch, X: ArrayLike, Y: ArrayLike | None = None, *, noise_variance: Any = 0.0, phase: str = "joint"
) -> Array:
    """Gram matrices (B, N, M); Y=None: with `noise_variance`, as in `noise_table`, on the diagonal."""
    left = points_of(X)
    right = left if Y is None else points_of(Y)
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
    """Scalar, (B,), (1, N) or (B, N) noise variances as (B, N): a 1-D array is one number per mixture."""
    noise = np.asarray(noise_variance, dtype=np.float64)
    return np.array(np.broadcast_to(noise[:, None] if noise.ndim == 1 else noise, (B, N)))


def products(left: ArrayLike | None, right: ArrayLike | None) -> Any:
    """Inner products of the rows of two bases (N, q) and (M, q): what a trend adds to a covariance (N, M)."""
    if left is None or right is None:
        return 0.0
    left, right = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    return np.array([[sum(a * b for a, b in zip(u, v, strict=True)) for v in right] for u in left])


def decay(s: Array, t: Array) -> float:
    return math.exp(-2.0 * math.pi**2 * sum(s[d] ** 2 * t[d] ** 2 for d in range(len(t))))


def wave(m: Array, t: Array, phase: str) -> float:
    if phase == "joint":
        return math.cos(2.0 * math.pi * sum(m[d] * t[d] for d in range(len(t))))
    return math.prod(math.cos(2.0 * math.pi * m[d] * t[d]) for d in range(len(t)))


def wave_slope(m: Array, t: Array, d: int, phase: str) -> float:
    """Derivative of `wave` in m_d."""
    if phase == "joint":
        return -2.0 * math.pi * t[d] * math.sin(2.0 * math.pi * sum(m[e] * t[e] for e in range(len(t))))
    others = math.prod(math.cos(2.0 * math.pi * m[e] * t[e]) for e in range(len(t)) if e != d)
    return -2.0 * math.pi * t[d] * math.sin(2.0 * math.pi * m[d] * t[d]) * others
