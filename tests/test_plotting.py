"""Pictures: everything that belongs in them is drawn, once, where the numbers say."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from maskerade_fast import BackendUnavailableError, combine_gaussians
from maskerade_fast.plotting import plot_fit, plot_spectrum

pytest.importorskip("matplotlib")


class Line:
    """A posterior that predicts the first input, give or take 1."""

    def predict(self, X: Any) -> Any:
        first = np.asarray(X).reshape(len(X), -1)[:, 0]
        return combine_gaussians([[1.0]], first[None], np.ones((1, len(first))))

    def spectral_density(self, frequencies: Any, axis: int = 0) -> Any:
        peak = np.exp(-0.5 * (frequencies - axis) ** 2)
        return SimpleNamespace(mean=peak, lower=0.0 * peak, upper=2.0 * peak)


def labels(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_curve(tmp_path: Path) -> None:
    x = np.linspace(0.0, 9.0, 10)
    path = tmp_path / "fit.png"
    figure = plot_fit(Line(), x, x, x[:2], x[:2], path=path, x_label="t", y_label="height")
    axes = figure.axes[0]
    assert labels(figure) == ["90 %", "50 %", "mean", "data", "held out"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("t", "height")
    grid, mean = axes.get_lines()[0].get_data()
    assert_allclose(mean, grid)
    assert grid[0] < 0.0
    assert grid[-1] > 9.0
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(grid[-1] + 1.6448536, abs=1e-6)
    assert_allclose(axes.collections[2].get_offsets(), np.column_stack([x, x]))
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_curve_without_held_out_rows_or_range() -> None:
    for x in (np.array([3.0]), np.array([1.0, 2.0])):
        figure = plot_fit(Line(), x[:, None], x, np.empty((0, 1)), np.empty(0))
        assert labels(figure) == ["90 %", "50 %", "mean", "data"]


@pytest.mark.parametrize("held_out", [False, True])
def test_scatter_of_several_inputs(rng: np.random.Generator, held_out: bool) -> None:
    X = rng.normal(size=(12, 3))
    y = X[:, 0] + 0.1
    test = (X[:4], y[:4]) if held_out else (None, None)
    figure = plot_fit(Line(), X, y, *test)
    axes = figure.axes[0]
    shown = slice(0, 4) if held_out else slice(None)
    assert_allclose(axes.collections[1].get_offsets(), np.column_stack([y, X[:, 0]])[shown], atol=1e-9)
    assert labels(figure)[1] == ("median, held-out rows" if held_out else "median, training rows")
    assert axes.get_xlim() == axes.get_ylim()


def test_spectrum(tmp_path: Path) -> None:
    path = tmp_path / "spectrum"
    figure = plot_spectrum(Line(), np.linspace(0.0, 10.0, 50), axis=2, path=path)
    frequencies, mean = figure.axes[0].get_lines()[0].get_data()
    assert frequencies[np.argmax(mean)] == pytest.approx(2.0, abs=0.2)
    assert figure.axes[0].get_yscale() == "log"
    assert path.read_bytes()[:4] == b"\x89PNG"  # the default where the name has no suffix


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="y_test: 1 targets beside 2 rows of X_test"):
        plot_fit(Line(), np.arange(3.0), np.arange(3.0), np.arange(2.0), np.arange(1.0))


def test_no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BackendUnavailableError, match=r"pip install 'maskerade_fast\[plot\]'"):
        plot_fit(Line(), np.arange(3.0), np.arange(3.0))


def test_no_pyplot() -> None:
    """Its figures live until closed, and its backend may want a screen."""
    import subprocess

    code = "import sys, maskerade_fast.plotting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
