"""The joint predictive density of several points: Gaussians over all of them, combined by the weights of pairs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._checks import Array, check_size, float_array
from .._containers import built, container
from ..backends import array_namespace, get_backend, on_their_device, single_threaded_blas, to_host
from ..model.gmm import GMMBatch
from .mixture_prediction import arrays_among, check_shape, checked_weights, rounding


@container
class JointDensity:
    """The joint predictive density of n points at one y: its natural log, and its mean, shape (n,)."""

    log_density: float
    mean: Array


@on_their_device
@single_threaded_blas()
def combine_gaussians_joint(
    pair_weights: Any, means: Any, covariances: Any, y: Any, *, factor: Any = None
) -> JointDensity:
    """Joint predictive log density of n points at `y`, and the joint mean.

    Parameters
    ----------
    pair_weights, factor
        As for `combine_gaussians`.
    means : array, shape (h, n)
    covariances : array, shape (h, n, n)
        Noise included; symmetric and positive definite.
    y : array, shape (n,)

    Raises
    ------
    ValueError
        As `combine_gaussians`, and where a covariance is not symmetric or has no Cholesky factor.

    Notes
    -----
    The density is ``|F^T a|^2`` with ``log a_i = log N_i(y) / 2``: O(h n^3) time. The normaliser and the mean
    need one Cholesky factorisation a pair, O(h^2 n^3), spread over threads. O(h n^2) memory.
    """
    means = float_array(means, "means", ndim=2)
    covariances = float_array(covariances, "covariances", ndim=3)
    y = float_array(y, "y", ndim=1, dtype=np.float64)
    check_size(means, "means")
    check_size(y, "y")
    xp = array_namespace(means, covariances, y, *arrays_among(pair_weights, factor))
    weights, factor, kept = checked_weights(pair_weights, factor)
    n = len(y)
    check_shape(means, "means", (len(kept), n))
    check_shape(covariances, "covariances", (len(kept), n, n))
    dtype = np.result_type(means.dtype, covariances.dtype)
    originals, rows = np.flatnonzero(kept), xp.asarray(kept)
    means, covariances = (a[rows].astype(np.float64, copy=False) for a in (means, covariances))
    if n:
        faults = [abs(C - C.T).max() > 1e-6 * abs(C).max() for C in covariances]
        asymmetric = np.flatnonzero(to_host(xp.stack(faults)))
        if len(asymmetric):
            raise ValueError(f"covariances[{originals[asymmetric[0]]}]: not symmetric, expected a covariance matrix")
    backend = get_backend(means)
    total, mean_sum, log_densities, info = backend.joint_pair_moments(xp.asarray(weights), means, covariances, y)
    log_densities = to_host(log_densities)
    if info:
        raise ValueError(
            f"covariances[{originals[info - 1]}]: not positive definite, expected a Cholesky factor to exist"
        )
    if not total > rounding(weights):
        raise ValueError(f"pair_weights: the mixture vanishes (sum of W s is {total:.3g} trace W), expected > 0")
    norms = np.sqrt(np.sum(factor**2, axis=1))
    logs = 0.5 * log_densities + np.log(norms)
    amplitudes = (factor / norms[:, None]).T @ np.exp(logs - logs.max())
    square = float(amplitudes @ amplitudes)
    log_square = math.log(square) if square > 0.0 else -math.inf  # amplitudes of both signs may cancel to 0
    log_density = 2.0 * float(logs.max()) + log_square - math.log(total)
    return built(JointDensity, log_density, (mean_sum / total).astype(dtype))


def warm_up(g: GMMBatch, X: Array, y: Array) -> None:
    """Compile the loops of this module: see `run.warm_up`."""
    xp = array_namespace(y)
    few = y[:2]
    combine_gaussians_joint(xp.eye(2), xp.stack([few, few + 1.0]), xp.stack([xp.eye(2)] * 2), few)
