"""Regular grids: which inputs are one, the lags of a grid, and which likelihoods and predictions take its path."""

from __future__ import annotations

import importlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from batches import one, waves

import maskerade_fast as mf
from maskerade_fast.backends._exact import lags_of
from maskerade_fast.model import grid
from maskerade_fast.model.data import RegressionData
from maskerade_fast.model.units import Standardiser
from maskerade_fast.ops.gp import predict_gp
from maskerade_fast.ops.likelihood import log_likelihood

TWO_INPUTS = one([1.0], [[0.1, 0.2]], [[0.1, 0.1]])


@pytest.mark.parametrize(
    "X",
    [
        np.arange(300) * 1.0,
        np.arange(300, dtype=np.float32) + 7,
        np.linspace(0, 1, 300),
        1949 + np.arange(300) / 12,
        1e15 + np.arange(300),
        -np.arange(300) * 0.1,
    ],
)
def test_grids(X: Any) -> None:
    x = np.asarray(X, dtype=np.float64)
    assert grid.off_grid(np.sort(x)) is None
    assert grid.off_grid(np.delete(np.sort(x), 17)) is not None


def test_a_grid_in_other_units_is_a_grid(rng: np.random.Generator) -> None:
    """Standardised years have lost digits, and would be no grid by those that numbers in [0, 1] have."""
    years, y = rng.permutation(1950.0 + np.arange(300) / 12), rng.normal(size=300)
    data = RegressionData(years, y)
    unit = Standardiser.from_data(data).to_unit(data).X
    assert grid.off_grid(np.sort((years - 1950.0) / np.ptp(years))) is not None
    assert grid.off_grid(np.sort(unit[:, 0])) is None
    np.testing.assert_allclose(unit[:, 0], (years - 1950.0) / np.ptp(years), rtol=0.0, atol=1e-13)
    for other in (np.delete(years, 4), years[:200], np.stack([years, years], axis=1)):
        data = RegressionData(other, y[: len(other)])
        plain = Standardiser.from_data(data)
        np.testing.assert_array_equal(plain.to_unit(data).X, plain.X_to_unit(data.X))


def test_lags_have_twice_the_digits() -> None:
    for first, last, count in ((1949.0, 1990.9166666666667, 504), (0.1, 7.3, 1000), (-5.0, 5.0, 7778), (3.0, 3.0, 1)):
        high, low = lags_of(np.array([first, last]), count)
        for k in {0, min(1, count - 1), count // 3, count - 1}:
            exact = (Fraction(last) - Fraction(first)) * k / max(count - 1, 1)
            assert abs(Fraction(float(high[k])) + Fraction(float(low[k])) - exact) <= abs(exact) * Fraction(1, 10**31)
    assert not lags_of(np.array([0.0, 999.0]), 1000)[1].any()


def test_no_grids(rng: np.random.Generator) -> None:
    x = np.linspace(0.0, 1.0, 300)
    bent = x.copy()
    bent[100] += 1e-12
    for other in (bent, np.zeros(300), np.sort(rng.uniform(size=300)), np.linspace(0, 1, 300, dtype=np.float32)):
        assert grid.off_grid(other.astype(np.float64)) is not None
    assert "0.33" in str(grid.off_grid(bent))
    noisy = 1e15 + 0.4 * rng.normal(size=300).cumsum()  # spacings as small as the numbers' own
    assert grid.off_grid(np.sort(noisy)) is not None


def watch(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[tuple[str, int, int]]:
    """Calls of these functions of the CPU's backend: name, number of rows, number of basis functions."""
    cpu = importlib.import_module("maskerade_fast.backends.cpu")
    calls: list[tuple[str, int, int]] = []
    for name in names:
        genuine = getattr(cpu, name)

        def counted(*args: Any, own: Any = genuine, name: str = name, **options: Any) -> Any:
            basis = options["basis"]
            calls.append((name, len(args[4]), 0 if basis is None else basis.shape[1]))
            return own(*args, **options)

        monkeypatch.setattr(cpu, name, counted)
    return calls


def test_a_missing_row_is_dense(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    g, X, y = waves(rng, [2]), np.arange(300) * 1.0, rng.normal(size=300)
    calls = watch(monkeypatch, "toeplitz_log_likelihood")
    log_likelihood(g, X, y, 0.1)
    log_likelihood(g, X, y, 0.1, basis=np.ones((300, 1)))
    log_likelihood(g, X[: grid.AUTO_POINTS - 1], y[: grid.AUTO_POINTS - 1], 0.1)  # small: keeps its bits
    log_likelihood(g, X, y, 0.1, structure="dense")
    log_likelihood(g, np.delete(X, 20), np.delete(y, 20), 0.1)
    log_likelihood(g, X, y, np.full((1, 300), 0.1))
    log_likelihood(TWO_INPUTS, np.stack([X, X], 1), y, 0.1)
    assert [rows for _, rows, _ in calls] == [300, 300]


def test_a_posterior_takes_the_path(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every likelihood and prediction of a fit with the default trend, a line, on a grid of enough points."""
    X = 2000.0 + np.arange(grid.AUTO_POINTS) / 12
    y = 3.0 * np.sin(X) + 0.5 * (X - 2000.0) + rng.normal(size=len(X))
    calls = watch(monkeypatch, "log_likelihood", "toeplitz_log_likelihood", "predict_gp", "toeplitz_predict_gp")
    post = mf.marginalise(X, y, budget=40, max_components=2, nodes=64, device="cpu", seed=0)
    assert post.trend == "linear"
    post.predict([2001.03, 2030.0])
    assert {name for name, _, _ in calls} == {"toeplitz_log_likelihood", "toeplitz_predict_gp"}
    assert {functions for _, _, functions in calls} == {2}


@pytest.mark.parametrize(
    "function", [log_likelihood, lambda g, X, y, noise, **k: predict_gp(g, X, y, noise, [0.5], **k)]
)
def test_errors(function: Any) -> None:
    g, X, y = one([1.0], [0.3], [0.1]), np.arange(4.0), np.ones(4)
    with pytest.raises(ValueError, match="structure: 'banded', expected one of"):
        function(g, X, y, 0.1, structure="banded")
    match = r"structure='toeplitz': X is no regular grid: 2.0 is 0.5 from place 2 of 5 with spacing 1.25"
    with pytest.raises(ValueError, match=match):
        function(g, [0.0, 1.0, 2.0, 5.0, 4.0], np.ones(5), 0.1, structure="toeplitz")
    with pytest.raises(ValueError, match="'toeplitz': the noise differs from point to point"):
        function(g, X, y, np.full((1, 4), 0.1), structure="toeplitz")
    with pytest.raises(ValueError, match="X is no regular grid"):
        function(g, np.zeros(4), y, 0.1, structure="toeplitz")
    with pytest.raises(ValueError, match="'toeplitz': X has 2 columns, expected 1"):
        log_likelihood(TWO_INPUTS, np.zeros((4, 2)), y, 0.1, structure="toeplitz")
