"""Gaussian process prediction for every mixture of a batch."""

from __future__ import annotations

from typing import Any

from .._checks import Array, is_cupy, one_of
from .._containers import built, container
from .._memory import require_room
from ..backends import array_namespace, get_backend, on_their_device
from ..model.gmm import GMMBatch
from ..model.grid import on_grid
from .gram import PHASES, checked_points, is_by_point
from .likelihood import checked_basis, checked_problem


@container
class GPPrediction:
    """Predictions of B mixtures at M test points.

    Attributes
    ----------
    mean : array, shape (B, M)
        Units of y.
    variance : array, shape (B, M)
        Units of y squared; the diagonal of `covariance` where there is one.
    covariance : array, shape (B, M, M), or None
    info : array of int32, shape (B,)
        0; the first k whose pivot is bad, as in `LogLikelihood`, with all numbers of that mixture NaN; or -1
        where a variance came out negative beyond the bound of its rounding error, with that variance NaN.
    """

    mean: Array
    variance: Array
    covariance: Array | None
    info: Array


@on_their_device
def predict_gp(
    g: GMMBatch,
    X: Any,
    y: Any,
    noise_variance: Any,
    X_new: Any,
    *,
    basis: Any = None,
    basis_new: Any = None,
    covariance: str = "diagonal",
    observed: bool = False,
    phase: str = "joint",
    jitter: float = 0.0,
    max_bytes: int | None = None,
    structure: str = "auto",
) -> GPPrediction:
    """Posterior mean and covariance at `X_new` of the process y ~ N(0, K(X, X) + noise), for every mixture of
    `g`.

    Parameters
    ----------
    g : GMMBatch of B mixtures in D dimensions
    X, X_new : array, shape (N, D) and (M, D); also 1-D or a number for D = 1; or data frames
        Integers beyond 2^53 keep all their digits: an offset is taken off before they are rounded.
    y : array, shape (N,)
    noise_variance : scalar, (B,), (1, N), (B, N) or None
        Units of y squared; a 1-D array is one number per mixture. None: ``g.noise_variances``.
    basis, basis_new : array, shape (N, q) and (M, q), optional
        Functions of a trend at X and at X_new, as in `log_likelihood`; the trend is part of what is predicted.
    covariance : {"diagonal", "full"}
        Variances alone, in O(N) memory a test point, or all covariances too.
    observed : bool
        Add the noise variance to the diagonal: predictions of observations, not of the latent function.
    phase, jitter, max_bytes, structure
        As in `log_likelihood`; the results come on top of `max_bytes`. Only X need be a grid, not `X_new`.

    Returns
    -------
    GPPrediction
        float32 if g, X, y and X_new are, computed in float64.

    Raises
    ------
    ValueError
        As `log_likelihood`; for noise by point with ``observed=True``, since the noise at a test point is
        unknown; for one basis without the other.
    TypeError
        For arrays that are not real numbers, or that live on different devices.
    MemoryError
        If one matrix and one block of test points do not fit in `max_bytes`, or all covariances in what is free.

    Warns
    -----
    CollapsedInputsWarning
        If X is float32 and so far from the origin that different inputs have become equal.

    Notes
    -----
    Variances that rounding makes slightly negative become 0: down to -8 N eps max diag(C) (1 + sum |C^-1
    k|)^2, the backward error of the factorisation carried to the variance. Lower ones are reported by `info`.
    Oracle: ``tests/oracle::predict_gp``.
    """
    full = one_of(covariance, "covariance", ("diagonal", "full")) == "full"
    (X, origins, _), y, noise, limit = checked_problem(g, X, y, noise_variance, phase, jitter, max_bytes)
    X_new = checked_points(X_new, "X_new", g, allow_empty=True, origins=origins).X
    if observed and is_by_point(noise_variance):
        raise ValueError("noise_variance: one number a point with observed=True, expected a scalar or (B,)")
    if (basis is None) != (basis_new is None):
        present, missing = ("basis", "basis_new") if basis_new is None else ("basis_new", "basis")
        raise ValueError(f"{missing}: None beside {present}, expected both or neither")
    if basis is not None:
        basis, basis_new = checked_basis(basis, "basis", len(X)), checked_basis(basis_new, "basis_new", len(X_new))
        if basis.shape[1] != basis_new.shape[1]:
            raise ValueError(f"basis_new: {basis_new.shape[1]} columns, expected {basis.shape[1]} as basis has")
    xb = get_backend(g.weights, X, y, noise, X_new, basis, basis_new)
    if full and not is_cupy(X):
        require_room((len(g), len(X_new), len(X_new)), "covariances")
    batch = (g.offsets, g.weights, g.means, g.scales)
    options = {"full": full, "jitter": float(jitter), "max_bytes": limit}
    grid = on_grid(X, y, noise, structure, basis)
    if grid is not None:
        options |= {"basis": grid[2], "basis_new": basis_new}
        mean, variance, matrix, info = xb.toeplitz_predict_gp(*batch, *grid[:2], noise, X_new, **options)
    else:
        options |= {"basis": basis, "basis_new": basis_new, "per_axis": phase == "per_axis"}
        mean, variance, matrix, info = xb.predict_gp(*batch, X, y, noise, X_new, **options)
    if observed:
        variance += noise
        if matrix is not None:
            diagonal = array_namespace(matrix).arange(matrix.shape[1])
            matrix[:, diagonal, diagonal] += noise
    return built(GPPrediction, mean, variance, matrix, info)


def warm_up(g: GMMBatch, X: Array, y: Array) -> None:
    """Compile the loops of this module: see `run.warm_up`."""
    for kind in ("diagonal", "full"):
        for phase in PHASES:
            predict_gp(g, X, y, None, X[:2], phase=phase, structure="dense", covariance=kind)
        if g.n_dims == 1:
            predict_gp(g, X, y, None, X[:2], structure="toeplitz", covariance=kind)
