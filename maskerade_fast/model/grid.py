"""Regular 1-D grids, on which a stationary covariance is Toeplitz: when likelihood and prediction go that way.

A trend may be present: its few basis functions are further right-hand sides.

X is a grid if, sorted, every x_i lies within 4 eps max|x| and within 1e-10 of a spacing from x_1 + (i - 1) h, with h =
(x_N - x_1) / (N - 1): as near as floating-point numbers come to equal spacing, and so near that no phase below the
Nyquist frequency moves by more than 4e-10. With one row missing X is no grid. Float32 inputs are judged as the
float64 numbers they become.
"""

from __future__ import annotations

import numpy as np

from .._checks import Array, one_of
from ..backends import array_namespace, to_host

STRUCTURES = ("auto", "dense", "toeplitz")
# From how many points on "auto" looks for a grid. Schur's steps win at every size (2 times at 8 points, 18 at 256), but
# below this a likelihood takes no time worth saving, and problems keep their bits whether a row is missing or not.
AUTO_POINTS = 256
_EPS = float(np.finfo(np.float64).eps)


def on_grid(
    X: Array, y: Array, noise: Array, structure: str, basis: Array | None = None
) -> tuple[Array, Array, Array | None] | None:
    """X, y and basis in ascending order of X if the Toeplitz path is to be taken, else None.

    Parameters
    ----------
    X, y : arrays, shape (N, D) and (N,)
    noise : array, shape (B or 1, N or 1)
    structure : {"auto", "dense", "toeplitz"}
    basis : array, shape (N, q), or None
        Of a trend.

    Raises
    ------
    ValueError
        For ``structure="toeplitz"`` where the covariance is not Toeplitz, with the reason.
    """
    if one_of(structure, "structure", STRUCTURES) == "dense" or (structure == "auto" and len(X) < AUTO_POINTS):
        return None
    reason = None
    order = None
    if X.shape[1] != 1:
        reason = f"X has {X.shape[1]} columns, expected 1"
    elif noise.shape[1] != 1:
        reason = "the noise differs from point to point, expected one variance a mixture"
    else:
        x = np.asarray(to_host(X[:, 0]), dtype=np.float64)
        order = ascending(x)
        gap = off_grid(x if order is None else x[order])
        if gap is not None:
            reason = f"X is no regular grid: {gap}"
    if reason is not None:
        if structure == "toeplitz":
            raise ValueError(f"structure='toeplitz': {reason}; pass structure='auto'")
        return None
    if order is None:
        return X, y, basis
    places = array_namespace(X).asarray(order)
    return X[places], y[places], None if basis is None else basis[places]


def spread_evenly(X: Array, unit: Array) -> Array:
    """`unit`, the points X (N, 1) after a change of units, as the grid that it is if X is one and has `AUTO_POINTS`.

    Years 1950, 1950 + 1/12, ... are a grid to the last digit they have; less 1950 they keep those digits' errors, and
    are none by the digits they could have.
    """
    if X.shape[1] != 1 or len(X) < AUTO_POINTS:
        return unit
    x = np.asarray(to_host(X[:, 0]), dtype=np.float64)
    order = ascending(x)
    if off_grid(x if order is None else x[order]) is not None:
        return unit
    xp = array_namespace(unit)
    order = np.arange(len(x)) if order is None else order
    places = np.empty(len(x))
    places[order] = np.arange(len(x))
    first, last = unit[int(order[0]), 0], unit[int(order[-1]), 0]
    even: Array = (first + (last - first) * (xp.asarray(places) / (len(x) - 1)))[:, None]
    return even


def ascending(x: Array) -> Array | None:
    """Permutation that sorts x; None if it is ascending as it is."""
    return None if (x[1:] > x[:-1]).all() else np.argsort(x, kind="stable")


def off_grid(x: Array) -> str | None:
    """What keeps sorted points from being a grid, in words; None for a grid."""
    n = len(x)
    if n == 1:
        return None
    step = (x[-1] - x[0]) / (n - 1)
    away = np.abs(x - (x[0] + step * np.arange(n)))
    worst = int(away.argmax())
    bound = min(4.0 * _EPS * max(abs(x[0]), abs(x[-1])), 1e-10 * step)
    if step > 0.0 and away[worst] <= bound:
        return None
    return f"{x[worst]!s} is {away[worst]:.3g} from place {worst} of {n} with spacing {step:.6g}, at most {bound:.3g}"
