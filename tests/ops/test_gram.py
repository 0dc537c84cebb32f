"""Gram matrices: the oracle, golden numbers, invariances, types and bad arguments."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from batches import as_type, one, ragged

from maskerade_fast.errors import CollapsedInputsWarning
from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.ops.gram import gram

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "likelihood.json").read_text())
EPS = np.finfo(np.float64).eps


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: f"D{c['D']}")
def test_golden(case: dict[str, Any]) -> None:
    theta = case["theta"]
    K = gram(one(theta["weights"], theta["means"], theta["scales"]), case["X"])[0]
    np.testing.assert_allclose(K, case["K"], rtol=0, atol=1e-10 * np.abs(case["K"]).max())


@pytest.mark.parametrize("phase", ["joint", "per_axis"])
@pytest.mark.parametrize("n_dims", [1, 2, 4])
def test_oracle(rng: np.random.Generator, n_dims: int, phase: str) -> None:
    g = ragged(rng, [3, 1, 4], n_dims)
    X, Y = rng.uniform(-1, 1, size=(21, n_dims)), rng.uniform(-1, 1, size=(6, n_dims))
    noise = rng.uniform(size=(3, 21))
    mixtures = oracle.mixtures_of(g)
    tolerance = {"rtol": 0, "atol": 40 * EPS * g.mass.max()}
    np.testing.assert_allclose(
        gram(g, X, noise_variance=noise, phase=phase),
        oracle.gram(mixtures, X, noise_variance=noise, phase=phase),
        **tolerance,
    )
    np.testing.assert_allclose(gram(g, X, Y, phase=phase), oracle.gram(mixtures, X, Y, phase=phase), **tolerance)


def test_sizes_around_tiles_equal_single_rows(rng: np.random.Generator) -> None:
    """Tiles have 256 columns and lanes of 16: every size around them gives the entries of the pairs alone."""
    g = ragged(rng, [3], 2)
    X = rng.uniform(size=(515, 2))
    X[0] = 0.0  # the least value of both axes, in all of them
    K = gram(g, X, noise_variance=0.5)
    for n in (15, 16, 17, 255, 256, 257, 511, 512, 513):
        np.testing.assert_array_equal(gram(g, X[:n], noise_variance=0.5)[0], K[0, :n, :n])
    np.testing.assert_allclose(gram(g, X, X)[0] + 0.5 * np.eye(515), K[0], rtol=0, atol=20 * EPS * g.mass[0])
    np.testing.assert_array_equal(K[0], K[0].T)


def test_diagonal_is_exact(rng: np.random.Generator) -> None:
    g = GMMBatch.from_list([([0.1, 0.2, 0.3], [1.0, 2.0, 3.0], [0.1, 0.2, 0.3])])
    K = gram(g, rng.uniform(size=30), noise_variance=0.7)
    np.testing.assert_array_equal(np.diag(K[0]), (0.1 + 0.2 + 0.3) + 0.7)


@pytest.mark.parametrize(
    ("phase", "single", "double"),
    [("joint", -0.294137766569626, -0.082968461281489), ("per_axis", 0.237962451842318, 0.315374858042612)],
)
def test_phases_by_name(phase: str, single: float, double: float) -> None:
    """The cosine of the sum, the product inside each component; not 0.0156588866173367, the product of sums."""
    lag = [[0.3, 0.2]]
    origin = [[0.0, 0.0]]
    K = gram(one([1.0], [[1.0, 2.0]], [[0.1, 0.2]]), lag, origin, phase=phase)
    assert K[0, 0, 0] == pytest.approx(single, rel=1e-13)
    g = one([0.7, 0.3], [[1.0, 2.0], [0.5, 0.1]], [[0.1, 0.2], [0.3, 0.05]])
    assert gram(g, lag, origin, phase=phase)[0, 0, 0] == pytest.approx(double, rel=1e-13)


def test_phases_agree_in_one_dimension(rng: np.random.Generator) -> None:
    g, X = ragged(rng, [3, 2], 1), rng.uniform(size=40)
    kwargs: dict[str, Any] = {"noise_variance": 0.1}
    np.testing.assert_array_equal(gram(g, X, phase="joint", **kwargs), gram(g, X, phase="per_axis", **kwargs))


@pytest.mark.parametrize("n_dims", [1, 3])
def test_translation_keeps_bits(rng: np.random.Generator, n_dims: int) -> None:
    """Inputs on a grid, so that the shift itself rounds nothing; lags then are the same numbers."""
    g = ragged(rng, [3, 2], n_dims)
    X = rng.integers(0, 4096, size=(50, n_dims)) / 1024.0
    np.testing.assert_array_equal(gram(g, X, noise_variance=0.1), gram(g, X + 2.0**31, noise_variance=0.1))
    np.testing.assert_array_equal(gram(g, X, X[:7]), gram(g, X - 3.0 * 2.0**30, X[:7] - 3.0 * 2.0**30))


def test_far_first_point_costs_no_digits() -> None:
    """An outlier in front, from which all phases are measured, must not coarsen the lags of the others."""
    g = one([1.0], [5.3], [0.4])
    X = np.array([1e9 + 0.1, 0.1, 0.37])
    t = X[1] - X[2]
    exact = math.exp(-2 * math.pi**2 * 0.4**2 * t * t) * math.cos(2 * math.pi * 5.3 * t)
    assert gram(g, X, noise_variance=0.0)[0, 1, 2] == pytest.approx(exact, abs=1e-14)


def test_large_phases_keep_their_digits() -> None:
    """Frequency 47, inputs to 1000: the direct cosine is wrong by 4e-11 there. Whole turns give cosine 1."""
    X = np.arange(0.0, 1000.0, 1.0)
    K = gram(one([1.0], [47.0], [0.0]), X, noise_variance=0.0)
    np.testing.assert_allclose(K, 1.0, rtol=0, atol=1e-15)


def test_scales_zero_and_huge(rng: np.random.Generator) -> None:
    """Scale 0 is a pure cosine, a huge one white noise."""
    X = rng.uniform(size=12)
    np.testing.assert_allclose(
        gram(one([2.0], [1.5], [0.0]), X, noise_variance=0.0)[0],
        2.0 * np.cos(3 * np.pi * (X[:, None] - X)),
        rtol=0,
        atol=1e-14,
    )
    np.testing.assert_array_equal(gram(one([2.0], [0.0], [1e200]), X, noise_variance=0.0)[0], 2.0 * np.eye(12))
    np.testing.assert_array_equal(gram(one([1.0], [0.0], [1e200]), [0.0, 0.0], noise_variance=0.0), 1.0)


def test_zero_weight_far_component() -> None:
    g = one([1.0, 0.0], [0.3, 5.0], [0.1, 2.0])
    assert gram(g, [0.4], [0.0])[0, 0, 0] == pytest.approx(0.706305569548513, rel=1e-14)


def test_shapes_are_never_squeezed() -> None:
    g = GMMBatch.from_list([([1.5], [0.3], [0.1])] * 4)
    assert gram(g, [3.0], noise_variance=0.1).shape == (4, 1, 1)
    assert gram(g[0], [0.0, 0.5], noise_variance=0.1).shape == (1, 2, 2)
    assert gram(g, [0.0, 0.5], []).shape == (4, 2, 0)
    empty = GMMBatch(np.zeros(1, np.int64), np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))
    assert gram(empty, [0.0, 0.5, 1.0]).shape == (0, 3, 3)


def test_float32_result(rng: np.random.Generator) -> None:
    g = ragged(rng, [2], 1)
    small = as_type(g, np.float32)
    X = rng.uniform(size=20).astype(np.float32)
    K = gram(small, X, noise_variance=0.1)
    assert K.dtype == np.float32
    np.testing.assert_allclose(K, gram(g, X.astype(np.float64), noise_variance=0.1), rtol=0, atol=2e-6)
    assert gram(small, X.astype(np.float64), noise_variance=0.1).dtype == np.float64


def test_noise_forms(rng: np.random.Generator) -> None:
    X = rng.uniform(size=5)
    g = GMMBatch.from_list([([1.0], [0.3], [0.1])] * 2, noise_variances=[0.1, 0.2])
    by_point = np.arange(10.0).reshape(2, 5)
    for noise, expected in (
        (None, np.array([[0.1], [0.2]])),
        (0.5, 0.5),
        ([0.3, 0.4], np.array([[0.3], [0.4]])),
        (by_point[:1], by_point[:1]),
        (by_point, by_point),
    ):
        diagonals = np.diagonal(gram(g, X, noise_variance=noise), axis1=1, axis2=2)
        np.testing.assert_array_equal(diagonals, np.broadcast_to(1.0 + expected, (2, 5)))
    np.testing.assert_array_equal(np.diagonal(gram(g, X, X), axis1=1, axis2=2), 1.0)
    np.testing.assert_array_equal(np.diagonal(gram(one([1.0], [0.3], [0.1]), X)[0]), 1.0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"X": [[0.0, 1.0]]}, ValueError, r"X: 2 columns.*g.n_dims is 1"),
        ({"X": []}, ValueError, "X: no rows"),
        ({"X": [0.0, np.nan]}, ValueError, r"X\[1\]: nan"),
        ({"X": [0.0, 1e200]}, ValueError, "X: entries up to 1e"),
        ({"X": [0j, 1j]}, TypeError, "X: expected real numbers"),
        ({"X": np.array([None, 1.0])}, TypeError, "X: expected real numbers"),
        ({"X": [0.0], "Y": [0.0], "noise_variance": 0.1}, ValueError, "noise_variance: given beside Y"),
        ({"X": [0.0], "noise_variance": -0.1}, ValueError, "noise_variance: -0.1, expected >= 0"),
        ({"X": [0.0], "noise_variance": [0.1, 0.1]}, ValueError, r"noise_variance: shape \(2,\)"),
        ({"X": [0.0], "phase": "sum"}, ValueError, "phase: 'sum'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gram(one([1.0], [0.3], [0.1]), **arguments)


COLLAPSED = {
    "seconds since 1970": 1.7e9 + np.arange(3.0),
    "a finer grid than float32": 1e6 + np.linspace(0, 1, 100),
    "milliseconds": 1.7e12 + np.arange(0.0, 5e6, 1e4),
}
ORDINARY = {
    "unit interval": np.linspace(0, 1, 100),
    "constant": np.full(50, 3.7),
    "constant zero": np.zeros(5),
    "years, repeated": np.repeat(np.arange(1900.0, 2024.0), 20),
    "many random numbers, some equal": np.random.default_rng(0).uniform(size=20000),
    "days in seconds, repeated": np.repeat(1.7e9 + 86400.0 * np.arange(30), 3),
    "far but distinct": 1e6 + np.arange(100.0),
    "one point": np.array([1.7e9]),
    "categories": np.repeat([1e8, 2e8, 3e8], 10),
}


@pytest.mark.parametrize("name", COLLAPSED)
def test_collapsed_float32_inputs_warn(name: str) -> None:
    g = one(*(np.ones(s, np.float32) for s in ((1,), (1, 1), (1, 1))))
    X = COLLAPSED[name].astype(np.float32)
    with pytest.warns(CollapsedInputsWarning, match="X: column 0"):
        gram(g, X, noise_variance=0.1)


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_float32_inputs_do_not_warn(name: str) -> None:
    from maskerade_fast.ops.gram import warn_if_collapsed

    X = ORDINARY[name].astype(np.float32)[:, None]
    beside = np.column_stack([np.full(len(X), 1.7e9), np.arange(len(X))]).astype(np.float32)
    warn_if_collapsed(X, "X")
    warn_if_collapsed(beside, "X")  # a constant far column, but no two rows are equal
    warn_if_collapsed(1.7e9 + np.arange(3.0)[:, None], "X")  # float64 tells them apart


@pytest.mark.usefixtures("backend")
def test_every_backend(rng: np.random.Generator) -> None:
    test_oracle(rng, 2, "per_axis")
    test_oracle(rng, 1, "joint")
    for name in COLLAPSED:
        test_collapsed_float32_inputs_warn(name)
    for name in ORDINARY:
        test_ordinary_float32_inputs_do_not_warn(name)
