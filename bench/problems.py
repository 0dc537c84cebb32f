"""Named problem sizes and the random data of them, the same in every run."""

from __future__ import annotations

from typing import Any

import numpy as np

from maskerade_fast import GMMBatch

PAIRS = [(1000, 1000, 1), (1000, 1000, 5)]  # (B_a, B_b, D): matrices of distances
CANDIDATES = [(1, 4600, 1), (20, 4600, 1), (20, 4600, 5)]  # (B_a, B_b, D): acquisition against observations and nodes
STREAMED = [(20_000, 1)]  # (B, D): products of a square hyper-kernel with a vector
MAX_COMPONENTS = 5


def random_mixtures(B: int, D: int, *, seed: int = 0, max_components: int = MAX_COMPONENTS) -> GMMBatch:
    """B mixtures of 1 to `max_components` components and mass 1."""
    rng = np.random.default_rng([seed, B, D])
    counts = rng.integers(1, max_components + 1, B)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    weights = rng.random(offsets[-1])
    weights /= np.repeat(np.add.reduceat(weights, offsets[:-1]), counts)
    return GMMBatch(offsets, weights, np.abs(rng.normal(size=(offsets[-1], D))), rng.random((offsets[-1], D)))


def padded(g: GMMBatch, n: int = MAX_COMPONENTS) -> tuple[Any, Any]:
    """Weights (B, n) and points (B, n, 2 D), short mixtures filled up with weight 0: what NumPy can broadcast over."""
    weights, points = np.zeros((len(g), n)), np.zeros((len(g), n, 2 * g.n_dims))
    column = np.arange(len(g.weights)) - g.offsets[:-1][g.owner]
    weights[g.owner, column] = g.weights
    points[g.owner, column] = np.concatenate([g.means, g.scales], axis=1)
    return weights, points


def component_pairs(a: GMMBatch, b: GMMBatch) -> int:
    """Pairs of components, each of which costs a square root at least."""
    return len(a.weights) * len(b.weights)
