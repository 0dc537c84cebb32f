"""Covariances that are not positive definite, alone and in a batch; jitter; the tiled factorisation (C01 to C03)."""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np
import pytest
from batches import one, ragged
from comparisons import close, gradients

from maskerade_fast.backends import cpu
from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.ops.likelihood import log_likelihood

covariance = importlib.import_module("maskerade_fast.backends.cpu._covariance")

TRIPLE: dict[str, Any] = {"X": [0.0, 1.0, 2.0], "y": [1.0, -1.0, 0.5], "noise_variance": 0.01}


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
    for part in gradients(result.grad):
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
    batch = GMMBatch.from_list(mixtures)
    result: Any = log_likelihood(batch, TRIPLE["X"], TRIPLE["y"], noise, jitter=jitter, grad=True)
    alone: Any = log_likelihood(one(*good), **TRIPLE, grad=True)
    others = [b for b in range(3) if b != place]
    np.testing.assert_array_equal(result.value[others], alone.value[0])
    np.testing.assert_array_equal(result.jitter[others], 0.0)
    np.testing.assert_array_equal(result.grad.means[others], np.repeat(alone.grad.means, 2, axis=0))
    if jitter:
        assert result.info[place] == 0
        assert result.jitter[place] == pytest.approx(1e-4 * jitter * 1e6)
        repaired = log_likelihood(one(*bad), TRIPLE["X"], TRIPLE["y"], result.jitter[place])
        assert repaired.value[0] == result.value[place]
    else:
        assert (result.info[place], result.value[place]) == (2, -np.inf)


def test_repeated_rows_fail_alone() -> None:
    """C01, C02, on any matrix of too low rank: the pivot flags it, with noise it is exact, and its company keeps its
    bits."""
    hypothesis = pytest.importorskip("hypothesis")
    integers = hypothesis.strategies.integers

    @hypothesis.given(integers(1, 4), integers(2, 4), integers(1, 3), integers(0, 2**32 - 1), integers(0, 2))
    def fail_alone(n_distinct: int, repeats: int, n_dims: int, seed: int, place: int) -> None:
        rng = np.random.default_rng(seed)
        rows = rng.permutation(n_distinct * repeats)
        X = np.repeat(rng.uniform(size=(n_distinct, n_dims)), repeats, axis=0)[rows]
        y, g, noise = rng.normal(size=len(X)), ragged(rng, [2, 2, 2], n_dims), np.full(3, 0.1)
        noise[place] = 0.0
        result = log_likelihood(g, X, y, noise)
        assert result.value[place] == -np.inf
        assert 2 <= result.info[place] <= n_distinct * repeats
        assert (result.jitter == 0.0).all()
        for b in {0, 1, 2} - {place}:
            assert result.info[b] == 0
            np.testing.assert_array_equal(result.value[b], log_likelihood(g[[b]], X, y, 0.1).value[0])
        repaired = log_likelihood(g, X, y, noise, jitter=1e-4)
        assert (repaired.jitter > 0.0).tolist() == [b == place for b in range(3)]
        assert np.isfinite(repaired.value).all()

    fail_alone()


@pytest.mark.parametrize("apart", [2.0, 1e6])
def test_cholesky_retries(apart: float) -> None:
    """A singular matrix is repaired, an indefinite one flagged after three tries, and the input stays as it was."""
    matrices = np.array([[[1.0, 1.0], [1.0, 1.0]], [[1.0, apart], [apart, 1.0]], [[2.0, 1.0], [1.0, 2.0]]])
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


def test_tiled_factor(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The factorisation of large matrices, at a size that a test can afford."""
    g, X, y = ragged(rng, [1, 2], 2), rng.uniform(size=(700, 2)), rng.normal(size=700)
    expected = log_likelihood(g, X, y, 0.05, grad=True)
    monkeypatch.setattr(covariance, "TILED_SIZE", 600)
    result = log_likelihood(g, X, y, 0.05, grad=True)
    close(result.value, expected.value, 1e-10)
    for a, b in zip(gradients(result.grad), gradients(expected.grad), strict=True):
        close(a, b, 1e-10)
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
