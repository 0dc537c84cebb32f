"""Predictive mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import driver, same_as_cpu


def problem(h: int, n_points: int) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(2)
    factor = rng.normal(size=(h, h)) + 0.5
    weights = factor @ factor.T
    return weights / np.trace(weights), rng.normal(size=(h, n_points)), np.exp(rng.normal(size=(h, n_points))), rng


@driver("prediction.cu")
def pointwise() -> None:
    """Five levels are two groups; a factor of 40 columns takes two rounds of lanes."""
    from maskerade_fast.backends.gpu import mixture_prediction as prediction

    pair_weights, means, variances, rng = problem(24, 2)
    same_as_cpu("pair_moments", pair_weights, means, variances)
    one = (pair_weights, means[:, :1], variances[:, :1])
    same_as_cpu("pair_cdf", *one, rng.normal(size=(5, 1)))
    same_as_cpu("pair_quantiles", *one, rng.uniform(0.3, 0.7, (5, 1)))
    same_as_cpu("pair_log_density", rng.normal(size=(24, 40)), means, variances, rng.normal(size=2))
    parts, prediction._PARTS = prediction._PARTS, 1  # few nodes, and draws close together need no more
    try:
        same_as_cpu("pair_draws", *one, rng.uniform(0.49, 0.51, (5, 1)), tolerance=1e-5)
    finally:
        prediction._PARTS = parts


@driver("joint.cu")
def jointly() -> None:
    """19 points are three panels of a factor in shared memory; the library takes those that do not fit there."""
    from maskerade_fast.backends.gpu import mixture_prediction as prediction

    pair_weights, means, _, rng = problem(3, 19)
    roots = rng.normal(size=(3, 19, 19))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(19)
    y = rng.normal(size=19)
    same_as_cpu("joint_pair_moments", pair_weights, means, covariances, y)
    reserved, prediction._STATIC_SHARED = prediction._STATIC_SHARED, 2**30
    try:
        same_as_cpu("joint_pair_moments", pair_weights, means, covariances, y)
    finally:
        prediction._STATIC_SHARED = reserved
