"""Latent coordinates: a one-to-one map T between standard normal ξ and a mixture of one size.

mathematics.md section 9. A mixture of n components in D dimensions has n(1 + 2D) - 1 coordinates, plus one where
its noise variance is free and one where its mass is. They lie one behind the other:

    [n - 1 weights] [n D means, component by component] [n D log scales] [noise] [mass]

* weights by stick-breaking: component j takes the fraction v_j of what the ones before it left,
  v_j = BetaQuantile(α, (n - j)α; Φ(ξ_j)); for α = 1 in closed form, log(1 - v_j) = log Φ(-ξ_j)/(n - j);
* means m = s ξ, or folded to m >= 0: Φ(m/s) = ½ + ½Φ(ξ);
* scales, noise variance and mass log-normal.

With ξ ~ N(0, I) the mixture follows the prior of section 4, so draws, searches and proposals can live in ξ,
where there is no simplex to project on. Everything is vectorised over a ragged batch: weights through a
(B, n_max) table padded by sticks that leave nothing, the rest in flat arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from .._checks import Array, is_cupy, positive, real
from .._containers import container
from .gmm import GMMBatch, GMMGradient
from .latent_layout import Layout, breaks_of_orders, cumulated, layout_of
from .stick_breaking import LOG_SQRT_2PI, TINY, Sticks, break_sticks, log_slopes, safe_log, stick_coordinates

_BOUND = 37.5  # Φ(-37.5) is still a normal float64: coordinates of points on the edge of the support end here
_MAX_LOG = 700.0  # exp(700) is finite


@dataclass(frozen=True)
class LogNormal:
    """A positive number whose natural logarithm is normal with this mean and standard deviation."""

    log_mean: float
    log_sd: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "log_mean", real(self.log_mean, "log_mean"))
        object.__setattr__(self, "log_sd", positive(self.log_sd, "log_sd"))

    def log_density(self, value: Array) -> Array:
        """Log density with respect to Lebesgue measure in the value itself (not its log); -inf at 0."""
        log_value = np.log(np.maximum(value, TINY))
        z = (log_value - self.log_mean) / self.log_sd
        density = -0.5 * z * z - LOG_SQRT_2PI - math.log(self.log_sd) - log_value
        return np.where(value > 0.0, density, -np.inf)


@container
class Latent:
    """Latent coordinates of B mixtures of any sizes.

    Parameters
    ----------
    sizes : array of int64, shape (B,)
        Components of each mixture.
    offsets : array of int64, shape (B + 1,)
        Mixture b owns ``values[offsets[b]:offsets[b + 1]]``.
    values : array of float64, shape (offsets[-1],)
        Coordinates ξ in the order the module's text gives.
    """

    sizes: Array
    offsets: Array
    values: Array

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: Any) -> Latent:
        """``latent[i]`` is a batch of one; a slice, index array or mask picks several, in that order."""
        rows = np.atleast_1d(np.arange(len(self))[index])
        counts = np.diff(self.offsets)[rows]
        offsets = cumulated(counts)
        flat = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], counts)
        return Latent(self.sizes[rows], offsets, self.values[flat])

    def points(self) -> list[Array]:
        """The coordinates of each mixture."""
        return np.split(self.values, self.offsets[1:-1])

    def with_values(self, values: Array) -> Latent:
        """The same sizes at other coordinates."""
        return Latent(self.sizes, self.offsets, values)


@container
class LatentMap:
    """The map T of mathematics.md section 9 and its derivatives; `Prior.latent_map` builds it from checked values.

    Parameters
    ----------
    mean_sd, log_scale_mean, log_scale_sd : array, shape (D,)
        s_d of the means (cycles per unit of x̃), ν_d and τ_d of the log scales.
    concentration : float
        α of the symmetric Dirichlet.
    fold : bool
        Means folded to m >= 0.
    noise_variance, mass : float or LogNormal
        A number fixes it: it then has no coordinate.

    Notes
    -----
    Finite for every finite ξ up to |ξ| = 37.5 and never NaN beyond.
    """

    mean_sd: Array
    log_scale_mean: Array
    log_scale_sd: Array
    concentration: float
    fold: bool
    noise_variance: float | LogNormal
    mass: float | LogNormal

    @property
    def n_dims(self) -> int:
        """D."""
        return len(self.mean_sd)

    @property
    def n_extra(self) -> int:
        """Coordinates besides weights, means and scales: free noise and free mass."""
        return isinstance(self.noise_variance, LogNormal) + isinstance(self.mass, LogNormal)

    def dimension(self, n: int) -> int:
        """Coordinates of a mixture of n components."""
        return n * (1 + 2 * self.n_dims) - 1 + self.n_extra

    def mixture_bytes(self, n: int) -> int:
        """About what a mixture of n components takes with its coordinates and the work of drawing both."""
        return 8 * (5 * self.dimension(n) + 6 * n * (1 + 2 * self.n_dims) + 20)

    def latent(self, sizes: Any, values: Array) -> Latent:
        """Flat coordinates `values` of mixtures of these `sizes`, with their offsets."""
        sizes = np.asarray(sizes, dtype=np.int64)
        return Latent(sizes, cumulated(sizes * (1 + 2 * self.n_dims) - 1 + self.n_extra), values)

    def forward(self, latent: Latent) -> GMMBatch:
        """The mixtures T(ξ), noise variances (fixed ones too) included."""
        at = self._layout(latent)
        values = latent.values
        sticks = self._sticks(values, at)
        weights = self._unit_weights(sticks, at) * self._mass(values, at)[at.owner]
        scales = np.exp(np.minimum(self.log_scale_mean + self.log_scale_sd * values[at.scales], _MAX_LOG))
        means, noise = self._means(values[at.means]), self._noise(values, at)
        return GMMBatch.trusted(at.component_offsets.copy(), weights, means, scales, noise)

    def inverse(self, mixtures: GMMBatch) -> Latent:
        """Coordinates of mixtures; `forward` undoes it.

        Weights are divided by their sum, which is the mass where that is free. Points on the edge of the
        support (a weight or scale of 0) get coordinates of ±37.5 instead of ±infinity.

        Raises
        ------
        ValueError
            For another D, a negative mean where means are folded, or no noise variances where noise is free.
        TypeError
            For mixtures of CuPy arrays: the map rests on special functions that only SciPy has.
        """
        template, at, values = self._without_sticks(mixtures)
        table = np.zeros(at.is_component.shape)
        table[at.is_component] = mixtures.weights
        # summed from the end, so that small remainders keep their digits
        later = np.zeros_like(table)
        later[:, :-1] = np.cumsum(table[:, :0:-1], axis=1)[:, ::-1]
        values[at.stick[at.is_stick]] = stick_coordinates(table, later, at.sticks_left, self.concentration)[at.is_stick]
        return template.with_values(np.clip(values, -_BOUND, _BOUND))

    def _without_sticks(self, mixtures: GMMBatch) -> tuple[Latent, Layout, Array]:
        """Sizes and layout of mixtures, and their coordinates: unbounded, and 0 for the weights'."""
        check_on_host(mixtures)
        if mixtures.n_dims != self.n_dims:
            raise ValueError(f"mixtures: {mixtures.n_dims} dimensions, expected {self.n_dims}")
        if self.fold and (mixtures.means < 0.0).any():
            raise ValueError("mixtures: a mean is negative, expected means >= 0 (folded, as for D = 1)")
        template = self.latent(mixtures.n_components, np.empty(0))
        at = self._layout(template)
        values = np.zeros(template.offsets[-1])
        values[at.means] = self._mean_coordinates(mixtures.means)
        values[at.scales] = (safe_log(mixtures.scales) - self.log_scale_mean) / self.log_scale_sd
        extra = at.extra
        if isinstance(self.noise_variance, LogNormal):
            if mixtures.noise_variances is None:
                raise ValueError("mixtures: no noise_variances, expected them since the noise is free")
            noise = self.noise_variance
            values[extra] = (safe_log(mixtures.noise_variances) - noise.log_mean) / noise.log_sd
            extra = extra + 1
        if isinstance(self.mass, LogNormal):
            values[extra] = (safe_log(mixtures.mass) - self.mass.log_mean) / self.mass.log_sd
        return template, at, values

    def in_orders(self, mixtures: GMMBatch, orders: Array) -> Array:
        """Coordinates of B mixtures of n components with these in other orders: (B, P, d) for `orders` (P, n).

        Means and scales only change places, and a weight's coordinate depends on the set of components behind it, not
        on their order: for five components only 75 of the 480 stick coordinates of all orders differ.

        Raises
        ------
        ValueError, TypeError
            As `inverse`.
        """
        orders = np.ascontiguousarray(orders, dtype=np.int64)
        n_mixtures, n = len(mixtures), orders.shape[1]
        own = self._without_sticks(mixtures)[2].reshape(n_mixtures, self.dimension(n))
        broken, behind, places = breaks_of_orders(orders.tobytes(), n, self.n_dims, self.n_extra)
        weights = mixtures.weights.reshape(n_mixtures, n)
        later = np.zeros((n_mixtures, len(broken)))
        for k in range(n - 1, -1, -1):  # no product of matrices: its bits depend on how many rows there are
            later += weights[:, k, None] * behind[k]
        sticks = stick_coordinates(weights[:, broken], later, behind.sum(axis=0), self.concentration)
        row: Array = np.clip(np.concatenate([sticks, own], axis=1), -_BOUND, _BOUND)
        return row.take(places, axis=1)

    def pullback(self, latent: Latent, gradient: GMMGradient) -> Array:
        """Chain rule through `forward`: from the gradient in a mixture's arrays to the one in ξ.

        Parameters
        ----------
        latent : Latent
        gradient : GMMGradient
            Of any scalar, at ``forward(latent)``; a `noise_variance` of None counts as 0.

        Returns
        -------
        array, shape of ``latent.values``
        """
        at = self._layout(latent)
        values = latent.values
        out = np.zeros(len(values))
        sticks = self._sticks(values, at)
        weights = self._unit_weights(sticks, at)
        mass = self._mass(values, at)

        # with l_j = d log(1 - v_j)/dξ_j < 0: dw_j/dξ_j = -l_j Σ_{i>j} w_i, and dw_i/dξ_j = l_j w_i for i > j
        table = np.zeros(at.is_component.shape)
        table[at.is_component] = gradient.weights * mass[at.owner]
        weighted = np.zeros_like(table)
        weighted[at.is_component] = table[at.is_component] * weights
        later = np.zeros_like(table)
        later[:, :-1] = np.cumsum(weighted[:, :0:-1], axis=1)[:, ::-1]
        slope = np.exp(self._log_slopes(values, sticks, at))
        by_stick = slope * (table * np.exp(sticks.log_before + sticks.log_rest) - later)
        out[at.stick[at.is_stick]] = by_stick[at.is_stick]

        xi = values[at.means]
        out[at.means] = gradient.means * np.exp(self._log_mean_slopes(xi))
        log_scales = self.log_scale_mean + self.log_scale_sd * values[at.scales]
        out[at.scales] = gradient.scales * np.exp(np.minimum(log_scales, _MAX_LOG)) * self.log_scale_sd
        extra = at.extra
        if isinstance(self.noise_variance, LogNormal):
            if gradient.noise_variance is not None:
                out[extra] = gradient.noise_variance * self._noise(values, at) * self.noise_variance.log_sd
            extra = extra + 1
        if isinstance(self.mass, LogNormal):
            out[extra] = weighted.sum(axis=1) * self.mass.log_sd
        return out

    def _layout(self, latent: Latent) -> Layout:
        sizes = np.ascontiguousarray(latent.sizes, dtype=np.int64)
        return layout_of(sizes.tobytes(), self.n_dims, self.n_extra)

    def _sticks(self, values: Array, at: Layout) -> Sticks:
        return break_sticks(self._of_sticks(values, at), at.sticks_left, at.is_stick, self.concentration)

    def _of_sticks(self, values: Array, at: Layout) -> Array:
        """Coordinates in the table of sticks."""
        return values[at.stick] if len(values) else np.zeros(at.stick.shape)

    def _unit_weights(self, sticks: Sticks, at: Layout) -> Array:
        """Weights (J,) of unit mass."""
        weights: Array = (sticks.fraction * np.exp(sticks.log_before))[at.is_component]
        if self.concentration != 1.0:
            # α << 1 underflows to the edge of the simplex, where the density has a pole: stay inside
            np.maximum(weights, TINY, out=weights)
        return weights

    def _log_slopes(self, values: Array, sticks: Sticks, at: Layout) -> Array:
        return log_slopes(self._of_sticks(values, at), sticks, at.sticks_left, at.is_stick, self.concentration)

    def _means(self, xi: Array) -> Array:
        if not self.fold:
            return self.mean_sd * xi
        # Φ(m/s) = ½ + ½Φ(ξ), as erf(m/(s√2)) = Φ(ξ) for small m and through the upper tail for large m
        small = math.sqrt(2.0) * special.erfinv(special.ndtr(np.minimum(xi, 0.0)))
        large = -special.ndtri_exp(special.log_ndtr(-xi) - math.log(2.0))
        means: Array = self.mean_sd * np.where(xi < 0.0, small, large)
        return means

    def _mean_coordinates(self, means: Array) -> Array:
        z: Array = means / self.mean_sd
        if not self.fold:
            return z
        small = special.ndtri(special.erf(z / math.sqrt(2.0)))
        large = -special.ndtri_exp(np.minimum(special.log_ndtr(-z) + math.log(2.0), 0.0))
        xi: Array = np.where(z < 0.67, small, large)
        return xi

    def _log_mean_slopes(self, xi: Array) -> Array:
        """log dm/dξ."""
        if not self.fold:
            return np.broadcast_to(np.log(self.mean_sd), xi.shape)
        z = self._means(xi) / self.mean_sd
        slopes: Array = np.log(0.5 * self.mean_sd) + 0.5 * (z - xi) * (z + xi)
        return slopes

    def _noise(self, values: Array, at: Layout) -> Array:
        if isinstance(self.noise_variance, LogNormal):
            log_noise = self.noise_variance.log_mean + self.noise_variance.log_sd * values[at.extra]
            return np.exp(np.minimum(log_noise, _MAX_LOG))
        return np.full(len(at.extra), self.noise_variance)

    def _mass(self, values: Array, at: Layout) -> Array:
        if isinstance(self.mass, LogNormal):
            column = at.extra + isinstance(self.noise_variance, LogNormal)
            log_mass = self.mass.log_mean + self.mass.log_sd * values[column]
            mass: Array = np.exp(np.minimum(log_mass, _MAX_LOG))
            return mass
        return np.full(len(at.extra), self.mass)


def check_on_host(mixtures: GMMBatch) -> None:
    """TypeError for mixtures of CuPy arrays."""
    if is_cupy(mixtures.weights):
        raise TypeError("mixtures: CuPy arrays, expected NumPy arrays here; move with g.to('cpu')")
