"""Regular grids: Schur's algorithm against our dense path and against LAPACK's Cholesky alone on all threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

from bench.micro import problems
from maskerade_fast.ops.gp import predict_gp
from maskerade_fast.ops.likelihood import log_likelihood

SIZES = pytest.mark.parametrize(("n_points", "n_mixtures"), problems.GRIDS)
STRUCTURES = pytest.mark.parametrize(
    "structure", ["toeplitz", pytest.param("dense", marks=pytest.mark.peer("dense"))], ids=str
)


def timed(benchmark: Any, structure: str, n_points: int, call: Any, *args: Any, **options: Any) -> tuple[Any, Any]:
    """Return the result of a timed structure and that of the other; dense calls of the largest size take seconds."""
    few = structure == "dense"
    once = few and n_points > 5000
    if few:
        rounds = {"rounds": 1 if once else 3, "warmup_rounds": 0 if once else 1}
        result = benchmark.pedantic(call, args, options | {"structure": structure}, **rounds)
    else:
        call(*args, **options)
        result = benchmark(call, *args, **options)
    return result, call(*args, **options) if few else None


@pytest.mark.benchmark(group="regular grid")
@STRUCTURES
@SIZES
def test_likelihood(benchmark: Any, n_points: int, n_mixtures: int, structure: str) -> None:
    g, X, y = problems.series(n_points, n_mixtures)
    result, other = timed(benchmark, structure, n_points, log_likelihood, g, X, y, problems.NOISE)
    assert result.info.tolist() == [0] * n_mixtures
    if other is not None:
        np.testing.assert_allclose(result.value, other.value, rtol=1e-10)


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
@STRUCTURES
@SIZES
def test_gradient(benchmark: Any, n_points: int, n_mixtures: int, structure: str) -> None:
    g, X, y = problems.series(n_points, n_mixtures)
    result, other = timed(benchmark, structure, n_points, log_likelihood, g, X, y, problems.NOISE, grad=True)
    for name in ("weights", "means", "scales", "noise_variance"):
        own = getattr(result.grad, name)
        assert np.isfinite(own).all()
        if other is not None:
            np.testing.assert_allclose(getattr(other.grad, name), own, rtol=0, atol=1e-9 * abs(own).max())


@pytest.mark.benchmark(group="regular grid, predictions of 20 points")
@STRUCTURES
@SIZES
def test_predictions(benchmark: Any, n_points: int, n_mixtures: int, structure: str) -> None:
    g, X, y = problems.series(n_points, n_mixtures)
    arguments = (g, X, y, problems.NOISE, n_points + np.arange(20.0))
    result, other = timed(benchmark, structure, n_points, predict_gp, *arguments)
    assert result.info.tolist() == [0] * n_mixtures
    if other is not None:
        np.testing.assert_allclose(other.mean, result.mean, atol=1e-10)
        np.testing.assert_allclose(other.variance, result.variance, atol=1e-10)
