"""Leave-one-out predictions of the observations, and intervals that are calibrated by them.

A Gaussian noise model gives residuals with heavy tails the variance of the tails: intervals of 90 % then hold the right
share of observations, those of 50 % too many. Leave-one-out predictions measure by how much, without held-out data.

With a = K^-1 y and q = diag(K^-1), the observation i is predicted from the others with mean y_i - a_i/q_i and variance
1/q_i (Rasmussen and Williams, section 5.4.2). The weight of a kernel in this prediction is its posterior weight without
the observation: its weight divided by the density that it gives the observation.
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

_PRIOR_OBSERVATIONS = 20.0  # weight of the model's own level, in observations: few data change little
_LARGEST_LEVEL = 1.0 - 1e-12


def left_out_probabilities(g: GMMBatch, weights: Array, data: RegressionData) -> Array:
    """Distribution function of each observation's prediction from the others, at that observation.

    Parameters
    ----------
    g : GMMBatch of B mixtures with noise variances, where the data live
    weights : array, shape (B,)
        Posterior probabilities of the mixtures.
    data : RegressionData

    Returns
    -------
    array, shape (N,)
        Uniform between 0 and 1 if the model is right; empty if no covariance matrix has a Cholesky factor.

    Notes
    -----
    O(B N^3) time and 32 N^2 bytes, on the host.

    Raises
    ------
    MemoryError
        If so much memory is not free.
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
    """Level of the model's central interval that holds the share `level` of the observations.

    The distribution of |2u - 1| is that of `probabilities`, mixed with the uniform distribution of a right model with
    the weight of 20 observations.
    """
    levels = np.sort(np.abs(2.0 * probabilities - 1.0))
    count = len(levels)
    places = np.concatenate([[0.0], np.repeat(levels, 2), [1.0]])
    below = np.concatenate([[0], np.arange(2 * count) // 2 + np.arange(2 * count) % 2, [count]])
    shares = (below + _PRIOR_OBSERVATIONS * places) / (count + _PRIOR_OBSERVATIONS)
    return min(float(np.interp(level, shares, places)), _LARGEST_LEVEL)
