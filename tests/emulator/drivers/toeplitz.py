"""Schur's algorithm on Toeplitz matrices: values, gradients, trends, predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import driver, same_as_cpu


@driver("schur.cu", "toeplitz.cu")
def toeplitz() -> None:
    """Two tiles of places in several sweeps; mixtures with two components, one of which is shifted."""
    import cupy

    from maskerade_fast.backends import gpu

    rng = np.random.default_rng(8)
    n_points = 258
    X, y = np.arange(n_points)[:, None] * 1.0, rng.normal(size=n_points)
    batch = (np.array([0, 2, 3]), np.array([0.5, 0.7, 1.0]), np.array([[0.1], [0.3], [0.0]]))
    scales = np.array([[0.05], [0.02], [0.0]])  # the last is a constant: rank 1
    noise = np.array([[0.1], [0.0]])
    V = np.stack([np.full(n_points, 2.0), X[:, 0] / 90.0 - 1.0, rng.normal(size=n_points)], axis=1)
    options: dict[str, Any] = {"jitter": 1e4, "max_bytes": None}
    for grad in (False, True):
        same_as_cpu("toeplitz_log_likelihood", *batch, scales, X, y, noise, grad=grad, **options)
        same_as_cpu("toeplitz_log_likelihood", *batch, scales, X, y, noise, grad=grad, basis=V, **options)
    X_new, V_new = np.array([[0.5], [n_points + 1.0]]), np.array([[2.0, 0.1, 0.3], [2.0, -3.0, 0.4]])
    trend: dict[str, Any] = {"basis": V, "basis_new": V_new}
    same_as_cpu("toeplitz_predict_gp", *batch, scales, X, y, noise, X_new, full=False, **trend, **options)
    # without noise variances at the data are 0 up to rounding, and some below it
    short = (np.array([0, 1]), np.ones(1), np.array([[0.1]]), np.array([[0.2]]), X[:40], y[:40], np.zeros((1, 1)))
    arrays = [cupy.asarray(array) for array in (*short[1:], X[:8])]
    results: Any = gpu.toeplitz_predict_gp(short[0], *arrays, full=False, jitter=0.0, max_bytes=None)
    variance, info = results[1], results[3]
    assert info.get()[0] == 0
    assert 0.0 <= variance.get().min() <= variance.get().max() < 1e-13
