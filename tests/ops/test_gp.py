"""GP predictions: the oracle, ill-conditioned data, latent and observed, memory, failures, bits."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest
from batches import as_type, one, ragged
from comparisons import peak, same_bits

from maskerade_fast.errors import CollapsedInputsWarning
from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.ops.gp import predict_gp

covariance = importlib.import_module("maskerade_fast.backends.cpu._covariance")
kernels = importlib.import_module("maskerade_fast.backends.cpu.gp")


@pytest.fixture
def many_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the number of the package's threads, also beyond Numba's number on this machine."""
    return lambda n: monkeypatch.setattr(kernels, "n_threads", lambda: n)


@pytest.mark.parametrize("form", ["mixture", "observed", "point"])
@pytest.mark.parametrize("phase", ["joint", "per_axis"])
@pytest.mark.parametrize("n_dims", [1, 3])
def test_oracle(rng: np.random.Generator, n_dims: int, phase: str, form: str) -> None:
    g = ragged(rng, [3, 1, 4], n_dims)
    X, y = rng.uniform(-1, 1, size=(15, n_dims)), rng.normal(size=15)
    X_new = rng.uniform(-1, 1, size=(9, n_dims))
    noise = rng.uniform(0.01, 0.3, size=(3, 15)) if form == "point" else np.array([0.1, 0.2, 0.05])
    options: dict[str, Any] = {"phase": phase, "observed": form == "observed"}
    mean, covariance = oracle.predict_gp(oracle.mixtures_of(g), X, y, noise, X_new, **options)
    full: Any = predict_gp(g, X, y, noise, X_new, covariance="full", **options)
    np.testing.assert_allclose(full.mean, mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(full.covariance, covariance, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(full.covariance, np.swapaxes(full.covariance, 1, 2))
    diagonal = predict_gp(g, X, y, noise, X_new, **options)
    assert diagonal.covariance is None
    np.testing.assert_array_equal(diagonal.mean, full.mean)
    np.testing.assert_array_equal(diagonal.variance, full.variance)
    np.testing.assert_array_equal(full.variance, np.diagonal(full.covariance, axis1=1, axis2=2))
    if form == "point":
        with pytest.raises(ValueError, match="noise_variance: one number a point with observed=True"):
            predict_gp(g, X, y, noise, X_new, observed=True)


def test_noise_only_on_the_diagonal() -> None:
    arguments = (one([1.0], [0.3], [0.1]), [0.0, 1.0, 2.0], [1.0, -1.0, 0.5], 0.01, [0.5, 1.5])
    latent: Any = predict_gp(*arguments, covariance="full").covariance
    observed: Any = predict_gp(*arguments, covariance="full", observed=True).covariance
    for matrix in (latent[0], observed[0]):
        assert matrix[0, 1] == pytest.approx(-0.118659180447303, rel=1e-12)
    np.testing.assert_allclose(np.diag(observed[0] - latent[0]), 0.01, rtol=0, atol=1e-16)


def test_ill_conditioned_variance() -> None:
    """Condition number above 1e10: the explicit inverse gives -9e-6 to 1.6e-5 where all variances are below 1e-9."""
    X = np.linspace(0, 1, 60)
    arguments = (one([1.0], [0.1], [0.2]), X, np.sin(6 * X), 1e-10, np.linspace(0, 1, 201))
    result: Any = predict_gp(*arguments, covariance="full")
    assert result.info[0] == 0
    assert ((result.variance >= 0) & (result.variance <= 1e-9)).all()
    variance = predict_gp(*arguments).variance
    np.testing.assert_allclose(np.diag(result.covariance[0]), variance[0], rtol=0, atol=1e-12)


def test_interpolation_without_noise(rng: np.random.Generator) -> None:
    """At the data the variance is 0 up to rounding: negative values are clipped, and never reported."""
    X, y = rng.uniform(size=40), rng.normal(size=40)
    result: Any = predict_gp(one([1.0], [3.0], [8.0]), X, y, 0.0, X)
    assert result.info[0] == 0
    np.testing.assert_allclose(result.mean[0], y, rtol=0, atol=1e-9)
    assert (result.variance >= 0).all()
    assert result.variance.max() < 1e-12
    assert (result.variance == 0).any()


def test_variance_beyond_rounding_is_nan() -> None:
    """The bound is 8 N eps max diag(C) (1 + sum |C^-1 k|)^2; here N = 1, C = 1 and |C^-1 k| = sqrt(1 + excess)."""
    from numba import njit

    from maskerade_fast.backends.cpu._gp_loops import latent_variance
    from maskerade_fast.backends.cpu._lapack import addresses

    @njit
    def call(blas: Any, solved: Any, factor: Any, scratch: Any) -> float:
        return latent_variance(blas, 1.0, solved, factor, 1.0, scratch)

    eps = np.finfo(float).eps
    for excess, expected in ((-0.5, 0.5), (16 * eps, 0.0), (64 * eps, np.nan)):
        solved = np.sqrt(np.array([1.0 + excess]))
        value = call(addresses(), solved, np.eye(1), np.empty(1))
        np.testing.assert_allclose(value, expected, rtol=1e-15)


def test_shapes_and_empty_inputs(capfd: pytest.CaptureFixture[str]) -> None:
    g = GMMBatch.from_list([([1.0], [0.3], [0.1])] * 3)
    X, y = [0.0, 1.0], [1.0, 2.0]
    none: Any = predict_gp(g, X, y, 0.1, [], covariance="full")
    assert (none.mean.shape, none.variance.shape, none.covariance.shape) == ((3, 0), (3, 0), (3, 0, 0))
    assert none.info.tolist() == [0, 0, 0]
    assert capfd.readouterr().err == ""  # where BLAS complains of matrices without rows
    empty = GMMBatch(np.zeros(1, np.int64), np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))
    nobody = predict_gp(empty, X, y, 0.1, [0.5, 0.6, 0.7])
    assert (nobody.mean.shape, nobody.info.shape) == ((0, 3), (0,))
    single = predict_gp(g, [3.0], [0.7], 0.1, [3.0])
    np.testing.assert_allclose(single.mean, 0.7 / 1.1, rtol=1e-15)
    two = GMMBatch.from_list([([1.0], [[0.3, 0.1]], [[0.1, 0.2]])])
    assert predict_gp(two, np.zeros((1, 2)), [0.7], 0.1, []).mean.shape == (1, 0)


def test_failed_mixture_is_nan_alone() -> None:
    good, bad = ([1.0], [0.3], [0.1]), ([1e6], [0.0], [0.0])
    X, y, X_new = [0.0, 1.0, 2.0], [1.0, -1.0, 0.5], [0.5, 1.5]
    for place in range(3):
        mixtures, noise = [good, good], [0.01, 0.01]
        mixtures.insert(place, bad)
        noise.insert(place, 0.0)
        result: Any = predict_gp(GMMBatch.from_list(mixtures), X, y, noise, X_new, covariance="full")
        alone: Any = predict_gp(one(*good), X, y, 0.01, X_new, covariance="full")
        assert result.info[place] == 2
        assert np.isnan(result.mean[place]).all()
        assert np.isnan(result.covariance[place]).all()
        for b in {0, 1, 2} - {place}:
            assert result.info[b] == 0
            np.testing.assert_array_equal(result.mean[b], alone.mean[0])
            np.testing.assert_array_equal(result.covariance[b], alone.covariance[0])
    repaired = predict_gp(one(*bad), X, y, 0.0, X_new, jitter=1e-3)
    assert repaired.info[0] == 0
    assert np.isfinite(repaired.mean).all()


@pytest.mark.parametrize("n_points", [5, 140, 530])
def test_bits_for_any_threads_chunks_and_memory(
    rng: np.random.Generator, many_threads: Callable[[int], None], n_points: int
) -> None:
    """Equal bits for any threads and memory, and for test points alone or in company."""
    g = ragged(rng, [2, 1, 3], 2)
    X, y, X_new = rng.uniform(size=(n_points, 2)), rng.normal(size=n_points), rng.uniform(size=(300, 2))
    for covariance in ("diagonal", "full"):
        kwargs: dict[str, Any] = {"covariance": covariance}
        many_threads(1)
        expected = predict_gp(g, X, y, 0.05, X_new, **kwargs)
        for threads in (2, 4):
            many_threads(threads)
            same_bits(predict_gp(g, X, y, 0.05, X_new, **kwargs), expected)
            lone = predict_gp(g[1], X, y, 0.05, X_new, **kwargs)
            np.testing.assert_array_equal(lone.mean[0], expected.mean[1])
            np.testing.assert_array_equal(lone.variance[0], expected.variance[1])
            tight = 8 * (n_points + 330) * (n_points + 330) + 16 * 9 * 330
            same_bits(predict_gp(g, X, y, 0.05, X_new, max_bytes=tight, **kwargs), expected)
        part = predict_gp(g, X, y, 0.05, X_new[128:], **kwargs)
        np.testing.assert_array_equal(part.mean, expected.mean[:, 128:])
        np.testing.assert_array_equal(part.variance, expected.variance[:, 128:])


def test_large_matrices_share_threads(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    g = ragged(rng, [2, 1], 2)
    X, y, X_new = rng.uniform(size=(600, 2)), rng.normal(size=600), rng.uniform(size=(150, 2))
    expected = predict_gp(g, X, y, 0.05, X_new, covariance="full")
    monkeypatch.setattr(covariance, "TILED_SIZE", 500)
    result: Any = predict_gp(g, X, y, 0.05, X_new, covariance="full")
    np.testing.assert_allclose(result.mean, expected.mean, rtol=0, atol=1e-11)
    np.testing.assert_allclose(np.asarray(result.covariance), np.asarray(expected.covariance), rtol=0, atol=1e-12)


def test_many_test_points_in_little_memory(rng: np.random.Generator) -> None:
    """The full covariance would take 320 GB and the cross-covariance alone 80 MB."""
    X, y = rng.uniform(size=50), rng.normal(size=50)
    X_new = np.linspace(0, 1, 200_000)
    g = one([0.6, 0.4], [1.0, 4.0], [0.5, 1.0])
    predict_gp(g, X, y, 0.1, X_new[:3])
    results: list[Any] = []
    assert peak(lambda: results.append(predict_gp(g, X, y, 0.1, X_new))) < 60e6
    (result,) = results
    rows = np.arange(0, 200_000, 1000)
    full: Any = predict_gp(g, X, y, 0.1, X_new[rows], covariance="full")
    np.testing.assert_allclose(result.mean[:, rows], full.mean, rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        result.variance[:, rows], np.diagonal(full.covariance, axis1=1, axis2=2), rtol=0, atol=1e-13
    )


def test_memory_bound(rng: np.random.Generator) -> None:
    g, X, y = one([1.0], [0.3], [0.1]), rng.uniform(size=50), rng.normal(size=50)
    with pytest.raises(MemoryError, match=r"50 points and 128 test points needs \d+ bytes, more than max_bytes=900"):
        predict_gp(g, X, y, 0.1, rng.uniform(size=500), max_bytes=900)


def test_float32(rng: np.random.Generator) -> None:
    g = ragged(rng, [2], 2)
    X, y, X_new = rng.uniform(size=(20, 2)), rng.normal(size=20), rng.uniform(size=(7, 2))
    expected = predict_gp(g, X, y, 0.1, X_new)
    x32, y32, new32 = (a.astype(np.float32) for a in (X, y, X_new))
    small = predict_gp(as_type(g, np.float32), x32, y32, 0.1, new32, observed=True)
    assert [small.mean.dtype, small.variance.dtype] == [np.dtype(np.float32)] * 2
    np.testing.assert_allclose(small.mean, expected.mean, rtol=0, atol=1e-4)
    far = (1.7e9 + np.arange(3.0)).astype(np.float32)
    with pytest.warns(CollapsedInputsWarning):
        predict_gp(one([1.0], [0.3], [0.1]), far, [1.0, 2.0, 3.0], 0.1, far)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X_new": [[0.0, 1.0]]}, r"X_new: 2 columns.*g.n_dims is 1"),
        ({"X_new": [np.inf]}, r"X_new\[0\]: inf"),
        ({"covariance": "none"}, "covariance: 'none'"),
        ({"noise_variance": None}, "noise_variance: None"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    defaults: dict[str, Any] = {"X": [0.0, 1.0], "y": [1.0, 2.0], "noise_variance": 0.1, "X_new": [0.5]}
    with pytest.raises(ValueError, match=message):
        predict_gp(one([1.0], [0.3], [0.1]), **{**defaults, **arguments})


@pytest.mark.usefixtures("backend")
def test_every_backend(rng: np.random.Generator) -> None:
    for form in ("observed", "point"):
        test_oracle(rng, 1, "joint", form)
    test_noise_only_on_the_diagonal()
    test_failed_mixture_is_nan_alone()
