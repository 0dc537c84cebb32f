"""Log-likelihoods and gradients: golden numbers, the oracle, bits, threads and memory."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from batches import one, ragged
from comparisons import close, gradients, same_bits

from maskerade_fast import _memory
from maskerade_fast.backends import cpu
from maskerade_fast.errors import CollapsedInputsWarning
from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.ops.gp import predict_gp
from maskerade_fast.ops.gram import gram
from maskerade_fast.ops.likelihood import log_likelihood

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "likelihood.json").read_text())
kernels = importlib.import_module("maskerade_fast.backends.cpu.likelihood")

TRIPLE: dict[str, Any] = {"X": [0.0, 1.0, 2.0], "y": [1.0, -1.0, 0.5], "noise_variance": 0.01}
TRIPLE_VALUE = -3.61370929253185


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
    expected = (case["grad"][name] for name in ("weights", "means", "scales", "noise"))
    for part, numbers in zip(gradients(result.grad), expected, strict=True):
        close(part, np.atleast_1d(numbers), 1e-10, least=0.0)
    C = np.array(case["K"]) + case["noise"] * np.eye(len(X))
    factor, info, _ = cpu.cholesky(C[None])
    np.testing.assert_allclose(factor[0], np.linalg.cholesky(C), rtol=0, atol=1e-10)
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
    for part, numbers in zip(gradients(result.grad), expected, strict=True):
        close(part, numbers, 1e-11, least=0.0)


def test_shared_noise_by_point_has_a_gradient_per_mixture(rng: np.random.Generator) -> None:
    g, X, y = ragged(rng, [2, 1], 1), rng.uniform(size=6), rng.normal(size=6)
    noise = rng.uniform(0.1, 0.2, size=(1, 6))
    shared: Any = log_likelihood(g, X, y, noise, grad=True)
    same_bits(shared, log_likelihood(g, X, y, np.repeat(noise, 2, axis=0), grad=True))
    assert shared.grad.noise_variance.shape == (2, 6)


@pytest.mark.parametrize("phase", ["joint", "per_axis"])
@pytest.mark.parametrize("n_points", [40, 330])
def test_gradient_against_differences(rng: np.random.Generator, n_points: int, phase: str) -> None:
    """Blocks of 64 columns and tiles of 256: a size with several of both; a weight of 1e-12 and one of 0."""
    X, y = rng.uniform(size=(n_points, 2)), rng.normal(size=n_points)
    w, m, s = np.array([0.7, 1e-12, 0.0, 0.4]), rng.normal(size=(4, 2)) * 2, rng.lognormal(size=(4, 2))

    def value(parameters: np.ndarray) -> float:
        w, m, s, noise = np.split(parameters, [4, 12, 20])
        g = GMMBatch.trusted(np.array([0, 4]), w.copy(), m.reshape(4, 2), s.reshape(4, 2))  # weights may pass below 0
        return float(log_likelihood(g, X, y, noise, phase=phase).value[0])

    parts = gradients(log_likelihood(one(w, m, s), X, y, 0.05, phase=phase, grad=True).grad)
    analytic = np.concatenate([part.ravel() for part in parts])
    numeric = oracle.central_differences(value, np.r_[w, m.ravel(), s.ravel(), 0.05], step=1e-5)
    np.testing.assert_allclose(analytic, numeric, rtol=1e-5, atol=1e-6 * np.abs(analytic).max())


def test_noise_of_the_batch_is_the_default(rng: np.random.Generator) -> None:
    g = ragged(rng, [2, 3], 1)
    with_noise = GMMBatch(g.offsets, g.weights, g.means, g.scales, np.array([0.1, 0.2]))
    X, y = rng.uniform(size=7), rng.normal(size=7)
    same_bits(log_likelihood(with_noise, X, y), log_likelihood(g, X, y, [0.1, 0.2]))
    with pytest.raises(ValueError, match="noise_variance: None, and g carries no"):
        log_likelihood(g, X, y)


# Small, far, coarse


def test_one_and_two_points() -> None:
    g = GMMBatch.from_list([([1.5], [0.3], [0.1])] * 4)
    result: Any = log_likelihood(g, [3.0], [0.7], 0.1, grad=True)
    np.testing.assert_allclose(result.value, np.full(4, -1.30706534782754), rtol=1e-14)
    np.testing.assert_array_equal(result.grad.means, 0.0)
    two = log_likelihood(one([1.0], [1.0], [0.2]), [0.0, 0.5], [1.0, -1.0], 0.05)
    assert two.value[0] == pytest.approx(-1.94885947727373, rel=1e-13)


def test_large_offset() -> None:
    g = one([1.0], [0.3], [0.1])
    X = 1.7e9 + np.arange(3.0)
    result = log_likelihood(g, X, TRIPLE["y"], 0.01)
    assert result.value[0] == pytest.approx(TRIPLE_VALUE, rel=1e-13)
    with pytest.warns(CollapsedInputsWarning, match="X: column 0 reaches 1.7e"):
        log_likelihood(g, X.astype(np.float32), TRIPLE["y"], 0.01)


def test_float32_is_computed_in_float64() -> None:
    X = np.linspace(0, 1, 100).astype(np.float32)
    y = np.sin(6 * X).astype(np.float32)
    parts = [np.full(shape, v, np.float32) for shape, v in ((1, 1.0), ((1, 1), 1.0), ((1, 1), 0.5))]
    result = log_likelihood(GMMBatch([0, 1], *parts), X, y, np.float32(1e-2), grad=True)
    assert result.value.dtype == np.float32
    assert result.value[0] == pytest.approx(113.90202361674, rel=1e-4)
    wide = GMMBatch([0, 1], *(a.astype(np.float64) for a in parts))
    double = log_likelihood(wide, X.astype(np.float64), y.astype(np.float64), float(np.float32(1e-2)), grad=True)
    for a, b in zip((result.value, *gradients(result.grad)), (double.value, *gradients(double.grad)), strict=True):
        np.testing.assert_array_equal(a, b.astype(np.float32))


def test_integers_and_bools() -> None:
    g = one([1], [0.25], [0.1])
    value = log_likelihood(g, np.array([0, 1, 3]), np.array([2, -1, 1], np.int32), 0.1).value[0]
    assert value == pytest.approx(-5.26805609539874, rel=1e-13)
    floats = log_likelihood(g, [1.0, 0.0], [1.0, 2.0], 0.1)
    for X in (np.array([True, False]), np.array([1, 0], np.uint8)):
        same_bits(log_likelihood(g, X, np.array([1, 2], np.uint8), 0.1), floats)
    for bad in (np.array([1j, 2.0]), np.array(["a", "b"]), np.array([1.0, None])):
        with pytest.raises(TypeError, match="y: expected real numbers"):
            log_likelihood(g, [1.0, 0.0], bad, 0.1)


def test_empty_batch() -> None:
    empty = GMMBatch(np.zeros(1, np.int64), np.zeros(0), np.zeros((0, 2)), np.zeros((0, 2)))
    result: Any = log_likelihood(empty, np.zeros((5, 2)), np.zeros(5), 0.1, grad=True)
    assert result.value.shape == (0,)
    assert [result.value.dtype, result.info.dtype] == [np.dtype(np.float64), np.dtype(np.int32)]
    assert (result.grad.means.shape, result.grad.noise_variance.shape) == ((0, 2), (0,))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": [], "y": []}, "X: no rows"),
        ({"X": [[0.0, 1.0]], "y": [1.0]}, r"X: 2 columns.*g.n_dims is 1"),
        ({"X": [0.0, 1.0], "y": [1.0]}, r"y: shape \(1,\), expected \(2,\)"),
        ({"X": [0.0, 1.0, 2.0], "y": [1.0, np.nan, 0.5]}, r"y\[1\]: nan"),
        ({"X": [0.0, 1.0], "y": [1e200, 0.0]}, "y: entries up to 1e\\+200"),
        ({"X": [0.0], "y": [1.0], "noise_variance": [[0.1, 0.1]]}, r"noise_variance: shape \(1, 2\)"),
        ({"X": [0.0], "y": [1.0], "jitter": -1.0}, "jitter: -1.0"),
        ({"X": [0.0], "y": [1.0], "phase": None}, "phase: None"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        log_likelihood(one([1.0], [0.3], [0.1]), **{"noise_variance": 0.1, **arguments})
    with pytest.raises(TypeError, match="g: str, expected a GMMBatch"):
        log_likelihood("x", [0.0, 1.0], [1.0, 0.0], 0.1)  # type: ignore[arg-type]


# Bits, threads, memory


def assert_bits(rng: np.random.Generator, n_points: int, n_mixtures: int, many_threads: Callable[[int], None]) -> None:
    """Neither threads nor memory nor company change a bit."""
    g = ragged(rng, [1 + b % 4 for b in range(n_mixtures)], 2)
    X, y = rng.uniform(size=(n_points, 2)), rng.normal(size=n_points)
    many_threads(1)
    expected: Any = log_likelihood(g, X, y, 0.05, grad=True)
    assert (expected.info == 0).all()
    one_matrix = 8 * n_points * (n_points + 400)
    for threads in (2, 3):
        many_threads(threads)
        for max_bytes in (None, one_matrix, 2 * one_matrix):
            same_bits(log_likelihood(g, X, y, 0.05, grad=True, max_bytes=max_bytes), expected)
        alone: list[Any] = [log_likelihood(g[b], X, y, 0.05, grad=True) for b in range(n_mixtures)]
        np.testing.assert_array_equal(np.concatenate([each.value for each in alone]), expected.value)
        for k, part in enumerate(gradients(expected.grad)):
            np.testing.assert_array_equal(np.concatenate([gradients(each.grad)[k] for each in alone]), part)


@pytest.mark.parametrize("n_points", [3, 144, 520])
def test_bits_for_any_threads_and_memory(
    rng: np.random.Generator, many_threads: Callable[[int], None], n_points: int
) -> None:
    assert_bits(rng, n_points, 4, many_threads)


@pytest.mark.slow
@pytest.mark.parametrize("n_points", [500, 1503, 2300])
def test_bits_at_size(rng: np.random.Generator, many_threads: Callable[[int], None], n_points: int) -> None:
    assert_bits(rng, n_points, 3, many_threads)


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
    assert gram(g, np.arange(2.0)).shape == (n_mixtures, 2, 2)
    assert predict_gp(g, [0.0, 1.0], [1.0, 0.0], 0.1, []).mean.shape == (n_mixtures, 0)


@pytest.mark.usefixtures("backend")
def test_every_backend(rng: np.random.Generator) -> None:
    for form in ("scalar", "mixture", "point"):
        test_oracle(rng, 2, "joint", form)
    test_shared_noise_by_point_has_a_gradient_per_mixture(rng)
