"""Predictive densities: Gaussian processes combined by the pair weights of mathematics.md section 8.

    p(y) = sum_ij W_ij sqrt(N_i(y) N_j(y)) / sum_ij W_ij s_ij,        sqrt(N_i N_j) = s_ij N(m_ij, V_ij)

W is positive semi-definite, so p >= 0 although single W_ij may be negative; it stays so as long as whole
observations are dropped, never single pairs. Means, variances and tails are sums over pairs; densities go
through a factor, ``W = F F^T``, as ``|F^T a|^2`` with ``a_i = sqrt(N_i(y))``: rounding cannot turn that
negative.

*Pointwise*, every point is a mixture by itself, whatever the other points are. *Jointly*, N_i is the Gaussian
over all points; its mean then depends on which points these are.

Sums over pairs run where the Gaussians' means live; W itself is checked and factored on the host, where LAPACK serves a
matrix of some hundred rows as well.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np

from .._checks import Array, check_size, float_array, generator, integer, is_cupy, positive, real
from .._containers import built, container
from .._memory import require_bytes
from ..backends import array_namespace, get_backend, on_their_device, single_threaded_blas, to_device_of, to_host
from ..model.gmm import GMMBatch

_CLIP = 1e-8  # negative eigenvalues of W taken for rounding, as a fraction of the largest
_MANY_DRAWS = 64  # from here on a table of the CDF costs less than solving for each draw


@container
class Prediction:
    """M independent one-dimensional predictive densities; made by `combine_gaussians`.

    Attributes
    ----------
    mean, variance : array, shape (M,)
        Units of y and of y squared. The variance is positive.
    pair_weights : array of float64, shape (h, h)
        W, symmetric, of trace 1, observations without weight left out.
    factor : array of float64, shape (h, r)
        F with ``W = F F^T``.
    means, variances : array of float64, shape (h, M)
        Of the Gaussians that are combined.
    total : array of float64, shape (M,)
        The normaliser ``sum_ij W_ij s_ij``.

    Notes
    -----
    The last five arrays may live on a GPU while `mean` and `variance` do not (`moved`). Arguments of the methods must
    live where `mean` does, and so do the results.
    """

    mean: Array
    variance: Array
    pair_weights: Array
    factor: Array
    means: Array
    variances: Array
    total: Array

    def __len__(self) -> int:
        return len(self.mean)

    @on_their_device
    def log_density(self, y: Any) -> Array:
        """Natural log of each point's density at `y` (M,); shape (M,). Finite however far y lies. O(h r M).

        Raises
        ------
        ValueError
            If `y` is not (M,), not finite, or beyond 1e150.
        """
        y = float_array(y, "y", ndim=1, dtype=np.float64)
        if y.shape != self.mean.shape:
            raise ValueError(f"y: shape {y.shape}, expected {self.mean.shape}, one value a point")
        check_size(y, "y")
        xp = array_namespace(self.means)
        log_sum = get_backend(self.means).pair_log_density(self.factor, self.means, self.variances, self._placed(y))
        return self._as_result(log_sum - xp.log(self.total))

    @on_their_device
    def cdf(self, y: Any) -> Array:
        """Probability of a value up to `y`; `y` is a number, (M,) or (k, M), and the result (M,) or (k, M).

        O(k h^2 M). Its absolute rounding error is about eps sum|W| / total.
        """
        y = float_array(y, "y", ndim=(0, 1, 2), dtype=np.float64)
        if y.ndim and y.shape[-1] != len(self):
            raise ValueError(f"y: shape {y.shape}, expected (M,) or (k, M) with M = {len(self)}")
        xp = array_namespace(self.means)
        rows = xp.broadcast_to(self._placed(y), (len(y) if y.ndim == 2 else 1, len(self)))
        mass = get_backend(self.means).pair_cdf(self.pair_weights, self.means, self.variances, rows)
        probability = self._as_result(xp.clip(mass / self.total, 0.0, 1.0))
        return probability if y.ndim == 2 else probability[0]

    @on_their_device
    def quantile(self, q: Any) -> Array:
        """Quantiles: shape (M,) for a number `q`, (k, M) for `q` of shape (k,).

        q = 0 and q = 1 give -inf and inf. Accurate to about 1e-10 standard deviations; O(k h^2 M).

        Raises
        ------
        ValueError
            If a probability is outside [0, 1].
        """
        q = float_array(q, "q", ndim=(0, 1), dtype=np.float64)
        if not ((q >= 0.0) & (q <= 1.0)).all():
            raise ValueError(f"q: {to_host(q)[()]}, expected probabilities in [0, 1]")
        xp = array_namespace(self.means)
        quantiles = self._quantiles(xp.broadcast_to(self._placed(q).reshape(-1, 1), (q.size, len(self))))
        return quantiles if q.ndim else quantiles[0]

    @on_their_device
    def sample(self, k: int, rng: Any = None) -> Array:
        """`k` draws a point, independent across points, by inverting the CDF; shape (k, M).

        `rng` is a Generator, an int or None. From 64 draws on the CDF is tabulated at some 200 values a point,
        within 1e-7 in probability: O(h^2 M) whatever `k`.
        """
        k = integer(k, "k", minimum=0)
        require_bytes(3 * 8 * k * len(self), f"k: {k} draws of {len(self)} points")
        uniforms = 1.0 - generator(rng, "rng").random((k, len(self)))  # (0, 1]
        uniforms = np.minimum(uniforms, 1.0 - np.finfo(float).epsneg)  # never the inf of q = 1
        uniforms = to_device_of(self.means, uniforms)
        if k < _MANY_DRAWS:
            return self._quantiles(uniforms)
        backend = get_backend(self.means)
        return self._as_result(backend.pair_draws(self.pair_weights, self.means, self.variances, uniforms))

    @on_their_device
    def scaled(self, offset: float, scale: float) -> Prediction:
        """The prediction of ``offset + scale * y``, for scale > 0: from standardised units to the user's."""
        offset, scale = real(offset, "offset"), positive(scale, "scale")
        check_size(np.array([offset]), "offset")
        check_size(np.array([scale]), "scale")
        dtype = self.mean.dtype
        return built(
            Prediction,
            (self.mean * scale + offset).astype(dtype, copy=False),
            (self.variance * scale**2).astype(dtype, copy=False),
            self.pair_weights,
            self.factor,
            self.means * scale + offset,
            self.variances * scale**2,
            self.total,
        )

    def moved(self, reference: Any) -> Prediction:
        """The same with `mean` and `variance`, and hence all results, where `reference` lives; the rest stays."""
        moved = {name: to_device_of(reference, getattr(self, name)) for name in ("mean", "variance")}
        return built(Prediction, **{field.name: getattr(self, field.name) for field in fields(self)} | moved)

    def _quantiles(self, levels: Array) -> Array:
        backend = get_backend(self.means)
        return self._as_result(backend.pair_quantiles(self.pair_weights, self.means, self.variances, levels))

    def _placed(self, argument: Array) -> Array:
        """An argument, a number or an array that lives where `mean` does, on the device of the sums over pairs."""
        if argument.ndim:
            array_namespace(self.mean, argument)  # refuses a mixture of devices
        placed: Array = to_device_of(self.means, argument)
        return placed

    def _as_result(self, array: Array) -> Array:
        result: Array = to_device_of(self.mean, array.astype(self.mean.dtype, copy=False))
        return result


@on_their_device
def combine_gaussians(pair_weights: Any, means: Any, variances: Any, *, factor: Any = None) -> Prediction:
    """Combine h Gaussians at each of M points into one predictive density a point.

    Parameters
    ----------
    pair_weights : array, shape (h, h)
        W up to a positive factor, symmetric and positive semi-definite; single entries may be negative.
    means, variances : array, shape (h, M)
        Of the data GPs, noise included; variances > 0.
    factor : array, shape (h, r), optional
        F with ``W = F F^T``, from a caller who has one. By default from the eigenvectors of W, where
        eigenvalues down to ``-1e-8`` times the largest are taken for rounding and set to 0.

    Returns
    -------
    Prediction
        Results have the dtype of `means` and `variances` (float32 if both are); everything is computed in
        float64.

    Raises
    ------
    ValueError
        For shapes that disagree, means beyond 1e150, a variance <= 0, W not symmetric or not positive
        semi-definite, F F^T other than W, or a mixture that vanishes at a point (``sum_ij W_ij s_ij`` not above its
        rounding error).
    TypeError
        For arrays that are not real numbers, or that live on different devices.

    Notes
    -----
    O(h^2 M) time, O(h^2 + h M) memory. Oracle: ``tests/oracle::combine_gaussians``.
    """
    means, variances = float_array(means, "means", ndim=2), float_array(variances, "variances", ndim=2)
    check_size(means, "means")
    xp = array_namespace(means, variances, *arrays_among(pair_weights, factor))
    weights, factor, kept = checked_weights(pair_weights, factor)
    check_shape(means, "means", (len(kept), means.shape[1]))
    check_shape(variances, "variances", means.shape)
    if not (variances > 0.0).all():
        variances = to_host(variances)
        i, point = (int(k) for k in np.argwhere(~(variances > 0.0))[0])
        raise ValueError(f"variances[{i}, {point}]: {variances[i, point]}, expected > 0")
    dtype = np.result_type(means.dtype, variances.dtype)
    rows, limit = xp.asarray(kept), rounding(weights)
    means, variances = (a[rows].astype(np.float64, copy=False) for a in (means, variances))
    weights, factor = xp.asarray(weights), xp.asarray(factor)
    total, mean, variance = get_backend(means).pair_moments(weights, means, variances)
    vanishing = ~(total > limit)
    if vanishing.any():
        point = int(vanishing.argmax())
        raise ValueError(
            f"pair_weights: the mixture vanishes at point {point}: sum of W s is {float(total[point]):.3g} trace W, "
            "expected > 0"
        )
    return built(Prediction, mean.astype(dtype), variance.astype(dtype), weights, factor, means, variances, total)


@single_threaded_blas()  # OpenBLAS rounds differently for different numbers of threads
def checked_weights(pair_weights: Any, factor: Any) -> tuple[Array, Array, Array]:
    """W and F scaled to trace W = 1, over the observations with weight, and the mask (h,) of these; all on the host."""
    weights = to_host(float_array(pair_weights, "pair_weights", ndim=2, dtype=np.float64))
    h = len(weights)
    if weights.shape != (h, h) or h == 0:
        raise ValueError(f"pair_weights: shape {weights.shape}, expected (h, h) with h >= 1")
    largest = float(np.abs(weights).max())
    if not np.allclose(weights, weights.T, rtol=0.0, atol=_CLIP * largest):
        raise ValueError("pair_weights: not symmetric, expected W = W^T")
    if largest == 0.0:
        raise ValueError("pair_weights: all 0, expected a positive trace")
    weights = weights / largest  # its squares and sums can then neither overflow nor vanish
    weights = 0.5 * (weights + weights.T)
    if factor is None:
        eigenvalues, eigenvectors = np.linalg.eigh(weights)
        if not eigenvalues[0] >= -_CLIP * eigenvalues[-1]:
            raise ValueError(
                f"pair_weights: smallest eigenvalue {eigenvalues[0] * largest:.3g}, "
                f"largest {eigenvalues[-1] * largest:.3g}, expected positive semi-definite; "
                "drop whole observations, never single pairs"
            )
        positive_part = eigenvalues > h * np.finfo(float).eps * eigenvalues[-1]
        factor = eigenvectors[:, positive_part] * np.sqrt(eigenvalues[positive_part])
    else:
        factor = to_host(float_array(factor, "factor", ndim=2, dtype=np.float64)) / math.sqrt(largest)
        check_shape(factor, "factor", (h, factor.shape[1]))
        error = float(np.abs(factor @ factor.T - weights).max())
        if not error <= _CLIP:
            raise ValueError(f"factor: F F^T differs from pair_weights by {error * largest:.3g}, expected W = F F^T")
    # A weight below the rounding of the others may have left no row in F: that observation goes as a whole.
    kept = (np.diagonal(weights) > 0.0) & factor.any(axis=1)
    weights, factor = weights[np.ix_(kept, kept)], factor[kept]
    trace = float(np.trace(weights))
    return weights / trace, factor / math.sqrt(trace), kept


def arrays_among(*values: Any) -> list[Any]:
    """Those that are arrays already: lists have no device."""
    return [value for value in values if is_cupy(value) or isinstance(value, np.ndarray)]


def rounding(weights: Array) -> float:
    """Bound on the rounding error of a sum over pairs, all s_ij being at most 1."""
    return float(len(weights) * np.finfo(float).eps * np.abs(weights).sum())


def check_shape(array: Array, name: str, expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise ValueError(f"{name}: shape {array.shape}, expected {expected}")


def warm_up(g: GMMBatch, X: Array, y: Array) -> None:
    """Compile the loops of this module: see `run.warm_up`."""
    xp = array_namespace(y)
    prediction = combine_gaussians(xp.eye(2), xp.stack([y, y + 1.0]), xp.ones((2, len(y))))
    prediction.quantile(0.5)
    prediction.cdf(0.0)
    prediction.log_density(y)
    prediction.sample(1, 0)
    prediction.sample(_MANY_DRAWS, 0)
