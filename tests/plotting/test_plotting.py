"""Pictures: everything that belongs in them is drawn, once, where the numbers say."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from maskerade_fast import MissingDependencyError, combine_gaussians, marginalise
from maskerade_fast.model.inputs import Inputs
from maskerade_fast.plotting import plot_evidence, plot_fit, plot_panels, plot_spectrum, plot_weights

pytest.importorskip("matplotlib")


class Line(Any):  # type checkers take it for a Posterior
    """A posterior that predicts the first input, give or take 1."""

    feature_names = None
    standardiser = SimpleNamespace(x_origin=np.zeros(1))

    def predict(self, X: Any) -> Any:
        first = Inputs.of(X).numbers[:, 0]
        return combine_gaussians([[1.0]], first[None], np.ones((1, len(first))))

    def spectral_density(self, frequencies: Any, axis: int = 0) -> Any:
        peak = np.exp(-0.5 * (frequencies - axis) ** 2)
        return SimpleNamespace(mean=peak, lower=0.0 * peak, upper=2.0 * peak)


def labels(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.fixture(scope="module", params=["laplace", "prior"])
def fitted(request: pytest.FixtureRequest) -> Any:
    x = np.linspace(0.0, 10.0, 24)
    y = np.sin(2.0 * np.pi * 0.4 * x) + 0.1 * np.cos(7.0 * x)
    return marginalise(x, y, max_components=2, budget=120, nodes=64, proposals=request.param, seed=0, device="cpu")


def test_curve(tmp_path: Path) -> None:
    x = np.linspace(0.0, 9.0, 10)
    path = tmp_path / "fit.png"
    axes: Any = plot_fit(Line(), x, x, x[:2], x[:2], path=path, x_label="t", y_label="height")
    assert labels(axes) == ["90 %", "50 %", "mean", "data", "held out"]
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
        axes: Any = plot_fit(Line(), x[:, None], x, np.empty((0, 1)), np.empty(0))
        assert labels(axes) == ["90 %", "50 %", "mean", "data"]


@pytest.mark.parametrize("held_out", [False, True])
def test_scatter_of_several_inputs(rng: np.random.Generator, held_out: bool) -> None:
    X = rng.normal(size=(12, 3))
    y = X[:, 0] + 0.1
    test = (X[:4], y[:4]) if held_out else (None, None)
    axes: Any = plot_fit(Line(), X, y, *test)
    shown = slice(0, 4) if held_out else slice(None)
    assert_allclose(axes.collections[1].get_offsets(), np.column_stack([y, X[:, 0]])[shown], atol=1e-9)
    assert labels(axes)[1] == ("median, held-out rows" if held_out else "median, training rows")
    assert axes.get_xlim() == axes.get_ylim()


def test_spectrum(tmp_path: Path) -> None:
    path = tmp_path / "spectrum"
    axes: Any = plot_spectrum(Line(), np.linspace(0.0, 10.0, 50), axis=2, path=path)
    frequencies, mean = axes.get_lines()[0].get_data()
    assert frequencies[np.argmax(mean)] == pytest.approx(2.0, abs=0.2)
    assert axes.get_yscale() == "log"
    assert path.read_bytes()[:4] == b"\x89PNG"  # the default where the name has no suffix


def test_spectrum_of_kernels(fitted: Any) -> None:
    """The heaviest are the most opaque, all are there, and their weighted mean is the posterior's."""
    axes: Any = plot_spectrum(fitted, kernels=5)
    *kernels, mean = axes.get_lines()
    p = np.sort(fitted.node_probabilities)[::-1][:5]
    assert len(kernels) == int((p > 0.0).sum())
    opacity = [line.get_alpha() for line in kernels]
    assert opacity == sorted(opacity)
    assert opacity[-1] == pytest.approx(0.75)
    assert labels(axes) == ["kernels, opaque by weight", "mean"]
    frequencies = mean.get_xdata()
    assert frequencies[0] == 0.0
    assert (np.diff(frequencies) > 0.0).all()
    axes = plot_spectrum(fitted, frequencies, kernels=len(fitted.node_probabilities))
    *kernels, mean = axes.get_lines()
    p = np.sort(fitted.node_probabilities[fitted.node_probabilities > 0.0])
    by_hand = p @ np.array([line.get_ydata() for line in kernels])
    seen = mean.get_ydata() > 10.0 * axes.get_ylim()[0]  # what is lower is drawn at the edge
    assert_allclose(by_hand[seen], mean.get_ydata()[seen], rtol=0.2)
    g = fitted.nodes[[int(np.argmax(fitted.node_probabilities))]]
    both = sum(norm.pdf(frequencies[:, None], sign * g.means[:, 0], g.scales[:, 0]) for sign in (1.0, -1.0))
    assert_allclose(kernels[-1].get_ydata(), np.maximum(0.5 * both @ g.weights, 0.01 * axes.get_ylim()[0]), rtol=1e-9)


def test_frequencies_reach_every_peak(fitted: Any) -> None:
    """The default range has the tone of the data, 0.4 cycles, well inside."""
    axes: Any = plot_spectrum(fitted)
    frequencies, mean = axes.get_lines()[0].get_data()
    assert frequencies[np.argmax(mean)] == pytest.approx(0.4, abs=0.05)
    assert frequencies[-1] > 0.45


def test_evidence(fitted: Any, tmp_path: Path) -> None:
    axes: Any = plot_evidence(fitted, known=fitted.log_evidence - 1.0, path=tmp_path / "evidence.svg")
    cost, value = axes.get_lines()[0].get_data()
    assert cost[-1] == fitted.history[-1].cost
    assert value[-1] == fitted.history[-1].log_evidence
    bottom, top = axes.get_ylim()
    assert bottom < fitted.log_evidence - 1.0 < fitted.log_evidence < top
    below = [line for line in axes.get_lines() if line.get_marker() == "v"]
    assert sum(len(line.get_xdata()) for line in below) == int((value < bottom).sum())
    assert labels(axes)[-1] == "known"
    assert b"</svg>" in (tmp_path / "evidence.svg").read_bytes()


def test_weights(fitted: Any) -> None:
    axes: Any = plot_weights(fitted, most=7)
    heights = [bar.get_height() for bar in axes.patches][:7]
    assert_allclose(heights, np.sort(fitted.pair_weights.sum(axis=1))[::-1][:7])
    assert [text.split(",")[0] for text in labels(axes)] == ["1 component", "2 components"]
    assert "kernels carry 95 % of the weight" in axes.get_title(loc="left")
    assert len(plot_weights(fitted, most=10_000).patches) == len(fitted.pair_weights) + 2


def test_panels_and_axes_of_a_caller(fitted: Any, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    x, y = fitted.data_standardised.X[:, 0] * 10.0, fitted.data_standardised.y
    panels = plot_panels(fitted, x[:20], y[:20], x[20:], y[20:], path=tmp_path / "panels.png", x_label="t")
    assert (tmp_path / "panels.png").stat().st_size > 10_000
    assert len({id(axes.figure) for axes in panels}) == 1
    assert [axes.get_xlabel().split()[0] for axes in panels] == ["t", "frequency", "likelihoods", "kernel,"]
    calls: list[Any] = [lambda ax: plot_fit(fitted, x, y, ax=ax)]
    calls += [lambda ax, plot=plot: plot(fitted, ax=ax) for plot in (plot_spectrum, plot_evidence, plot_weights)]
    for call in calls:
        subfigures: Any = Figure().subfigures(1, 2)
        axes = subfigures[1].add_subplot()
        assert call(axes) is axes


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="kernels: -1"):
        plot_spectrum(Line(), np.arange(3.0), kernels=-1)
    with pytest.raises(ValueError, match="y_test: 1 targets beside 2 rows of X_test"):
        plot_fit(Line(), np.arange(3.0), np.arange(3.0), np.arange(2.0), np.arange(1.0))


def test_no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'maskerade_fast\[plot\]'$") as caught:
        plot_fit(Line(), np.arange(3.0), np.arange(3.0))
    assert caught.value.name == "matplotlib"


def test_no_pyplot() -> None:
    """Its figures live until closed, and its backend may want a screen."""
    import subprocess

    code = "import sys, maskerade_fast.plotting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_long_stamps_are_drawn_from_their_origin() -> None:
    """C39: float64 would show them as a few steps; the label says what was taken off."""
    stamps = 1_700_000_000_000_000_001 + 7 * np.arange(12)
    y = np.sin(np.arange(12.0))
    post = marginalise(stamps, y, budget=12, max_components=1, seed=0)
    axes: Any = plot_fit(post, stamps, y, x_label="t")
    origin = int(post.standardiser.x_origin[0])
    assert axes.get_xlabel() == f"t - {origin}"
    np.testing.assert_array_equal(axes.collections[-1].get_offsets()[:, 0], stamps - origin)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("price_$", "price_$"),
        ("cost_$_per_$_unit", "cost_$_per_$_unit"),
        ("a_{b", "a_{b"),
        (r"\alpha $\frac{", r"\alpha $\frac{"),
        ("100 %", "100 %"),
        ("日本", "日本"),
        ("漢" * 60, "漢" * 22 + "..."),
        ("x" * 500, "x" * 45 + "..."),
        ("two\nlines\tand\x07 a bell", "two lines and a bell"),
        ("\udce9 of a name that is no UTF-8", "of a name that is no UTF-8"),
        (" \n", "x"),
    ],
)
def test_names_are_shown_as_they_are(tmp_path: Path, name: str, shown: str) -> None:
    x = np.linspace(0.0, 9.0, 10)
    axes: Any = plot_fit(Line(), x, x, path=tmp_path / "fit.png", x_label=name)
    assert axes.get_xlabel() == shown
    assert plot_fit(Line(), np.column_stack([x, x]), x, y_label=name or "x").get_ylabel().startswith("predicted ")


def test_names_are_neither_formulas_nor_tex(tmp_path: Path) -> None:
    """A formula would be typeset: its letters, not its signs. With usetex, which is a user's setting, TeX would run."""
    import matplotlib

    x = np.linspace(0.0, 9.0, 10)
    for settings in ({}, {"text.usetex": True}):
        with matplotlib.rc_context(settings):
            axes: Any = plot_fit(Line(), x, x, x_label="$x$", y_label="cost_$_per_$_unit")
            for label in (axes.xaxis.label, axes.yaxis.label):
                assert not label.get_parse_math()
                assert not label.get_usetex()


def test_a_picture_replaces_the_old_one_whole(tmp_path: Path) -> None:
    path, x = tmp_path / "fit.png", np.linspace(0.0, 9.0, 10)
    path.write_bytes(b"old")
    path.chmod(0o640)
    plot_fit(Line(), x, x, path=path)
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(ValueError, match=r"[Ff]ormat 'nonsense' is not supported"):
        plot_fit(Line(), x, x, path=tmp_path / "fit.nonsense")
    assert [p.name for p in tmp_path.iterdir()] == ["fit.png"]
