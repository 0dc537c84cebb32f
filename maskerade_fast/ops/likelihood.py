"""Batched Gaussian log-likelihoods of spectral mixtures: y ~ N(0, K(X, X) + noise), mathematics.md section 1.

With a trend y ~ N(0, K(X, X) + V V' + noise), V its basis functions (section 10).
"""

from __future__ import annotations

from typing import Any

from .._checks import Array, check_finite, check_size, float_array, integer, non_negative, one_of, seen_by_host
from .._containers import built, container
from ..backends import array_namespace, get_backend, on_their_device
from ..model.gmm import GMMBatch, GMMGradient
from ..model.grid import on_grid
from .gram import PHASES, Points, checked_noise, checked_points, is_by_point, warn_if_collapsed

_SHARED_POINTS = (512, 2048)  # so many that CPU threads share one matrix, and then its factorisation


@container
class LogLikelihood:
    """Log-likelihoods of a batch of B mixtures.

    Attributes
    ----------
    value : array, shape (B,)
        Total natural log density; -inf where `info` is not 0.
    info : array of int32, shape (B,)
        0, or the first k (from 1) whose Cholesky pivot is at most N eps max diag(C), or not finite.
    jitter : array, shape (B,)
        What was added to the diagonal to repair a failed factorisation, units of y squared; 0 where there was
        none.
    grad : GMMGradient or None
        In weights (J,), means (J, D), scales (J, D) and noise_variance, (B,) or (B, N) as the noise is;
        NaN for the mixtures that failed.
    """

    value: Array
    info: Array
    jitter: Array
    grad: GMMGradient | None = None


@on_their_device
def log_likelihood(
    g: GMMBatch,
    X: Any,
    y: Any,
    noise_variance: Any = None,
    *,
    basis: Any = None,
    phase: str = "joint",
    jitter: float = 0.0,
    grad: bool = False,
    max_bytes: int | None = None,
    structure: str = "auto",
) -> LogLikelihood:
    """Log-likelihood of the data under every mixture of `g`, and its gradient.

    Parameters
    ----------
    g : GMMBatch of B mixtures in D dimensions
    X : array, shape (N, D); also (N,) or a number for D = 1; or a data frame
        Integers beyond 2^53 keep all their digits: an offset is taken off before they are rounded.
    y : array, shape (N,), or a number for one row
        Targets of a zero-mean process.
    noise_variance : scalar, (B,), (1, N) or (B, N), optional
        Units of y squared; a 1-D array is one number per mixture. None: ``g.noise_variances``.
    basis : array, shape (N, q), optional
        Functions of a trend at the rows of X, each times the prior standard deviation of its coefficient; units of y.
        The coefficients are marginalised: the covariance gains ``basis @ basis.T``. None: no trend.
    phase : {"joint", "per_axis"}
        As in `gram`.
    jitter : float
        Most that may be added to the diagonal, as a fraction of mean diag(C_b). Where a factorisation fails, and only
        there, 1e-4, 1e-2 and 1 times it are tried; the default tries none.
    grad : bool
        The gradient takes two to three times as long as the value.
    max_bytes : int, optional
        Bound on the working memory. Default: half of what is free. Smaller bounds mean fewer matrices at a
        time, not other results.
    structure : {"auto", "dense", "toeplitz"}
        On a regular 1-D grid in any order, with one noise variance a mixture, C is Toeplitz: "auto" then takes O(N^2)
        time and O(N) memory from 256 points on, "toeplitz" at any N and raises where C is not. The rule is in
        `grid`; both ways agree to rounding, about N eps times the condition number. With a `basis` the pivots that
        `info` speaks of are there those of the covariance without it, and wide priors cost no digits.

    Returns
    -------
    LogLikelihood
        float32 if g, X and y are, but computed in float64 throughout: casting costs little beside N^3, and
        single precision would lose the answer as soon as the noise is small.

    Raises
    ------
    ValueError
        If X has no rows, or its shape does not fit g, y or basis; for NaN or infinity; for noise that is negative,
        of another shape, or missing everywhere; for negative jitter; for ``structure="toeplitz"`` where C is
        not Toeplitz.
    TypeError
        For arrays that are not real numbers, or that live on different devices.
    MemoryError
        If one matrix does not fit in `max_bytes`.

    Warns
    -----
    CollapsedInputsWarning
        If X is float32 and so far from the origin that different inputs have become equal.

    Notes
    -----
    O(B N^3) time, O(B N^2) on a grid. Every mixture is computed alone in a fixed order: a batch gives the same bits
    as batches of one, for any number of threads and any `max_bytes`. Below 2048 points a matrix is factored by LAPACK
    on one thread, from there on by fixed tiles on all threads.
    Oracle: ``tests/oracle::log_likelihood``.
    """
    (X, *_), y, noise, limit = checked_problem(g, X, y, noise_variance, phase, jitter, max_bytes)
    basis = None if basis is None else checked_basis(basis, "basis", len(X))
    xb = get_backend(g.weights, X, y, noise, basis)
    options: dict[str, Any] = {"jitter": float(jitter), "grad": bool(grad), "max_bytes": limit}
    batch = (g.offsets, g.weights, g.means, g.scales)
    grid = on_grid(X, y, noise, structure, basis)
    if grid is not None:
        X, y, basis = grid
        results = xb.toeplitz_log_likelihood(*batch, X, y, noise, basis=basis, **options)
    else:
        results = xb.log_likelihood(*batch, X, y, noise, basis=basis, per_axis=phase == "per_axis", **options)
    value, info, added, parts = results
    if parts is None:
        return built(LogLikelihood, value, info, added)
    d_noise = parts[3] if grid is None and is_by_point(noise_variance) else parts[3][:, 0]
    return built(LogLikelihood, value, info, added, GMMGradient(parts[0], parts[1], parts[2], d_noise))


def checked_problem(
    g: GMMBatch, X: Any, y: Any, noise_variance: Any, phase: str, jitter: float, max_bytes: int | None
) -> tuple[Points, Array, Array, int | None]:
    """Points of X (N, D), y (N,), the noise table and the memory bound, checked; the rest is only checked."""
    one_of(phase, "phase", PHASES)
    non_negative(jitter, "jitter")
    limit = None if max_bytes is None else integer(max_bytes, "max_bytes", minimum=1)
    points = checked_points(X, "X", g)
    y = float_array(y, "y", ndim=(0, 1), allow="any").reshape(-1)
    seen_y = seen_by_host(y)
    check_finite(seen_y, "y")
    if len(y) != len(points.X):
        raise ValueError(f"y: shape {y.shape}, expected ({len(points.X)},), one target for each row of X")
    check_size(seen_y, "y")
    noise = checked_noise(noise_variance, g, len(points.X))
    warn_if_collapsed(points.seen, "X")
    return points, y, noise, limit


def checked_basis(value: Any, name: str, n_points: int) -> Array:
    """Functions of a trend as a float array with a row a point, small enough to be squared."""
    basis = float_array(value, name, ndim=2, allow="any")
    seen = seen_by_host(basis)
    check_finite(seen, name)
    if len(basis) != n_points:
        raise ValueError(f"{name}: shape {basis.shape}, expected ({n_points}, q), a row for each point")
    check_size(seen, name)
    return basis


def warm_up(g: GMMBatch, X: Array, y: Array) -> None:
    """Compile the loops of this module: see `run.warm_up`."""
    for phase in PHASES:
        log_likelihood(g, X, y, grad=True, phase=phase, structure="dense")
    if g.n_dims > 1:
        return
    log_likelihood(g, X, y, grad=True, structure="toeplitz")
    xp = array_namespace(X)
    for count in _SHARED_POINTS:
        log_likelihood(g[:1], xp.linspace(0.0, 1.0, count), xp.zeros(count), structure="dense")
