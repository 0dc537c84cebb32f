"""CASES, degenerate data, and scale and precision (C04 to C08): what test_data, test_gmm and test_likelihood lack."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf

QUICK: dict[str, Any] = {"budget": 20, "nodes": 32, "max_components": 2, "seed": 0, "device": "cpu"}


@pytest.mark.parametrize("proposals", ["laplace", "prior"])
@pytest.mark.parametrize("trend", ["none", "linear"])
@pytest.mark.parametrize(("x", "y"), [([0.0, 1.0, 2.0, 3.0], [2.0] * 4), ([0.0], [2.0]), ([0.0, 1.0], [-1e9] * 2)])
def test_c04_constant_targets(x: list[float], y: list[float], trend: str, proposals: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        post = mf.marginalise(x, y, proposals=proposals, trend=trend, **QUICK)
        prediction = post.predict([0.5, 40.0])
    assert (prediction.mean == y[0]).all()
    assert np.isfinite(prediction.variance).all()
    assert (prediction.variance > 0.0).all()
    assert post.standardiser.y_scale == 1.0


def test_c05_one_point_in_a_batch_of_four() -> None:
    g = mf.GMMBatch.from_list([([1.5], [0.3], [0.1])] * 4)
    value = mf.log_likelihood(g, [3.0], [0.7], 0.1).value
    assert value.shape == (4,)
    np.testing.assert_allclose(value, -1.30706534782754, rtol=1e-14)
    assert mf.gram(g, [3.0]).shape == (4, 1, 1)
    pair = mf.GMMBatch.from_list([([1.0], [1.0], [0.2])])
    np.testing.assert_allclose(mf.log_likelihood(pair, [0.0, 0.5], [1.0, -1.0], 0.05).value, -1.94885947727373)
    assert mf.gram(pair, [0.0, 0.5]).shape == (1, 2, 2)


def test_c06_c07_seconds_since_1970() -> None:
    x, y = 1.7e9 + np.arange(3.0), [1.0, -1.0, 0.5]
    g = mf.GMMBatch.from_list([([1.0], [0.3], [0.1])])
    np.testing.assert_allclose(mf.log_likelihood(g, x, y, 0.01).value, -3.61370929253185, rtol=1e-13)
    np.testing.assert_array_equal(mf.gram(g, x), mf.gram(g, np.arange(3.0)))
    with pytest.warns(mf.CollapsedInputsWarning, match="X: column 0 reaches 1.7e"):
        mf.log_likelihood(g, np.float32(x), y, 0.01)
    x, g = np.linspace(0.0, 1.0, 100), mf.GMMBatch.from_list([([1.0], [1.0], [0.5])])
    single = mf.GMMBatch(g.offsets, *(np.float32(a) for a in (g.weights, g.means, g.scales)))
    value = mf.log_likelihood(single, np.float32(x), np.float32(np.sin(6 * x)), np.float32(0.01)).value
    np.testing.assert_allclose(value, 113.90202361674, rtol=1e-4)


def test_c08_a_gap_far_from_the_origin() -> None:
    g = mf.GMMBatch.from_list([([1.0], [1e6], [1.0]), ([1.0], [1e6 + 1e-3], [1.0])])
    E = mf.energy_distance(g)
    np.testing.assert_allclose(E[0, 1], 1.0000000475e-3, rtol=1e-9)
    np.testing.assert_array_equal(E, E.T)
    np.testing.assert_array_equal(np.diag(E), 0.0)
