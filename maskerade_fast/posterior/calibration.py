"""How well a posterior predicts each of its own observations from the others, and intervals that take it into account.

A Gaussian noise model gives residuals with heavy tails a variance that suits the tails, so that intervals of 90 % hold
what they should and those of 50 % too much. Leave-one-out predictions show by how much, without a held-out part.

With a = K^-1 y and q = diag(K^-1), the observation i is predicted from the others with mean y_i - a_i/q_i and variance
1/q_i (Rasmussen and Williams, section 5.4.2). Kernels are weighted by their posterior without it, which divides their
weights by the density they give it.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg, special

from .._checks import Array
from .._memory import require_room
from ..backends import to_host
from ..model.data import RegressionData
from ..model.gmm import GMMBatch
from ..ops.gram import host_factor

_PRIOR_OBSERVATIONS = 20.0  # observations' worth of trust in the model, so that few data change little
_LARGEST_LEVEL = 1.0 - 1e-12


def left_out_probabilities(g: GMMBatch, weights: Array, data: RegressionData) -> Array:
    """The predictive distribution function of each observation, given the others, at that observation.

    Parameters
    ----------
    g : GMMBatch of B mixtures with noise variances, where the data live
    weights : array, shape (B,)
        Posterior probabilities of the mixtures.
    data : RegressionData

    Returns
    -------
    array, shape (N,)
        Uniform between 0 and 1 if the model is right. Empty if no covariance matrix has a factor.

    Notes
    -----
    O(B N^3) time and 32 N^2 bytes, on the host.

    Raises
    ------
    MemoryError
        Where these are not free.
    """
    require_room((4, len(data.y), len(data.y)), "working memory for leave-one-out predictions")
    y = to_host(data.y).astype(np.float64)
    logs, scores = [], []
    for b in np.flatnonzero(weights > 0.0):
        factor = host_factor(g[int(b) : int(b) + 1], data.X, basis=data.basis)
        if factor is None:
            continue
        inverse, _ = linalg.lapack.dtrtri(factor, lower=1)
        inverse = np.tril(inverse)
        precision = np.einsum("ij,ij->j", inverse, inverse)
        score = (inverse.T @ (inverse @ y)) / np.sqrt(precision)
        scores.append(score)
        logs.append(np.log(weights[b]) + 0.5 * score * score - 0.5 * np.log(precision))
    if not scores:
        return np.empty(0)
    shares = special.softmax(np.array(logs), axis=0)
    probabilities: Array = (shares * special.ndtr(np.array(scores))).sum(axis=0)
    return probabilities


def calibrated_level(probabilities: Array, level: float) -> float:
    """Which central interval holds the share `level` of observations, as `left_out_probabilities` has them.

    The distribution of |2u - 1| is their own, mixed with 20 observations' worth of the uniform distribution that a
    right model gives.
    """
    levels = np.sort(np.abs(2.0 * probabilities - 1.0))
    count = len(levels)
    places = np.concatenate([[0.0], np.repeat(levels, 2), [1.0]])
    below = np.concatenate([[0], np.arange(2 * count) // 2 + np.arange(2 * count) % 2, [count]])
    shares = (below + _PRIOR_OBSERVATIONS * places) / (count + _PRIOR_OBSERVATIONS)
    return min(float(np.interp(level, shares, places)), _LARGEST_LEVEL)
