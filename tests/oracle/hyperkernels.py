"""Section 3: the hyper-kernel, a covariance between mixtures.

`squared_distance` and all that uses it take the keywords of `oracle.distances`, `noise_weight`, `mass_weight`, and the
noise variances of the mixtures in `noise_a` and `noise_b`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oracle.distances import energy_distance, energy_gradient
from oracle.mixtures import Array, Batch, floats


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
        scaled = [[(w / np.sum(w), m, s) for w, m, s in map(floats, side)] for side in (left, right)]
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

    b=None: through both arguments. Where two mixtures coincide the gradient of d (power 1) is taken as 0.
    """
    E = squared_distance(
        a, b, noise_weight=noise_weight, mass_weight=mass_weight, noise_a=noise_a, noise_b=noise_b, **metric
    )
    slopes: Array = np.array(cotangent, dtype=np.float64)
    if b is None:
        b, noise_b, slopes = a, noise_a, slopes + slopes.T
    parts: list[list[Array]] = [[], [], []]
    noise = np.zeros(len(a))
    for i, (w, m, s) in enumerate(map(floats, a)):
        total = [np.zeros_like(w), np.zeros_like(m), np.zeros_like(s)]
        M = float(np.sum(w))
        for j, other in enumerate(map(floats, b)):
            value = outputscale * math.exp(-(math.sqrt(E[i, j]) ** power) / lengthscale**2)
            if power == 2:
                slope = -value / lengthscale**2
            else:
                slope = -value / (2.0 * lengthscale**2 * math.sqrt(E[i, j])) if E[i, j] > 0.0 else 0.0
            slope *= float(slopes[i, j])
            if mass_weight > 0.0:
                M2 = float(np.sum(other[0]))
                gw, gm, gs = energy_gradient((w / M, m, s), (other[0] / M2, *other[1:]), **metric)
                gw = (gw - np.sum(w * gw) / M) / M + mass_weight * np.sign(math.log(M) - math.log(M2)) / M
            else:
                gw, gm, gs = energy_gradient((w, m, s), other, **metric)
            for array, gradient in zip(total, (gw, gm, gs), strict=True):
                array += slope * gradient
            if noise_weight > 0.0:
                s2, s2_other = float(np.asarray(noise_a)[i]), float(np.asarray(noise_b)[j])
                noise[i] += slope * noise_weight * np.sign(math.log(s2) - math.log(s2_other)) / s2
        for part, array in zip(parts, total, strict=True):
            part.append(array)
    return np.concatenate(parts[0]), np.concatenate(parts[1]), np.concatenate(parts[2]), noise
