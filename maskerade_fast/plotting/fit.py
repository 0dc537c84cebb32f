"""Picture of a fit: a curve with bands for one input, predicted against actual targets for several."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import Array
from ..model.inputs import Inputs, targets
from ..posterior.posterior import Posterior
from .figures import DATA, GREY, HELD_OUT, MODEL, axes_or_new, label_axes, legend_above, one_line, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID_POINTS = 500


def plot_fit(
    posterior: Posterior,
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    *,
    ax: Axes | None = None,
    path: str | os.PathLike[str] | None = None,
    x_label: str = "",
    y_label: str = "",
) -> Axes:
    """Picture the fit: for one input a curve with bands, for several the predicted against actual targets.

    Parameters
    ----------
    posterior : Posterior
    X, y : arrays, shapes (N, D) and (N,)
        What the model has learned from; X may be (N,) for D = 1.
    X_test, y_test : arrays, shapes (M, D) and (M,), optional
        Rows that were held out; no rows are the same as None.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    path : path, optional
        Save the figure there too, in the format of its suffix (.png if none).
    x_label, y_label : str
        "x" and "y" by default. They are shown in one line of at most 48 columns, and ``$`` does not begin a formula.
        For formulas set the labels of the Axes.

    Returns
    -------
    matplotlib.axes.Axes
        Its figure is ``.figure``.

    Raises
    ------
    MissingDependencyError
        If matplotlib is not installed.
    ValueError
        For arrays that do not fit each other.

    Notes
    -----
    The bands are for new observations, noise included, point by point: a half and nine tenths of these should lie
    inside.
    """
    X, y = _points(posterior, X, y, "X", "y")
    held_out = X_test is not None and len(X_test) > 0
    test = _points(posterior, X_test, y_test, "X_test", "y_test") if held_out else None
    one_input = X.shape[1] == 1
    ax = axes_or_new(ax, *((8.0, 4.5) if one_input else (5.2, 5.2)))
    if one_input:
        _draw_curve(ax, posterior, X[:, 0], y, test)
        origin = float(posterior.standardiser.x_origin[0])
        offset = f" - {origin:.0f}" if origin else ""
        label_axes(ax, (one_line(x_label) or "x") + offset, one_line(y_label) or "y")
    else:
        _draw_scatter(ax, posterior, X, y, test)
        name = one_line(y_label) or "y"
        label_axes(ax, f"actual {name}", f"predicted {name}")
    return save_picture(ax, path)


def _draw_curve(axes: Axes, posterior: Posterior, x: Array, y: Array, test: tuple[Array, Array] | None) -> None:
    everything = x if test is None else np.concatenate([x, test[0][:, 0]])
    margin = 0.02 * (float(np.ptp(everything)) or 1.0)
    grid = np.linspace(everything.min() - margin, everything.max() + margin, _GRID_POINTS)
    prediction = posterior.predict(Inputs(grid[:, None], posterior.standardiser.x_origin))
    low, low_half, high_half, high = prediction.quantile([0.05, 0.25, 0.75, 0.95])
    axes.fill_between(grid, low, high, color=MODEL, alpha=0.15, linewidth=0.0, label="90 %")
    axes.fill_between(grid, low_half, high_half, color=MODEL, alpha=0.3, linewidth=0.0, label="50 %")
    axes.plot(grid, prediction.mean, color=MODEL, linewidth=1.4, label="mean")
    size = float(np.clip(120.0 / np.sqrt(len(x)), 3.0, 18.0))
    axes.scatter(x, y, s=size, color=DATA, linewidths=0.0, zorder=3, label="data")
    if test is not None:
        style: dict[str, Any] = {"facecolors": "white", "edgecolors": HELD_OUT, "linewidths": 1.2}
        axes.scatter(test[0][:, 0], test[1], s=1.8 * size, zorder=4, label="held out", **style)
    axes.set_xlim(grid[0], grid[-1])
    legend_above(axes)


def _draw_scatter(axes: Axes, posterior: Posterior, X: Array, y: Array, test: tuple[Array, Array] | None) -> None:
    X, y = (X, y) if test is None else test
    prediction = posterior.predict(Inputs(X, posterior.standardiser.x_origin))
    low, middle, high = prediction.quantile([0.05, 0.5, 0.95])
    ends = np.array([min(y.min(), low.min()), max(y.max(), high.max())])
    ends = ends + np.array([-0.03, 0.03]) * (float(np.ptp(ends)) or 1.0)
    axes.plot(ends, ends, color=GREY, linewidth=1.0, zorder=1)
    axes.vlines(y, low, high, color=MODEL, alpha=0.35, linewidth=1.0, label="90 %")
    size = float(np.clip(160.0 / np.sqrt(len(y)), 4.0, 24.0))
    color, label = (DATA, "median, training rows") if test is None else (HELD_OUT, "median, held-out rows")
    axes.scatter(y, middle, s=size, color=color, linewidths=0.0, zorder=3, label=label)
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    legend_above(axes)


def _points(posterior: Posterior, X: Any, y: Any, x_name: str, y_name: str) -> tuple[Array, Array]:
    """Inputs (N, D), less the origins of the posterior's, and targets (N,)."""
    inputs = Inputs.of(X, x_name).ordered_as(posterior.feature_names, x_name)
    y, _ = targets(y, y_name)
    if len(y) != len(inputs):
        raise ValueError(f"{y_name}: {len(y)} targets beside {len(inputs)} rows of {x_name}, expected as many")
    if len(y) == 0 or inputs.n_dims == 0:
        raise ValueError(f"{x_name}: shape {inputs.numbers.shape}, expected at least one row and one column")
    return inputs.relative_to(posterior.standardiser.x_origin), y
