"""Mean and pointwise quantiles of kernels and spectral densities over weighted mixtures, in host arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._checks import Array
from .._containers import short_repr
from ..backends import to_device_of
from ..model.gmm import GMMBatch, segment_sums


@dataclass(frozen=True, eq=False)
class Band:
    """Posterior mean and pointwise quantiles of a function of the kernel.

    `Posterior.kernel` and `Posterior.spectral_density` return it.

    Attributes
    ----------
    mean, lower, upper : array, shape (L,)
        Mean, 5 % and 95 % quantile at each of L lags or frequencies; in units of y squared for a kernel, of y squared
        times x for a spectral density.
    """

    mean: Array
    lower: Array
    upper: Array

    __repr__ = short_repr

    def moved(self, reference: Any) -> Band:
        """The same where `reference` lives."""
        return Band(*(to_device_of(reference, array) for array in (self.mean, self.lower, self.upper)))


class Weighted(NamedTuple):
    """Mixtures and their probabilities, which add up to 1."""

    mixtures: GMMBatch
    probabilities: Array


def kernel_band(kernels: Weighted, lags: Array) -> Band:
    """The kernel at `lags` (L, D): weights x exp(-2 pi^2 sum (scale lag)^2) x cos(2 pi mean . lag), summed."""

    def values(g: GMMBatch, i: int) -> Array:
        phase = 2.0 * np.pi * (g.means @ lags[i])
        envelope = np.exp(-2.0 * np.pi**2 * (g.scales**2 @ lags[i] ** 2))
        return np.asarray(g.weights * envelope * np.cos(phase))

    with np.errstate(over="ignore"):  # of far lags, where the envelope is 0 all the same
        return _band(kernels, len(lags), values)


def spectral_band(kernels: Weighted, frequencies: Array, axis: int) -> Band:
    """Two-sided spectral density of input `axis` at `frequencies` (F,), the other axes integrated out."""

    def values(g: GMMBatch, i: int) -> Array:
        return spectral_densities(g, frequencies[i : i + 1], axis)[:, 0]

    return _band(kernels, len(frequencies), values)


def spectral_densities(g: GMMBatch, frequencies: Array, axis: int) -> Array:
    """Two-sided spectral densities of all J components along input `axis` at `frequencies` (F,), shape (J, F)."""
    mean, scale = g.means[:, axis, None], np.maximum(g.scales[:, axis, None], np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        both = [np.exp(-0.5 * ((frequencies - centre) / scale) ** 2) for centre in (mean, -mean)]
    return np.asarray(0.5 * g.weights[:, None] * (both[0] + both[1]) / (np.sqrt(2.0 * np.pi) * scale))


def _band(kernels: Weighted, count: int, values: Callable[[GMMBatch, int], Array]) -> Band:
    """The band at `count` points; `values` of all components are computed for one point at a time, to save memory."""
    g, p = kernels
    mean, lower, upper = (np.empty(count) for _ in range(3))
    for i in range(count):
        by_mixture = segment_sums(values(g, i), g.offsets)
        mean[i] = p @ by_mixture
        ranked = np.argsort(by_mixture, kind="stable")
        below = np.cumsum(p[ranked])
        picks = [ranked[min(int(np.searchsorted(below, q)), len(ranked) - 1)] for q in (0.05, 0.95)]
        lower[i], upper[i] = by_mixture[picks]
    return Band(mean, lower, upper)
