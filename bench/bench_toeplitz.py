"""Regular grids: Schur's algorithm against our dense path and against LAPACK's Cholesky alone on all threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import problems
import pytest
import scipy.linalg

from maskerade_fast.ops.gp import predict_gp
from maskerade_fast.ops.likelihood import log_likelihood

SIZES = pytest.mark.parametrize(("n_points", "n_mixtures"), problems.GRIDS)
NOISE = problems.NOISE


def rounds(n_points: int) -> dict[str, int]:
    """Dense calls of the largest size take seconds."""
    return {"rounds": 1 if n_points > 5000 else 3, "warmup_rounds": 0 if n_points > 5000 else 1}


@pytest.mark.benchmark(group="regular grid")
@SIZES
def test_toeplitz(benchmark: Any, n_points: int, n_mixtures: int) -> None:
    g, X, y = problems.series(n_points, n_mixtures)
    log_likelihood(g, X, y, NOISE)
    result = benchmark(log_likelihood, g, X, y, NOISE)
    assert result.info.tolist() == [0] * n_mixtures
    if n_points < 5000:
        np.testing.assert_allclose(result.value, log_likelihood(g, X, y, NOISE, structure="dense").value, rtol=1e-10)


@pytest.mark.benchmark(group="regular grid")
@pytest.mark.peer("dense")
@SIZES
def test_dense(benchmark: Any, n_points: int, n_mixtures: int) -> None:
    g, X, y = problems.series(n_points, n_mixtures)
    options = {"structure": "dense"}
    result = benchmark.pedantic(log_likelihood, (g, X, y, NOISE), options, **rounds(n_points))
    np.testing.assert_allclose(result.value, log_likelihood(g, X, y, NOISE).value, rtol=1e-10)


@pytest.mark.benchmark(group="regular grid")
@pytest.mark.peer("Cholesky alone")
@SIZES
def test_cholesky(benchmark: Any, n_points: int, n_mixtures: int) -> None:
    """DPOTRF on all threads of SciPy's BLAS, in place, as often as there are mixtures."""
    column = np.zeros(n_points)
    column[:2] = 2.0, 0.5
    matrices = [np.asfortranarray(scipy.linalg.toeplitz(column)) for _ in range(n_mixtures)]
    copies: list[Any] = []

    def copied() -> None:
        copies[:] = [m.copy(order="F") for m in matrices]

    def call() -> None:
        for m in copies:
            scipy.linalg.lapack.dpotrf(m, lower=1, clean=0, overwrite_a=1)

    benchmark.pedantic(call, setup=copied, rounds=1 if n_points > 5000 else 3)
    assert copies[0][0, 0] == np.sqrt(2.0)


@pytest.mark.benchmark(group="regular grid, with gradient")
@SIZES
def test_toeplitz_gradient(benchmark: Any, n_points: int, n_mixtures: int) -> None:
    g, X, y = problems.series(n_points, n_mixtures)
    log_likelihood(g, X, y, NOISE, grad=True)
    result = benchmark(log_likelihood, g, X, y, NOISE, grad=True)
    assert np.isfinite(result.grad.means).all()


@pytest.mark.benchmark(group="regular grid, with gradient")
@pytest.mark.peer("dense")
@SIZES
def test_dense_gradient(benchmark: Any, n_points: int, n_mixtures: int) -> None:
    g, X, y = problems.series(n_points, n_mixtures)
    options = {"structure": "dense", "grad": True}
    repeats = {"rounds": 1} if n_points > 5000 else rounds(n_points)
    dense = benchmark.pedantic(log_likelihood, (g, X, y, NOISE), options, **repeats).grad
    fast = log_likelihood(g, X, y, NOISE, grad=True).grad
    for name in ("weights", "means", "scales", "noise_variance"):
        expected = getattr(dense, name)
        np.testing.assert_allclose(getattr(fast, name), expected, rtol=0, atol=1e-9 * abs(expected).max())


@pytest.mark.benchmark(group="regular grid, predictions of 20 points")
@SIZES
def test_toeplitz_predictions(benchmark: Any, n_points: int, n_mixtures: int) -> None:
    g, X, y = problems.series(n_points, n_mixtures)
    arguments = (g, X, y, NOISE, n_points + np.arange(20.0))
    predict_gp(*arguments)
    assert benchmark(predict_gp, *arguments).info.tolist() == [0] * n_mixtures


@pytest.mark.benchmark(group="regular grid, predictions of 20 points")
@pytest.mark.peer("dense")
@SIZES
def test_dense_predictions(benchmark: Any, n_points: int, n_mixtures: int) -> None:
    g, X, y = problems.series(n_points, n_mixtures)
    arguments = (g, X, y, NOISE, n_points + np.arange(20.0))
    dense = benchmark.pedantic(predict_gp, arguments, {"structure": "dense"}, **rounds(n_points))
    fast = predict_gp(*arguments)
    np.testing.assert_allclose(fast.mean, dense.mean, atol=1e-10)
    np.testing.assert_allclose(fast.variance, dense.variance, atol=1e-10)
