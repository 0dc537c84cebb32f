"""The Toeplitz path on both backends: the oracle, the dense path, failures, bits, memory."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from batches import one, waves
from comparisons import close, gradients, peak, same_bits
from emulate import ORDERS

from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.model.trend import trend_basis
from maskerade_fast.ops.gp import predict_gp
from maskerade_fast.ops.likelihood import log_likelihood

EVERY_ORDER = pytest.mark.parametrize("emulated", ORDERS, indirect=True)


def trend(X: Any, rng: np.random.Generator, count: int, width: float = 2.0) -> np.ndarray:
    """A constant, a line and noise, the first `count` of them."""
    x = np.asarray(X, dtype=float).ravel()
    columns = [np.ones(len(x)), (x - 20.0) / 40.0, *rng.normal(size=(3, len(x)))]
    return width * np.stack(columns[:count], axis=1)


@pytest.mark.parametrize(
    ("n_points", "n_new", "count"),
    [
        *((1, 1, 0), (2, 5, 0), (3, 5, 0), (31, 5, 0), (32, 5, 0), (33, 5, 0), (40, 0, 0), (70, 33, 0)),
        *((1, 5, 1), (2, 5, 2), (33, 5, 2), (40, 5, 5), (70, 5, 1)),
    ],
)
def test_oracle(backend: str, rng: np.random.Generator, n_points: int, n_new: int, count: int) -> None:
    """Values, gradients and predictions, with basis functions too; five of them come in two groups on a card."""
    g, noise = waves(rng, [3, 1, 2]), np.array([0.1, 0.02, 0.3])
    X, X_new = np.arange(n_points) * 0.5, rng.uniform(-1, n_points, n_new)
    y = rng.normal(size=n_points) + (5.0 - X if count else 0.0)
    V, V_new = (trend(x, rng, count) if count else None for x in (X, X_new))
    mixtures, tolerance = oracle.mixtures_of(g), 1e-10 if count else 1e-11
    options: dict[str, Any] = {"basis": V, "structure": "toeplitz"}
    result = log_likelihood(g, X, y, noise, grad=True, **options)
    assert result.info.tolist() == [0, 0, 0]
    np.testing.assert_allclose(result.value, oracle.log_likelihood(mixtures, X, y, noise, basis=V), rtol=tolerance)
    np.testing.assert_array_equal(log_likelihood(g, X, y, noise, **options).value, result.value)
    *arrays, by_noise = oracle.log_likelihood_gradient(mixtures, X, y, noise, basis=V)
    for part, expected in zip(gradients(result.grad), (*arrays, by_noise.sum(axis=1)), strict=True):
        close(part, expected, tolerance, least=0.0)
    mean, covariance = oracle.predict_gp(mixtures, X, y, noise, X_new, basis=V, basis_new=V_new)
    full: Any = predict_gp(g, X, y, noise, X_new, covariance="full", basis_new=V_new, **options)
    assert full.info.tolist() == [0, 0, 0]
    close(full.mean, mean, tolerance, least=0.0)
    close(full.covariance, covariance, tolerance, least=0.0)
    np.testing.assert_array_equal(full.covariance, np.swapaxes(full.covariance, 1, 2))
    diagonal = predict_gp(g, X, y, noise, X_new, basis_new=V_new, **options)
    np.testing.assert_array_equal(diagonal.mean, full.mean)
    np.testing.assert_array_equal(diagonal.variance, full.variance)


def test_an_empty_basis_is_none(backend: str, rng: np.random.Generator) -> None:
    g, X, y = waves(rng, [2]), np.arange(20.0), rng.normal(size=20)
    options: dict[str, Any] = {"structure": "toeplitz"}
    empty = log_likelihood(g, X, y, 0.1, basis=np.empty((20, 0)), grad=True, **options)
    same_bits(empty, log_likelihood(g, X, y, 0.1, grad=True, **options))
    prediction = predict_gp(g, X, y, 0.1, [0.5], basis=np.empty((20, 0)), basis_new=np.empty((1, 0)), **options)
    same_bits(prediction, predict_gp(g, X, y, 0.1, [0.5], **options))


GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "toeplitz.json").read_text())


@pytest.mark.parametrize("case", GOLDEN, ids=["quarters", "years"])
def test_golden(backend: str, case: dict[str, Any]) -> None:
    """Numbers computed at 50 digits from the whole matrix, by code without a Toeplitz path."""
    g = one(case["weights"], case["means"], case["scales"])
    X, y, noise = np.array(case["X"]), np.array(case["y"]), case["noise"]
    result = log_likelihood(g, X, y, noise, grad=True, structure="toeplitz")
    np.testing.assert_allclose(result.value, case["log_likelihood"], rtol=1e-12)
    for part, name in zip(gradients(result.grad), ("weights", "means", "scales", "noise"), strict=True):
        close(part.ravel(), np.ravel(case["grad"][name]), 1e-11, least=0.0)
    prediction = predict_gp(g, X, y, noise, case["X_new"], structure="toeplitz")
    close(prediction.mean[0], case["mean"], 1e-11, least=0.0)
    close(prediction.variance[0], case["variance"], 1e-11, least=0.0)


GOLDEN_TREND = json.loads((Path(__file__).parents[1] / "golden" / "toeplitz_trend.json").read_text())


@pytest.mark.parametrize("case", GOLDEN_TREND, ids=[f"sd{c['sd']:g}-noise{c['noise']:g}" for c in GOLDEN_TREND])
def test_trend_at_forty_digits(backend: str, case: dict[str, Any]) -> None:
    """Widths up to a thousand times the targets cost no digit: within 1e-9 of the value, wherever the noise lies."""
    g = one(case["weights"], case["means"], case["scales"])
    X, y, noise, V = np.arange(len(case["y"])) * 1.0, np.array(case["y"]), case["noise"], np.array(case["basis"])
    value = log_likelihood(g, X, y, noise, basis=V, structure="toeplitz").value
    np.testing.assert_allclose(value, case["log_likelihood"], rtol=case["tolerance"])


@EVERY_ORDER
@pytest.mark.parametrize("n_points", [40, 257])
def test_every_order_of_threads(emulated: Any, rng: np.random.Generator, n_points: int) -> None:
    """The kernels against the CPU's loops; from 225 places on a matrix has two tiles, from 32 points on two sweeps."""
    from drivers import same_as_cpu

    g = waves(rng, [2, 1])
    batch = (g.offsets, g.weights, g.means, g.scales)
    X, y, noise = np.arange(n_points)[:, None] * 1.0, rng.normal(size=n_points), np.array([[0.1], [0.2]])
    options: dict[str, Any] = {"jitter": 0.0, "max_bytes": None}
    for grad in (False, True):
        same_as_cpu("toeplitz_log_likelihood", *batch, X, y, noise, grad=grad, **options)
        V = trend(X, rng, 2)
        same_as_cpu("toeplitz_log_likelihood", *batch, X, y, noise, grad=grad, basis=V, **options)
    X_new = np.array([[0.5], [n_points + 1.0]])
    both: list[dict[str, Any]] = [{}, {"basis": trend(X, rng, 2), "basis_new": trend(X_new, rng, 2)}]
    for bases in both:
        same_as_cpu("toeplitz_predict_gp", *batch, X, y, noise, X_new, full=True, **bases, **options)


@pytest.mark.parametrize("n_points", [300, 1100])
def test_dense(rng: np.random.Generator, n_points: int) -> None:
    """1e-10 of the dense path, by default, on grids of integers, decimals and years, with and without a line."""
    grids = (np.arange(n_points) * 1.0, np.linspace(0.0, 1.0, n_points), 1949 + np.arange(n_points) / 12)
    for k, X in enumerate((*grids, *grids)):
        unit = (X - X[0]) / (X[-1] - X[0])
        V, V_new = None, None
        X_new = np.append(X[:3] + 0.1, X[-1] * 1.01)
        if k >= len(grids):
            V = trend_basis("linear", unit[:, None], 1.0)
            V_new = trend_basis("linear", ((X_new - X[0]) / (X[-1] - X[0]))[:, None], 1.0)
        g = waves(rng, [1, 5, 3], (X[-1] - X[0]) / (n_points - 1))
        y, noise = rng.normal(size=n_points), np.array([0.01, 0.1, 1.0])
        dense = log_likelihood(g, X, y, noise, basis=V, grad=True, structure="dense")
        fast = log_likelihood(g, X, y, noise, basis=V, grad=True)
        same_bits(fast, log_likelihood(g, X, y, noise, basis=V, grad=True, structure="toeplitz"))
        np.testing.assert_allclose(fast.value, dense.value, rtol=1e-10)
        for part, expected in zip(gradients(fast.grad), gradients(dense.grad), strict=True):
            close(part, expected, 1e-10, least=0.0)
        bases: dict[str, Any] = {"basis": V, "basis_new": V_new}
        one_way, other = (predict_gp(g, X, y, noise, X_new, **bases, structure=s) for s in ("auto", "dense"))
        close(one_way.mean, other.mean, 1e-10, least=0.0)
        close(one_way.variance, other.variance, 1e-10, least=0.0)


@pytest.mark.parametrize("count", [0, 3])
def test_order_of_the_grid(backend: str, rng: np.random.Generator, count: int) -> None:
    """Any permutation, a reversed grid too, gives the bits of the sorted one; a shift the values."""
    g, X, y = waves(rng, [3, 1]), np.arange(60) * 0.25, rng.normal(size=60)
    V, V_new = (trend(X, rng, count), np.ones((2, count))) if count else (None, None)
    options: dict[str, Any] = {"structure": "toeplitz"}
    expected = log_likelihood(g, X, y, 0.1, basis=V, grad=True, **options)
    prediction = predict_gp(g, X, y, 0.1, [1.1, 20.0], basis=V, basis_new=V_new, **options)
    for order in (np.arange(60)[::-1], rng.permutation(60)):
        there: dict[str, Any] = {**options, "basis": None if V is None else V[order]}
        same_bits(log_likelihood(g, X[order], y[order], 0.1, grad=True, **there), expected)
        same_bits(predict_gp(g, X[order], y[order], 0.1, [1.1, 20.0], basis_new=V_new, **there), prediction)
    if count == 0:
        np.testing.assert_array_equal(log_likelihood(g, X + 1024.0, y, 0.1, **options).value, expected.value)
        mirrored = log_likelihood(g, X, y[::-1].copy(), 0.1, **options)  # the kernel is even
        np.testing.assert_allclose(mirrored.value, expected.value, rtol=1e-12)


@pytest.mark.parametrize("with_trend", [False, True])
def test_failed_mixture_is_data(backend: str, rng: np.random.Generator, with_trend: bool) -> None:
    good, bad = ([1.0], [0.3], [0.1]), ([1e6], [0.0], [0.0])  # a constant without noise: rank 1
    X, y = np.arange(40.0), rng.normal(size=40)
    options: dict[str, Any] = {"structure": "toeplitz"} | ({"basis": trend(X, rng, 2)} if with_trend else {})
    alone = log_likelihood(one(*good), X, y, 0.01, grad=True, **options)
    batch, noise = GMMBatch.from_list([good, bad, good]), np.array([0.01, 0.0, 0.01])
    result = log_likelihood(batch, X, y, noise, grad=True, **options)
    assert result.info.tolist() == [0, 2, 0]
    assert result.value[1] == -np.inf
    for part, own in zip(gradients(result.grad), gradients(alone.grad), strict=True):
        assert np.isnan(part[1])
        np.testing.assert_array_equal(part.ravel()[[0, 2]], np.repeat(own.ravel(), 2))
    repaired = log_likelihood(one(*bad), X, y, 0.0, grad=True, jitter=1e-3, **options)
    dense = log_likelihood(one(*bad), X, y, 0.0, grad=True, jitter=1e-3, **{**options, "structure": "dense"})
    assert repaired.info[0] == 0
    np.testing.assert_allclose(repaired.jitter, dense.jitter)
    np.testing.assert_allclose(repaired.value, dense.value, rtol=1e-6)
    if with_trend:
        options["basis_new"] = trend([0.5, 50.0], rng, 2)
    prediction: Any = predict_gp(batch, X, y, noise, [0.5, 50.0], covariance="full", **options)
    assert prediction.info.tolist() == [0, 2, 0]
    assert np.isnan(prediction.mean[1]).all()
    assert np.isnan(prediction.covariance[1]).all()
    assert np.isfinite(prediction.variance[[0, 2]]).all()
    options["basis_new"] = options["basis_new"][:1] if with_trend else None
    again = predict_gp(one(*bad), X, y, 0.0, [0.5], jitter=1e-3, **options)
    dense_again = predict_gp(one(*bad), X, y, 0.0, [0.5], jitter=1e-3, **{**options, "structure": "dense"})
    np.testing.assert_allclose(again.mean, dense_again.mean, rtol=1e-6)


def test_variances_are_not_negative(backend: str, rng: np.random.Generator) -> None:
    """At the data without noise they are 0 up to rounding, which is clipped and not reported."""
    X, y = np.arange(40.0), rng.normal(size=40)
    result = predict_gp(one([1.0], [0.1], [0.2]), X, y, 0.0, X, structure="toeplitz")
    assert result.info[0] == 0
    assert (result.variance >= 0.0).all()
    assert (result.variance == 0.0).any()
    assert result.variance.max() < 1e-12
    close(result.mean[0], y, 1e-8, least=0.0)
    V = trend(X, rng, 2)
    line = predict_gp(one([1.0], [0.1], [0.2]), X, y, 0.0, X, basis=V, basis_new=V, structure="toeplitz")
    assert line.info[0] == 0
    assert (line.variance >= 0.0).all()
    assert line.variance.max() < 1e-12


def test_noise_from_tiny_to_large(rng: np.random.Generator) -> None:
    """Ill-conditioned: both paths lose digits, N eps times the condition number of them, and neither fails."""
    g, X, y = one([1.0], [0.0], [2.0 / 500]), np.arange(500.0), np.sin(np.arange(500) / 9)
    for noise, tolerance in ((1e-6, 1e-8), (1e-4, 1e-10), (1e-2, 1e-11), (1.0, 1e-13)):
        fast, dense = (log_likelihood(g, X, y, noise, structure=s) for s in ("auto", "dense"))
        assert fast.info[0] == dense.info[0] == 0
        np.testing.assert_allclose(fast.value, dense.value, rtol=tolerance)


@pytest.mark.parametrize("with_trend", [False, True])
def test_bits(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, with_trend: bool) -> None:
    """Neither threads nor memory nor company change a bit."""
    toeplitz = importlib.import_module("maskerade_fast.backends.cpu.toeplitz")
    g, X, y = waves(rng, [3, 1, 2, 5, 1, 1, 4]), np.arange(150.0), rng.normal(size=150)
    X_new = rng.uniform(0, 200, 300)
    options: dict[str, Any] = {"structure": "toeplitz"}
    V = trend(X, rng, 2) if with_trend else None
    bases: dict[str, Any] = {"basis": V, "basis_new": trend(X_new, rng, 2)} if with_trend else {}
    results = []
    for threads, max_bytes in (
        (1, None),
        (3, None),
        (2, 8 * 150 * (9 + 10 + (9 if with_trend else 0))),
        (4, 8 * 150 * 40),
    ):
        monkeypatch.setattr(toeplitz, "n_threads", lambda n=threads: n)
        results.append(log_likelihood(g, X, y, 0.1, basis=V, grad=True, max_bytes=max_bytes, **options))
        same_bits(results[-1], results[0])
    predictions = []
    for threads, max_bytes in ((1, None), (3, None), (2, 600_000), (4, 1_000_000)):
        monkeypatch.setattr(toeplitz, "n_threads", lambda n=threads: n)
        predictions.append(predict_gp(g, X, y, 0.1, X_new, max_bytes=max_bytes, **bases, **options))
        same_bits(predictions[-1], predictions[0])
    lone = log_likelihood(g[3], X, y, 0.1, basis=V, grad=True, **options)
    np.testing.assert_array_equal(lone.value[0], results[0].value[3])
    full = predict_gp(g[3], X, y, 0.1, X_new, covariance="full", **bases, **options)
    np.testing.assert_array_equal(full.variance[0], predictions[0].variance[3])


def test_chunks_on_the_card(emulated: Any, rng: np.random.Generator) -> None:
    import cupy

    from maskerade_fast.backends import gpu

    g = waves(rng, [3, 1, 2]).to("gpu")
    batch = (g.offsets, g.weights, g.means, g.scales)
    X, y, noise = cupy.arange(40.0)[:, None], cupy.asarray(rng.normal(size=40)), cupy.full((1, 1), 0.1)
    each = 8 * 40 * (11 + 2 * 3)
    whole: Any = gpu.toeplitz_log_likelihood(*batch, X, y, noise, jitter=0.0, grad=True, max_bytes=None)
    emulated.state.launches.clear()
    parts: Any = gpu.toeplitz_log_likelihood(*batch, X, y, noise, jitter=0.0, grad=True, max_bytes=each)
    assert emulated.state.launches.count("toeplitz_schur_f64") == 3
    for computed, expected in zip((*parts[:3], *parts[3]), (*whole[:3], *whole[3]), strict=True):
        np.testing.assert_array_equal(computed.get(), expected.get())
    for covariance in ("diagonal", "full"):
        one_by_one, bounded, larger = (
            predict_gp(g, X, y, 0.1, cupy.arange(7.0), covariance=covariance, structure="toeplitz", max_bytes=bound)
            for bound in (60_000, 100_000, None)
        )
        for name in ("mean", "variance"):
            np.testing.assert_array_equal(getattr(one_by_one, name).get(), getattr(larger, name).get())
            np.testing.assert_array_equal(getattr(bounded, name).get(), getattr(larger, name).get())
    with pytest.raises(MemoryError, match="one Toeplitz matrix of 40 points and 3 test points"):
        predict_gp(g, X, y, 0.1, cupy.arange(7.0), structure="toeplitz", max_bytes=1000)
    with pytest.raises(MemoryError, match="one Toeplitz matrix of 40 points"):
        gpu.toeplitz_log_likelihood(*batch, X, y, noise, jitter=0.0, grad=True, max_bytes=each - 1)


def test_memory(rng: np.random.Generator) -> None:
    """O(N): a matrix of 2000 points would be 32 MB."""
    g, X, y = waves(rng, [2]), np.arange(2000.0), rng.normal(size=2000)
    log_likelihood(g, X, y, 0.1, grad=True)
    assert peak(lambda: log_likelihood(g, X, y, 0.1, grad=True)) < 2_000_000
    with pytest.raises(MemoryError, match="one Toeplitz matrix of 2000 points needs"):
        log_likelihood(g, X, y, 0.1, max_bytes=1000)


def test_float32(backend: str, rng: np.random.Generator) -> None:
    g, X, y = waves(rng, [2, 1]), np.arange(30.0), rng.normal(size=30)
    single = GMMBatch(g.offsets, *(a.astype(np.float32) for a in (g.weights, g.means, g.scales)))
    double = GMMBatch(g.offsets, *(a.astype(np.float64) for a in (single.weights, single.means, single.scales)))
    y = y.astype(np.float32)
    short: Any = log_likelihood(single, X.astype(np.float32), y, 0.1, grad=True, structure="toeplitz")
    long: Any = log_likelihood(double, X, y.astype(np.float64), 0.1, grad=True, structure="toeplitz")
    assert short.value.dtype == np.float32
    np.testing.assert_array_equal(short.value, long.value.astype(np.float32))
    np.testing.assert_array_equal(short.grad.means, long.grad.means.astype(np.float32))


def test_empty_batch(backend: str) -> None:
    empty = GMMBatch(np.zeros(1, np.int64), np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))
    assert log_likelihood(empty, np.arange(3.0), np.ones(3), 0.1, structure="toeplitz").value.shape == (0,)
    assert predict_gp(empty, np.arange(3.0), np.ones(3), 0.1, [0.5], structure="toeplitz").mean.shape == (0, 1)


def test_sum_of_an_inverse_against_targets(rng: np.random.Generator) -> None:
    """What bounds the rounding of a variance of 0: the sum of |C^-1 k|."""
    from numba import njit

    from maskerade_fast.backends.cpu._toeplitz_loops import inverse_total

    column = np.exp(-0.1 * np.arange(24.0)) * np.cos(0.4 * np.arange(24.0))
    targets = rng.normal(size=24)
    matrix = column[np.abs(np.subtract.outer(np.arange(24), np.arange(24)))] + 0.3 * np.eye(24)
    expected = np.abs(np.linalg.solve(matrix, targets)).sum()
    total = njit(lambda *arguments: inverse_total(*arguments))(column, 1.3, targets)
    assert total == pytest.approx(expected, rel=1e-12)
