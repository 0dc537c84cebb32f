"""Mixtures as plain tuples, and differences instead of gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Mixture = tuple[Any, Any, Any]
Batch = Sequence[Mixture]


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


def floats(mixture: Mixture) -> tuple[Array, Array, Array]:
    weights, means, scales = (np.asarray(a, dtype=np.float64) for a in mixture)
    if means.ndim == 1:
        means, scales = means[:, None], scales[:, None]
    return weights, means, scales


def points_of(X: ArrayLike) -> Array:
    points = np.asarray(X, dtype=np.float64)
    return points[:, None] if points.ndim == 1 else points
