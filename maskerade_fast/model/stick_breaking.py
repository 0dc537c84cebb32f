"""Weights by stick-breaking, one standard normal coordinate a stick (mathematics.md section 9).

Component j takes the fraction v_j = BetaQuantile(α, b_j; Φ(ξ_j)) of what the ones before it left, with b_j = α times
the sticks left behind it; for α = 1 in closed form, log(1 - v_j) = log Φ(-ξ_j)/b_j. All arrays are tables (B, n_max)
padded by sticks that leave nothing, or of any shape where no stick depends on another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from .._checks import Array

TINY = float(np.finfo(np.float64).tiny)
LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_LOG_LEADING = -39.0  # below e^-39 the first term of the incomplete beta series is exact to rounding


@dataclass(frozen=True, eq=False)
class Sticks:
    """v, log v (None for α = 1), log(1 - v) and the log of what is left before each break; all (B, n_max)."""

    fraction: Array
    log_fraction: Array | None
    log_rest: Array
    log_before: Array


def break_sticks(xi: Array, sticks_left: Array, is_stick: Array, concentration: float) -> Sticks:
    """Fractions v broken off; v = 1 and log(1 - v) = -inf for the last component and the padding."""
    if concentration == 1.0:
        log_rest = np.where(is_stick, special.log_ndtr(-xi) / sticks_left, -np.inf)
        fraction, log_fraction = -np.expm1(log_rest), None
    else:
        log_fraction, log_rest = np.zeros(xi.shape), np.full(xi.shape, -np.inf)
        a, b = concentration, concentration * sticks_left[is_stick]
        log_fraction[is_stick], log_rest[is_stick] = _log_beta_quantile(a, b, xi[is_stick])
        fraction = np.exp(log_fraction)
    log_before = np.zeros(xi.shape)
    np.cumsum(log_rest[:, :-1], axis=1, out=log_before[:, 1:])
    return Sticks(fraction, log_fraction, log_rest, log_before)


def log_slopes(xi: Array, sticks: Sticks, sticks_left: Array, is_stick: Array, concentration: float) -> Array:
    """log(-d log(1 - v)/dξ), (B, n_max); 0 in the padding."""
    log_phi = -0.5 * xi * xi - LOG_SQRT_2PI
    if sticks.log_fraction is None:
        return np.where(is_stick, log_phi - special.log_ndtr(-xi) - np.log(sticks_left), 0.0)
    a, b = concentration, concentration * sticks_left
    log_rest = np.where(is_stick, sticks.log_rest, 0.0)
    slopes = log_phi - (a - 1.0) * sticks.log_fraction - b * log_rest + special.betaln(a, b)
    return np.where(is_stick, slopes, 0.0)


def stick_coordinates(weights: Array, later: Array, sticks_left: Array, concentration: float) -> Array:
    """Inverse of the weights' part of `break_sticks`, from weights of any mass and the sums of those behind them."""
    whole = np.maximum(weights + later, TINY)
    fraction = np.minimum(weights / whole, 1.0)
    rest = later / whole
    if concentration == 1.0:
        log_rest = np.where(fraction < 0.5, np.log1p(-np.minimum(fraction, 0.5)), safe_log(rest))
        log_upper = np.minimum(log_rest * sticks_left, 0.0)  # log Φ(-ξ)
        small = log_upper > -math.log(2.0)
        xi: Array = np.where(small, special.ndtri(-np.expm1(log_upper)), -special.ndtri_exp(log_upper))
        return xi
    a, b = concentration, concentration * sticks_left
    return _beta_coordinates(a, b, fraction, rest)


def _log_beta_quantile(a: float, b: Array, xi: Array) -> tuple[Array, Array]:
    """log v and log(1 - v) for v = BetaQuantile(a, b; Φ(ξ)), without underflow at small a or b.

    Near 0 the incomplete beta function is v^a/(a B(a, b)), near 1 its complement is (1 - v)^b/(b B(a, b)).
    """
    log_beta = special.betaln(a, b)
    log_v_leading = (special.log_ndtr(xi) + math.log(a) + log_beta) / a
    log_rest_leading = (special.log_ndtr(-xi) + np.log(b) + log_beta) / b
    v = np.clip(special.betaincinv(a, b, special.ndtr(xi)), TINY, 1.0)
    rest = np.clip(special.betaincinv(b, a, special.ndtr(-xi)), TINY, 1.0)
    log_v = np.where(v < 0.5, np.log(v), np.log1p(-np.minimum(rest, 0.5)))
    log_rest = np.where(v < 0.5, np.log1p(-np.minimum(v, 0.5)), np.log(rest))
    near_0, near_1 = log_v_leading < _LOG_LEADING, log_rest_leading < _LOG_LEADING
    log_v = np.where(near_0, log_v_leading, np.where(near_1, 0.0, log_v))
    log_rest = np.where(near_1, log_rest_leading, np.where(near_0, 0.0, log_rest))
    return log_v, log_rest


def _beta_coordinates(a: float, b: Array, v: Array, rest: Array) -> Array:
    """ξ with v = BetaQuantile(a, b; Φ(ξ)), from v and 1 - v."""
    log_beta = special.betaln(a, b)
    log_v, log_rest = safe_log(v), safe_log(rest)
    lower, upper = special.betainc(a, b, v), special.betainc(b, a, rest)
    xi = np.where(lower < 0.5, special.ndtri(lower), -special.ndtri(upper))
    log_lower = np.minimum(a * log_v - math.log(a) - log_beta, 0.0)
    log_upper = np.minimum(b * log_rest - np.log(b) - log_beta, 0.0)
    xi = np.where(log_rest < _LOG_LEADING, -special.ndtri_exp(log_upper), xi)
    result: Array = np.where(log_v < _LOG_LEADING, special.ndtri_exp(log_lower), xi)
    return result


def safe_log(values: Array) -> Array:
    """Logarithm; for 0 that of the smallest normal number."""
    return np.log(np.maximum(values, TINY))
