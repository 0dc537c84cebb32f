"""Section 1: the prediction of one Gaussian process per mixture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oracle.grams import gram, noise_table, products
from oracle.mixtures import Array, Batch


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
    """Means (B, M) and covariances (B, M, M) at `X_new`; `observed` adds one noise variance per mixture."""
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
