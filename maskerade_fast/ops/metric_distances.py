"""Squared distances under a metric, noise and mass terms included, of batches that are prepared once for many calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks import Array
from .._containers import short_repr
from ..backends import array_namespace, get_backend, on_their_device
from ..model.gmm import GMMBatch, GMMGradient, segment_sums
from .distances import check_batch, check_pair, gradient, in_dtype, symmetrised, to_atoms
from .masses import Masses, positive_masses
from .metric import Metric, checked_metric

__all__ = ["Batch", "PreparedBatch", "prepare", "prepare_pair", "squared_distance", "squared_distance_vjp"]


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


Batch = GMMBatch | PreparedBatch


@on_their_device
def prepare(g: Batch, *, metric: Metric | None = None) -> PreparedBatch:
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
def squared_distance(a: Batch, b: Batch | None = None, *, metric: Metric | None = None) -> Array:
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
    first, second = prepare_pair(a, b, metric)
    other = () if second is None else (second.atoms,)
    backend = get_backend(first.batch.weights)
    return in_dtype(backend.pairwise_distance(first.atoms, *other), first.batch)


def prepare_pair(a: Batch, b: Batch | None, metric: Metric | None) -> tuple[PreparedBatch, PreparedBatch | None]:
    """Both batches prepared for one metric: `metric`, or that of whichever was prepared before."""
    if metric is None:
        metric = next((g.metric for g in (a, b) if isinstance(g, PreparedBatch)), None)
    batches = [g.batch if isinstance(g, PreparedBatch) else g for g in (a, b) if g is not None]
    check_pair(*batches)
    first, second = prepare(a, metric=metric), None if b is None else prepare(b, metric=metric)
    if second is not None and not first.metric.mass_correction:
        first.masses.joined(second.masses).check_equal()
    return first, second


def squared_distance_vjp(a: PreparedBatch, b: PreparedBatch | None, cotangent: Array, distance: Array) -> GMMGradient:
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
