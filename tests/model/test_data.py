"""Regression data as they come in, and the change of units."""

from __future__ import annotations

import math

import numpy as np
import oracle
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from maskerade_fast.model.data import RegressionData
from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.model.units import Standardiser


def test_one_column_from_a_list():
    data = RegressionData([0, 1, 3], [True, False, True])
    assert data.X.shape == (3, 1)
    assert data.X.dtype == data.y.dtype == np.float64
    assert (data.n_points, data.n_dims) == (3, 1)


@pytest.mark.parametrize("order", ["C", "F"])
def test_layout_and_byte_order_leave_the_values(order):
    X = np.arange(12.0).reshape(4, 3)
    strange = np.asarray(np.repeat(X, 2, axis=1)[:, ::2], order=order).astype(">f8")
    strange.flags.writeable = False
    data = RegressionData(strange, np.arange(4.0).astype(">f4"))
    assert_array_equal(data.X, X)
    assert data.X.flags.c_contiguous
    assert data.X.dtype == np.float64
    assert data.y.dtype == np.float32


@pytest.mark.parametrize(
    ("X", "y", "error", "words"),
    [
        ([[0.0], [1.0]], [1.0], ValueError, "y: 1 targets beside 2 rows"),
        ([], [], ValueError, r"X: shape \(0, 1\)"),
        (np.zeros((3, 0)), np.zeros(3), ValueError, r"X: shape \(3, 0\)"),
        (np.zeros((2, 2, 2)), np.zeros(2), ValueError, "X: expected"),
        ([0.0, np.nan], [1.0, 2.0], ValueError, r"X\[1\]"),
        ([0.0, 1.0], [1.0, np.inf], ValueError, r"y\[1\]"),
        ([0.0, 1.0], [[1.0], [2.0]], ValueError, "y: expected a 1-D"),
        ([0.0, 1j], [1.0, 2.0], TypeError, "X: expected real numbers"),
    ],
)
def test_bad_data_is_named(X, y, error, words):
    with pytest.raises(error, match=words):
        RegressionData(X, y)


def test_standardised_data_fill_the_unit_cube(rng):
    data = RegressionData(rng.normal(size=(30, 3)) * [1.0, 1e-6, 1e6] + [0.0, 5.0, 1e9], rng.normal(size=30) * 7 - 40)
    scaled = Standardiser.from_data(data).to_unit(data)
    assert_array_equal(scaled.X.min(axis=0), 0.0)
    assert_array_equal(scaled.X.max(axis=0), 1.0)
    assert_allclose(scaled.y.mean(), 0.0, atol=1e-14)
    assert_allclose(scaled.y.std(), 1.0, rtol=1e-14)


def test_units_exactly(rng):
    """Targets x 10 + 3, inputs shifted and stretched: data, mixtures and densities follow."""
    X, y = rng.random((12, 2)), rng.normal(size=12)
    stretch, shift = np.array([4.0, 0.25]), np.array([-7.0, 100.0])
    before, after = RegressionData(X, y), RegressionData(X * stretch + shift, 10.0 * y + 3.0)
    old, new = Standardiser.from_data(before), Standardiser.from_data(after)
    assert_allclose(new.to_unit(after).X, old.to_unit(before).X, rtol=0, atol=1e-12)
    assert_allclose(new.to_unit(after).y, old.to_unit(before).y, rtol=0, atol=1e-14)

    unit = GMMBatch.from_list([([0.6, 0.7], rng.normal(size=(2, 2)), rng.random((2, 2)))], [0.3])
    g_old, g_new = old.mixtures_from_unit(unit), new.mixtures_from_unit(unit)
    assert_allclose(g_new.weights, 100.0 * g_old.weights, rtol=1e-13)
    assert_allclose(np.asarray(g_new.noise_variances), 100.0 * np.asarray(g_old.noise_variances), rtol=1e-13)
    assert_allclose(g_new.means, g_old.means / stretch, rtol=1e-11)
    assert_allclose(g_new.scales, g_old.scales / stretch, rtol=1e-11)

    for units, data, g in ((old, before, g_old), (new, after, g_new)):
        scaled, (noise,) = units.to_unit(data), np.asarray(g.noise_variances)
        expected = oracle.log_likelihood(oracle.mixtures_of(g), data.X, data.y - units.y_mean, noise)
        value = oracle.log_likelihood(oracle.mixtures_of(unit), scaled.X, scaled.y, 0.3)
        assert_allclose(value + units.log_density_shift(data.n_points), expected, rtol=1e-10)
        assert_allclose(units.variance_to_unit(noise), 0.3, rtol=1e-14)
    bare = GMMBatch(unit.offsets, unit.weights, unit.means, unit.scales)
    assert new.mixtures_from_unit(bare).noise_variances is None


def test_identity_changes_nothing(rng):
    data = RegressionData(rng.normal(size=(5, 2)), rng.normal(size=5))
    units = Standardiser.identity(data)
    assert_array_equal(units.to_unit(data).X, data.X)
    assert_array_equal(units.to_unit(data).y, data.y)
    assert units.log_density_shift(5) == 0.0


@pytest.mark.parametrize("value", [2.0, 0.1, 1e17, -1e-300, 0.0])
@pytest.mark.parametrize("count", [1, 4, 1001])
def test_constant_target_has_unit_scale(value, count):
    """0.1 is no float, so that the rounded mean of many differs from it."""
    data = RegressionData(np.arange(float(count)), np.full(count, value))
    units = Standardiser.from_data(data)
    assert (units.y_mean, units.y_scale) == (value, 1.0)
    assert_array_equal(units.to_unit(data).y, 0.0)


def test_spread_of_rounding_only_counts_as_constant():
    y = 1e9 + np.array([0.0, 0.0, 0.0, np.spacing(1e9)])
    assert Standardiser.from_data(RegressionData(np.arange(4.0), y)).y_scale == 1.0
    y = 1e9 + np.array([0.0, 0.0, 0.0, 1.0])
    assert_allclose(Standardiser.from_data(RegressionData(np.arange(4.0), y)).y_scale, math.sqrt(3.0) / 4.0)


def test_constant_column_has_unit_range():
    units = Standardiser.from_data(RegressionData([[0.0, 5.0], [2.0, 5.0]], [0.0, 1.0]))
    assert_array_equal(units.x_range, [2.0, 1.0])
    assert_array_equal(units.X_to_unit(np.array([[1.0, 5.0]])), [[0.5, 0.0]])


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        ([-1e308, 1e308], [0.0, 1.0], r"X: a magnitude of 1e\+308"),
        ([0.0, 1e-200], [0.0, 1.0], "X: a range of 1e-200"),
        ([0.0, 1.0], [0.0, 1e200], r"y: a magnitude of 1e\+200"),
        ([0.0, 1.0], [0.0, 1e-200], "y: a range of 1e-200"),
    ],
)
def test_numbers_whose_squares_are_lost_are_refused(X, y, words):
    with pytest.raises(ValueError, match=words):
        Standardiser.from_data(RegressionData(X, y))
