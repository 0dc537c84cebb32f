"""The order of rows (C40): Gram matrices and predictions of rows in another order are the same numbers there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import as_type, random_batch

from maskerade_fast.ops.gp import predict_gp
from maskerade_fast.ops.gram import gram


def assert_rows_in_another_order(rng: np.random.Generator, dtype: Any, n_dims: int, phase: str, n_points: int) -> None:
    """Some points are equal."""
    X = np.round(rng.uniform(-3.0, 3.0, size=(n_points, n_dims)), 1).astype(dtype)
    g = as_type(random_batch(rng, 2, n_dims, unit=False), dtype)
    noise, order = rng.uniform(0.1, 1.0, size=(2, n_points)), rng.permutation(n_points)
    K = gram(g, X, noise_variance=noise, phase=phase)
    again = gram(g, X[order], noise_variance=noise[:, order], phase=phase)
    np.testing.assert_array_equal(again, K[:, order][:, :, order])


@pytest.mark.parametrize("phase", ["joint", "per_axis"])
@pytest.mark.parametrize("n_dims", [1, 3])
def test_c40_rows_in_another_order(rng: np.random.Generator, dtype: Any, n_dims: int, phase: str) -> None:
    """With 600 points a matrix is shared among threads and has three tiles of columns."""
    for n_points in (50, 600):
        assert_rows_in_another_order(rng, dtype, n_dims, phase, n_points)


@pytest.mark.parametrize("phase", ["joint", "per_axis"])
@pytest.mark.parametrize("n_dims", [1, 3])
def test_c40_rows_and_columns_of_rectangles(rng: np.random.Generator, dtype: Any, n_dims: int, phase: str) -> None:
    """Beside other points, before the first of the data and behind the last; the square is that of the data alone."""
    X, Y = (np.round(rng.uniform(-r, r, size=(k, n_dims)), 1).astype(dtype) for r, k in ((2.0, 40), (5.0, 70)))
    g = as_type(random_batch(rng, 2, n_dims, unit=False), dtype)
    rows, columns = rng.permutation(40), rng.permutation(70)
    K = gram(g, X, Y, phase=phase)
    np.testing.assert_array_equal(gram(g, X[rows], Y[columns], phase=phase), K[:, rows][:, :, columns])
    square, own = gram(g, X, X, phase=phase), gram(g, X, phase=phase)
    apart = ~np.eye(40, dtype=bool)
    np.testing.assert_array_equal(square[:, apart], own[:, apart])


@pytest.mark.parametrize("phase", ["joint", "per_axis"])
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_c40_predictions_at_points_in_another_order(rng: np.random.Generator, covariance: str, phase: str) -> None:
    """To the bit for the test points, to rounding for the data, whose factor differs."""
    X, Y = np.round(rng.uniform(size=(40, 2)), 1), np.round(rng.uniform(-1.0, 2.0, size=(150, 2)), 1)
    y, g = rng.normal(size=40), random_batch(rng, 2, 2, unit=False)
    first: Any = predict_gp(g, X, y, 0.3, Y, covariance=covariance, phase=phase)
    order, rows = rng.permutation(150), rng.permutation(40)
    again: Any = predict_gp(g, X, y, 0.3, Y[order], covariance=covariance, phase=phase)
    np.testing.assert_array_equal(again.mean, first.mean[:, order])
    if covariance == "full":
        np.testing.assert_array_equal(again.covariance, first.covariance[:, order][:, :, order])
    else:
        np.testing.assert_array_equal(again.variance, first.variance[:, order])
    other = predict_gp(g, X[rows], y[rows], 0.3, Y, covariance=covariance, phase=phase)
    np.testing.assert_allclose(other.mean, first.mean, rtol=0, atol=1e-11)


@pytest.mark.usefixtures("backend")
def test_every_backend(rng: np.random.Generator) -> None:
    dtype = np.dtype(np.float64)
    for phase in ("joint", "per_axis"):
        test_c40_rows_and_columns_of_rectangles(rng, dtype, 3, phase)
        test_c40_predictions_at_points_in_another_order(rng, "diagonal", phase)
        assert_rows_in_another_order(rng, dtype, 2, phase, 70)
