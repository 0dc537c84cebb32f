"""Pictures of a fit: the predictive bands and the spectrum. Needs matplotlib, the extra `plot`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ._checks import Array, float_array
from .data import input_array
from .errors import BackendUnavailableError
from .posterior import Posterior

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MODEL, _HELD_OUT, _DATA, _GREY = "#2166ac", "#d6604d", "#1a1a1a", "#8c8c8c"
_GRID_POINTS = 500


def plot_fit(
    posterior: Posterior,
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    *,
    path: str | os.PathLike[str] | None = None,
    x_label: str = "",
    y_label: str = "",
) -> Figure:
    """Picture the fit: for one input a curve with bands, for several the predicted against actual targets.

    Parameters
    ----------
    posterior : Posterior
    X, y : arrays, shapes (N, D) and (N,)
        What the model has learned from; X may be (N,) for D = 1.
    X_test, y_test : arrays, shapes (M, D) and (M,), optional
        What was held out; without rows the same as not given.
    path : path, optional
        Save there too, in the format of its suffix (.png if none).
    x_label, y_label : str
        "x" and "y" by default.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    BackendUnavailableError
        If matplotlib is not installed.
    ValueError
        For arrays that do not fit each other.

    Notes
    -----
    Bands are of new observations, noise included, point by point: a half and nine tenths of those should lie
    inside.
    """
    X, y = _points(X, y, "X", "y")
    held_out = X_test is not None and len(X_test) > 0
    test = _points(X_test, y_test, "X_test", "y_test") if held_out else None
    figure, axes = _new_figure(8.0, 4.5) if X.shape[1] == 1 else _new_figure(5.2, 5.2)
    if X.shape[1] == 1:
        _draw_curve(axes, posterior, X[:, 0], y, test)
        axes.set(xlabel=x_label or "x", ylabel=y_label or "y")
    else:
        _draw_scatter(axes, posterior, X, y, test)
        name = y_label or "y"
        axes.set(xlabel=f"actual {name}", ylabel=f"predicted {name}")
    _save(figure, path)
    return figure


def plot_spectrum(
    posterior: Posterior,
    frequencies: Any,
    *,
    axis: int = 0,
    path: str | os.PathLike[str] | None = None,
    x_label: str = "",
) -> Figure:
    """Picture the spectral density along one input: posterior mean and 90 % band, on a logarithmic scale.

    Parameters
    ----------
    posterior : Posterior
    frequencies : array, shape (F,)
        Cycles per unit of x.
    axis : int
        The input.
    path, x_label
        As for `plot_fit`; the label is "frequency (cycles per unit of x)" by default.

    Raises
    ------
    BackendUnavailableError
        If matplotlib is not installed.
    """
    frequencies = float_array(frequencies, "frequencies", ndim=1, dtype=np.float64)
    band = posterior.spectral_density(frequencies, axis=axis)
    figure, axes = _new_figure(8.0, 4.0)
    # Squared exponentials fall below any scale; six decades under the peak is where a reader stops looking.
    floor = 1e-6 * float(np.max(band.upper, initial=0.0)) or 1e-6
    lower, mean, upper = (np.maximum(a, floor) for a in (band.lower, band.mean, band.upper))
    axes.fill_between(frequencies, lower, upper, color=_MODEL, alpha=0.2, linewidth=0.0, label="90 % of kernels")
    axes.plot(frequencies, mean, color=_MODEL, linewidth=1.6, label="mean")
    axes.set(yscale="log", ylim=(floor, None), xlim=(frequencies.min(), frequencies.max()))
    axes.set(xlabel=x_label or "frequency (cycles per unit of x)", ylabel="spectral density")
    axes.legend(frameon=False)
    _save(figure, path)
    return figure


def _draw_curve(axes: Axes, posterior: Posterior, x: Array, y: Array, test: tuple[Array, Array] | None) -> None:
    everything = x if test is None else np.concatenate([x, test[0][:, 0]])
    margin = 0.02 * (float(np.ptp(everything)) or 1.0)
    grid = np.linspace(everything.min() - margin, everything.max() + margin, _GRID_POINTS)
    prediction = posterior.predict(grid)
    low, low_half, high_half, high = prediction.quantile([0.05, 0.25, 0.75, 0.95])
    axes.fill_between(grid, low, high, color=_MODEL, alpha=0.15, linewidth=0.0, label="90 %")
    axes.fill_between(grid, low_half, high_half, color=_MODEL, alpha=0.3, linewidth=0.0, label="50 %")
    axes.plot(grid, prediction.mean, color=_MODEL, linewidth=1.4, label="mean")
    size = float(np.clip(120.0 / np.sqrt(len(x)), 3.0, 18.0))
    axes.scatter(x, y, s=size, color=_DATA, linewidths=0.0, zorder=3, label="data")
    if test is not None:
        style: dict[str, Any] = {"facecolors": "white", "edgecolors": _HELD_OUT, "linewidths": 1.2}
        axes.scatter(test[0][:, 0], test[1], s=1.8 * size, zorder=4, label="held out", **style)
    axes.set_xlim(grid[0], grid[-1])
    _legend_above(axes)


def _draw_scatter(axes: Axes, posterior: Posterior, X: Array, y: Array, test: tuple[Array, Array] | None) -> None:
    X, y = (X, y) if test is None else test
    prediction = posterior.predict(X)
    low, middle, high = prediction.quantile([0.05, 0.5, 0.95])
    ends = np.array([min(y.min(), low.min()), max(y.max(), high.max())])
    ends = ends + np.array([-0.03, 0.03]) * (float(np.ptp(ends)) or 1.0)
    axes.plot(ends, ends, color=_GREY, linewidth=1.0, zorder=1)
    axes.vlines(y, low, high, color=_MODEL, alpha=0.35, linewidth=1.0, label="90 %")
    size = float(np.clip(160.0 / np.sqrt(len(y)), 4.0, 24.0))
    color, label = (_DATA, "median, training rows") if test is None else (_HELD_OUT, "median, held-out rows")
    axes.scatter(y, middle, s=size, color=color, linewidths=0.0, zorder=3, label=label)
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    _legend_above(axes)


def _points(X: Any, y: Any, x_name: str, y_name: str) -> tuple[Array, Array]:
    X = input_array(X, x_name)
    y = float_array(y, y_name, ndim=1)
    if len(y) != len(X):
        raise ValueError(f"{y_name}: {len(y)} targets beside {len(X)} rows of {x_name}, expected as many")
    return X, y


def _new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Without pyplot, whose figures live until closed and whose backend is the caller's business."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BackendUnavailableError("plots need matplotlib: pip install 'maskerade_fast[plot]'") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=_GREY, alpha=0.2, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _legend_above(axes: Axes) -> None:
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
    axes.legend(ncols=5, frameon=False, handlelength=1.4, columnspacing=1.4, **place)


def _save(figure: Figure, path: str | os.PathLike[str] | None) -> None:
    if path is not None:
        suffix = os.path.splitext(path)[1]
        figure.savefig(path, dpi=160, format=None if suffix else "png")
