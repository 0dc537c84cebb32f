"""Covariance between mixtures: lambda^2 exp(-d^q / l^2) with d = sqrt(E) and q = `power`.

Positive definite for both powers, as E (with the metric's noise and mass terms) is conditionally negative definite
(docs/mathematics.md section 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._checks import Array, float_array, one_of, positive
from ._containers import short_repr
from .backends import array_namespace, get_backend, on_their_device
from .distances import (
    Metric,
    check_batch,
    check_pair,
    checked_cotangent,
    checked_metric,
    gradient,
    in_dtype,
    positive_square,
    symmetrised,
    to_atoms,
)
from .gmm import GMMBatch, GMMGradient, segment_sums
from .masses import Masses, positive_masses

__all__ = [
    "PreparedBatch",
    "Pullback",
    "covariance_from_distance",
    "hyperkernel",
    "hyperkernel_matvec",
    "hyperkernel_pullback",
    "hyperkernel_vjp",
    "prepare",
    "squared_distance",
]

Pullback = Callable[[Any], GMMGradient]


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """A batch with its self terms and layout, for many calls against other batches; made by `prepare`."""

    batch: GMMBatch
    metric: Metric
    atoms: Any  # of the backend: energy distance with every term of the metric
    log_noise: Array | None  # (B,), and the next, where the metric has a term for them
    mass: Array | None
    masses: Masses  # of the weights as they are compared

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.batch)


@on_their_device
def prepare(g: GMMBatch | PreparedBatch, *, metric: Metric | None = None) -> PreparedBatch:
    """Do once what `squared_distance` and the hyper-kernel need of a batch.

    Raises
    ------
    ValueError
        If `g` was prepared for another metric; if the metric's noise or mass term cannot be formed; if masses differ
        beyond rounding and the metric has no cure, a mass weight or the mass correction.
    """
    metric = checked_metric(metric if metric is not None or isinstance(g, GMMBatch) else g.metric)
    if isinstance(g, PreparedBatch):
        if g.metric != metric:
            raise ValueError(f"metric: {metric}, but the batch was prepared for {g.metric}")
        return g
    check_batch(g, "g")
    xp = array_namespace(g.weights)
    weights = g.weights
    features = []
    log_noise = mass = None
    if metric.noise_weight > 0.0:
        log_noise = _log_noise(g)
        features.append(metric.noise_weight * log_noise)
    if metric.mass_weight > 0.0:
        mass = positive_masses(g)
        features.append(metric.mass_weight * xp.log(mass))
        weights = weights.astype(np.float64) / mass[g.owner]
    stacked = xp.stack(features, axis=1) if features else None
    atoms, masses = to_atoms(g, metric, weights, metric.mass_correction, features=stacked)
    if not metric.mass_correction:  # with a mass weight all are 1
        masses.check_equal()
    return PreparedBatch(g, metric, atoms, log_noise, mass, masses)


@on_their_device
def squared_distance(
    a: GMMBatch | PreparedBatch, b: GMMBatch | PreparedBatch | None = None, *, metric: Metric | None = None
) -> Array:
    """The squared distance under the hyper-kernel: energy distance, noise term and mass term of the metric.

    Parameters
    ----------
    a, b : GMMBatch or PreparedBatch
        As for `energy_distance`. With ``metric.noise_weight > 0`` both need noise variances > 0; with
        ``metric.mass_weight > 0`` masses > 0, and the energy distance is that of weights / M.
    metric : Metric, optional
        May be left out where a batch was prepared with it.

    Returns
    -------
    (B_a, B_b) array of the dtype of `a`

    Raises
    ------
    ValueError
        As `energy_distance`, where a logarithm cannot be taken, and for unequal masses as `prepare`.
    """
    first, second = _prepare_pair(a, b, metric)
    other = () if second is None else (second.atoms,)
    backend = get_backend(first.batch.weights)
    return in_dtype(backend.pairwise_distance(first.atoms, *other), first.batch)


@on_their_device
def hyperkernel(
    a: GMMBatch | PreparedBatch,
    b: GMMBatch | PreparedBatch | None = None,
    *,
    outputscale: float,
    lengthscale: float,
    power: int = 2,
    metric: Metric | None = None,
) -> Array:
    """Covariance of every mixture of `a` with every mixture of `b`.

    Parameters
    ----------
    a, b : GMMBatch or PreparedBatch
        Same D and dtype. ``b=None`` means `a`: exactly symmetric, `outputscale` on the diagonal.
    outputscale, lengthscale : float
        lambda^2 and l, both > 0; l^2 has the units of E^(power/2).
    power : {1, 2}
        q in exp(-E^(q/2) / l^2).
    metric : Metric, optional
        With its noise and mass terms; see `squared_distance`.

    Returns
    -------
    (B_a, B_b) array of the dtype of `a`

    Raises
    ------
    ValueError
        If D or dtype differ, a parameter is out of range, or the metric does not fit the mixtures: unequal masses need
        its mass weight or its mass correction.
    """
    parameters = _parameters(outputscale, lengthscale, power)
    first, second = _prepare_pair(a, b, metric)
    backend = get_backend(first.batch.weights)
    values = backend.hyperkernel(first.atoms, None if second is None else second.atoms, **parameters)
    return in_dtype(values, first.batch)


def hyperkernel_vjp(
    a: GMMBatch | PreparedBatch,
    b: GMMBatch | PreparedBatch | None,
    cotangent: Any,
    *,
    outputscale: float,
    lengthscale: float,
    power: int = 2,
    metric: Metric | None = None,
) -> GMMGradient:
    """Gradient of ``sum(cotangent * hyperkernel(a, b))`` with respect to `a`.

    Parameters
    ----------
    a, b, outputscale, lengthscale, power, metric
        As for `hyperkernel`; ``b=None`` differentiates through both places of `a`.
    cotangent : array-like, shape (B_a, B_b)

    Returns
    -------
    GMMGradient
        `noise_variance` (B_a,) is filled if ``metric.noise_weight > 0``. With power 1 the kernel has a cusp
        where mixtures coincide; its gradient is taken as 0 there.
    """
    _, pull = hyperkernel_pullback(a, b, outputscale=outputscale, lengthscale=lengthscale, power=power, metric=metric)
    return pull(cotangent)


@on_their_device
def hyperkernel_pullback(
    a: GMMBatch | PreparedBatch,
    b: GMMBatch | PreparedBatch | None = None,
    *,
    outputscale: float,
    lengthscale: float,
    power: int = 2,
    metric: Metric | None = None,
) -> tuple[Array, Pullback]:
    """`hyperkernel(a, b)` and the function that takes a cotangent of it to the gradient with respect to `a`.

    The distances are kept between the two. Prepare `b` once (`prepare`) where many `a` meet it.

    Returns
    -------
    K : (B_a, B_b) array of the dtype of `a`
    pull : callable
        Takes (B_a, B_b), gives what `hyperkernel_vjp` gives.
    """
    parameters = _parameters(outputscale, lengthscale, power)
    first, second = _prepare_pair(a, b, metric)
    backend = get_backend(first.batch.weights)
    other = () if second is None else (second.atoms,)
    distance = backend.pairwise_distance(first.atoms, *other)
    covariance = backend.covariance_from_distance(distance, **parameters)
    scale = -1.0 / parameters["lengthscale"] ** 2

    @on_their_device
    def pull(cotangent: Any) -> GMMGradient:
        cotangent = checked_cotangent(cotangent, *distance.shape)
        xp = array_namespace(distance, cotangent)
        slope = cotangent * covariance
        if power == 1:
            root = xp.sqrt(distance)
            apart = root > 0.0
            slope = xp.where(apart, slope * (0.5 * scale) / xp.where(apart, root, 1.0), 0.0)
        else:
            slope *= scale
        return _distance_vjp(first, second, slope, distance)

    return in_dtype(covariance, first.batch), pull


@on_their_device
def hyperkernel_matvec(
    a: GMMBatch | PreparedBatch,
    b: GMMBatch | PreparedBatch | None,
    v: Any,
    *,
    outputscale: float,
    lengthscale: float,
    power: int = 2,
    metric: Metric | None = None,
) -> Array:
    """``hyperkernel(a, b) @ v`` without the matrix: memory grows with J_a + J_b only.

    Parameters
    ----------
    a, b, outputscale, lengthscale, power, metric
        As for `hyperkernel`; ``b=None`` means `a`.
    v : array-like, shape (B_b,) or (B_b, k)

    Returns
    -------
    (B_a,) or (B_a, k) array of the dtype of `a`

    Raises
    ------
    ValueError
        As `hyperkernel`, and for a `v` of another length.
    """
    parameters = _parameters(outputscale, lengthscale, power)
    first, second = _prepare_pair(a, b, metric)
    second = first if second is None else second
    v = float_array(v, "v", ndim=(1, 2), dtype=np.float64)
    if len(v) != len(second):
        raise ValueError(f"v: {len(v)} rows, expected {len(second)} as b has mixtures")
    backend = get_backend(first.batch.weights, v)
    columns = v[:, None] if v.ndim == 1 else v
    out = backend.hyperkernel_matvec(first.atoms, second.atoms, columns, **parameters)
    return in_dtype(out[:, 0] if v.ndim == 1 else out, first.batch)


@on_their_device
def covariance_from_distance(distance: Any, *, outputscale: float, lengthscale: float, power: int = 2) -> Array:
    """The hyper-kernel of squared distances that are known already.

    Parameters
    ----------
    distance : array of up to 3 dimensions
        From `squared_distance`; >= 0.
    outputscale, lengthscale, power
        As for `hyperkernel`.

    Returns
    -------
    array of the shape and floating type of `distance`
    """
    parameters = _parameters(outputscale, lengthscale, power)
    distance = float_array(distance, "distance", ndim=(0, 1, 2, 3))
    if (distance < 0.0).any():
        raise ValueError(f"distance: {distance.min()}, expected >= 0")
    values = get_backend(distance).covariance_from_distance(distance, **parameters)
    return values.astype(distance.dtype, copy=False)


def _prepare_pair(
    a: GMMBatch | PreparedBatch, b: GMMBatch | PreparedBatch | None, metric: Metric | None
) -> tuple[PreparedBatch, PreparedBatch | None]:
    """Both batches prepared for one metric: `metric`, or that of whichever was prepared before."""
    if metric is None:
        metric = next((g.metric for g in (a, b) if isinstance(g, PreparedBatch)), None)
    batches = [g.batch if isinstance(g, PreparedBatch) else g for g in (a, b) if g is not None]
    check_pair(*batches)
    first, second = prepare(a, metric=metric), None if b is None else prepare(b, metric=metric)
    if second is not None and not first.metric.mass_correction:
        first.masses.joined(second.masses).check_equal()
    return first, second


def _distance_vjp(a: PreparedBatch, b: PreparedBatch | None, cotangent: Array, distance: Array) -> GMMGradient:
    """Gradient of ``sum(cotangent * squared_distance(a, b))`` with respect to `a`, `noise_variance` included.

    `cotangent` and `distance` are (B_a, B_b) float64; `b=None` differentiates through both places of `a`.
    """
    metric, g = a.metric, a.batch
    xp = array_namespace(g.weights)
    if b is None:
        b, cotangent = a, symmetrised(cotangent)
    g_weights, g_points = get_backend(g.weights).pairwise_distance_vjp(a.atoms, b.atoms, cotangent, distance)
    g_noise = None
    if a.log_noise is not None:
        sign = xp.sign(a.log_noise[:, None] - b.log_noise)
        g_noise = metric.noise_weight * xp.sum(cotangent * sign, axis=1) / g.noise_variances
    if a.mass is not None:
        mass = a.mass
        sign = xp.sign(xp.log(mass)[:, None] - xp.log(b.mass))
        radial = metric.mass_weight * xp.sum(cotangent * sign, axis=1)
        radial -= segment_sums(g_weights * g.weights, g.offsets) / mass
        owner = g.owner
        g_weights = (g_weights + radial[owner]) / mass[owner]
    return gradient(g, metric, g_weights, g_points, g_noise)


def _log_noise(g: GMMBatch) -> Array:
    noise = g.noise_variances
    if noise is None:
        raise ValueError("metric: noise_weight > 0, but a batch carries no noise_variances")
    if not (noise > 0).all():
        b = int((noise > 0).argmin())
        value = float(noise[b])
        raise ValueError(f"noise_variances of mixture {b}: {value}, expected > 0 where metric.noise_weight > 0")
    log_noise: Array = array_namespace(noise).log(noise.astype(np.float64))
    return log_noise


def _parameters(outputscale: float, lengthscale: float, power: int) -> dict[str, Any]:
    return {
        "outputscale": positive(outputscale, "outputscale"),
        "lengthscale": positive_square(lengthscale, "lengthscale"),
        "power": int(one_of(power, "power", (1, 2))),
    }
