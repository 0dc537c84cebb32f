"""Numbers of twice the digits of a float64, as sums of two: differences, products, and lags of a regular grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._checks import Array


def lags_of(ends: Array, count: int) -> Array:
    """Lags of a grid of `count` points from its first point, as sums of two rows of float64 numbers, (2, count).

    `ends` are its first and its last point. A lag's error is about 1e-32 of it: that of a rounded lag would stand on a
    whole diagonal of the covariance, where the errors of single entries average out.
    """
    places = np.arange(count, dtype=np.float64)
    intervals = np.float64(max(count - 1, 1))
    span, span_rest = difference(np.float64(ends[-1]), np.float64(ends[0]))
    whole, rest = product(span, places)
    lags = whole / intervals
    back, error = product(lags, intervals)
    return np.stack([lags, ((whole - back) - error + rest + span_rest * places) / intervals])


def difference(a: Any, b: Any) -> tuple[Any, Any]:
    """a - b rounded, and the rest that rounding takes off (Knuth)."""
    rounded = a - b
    back = rounded - a
    return rounded, (a - (rounded - back)) - (b + back)


def product(a: Any, b: Any) -> tuple[Any, Any]:
    """a b rounded, and the rest that rounding takes off (Dekker)."""
    rounded = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return rounded, ((a_high * b_high - rounded) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: Any) -> tuple[Any, Any]:
    """Two numbers of at most 26 bits with the sum a (Veltkamp)."""
    scaled = 134217729.0 * a  # 2**27 + 1
    high = scaled - (scaled - a)
    return high, a - high
