"""Points, basis functions and noise as the compiled loops take them."""

from __future__ import annotations

import numpy as np

from ..._checks import Array
from ._arguments import Points
from ._loop_arrays import loop_array


def least_values(X: Array) -> Array:
    """The least value of each axis of points (N, D), from which phases are measured: no order of rows changes it."""
    least: Array = X.min(axis=0)
    return least


def points_by_axis(X: Array, origin: Array) -> Points:
    """Points (N, D) by axis: themselves (D, N), and their exact differences from `origin` as high + low."""
    x = loop_array(X.T)
    reference = np.asarray(origin, dtype=np.float64)[:, None]
    high = x - reference
    back = high - x  # Knuth's two-sum: high + low = x - reference without error
    low = (x - (high - back)) - (reference + back)
    return Points(x, high, loop_array(low))


def basis_by_function(basis: Array | None) -> Array:
    """Basis functions at N points (N, q) as (q, N); none as (0, 0)."""
    return np.empty((0, 0)) if basis is None else loop_array(basis.T)


def noise_with_basis(noise: Array, basis: Array) -> Array:
    """The noise table with what the basis (q, N) adds to the diagonal."""
    return loop_array(noise + np.sum(basis * basis, axis=0)) if len(basis) else loop_array(noise)
