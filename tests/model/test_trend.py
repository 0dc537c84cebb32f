"""Trends: basis functions, the term V V' in likelihoods, gradients and predictions, and posteriors with a trend."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from batches import one, ragged
from comparisons import gradients
from gpu_calls import regimes
from numpy.testing import assert_allclose, assert_array_equal

import maskerade_fast as mf
from maskerade_fast.model.data import RegressionData
from maskerade_fast.model.trend import trend_basis
from maskerade_fast.model.units import Standardiser
from maskerade_fast.ops.gp import predict_gp
from maskerade_fast.ops.likelihood import log_likelihood
from maskerade_fast.storage.archive import load_arrays, save_arrays

likelihood_kernels = importlib.import_module("maskerade_fast.backends.cpu.likelihood")
gp_kernels = importlib.import_module("maskerade_fast.backends.cpu.gp")

QUICK: dict[str, Any] = {"budget": 60, "max_components": 2, "nodes": 128, "device": "cpu"}


def lines(X: np.ndarray, width: float = 10.0) -> np.ndarray:
    """A constant and a line in every input, their coefficients' sd `width`."""
    return width * np.c_[np.ones(len(X)), X]


# Low level


@pytest.mark.parametrize("phase", ["joint", "per_axis"])
@pytest.mark.parametrize(("n_dims", "form"), [(1, "scalar"), (2, "mixture"), (2, "point")])
def test_likelihood_and_gradient_match_the_oracle(
    rng: np.random.Generator, backend: str, n_dims: int, form: str, phase: str
) -> None:
    """Two and three functions, so that one is left over where they come in pairs."""
    g = ragged(rng, [3, 1], n_dims)
    X, y = rng.uniform(-1, 1, size=(19, n_dims)), rng.normal(size=19)
    noise = {"scalar": 0.1, "mixture": np.array([0.1, 0.2]), "point": rng.uniform(0.1, 0.2, size=(2, 19))}[form]
    V = lines(X)
    result = log_likelihood(g, X, y, noise, basis=V, phase=phase, grad=True)
    mixtures = oracle.mixtures_of(g)
    assert_allclose(result.value, oracle.log_likelihood(mixtures, X, y, noise, phase, V), rtol=1e-11)
    assert_array_equal(log_likelihood(g, X, y, noise, basis=V, phase=phase).value, result.value)
    expected = list(oracle.log_likelihood_gradient(mixtures, X, y, noise, phase, V))
    if form != "point":
        expected[3] = expected[3].sum(axis=1)
    for a, b in zip(gradients(result.grad), expected, strict=True):
        assert a.shape == b.shape
        assert_allclose(a, b, rtol=0, atol=1e-9 * np.abs(b).max())


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("phase", ["joint", "per_axis"])
def test_predictions_match_the_oracle(rng: np.random.Generator, backend: str, phase: str, observed: bool) -> None:
    g = ragged(rng, [3, 1], 2)
    X, y, X_new = rng.uniform(-1, 1, size=(15, 2)), rng.normal(size=15), rng.uniform(-2, 2, size=(9, 2))
    noise = np.array([0.1, 0.2])
    settings: dict[str, Any] = {"basis": lines(X), "basis_new": lines(X_new), "phase": phase, "observed": observed}
    mean, covariance = oracle.predict_gp(oracle.mixtures_of(g), X, y, noise, X_new, **settings)
    full = predict_gp(g, X, y, noise, X_new, covariance="full", **settings)
    assert full.covariance is not None
    assert_array_equal(full.info, 0)
    assert_allclose(full.mean, mean, rtol=0, atol=1e-10)
    assert_allclose(full.covariance, covariance, rtol=0, atol=1e-11 * np.abs(lines(X_new) ** 2).max())
    assert_array_equal(full.covariance, np.swapaxes(full.covariance, 1, 2))
    diagonal = predict_gp(g, X, y, noise, X_new, **settings)
    assert_array_equal(diagonal.mean, full.mean)
    assert_array_equal(diagonal.variance, full.variance)


@pytest.mark.sweep
@pytest.mark.parametrize("regime", ["panels", "blocked"])
@pytest.mark.parametrize("phase", ["joint", "per_axis"])
def test_every_regime_of_the_gpu_matches_the_oracle(
    rng: np.random.Generator, emulated: Any, regime: str, phase: str
) -> None:
    import cupy

    module = importlib.import_module("maskerade_fast.backends.gpu.likelihood")
    g = ragged(rng, [3, 1], 2)
    X, y, noise = rng.uniform(-1, 1, size=(37, 2)), rng.normal(size=37), np.full((1, 1), 0.1)
    V = lines(X)
    arrays = map(cupy.asarray, (g.weights, g.means, g.scales, X, y, noise))
    options: dict[str, Any] = {"per_axis": phase == "per_axis", "jitter": 0.0, "grad": True, "max_bytes": None}
    limits = regimes(module, regime)
    value, info, _, gradients = module.likelihoods(g.offsets, *arrays, basis=cupy.asarray(V), **options, limits=limits)
    assert_array_equal(info.get(), 0)
    mixtures = oracle.mixtures_of(g)
    assert_allclose(value.get(), oracle.log_likelihood(mixtures, X, y, 0.1, phase, V), rtol=1e-11)
    expected = list(oracle.log_likelihood_gradient(mixtures, X, y, 0.1, phase, V))
    expected[3] = expected[3].sum(axis=1, keepdims=True)
    for a, b in zip(gradients, expected, strict=True):
        assert_allclose(a.get(), b, rtol=0, atol=1e-9 * np.abs(b).max())


def test_gradient_against_differences(rng: np.random.Generator) -> None:
    """300 points: several blocks of the inverse and tiles of columns."""
    X, y = rng.uniform(size=(300, 2)), rng.normal(size=300)
    w, m, s = np.array([0.7, 0.4]), rng.normal(size=(2, 2)), rng.lognormal(size=(2, 2))

    def value(p: np.ndarray) -> float:
        g = one(p[:2], p[2:6].reshape(2, 2), p[6:10].reshape(2, 2))
        return float(log_likelihood(g, X, y, p[10], basis=lines(X, 1.0)).value[0])

    point = np.concatenate([w, m.ravel(), s.ravel(), [0.05]])
    analytic = gradients(log_likelihood(one(w, m, s), X, y, 0.05, basis=lines(X, 1.0), grad=True).grad)
    expected = oracle.central_differences(value, point, step=1e-5)
    assert_allclose(np.concatenate([a.ravel() for a in analytic]), expected, rtol=1e-6, atol=1e-5)


def test_single_precision_and_an_empty_basis(rng: np.random.Generator) -> None:
    X, y = rng.uniform(size=(12, 1)), rng.normal(size=12)
    g = ragged(rng, [2, 1], 1)
    plain, empty = (log_likelihood(g, X, y, 0.1, basis=V) for V in (None, np.empty((12, 0))))
    assert_array_equal(plain.value, empty.value)
    narrow = log_likelihood(g, X, y, 0.1, basis=lines(X).astype(np.float32))
    assert_allclose(narrow.value, log_likelihood(g, X, y, 0.1, basis=lines(X)).value, rtol=1e-5)


@pytest.mark.parametrize("n_points", [40, 600])
def test_bits_do_not_depend_on_the_batch(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, n_points: int
) -> None:
    """600 points are enough for threads to share a matrix."""
    g = ragged(rng, [2, 3, 1], 1)
    X, y, X_new = rng.uniform(size=(n_points, 1)), rng.normal(size=n_points), rng.uniform(size=(140, 1))
    V, V_new = lines(X), lines(X_new)

    def results(batch: Any, new: Any, V_new: Any) -> list[np.ndarray]:
        result = log_likelihood(batch, X, y, 0.1, basis=V, grad=True)
        p: Any = predict_gp(batch, X, y, 0.1, new, basis=V, basis_new=V_new)
        return [result.value, *gradients(result.grad), p.mean, p.variance]

    together = results(g, X_new, V_new)
    for threads in (1, 4):
        monkeypatch.setattr(likelihood_kernels, "n_threads", lambda n=threads: n)
        monkeypatch.setattr(gp_kernels, "n_threads", lambda n=threads: n)
        for a, b in zip(results(g, X_new, V_new), together, strict=True):
            assert_array_equal(a, b)
        alone = [results(g[b : b + 1], X_new, V_new) for b in range(3)]
        for k, whole in enumerate(together):
            assert_array_equal(np.concatenate([single[k] for single in alone]), whole)


def test_bits_of_the_gpu_depend_on_no_chunks(rng: np.random.Generator, emulated: Any) -> None:
    import cupy

    g = ragged(rng, [2, 1, 3], 1).to("gpu")
    X, y, X_new = (cupy.asarray(a) for a in (rng.uniform(size=(20, 1)), rng.normal(size=20), rng.uniform(size=(40, 1))))
    V, V_new = (cupy.asarray(lines(cupy.asnumpy(a))) for a in (X, X_new))
    whole: Any = predict_gp(g, X, y, 0.1, X_new, basis=V, basis_new=V_new)
    for b in range(3):
        alone: Any = predict_gp(g[b : b + 1], X, y, 0.1, X_new[5:], basis=V, basis_new=V_new[5:])
        assert_array_equal(alone.mean.get()[0], whole.mean.get()[b, 5:])
        assert_array_equal(alone.variance.get()[0], whole.variance.get()[b, 5:])
    with pytest.raises(MemoryError, match="max_bytes"):
        predict_gp(g, X, y, 0.1, X_new, basis=V, basis_new=V_new, max_bytes=1000)


def test_a_singular_covariance_is_data(rng: np.random.Generator) -> None:
    X = np.array([0.0, 0.0, 1.0])[:, None]
    result = log_likelihood(one([1.0], [0.5], [0.1]), X, [1.0, 2.0, 3.0], 0.0, basis=lines(X), grad=True)
    assert_array_equal(result.value, -np.inf)
    assert result.info[0] == 2
    assert all(np.isnan(part).all() for part in gradients(result.grad))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"basis": np.ones((4, 1))}, r"basis: shape \(4, 1\), expected \(3, q\)"),
        ({"basis": np.ones(3)}, "basis: expected a 2-D array"),
        ({"basis": np.full((3, 1), np.nan)}, r"basis\[\(0, 0\)\]: nan, expected a finite number"),
        ({"basis": np.full((3, 1), 1e200)}, "basis: entries up to 1e\\+200"),
    ],
)
def test_bad_bases_raise_by_name(settings: dict[str, Any], message: str) -> None:
    g, X, y = one([1.0], [0.5], [0.1]), [0.0, 1.0, 2.0], [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match=message):
        log_likelihood(g, X, y, 0.1, **settings)
    with pytest.raises(ValueError, match=message):
        predict_gp(g, X, y, 0.1, [0.5], **settings, basis_new=np.ones((1, 1)))


def test_one_basis_without_the_other() -> None:
    g, X, y, V = one([1.0], [0.5], [0.1]), [0.0, 1.0, 2.0], [1.0, 2.0, 3.0], np.ones((3, 1))
    with pytest.raises(ValueError, match="basis_new: None beside basis, expected both or neither"):
        predict_gp(g, X, y, 0.1, [0.5], basis=V)
    with pytest.raises(ValueError, match="basis: None beside basis_new"):
        predict_gp(g, X, y, 0.1, [0.5], basis_new=V[:1])
    with pytest.raises(ValueError, match="basis_new: 2 columns, expected 1 as basis has"):
        predict_gp(g, X, y, 0.1, [0.5], basis=V, basis_new=np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"basis_new: shape \(2, 1\), expected \(1, q\)"):
        predict_gp(g, X, y, 0.1, [0.5], basis=V, basis_new=V[:2])


# Functions and priors of a trend


def test_functions_of_standardised_data(rng: np.random.Generator) -> None:
    """Over the unit cube all lines together have variance 1; a constant's sd is 1."""
    X = rng.uniform(size=(200_000, 3))
    assert trend_basis("none", X, 1.0) is None
    assert_array_equal(trend_basis("constant", X, 2.0), np.full((len(X), 1), 2.0))
    V: Any = trend_basis("linear", X, 1.0)
    assert V.shape == (200_000, 4)
    assert_array_equal(V[:, 0], 1.0)
    assert_allclose(V.mean(axis=0), [1.0, 0.0, 0.0, 0.0], atol=0.01)
    assert (V[:, 1:] ** 2).mean(axis=0).sum() == pytest.approx(1.0, abs=0.01)


def test_functions_do_not_see_units(rng: np.random.Generator) -> None:
    X, y = rng.uniform(size=(9, 2)), rng.normal(size=9)
    data: Any = RegressionData(X, y, "linear")
    other = RegressionData(X * 60.0 - 5.0, y * 9.0 + 4.0, "linear")
    scaled: list[Any] = [Standardiser.from_data(either).to_unit(either) for either in (data, other)]
    assert scaled[0].trend == "linear"
    assert_allclose(scaled[1].basis, scaled[0].basis, rtol=0, atol=1e-12)
    assert_allclose(data.basis[:, 0], np.sqrt(np.mean(y**2)), rtol=1e-12)
    constant: Any = RegressionData(X, np.zeros(9), "constant").basis
    assert_array_equal(constant, 1.0)
    with pytest.raises(ValueError, match="trend: 'cubic', expected one of 'none', 'constant', 'linear'"):
        RegressionData(X, y, "cubic")


# Posteriors


@pytest.mark.parametrize("proposals", ["laplace", "prior"])
def test_a_posterior_continues_the_line_of_its_data(rng: np.random.Generator, proposals: str, tmp_path: Path) -> None:
    x = np.linspace(1950.0, 1960.0, 40)
    y = 300.0 + 25.0 * (x - 1950.0) + 4.0 * np.sin(2.0 * np.pi * x) + rng.normal(size=40)
    later = np.array([1962.0, 1964.0])
    settings = {**QUICK, "proposals": proposals, "seed": 1}
    post = mf.marginalise(x, y, trend="linear", **settings)
    plain = mf.marginalise(x, y, **settings, trend="none")
    assert (post.trend, plain.trend) == ("linear", "none")
    assert post.log_evidence > plain.log_evidence
    truth = 300.0 + 25.0 * (later - 1950.0)
    assert_allclose(post.predict(later).mean, truth, rtol=0, atol=60.0)
    assert np.abs(plain.predict(later).mean - truth).max() > np.abs(post.predict(later).mean - truth).max()
    alone = post.joint_log_density(later[:1], truth[:1])
    assert alone == pytest.approx(float(post.predict(later[:1]).log_density(truth[:1])[0]), abs=1e-3)
    post.save(tmp_path / "post.npz")
    back = mf.load(tmp_path / "post.npz")
    assert back.trend == "linear"
    assert_array_equal(back.predict(later).mean, post.predict(later).mean)
    assert_array_equal(back.predict(later).variance, post.predict(later).variance)


def test_data_as_they_are(rng: np.random.Generator) -> None:
    """Without standardisation the trend still has the scales of the data."""
    x, y = rng.uniform(size=20) * 4.0, 40.0 + rng.normal(size=20)
    post = mf.marginalise(x, y, trend="linear", standardise=False, **QUICK, seed=3)
    assert post.predict([8.0]).mean[0] == pytest.approx(40.0, abs=8.0)


def test_unknown_trends_in_files(tmp_path: Path) -> None:
    post = mf.marginalise(np.arange(9.0), np.sin(np.arange(9.0)), **QUICK, trend="constant", seed=5)
    post.save(tmp_path / "new.npz")
    arrays = load_arrays(tmp_path / "new.npz", kind="posterior", version=3)
    save_arrays(tmp_path / "odd.npz", {**arrays, "trend": "cubic"}, kind="posterior", version=3)
    with pytest.raises(mf.DataError, match="trend: 'cubic'"):
        mf.load(tmp_path / "odd.npz")


def test_the_default(rng: np.random.Generator) -> None:
    """A line with the default prior; the prior of a caller is the whole model."""
    x, y = rng.uniform(size=9), rng.normal(size=9)
    settings = {name: value for name, value in QUICK.items() if name != "max_components"}
    assert mf.marginalise(x, y, **settings, seed=6).trend == "linear"
    assert mf.marginalise(x, y, prior=mf.Prior.paper(x, max_components=2), **settings, seed=6).trend == "none"
    assert mf.marginalise(x, y, prior=mf.Prior.paper(x), trend="constant", **settings, seed=6).trend == "constant"
