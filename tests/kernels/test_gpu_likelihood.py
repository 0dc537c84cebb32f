"""Log-likelihoods and Cholesky factors of the GPU backend, on the emulator, in each regime.

The regimes' limits are lowered so that all of them are reached with few points.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import oracle
import pytest
from conftest import ORDERS
from numpy.testing import assert_allclose, assert_array_equal
from regimes import regimes

SWEEP = pytest.mark.sweep  # minutes of compiled variants: run with --sweep

EVERY_ORDER = pytest.mark.parametrize("emulated", ORDERS, indirect=True)
EVERY_REGIME = pytest.mark.parametrize("regime", ["small", "panels", "blocked"])
EPS = np.finfo(float).eps
Batch = list[tuple[Any, Any, Any]]


@pytest.fixture
def door(emulated: Any) -> ModuleType:
    """The module of the door, on the emulator."""
    return importlib.import_module("maskerade_fast.backends.gpu.likelihood")


@pytest.fixture(params=[90, 75], ids=["mma", "fma"])
def card(emulated: Any, request: pytest.FixtureRequest) -> int:
    """A card with tensor instructions for float64, and one without."""
    emulated.state.devices[0].capability = request.param
    return int(request.param)


def ragged(rng: np.random.Generator, counts: list[int], n_dims: int) -> Batch:
    return [
        (rng.dirichlet(np.ones(n)), rng.normal(size=(n, n_dims)), rng.uniform(0.05, 0.4, size=(n, n_dims)))
        for n in counts
    ]


def run(door: ModuleType, batch: Batch, X: Any, y: Any, noise: Any, limits: Any = None, **settings: Any) -> Any:
    """value, info, shift and gradients on the host; without `limits` through the door."""
    import cupy

    options = {"per_axis": False, "jitter": 0.0, "grad": False, "max_bytes": None, **settings}
    offsets = np.concatenate([[0], np.cumsum([len(w) for w, _, _ in batch])]).astype(np.int64)
    arrays = [cupy.asarray(np.concatenate([m[k] for m in batch])) for k in range(3)]
    data = cupy.asarray(X), cupy.asarray(y), cupy.asarray(np.atleast_2d(noise))
    chosen = contextlib.nullcontext() if limits is None else mock.patch.object(door, "regimes_of", return_value=limits)
    with chosen:
        results = door.log_likelihood(offsets, *arrays, *data, **options)
    value, info, shift, gradients = results
    return value.get(), info.get(), shift.get(), None if gradients is None else [g.get() for g in gradients]


def assert_gradients(found: list[Any], expected: Any, rtol: float = 1e-9) -> None:
    weights, means, scales, noise = expected
    noise = noise if found[3].shape == noise.shape else noise.sum(axis=1, keepdims=True)
    for one, other in zip(found, (weights, means, scales, noise), strict=True):
        assert_allclose(one, other, rtol=0.0, atol=rtol * np.abs(other).max())


@SWEEP
@EVERY_ORDER
@EVERY_REGIME
@pytest.mark.parametrize("phase", ["joint", "per_axis"])
@pytest.mark.parametrize(("n_dims", "n_points"), [(1, 17), (2, 33), (18, 5)])
def test_oracle(
    door: ModuleType, card: int, rng: np.random.Generator, regime: str, n_dims: int, n_points: int, phase: str
) -> None:
    batch = ragged(rng, [1, 3], n_dims)
    X, y = rng.uniform(-2, 2, size=(n_points, n_dims)), rng.normal(size=n_points)
    noise = rng.uniform(0.05, 0.5, size=(2, n_points) if n_dims == 2 else (2, 1))
    limits = regimes(door, regime)
    per_axis = phase == "per_axis"
    value, info, shift, gradients = run(door, batch, X, y, noise, limits, grad=True, per_axis=per_axis)
    expected = oracle.log_likelihood(batch, X, y, noise if n_dims == 2 else noise[:, 0], phase)
    assert_allclose(value, expected, rtol=1e-12)
    assert_gradients(
        gradients, oracle.log_likelihood_gradient(batch, X, y, noise if n_dims == 2 else noise[:, 0], phase)
    )
    assert_array_equal(info, [0, 0])
    assert_array_equal(shift, [0.0, 0.0])
    assert_array_equal(run(door, batch, X, y, noise, limits, per_axis=per_axis)[0], value)


@SWEEP
@EVERY_REGIME
@pytest.mark.parametrize("n_points", [1, 2, 15, 16, 18, 31, 32, 48, 49, 63, 64, 65, 97])
def test_number_of_points(door: ModuleType, rng: np.random.Generator, regime: str, n_points: int) -> None:
    """Both sides of tiles, panels and blocks."""
    from maskerade_fast.backends import cpu

    batch = ragged(rng, [2, 1], 1)
    X, y = rng.uniform(-2, 2, size=(n_points, 1)), rng.normal(size=n_points)
    w, m, s = (np.concatenate([mixture[k] for mixture in batch]) for k in range(3))
    options: dict[str, Any] = {"per_axis": False, "jitter": 0.0, "max_bytes": None}
    expected = cpu.log_likelihood(np.array([0, 2, 3]), w, m, s, X, y, np.array([[0.1]]), grad=True, **options)
    value, _, _, gradients = run(door, batch, X, y, 0.1, regimes(door, regime), grad=True)
    assert_allclose(value, expected[0], rtol=1e-12)
    for one, other in zip(gradients, expected[3] or [], strict=True):
        # a single point leaves gradients in means and scales that are exactly 0
        assert_allclose(one, other, rtol=0.0, atol=1e-9 * np.abs(other).max())


@SWEEP
@EVERY_REGIME
@pytest.mark.parametrize("n_dims", [5, 8])
def test_number_of_axes(door: ModuleType, rng: np.random.Generator, regime: str, n_dims: int) -> None:
    batch = ragged(rng, [2], n_dims)
    X, y = rng.uniform(-1, 1, size=(7, n_dims)), rng.normal(size=7)
    value, _, _, gradients = run(door, batch, X, y, 0.1, regimes(door, regime), grad=True, per_axis=True)
    assert_allclose(value, oracle.log_likelihood(batch, X, y, 0.1, "per_axis"), rtol=1e-12)
    assert_gradients(gradients, oracle.log_likelihood_gradient(batch, X, y, 0.1, "per_axis"))


def test_axes_at_once(door: ModuleType) -> None:
    assert [door.axes_at_once(n) for n in (1, 2, 5, 8, 9, 16, 17, 18)] == [1, 2, 5, 8, 5, 8, 6, 6]


@SWEEP
@EVERY_REGIME
def test_300_components(door: ModuleType, rng: np.random.Generator, regime: str) -> None:
    batch = ragged(rng, [300, 1], 1)
    X, y = rng.uniform(-1, 1, size=(6, 1)), rng.normal(size=6)
    value, _, _, gradients = run(door, batch, X, y, 0.1, regimes(door, regime), grad=True)
    assert_allclose(value, oracle.log_likelihood(batch, X, y, 0.1), rtol=1e-12)
    assert_gradients(gradients, oracle.log_likelihood_gradient(batch, X, y, 0.1))


@SWEEP
@EVERY_REGIME
def test_noise_tables(door: ModuleType, rng: np.random.Generator, regime: str) -> None:
    batch = ragged(rng, [2, 3], 1)
    X, y = rng.uniform(-1, 1, size=(20, 1)), rng.normal(size=20)
    for shape in [(1, 1), (2, 1), (1, 20), (2, 20)]:
        noise = rng.uniform(0.1, 0.4, size=shape)
        value, _, _, gradients = run(door, batch, X, y, noise, regimes(door, regime), grad=True)
        full = np.broadcast_to(noise, (2, 20))
        assert_allclose(value, oracle.log_likelihood(batch, X, y, full), rtol=1e-12)
        assert gradients[3].shape == (2, shape[1])
        assert_gradients(gradients, oracle.log_likelihood_gradient(batch, X, y, full))


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
    door: ModuleType, rng: np.random.Generator, regime: str, where: int
) -> None:
    X, y = repeated(rng, 70, where)
    noise = np.array([[0.1], [0.0], [0.2]])
    value, info, shift, gradients = run(door, [NARROW] * 3, X, y, noise, regimes(door, regime), grad=True)
    assert_array_equal(info, [0, where + 1, 0])
    assert_array_equal(shift, np.zeros(3))
    assert value[1] == -math.inf
    good = run(door, [NARROW] * 2, X, y, noise[[0, 2]], regimes(door, regime), grad=True)
    assert_array_equal(value[[0, 2]], good[0])
    for one, other in zip(gradients, good[3], strict=True):
        assert np.isnan(one[1]).all()
        assert_array_equal(one[[0, 2]], other)


@EVERY_REGIME
def test_gradient_of_a_failed_matrix_by_point(door: ModuleType, rng: np.random.Generator, regime: str) -> None:
    X, y = repeated(rng, 20, 18)
    value, info, _, gradients = run(door, [NARROW], X, y, np.zeros((1, 20)), regimes(door, regime), grad=True)
    assert (value[0], info[0]) == (-math.inf, 19)
    assert all(np.isnan(g).all() for g in gradients)


@EVERY_REGIME
def test_bound_of_pivots(door: ModuleType, regime: str) -> None:
    """A pivot on both sides of N eps max diag: two equal points, noise below and above it."""
    X, y = np.zeros((2, 1)), np.ones(2)
    noise = np.array([[0.5], [3.0]]) * EPS
    _, info, _, _ = run(door, [NARROW] * 2, X, y, noise, regimes(door, regime))
    assert_array_equal(info, [2, 0])


@SWEEP
@EVERY_REGIME
def test_an_ill_conditioned_matrix_has_a_factor(door: ModuleType, rng: np.random.Generator, regime: str) -> None:
    """Condition 2e13: solved by products with the inverses of diagonal tiles, it would fail."""
    from maskerade_fast.backends import cpu

    smooth = (np.ones(1), np.zeros((1, 1)), np.full((1, 1), 3.0))
    X, noise = np.linspace(0.0, 1.0, 144)[:, None], np.array([[1e-12]])
    y = np.sin(7.0 * X[:, 0])
    options: dict[str, Any] = {"per_axis": False, "jitter": 0.0, "grad": False, "max_bytes": None}
    expected = cpu.log_likelihood(np.array([0, 1]), *smooth, X, y, noise, **options)
    value, info, _, _ = run(door, [smooth], X, y, noise, regimes(door, regime))
    assert (expected[1][0], info[0]) == (0, 0)
    assert_allclose(value, expected[0], rtol=144 * EPS * 2e13)


@EVERY_REGIME
def test_overflow_fails_at_the_first_column(door: ModuleType, regime: str) -> None:
    huge = (np.array([1e308, 1e308]), np.zeros((2, 1)), np.ones((2, 1)))
    value, info, _, _ = run(door, [huge], np.arange(3.0)[:, None], np.ones(3), 0.1, regimes(door, regime))
    assert (value[0], info[0]) == (-math.inf, 1)


@EVERY_REGIME
def test_padding_of_large_covariances(door: ModuleType, rng: np.random.Generator, regime: str) -> None:
    """The bound of pivots is above 1 here, and the padding's must not count as bad."""
    tall = (np.full(1, 1e16), np.zeros((1, 1)), np.full((1, 1), 0.5))
    X, y = np.arange(20.0)[:, None], rng.normal(size=20)
    value, info, _, gradients = run(door, [tall], X, y, 0.1, regimes(door, regime), grad=True)
    assert info[0] == 0
    assert_allclose(value, oracle.log_likelihood([tall], X, y, 0.1), rtol=1e-12)
    assert_gradients(gradients, oracle.log_likelihood_gradient([tall], X, y, 0.1))


@EVERY_REGIME
@pytest.mark.parametrize(("jitter", "step"), [(1e-2, 1e-4), (3e-12, 1e-2), (3e-14, 1.0), (1e-17, None)])
def test_jitter_is_tried_in_steps(
    door: ModuleType, rng: np.random.Generator, regime: str, jitter: float, step: float | None
) -> None:
    """N eps is 8e-15 here: the first of 1e-4, 1e-2 and 1 times `jitter` above it repairs the matrix."""
    X, y = repeated(rng, 36, 34)
    noise = np.array([[0.1], [0.0]])
    value, info, shift, gradients = run(
        door, [NARROW] * 2, X, y, noise, regimes(door, regime), grad=True, jitter=jitter
    )
    assert (info[0], shift[0]) == (0, 0.0)
    alone = run(door, [NARROW], X, y, noise[:1], regimes(door, regime), grad=True)
    assert value[0] == alone[0][0]
    if step is None:
        assert (value[1], info[1], shift[1]) == (-math.inf, 35, 0.0)
        assert all(np.isnan(g[1]).all() for g in gradients)
        return
    assert_allclose(shift, [0.0, step * jitter], rtol=1e-15)
    if step == 1e-4:
        noisy = run(door, [NARROW], X, y, shift[1:], regimes(door, regime), grad=True)
        assert_allclose(value[1], noisy[0][0], rtol=1e-12)
        for one, other in zip(gradients, noisy[3], strict=True):
            assert_allclose(one[1], other[0], rtol=1e-9, atol=1e-9 * np.abs(other).max())


@EVERY_REGIME
def test_chunks_leave_the_bits(door: ModuleType, rng: np.random.Generator, regime: str) -> None:
    """Of one mixture and of two; with a trend, whose two functions stand in the place of one more component each."""
    import cupy

    batch = ragged(rng, [2, 5, 1, 1], 1)
    X, y = rng.uniform(-1, 1, size=(40, 1)), rng.normal(size=40)
    limits = regimes(door, regime)
    each = door.way_of(40, limits, True)[0]
    for basis, more in ((None, 0), (cupy.asarray(np.c_[np.ones(40), X]), 1)):
        whole = run(door, batch, X, y, 0.1, limits, grad=True, basis=basis)
        least = each + 16 * 48 * (5 + more)
        for bound in (least, 2 * each + 16 * 48 * (7 + 2 * more)):
            parts = run(door, batch, X, y, 0.1, limits, grad=True, basis=basis, max_bytes=bound)
            assert_array_equal(parts[0], whole[0])
            for one, other in zip(parts[3], whole[3], strict=True):
                assert_array_equal(one, other)
        with pytest.raises(MemoryError, match=f"max_bytes={least - 1}"):
            run(door, batch, X, y, 0.1, limits, grad=True, basis=basis, max_bytes=least - 1)


@SWEEP
@pytest.mark.parametrize("n_points", [129, 200])
def test_a_batch_and_a_card_leave_the_bits(
    door: ModuleType, card: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, n_points: int
) -> None:
    """Blocks of threads are taller where there are enough of them for the card's multiprocessors."""
    from maskerade_fast.backends import cpu

    batch = ragged(rng, [2, 1, 3], 1)
    X, y = rng.uniform(-9, 9, size=(n_points, 1)), rng.normal(size=n_points)
    limits, blocked = regimes(door, "blocked"), door._blocked
    load, heights = blocked.load, []
    low = run(door, batch, X, y, 0.1, limits, grad=True)
    monkeypatch.setattr(blocked, "device_limits", lambda: door.device_limits()._replace(multiprocessors=1))

    def noted(*args: Any, **defines: Any) -> Any:
        heights.append(defines)
        return load(*args, **defines)

    monkeypatch.setattr(blocked, "load", noted)
    tall = run(door, batch, X, y, 0.1, limits, grad=True)
    assert {defines["MF_HEIGHT"] for defines in heights} == {64, 128}
    alone = run(door, batch[2:], X, y, 0.1, limits, grad=True)
    assert_array_equal(tall[0], low[0])
    assert_array_equal(alone[0], low[0][2:])
    for one, two, three in zip(low[3][:3], tall[3][:3], alone[3][:3], strict=True):
        assert_array_equal(one, two)
        assert_array_equal(one[3:], three)
    w, m, s = (np.concatenate([mixture[k] for mixture in batch]) for k in range(3))
    options: dict[str, Any] = {"per_axis": False, "jitter": 0.0, "max_bytes": None}
    expected = cpu.log_likelihood(np.array([0, 2, 3, 6]), w, m, s, X, y, np.array([[0.1]]), grad=True, **options)
    assert_allclose(low[0], expected[0], rtol=1e-12)
    for one, other in zip(low[3], expected[3] or [], strict=True):
        assert_allclose(one, other, rtol=0.0, atol=1e-9 * np.abs(other).max())


def test_memory_without_a_bound(door: ModuleType, emulated: Any, rng: np.random.Generator) -> None:
    emulated.cupy.cuda.Device.mem_info = property(lambda self: (1000, 80 * 10**9))
    try:
        with pytest.raises(MemoryError, match="half of the device's free memory"):
            run(door, [NARROW], *repeated(rng, 40, 3), 0.1, regimes(door, "panels"))
    finally:
        emulated.cupy.cuda.Device.mem_info = property(lambda self: (80 * 10**9, 80 * 10**9))


def test_regimes_of_cards(door: ModuleType) -> None:
    """Shared memory of an H100, an A100, an RTX and a T4: points of a matrix and of a panel, tiles of a panel."""
    kilobytes = (227, 163, 99, 64)
    limits = [door.regimes_of(k * 1024, False)[:3] for k in kilobytes]
    assert limits == [(224, 320, 109), (192, 320, 77), (144, 320, 45), (112, 320, 27)]
    limits = [door.regimes_of(k * 1024, True)[:3] for k in kilobytes]
    assert limits == [(224, 704, 103), (176, 704, 71), (144, 640, 40), (112, 400, 25)]


def test_threads_share_out_an_sm(door: ModuleType, emulated: Any) -> None:
    """Of an H100: four matrices of 96 points, two of 144, one of 208."""
    assert [door.small_block(n, True, 512) for n in (96, 144, 208)] == [128, 256, 512]
    assert [door.small_block(n, True, 256) for n in (96, 144, 208)] == [128, 128, 256]
    assert door.threads_of({"MF_AXES": 1}) == 512
    assert door.threads_of({"MF_AXES": 2}) == door.threads_of({"MF_AXES": 1, "MF_NO_MMA": 1}) == 256


@SWEEP
@pytest.mark.parametrize("grad", [False, True])
def test_the_door_goes_by_the_card(door: ModuleType, emulated: Any, rng: np.random.Generator, grad: bool) -> None:
    """Both sides of each limit of a T4, the card with the least shared memory."""
    emulated.state.devices[0].shared_bytes = 64 * 1024
    limits = door.regimes_of(64 * 1024, grad)
    assert 0 < limits.small < limits.panels <= 400
    for n_points, name in [
        (limits.small, "likelihood_shared_f64"),
        (limits.small + 1, "likelihood_panel_f64"),
        (limits.panels, "likelihood_panel_f64"),
        (limits.panels + 1, "covariance_f64"),
    ]:
        emulated.state.launches.clear()
        batch = ragged(rng, [2], 1)
        X, y = rng.uniform(-1, 1, size=(n_points, 1)), rng.normal(size=n_points)
        value, _, _, gradients = run(door, batch, X, y, 0.1, grad=grad)
        assert name in emulated.state.launches
        assert_allclose(value, oracle.log_likelihood(batch, X, y, 0.1), rtol=1e-12)
        if grad:
            assert_gradients(gradients, oracle.log_likelihood_gradient(batch, X, y, 0.1))


@SWEEP
def test_single_precision_and_the_empty_batch(door: ModuleType, rng: np.random.Generator) -> None:
    import cupy

    X, y = rng.normal(size=(4, 1)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    small: list[Any] = [tuple(a.astype(np.float32) for a in NARROW)]
    value, info, shift, gradients = run(door, small, X, y, 0.1, grad=True)
    assert {a.dtype for a in (value, shift, *gradients)} == {np.dtype(np.float32)}
    assert info.dtype == np.int32
    assert_allclose(value, oracle.log_likelihood([NARROW], X, y, 0.1), rtol=1e-6)
    nothing = np.zeros(1, dtype=np.int64), cupy.zeros(0), cupy.zeros((0, 1)), cupy.zeros((0, 1))
    options = {"per_axis": False, "jitter": 0.0, "max_bytes": None}
    value, info, shift, gradients = door.log_likelihood(
        *nothing, cupy.asarray(X), cupy.asarray(y), cupy.zeros((1, 1)), grad=True, **options
    )
    assert [a.shape for a in (value, info, shift, *gradients)] == [(0,)] * 4 + [(0, 1)] * 3


# ---- factors of given matrices ----


def positive(rng: np.random.Generator, count: int, n: int) -> Any:
    half = rng.normal(size=(count, n, n))
    return half @ np.swapaxes(half, 1, 2) + np.eye(n)


@SWEEP
@EVERY_ORDER
@pytest.mark.parametrize("n", [1, 16, 31, 32, 33, 70])
def test_cholesky(emulated: Any, card: int, rng: np.random.Generator, n: int) -> None:
    import cupy

    from maskerade_fast.backends.gpu.cholesky import factored

    matrices = positive(rng, 3, n)
    upper = np.triu(np.full((n, n), np.nan), 1)  # is not read
    for width in (64, 128):
        factors: Any = factored(cupy.asarray(matrices + upper), 0.0, width)
        lower, info, shift = (a.get() for a in factors)
        assert_allclose(lower, np.linalg.cholesky(matrices), rtol=0.0, atol=1e-12 * np.sqrt(matrices.max()))
        assert_array_equal(np.triu(lower, 1), 0.0)
        assert_array_equal(info, 0)
        assert_array_equal(shift, 0.0)


@SWEEP
def test_cholesky_of_a_matrix_near_singular(emulated: Any) -> None:
    """Its pivots fall to 1e-12: rows divided by explicit inverses of the squares would leave 100 times the residual."""
    import cupy

    from maskerade_fast.backends.gpu.cholesky import cholesky

    lags = np.subtract.outer(np.linspace(0.0, 1.0, 150), np.linspace(0.0, 1.0, 150))
    matrix = np.exp(-2.0 * lags**2) + 1e-12 * np.eye(150)
    factors: Any = cholesky(cupy.asarray(matrix[None]))
    lower, info, _ = (a.get()[0] for a in factors)
    assert info == 0
    assert_allclose(lower @ lower.T, matrix, rtol=0.0, atol=20 * EPS)


def test_cholesky_fails_and_is_repaired_alone(emulated: Any, rng: np.random.Generator) -> None:
    import cupy

    from maskerade_fast.backends import cpu

    door = importlib.import_module("maskerade_fast.backends.gpu.cholesky")
    matrices = positive(rng, 4, 40)
    matrices[1, 20, :] = matrices[1, :, 20] = 0.0  # a pivot of 0
    matrices[3, 5, 5] = np.nan
    for jitter in (0.0, 1e-6):
        expected = cpu.cholesky(matrices, jitter)
        found = [a.get() for a in door.cholesky(cupy.asarray(matrices), jitter)]
        assert_array_equal(found[1], expected[1])
        assert_allclose(found[2], expected[2], rtol=1e-14)
        assert_allclose(found[0], expected[0], rtol=0.0, atol=1e-12 * np.sqrt(np.nanmax(matrices)))
    assert list(found[1]) == [0, 0, 0, expected[1][3]]
    assert found[2][1] > 0.0


def test_cholesky_in_chunks(emulated: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    door: Any = importlib.import_module("maskerade_fast.backends.gpu.cholesky")
    matrices = cupy.asarray(positive(rng, 3, 20).astype(np.float32))
    whole = door.cholesky(matrices)
    assert [a.dtype for a in whole] == [np.float32, np.int32, np.float32]
    monkeypatch.setattr(door, "CHUNK_BYTES", 1)
    assert_array_equal(door.cholesky(matrices)[0].get(), whole[0].get())
    assert door.cholesky(matrices[:0])[0].shape == (0, 20, 20)
    assert door.cholesky(matrices[:, :0, :0])[0].shape == (3, 0, 0)
