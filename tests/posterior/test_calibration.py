"""Leave-one-out predictions and the intervals that they calibrate."""

from __future__ import annotations

import dataclasses

import numpy as np
import oracle
import pytest
from batches import ragged
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

import maskerade_fast as mf
from maskerade_fast.model.data import RegressionData
from maskerade_fast.posterior.calibration import calibrated_level, left_out_probabilities


def with_noise(g: mf.GMMBatch, noise: list[float]) -> mf.GMMBatch:
    return mf.GMMBatch(g.offsets, g.weights, g.means, g.scales, np.array(noise))


@pytest.mark.parametrize("trend", ["none", "linear"])
def test_leaving_out_is_predicting_from_the_others(rng: np.random.Generator, trend: str) -> None:
    """Against predictions that really leave each observation out, weighted by the likelihood of the others."""
    g = with_noise(ragged(rng, [2, 1, 3], 1), [0.1, 0.3, 0.2])
    X, y = np.sort(rng.random(9)), rng.normal(size=9)
    weights = np.array([0.5, 0.2, 0.3])
    data = RegressionData(X, y, trend)
    basis = data.basis if data.basis is not None else np.zeros((9, 1))
    expected = []
    for i in range(9):
        rest = np.arange(9) != i
        gp = mf.predict_gp(
            g, X[rest], y[rest], None, X[i : i + 1], observed=True, basis=basis[rest], basis_new=basis[i : i + 1]
        )
        z = (y[i] - gp.mean[:, 0]) / np.sqrt(gp.variance[:, 0])
        # the posterior without i: the weights belong to all observations, i included
        without = weights / (np.exp(-0.5 * z * z) / np.sqrt(gp.variance[:, 0]))
        expected.append(float(without @ special.ndtr(z) / without.sum()))
    assert_allclose(left_out_probabilities(g, weights, data), expected, rtol=1e-9)


def test_singular_mixtures_and_those_without_weight_do_not_count(rng: np.random.Generator) -> None:
    g = with_noise(ragged(rng, [2, 1, 3], 1), [0.1, 0.0, 0.2])
    X = np.linspace(0.0, 1e-9, 30)  # about the same point: singular without noise
    data = RegressionData(X, rng.normal(size=30))
    alone = left_out_probabilities(g[:1], np.ones(1), data)
    assert_array_equal(left_out_probabilities(g, np.array([0.5, 0.5, 0.0]), data), alone)
    assert left_out_probabilities(g[1:2], np.ones(1), data).shape == (0,)


@pytest.mark.parametrize("level", [1e-9, 0.3, 0.5, 0.9, 1.0 - 1e-9])
def test_levels(rng: np.random.Generator, level: float) -> None:
    """Nothing learnt: the level itself. The definition, solved. Many uniform ones: about itself again."""
    assert calibrated_level(np.empty(0), level) == pytest.approx(level, abs=1e-12)
    u = rng.random(50) ** 3
    calibrated = calibrated_level(u, level)
    c = np.abs(2.0 * u - 1.0)
    assert ((c < calibrated - 1e-12).sum() + 20.0 * calibrated) / 70.0 <= level + 1e-9
    assert ((c <= calibrated + 1e-12).sum() + 20.0 * calibrated) / 70.0 >= level - 1e-9
    assert calibrated_level((np.arange(2000) + 0.5) / 2000.0, level) == pytest.approx(level, abs=2e-3)
    assert calibrated_level(np.full(10_000, 1.0), level) < 1.0  # never an infinite interval


def heavy_tailed(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.random(count)
    return x, np.sin(12.0 * x) + 0.1 * rng.standard_t(2.5, size=count)


def test_heavy_tailed_noise_is_calibrated(rng: np.random.Generator) -> None:
    """The model's own 50 % interval holds far too much; the calibrated one about half. Of 2000 new observations."""
    x, y = heavy_tailed(rng, 150)
    post = mf.marginalise(x, y, max_components=1, budget=150, seed=0, device="cpu", nodes=128)
    x_new, y_new = heavy_tailed(rng, 2000)
    shares = {}
    for calibrated in (False, True):
        lower, upper = post.interval(x_new, [0.5, 0.9], calibrated=calibrated)
        assert lower.shape == upper.shape == (2, 2000)
        shares[calibrated] = ((y_new > lower) & (y_new < upper)).mean(axis=1)
    assert shares[False][0] > 0.62
    assert abs(shares[True][0] - 0.5) < 0.08
    assert abs(shares[True][1] - 0.9) < 0.04
    one, other = post.interval(x_new[:7], 0.5)
    assert_allclose(one, lower[0, :7], rtol=1e-11)
    assert_allclose(other, upper[0, :7], rtol=1e-11)
    plain = post.predict(x_new[:7]).quantile([0.05, 0.95])
    assert_allclose(np.array(post.interval(x_new[:7], calibrated=False)), plain, rtol=1e-11)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, [0.5, 2.0]])
def test_levels_that_are_no_probabilities_are_refused(rng: np.random.Generator, level: object) -> None:
    x = rng.random(8)
    post = mf.marginalise(x, x, max_components=1, budget=20, seed=0, device="cpu", nodes=64)
    with pytest.raises(ValueError, match=r"level: .* expected probabilities between 0 and 1"):
        post.interval(x, level)


def test_many_points_are_left_out_by_few_mixtures_and_only_where_there_is_room(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = heavy_tailed(rng, 40)
    post = mf.marginalise(x, y, max_components=1, budget=60, seed=0, device="cpu", nodes=64)
    seen = []

    def counted(g: mf.GMMBatch, *rest: object) -> np.ndarray:
        seen.append(len(g))
        return np.empty(0)

    monkeypatch.setattr("maskerade_fast.posterior.posterior.left_out_probabilities", counted)
    for many in (40, 20, 4):
        monkeypatch.setattr("maskerade_fast.posterior.posterior._MANY_POINTS", many)
        dataclasses.replace(post).interval(x)
    assert seen == [32, 4, 1]
    monkeypatch.undo()
    monkeypatch.setattr("maskerade_fast._memory.free_bytes", lambda: 1000)
    monkeypatch.setattr("maskerade_fast._memory._SMALL", 0)
    with pytest.raises(MemoryError, match=r"leave-one-out predictions of shape \(4, 40, 40\) needs 51200 bytes"):
        dataclasses.replace(post).interval(x)


def test_oracle_agrees_on_the_precision(rng: np.random.Generator) -> None:
    """One mixture: the textbook's formula with the oracle's covariance."""
    g = with_noise(ragged(rng, [2], 2), [0.05])
    X, y = rng.random((12, 2)), rng.normal(size=12)
    K = np.array(oracle.gram(oracle.mixtures_of(g), X, X)[0], dtype=float) + 0.05 * np.eye(12)
    inverse = np.linalg.inv(K)
    z = (inverse @ y) / np.sqrt(np.diag(inverse))
    assert_allclose(left_out_probabilities(g, np.ones(1), RegressionData(X, y)), special.ndtr(z), rtol=1e-9)
