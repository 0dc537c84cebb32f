"""Batches of mixtures for tests, given or random."""

from __future__ import annotations

from typing import Any

import numpy as np

from maskerade_fast.model.gmm import GMMBatch


def one(weights: Any, means: Any, scales: Any) -> GMMBatch:
    """A batch of one mixture."""
    return GMMBatch.from_list([(weights, means, scales)])


def ragged(rng: np.random.Generator, sizes: list[int], n_dims: int) -> GMMBatch:
    """Mixtures of the given sizes and mass 1.3, with means of every sign and scales from smooth to rough."""
    return GMMBatch.from_list(
        [
            (rng.dirichlet(np.ones(n)) * 1.3, rng.normal(size=(n, n_dims)) * 3, rng.lognormal(size=(n, n_dims)))
            for n in sizes
        ]
    )
