"""Covariance between mixtures: lambda^2 exp(-d^q / l^2) with d = sqrt(E) and q = `power`.

Positive definite for both powers, as E (with the metric's noise and mass terms) is conditionally negative definite
(mathematics.md section 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks import Array, float_array, one_of, positive
from ..backends import array_namespace, get_backend, on_their_device
from ..model.gmm import GMMBatch, GMMGradient
from .distances import checked_cotangent, in_dtype, positive_square
from .metric import Metric, checked_metric
from .metric_distances import Batch, PreparedBatch, prepare, prepare_pair, squared_distance, squared_distance_vjp

__all__ = ["HyperKernel", "PreparedBatch", "Pullback", "hyperkernel", "hyperkernel_matvec", "hyperkernel_vjp"]

Pullback = Callable[[Any], GMMGradient]


@dataclass(frozen=True)
class HyperKernel:
    """lambda^2 exp(-d^q / l^2) between mixtures, its settings checked.

    Parameters
    ----------
    outputscale, lengthscale : float
        lambda^2 and l, both > 0; l^2 has the units of E^(power/2).
    power : {1, 2}
        q in exp(-E^(q/2) / l^2).
    metric : Metric, optional
        With its noise and mass terms; see `squared_distance`. None: that of a batch prepared before, or the default.

    Raises
    ------
    ValueError
        For a parameter out of range.
    """

    outputscale: float
    lengthscale: float
    power: int = 2
    metric: Metric | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputscale", positive(self.outputscale, "outputscale"))
        object.__setattr__(self, "lengthscale", positive_square(self.lengthscale, "lengthscale"))
        object.__setattr__(self, "power", int(one_of(self.power, "power", (1, 2))))
        if self.metric is not None:
            checked_metric(self.metric)

    @on_their_device
    def matrix(self, a: Batch, b: Batch | None = None) -> Array:
        """What `hyperkernel` returns."""
        first, second = prepare_pair(a, b, self.metric)
        backend = get_backend(first.batch.weights)
        values = backend.hyperkernel(first.atoms, None if second is None else second.atoms, **self._settings)
        return in_dtype(values, first.batch)

    @on_their_device
    def matvec(self, a: Batch, b: Batch | None, v: Any) -> Array:
        """What `hyperkernel_matvec` returns."""
        first, second = prepare_pair(a, b, self.metric)
        second = first if second is None else second
        v = float_array(v, "v", ndim=(1, 2), dtype=np.float64)
        if len(v) != len(second):
            raise ValueError(f"v: {len(v)} rows, expected {len(second)} as b has mixtures")
        backend = get_backend(first.batch.weights, v)
        columns = v[:, None] if v.ndim == 1 else v
        out = backend.hyperkernel_matvec(first.atoms, second.atoms, columns, **self._settings)
        return in_dtype(out[:, 0] if v.ndim == 1 else out, first.batch)

    @on_their_device
    def pullback(self, a: Batch, b: Batch | None = None) -> tuple[Array, Pullback]:
        """`matrix(a, b)` and the function that takes a cotangent of it to the gradient with respect to `a`.

        The distances are kept between the two. Prepare `b` once where many `a` meet it.

        Returns
        -------
        K : (B_a, B_b) array of the dtype of `a`
        vjp : callable
            Takes (B_a, B_b), gives what `hyperkernel_vjp` gives.
        """
        first, second = prepare_pair(a, b, self.metric)
        backend = get_backend(first.batch.weights)
        other = () if second is None else (second.atoms,)
        distance = backend.pairwise_distance(first.atoms, *other)
        covariance = backend.covariance_from_distance(distance, **self._settings)
        scale = -1.0 / self.lengthscale**2

        @on_their_device
        def vjp(cotangent: Any) -> GMMGradient:
            cotangent = checked_cotangent(cotangent, *distance.shape)
            xp = array_namespace(distance, cotangent)
            slope = cotangent * covariance
            if self.power == 1:
                root = xp.sqrt(distance)
                apart = root > 0.0
                slope = xp.where(apart, slope * (0.5 * scale) / xp.where(apart, root, 1.0), 0.0)
            else:
                slope *= scale
            return squared_distance_vjp(first, second, slope, distance)

        return in_dtype(covariance, first.batch), vjp

    @on_their_device
    def of_distance(self, distance: Any) -> Array:
        """Covariance at each of the squared distances >= 0, an array of up to 3-D, in its floating type."""
        distance = float_array(distance, "distance", ndim=(0, 1, 2, 3))
        if (distance < 0.0).any():
            raise ValueError(f"distance: {distance.min()}, expected >= 0")
        values = get_backend(distance).covariance_from_distance(distance, **self._settings)
        return values.astype(distance.dtype, copy=False)

    def prepare(self, g: Batch) -> PreparedBatch:
        """`g`, prepared for many calls of the methods."""
        return prepare(g, metric=self.metric)

    def squared_distance(self, a: Batch, b: Batch | None = None) -> Array:
        """`squared_distance` under the metric."""
        return squared_distance(a, b, metric=self.metric)

    @property
    def _settings(self) -> dict[str, Any]:
        return {"outputscale": self.outputscale, "lengthscale": self.lengthscale, "power": self.power}


def hyperkernel(
    a: Batch,
    b: Batch | None = None,
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
    return HyperKernel(outputscale, lengthscale, power, metric).matrix(a, b)


def hyperkernel_vjp(
    a: Batch,
    b: Batch | None,
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
    return HyperKernel(outputscale, lengthscale, power, metric).pullback(a, b)[1](cotangent)


def hyperkernel_matvec(
    a: Batch,
    b: Batch | None,
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
    return HyperKernel(outputscale, lengthscale, power, metric).matvec(a, b, v)


def warm_up(g: GMMBatch, X: Array, y: Array) -> None:
    """Compile the loops of this module: see `run.warm_up`."""
    for power in (1, 2):
        kernel = HyperKernel(1.0, 1.0, power)
        covariance, vjp = kernel.pullback(g)
        vjp(covariance)
        kernel.matvec(g, g, kernel.matrix(g))
