"""The prior over mixtures: sizes, weights, means, scales, and noise and mass where they are free.

mathematics.md sections 4 and 9: n ~ p(n); weights ~ M Dirichlet(α); m_d ~ N(0, s_d²), folded to m >= 0 for D = 1;
log σ_d ~ N(ν_d, τ_d²); noise variance and mass M fixed or log-normal. Draws are low-discrepancy: for every
size one freshly scrambled Sobol sequence, through the normal quantile and the map T of `latent`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from .._checks import Array, check_finite, float_array, integer, one_of, positive
from .._containers import cached_property, short_repr
from .data import input_array, input_window
from .draws import Draws, draws_of_sizes
from .gmm import GMMBatch, segment_sums
from .latent import LatentMap, LogNormal, check_on_host
from .nets import MAX_DIMENSION, sobol_normal

_FREE_NOISE = LogNormal(math.log(1e-2), 2.0)
_FREE_MASS = LogNormal(0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Prior:
    """Prior over spectral mixtures of x̃ and ỹ (the standardised data, see `data`).

    Parameters
    ----------
    mean_sd : array, shape (D,)
        Standard deviation s of the means before folding, cycles per unit of x̃.
    log_scale_mean, log_scale_sd : array, shape (D,)
        ν and τ of the log scales.
    size_probabilities : array, shape (N_max,)
        p(n) of n = 1..N_max components; sums to 1. Default: uniform over 1..5.
    concentration : float
        α of the symmetric Dirichlet over the weights.
    noise_variance : float or LogNormal
        Fixed, in units of ỹ² (0 allowed), or free.
    mass : float or LogNormal
        Total weight k(0), in units of ỹ², fixed or free.
    fold : bool, optional
        Means m >= 0, as the kernel does not tell m from -m for D = 1. Default: folded if D = 1.

    Raises
    ------
    ValueError
        For shapes that disagree, numbers out of range, probabilities that do not sum to 1, and ``fold=True``
        for D > 1, where only the joint sign of a mean is redundant.
    """

    mean_sd: Array
    log_scale_mean: Array
    log_scale_sd: Array
    size_probabilities: Array = field(default_factory=lambda: np.full(5, 0.2))
    concentration: float = 1.0
    noise_variance: float | LogNormal = _FREE_NOISE
    mass: float | LogNormal = _FREE_MASS
    fold: bool | None = None

    if TYPE_CHECKING:  # array-likes become arrays

        def __init__(
            self,
            mean_sd: Any,
            log_scale_mean: Any,
            log_scale_sd: Any,
            size_probabilities: Any = ...,
            concentration: float = ...,
            noise_variance: float | LogNormal = ...,
            mass: float | LogNormal = ...,
            fold: bool | None = ...,
        ): ...

    __repr__ = short_repr

    def __post_init__(self) -> None:
        values: dict[str, Any] = {}
        for name in ("mean_sd", "log_scale_mean", "log_scale_sd"):
            value = float_array(getattr(self, name), name, ndim=(0, 1), dtype=np.float64, own=True)
            value = values[name] = np.atleast_1d(value)
            if len(value) == 0 or len(value) != len(values["mean_sd"]):
                raise ValueError(f"{name}: shape {value.shape}, expected (D,) with D >= 1, as mean_sd")
            if name != "log_scale_mean" and not (value > 0.0).all():
                raise ValueError(f"{name}: {value.min()}, expected > 0")
        probabilities = float_array(self.size_probabilities, "size_probabilities", ndim=1, dtype=np.float64)
        total = float(probabilities.sum())
        if len(probabilities) == 0 or (probabilities < 0.0).any() or abs(total - 1.0) > 1e-6:
            raise ValueError(f"size_probabilities: {probabilities}, expected numbers >= 0 that sum to 1")
        values["size_probabilities"] = probabilities / total
        values["concentration"] = positive(self.concentration, "concentration")
        if not isinstance(self.noise_variance, LogNormal):
            noise = float(float_array(self.noise_variance, "noise_variance", ndim=0)[()])
            if noise < 0.0:
                raise ValueError(f"noise_variance: {noise}, expected >= 0 or a LogNormal")
            values["noise_variance"] = noise
        if not isinstance(self.mass, LogNormal):
            values["mass"] = positive(self.mass, "mass")
        values["fold"] = len(values["mean_sd"]) == 1 if self.fold is None else bool(self.fold)
        if values["fold"] and len(values["mean_sd"]) > 1:
            raise ValueError(f"fold: True for D = {len(values['mean_sd'])}, expected False unless D = 1")
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_data(
        cls,
        X: Any,
        max_components: int = 5,
        *,
        noise_variance: float | LogNormal = _FREE_NOISE,
        mass: float | LogNormal = _FREE_MASS,
        concentration: float = 1.0,
        nyquist: str = "average",
        standardise: bool = True,
    ) -> Prior:
        """The default prior for inputs `X`: scales from 1/20 cycle per window up, free noise and free mass.

        Parameters
        ----------
        X : array-like, shape (N, D) or (N,)
            Raw or standardised: the prior is the same, since it speaks of x̃, where every range is 1.
        max_components : int
            Sizes 1..max_components, equally probable.
        noise_variance, mass : float or LogNormal
            In units of ỹ²; a number fixes it. Default: log s² ~ N(log 1e-2, 2²) and log M ~ N(0, 1).
        concentration : float
            α of the weights.
        nyquist : {"average", "axis"}
            Highest frequency F_d: of N points spread over D axes, ½N^{1/D}/R_d (for D = 1: ½(N - 1)/R); or
            the 1-D rule on each axis. N counts distinct points, or distinct values on an axis.
        standardise : bool
            False: for ``marginalise(..., standardise=False)``, where x̃ is x itself and R_d the data's range.

        Notes
        -----
        mathematics.md section 4: 0.05/R_d instead of the paper's 1/R_d, and max(F_d, e³/R_d) instead of F_d
        in ν and τ. F_d is taken as at least ½/R_d, so that one point or a constant axis still has a
        proper prior.

        Raises
        ------
        ValueError, TypeError
            For an `X` that `RegressionData` refuses, and arguments out of range.
        """
        frequency, window = _nyquist(X, nyquist, standardise)
        frequency = np.maximum(frequency, 0.5 / window)
        return cls(
            frequency / 5.0,
            *_log_scales(0.05 / window, np.maximum(frequency, math.exp(3.0) / window)),
            size_probabilities=_uniform(max_components),
            concentration=concentration,
            noise_variance=noise_variance,
            mass=mass,
        )

    @classmethod
    def paper(
        cls,
        X: Any,
        max_components: int = 5,
        noise_variance: float = 1e-3,
        nyquist: str = "average",
        *,
        standardise: bool = True,
    ) -> Prior:
        """The paper's prior: unit mass, fixed noise, and scales between 1/R_d and F_d at five standard
        deviations.

        Parameters are those of `from_data`; `noise_variance` is a number in units of ỹ².

        Raises
        ------
        ValueError
            Where F_d R_d <= 1 (few points, or many dimensions): the scales' range would be empty. Also for
            an `X` that `RegressionData` refuses, and arguments out of range.
        """
        frequency, window = _nyquist(X, nyquist, standardise)
        if not (frequency * window > 1.0).all():
            d = int(np.argmin(frequency * window))
            raise ValueError(
                f"X: {frequency[d] * window[d]:.3g} cycles on axis {d} up to its Nyquist frequency, expected "
                "more than 1 for the paper's prior; use Prior.from_data, or more distinct points"
            )
        return cls(
            frequency / 5.0,
            *_log_scales(1.0 / window, frequency),
            size_probabilities=_uniform(max_components),
            noise_variance=positive(noise_variance, "noise_variance"),
            mass=1.0,
        )

    def with_noise_variance(self, noise_variance: float) -> Prior:
        """The same prior with a free noise variance fixed at a number, in units of ỹ².

        Raises
        ------
        ValueError
            If this prior fixes another, or the number is negative.
        """
        fixed = self.noise_variance
        if not isinstance(fixed, LogNormal) and not math.isclose(fixed, noise_variance, rel_tol=1e-9):
            raise ValueError(f"noise_variance: {noise_variance}, but the prior fixes {fixed}; expected one of them")
        return replace(self, noise_variance=noise_variance)

    @property
    def n_dims(self) -> int:
        """D."""
        return len(self.mean_sd)

    @property
    def max_components(self) -> int:
        """N_max, the largest size."""
        return len(self.size_probabilities)

    @cached_property
    def latent_map(self) -> LatentMap:
        """The map T under which this prior is standard normal, for every size."""
        return LatentMap(
            self.mean_sd,
            self.log_scale_mean,
            self.log_scale_sd,
            self.concentration,
            bool(self.fold),
            self.noise_variance,
            self.mass,
        )

    def sample(self, m: int | Sequence[int], rng: Any = None) -> Draws:
        """Low-discrepancy draws of every size.

        Parameters
        ----------
        m : int or sequence of N_max ints
            Draws per size, or one number for each size; rounded up to a power of two, which keeps the nets whole.
            Sizes of probability 0 get none.
        rng : numpy.random.Generator, int or None

        Returns
        -------
        Draws
            Ordered by size; every draw of size n has the weight p(n)/m_n.

        Raises
        ------
        ValueError
            For counts below 1 or above 2^30, or mixtures of more latent dimensions than the Sobol generator has
            (21201).
        MemoryError
            For more draws than half of the free memory has room for, with the bytes.
        """

        def coordinates(n: int, count: int, rng: np.random.Generator) -> Array:
            return sobol_normal(self.latent_map.dimension(n), count, rng)

        return draws_of_sizes(m, self.size_probabilities, self.latent_map, coordinates, rng)

    def log_density(self, mixtures: GMMBatch) -> Array:
        """Log prior density of labelled mixtures, log p(n) included.

        Parameters
        ----------
        mixtures : GMMBatch of B mixtures over x̃ and ỹ

        Returns
        -------
        array, shape (B,)
            With respect to Lebesgue measure in (p_1..p_{n-1}, m, σ), p = w/M the weights of a unit mass (w
            itself under the paper's prior), and in s² and M themselves where these are free. -inf outside
            the support: too many components, a scale of 0, a negative mean where means are folded, and a
            mass or noise variance other than the fixed one. +inf at a weight of 0 if α < 1.

        Raises
        ------
        ValueError
            For another D, or if the noise is free and the mixtures carry no noise variances.
        TypeError
            For mixtures of CuPy arrays.
        """
        check_on_host(mixtures)
        if mixtures.n_dims != self.n_dims:
            raise ValueError(f"mixtures: {mixtures.n_dims} dimensions, expected {self.n_dims}")
        sizes = mixtures.n_components
        mass = mixtures.mass
        probability = self.size_probabilities[np.minimum(sizes, self.max_components) - 1]
        inside = (sizes <= self.max_components) & (probability > 0.0) & (mass > 0.0)

        unit = mixtures.weights / np.where(mass > 0.0, mass, 1.0)[mixtures.owner]
        a = self.concentration
        density = special.gammaln(a * sizes) - sizes * special.gammaln(a)
        density += segment_sums(special.xlogy(a - 1.0, unit), mixtures.offsets)

        means, scales = mixtures.means, mixtures.scales
        with np.errstate(over="ignore"):  # minus infinity is the density far off
            by_axis = -0.5 * (means / self.mean_sd) ** 2 - np.log(self.mean_sd) - 0.5 * math.log(2.0 * math.pi)
        if self.fold:
            by_axis += math.log(2.0)
            inside &= segment_sums((means < 0.0).sum(axis=1), mixtures.offsets) == 0
        log_scales = np.log(np.where(scales > 0.0, scales, 1.0))
        z = (log_scales - self.log_scale_mean) / self.log_scale_sd
        by_axis -= 0.5 * z * z + np.log(self.log_scale_sd) + log_scales + 0.5 * math.log(2.0 * math.pi)
        density += segment_sums(by_axis.sum(axis=1), mixtures.offsets)
        inside &= segment_sums((scales <= 0.0).sum(axis=1), mixtures.offsets) == 0

        tolerance = max(1e-9, 100.0 * float(np.finfo(mixtures.dtype).eps))  # fixed values are met up to this
        parts = ((self.noise_variance, mixtures.noise_variances), (self.mass, mass))
        for part, value in parts:
            if isinstance(part, LogNormal):
                if value is None:
                    raise ValueError("mixtures: no noise_variances, expected them since the noise is free")
                free = part.log_density(value)
                inside &= free > -np.inf
                density += np.where(inside, free, 0.0)
            elif value is not None:
                inside &= np.abs(value - part) <= tolerance * part
        density += np.log(np.where(inside, probability, 1.0))
        return np.where(inside, density, -np.inf)


def _uniform(max_components: int) -> Array:
    count = integer(max_components, "max_components", minimum=1)
    if count > MAX_DIMENSION:
        raise ValueError(f"max_components: {count}, expected at most {MAX_DIMENSION} (Sobol)")
    return np.full(count, 1.0 / count)


def _nyquist(X: Any, rule: str, standardise: bool) -> tuple[Array, Array]:
    """Nyquist frequencies F_d and windows R_d, in units of x̃ (R_d = 1), or of x."""
    one_of(rule, "nyquist", ("average", "axis"))
    X = input_array(X, "X")
    n_dims = X.shape[1]
    window = np.ones(n_dims) if standardise else input_window(X)[1]
    check_finite(window, "range of X")
    if rule == "axis" or n_dims == 1:
        distinct = np.array([len(np.unique(column)) for column in X.T])
        return 0.5 * (distinct - 1) / window, window
    return 0.5 * len(np.unique(X, axis=0)) ** (1.0 / n_dims) / window, window


def _log_scales(low: Array, high: Array) -> tuple[Array, Array]:
    """ν and τ that put `low` five standard deviations below the mean log scale and `high` five above."""
    return 0.5 * (np.log(low) + np.log(high)), (np.log(high) - np.log(low)) / 10.0
