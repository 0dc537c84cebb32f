"""Every way of the GPU backend to a log-likelihood, on the emulator; test_gpu_likelihood.py has the variants."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import oracle
import pytest
from gpu_calls import assert_all_equal, assert_gradients, assert_meets_the_oracle, call, likelihood, ragged, regimes
from numpy.testing import assert_allclose, assert_array_equal

OPERATIONS = "likelihood"
NOISE = np.array([[0.1], [0.0], [0.3]])


def without(arrays: list[Any], counts: list[int]) -> list[Any]:
    """Gradients of a batch of three, in its components and its noise, less those of the second."""
    kept = np.repeat([True, False, True], counts)
    return [*(a[kept] for a in arrays[:3]), arrays[3][[0, 2]]]


@pytest.mark.parametrize("regime", ["small", "panels", "blocked"])
@pytest.mark.parametrize("n_points", [32, 39])
def test_one_of_three_fails(gpu: ModuleType, rng: np.random.Generator, regime: str, n_points: int) -> None:
    """It costs its own elements; a shift repairs it, and leaves the others' bits. With padding and without."""
    counts = [2, 1, 3]
    batch = ragged(rng, counts, 1)
    X, y = rng.uniform(-2, 2, size=(n_points, 1)), rng.normal(size=n_points)
    X[20] = X[3]  # a pivot of 0, where there is no noise
    limits = regimes(gpu, regime)
    value, info, shift, gradients = likelihood(gpu, batch, X, y, NOISE, limits, grad=True)
    assert_array_equal(info, [0, 21, 0])
    assert_array_equal(shift, [0.0, 0.0, 0.0])
    assert value[1] == -np.inf
    good = [batch[0], batch[2]]
    expected = oracle.log_likelihood(good, X, y, NOISE[[0, 2], 0], "joint")
    assert_allclose(value[[0, 2]], expected, rtol=1e-12)
    slopes = oracle.log_likelihood_gradient(good, X, y, NOISE[[0, 2], 0], "joint")
    assert_gradients(without(gradients, counts), slopes)
    assert all(np.isnan(a[2]).all() for a in gradients[:3])
    assert np.isnan(gradients[3][1]).all()
    assert_array_equal(likelihood(gpu, batch, X, y, NOISE, limits)[0], value)
    alone = likelihood(gpu, batch[1:2], X, y, NOISE[1:2], limits, grad=True)
    assert_array_equal(alone[1], info[1:2])
    assert np.isnan(alone[3][0]).all()

    repaired = likelihood(gpu, batch, X, y, NOISE, limits, grad=True, jitter=1e-2)
    assert_array_equal(repaired[1], [0, 0, 0])
    assert repaired[2][1] > 0.0
    assert_array_equal(repaired[2][[0, 2]], [0.0, 0.0])
    assert_array_equal(repaired[0][[0, 2]], value[[0, 2]])
    assert_all_equal(without(repaired[3], counts), without(gradients, counts))
    shifted = oracle.log_likelihood([batch[1]], X, y, np.array([repaired[2][1]]), "joint")
    assert_allclose(repaired[0][1], shifted[0], rtol=1e-9)  # of condition 1e6


def test_rows_below_the_second_panel(gpu: ModuleType, rng: np.random.Generator) -> None:
    """Three blocks of rows, the last not full, beside panels of 64 columns; and a block of columns that is cut."""
    batch, X, y = ragged(rng, [2, 1], 1), rng.uniform(-2, 2, size=(150, 1)), rng.normal(size=150)
    noise = np.array([[0.1], [0.3]])
    for width in (64, 128, 256):
        limits = regimes(gpu, "blocked")._replace(width=width)
        value, info, _, _ = likelihood(gpu, batch, X, y, noise, limits)
        assert not info.any()
        assert_allclose(value, oracle.log_likelihood(batch, X, y, noise[:, 0], "joint"), rtol=1e-12)


@pytest.mark.parametrize("regime", ["small", "panels", "blocked"])
def test_without_tensor_instructions(emulated: Any, gpu: ModuleType, rng: np.random.Generator, regime: str) -> None:
    """On a card that has none, or slow ones: products by multiply-adds."""
    emulated.state.devices[0].capability = 75
    batch, X, y = ragged(rng, [2, 1], 1), rng.uniform(-2, 2, size=(39, 1)), rng.normal(size=39)
    noise = np.array([[0.1], [0.3]])
    assert_meets_the_oracle(gpu, batch, X, y, noise, regimes(gpu, regime))


@pytest.mark.parametrize(
    ("phase", "regime"), [("joint", "small"), ("joint", "panels"), ("joint", "blocked"), ("per_axis", "small")]
)
def test_passes_over_the_axes(
    gpu: ModuleType, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, regime: str, phase: str
) -> None:
    """One axis at a time: the gradients of the later ones come as those of the first."""
    monkeypatch.setattr(gpu, "MOST_AXES", 1)
    batch = ragged(rng, [2, 1], 3)
    X, y, noise = rng.uniform(-2, 2, size=(20, 3)), rng.normal(size=20), np.array([[0.1], [0.3]])
    assert_meets_the_oracle(gpu, batch, X, y, noise, regimes(gpu, regime), phase)


def test_nothing_to_do(gpu: ModuleType, rng: np.random.Generator) -> None:
    """No mixture, a mixture of no component, no matrix."""
    gram, cholesky = (importlib.import_module(f"maskerade_fast.backends.gpu.{n}") for n in ("gram", "cholesky"))
    X, y = rng.uniform(size=(5, 1)), rng.normal(size=5)
    nothing, noise = (np.empty(0), np.empty((0, 1)), np.empty((0, 1))), np.full((1, 1), 0.5)
    options: dict[str, Any] = {"per_axis": False, "jitter": 0.0, "grad": True, "max_bytes": None}
    value, info, _, gradients = call(gpu.log_likelihood, np.zeros(1, np.int64), *nothing, X, y, noise, **options)
    assert (value.shape, info.shape, [a.shape for a in gradients]) == ((0,), (0,), [(0,), (0, 1), (0, 1), (0, 1)])
    K = call(gram.gram, np.zeros(2, np.int64), *nothing, X, None, noise, per_axis=False)
    assert_array_equal(K, 0.5 * np.eye(5)[None])
    assert [a.shape for a in call(cholesky.cholesky, np.empty((0, 4, 4)))] == [(0, 4, 4), (0,), (0,)]
