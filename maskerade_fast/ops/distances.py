"""Distances between mixtures: energy distance and Gaussian MMD, with gradients (mathematics.md section 2).

Both compare mixtures as measures over (mean, scale), so they ignore the order of components, splits into
equal copies and components of zero weight. All arithmetic is in float64; the result has the dtype of `a` and lives
where its arrays do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._checks import Array, float_array, is_cupy, one_of, positive, seen_by_host
from ..backends import array_namespace, get_backend, on_their_device
from ..model.gmm import GMMBatch, GMMGradient
from .masses import Masses, check_sums
from .metric import Metric, checked_metric

__all__ = ["energy_distance", "energy_distance_vjp", "gaussian_mmd2", "gaussian_mmd2_vjp"]

_LARGEST = 1e150  # the square of a coordinate must not overflow


@on_their_device
def energy_distance(
    a: GMMBatch, b: GMMBatch | None = None, *, metric: Metric | None = None, precision: str = "double"
) -> Array:
    """Energy distance between every mixture of `a` and every mixture of `b`.

    Parameters
    ----------
    a, b : GMMBatch
        Of B_a and B_b mixtures; same D and dtype. ``b=None`` means `a`: one triangle is computed, the matrix
        is exactly symmetric and its diagonal exactly 0.
    metric : Metric, optional
        Its noise and mass weights play no part here.
    precision : {"double", "mixed"}
        "mixed", for cards of few float64 units: a GPU computes terms, and sums of 8 terms, in float32. Errors are then
        some 1e-7 of the cross term sum_ij w_i w'_j ||p_i - q_j||, the largest of those of both mixtures and of each
        with itself. The CPU ignores it and computes in float64.

    Returns
    -------
    (B_a, B_b) array of the dtype of `a`
        E of mathematics.md section 2, in scaled cycles per unit of x times squared mass; clamped at 0. A squared
        MMD where masses are equal or corrected for.

    Raises
    ------
    ValueError
        If D or dtype differ, the metric's scales do not fit D, or for another precision.
    TypeError
        If `a` and `b` live on different devices.

    Warns
    -----
    UnequalMassWarning
        If the mixtures differ in total mass, beyond the rounding of weights that were normalised in float32, and
        ``metric.mass_correction`` is off: E can then be 0 between different mixtures.

    Notes
    -----
    O(J_a J_b D) time, O(B_a B_b) memory.
    """
    metric, precision = checked_metric(metric), one_of(precision, "precision", ("double", "mixed"))
    check_pair(a, b)
    atoms = _energy_atoms((a,) if b is None else (a, b), metric)
    return _as_result(get_backend(a.weights).pairwise_distance(*atoms, precision=precision), a)


@on_their_device
def energy_distance_vjp(
    a: GMMBatch, b: GMMBatch | None, cotangent: Any, *, metric: Metric | None = None
) -> GMMGradient:
    """Gradient of ``sum(cotangent * energy_distance(a, b))`` with respect to `a`.

    Parameters
    ----------
    a, b : GMMBatch
        ``b=None``: the gradient of ``energy_distance(a)`` through both places of `a`.
    cotangent : array-like, shape (B_a, B_b)
    metric : Metric, optional

    Returns
    -------
    GMMGradient
        Like the arrays of `a`. The derivative of ||p - q|| is taken as 0 where p = q, and that of a distance of 0 as
        0: masses that are unequal and not corrected for can clamp many there.

    Raises
    ------
    ValueError
        As `energy_distance`, and for a cotangent of another shape.

    Warns
    -----
    UnequalMassWarning
        As `energy_distance`.
    """
    metric = checked_metric(metric)
    return _vjp(a, b, cotangent, metric, lambda batches: _energy_atoms(batches, metric))


@on_their_device
def gaussian_mmd2(a: GMMBatch, b: GMMBatch | None = None, *, bandwidth: float, metric: Metric | None = None) -> Array:
    """Squared MMD between the spectral densities under exp(-||x - y||^2 / (2 bandwidth^2)).

    Parameters
    ----------
    a, b : GMMBatch
        As for `energy_distance`; any masses.
    bandwidth : float
        In scaled cycles per unit of x.
    metric : Metric, optional
        `reflect` and the scales are used: densities are those of the scaled means and scales.

    Returns
    -------
    (B_a, B_b) array of the dtype of `a`
        In units of squared mass; clamped at 0.

    Raises
    ------
    ValueError
        If D or dtype differ, the scales do not fit D, or bandwidth <= 0.
    """
    metric, bandwidth = checked_metric(metric), positive_square(bandwidth, "bandwidth")
    check_pair(a, b)
    atoms = _gaussian_atoms((a,) if b is None else (a, b), metric, bandwidth)
    return _as_result(get_backend(a.weights).pairwise_distance(*atoms), a)


@on_their_device
def gaussian_mmd2_vjp(
    a: GMMBatch, b: GMMBatch | None, cotangent: Any, *, bandwidth: float, metric: Metric | None = None
) -> GMMGradient:
    """Gradient of ``sum(cotangent * gaussian_mmd2(a, b))`` with respect to `a`; see `energy_distance_vjp`."""
    metric, bandwidth = checked_metric(metric), positive_square(bandwidth, "bandwidth")
    return _vjp(a, b, cotangent, metric, lambda batches: _gaussian_atoms(batches, metric, bandwidth))


def _energy_atoms(batches: tuple[GMMBatch, ...], metric: Metric) -> list[Any]:
    """The atoms of one or two batches; warns where their masses are unequal and not corrected for."""
    atoms, masses = zip(*(to_atoms(g, metric, g.weights, metric.mass_correction) for g in batches), strict=True)
    if not metric.mass_correction:
        masses[0].joined(masses[-1]).warn_if_unequal()
    return list(atoms)


def _gaussian_atoms(batches: tuple[GMMBatch, ...], metric: Metric, bandwidth: float) -> list[Any]:
    return [to_atoms(g, metric, g.weights, False, bandwidth)[0] for g in batches]


def _vjp(a: GMMBatch, b: GMMBatch | None, cotangent: Any, metric: Metric, atoms_of: Any) -> GMMGradient:
    check_pair(a, b)
    cotangent = checked_cotangent(cotangent, len(a), len(a if b is None else b))
    backend = get_backend(a.weights, cotangent)
    if b is None:
        (first,) = atoms_of((a,))
        second, cotangent = first, symmetrised(cotangent)
    else:
        first, second = atoms_of((a, b))
    g_weights, g_points = backend.pairwise_distance_vjp(first, second, cotangent)
    return gradient(a, metric, g_weights, g_points, None)


def checked_cotangent(cotangent: Any, n_a: int, n_b: int) -> Array:
    """`cotangent` as float64 of shape (n_a, n_b), else ValueError."""
    array = float_array(cotangent, "cotangent", ndim=2, dtype=np.float64)
    if array.shape != (n_a, n_b):
        raise ValueError(f"cotangent: shape {array.shape}, expected ({n_a}, {n_b})")
    return array


def symmetrised(cotangent: Array) -> Array:
    """Cotangent of the first place of d(a, a); the diagonal is constant 0."""
    total: Array = cotangent + cotangent.T
    diagonal = array_namespace(total).arange(len(total))
    total[diagonal, diagonal] = 0.0
    return total


def gradient(g: GMMBatch, metric: Metric, g_weights: Array, g_points: Array, g_noise: Array | None) -> GMMGradient:
    """From the metric's coordinates to the units and the dtype of `g`."""
    xp = array_namespace(g_points)
    means, scales = g_points[:, : g.n_dims], g_points[:, g.n_dims :]
    if metric.frequency_scale is not None:
        means = means / xp.asarray(metric.frequency_scale)
    if metric.scale_scale is not None:
        scales = scales / xp.asarray(metric.scale_scale)
    noise = None if g_noise is None else g_noise.astype(g.dtype)
    weights, means, scales = (xp.ascontiguousarray(x, dtype=g.dtype) for x in (g_weights, means, scales))
    return GMMGradient(weights, means, scales, noise)


def to_atoms(
    g: GMMBatch,
    metric: Metric,
    weights: Array,
    mass_correction: bool,
    bandwidth: float = 0.0,
    features: Array | None = None,
) -> tuple[Any, Masses]:
    """The backend's atoms of `g`, in the metric's coordinates, small enough for their squares; and their masses."""
    n_dims = g.n_dims
    xp = array_namespace(g.weights)
    points = xp.empty((len(g.weights), 2 * n_dims))
    halves = (("frequency_scale", "means", points[:, :n_dims]), ("scale_scale", "scales", points[:, n_dims:]))
    for name, parameter, columns in halves:
        columns[...] = getattr(g, parameter)
        unit = getattr(metric, name)
        if unit is not None:
            if isinstance(unit, tuple) and len(unit) != n_dims:
                raise ValueError(f"{name}: {len(unit)} entries, expected {n_dims} as the mixtures have dimensions")
            columns /= xp.asarray(unit)
    backend = get_backend(g.weights)
    atoms = backend.prepare_atoms(
        g.offsets, weights, points, n_dims if metric.reflect else 0,
        bandwidth=bandwidth, mass_correction=mass_correction, features=features,
    )  # fmt: skip
    largest, least, greatest = _extremes(points, atoms.masses)
    if largest > _LARGEST:
        name, parameter = next((n, p) for n, p, columns in halves if abs(columns).max() > _LARGEST)
        factor = "" if getattr(metric, name) is None else f" times metric.{name}"
        raise ValueError(f"{parameter}: some exceed {_LARGEST:g}{factor}, where squares overflow; rescale x")
    check_sums(atoms.masses, greatest, largest)
    return atoms, Masses(least, greatest, (g.offsets,))


def _extremes(points: Array, masses: Array) -> tuple[float, float, float]:
    """Largest absolute coordinate, least and greatest mass; from a card in one copy, hence one wait."""
    if not points.size:
        return 0.0, np.inf, -np.inf
    if is_cupy(points):
        xp = array_namespace(points)
        both = seen_by_host(xp.concatenate([points.ravel(), masses]))
        if is_cupy(both):
            largest, least, greatest = xp.stack([abs(points).max(), masses.min(), masses.max()]).get().tolist()
            return largest, least, greatest
        points, masses = both[: points.size], both[points.size :]
    return float(abs(points).max()), float(masses.min()), float(masses.max())


def _as_result(values: Array, a: GMMBatch) -> Array:
    """Distances in the floating type of `a`; ValueError where they have no place in it."""
    largest = float(np.finfo(a.dtype).max)
    if values.dtype != a.dtype and values.size and float(values.max()) > largest:
        raise ValueError(
            f"weights: squared distances up to {float(values.max()):.3g}, which {a.dtype} does not hold; rescale y, or "
            "use float64"
        )
    return in_dtype(values, a)


def in_dtype(values: Array, a: GMMBatch) -> Array:
    """`values` in the floating type of `a`."""
    return values.astype(a.dtype, copy=False)


def positive_square(value: Any, name: str) -> float:
    """A number > 0 whose square is a normal number."""
    number = positive(value, name)
    if not 1.0 / _LARGEST < number < _LARGEST:
        raise ValueError(f"{name}: {number}, expected between {1.0 / _LARGEST:g} and {_LARGEST:g}")
    return number


def check_batch(g: Any, name: str) -> None:
    if not isinstance(g, GMMBatch):
        raise TypeError(f"{name}: {type(g).__name__}, expected a GMMBatch")


def check_pair(a: GMMBatch, b: GMMBatch | None = None) -> None:
    check_batch(a, "a")
    if b is None:
        return
    check_batch(b, "b")
    if a.n_dims != b.n_dims:
        raise ValueError(f"b: mixtures of {b.n_dims} dimensions, expected {a.n_dims} as a has")
    if a.dtype != b.dtype:
        raise ValueError(f"b: dtype {b.dtype}, expected {a.dtype} as a has; convert one of them")
    array_namespace(a.weights, b.weights)  # refuses a mixture of devices


def warm_up(g: GMMBatch, X: Array, y: Array) -> None:
    """Compile the loops of this module: see `run.warm_up`."""
    for metric in (Metric(), Metric(mass_correction=True)):
        energy_distance_vjp(g, g, energy_distance(g, metric=metric), metric=metric)
    gaussian_mmd2_vjp(g, g, gaussian_mmd2(g, bandwidth=1.0), bandwidth=1.0)
