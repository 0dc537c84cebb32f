"""GP predictions of the GPU backend, on the emulator: the oracle, the CPU's, clipped variances, chunks, failures."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gpu_calls import EVERY_ORDER, assert_all_equal, card, gp_oracle, gp_problem, predict
from numpy.testing import assert_allclose, assert_array_equal

from maskerade_fast.backends import cpu

OPERATIONS = "gp"
EPS = np.finfo(float).eps


def assert_meets_the_cpu(gpu: ModuleType, arguments: list[Any]) -> None:
    for computed, expected in zip(predict(gpu, arguments), predict(cpu, arguments), strict=True):
        assert_allclose(computed, expected, rtol=0.0, atol=1e-12)


@EVERY_ORDER
@pytest.mark.parametrize("per_axis", [False, True])
@pytest.mark.parametrize(
    ("sizes", "n_dims", "n_points", "n_new"),
    [([3, 1, 4], 1, 15, 9), ([2, 1], 3, 33, 31), ([1], 2, 32, 33), ([2], 1, 70, 32), ([1], 1, 1, 1)],
)
def test_oracle(
    gpu: ModuleType,
    rng: np.random.Generator,
    sizes: list[int],
    n_dims: int,
    n_points: int,
    n_new: int,
    per_axis: bool,
) -> None:
    arguments = gp_problem(rng, sizes, n_dims, n_points, n_new)
    expected = gp_oracle(arguments, "per_axis" if per_axis else "joint")
    mean, variance, covariance, info = predict(gpu, arguments, per_axis=per_axis)
    assert_allclose(mean, expected[0], rtol=0.0, atol=1e-12 * np.abs(arguments[5]).sum())
    assert_allclose(covariance, expected[1], rtol=0.0, atol=1e-12)
    assert_array_equal(covariance, np.swapaxes(covariance, 1, 2))
    assert_array_equal(variance, np.diagonal(covariance, axis1=1, axis2=2))
    assert_array_equal(info, np.zeros(len(sizes)))
    diagonal = predict(gpu, arguments, per_axis=per_axis, full=False)
    assert diagonal[2] is None
    assert_all_equal(diagonal[:2], (mean, variance))


def test_three_hundred_components(gpu: ModuleType, rng: np.random.Generator) -> None:
    arguments = gp_problem(rng, [300, 1], 2, 20, 7)
    assert_meets_the_cpu(gpu, arguments)


def test_noise_by_point(gpu: ModuleType, rng: np.random.Generator) -> None:
    arguments = gp_problem(rng, [3, 1], 1, 12, 5)
    for shape in ((2, 12), (1, 12), (1, 1)):
        arguments[6] = rng.uniform(0.01, 0.3, size=shape)
        assert_meets_the_cpu(gpu, arguments)


@EVERY_ORDER
def test_interpolation_without_noise(gpu: ModuleType, rng: np.random.Generator) -> None:
    """At the data the variance is 0 up to rounding: negative values are clipped, and never reported."""
    X, y = rng.uniform(size=(40, 1)), rng.normal(size=40)
    arguments = [np.array([0, 1]), np.ones(1), np.full((1, 1), 3.0), np.full((1, 1), 8.0), X, y, np.zeros((1, 1)), X]
    mean, variance, covariance, info = predict(gpu, arguments)
    assert info[0] == 0
    assert_allclose(mean[0], y, rtol=0.0, atol=1e-7)
    assert (variance >= 0.0).all()
    assert variance.max() < 1e-12
    assert (variance == 0.0).any()
    assert_array_equal(np.diagonal(covariance[0]), variance[0])


def test_ill_conditioned_variance(gpu: ModuleType) -> None:
    """Condition number above 1e10: the explicit inverse gives -9e-6 to 1.6e-5 where all variances are below 1e-9."""
    X = np.linspace(0, 1, 60)[:, None]
    mixture = [np.array([0, 1]), np.ones(1), np.full((1, 1), 0.1), np.full((1, 1), 0.2)]
    arguments = [*mixture, X, np.sin(6 * X[:, 0]), np.full((1, 1), 1e-10), np.linspace(0, 1, 50)[:, None]]
    _, variance, covariance, info = predict(gpu, arguments)
    assert info[0] == 0
    assert ((variance >= 0.0) & (variance <= 1e-9)).all()
    assert_array_equal(np.diagonal(covariance[0]), variance[0])


@EVERY_ORDER
@pytest.mark.parametrize("n_points", [1, 5, 40])
def test_variance_beyond_rounding_is_nan(gpu: ModuleType, n_points: int) -> None:
    """The bound is 8 N eps max diag(C) (1 + sum |C^-1 k|)^2; with C = I and k = (1, 0, ...) that is 32 N eps."""
    expected = np.zeros((1, 34))
    expected[0, [0, 1, 2, 33]] = -31.9 * n_points * EPS, -32.1 * n_points * EPS, 0.5, np.nan
    solved = np.zeros((1, n_points, 34))
    solved[0, 0] = 1.0
    variance = card(expected)
    arrays = (np.eye(n_points)[None], np.array([0, 1]), np.ones(1), np.zeros(1), solved)
    sizes = tuple(np.int64(n) for n in (n_points, 34, 34, 0))
    gpu.load("gp", "gp_clip_f64")((2,), (256,), (*map(card, arrays), variance, *sizes))
    expected[0, :2] = 0.0, np.nan
    assert_array_equal(variance.get(), expected)


def test_a_variance_that_rounding_does_not_explain_is_reported(
    gpu: ModuleType, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A factor that is no factor of C: half of it gives twice the |v|."""
    arguments = gp_problem(rng, [2, 1], 1, 8, 3)
    arguments[6][:] = 1e-3
    genuine = gpu.cholesky

    def halved(matrices: Any, jitter: float) -> Any:
        factors, info, shift = genuine(matrices, jitter)
        factors[1] *= 0.5
        return factors, info, shift

    expected = predict(gpu, arguments)
    monkeypatch.setattr(gpu, "cholesky", halved)
    arguments[7] = arguments[4][:3]  # at data the variance is far below k(0)
    _, variance, covariance, info = predict(gpu, arguments)
    assert info.tolist() == [0, -1]
    assert np.isnan(variance[1]).any()
    assert_array_equal(np.diagonal(covariance[1]), variance[1])
    assert np.isfinite(variance[0]).all()
    assert expected[3].tolist() == [0, 0]


def test_failed_mixture_is_nan_alone(gpu: ModuleType) -> None:
    X, y, X_new = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, -1.0, 0.5]), np.array([[0.5], [1.5]])

    def arguments(weights: list[float], noise: list[float]) -> list[Any]:
        good = np.array(weights) == 1.0
        means, scales = np.where(good, 0.3, 0.0)[:, None], np.where(good, 0.1, 0.0)[:, None]
        offsets = np.arange(len(weights) + 1)
        return [offsets, np.array(weights), means, scales, X, y, np.array(noise)[:, None], X_new]

    alone = predict(gpu, arguments([1.0], [0.01]))
    for place in range(3):
        weights, noise = [1.0, 1.0], [0.01, 0.01]
        weights.insert(place, 1e6)
        noise.insert(place, 0.0)
        results = predict(gpu, arguments(weights, noise))
        assert results[3][place] == 2
        assert all(np.isnan(a[place]).all() for a in results[:3])
        for b in {0, 1, 2} - {place}:
            for computed, expected in zip(results, alone, strict=True):
                assert_array_equal(computed[b], expected[0])
    repaired = predict(gpu, arguments([1e6], [0.0]), jitter=1e-3)
    expected = predict(cpu, arguments([1e6], [0.0]), jitter=1e-3)
    assert repaired[3][0] == 0
    assert_allclose(repaired[0], expected[0], rtol=1e-6)  # condition number 3e7
    assert_allclose(repaired[1], expected[1], rtol=1e-6)


def test_bits_do_not_depend_on_company_or_memory(emulated: Any, gpu: ModuleType, rng: np.random.Generator) -> None:
    arguments = gp_problem(rng, [2, 1, 3], 2, 37, 140)
    expected = predict(gpu, arguments, full=False)
    n_solves = emulated.state.launches.count("gp_solve_f64")
    square = 4 * 48**2  # numbers in a padded matrix, its factor and two more
    for max_bytes, n_chunks in ((8 * (square + 37 * (140 + 5)), 3), (8 * (square + 37 * (128 + 5)), 6)):
        emulated.state.launches.clear()
        results = predict(gpu, arguments, full=False, max_bytes=max_bytes)
        assert emulated.state.launches.count("gp_solve_f64") == n_chunks * n_solves
        for computed, whole in zip(results, expected, strict=True):
            assert_array_equal(computed, whole)
    part = predict(gpu, [*arguments[:7], arguments[7][50:83]])
    assert_all_equal(part[:2], [a[:, 50:83] for a in expected[:2]])
    lone = [np.array([0, 1]), *(a[2:3] for a in arguments[1:4]), *arguments[4:6], arguments[6][1:2], arguments[7]]
    assert_array_equal(predict(gpu, lone, full=False)[0][0], expected[0][1])
    few = [*arguments[:7], arguments[7][:40]]
    chunked = predict(gpu, few, max_bytes=8 * (square + 37 * (40 + 2) + 40**2))
    assert_all_equal(chunked, predict(gpu, few))


def test_memory_bound(emulated: Any, gpu: ModuleType, rng: np.random.Generator) -> None:
    arguments = gp_problem(rng, [1], 1, 50, 500)
    with pytest.raises(MemoryError, match=r"50 points and 128 test points needs \d+ bytes, more than max_bytes=900"):
        predict(gpu, arguments, full=False, max_bytes=900)
    with pytest.raises(MemoryError, match=r"50 points and 500 test points needs \d+ bytes, more than max_bytes=900"):
        predict(gpu, arguments, max_bytes=900)
    assert "gp_solve_f64" not in emulated.state.launches


def test_empty_inputs(gpu: ModuleType, rng: np.random.Generator) -> None:
    arguments = gp_problem(rng, [1, 2], 1, 4, 3)
    mean, variance, covariance, info = predict(gpu, [*arguments[:7], np.empty((0, 1))])
    assert (mean.shape, variance.shape, covariance.shape) == ((2, 0), (2, 0), (2, 0, 0))
    assert info.tolist() == [0, 0]
    nobody = [np.zeros(1, dtype=np.int64), *(a[:0] for a in arguments[1:4]), *arguments[4:6], np.ones((1, 1))]
    mean, variance, covariance, info = predict(gpu, [*nobody, arguments[7]])
    assert (mean.shape, variance.shape, covariance.shape, info.shape) == ((0, 3), (0, 3), (0, 3, 3), (0,))
    assert (mean.dtype, info.dtype) == (np.float64, np.int32)


def test_float32_and_layouts(gpu: ModuleType, rng: np.random.Generator) -> None:
    arguments = [a if a.dtype.kind == "i" else a.astype(np.float32) for a in gp_problem(rng, [2], 2, 20, 7)]
    exact = [a if a.dtype.kind == "i" else a.astype(np.float64) for a in arguments]
    single, double = predict(gpu, arguments), predict(gpu, exact)
    for a, b in zip(single[:3], double[:3], strict=True):
        assert a.dtype == np.float32
        assert_array_equal(a, b.astype(np.float32))
    fortran = [np.asfortranarray(a) for a in exact]
    assert_all_equal(predict(gpu, fortran), double)


def test_bounds_of_rounding_know_noise_trend_and_shift(gpu: ModuleType, rng: np.random.Generator) -> None:
    """What a variance of 0 may be rounded by grows with the largest diagonal entry of the factored matrix."""
    offsets, weights, means, scales, X, _, _, _ = gp_problem(rng, [2, 1], 1, 9, 1)
    X[1] = X[0]  # singular without noise at both: the factors need a shift
    noise = np.array([[0.0, 0.0, *np.full(7, 0.2)], [0.5, 0.1, *np.full(7, 0.3)]])
    basis = np.c_[np.ones(9), X]
    arrays = map(card, (offsets, weights, means, scales))
    mixtures = gpu.mixtures_of(*arrays, False)
    for V in (None, card(basis)):
        chunk, info = gpu._factored(mixtures, card(X), card(noise), V, 0, 2, 1e-3)
        assert not info.get().any()
        matrices = cpu.gram(offsets, weights, means, scales, X, None, noise, per_axis=False)
        trend = 0.0 if V is None else (basis * basis).sum(axis=1)
        matrices += 0.0 if V is None else basis @ basis.T
        _, _, shift = cpu.cholesky(matrices, 1e-3)
        assert shift[0] > 0.0 == shift[1]
        assert_allclose(chunk.largest_noise.get(), (noise + trend).max(axis=1) + shift, rtol=1e-12)
