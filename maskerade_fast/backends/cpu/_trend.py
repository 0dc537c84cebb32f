"""A trend's coefficients b ~ N(0, I), marginalised by least squares on whitened rows (mathematics.md section 10).

With C = L L', z = L^-1 y and W = L^-1 V, V the basis functions,

    y' (C + V V')^-1 y = min_b |z - W b|^2 + |b|^2,    log det (C + V V') = log det C + log det (I + W' W)

so Q R = [W; I] by Gram and Schmidt, each column twice, gives both and all that gradients and predictions need, without
a difference of large numbers: R' R = I + W' W, whose lower part of Q is R^-1. The targets go through the same steps as
one more column: what is left of them is z - W b, and -b below.
"""

from __future__ import annotations

import math

import numpy as np

from ..._checks import Array
from ._jit import inner, loop
from ._math import dot, fma


def targets_and_basis(y: Array, basis: Array) -> tuple[Array, Array]:
    """Targets less a first guess V b0 and the basis functions, (1 + q, N); and -b0, (q,).

    The guess is by least squares without regard to C. Any guess gives the same likelihoods and predictions in exact
    arithmetic; without one they would be small differences where the trend is most of the targets.
    """
    rows = np.vstack([y[None], basis.reshape(len(basis), len(y))])
    start = np.zeros(len(basis))
    if len(basis):
        below = np.zeros((1 + len(basis), len(basis)))
        take_out(rows.copy(), start, below)
        start = below[0].copy()
        for guess, function in zip(start, basis, strict=True):
            rows[0] += guess * function
    return rows, start


@inner
def project(row: int, column: int, white: Array, below: Array) -> None:
    """Take the unit column out of `row`, both with their parts below."""
    n, q = white.shape[1], below.shape[1]
    share = dot(white[column], white[row], n)
    for k in range(q):
        share = fma(below[column, k], below[row, k], share)
    for i in range(n):
        white[row, i] = fma(-share, white[column, i], white[row, i])
    for k in range(q):
        below[row, k] = fma(-share, below[column, k], below[row, k])


@loop
def take_out(white: Array, start: Array, below: Array) -> float:
    """Orthonormal columns in place of W, what they leave of z; returns half the quadratic form plus log det R.

    Rows of `white` (1 + q, N) are z and the columns of W, `start` (q,) minus the coefficients already taken out of the
    targets; `below` (1 + q, q) becomes -b, and the columns of R^-1.
    """
    rows, n = white.shape
    q = rows - 1
    half = 0.0
    for k in range(q):
        below[0, k] = start[k]
        for c in range(q):
            below[1 + k, c] = 1.0 if c == k else 0.0
    for k in range(1, rows):
        for _ in range(2):
            for j in range(1, k):
                project(k, j, white, below)
        norm = math.sqrt(dot(white[k], white[k], n) + dot(below[k], below[k], q))
        half += math.log(norm)
        for i in range(n):
            white[k, i] /= norm
        for c in range(q):
            below[k, c] /= norm
    for _ in range(2):
        for k in range(1, rows):
            project(0, k, white, below)
    square = dot(white[0], white[0], n) + dot(below[0], below[0], q)
    return half + 0.5 * square


@inner
def combine(start: Array, below: Array, rows: Array) -> None:
    """C^-1 times targets and V, the rows (1 + q, N), to (C + V V')^-1 y and C^-1 V R^-1.

    (C + V V')^-1 is C^-1 less the squares of the latter. `start` and `below` as in `take_out`.
    """
    q = below.shape[1]
    for k in range(q):
        for i in range(rows.shape[1]):
            rows[0, i] = fma(below[0, k] - start[k], rows[1 + k, i], rows[0, i])
    for i in range(rows.shape[1]):
        for k in range(q - 1, -1, -1):  # R^-1 is upper triangular: column k needs the columns up to it
            total = 0.0
            for c in range(k + 1):
                total = fma(below[1 + k, c], rows[1 + c, i], total)
            rows[1 + k, i] = total


@inner
def trend_left(column: int, white: Array, below: Array, basis_new: Array, row: Array, left: Array) -> float:
    """b' v at test point `column`, whose whitened covariances are `row`; `left` (q,) receives R^-T (v - W' row).

    Squares of `left` are what the trend adds to the variance.
    """
    q = below.shape[1]
    mean = 0.0
    for k in range(q):
        mean = fma(-below[0, k], basis_new[k, column], mean)
        value = -dot(white[1 + k], row, len(row))
        for c in range(q):
            value = fma(below[1 + k, c], basis_new[c, column], value)
        left[k] = value
    return mean
