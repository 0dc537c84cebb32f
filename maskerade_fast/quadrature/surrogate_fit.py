"""Fit of a surrogate's hyperparameters by the marginal likelihood of its warped values, and the factor of K.

``K = kappa + jitter * outputscale * I``; all arrays are on the host. The output scale has a closed form, so the fit of
the length is a one-dimensional search.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple, NoReturn

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.linalg.lapack import dpocon
from scipy.optimize import minimize_scalar

from .._checks import Array, callers_level
from ..backends import single_threaded_blas
from ..errors import PrecisionWarning
from ..ops.hyperkernel import HyperKernel

# Range of d**q / l**2 of the median pair in which the length is searched. Beyond it the covariance of the observations
# is the identity, or a constant, to the digits that the jitter leaves.
_LENGTH_RANGE = (1e-2, 1e2)
_LENGTH_GRID = 13
# From this condition number on, solves keep fewer than three digits
_LOST = 1e13


class Hyperparameters(NamedTuple):
    """Those that maximise the marginal likelihood of z, with the factor of K and factor^-1 z."""

    outputscale: float
    lengthscale: float
    factor: Array
    whitened: Array
    at_bound: bool


@single_threaded_blas()
def fit_hyperparameters(
    distances: Array, z: Array, power: int, jitter: float, outputscale: float | None, lengthscale: float | None
) -> Hyperparameters:
    """Fit the hyperparameters that are None, and factor K."""
    at_bound = False
    if lengthscale is None:
        lengthscale, at_bound = _best_length(distances, z, power, jitter, outputscale)
    profile = _profile(distances, z, power, jitter, outputscale, lengthscale)
    factor = profile.factor * np.sqrt(profile.outputscale)
    warn_of_lost_digits(factor, jitter)
    return Hyperparameters(profile.outputscale, lengthscale, factor, whiten(factor, z), at_bound)


class _Profile(NamedTuple):
    """Log marginal likelihood of z at one length, up to a constant, with the best lambda^2 or the one that is fixed."""

    value: float
    factor: Array  # of K / lambda^2
    outputscale: float


def _profile(
    distances: Array, z: Array, power: int, jitter: float, outputscale: float | None, lengthscale: float
) -> _Profile:
    correlation = HyperKernel(1.0, lengthscale, power).of_distance(distances)
    correlation[np.diag_indices_from(correlation)] += jitter
    factor = checked_cholesky(correlation)
    whitened = whiten(factor, z)
    square, h = float(whitened @ whitened), len(z)
    if outputscale is None:
        outputscale = max(square / h, float(np.finfo(float).tiny))
    value = -0.5 * square / outputscale - np.log(np.diag(factor)).sum() - 0.5 * h * np.log(outputscale)
    return _Profile(float(value), factor, outputscale)


def _best_length(
    distances: Array, z: Array, power: int, jitter: float, outputscale: float | None
) -> tuple[float, bool]:
    """Length that maximises the profiled likelihood between bounds around the median distance; True if at a bound."""
    off_diagonal = distances[np.tril_indices(len(z), -1)]
    spread = off_diagonal[off_diagonal > 0.0] ** (0.5 * power)
    if len(spread) == 0:
        return 1.0, False

    def loss(log_square: float) -> float:
        try:
            return -_profile(distances, z, power, jitter, outputscale, float(np.exp(0.5 * log_square))).value
        except ValueError:
            return np.inf

    low, high = np.log(float(np.median(spread))) + np.log(_LENGTH_RANGE)
    grid = np.linspace(low, high, _LENGTH_GRID)
    losses = np.array([loss(x) for x in grid])
    best = int(np.argmin(losses))
    if not np.isfinite(losses[best]):
        _raise_indefinite()
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    with np.errstate(invalid="ignore"):  # it subtracts the infinite losses of indefinite matrices
        refined = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-3})
    log_square = float(refined.x) if refined.fun < losses[best] else float(grid[best])
    at_bound = min(log_square - low, high - log_square) < 2e-3
    return float(np.exp(0.5 * log_square)), at_bound


def warn_of_lost_digits(factor: Array, jitter: float) -> None:
    """Warn (PrecisionWarning) where solves with K keep hardly a correct digit.

    The jitter bounds the condition number by about h / jitter: with the default jitter nothing is computed here.
    """
    if len(factor) < _LOST * jitter:
        return
    norm = float(np.abs(factor @ factor.T).sum(axis=0).max())
    reciprocal = float(dpocon(factor, norm, uplo="L")[0])
    if reciprocal * _LOST < 1.0:
        warnings.warn(
            "mixtures: the condition number of their hyper-kernel matrix is about "
            f"{1.0 / max(reciprocal, 1e-300):.0e}, which leaves hardly a correct digit of 16; some mixtures nearly "
            f"repeat others: raise `jitter` (now {jitter:g}) or leave them out",
            PrecisionWarning,
            stacklevel=callers_level(),
        )


def whiten(factor: Array, columns: Array) -> Array:
    """factor^-1 columns."""
    return np.asarray(solve_triangular(factor, columns, lower=True, check_finite=False))


def checked_cholesky(matrix: Array) -> Array:
    """Lower Cholesky factor; ValueError about the mixtures where there is none."""
    try:
        return np.asarray(cholesky(matrix, lower=True, check_finite=False))
    except LinAlgError:
        _raise_indefinite()


def _raise_indefinite() -> NoReturn:
    raise ValueError(
        "mixtures: their hyper-kernel matrix is not positive definite; raise `jitter`, or leave out those that repeat "
        "others"
    ) from None
