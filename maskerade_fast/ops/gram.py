"""Gram matrices of spectral mixtures: K[b, i, j] = k_b(x_i - y_j), mathematics.md section 1."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from .._checks import Array, callers_level, check_finite, check_size, float_array, is_cupy, one_of, seen_by_host
from ..backends import array_namespace, get_backend, on_their_device, to_host
from ..errors import CollapsedInputsWarning
from ..model.gmm import GMMBatch
from ..model.inputs import Inputs

PHASES = ("joint", "per_axis")


@on_their_device
def gram(g: GMMBatch, X: Any, Y: Any = None, *, noise_variance: Any = None, phase: str = "joint") -> Array:
    """Gram matrix of every mixture of `g`.

    Parameters
    ----------
    g : GMMBatch of B mixtures in D dimensions
    X, Y : array, shape (N, D) and (M, D); also (N,), (M,) or a number for D = 1; or a data frame
        Integers beyond 2^53 keep all their digits: an offset is taken off before they are rounded.
        ``Y=None``: X with itself; the matrices are exactly symmetric and their diagonal is exactly
        ``sum(weights) + noise``.
    noise_variance : scalar, (B,), (1, N) or (B, N), optional
        Added to the diagonal, units of y squared; a 1-D array is one number per mixture. None:
        ``g.noise_variances``, or nothing where g has none. Only without Y; beside Y there is no noise,
        whatever g carries.
    phase : {"joint", "per_axis"}
        The cosine of the phase summed over dimensions, or a product of one cosine a dimension inside each
        component (GPyTorch's ``SpectralMixtureKernel`` for one component). Equal for D = 1.

    Returns
    -------
    K : array, shape (B, N, M)
        float32 if g and the inputs are, computed in float64.

    Raises
    ------
    ValueError
        If X has no rows or another number of columns than g has dimensions; for NaN or infinity; for noise
        beside Y, negative noise, or noise of another shape; for inputs beyond 1e150.
    TypeError
        For arrays that are not real numbers, or that live on different devices.

    Warns
    -----
    CollapsedInputsWarning
        If X is float32 and so far from the origin that different inputs have become equal.

    Notes
    -----
    O(B N M n D) time. Depends on differences of inputs only: inputs shifted without rounding give the same bits, and
    rows in another order the permuted matrix to the bit.
    Oracle: ``tests/oracle::gram``.
    """
    X, origins, seen = checked_points(X, "X", g)
    one_of(phase, "phase", PHASES)
    if Y is not None:
        if noise_variance is not None:
            raise ValueError("noise_variance: given beside Y, expected None (noise is on the diagonal of K(X, X))")
        Y = checked_points(Y, "Y", g, allow_empty=True, origins=origins).X
        noise = array_namespace(g.weights).zeros((1, 1))
    else:
        noise = checked_noise(noise_variance, g, len(X), default=0.0)
    warn_if_collapsed(seen, "X")
    xb = get_backend(g.weights, X, Y, noise)
    K: Array = xb.gram(g.offsets, g.weights, g.means, g.scales, X, Y, noise, per_axis=phase == "per_axis")
    return K


class Points(NamedTuple):
    """Inputs that were checked: (N, D) floats, and what was taken off them before they were rounded."""

    X: Array
    origins: Array  # (D,), on the host; see `inputs`
    seen: Array  # X as further checks look at it (`seen_by_host`)


def checked_points(
    value: Any, name: str, g: GMMBatch, *, allow_empty: bool = False, origins: Array | None = None
) -> Points:
    """Inputs as (N, D) floats that fit the mixtures of `g`, small enough to be squared; less `origins`, if any."""
    if not isinstance(g, GMMBatch):
        raise TypeError(f"g: {type(g).__name__}, expected a GMMBatch")
    inputs = Inputs.of(value, name, finite=False)
    points = inputs.numbers
    if points.size == 0:
        points = points.reshape(0, g.n_dims) if points.shape == (0, 1) else points
    if points.shape[1] != g.n_dims:
        raise ValueError(f"{name}: {points.shape[1]} columns (shape {points.shape}), but g.n_dims is {g.n_dims}")
    if origins is not None and points.size:
        points = inputs.relative_to(origins)
    seen = seen_by_host(points)
    check_finite(seen[:, 0] if seen.shape[1] == 1 else seen, name)
    if len(points) == 0 and not allow_empty:
        raise ValueError(f"{name}: no rows, expected at least one point")
    check_size(seen, name)
    return Points(points, inputs.origins, seen)


def checked_noise(value: Any, g: GMMBatch, n_points: int, *, default: float | None = None) -> Array:
    """Noise variances as a float64 table whose axes are B or 1 and N or 1 long.

    A scalar gives (1, 1), a (B,) array (B, 1); None takes those of `g`, else `default`, else raises. A scalar goes
    where the arrays of `g` live.
    """
    if value is None:
        value = g.noise_variances if g.noise_variances is not None else default
    if value is None:
        raise ValueError("noise_variance: None, and g carries no noise_variances; expected one of the two")
    noise = float_array(value, "noise_variance", ndim=(0, 1, 2), dtype=np.float64, allow="any")
    seen = seen_by_host(noise)
    check_finite(seen, "noise_variance")
    n_mixtures = len(g)
    if noise.ndim < 2:
        good = noise.ndim == 0 or noise.shape == (n_mixtures,)
        table = noise.reshape(-1, 1)
    else:
        good = noise.shape in {(n_mixtures, n_points), (1, n_points)}
        table = noise
    if not good:
        raise ValueError(
            f"noise_variance: shape {noise.shape}, expected a scalar, ({n_mixtures},), (1, {n_points}) or "
            f"({n_mixtures}, {n_points})"
        )
    if noise.ndim == 0:
        table = array_namespace(g.weights).full((1, 1), float(seen))
    if (seen < 0).any():
        noise = to_host(seen)
        where = tuple(int(i) for i in np.argwhere(noise < 0)[0])
        raise ValueError(f"noise_variance{list(where) if where else ''}: {noise[where]}, expected >= 0")
    return table


def is_by_point(noise_variance: Any) -> bool:
    """True for noise of shape (1, N) or (B, N)."""
    return (noise_variance.ndim if is_cupy(noise_variance) else np.ndim(noise_variance)) == 2


def warn_if_collapsed(X: Array, name: str) -> None:
    """Warn where the float type has merged neighbouring inputs far from the origin.

    Rounding shows in a column that is narrow for its distance from 0 and holds fewer floating-point numbers than
    it has points, with neighbours on adjacent ones. A constant column is suspect only where its type no longer
    tells integers apart, from 2**24 in float32. Data merely repeated (years, categories) keep gaps much wider
    than the float spacing. And nothing is lost unless whole rows have become equal.
    """
    if len(X) < 2:
        return
    suspects = [d for d in range(X.shape[1]) if _looks_rounded(X[:, d])]
    if suspects and len(np.unique(to_host(X), axis=0)) < len(X):  # cupy.unique has no axis in every release
        d = suspects[0]
        largest = to_host(abs(X[:, d]).max())
        warnings.warn(
            f"{name}: column {d} reaches {largest:g}, where neighbouring numbers of {X.dtype} are "
            f"{np.spacing(largest):g} apart, and rows have become equal; subtract an offset before the cast to "
            f"{X.dtype}",
            CollapsedInputsWarning,
            stacklevel=callers_level(),
        )


def _looks_rounded(column: Array) -> bool:
    largest = to_host(abs(column).max())
    spacing = float(np.spacing(largest))
    width = float(column.max()) - float(column.min())
    if width == 0.0:
        return bool(largest >= 2.0 / np.finfo(column.dtype).eps)
    if width >= 2.0**-10 * float(largest) or width >= spacing * len(column):
        return False
    xp = array_namespace(column)
    return bool(xp.diff(xp.unique(column).astype(np.float64)).min() <= spacing)


def host_factor(g: GMMBatch, X: Array, *, noise_variance: Any = None, basis: Array | None = None) -> Array | None:
    """Lower Cholesky factor, on the host, of the covariance of one mixture with the noise and a trend.

    Parameters
    ----------
    g : GMMBatch of 1 mixture
    X : array, shape (N, D), where `g` lives
    noise_variance
        As in `gram`.
    basis : array, shape (N, q), optional
        Of the trend, on any device: the covariance gains ``basis @ basis.T``.

    Returns
    -------
    array, shape (N, N), float64; None where the covariance is not positive definite
    """
    covariance = to_host(gram(g, X, noise_variance=noise_variance))[0].astype(np.float64, copy=False)
    if basis is not None:
        basis = to_host(basis)
        covariance = covariance + basis @ basis.T
    try:
        return np.asarray(linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False))
    except linalg.LinAlgError:
        return None


def warm_up(g: GMMBatch, X: Array, y: Array) -> None:
    """Compile the loops of this module: see `run.warm_up`."""
    for phase in PHASES:
        gram(g, X, X[:2], phase=phase)
        gram(g, X, phase=phase)
