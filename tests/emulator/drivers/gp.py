"""Predictions of a batch of Gaussian processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import driver, mixtures, same_as_cpu


@driver("gp.cu")
def predict() -> None:
    """Three tiles of data and two of test points."""
    rng = np.random.default_rng(4)
    batch = mixtures(rng, [2], 1)
    X, y, X_new = rng.normal(size=(70, 1)), rng.normal(size=70), rng.normal(size=(33, 1))
    options: dict[str, Any] = {"per_axis": False, "full": True, "jitter": 0.0, "max_bytes": None}
    same_as_cpu("predict_gp", *batch, X, y, np.full((1, 1), 0.1), X_new, **options)


@driver("gp.cu")
def clip() -> None:
    """Variances just within and just beyond the bound of their rounding error, which is known for this factor."""
    import cupy

    from maskerade_fast.backends.gpu._loader import load

    n_points = 40
    factor = np.tril(np.full((n_points, n_points), -1.0), -1) + np.eye(n_points)
    solution = np.linspace(-1.0, 1.0, n_points)  # L^-T v
    solved = np.zeros((1, n_points, 33))
    solved[0, :, [0, 32]] = factor.T @ solution
    bound = 8.0 * n_points * np.finfo(float).eps * (1.0 + np.abs(solution).sum()) ** 2  # k(0) = 1, no noise
    variances = np.full((1, 33), 0.5)
    variances[0, [0, 32]] = -0.999 * bound, -1.001 * bound
    arrays: list[Any] = [factor[None], np.array([0, 1]), np.ones(1), np.zeros(1), solved, variances]
    arrays = [cupy.asarray(a) for a in arrays]
    sizes = tuple(np.int64(n) for n in (n_points, 33, 33, 0))
    load("gp", "gp_clip_f64")((2,), (256,), (*arrays, *sizes))
    np.testing.assert_array_equal(arrays[-1].get(), [[0.0, *variances[0, 1:32], np.nan]])
