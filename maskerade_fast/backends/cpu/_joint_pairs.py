"""Compiled sums over pairs of Gaussians over several points together, one Cholesky factorisation a pair."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._checks import Array
from ._jit import inner, loop


@loop
def fill_joint_log_densities(
    start: int, stop: int, means: Array, covariances: Array, y: Array, log_dets: Array, log_densities: Array
) -> None:
    """log|C_i| and log N_i(y); NaN where C_i is not positive definite."""
    for i in range(start, stop):
        residual = y - means[i]
        log_dets[i] = np.nan
        try:
            factor = np.linalg.cholesky(covariances[i])
            square, log_det = _whiten(factor, residual)
            log_dets[i] = 2.0 * log_det
            log_densities[i] = -0.5 * square - log_det - 0.9189385332046727 * len(y)  # log(2 pi) / 2
        except Exception:
            log_densities[i] = np.nan


@loop
def fill_joint_rows(
    start: int,
    stop: int,
    pair_weights: Array,
    means: Array,
    covariances: Array,
    log_dets: Array,
    totals: Array,
    sums: Array,
) -> None:
    """Pairs (i, j <= i) for rows i: with S = C_i + C_j and d = mu_i - mu_j, m_ij = mu_j + C_j S^-1 d and
    log s_ij = (log|C_i| + log|C_j|) / 4 - log|S / 2| / 2 - d^T S^-1 d / 4.
    """
    n = means.shape[1]
    for i in range(start, stop):
        totals[i] = pair_weights[i, i]
        for a in range(n):
            sums[i, a] = pair_weights[i, i] * means[i, a]
        for j in range(i):
            if pair_weights[i, j] == 0.0:
                continue
            factor = np.linalg.cholesky(covariances[i] + covariances[j])
            u = means[i] - means[j]
            square, log_det = _whiten(factor, u)
            exponent = 0.25 * (log_dets[i] + log_dets[j] - square) - log_det + 0.34657359027997264 * n  # log(2) / 2
            weight = 2.0 * pair_weights[i, j] * math.exp(exponent)
            for a in range(n - 1, -1, -1):
                u[a] /= factor[a, a]
                for b in range(a):
                    u[b] -= factor[a, b] * u[a]
            totals[i] += weight
            for a in range(n):
                mean = means[j, a]
                for b in range(n):
                    mean += covariances[j, a, b] * u[b]
                sums[i, a] += weight * mean


@inner
def _whiten(factor: Array, residual: Array) -> Any:
    """Replace `residual` by L^-1 residual; returns its squared norm and log|L|."""
    square = 0.0
    log_det = 0.0
    for a in range(len(residual)):
        rest = residual[a]
        for b in range(a):
            rest -= factor[a, b] * residual[b]
        residual[a] = rest / factor[a, a]
        square += residual[a] * residual[a]
        log_det += math.log(factor[a, a])
    return square, log_det
