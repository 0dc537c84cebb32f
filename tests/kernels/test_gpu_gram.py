"""Gram matrices of the GPU backend, on the emulator: the oracle on ragged batches, exact diagonals, offsets, chunks."""

from __future__ import annotations

from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import oracle
import pytest
from gpu_calls import EVERY_ORDER, call, flat, gram, ragged
from numpy.testing import assert_allclose, assert_array_equal

OPERATIONS = "gram"
PHASES = pytest.mark.parametrize("phase", ["joint", "per_axis"])


@PHASES
@pytest.mark.parametrize(("scale", "first"), [(1.0, 0.1), (1e6, 0.1), (1e6, 1.2345678e-9)])
def test_phases_keep_the_digits_of_their_differences(gpu: ModuleType, phase: str, scale: float, first: float) -> None:
    """Differences of the points that float64 does not hold, times thousands of turns: against fractions.

    What a difference is rounded by would move the cosine by 3e-10 to 3e-4. It has 12 bits for a first point of 0.1,
    and 38 for one of 1e-9.
    """
    X, m = np.array([[first], [1000.3], [977.7]]), 4700.37 * scale
    K = gram(gpu, [(np.ones(1), np.array([[m]]), np.zeros((1, 1)))], X, phase=phase)[0]
    turns = [[Fraction(m) * (Fraction(a) - Fraction(b)) for b in X[:, 0]] for a in X[:, 0]]
    expected = [[np.cos(2.0 * np.pi * float(t - round(t))) for t in row] for row in turns]
    assert_allclose(K, expected, rtol=0.0, atol=2e-15)


@EVERY_ORDER
@PHASES
@pytest.mark.parametrize(
    ("n_dims", "n_rows", "n_columns"), [(1, 67, 3), (2, 16, 65), (5, 17, 1), (18, 5, 7), (3, 1, 1)]
)
def test_oracle(
    gpu: ModuleType, rng: np.random.Generator, n_dims: int, n_rows: int, n_columns: int, phase: str
) -> None:
    batch = ragged(rng, [1, 3, 1, 5], n_dims, least=0.0)
    X, Y = rng.normal(size=(n_rows, n_dims)) + 10.0, rng.normal(size=(n_columns, n_dims)) + 10.0
    cross = gram(gpu, batch, X, Y, phase=phase)
    assert_allclose(cross, oracle.gram(batch, X, Y, phase=phase), rtol=0.0, atol=1e-12)
    noise = rng.uniform(0.1, 1.0, size=(4, n_rows))
    own = gram(gpu, batch, X, noise=noise, phase=phase)
    assert_allclose(own, oracle.gram(batch, X, noise_variance=noise, phase=phase), rtol=0.0, atol=1e-12)
    assert_array_equal(own, np.swapaxes(own, 1, 2))


@pytest.mark.parametrize("counts", [[300], [1]])
def test_number_of_components(gpu: ModuleType, rng: np.random.Generator, counts: list[int]) -> None:
    X = rng.normal(size=(9, 2))
    batch = ragged(rng, counts, 2)
    assert_allclose(gram(gpu, batch, X), oracle.gram(batch, X), rtol=0.0, atol=1e-12)


def test_empty_batch_and_no_columns(gpu: ModuleType, rng: np.random.Generator) -> None:
    X = rng.normal(size=(9, 2))
    nothing = np.zeros(1, dtype=np.int64), np.zeros(0), np.zeros((0, 2)), np.zeros((0, 2))
    assert call(gpu.gram, *nothing, X, None, np.zeros((1, 1)), per_axis=False).shape == (0, 9, 9)
    assert gram(gpu, ragged(rng, [2], 2), X, X[:0]).shape == (1, 9, 0)


def test_the_diagonal_is_exact_for_every_shape_of_noise(gpu: ModuleType, rng: np.random.Generator) -> None:
    batch = ragged(rng, [2, 4, 7], 1)
    X = rng.normal(size=(6, 1))
    for shape in [(1, 1), (3, 1), (1, 6), (3, 6)]:
        noise = rng.uniform(size=shape)
        K = gram(gpu, batch, X, noise=noise)
        for b, (weights, _, _) in enumerate(batch):
            total = 0.0
            for w in weights:
                total += w
            assert_array_equal(np.diagonal(K[b]), total + np.broadcast_to(noise, (3, 6))[b])


def test_offsets_of_the_inputs_leave_the_bits(gpu: ModuleType, rng: np.random.Generator) -> None:
    batch = ragged(rng, [3], 2)
    X = np.round(rng.normal(size=(20, 2)) * 1024.0) / 1024.0
    assert_array_equal(gram(gpu, batch, X), gram(gpu, batch, X + 2.0**30))


def test_large_phases_cost_no_digits(gpu: ModuleType) -> None:
    """m x up to 5e6 turns: the frequency is a dyadic number, so the phase's fraction is known exactly."""
    m = 4096.0 + 1.0 / 1024.0
    X = np.arange(40.0)[:, None] * 31.0
    batch = [(np.ones(1), np.full((1, 1), m), np.zeros((1, 1)))]
    lag = X - X.T
    assert_allclose(gram(gpu, batch, X)[0], np.cos(2.0 * np.pi * ((lag / 1024.0) % 1.0)), rtol=0.0, atol=2e-15)


def test_extreme_scales(gpu: ModuleType) -> None:
    batch = [(np.ones(2), np.zeros((2, 1)), np.array([[1e200], [0.0]]))]
    X = np.array([[0.0], [1.0], [1e140]])
    assert_array_equal(gram(gpu, batch, X)[0], np.ones((3, 3)) + np.eye(3))


def test_chunks_leave_the_bits(gpu: ModuleType, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ragged(rng, [2, 9, 1, 3], 2)
    X, Y = rng.normal(size=(30, 2)), rng.normal(size=(11, 2))
    whole = gram(gpu, batch, X, noise=0.3), gram(gpu, batch, X, Y)
    monkeypatch.setattr(gpu, "TABLE_BYTES", 1)
    assert_array_equal(gram(gpu, batch, X, noise=0.3), whole[0])
    assert_array_equal(gram(gpu, batch, X, Y), whole[1])


def test_a_warp_may_have_several_tiles(
    gpu: ModuleType, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches are bounded; warps then go on to further tiles."""
    batch = ragged(rng, [2, 1], 1)
    X = rng.normal(size=(70, 1))
    monkeypatch.setattr(gpu, "grid_for", lambda items, per_block: 1)
    assert_allclose(gram(gpu, batch, X), oracle.gram(batch, X), rtol=0.0, atol=1e-12)
    assert_allclose(gram(gpu, batch, X, X[:5]), oracle.gram(batch, X, X[:5]), rtol=0.0, atol=1e-12)


def test_single_precision_is_cast_back(gpu: ModuleType, rng: np.random.Generator) -> None:
    offsets, *arrays = flat(ragged(rng, [2], 1))
    X = rng.normal(size=(5, 1)).astype(np.float32)
    small = [a.astype(np.float32) for a in arrays]
    K = call(gpu.gram, offsets, *small, X, None, np.zeros((1, 1)), per_axis=False)
    assert K.dtype == np.float32
    exact: Any = [tuple(a.astype(np.float64) for a in small)]
    assert_allclose(K, oracle.gram(exact, X), rtol=0.0, atol=1e-7)
