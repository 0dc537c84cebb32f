"""Selection of the mixtures that matter: those that carry most of the probability, or of a prediction."""

from __future__ import annotations

import numpy as np

from .._checks import Array

_PRUNED_MASS = 1e-4  # of the predictive mixture


def heaviest(probabilities: Array, share: float) -> Array:
    """Indices of the fewest entries that carry `share` of the probability, the largest first."""
    order = np.argsort(-probabilities, kind="stable")
    return order[: int(np.searchsorted(np.cumsum(probabilities[order]), share)) + 1]


def predictive(pair_weights: Array) -> Array:
    """Indices of the mixtures that predictions use: all but those that together have at most 1e-4 of the mass.

    Two Gaussian densities overlap by at most 1, so the pairs of a mixture carry at most the sum of the absolute values
    of their weights.
    """
    mass = 2.0 * np.abs(pair_weights).sum(axis=1) - np.abs(np.diag(pair_weights))
    order = np.argsort(mass, kind="stable")
    total = float(pair_weights.sum())
    dropped = int(np.searchsorted(np.cumsum(mass[order]), _PRUNED_MASS * total, side="right"))
    return np.sort(order[min(dropped, len(order) - 1) :])
