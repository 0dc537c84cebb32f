"""Log-likelihoods and Cholesky factors of the GPU backend, on the emulator, in each regime.

The regimes' limits are lowered so that all of them are reached with few points.
"""

from __future__ import annotations

import importlib
import math
from types import ModuleType
from typing import Any

import numpy as np
import oracle
import pytest
from gpu_calls import (
    EVERY_ORDER,
    assert_all_equal,
    assert_gradients,
    assert_meets_the_oracle,
    call,
    likelihood,
    positive,
    ragged,
    regimes,
)
from numpy.testing import assert_allclose, assert_array_equal

from maskerade_fast.backends import cpu

OPERATIONS = "likelihood"
SWEEP = pytest.mark.sweep  # minutes of compiled variants: run with --sweep
EVERY_REGIME = pytest.mark.parametrize("regime", ["small", "panels", "blocked"])
EPS = np.finfo(float).eps


@pytest.fixture(params=[90, 75], ids=["mma", "fma"])
def capability(emulated: Any, request: pytest.FixtureRequest) -> int:
    """A card with tensor instructions for float64, and one without."""
    emulated.state.devices[0].capability = request.param
    return int(request.param)


def assert_meets_the_cpu(gpu: ModuleType, computed: Any, *problem: Any) -> None:
    """Values and gradients of matrices that all have a factor."""
    expected: Any = likelihood(cpu, *problem, grad=True)
    assert_allclose(computed[0], expected[0], rtol=1e-12)
    assert_gradients(computed[3], expected[3])


@SWEEP
@EVERY_ORDER
@EVERY_REGIME
@pytest.mark.parametrize("phase", ["joint", "per_axis"])
@pytest.mark.parametrize(("n_dims", "n_points"), [(1, 17), (2, 33), (18, 5)])
@pytest.mark.usefixtures("capability")
def test_oracle(gpu: ModuleType, rng: np.random.Generator, regime: str, n_dims: int, n_points: int, phase: str) -> None:
    batch, limits = ragged(rng, [1, 3], n_dims), regimes(gpu, regime)
    X, y = rng.uniform(-2, 2, size=(n_points, n_dims)), rng.normal(size=n_points)
    noise = rng.uniform(0.05, 0.5, size=(2, n_points) if n_dims == 2 else (2, 1))
    value, _ = assert_meets_the_oracle(gpu, batch, X, y, noise, limits, phase)
    assert_array_equal(likelihood(gpu, batch, X, y, noise, limits, per_axis=phase == "per_axis")[0], value)


@SWEEP
@EVERY_REGIME
@pytest.mark.parametrize("n_points", [1, 2, 15, 16, 18, 31, 32, 48, 49, 63, 64, 65, 97])
def test_number_of_points(gpu: ModuleType, rng: np.random.Generator, regime: str, n_points: int) -> None:
    """Both sides of tiles, panels and blocks."""
    problem = ragged(rng, [2, 1], 1), rng.uniform(-2, 2, size=(n_points, 1)), rng.normal(size=n_points), 0.1
    assert_meets_the_cpu(gpu, likelihood(gpu, *problem, regimes(gpu, regime), grad=True), *problem)


@SWEEP
@EVERY_REGIME
@pytest.mark.parametrize("n_dims", [5, 8])
def test_number_of_axes(gpu: ModuleType, rng: np.random.Generator, regime: str, n_dims: int) -> None:
    X, y = rng.uniform(-1, 1, size=(7, n_dims)), rng.normal(size=7)
    assert_meets_the_oracle(gpu, ragged(rng, [2], n_dims), X, y, 0.1, regimes(gpu, regime), "per_axis")


def test_axes_at_once(gpu: ModuleType) -> None:
    assert [gpu.axes_at_once(n) for n in (1, 2, 5, 8, 9, 16, 17, 18)] == [1, 2, 5, 8, 5, 8, 6, 6]


@SWEEP
@EVERY_REGIME
def test_300_components(gpu: ModuleType, rng: np.random.Generator, regime: str) -> None:
    X, y = rng.uniform(-1, 1, size=(6, 1)), rng.normal(size=6)
    assert_meets_the_oracle(gpu, ragged(rng, [300, 1], 1), X, y, 0.1, regimes(gpu, regime))


@SWEEP
@EVERY_REGIME
def test_noise_tables(gpu: ModuleType, rng: np.random.Generator, regime: str) -> None:
    batch = ragged(rng, [2, 3], 1)
    X, y = rng.uniform(-1, 1, size=(20, 1)), rng.normal(size=20)
    for shape in [(1, 1), (2, 1), (1, 20), (2, 20)]:
        noise = rng.uniform(0.1, 0.4, size=shape)
        _, gradients = assert_meets_the_oracle(gpu, batch, X, y, noise, regimes(gpu, regime))
        assert gradients[3].shape == (2, shape[1])


def repeated(rng: np.random.Generator, n_points: int, where: int) -> tuple[Any, Any]:
    """Inputs of which number `where` repeats the first: without noise that pivot is exactly 0, or rounding."""
    X = np.arange(float(n_points))[:, None]
    X[where] = X[0]
    return X, rng.normal(size=n_points)


NARROW = (np.ones(1), np.zeros((1, 1)), np.full((1, 1), 0.5))
"""Neighbours one apart are nearly independent, so that only repeated inputs make the matrix singular."""


@EVERY_ORDER
@EVERY_REGIME
@pytest.mark.parametrize("where", [1, 15, 16, 30, 33, 47, 69])
def test_a_failed_matrix_costs_its_own_element(
    gpu: ModuleType, rng: np.random.Generator, regime: str, where: int
) -> None:
    X, y = repeated(rng, 70, where)
    noise = np.array([[0.1], [0.0], [0.2]])
    value, info, shift, gradients = likelihood(gpu, [NARROW] * 3, X, y, noise, regimes(gpu, regime), grad=True)
    assert_array_equal(info, [0, where + 1, 0])
    assert_array_equal(shift, np.zeros(3))
    assert value[1] == -math.inf
    good = likelihood(gpu, [NARROW] * 2, X, y, noise[[0, 2]], regimes(gpu, regime), grad=True)
    assert_array_equal(value[[0, 2]], good[0])
    assert all(np.isnan(gradient[1]).all() for gradient in gradients)
    assert_all_equal([gradient[[0, 2]] for gradient in gradients], good[3])


@EVERY_REGIME
def test_gradient_of_a_failed_matrix_by_point(gpu: ModuleType, rng: np.random.Generator, regime: str) -> None:
    X, y = repeated(rng, 20, 18)
    value, info, _, gradients = likelihood(gpu, [NARROW], X, y, np.zeros((1, 20)), regimes(gpu, regime), grad=True)
    assert (value[0], info[0]) == (-math.inf, 19)
    assert all(np.isnan(g).all() for g in gradients)


@EVERY_REGIME
def test_bound_of_pivots(gpu: ModuleType, regime: str) -> None:
    """A pivot on both sides of N eps max diag: two equal points, noise below and above it."""
    X, y = np.zeros((2, 1)), np.ones(2)
    noise = np.array([[0.5], [3.0]]) * EPS
    _, info, _, _ = likelihood(gpu, [NARROW] * 2, X, y, noise, regimes(gpu, regime))
    assert_array_equal(info, [2, 0])


@SWEEP
@EVERY_REGIME
def test_an_ill_conditioned_matrix_has_a_factor(gpu: ModuleType, rng: np.random.Generator, regime: str) -> None:
    """Condition 2e13: solved by products with the inverses of diagonal tiles, it would fail."""
    X = np.linspace(0.0, 1.0, 144)[:, None]
    smooth: Any = [(np.ones(1), np.zeros((1, 1)), np.full((1, 1), 3.0))]
    problem = smooth, X, np.sin(7.0 * X[:, 0]), 1e-12
    expected, computed = likelihood(cpu, *problem), likelihood(gpu, *problem, regimes(gpu, regime))
    assert (expected[1][0], computed[1][0]) == (0, 0)
    assert_allclose(computed[0], expected[0], rtol=144 * EPS * 2e13)


@EVERY_REGIME
def test_overflow_fails_at_the_first_column(gpu: ModuleType, regime: str) -> None:
    huge = (np.array([1e308, 1e308]), np.zeros((2, 1)), np.ones((2, 1)))
    value, info, _, _ = likelihood(gpu, [huge], np.arange(3.0)[:, None], np.ones(3), 0.1, regimes(gpu, regime))
    assert (value[0], info[0]) == (-math.inf, 1)


@EVERY_REGIME
def test_padding_of_large_covariances(gpu: ModuleType, rng: np.random.Generator, regime: str) -> None:
    """The bound of pivots is above 1 here, and the padding's must not count as bad."""
    tall = (np.full(1, 1e16), np.zeros((1, 1)), np.full((1, 1), 0.5))
    X, y = np.arange(20.0)[:, None], rng.normal(size=20)
    assert_meets_the_oracle(gpu, [tall], X, y, 0.1, regimes(gpu, regime))


@EVERY_REGIME
@pytest.mark.parametrize(("jitter", "step"), [(1e-2, 1e-4), (3e-12, 1e-2), (3e-14, 1.0), (1e-17, None)])
def test_jitter_is_tried_in_steps(
    gpu: ModuleType, rng: np.random.Generator, regime: str, jitter: float, step: float | None
) -> None:
    """N eps is 8e-15 here: the first of 1e-4, 1e-2 and 1 times `jitter` above it repairs the matrix."""
    X, y = repeated(rng, 36, 34)
    noise = np.array([[0.1], [0.0]])
    value, info, shift, gradients = likelihood(
        gpu, [NARROW] * 2, X, y, noise, regimes(gpu, regime), grad=True, jitter=jitter
    )
    assert (info[0], shift[0]) == (0, 0.0)
    alone = likelihood(gpu, [NARROW], X, y, noise[:1], regimes(gpu, regime), grad=True)
    assert value[0] == alone[0][0]
    if step is None:
        assert (value[1], info[1], shift[1]) == (-math.inf, 35, 0.0)
        assert all(np.isnan(g[1]).all() for g in gradients)
        return
    assert_allclose(shift, [0.0, step * jitter], rtol=1e-15)
    if step == 1e-4:
        noisy = likelihood(gpu, [NARROW], X, y, shift[1:], regimes(gpu, regime), grad=True)
        assert_allclose(value[1], noisy[0][0], rtol=1e-12)
        for one, other in zip(gradients, noisy[3], strict=True):
            assert_allclose(one[1], other[0], rtol=1e-9, atol=1e-9 * np.abs(other).max())


@EVERY_REGIME
def test_chunks_leave_the_bits(gpu: ModuleType, rng: np.random.Generator, regime: str) -> None:
    """Of one mixture and of two; with a trend, whose two functions stand in the place of one more component each."""
    X, y = rng.uniform(-1, 1, size=(40, 1)), rng.normal(size=40)
    limits = regimes(gpu, regime)
    problem = ragged(rng, [2, 5, 1, 1], 1), X, y, 0.1, limits
    each = gpu.way_of(40, limits, True)[0]
    for basis, more in ((None, 0), (np.c_[np.ones(40), X], 1)):
        options: dict[str, Any] = {"grad": True, "basis": basis}
        whole = likelihood(gpu, *problem, **options)
        least = each + 16 * 48 * (5 + more)
        for bound in (least, 2 * each + 16 * 48 * (7 + 2 * more)):
            parts = likelihood(gpu, *problem, **options, max_bytes=bound)
            assert_all_equal([parts[0], *parts[3]], [whole[0], *whole[3]])
        with pytest.raises(MemoryError, match=f"max_bytes={least - 1}"):
            likelihood(gpu, *problem, **options, max_bytes=least - 1)


@SWEEP
@pytest.mark.parametrize("n_points", [129, 200])
@pytest.mark.usefixtures("capability")
def test_a_batch_and_a_card_leave_the_bits(
    gpu: ModuleType, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, n_points: int
) -> None:
    """Blocks of threads are taller where there are enough of them for the card's multiprocessors."""
    batch = ragged(rng, [2, 1, 3], 1)
    X, y = rng.uniform(-9, 9, size=(n_points, 1)), rng.normal(size=n_points)
    limits, blocked = regimes(gpu, "blocked"), gpu._blocked
    load, heights = blocked.load, set()
    low = likelihood(gpu, batch, X, y, 0.1, limits, grad=True)
    monkeypatch.setattr(blocked, "device_limits", lambda: gpu.device_limits()._replace(multiprocessors=1))

    def noted(*args: Any, **defines: Any) -> Any:
        heights.add(defines["MF_HEIGHT"])
        return load(*args, **defines)

    monkeypatch.setattr(blocked, "load", noted)
    tall = likelihood(gpu, batch, X, y, 0.1, limits, grad=True)
    assert heights == {64, 128}
    alone = likelihood(gpu, batch[2:], X, y, 0.1, limits, grad=True)
    assert_all_equal([tall[0], *tall[3][:3]], [low[0], *low[3][:3]])
    assert_all_equal([alone[0], *alone[3][:3]], [low[0][2:], *(a[3:] for a in low[3][:3])])
    assert_meets_the_cpu(gpu, low, batch, X, y, 0.1)


def test_memory_without_a_bound(gpu: ModuleType, emulated: Any, rng: np.random.Generator) -> None:
    emulated.cupy.cuda.Device.mem_info = property(lambda self: (1000, 80 * 10**9))
    try:
        with pytest.raises(MemoryError, match="half of the device's free memory"):
            likelihood(gpu, [NARROW], *repeated(rng, 40, 3), 0.1, regimes(gpu, "panels"))
    finally:
        emulated.cupy.cuda.Device.mem_info = property(lambda self: (80 * 10**9, 80 * 10**9))


def test_regimes_of_cards(gpu: ModuleType) -> None:
    """Shared memory of an H100, an A100, an RTX and a T4: points of a matrix and of a panel, tiles of a panel."""
    kilobytes = (227, 163, 99, 64)
    limits = [gpu.regimes_of(k * 1024, False)[:3] for k in kilobytes]
    assert limits == [(224, 320, 109), (192, 320, 77), (144, 320, 45), (112, 320, 27)]
    limits = [gpu.regimes_of(k * 1024, True)[:3] for k in kilobytes]
    assert limits == [(224, 704, 103), (176, 704, 71), (144, 640, 40), (112, 400, 25)]


def test_threads_share_out_an_sm(gpu: ModuleType, emulated: Any) -> None:
    """Of an H100: four matrices of 96 points, two of 144, one of 208."""
    assert [gpu.small_block(n, True, 512) for n in (96, 144, 208)] == [128, 256, 512]
    assert [gpu.small_block(n, True, 256) for n in (96, 144, 208)] == [128, 128, 256]
    assert gpu.threads_of({"MF_AXES": 1}) == 512
    assert gpu.threads_of({"MF_AXES": 2}) == gpu.threads_of({"MF_AXES": 1, "MF_NO_MMA": 1}) == 256


@SWEEP
@pytest.mark.parametrize("grad", [False, True])
def test_regimes_go_by_the_card(gpu: ModuleType, emulated: Any, rng: np.random.Generator, grad: bool) -> None:
    """Both sides of each limit of a T4, the card with the least shared memory."""
    emulated.state.devices[0].shared_bytes = 64 * 1024
    limits = gpu.regimes_of(64 * 1024, grad)
    assert 0 < limits.small < limits.panels <= 400
    for n_points, name in [
        (limits.small, "likelihood_shared_f64"),
        (limits.small + 1, "likelihood_panel_f64"),
        (limits.panels, "likelihood_panel_f64"),
        (limits.panels + 1, "covariance_f64"),
    ]:
        emulated.state.launches.clear()
        problem = ragged(rng, [2], 1), rng.uniform(-1, 1, size=(n_points, 1)), rng.normal(size=n_points), 0.1
        if grad:
            assert_meets_the_oracle(gpu, *problem)
        else:
            assert_allclose(likelihood(gpu, *problem)[0], oracle.log_likelihood(*problem), rtol=1e-12)
        assert name in emulated.state.launches


@SWEEP
def test_single_precision(gpu: ModuleType, rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(4, 1)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    small: list[Any] = [tuple(a.astype(np.float32) for a in NARROW)]
    value, info, shift, gradients = likelihood(gpu, small, X, y, 0.1, grad=True)
    assert {a.dtype for a in (value, shift, *gradients)} == {np.dtype(np.float32)}
    assert info.dtype == np.int32
    assert_allclose(value, oracle.log_likelihood([NARROW], X, y, 0.1), rtol=1e-6)


# ---- factors of given matrices ----


@pytest.fixture
def factors(emulated: Any) -> ModuleType:
    """The module of factors."""
    return importlib.import_module("maskerade_fast.backends.gpu.cholesky")


@SWEEP
@EVERY_ORDER
@pytest.mark.parametrize("n", [1, 16, 31, 32, 33, 70])
@pytest.mark.usefixtures("capability")
def test_cholesky(factors: ModuleType, rng: np.random.Generator, n: int) -> None:
    matrices = positive(rng, 3, n)
    upper = np.triu(np.full((n, n), np.nan), 1)  # is not read
    for width in (64, 128):
        lower, info, shift = call(factors.factored, matrices + upper, 0.0, width)
        assert_allclose(lower, np.linalg.cholesky(matrices), rtol=0.0, atol=1e-12 * np.sqrt(matrices.max()))
        assert_array_equal(np.triu(lower, 1), 0.0)
        assert_array_equal(info, 0)
        assert_array_equal(shift, 0.0)


@SWEEP
def test_cholesky_of_a_matrix_near_singular(factors: ModuleType) -> None:
    """Its pivots fall to 1e-12: rows divided by explicit inverses of the squares would leave 100 times the residual."""
    lags = np.subtract.outer(np.linspace(0.0, 1.0, 150), np.linspace(0.0, 1.0, 150))
    matrix = np.exp(-2.0 * lags**2) + 1e-12 * np.eye(150)
    (lower,), (info,), _ = call(factors.cholesky, matrix[None])
    assert info == 0
    assert_allclose(lower @ lower.T, matrix, rtol=0.0, atol=20 * EPS)


def test_cholesky_fails_and_is_repaired_alone(factors: ModuleType, rng: np.random.Generator) -> None:
    matrices = positive(rng, 4, 40)
    matrices[1, 20, :] = matrices[1, :, 20] = 0.0  # a pivot of 0
    matrices[3, 5, 5] = np.nan
    for jitter in (0.0, 1e-6):
        expected = cpu.cholesky(matrices, jitter)
        lower, info, shift = call(factors.cholesky, matrices, jitter)
        assert_array_equal(info, expected[1])
        assert_allclose(shift, expected[2], rtol=1e-14)
        assert_allclose(lower, expected[0], rtol=0.0, atol=1e-12 * np.sqrt(np.nanmax(matrices)))
    assert list(info) == [0, 0, 0, expected[1][3]]
    assert shift[1] > 0.0


def test_cholesky_in_chunks(factors: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    matrices = positive(rng, 3, 20).astype(np.float32)
    whole = call(factors.cholesky, matrices)
    assert [a.dtype for a in whole] == [np.float32, np.int32, np.float32]
    monkeypatch.setattr(factors, "CHUNK_BYTES", 1)
    assert_array_equal(call(factors.cholesky, matrices)[0], whole[0])
    assert call(factors.cholesky, matrices[:0])[0].shape == (0, 20, 20)
    assert call(factors.cholesky, matrices[:, :0, :0])[0].shape == (3, 0, 0)
