"""Square-root warp of WSABI: non-negative values f as half squares of a Gaussian process.

With ``f = exp(log f - offset)``, ``offset = max log f`` and ``epsilon = factor * min f``, the surrogate models
``z = sqrt(2 (f - epsilon))`` (mathematics.md section 5; Gunter et al. 2014). A new maximum moves `offset` and with
it every stored value, so the warp is always made anew from the logarithms and never patched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._checks import Array, float_array


@dataclass(frozen=True, eq=False)
class Warp:
    """Warped values `z` (h,), with the `log_offset` and `epsilon` that made them."""

    z: Array
    log_offset: float
    epsilon: float


def square_root_warp(log_values: Array, epsilon_factor: float) -> Warp:
    """Warp `log_values` (h,); minus infinity stands for f = 0.

    Raises
    ------
    ValueError
        If a value is NaN or plus infinity, if all are minus infinity, or if there are none.
    """
    log_values = float_array(log_values, "log_values", ndim=1, dtype=np.float64, allow="-inf")
    if len(log_values) == 0 or log_values.max() == -np.inf:
        raise ValueError("log_values: expected at least one finite value, got none")
    log_offset = float(log_values.max())
    f = np.exp(log_values - log_offset)
    epsilon = epsilon_factor * float(f.min())
    return Warp(np.sqrt(2.0 * (f - epsilon)), log_offset, epsilon)
