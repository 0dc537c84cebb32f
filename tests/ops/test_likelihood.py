"""Log-likelihoods and gradients: golden numbers, the oracle, failures, jitter, bits, threads and memory."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from batches import one, ragged

from maskerade_fast import _memory
from maskerade_fast.backends import cpu
from maskerade_fast.errors import CollapsedInputsWarning
from maskerade_fast.model.gmm import GMMBatch, GMMGradient
from maskerade_fast.ops.likelihood import LogLikelihood, log_likelihood

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "likelihood.json").read_text())
kernels = importlib.import_module("maskerade_fast.backends.cpu.likelihood")
covariance = importlib.import_module("maskerade_fast.backends.cpu._covariance")

TRIPLE: dict[str, Any] = {"X": [0.0, 1.0, 2.0], "y": [1.0, -1.0, 0.5], "noise_variance": 0.01}
TRIPLE_VALUE = -3.61370929253185


def arrays(result: LogLikelihood) -> list[Any]:
    """Everything a result holds."""
    parts: list[Any] = [result.value, result.info, result.jitter]
    if result.grad is not None:
        parts += [result.grad.weights, result.grad.means, result.grad.scales, result.grad.noise_variance]
    return parts


def assert_same_bits(left: LogLikelihood, right: LogLikelihood) -> None:
    for a, b in zip(arrays(left), arrays(right), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture
def many_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the number of the package's threads, also beyond Numba's number on this machine."""
    return lambda n: monkeypatch.setattr(kernels, "n_threads", lambda: n)


# Values and gradients


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: f"D{c['D']}")
def test_golden(case: dict[str, Any]) -> None:
    theta, X = case["theta"], np.array(case["X"])
    g = one(theta["weights"], theta["means"], theta["scales"])
    result = log_likelihood(g, X, case["y"], case["noise"], grad=True)
    assert result.value[0] == pytest.approx(case["log_likelihood"], rel=1e-10)
    assert result.grad is not None
    for name, expected in (
        ("weights", "weights"),
        ("means", "means"),
        ("scales", "scales"),
        ("noise_variance", "noise"),
    ):
        expected_array = np.atleast_1d(case["grad"][expected])
        np.testing.assert_allclose(
            getattr(result.grad, name), expected_array, rtol=0, atol=1e-10 * np.abs(expected_array).max()
        )
    K = np.array(case["K"])
    factor, info, _ = cpu.cholesky((K + case["noise"] * np.eye(len(K)))[None])
    exact = np.linalg.cholesky(K + case["noise"] * np.eye(len(K)))
    np.testing.assert_allclose(factor[0], exact, rtol=0, atol=1e-10)
    assert info[0] == 0


@pytest.mark.parametrize("phase", ["joint", "per_axis"])
@pytest.mark.parametrize("n_dims", [1, 2, 4])
@pytest.mark.parametrize("form", ["scalar", "mixture", "point"])
def test_oracle(rng: np.random.Generator, n_dims: int, phase: str, form: str) -> None:
    g = ragged(rng, [3, 1, 4], n_dims)
    X, y = rng.uniform(-1, 1, size=(17, n_dims)), rng.normal(size=17)
    noise = {"scalar": 0.1, "mixture": np.array([0.1, 0.2, 0.3]), "point": rng.uniform(0.1, 0.2, size=(3, 17))}[form]
    result = log_likelihood(g, X, y, noise, phase=phase, grad=True)
    mixtures = oracle.mixtures_of(g)
    np.testing.assert_allclose(result.value, oracle.log_likelihood(mixtures, X, y, noise, phase=phase), rtol=1e-12)
    expected = list(oracle.log_likelihood_gradient(mixtures, X, y, noise, phase=phase))
    if form != "point":
        expected[3] = expected[3].sum(axis=1)
    gradient = result.grad
    assert isinstance(gradient, GMMGradient)
    parts: list[Any] = [gradient.weights, gradient.means, gradient.scales, gradient.noise_variance]
    for a, b in zip(parts, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * np.abs(b).max())


def test_shared_noise_by_point_has_a_gradient_a_mixture(rng: np.random.Generator) -> None:
    g, X, y = ragged(rng, [2, 1], 1), rng.uniform(size=6), rng.normal(size=6)
    noise = rng.uniform(0.1, 0.2, size=(1, 6))
    shared = log_likelihood(g, X, y, noise, grad=True)
    full = log_likelihood(g, X, y, np.repeat(noise, 2, axis=0), grad=True)
    assert_same_bits(shared, full)
    assert shared.grad is not None
    assert shared.grad.noise_variance is not None
    assert shared.grad.noise_variance.shape == (2, 6)


@pytest.mark.parametrize("phase", ["joint", "per_axis"])
@pytest.mark.parametrize("n_points", [40, 330])
def test_gradient_against_differences(rng: np.random.Generator, n_points: int, phase: str) -> None:
    """Blocks of 64 columns and tiles of 256: a size with several of both; a weight of 1e-12 and one of 0."""
    n_dims = 2
    X, y = rng.uniform(size=(n_points, n_dims)), rng.normal(size=n_points)
    w = np.array([0.7, 1e-12, 0.0, 0.4])
    m, s = rng.normal(size=(4, n_dims)) * 2, rng.lognormal(size=(4, n_dims))
    noise = 0.05

    def value(parameters: np.ndarray) -> float:
        w, m, s, noise = np.split(parameters, [4, 12, 20])
        return float(log_likelihood(one(w, m.reshape(4, 2), s.reshape(4, 2)), X, y, noise, phase=phase).value[0])

    gradient = log_likelihood(one(w, m, s), X, y, noise, phase=phase, grad=True).grad
    assert gradient is not None
    assert gradient.noise_variance is not None
    analytic = np.concatenate(
        [gradient.weights, gradient.means.ravel(), gradient.scales.ravel(), np.ravel(gradient.noise_variance)]
    )
    parameters = np.r_[w, m.ravel(), s.ravel(), noise]
    scale = np.abs(analytic).max()
    for k, p in enumerate(parameters):
        h = 1e-5 * max(1.0, abs(p))
        up, down = parameters.copy(), parameters.copy()
        up[k] += h
        if p >= h:
            down[k] -= h
            numeric = (value(up) - value(down)) / (up[k] - down[k])
        elif k < 4:  # a weight near 0: one-sided, of second order
            far = parameters.copy()
            far[k] += 2 * h
            numeric = (4 * value(up) - 3 * value(parameters) - value(far)) / (2 * h)
        else:
            down[k] -= h
            numeric = (value(up) - value(down)) / (up[k] - down[k])
        assert analytic[k] == pytest.approx(numeric, rel=1e-5, abs=1e-6 * scale)


def test_noise_of_the_batch_is_the_default(rng: np.random.Generator) -> None:
    g = ragged(rng, [2, 3], 1)
    with_noise = GMMBatch(g.offsets, g.weights, g.means, g.scales, np.array([0.1, 0.2]))
    X, y = rng.uniform(size=7), rng.normal(size=7)
    assert_same_bits(log_likelihood(with_noise, X, y), log_likelihood(g, X, y, [0.1, 0.2]))
    with pytest.raises(ValueError, match="noise_variance: None, and g carries no"):
        log_likelihood(g, X, y)


def test_splitting_and_permuting_components(rng: np.random.Generator) -> None:
    X, y = rng.uniform(size=(30, 2)), rng.normal(size=30)
    g = ragged(rng, [3], 2)
    w, m, s = g.weights, g.means, g.scales
    value = log_likelihood(g, X, y, 0.1).value
    order = [2, 0, 1]
    split = one(np.r_[w[:2], w[2] / 2, w[2] / 2], np.r_[m, m[2:]], np.r_[s, s[2:]])
    for other in (one(w[order], m[order], s[order]), split):
        np.testing.assert_allclose(log_likelihood(other, X, y, 0.1).value, value, rtol=1e-12)


def test_translation_keeps_bits(rng: np.random.Generator) -> None:
    g = ragged(rng, [3, 2], 2)
    X, y = rng.integers(0, 4096, size=(50, 2)) / 1024.0, rng.normal(size=50)
    assert_same_bits(log_likelihood(g, X, y, 0.1, grad=True), log_likelihood(g, X + 2.0**31, y, 0.1, grad=True))


# Small, far, coarse


def test_one_and_two_points() -> None:
    g = GMMBatch.from_list([([1.5], [0.3], [0.1])] * 4)
    result = log_likelihood(g, [3.0], [0.7], 0.1, grad=True)
    np.testing.assert_allclose(result.value, np.full(4, -1.30706534782754), rtol=1e-14)
    assert result.grad is not None
    np.testing.assert_array_equal(result.grad.means, 0.0)
    two = log_likelihood(one([1.0], [1.0], [0.2]), [0.0, 0.5], [1.0, -1.0], 0.05)
    assert two.value[0] == pytest.approx(-1.94885947727373, rel=1e-13)


def test_large_offset() -> None:
    g = one([1.0], [0.3], [0.1])
    X = 1.7e9 + np.arange(3.0)
    result = log_likelihood(g, X, TRIPLE["y"], 0.01)
    assert result.value[0] == pytest.approx(TRIPLE_VALUE, rel=1e-13)
    with pytest.warns(CollapsedInputsWarning, match="X: column 0"):
        log_likelihood(g, X.astype(np.float32), TRIPLE["y"], 0.01)


def test_float32_is_computed_in_float64() -> None:
    X = np.linspace(0, 1, 100).astype(np.float32)
    y = np.sin(6 * X).astype(np.float32)
    w, m, s = (np.array([v], np.float32) for v in (1.0, 1.0, 0.5))
    g = GMMBatch.from_list([(w, m, s)])
    result = log_likelihood(g, X, y, np.float32(1e-2), grad=True)
    assert result.value.dtype == np.float32
    assert result.value[0] == pytest.approx(113.90202361674, rel=1e-4)
    double = log_likelihood(
        GMMBatch(g.offsets, *(a.astype(np.float64) for a in (g.weights, g.means, g.scales))),
        X.astype(np.float64),
        y.astype(np.float64),
        float(np.float32(1e-2)),
        grad=True,
    )
    for a, b in zip(arrays(result), arrays(double), strict=True):
        np.testing.assert_array_equal(a, b.astype(a.dtype))


def test_integers_and_bools() -> None:
    g = one([1], [0.25], [0.1])
    value = log_likelihood(g, np.array([0, 1, 3]), np.array([2, -1, 1], np.int32), 0.1).value[0]
    assert value == pytest.approx(-5.26805609539874, rel=1e-13)
    floats = log_likelihood(g, [1.0, 0.0], [1.0, 2.0], 0.1)
    for X in (np.array([True, False]), np.array([1, 0], np.uint8)):
        assert_same_bits(log_likelihood(g, X, np.array([1, 2], np.uint8), 0.1), floats)
    for bad in (np.array([1j, 2.0]), np.array(["a", "b"]), np.array([1.0, None])):
        with pytest.raises(TypeError, match="y: expected real numbers"):
            log_likelihood(g, [1.0, 0.0], bad, 0.1)


def test_layouts_and_byte_orders(tmp_path: Path, rng: np.random.Generator) -> None:
    g = ragged(rng, [3, 2], 2)
    X, y = rng.uniform(size=(9, 2)), rng.normal(size=9)
    expected = log_likelihood(g, X, y, 0.1, grad=True)
    wide = np.zeros((9, 4))
    wide[:, ::2] = X
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    frozen = y.copy()
    frozen.flags.writeable = False
    forms = [np.asfortranarray(X), wide[:, ::2], X.tolist(), mapped, X.astype(">f8")]
    for other in forms:
        for targets in (frozen, y[::-1][::-1], y.astype(">f8"), y.tolist()):
            assert_same_bits(log_likelihood(g, other, targets, 0.1, grad=True), expected)
    log_likelihood(g, X.astype(np.float32), y.astype(np.float32), 0.1)
    assert len(kernels.likelihoods.signatures) == 1


def test_empty_batch() -> None:
    empty = GMMBatch(np.zeros(1, np.int64), np.zeros(0), np.zeros((0, 2)), np.zeros((0, 2)))
    result = log_likelihood(empty, np.zeros((5, 2)), np.zeros(5), 0.1, grad=True)
    assert result.value.shape == (0,)
    assert [result.value.dtype, result.info.dtype] == [np.dtype(np.float64), np.dtype(np.int32)]
    assert result.grad is not None
    assert result.grad.noise_variance is not None
    assert (result.grad.means.shape, result.grad.noise_variance.shape) == ((0, 2), (0,))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": [], "y": []}, "X: no rows"),
        ({"X": [[0.0, 1.0]], "y": [1.0]}, r"X: 2 columns.*g.n_dims is 1"),
        ({"X": [0.0, 1.0], "y": [1.0]}, r"y: shape \(1,\), expected \(2,\)"),
        ({"X": [0.0, 1.0, 2.0], "y": [1.0, np.nan, 0.5]}, r"y\[1\]: nan"),
        ({"X": [0.0], "y": [1.0], "noise_variance": [[0.1, 0.1]]}, r"noise_variance: shape \(1, 2\)"),
        ({"X": [0.0], "y": [1.0], "jitter": -1.0}, "jitter: -1.0"),
        ({"X": [0.0], "y": [1.0], "phase": None}, "phase: None"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        log_likelihood(one([1.0], [0.3], [0.1]), **{"noise_variance": 0.1, **arguments})


# Failed factorisations


@pytest.mark.parametrize(
    ("noise", "y", "value"),
    [
        (1e-6, [1.0, 1.0, 2.0], 0.623485703005836),
        (1e-6, [1.0, 1.5, 2.0], -62499.8126586522),
        (1e-10, [1.0, 1.0, 2.0], 5.22865314124593),
    ],
)
def test_duplicated_inputs(noise: float, y: list[float], value: float) -> None:
    result = log_likelihood(one([1.0], [0.3], [0.1]), [0.0, 0.0, 1.0], y, noise, jitter=1e-2)
    assert result.value[0] == pytest.approx(value, rel=1e-6)
    assert (result.info[0], result.jitter[0]) == (0, 0.0)


def test_singular_matrix_is_flagged() -> None:
    result = log_likelihood(one([1.0], [0.3], [0.1]), [0.0, 0.0, 1.0], [1.0, 1.0, 2.0], 0.0, grad=True)
    assert (result.value[0], result.info[0], result.jitter[0]) == (-np.inf, 2, 0.0)
    assert result.grad is not None
    for part in arrays(result)[3:]:
        assert np.isnan(part).all()
    nothing = log_likelihood(one([0.0], [0.3], [0.1]), [0.0, 1.0], [1.0, 1.0], 0.0, jitter=1.0)
    assert (nothing.value[0], nothing.info[0]) == (-np.inf, 1)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("jitter", [0.0, 1e-3])
def test_no_crosstalk(place: int, jitter: float) -> None:
    """A rank-one matrix of size 1e6 beside good ones changes none of their bits."""
    good, bad = ([1.0], [0.3], [0.1]), ([1e6], [0.0], [0.0])
    mixtures, noise = [good, good], [0.01, 0.01]
    mixtures.insert(place, bad)
    noise.insert(place, 0.0)
    result = log_likelihood(GMMBatch.from_list(mixtures), TRIPLE["X"], TRIPLE["y"], noise, jitter=jitter, grad=True)
    alone = log_likelihood(one(*good), **TRIPLE, grad=True)
    assert alone.value[0] == pytest.approx(TRIPLE_VALUE, rel=1e-13)
    others = [b for b in range(3) if b != place]
    np.testing.assert_array_equal(result.value[others], alone.value[0])
    np.testing.assert_array_equal(result.jitter[others], 0.0)
    assert result.grad is not None
    assert alone.grad is not None
    np.testing.assert_array_equal(result.grad.means[others], np.repeat(alone.grad.means, 2, axis=0))
    if jitter:
        assert result.info[place] == 0
        assert result.jitter[place] == pytest.approx(1e-4 * jitter * 1e6)
        repaired = log_likelihood(one(*bad), TRIPLE["X"], TRIPLE["y"], result.jitter[place])
        assert repaired.value[0] == result.value[place]
    else:
        assert result.info[place] == 2
        assert result.value[place] == -np.inf


def test_cholesky_retries() -> None:
    matrices = np.array([[[1.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]]])
    matrices.flags.writeable = False
    before = matrices.copy()
    cpu.cholesky(matrices)
    begin = time.perf_counter()
    factors, info, shift = cpu.cholesky(matrices, 1e-3)
    assert time.perf_counter() - begin < 1.0
    np.testing.assert_array_equal(matrices, before)
    np.testing.assert_array_equal(info, [0, 2, 0])
    assert 0 < shift[0] <= 1e-6
    assert (shift[1], shift[2]) == (0.0, 0.0)
    np.testing.assert_allclose(factors[2], np.linalg.cholesky(matrices[2]), rtol=1e-15)
    np.testing.assert_allclose(factors[0] @ factors[0].T, matrices[0] + shift[0] * np.eye(2), rtol=1e-15)
    assert np.isnan(factors[1][np.tril_indices(2)]).all()
    assert cpu.cholesky(np.zeros((0, 3, 3)), 0.0)[0].shape == (0, 3, 3)


@pytest.mark.parametrize(("bad", "k"), [(np.nan, 17), (-1.0, 17), (0.0, 17), (1e-17, 17), (np.inf, 1)])
def test_bad_pivots_are_counted_from_one(bad: float, k: int) -> None:
    """Compiled code must see NaN: no fast-math assumes it away. Beside an infinite diagonal no pivot is large."""
    matrix = np.eye(40)
    matrix[16, 16] = bad
    for n in (17, 30, 40):
        assert cpu.cholesky(matrix[None, :n, :n])[1][0] == k


def test_overflowing_covariance_is_flagged() -> None:
    """Of a batch that the package itself made, such as one in the units of huge targets."""
    g = one([1.0, 1.0], [0.1, 0.2], [0.1, 0.1])
    g = GMMBatch.trusted(g.offsets, 1e308 * g.weights, g.means, g.scales)
    result = log_likelihood(g, [0.0, 1.0], [1.0, 1.0], 0.1, grad=True)
    assert result.value[0] == -np.inf
    assert result.info[0] == 1


# Bits, threads, memory


def _batch(rng: np.random.Generator, n_points: int, n_mixtures: int) -> tuple[GMMBatch, np.ndarray, np.ndarray]:
    g = ragged(rng, [1 + b % 4 for b in range(n_mixtures)], 2)
    return g, rng.uniform(size=(n_points, 2)), rng.normal(size=n_points)


def _check_bits(rng: np.random.Generator, n_points: int, n_mixtures: int, many_threads: Callable[[int], None]) -> None:
    g, X, y = _batch(rng, n_points, n_mixtures)
    many_threads(1)
    expected = log_likelihood(g, X, y, 0.05, grad=True)
    assert (expected.info == 0).all()
    one_matrix = 8 * n_points * (n_points + 400)
    for threads in (2, 3):
        many_threads(threads)
        for max_bytes in (None, one_matrix, 2 * one_matrix):
            assert_same_bits(log_likelihood(g, X, y, 0.05, grad=True, max_bytes=max_bytes), expected)
        for b in range(n_mixtures):
            single = log_likelihood(g[b], X, y, 0.05, grad=True)
            assert single.value[0] == expected.value[b]
            assert single.grad is not None
            assert expected.grad is not None
            part = slice(g.offsets[b], g.offsets[b + 1])
            np.testing.assert_array_equal(single.grad.means, expected.grad.means[part])
            np.testing.assert_array_equal(single.grad.weights, expected.grad.weights[part])
            np.testing.assert_array_equal(single.grad.scales, expected.grad.scales[part])


@pytest.mark.parametrize("n_points", [3, 144, 520])
def test_bits_for_any_threads_and_memory(
    rng: np.random.Generator, many_threads: Callable[[int], None], n_points: int
) -> None:
    _check_bits(rng, n_points, 4, many_threads)


@pytest.mark.slow
@pytest.mark.parametrize("n_points", [500, 1503, 2300])
def test_bits_at_size(rng: np.random.Generator, many_threads: Callable[[int], None], n_points: int) -> None:
    _check_bits(rng, n_points, 3, many_threads)


def test_tiled_factor(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The factorisation of large matrices, at a size that a test can afford."""
    g, X, y = _batch(rng, 700, 2)
    expected = log_likelihood(g, X, y, 0.05, grad=True)
    monkeypatch.setattr(covariance, "TILED_SIZE", 600)
    result = log_likelihood(g, X, y, 0.05, grad=True)
    for a, b in zip(arrays(result), arrays(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * max(1.0, np.abs(b).max()))
    X[650] = X[0]
    flagged = log_likelihood(one([1.0], [[0.3, 0.1]], [[100.0, 100.0]]), X, y, 0.0)
    assert (flagged.info[0], flagged.value[0]) == (651, -np.inf)
    repaired = log_likelihood(one([1.0], [[0.3, 0.1]], [[100.0, 100.0]]), X, y, 0.0, jitter=1e-3)
    assert repaired.info[0] == 0
    assert repaired.jitter[0] == pytest.approx(1e-7)


@pytest.mark.parametrize("n", [255, 256, 300, 700])
def test_a_tiled_factor_stays_in_its_matrix(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """What lies before and behind it in memory, more than a tile of rows, is as it was."""
    from maskerade_fast.backends.cpu._cholesky_loops import FACTOR_TILE, solve_tile
    from maskerade_fast.backends.cpu._lapack import addresses
    from maskerade_fast.backends.cpu.cholesky import tiled_potrf

    room = np.full((n + 600, n), 7.0)
    matrix = room[300:-300]
    roots = rng.normal(size=(n, n))
    matrix[:] = roots @ roots.T + n * np.eye(n)
    expected = np.linalg.cholesky(matrix)
    tiles: list[tuple[int, int]] = []

    def noted(row: int, column: int, *arrays: Any) -> None:
        tiles.append((row, column))
        solve_tile(row, column, *arrays)

    monkeypatch.setitem(tiled_potrf.__globals__, "solve_tile", noted)
    assert tiled_potrf(addresses(), matrix, 2) == 0
    n_tiles = -(-n // FACTOR_TILE)
    assert sorted(tiles) == [(row, column) for row in range(n_tiles) for column in range(row)]
    np.testing.assert_allclose(np.tril(matrix), expected, rtol=0, atol=1e-11 * n)
    assert (room[:300] == 7.0).all()
    assert (room[-300:] == 7.0).all()


def test_memory_bound() -> None:
    g, X, y = one([1.0], [0.3], [0.1]), np.linspace(0, 1, 100), np.zeros(100)
    with pytest.raises(MemoryError, match=r"100 points needs \d+ bytes, more than max_bytes=1000"):
        log_likelihood(g, X, y, 0.1, max_bytes=1000)
    assert _memory.workers_that_fit(4, 10, 25, "it") == 2
    assert _memory.workers_that_fit(4, 10, None, "it") == 4
    with pytest.raises(MemoryError, match="half of the free memory"):
        _memory.workers_that_fit(1, 2**60, None, "it")
    assert 2**20 < _memory.free_bytes() < 2**60


def test_planned_bytes_of_a_workspace_are_its_bytes() -> None:
    from maskerade_fast.backends.cpu._arguments import Workspace

    for sizes in ((1, 7, 1, 1), (3, 20, 2, 2), (5, 33, 4, 1)):
        arrays = Workspace.empty(*sizes)
        assert Workspace.bytes(*sizes, 0) == sum(array.nbytes for array in arrays)
        assert Workspace.bytes(*sizes, 3) - Workspace.bytes(*sizes, 0) == 3 * 8 * sizes[1]


@pytest.mark.parametrize("n_mixtures", [1, 65535, 65536, 70000])
def test_many_mixtures(n_mixtures: int) -> None:
    ones = np.ones((n_mixtures, 1))
    g = GMMBatch(np.arange(n_mixtures + 1), ones[:, 0], 0.3 * ones, 0.1 * ones)
    values = log_likelihood(g, **TRIPLE).value
    assert values.shape == (n_mixtures,)
    assert (values == values[0]).all()
    assert values[0] == pytest.approx(TRIPLE_VALUE, rel=1e-13)


def test_concurrent_python_threads(rng: np.random.Generator) -> None:
    g, X, y = _batch(rng, 30, 5)
    expected = log_likelihood(g, X, y, 0.05, grad=True)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(100):
                assert_same_bits(log_likelihood(g, X, y, 0.05, grad=True), expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def _in_child(queue: Any) -> None:
    g = GMMBatch.from_list([([1.0], [0.3], [0.1])] * 3)
    queue.put(log_likelihood(g, **TRIPLE).value.tolist())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.parametrize("from_main_thread", [True, False])
def test_forked_children(from_main_thread: bool) -> None:
    g = GMMBatch.from_list([([1.0], [0.3], [0.1])] * 3)
    expected = log_likelihood(g, **TRIPLE).value.tolist()
    results: list[list[float]] = []

    def work() -> None:
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        children = [context.Process(target=_in_child, args=(queue,)) for _ in range(4)]
        for child in children:
            child.start()
        results.extend(queue.get(timeout=60) for _ in children)
        for child in children:
            child.join(60)

    if from_main_thread:
        work()
    else:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert results == [expected] * 4


def test_a_target_beyond_squaring_is_refused() -> None:
    g = GMMBatch.from_list([([1.0], [0.3], [0.1])])
    with pytest.raises(ValueError, match="y: entries up to 1e\\+200"):
        log_likelihood(g, [0.0, 1.0], [1e200, 0.0], 0.1)
    with pytest.raises(TypeError, match="g: str, expected a GMMBatch"):
        log_likelihood("x", [0.0, 1.0], [1.0, 0.0], 0.1)  # type: ignore[arg-type]


@pytest.mark.usefixtures("backend")
def test_every_backend(rng: np.random.Generator) -> None:
    for form in ("scalar", "mixture", "point"):
        test_oracle(rng, 2, "joint", form)
    test_shared_noise_by_point_has_a_gradient_a_mixture(rng)
