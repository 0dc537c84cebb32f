"""Basis functions of a trend, whose coefficients are marginalised analytically (mathematics.md section 10).

A trend is a sum of a few functions of x whose coefficients are independent Gaussians. Marginalised, they add V V' to
the covariance, V the functions times the prior standard deviations of their coefficients. The prior is fixed, so
gradients need nothing new.

The priors speak of x in [0, 1] and targets of mean square 1, and are no wider than that: the evidence falls by the
logarithm of every width. A constant has sd 1, as much as all of the targets. Lines are centred, so that they say
nothing of the mean, and have sd sqrt(12 / D) in each of D dimensions: over the unit cube they explain, on average, a
variance of 1 together.
"""

from __future__ import annotations

import math

from .._checks import Array
from ..backends import array_namespace

TRENDS = ("none", "constant", "linear")


def trend_basis(trend: str, X: Array, scale: float) -> Array | None:
    """V, shape (M, 1) for "constant" and (M, 1 + D) for "linear"; None for "none".

    Parameters
    ----------
    trend : {"none", "constant", "linear"}
    X : array, shape (M, D)
        In units in which the data fill [0, 1]; points outside are allowed.
    scale : float
        Root mean square of the targets.
    """
    if trend == "none":
        return None
    xp = array_namespace(X)
    n_dims = X.shape[1]
    columns = [xp.full((len(X), 1), scale)]
    if trend == "linear":
        columns.append(scale * math.sqrt(12.0 / n_dims) * (X - 0.5))
    basis: Array = xp.concatenate(columns, axis=1)
    return basis
