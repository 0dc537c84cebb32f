"""WSABI-L surrogate: a Gaussian process over mixtures for the square root of f (mathematics.md section 5).

``z = sqrt(2 (f - epsilon)) ~ GP(0, kappa)``, ``K = kappa(Theta, Theta) + jitter * outputscale * I``. Distances between
observations are computed once and kept. The fit of the length is a one-dimensional search in which the output scale has
a closed form; b more observations extend the Cholesky factor in O(b h^2).

Mixtures may live on a GPU. Distances and hyper-kernels, whose cost grows with the pairs of components, are then
computed there and their results copied to the host, where all the rest is done: K has some hundred rows, its
factorisation takes LAPACK a few milliseconds, and the search for the length needs the result of one before it starts
the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from .._checks import Array, float_array, is_cupy, non_negative, one_of, positive, real
from .._containers import cached_property, own_arrays, short_repr
from .._memory import require_bytes
from ..backends import single_threaded_blas, to_device_of, to_host
from ..model.gmm import GMMBatch, GMMGradient, concat
from ..ops.hyperkernel import HyperKernel, Pullback
from ..ops.metric import Metric
from ..ops.metric_distances import PreparedBatch, squared_distance
from .surrogate_fit import checked_cholesky, fit_hyperparameters, warn_of_lost_digits, whiten
from .warping import square_root_warp

# A warning is due where the median observation's correlation with its nearest neighbour is smaller
_LEAST_CORRELATION = 0.5
Batch = GMMBatch | PreparedBatch


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A WSABI-L surrogate: build it with `Surrogate.fit`, add observations with `extend`, then `refit`.

    Attributes
    ----------
    mixtures : GMMBatch of h observations
        The methods take batches that live where these do; every array that they return is NumPy's.
    log_values : array, shape (h,)
        log f, minus infinity for f = 0.
    hyperkernel : HyperKernel
        Also by its parts: `outputscale`, `lengthscale`, `power` and `metric`.
    z : array, shape (h,)
        Warped values, in units of ``exp(log_offset / 2)``; `epsilon` in units of ``exp(log_offset)``.
    distances : array, shape (h, h)
        Squared distances of the hyper-kernel between observations.
    factor : array, shape (h, h)
        Lower Cholesky factor of K.
    whitened : array, shape (h,)
        factor^-1 z.
    at_bound : bool
        True if the fitted length ended at an end of its range: the values carry too little to fit it.
    """

    mixtures: GMMBatch
    log_values: Array
    hyperkernel: HyperKernel
    jitter: float
    epsilon_factor: float
    fixed: tuple[bool, bool]
    distances: Array
    factor: Array
    z: Array
    whitened: Array
    log_offset: float
    epsilon: float
    at_bound: bool

    def __post_init__(self) -> None:
        own_arrays(self)

    __repr__ = short_repr

    @classmethod
    def fit(
        cls,
        mixtures: GMMBatch,
        log_values: Any,
        *,
        metric: Metric | None = None,
        outputscale: float | None = None,
        lengthscale: float | None = None,
        power: int = 2,
        jitter: float = 1e-6,
        epsilon_factor: float = 0.8,
    ) -> Surrogate:
        """Fit to log f at `mixtures`.

        Parameters
        ----------
        mixtures : GMMBatch of h >= 1 mixtures
        log_values : array, shape (h,)
            log f; minus infinity allowed.
        metric : Metric, optional
            Distance between mixtures; the paper's by default.
        outputscale, lengthscale : float, optional
            lambda squared and l; where None, the value that maximises the marginal likelihood of z.
        power : {1, 2}
            The hyper-kernel's q.
        jitter : float
            Diagonal of K as a fraction of `outputscale`, used alike in fit, quadrature and acquisition.
        epsilon_factor : float in [0, 1)

        Raises
        ------
        ValueError
            For NaN or only minus infinity among `log_values`, for lengths that differ, or if the covariance of the
            observations is not positive definite; for mixtures of unequal mass, unless the metric has a mass weight or
            the mass correction.

        Warns
        -----
        PrecisionWarning
            If `jitter` is so small that solves with that covariance have lost their digits.
        """
        metric = Metric() if metric is None else metric
        log_values = _checked_values(log_values, mixtures)
        power = int(one_of(power, "power", (1, 2)))
        require_bytes(3 * 8 * len(mixtures) ** 2, f"mixtures: {len(mixtures)} of them")
        epsilon_factor = real(epsilon_factor, "epsilon_factor")
        if not 0.0 <= epsilon_factor < 1.0:
            raise ValueError(f"epsilon_factor: {epsilon_factor}, expected 0 <= epsilon_factor < 1")
        outputscale = None if outputscale is None else positive(outputscale, "outputscale")
        lengthscale = None if lengthscale is None else positive(lengthscale, "lengthscale")
        jitter = non_negative(jitter, "jitter")
        warp = square_root_warp(log_values, epsilon_factor)
        distances = to_host(squared_distance(mixtures, metric=metric))
        best = fit_hyperparameters(distances, warp.z, power, jitter, outputscale, lengthscale)
        return cls(
            mixtures=mixtures,
            log_values=log_values,
            hyperkernel=HyperKernel(best.outputscale, best.lengthscale, power, metric),
            jitter=jitter,
            epsilon_factor=epsilon_factor,
            fixed=(outputscale is not None, lengthscale is not None),
            distances=distances,
            factor=best.factor,
            z=warp.z,
            whitened=best.whitened,
            log_offset=warp.log_offset,
            epsilon=warp.epsilon,
            at_bound=best.at_bound,
        )

    @single_threaded_blas()
    def extend(self, mixtures: GMMBatch, log_values: Any) -> Surrogate:
        """Append observations in O(b h^2): lambda and l stay as they are, every value is warped anew."""
        log_values = _checked_values(log_values, mixtures)
        require_bytes(3 * 8 * (len(self.mixtures) + len(mixtures)) ** 2, "mixtures: as many, with those before,")
        cross = to_host(self.hyperkernel.squared_distance(mixtures, self.prepared))
        own = to_host(self.hyperkernel.squared_distance(mixtures))
        left = solve_triangular(self.factor, self.hyperkernel.of_distance(cross).T, lower=True).T
        corner = self.hyperkernel.of_distance(own)
        corner[np.diag_indices_from(corner)] += self.jitter * self.outputscale
        h, b = len(self.mixtures), len(mixtures)
        factor = np.zeros((h + b, h + b))
        factor[:h, :h] = self.factor
        factor[h:, :h] = left
        factor[h:, h:] = checked_cholesky(corner - left @ left.T)
        warn_of_lost_digits(factor, self.jitter)
        log_values = np.concatenate([self.log_values, log_values])
        warp = square_root_warp(log_values, self.epsilon_factor)
        return replace(
            self,
            mixtures=concat([self.mixtures, mixtures]),
            log_values=log_values,
            distances=np.block([[self.distances, cross.T], [cross, own]]),
            factor=factor,
            z=warp.z,
            whitened=whiten(factor, warp.z),
            log_offset=warp.log_offset,
            epsilon=warp.epsilon,
        )

    @single_threaded_blas()
    def refit(self) -> Surrogate:
        """Fit anew the hyperparameters that the caller of `fit` left open, and factor K; no distance is computed."""
        outputscale, lengthscale = (
            value if fixed else None
            for value, fixed in zip((self.outputscale, self.lengthscale), self.fixed, strict=True)
        )
        best = fit_hyperparameters(self.distances, self.z, self.power, self.jitter, outputscale, lengthscale)
        settings = replace(self.hyperkernel, outputscale=best.outputscale, lengthscale=best.lengthscale)
        return replace(self, hyperkernel=settings, factor=best.factor, whitened=best.whitened, at_bound=best.at_bound)

    @property
    def metric(self) -> Metric:
        assert self.hyperkernel.metric is not None
        return self.hyperkernel.metric

    @property
    def outputscale(self) -> float:
        return self.hyperkernel.outputscale

    @property
    def lengthscale(self) -> float:
        return self.hyperkernel.lengthscale

    @property
    def power(self) -> int:
        return self.hyperkernel.power

    @single_threaded_blas()
    def mean(self, g: Batch) -> Array:
        """Posterior mean of z at the mixtures `g`, shape (B,), in units of exp(log_offset / 2)."""
        return self.kernel_matvec(g, self.prepared, self.solve_transposed(self.whitened))

    @single_threaded_blas()
    def covariance(self, g: Batch) -> Array:
        """Posterior covariance of z between the mixtures `g`, shape (B, B); the jitter is on its diagonal."""
        return self._conditioned(self.kernel(g), self.whiten(self.kernel(self.prepared, g)))

    def _conditioned(self, own: Array, white: Array) -> Array:
        """Posterior covariance, jitter included, from the prior's `own` (B, B) and whitened covariances (h, B)."""
        covariance: Array = own - white.T @ white
        covariance[np.diag_indices_from(covariance)] += self.jitter * self.outputscale
        return covariance

    @single_threaded_blas()
    def mean_and_variance(self, g: Batch) -> tuple[Array, Array]:
        """Posterior mean and variance of z at each mixture of `g`, shapes (B,); jitter included.

        The variance is a Schur complement of a positive semi-definite matrix with the jitter on its whole diagonal, so
        it is at least the jitter; a smaller difference is rounding.
        """
        white = self.whiten(self.kernel(self.prepared, g))
        variance = self.prior_variance - np.einsum("ij,ij->j", white, white)
        return white.T @ self.whitened, np.maximum(variance, self.jitter * self.outputscale)

    @property
    def prior_variance(self) -> float:
        """Variance of z before any observation, jitter included."""
        return self.outputscale * (1.0 + self.jitter)

    def whiten(self, columns: Array) -> Array:
        """factor^-1 columns."""
        return whiten(self.factor, columns)

    def solve_transposed(self, columns: Array) -> Array:
        """factor^-T columns; after `whiten` it completes K^-1."""
        return np.asarray(solve_triangular(self.factor, columns, lower=True, trans="T", check_finite=False))

    def kernel(self, a: Batch, b: Batch | None = None) -> Array:
        """The hyper-kernel between `a` and `b` on the host, without jitter."""
        return np.asarray(to_host(self.hyperkernel.matrix(a, b)))

    def kernel_matvec(self, a: Batch, b: Batch, v: Array) -> Array:
        """kernel(a, b) @ v, streamed."""
        v = to_device_of(self.mixtures.weights, v)
        return np.asarray(to_host(self.hyperkernel.matvec(a, b, v)))

    def kernel_pullback(self, a: Batch, b: Batch | None = None) -> tuple[Array, Pullback]:
        """kernel(a, b) and the map from its cotangent to the gradient with respect to `a`, all on the host."""
        covariance, pullback = self.hyperkernel.pullback(a, b)

        def pullback_to_host(cotangent: Array) -> GMMGradient:
            return pullback(to_device_of(self.mixtures.weights, cotangent)).to("cpu")

        return np.asarray(to_host(covariance)), pullback_to_host

    def beside(self, g: GMMBatch) -> GMMBatch:
        """`g` where the observations live."""
        return g.to("gpu" if is_cupy(self.mixtures.weights) else "cpu")

    @cached_property
    def correlation_of_neighbours(self) -> float:
        """Median over observations of the correlation with the nearest other one; 1 for a single observation.

        Where it is small the observations lie too far apart for the length: between them the surrogate is its mean.
        """
        if len(self.z) < 2:
            return 1.0
        nearest = (self.distances + np.diag(np.full(len(self.z), np.inf))).min(axis=1)
        return float(np.median(self.hyperkernel.of_distance(nearest))) / self.outputscale

    @property
    def spacing_warning(self) -> str | None:
        """A warning if the length is shorter than the distances of the observations can show; else None."""
        correlation = self.correlation_of_neighbours
        if correlation >= _LEAST_CORRELATION:
            return None
        return (
            "the surrogate's length is shorter than the spacing of the evaluations supports (their neighbours have "
            f"correlation {correlation:.2g}): between them it says little"
        )

    @cached_property
    def on_host(self) -> Surrogate:
        """The same surrogate, for mixtures on the host."""
        return replace(self, mixtures=self.mixtures.to("cpu")) if is_cupy(self.mixtures.weights) else self

    @cached_property
    def prepared(self) -> PreparedBatch:
        """The observations, prepared for many calls against other batches."""
        return self.prepare(self.mixtures)

    def prepare(self, g: GMMBatch) -> PreparedBatch:
        """Prepare `g` for many calls of `kernel`, `kernel_matvec` and `kernel_pullback`."""
        return self.hyperkernel.prepare(g)


def _checked_values(log_values: Any, mixtures: GMMBatch) -> Array:
    """One log f per mixture, on the host."""
    values: Array = to_host(float_array(log_values, "log_values", ndim=1, dtype=np.float64, allow="-inf", own=True))
    if len(values) != len(mixtures):
        raise ValueError(f"log_values: {len(values)} values for {len(mixtures)} mixtures, expected as many")
    return values
