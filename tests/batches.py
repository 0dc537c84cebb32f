"""Batches of mixtures for tests, by their numbers or random."""

from __future__ import annotations

from typing import Any

import numpy as np

from maskerade_fast.model.gmm import GMMBatch


def one(weights: Any, means: Any, scales: Any) -> GMMBatch:
    """A batch of one mixture."""
    return GMMBatch.from_list([(weights, means, scales)])


def waves(rng: np.random.Generator, sizes: list[int], spacing: float = 1.0) -> GMMBatch:
    """Mixtures in one dimension whose lengthscales are some spacings of a grid long."""
    return GMMBatch.from_list(
        [
            (
                rng.dirichlet(np.ones(n)) * 1.3,
                rng.uniform(0.0, 0.4, (n, 1)) / spacing,
                rng.uniform(0.01, 0.1, (n, 1)) / spacing,
            )
            for n in sizes
        ]
    )


def random_batch(
    rng: np.random.Generator, B: int, D: int, sizes: tuple[int, int] = (1, 5), unit: bool = True, noise: bool = False
) -> GMMBatch:
    """`B` mixtures of `sizes` components, of mass 1 or, without `unit`, of any; `noise`: with noise variances."""
    counts = rng.integers(sizes[0], sizes[1] + 1, B)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    weights = rng.random(offsets[-1]) + 0.01
    if unit:
        weights /= np.repeat(np.add.reduceat(weights, offsets[:-1]), counts)
    means, scales = rng.normal(size=(offsets[-1], D)), rng.random((offsets[-1], D))
    return GMMBatch(offsets, weights, means, scales, np.exp(rng.normal(size=B)) if noise else None)


def as_type(g: GMMBatch, dtype: Any) -> GMMBatch:
    """`g` with arrays of another floating type."""
    arrays = (g.weights, g.means, g.scales, g.noise_variances)
    return GMMBatch(g.offsets, *(None if a is None else np.asarray(a).astype(dtype) for a in arrays))


def ragged(rng: np.random.Generator, sizes: list[int], n_dims: int) -> GMMBatch:
    """Mixtures of these sizes and of mass 1.3, with means of every sign and scales from smooth to rough."""
    return GMMBatch.from_list(
        [
            (rng.dirichlet(np.ones(n)) * 1.3, rng.normal(size=(n, n_dims)) * 3, rng.lognormal(size=(n, n_dims)))
            for n in sizes
        ]
    )
