"""Pictures of a fit: predictions with bands, the spectrum under the posterior, the evidence as it was found, weights.

Needs matplotlib, the extra `plot`. Every function draws into `ax` if one is given, else into a figure of its own, saves
it where `path` says, and returns the Axes. Colours are told apart by colour-blind readers too.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import Array, float_array, integer
from ..errors import MissingDependencyError
from ..model.gmm import segment_sums
from ..model.inputs import Inputs, targets
from ..posterior.posterior import Posterior
from .pictures import label_axes, one_line, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MODEL, _HELD_OUT, _DATA, _GREY = "#2166ac", "#d6604d", "#1a1a1a", "#8c8c8c"
# Okabe and Ito's, for sizes 1, 2, ...; larger ones start anew
_SIZES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#000000")
_GRID_POINTS = 500
_DECADES = 6  # of a spectrum below its peak: squared exponentials fall below any scale
_PEAK_POINTS = 15  # of a grid of frequencies at each component
_COUNTED = 1e-3  # share of a kernel's mass from which a component has a say in the range of frequencies
_FAINTEST, _STRONGEST = 0.06, 0.75  # opacity of a kernel that weighs next to nothing, and of the heaviest
_NARROW, _MOST_COLUMNS = 20, 80  # of text: a name within the label of a small panel, and a label below a wide one
_CARRIED = 0.95  # of the weight, whose kernels are counted


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
        What was held out; without rows the same as not given.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a figure of its own by default.
    path : path, optional
        Save the figure there too, in the format of its suffix (.png if none).
    x_label, y_label : str
        "x" and "y" by default. Shown as they are, in one line of at most 48 columns: ``$`` begins no formula. For
        formulas set the labels of the Axes.

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
    Bands are of new observations, noise included, point by point: a half and nine tenths of those should lie
    inside.
    """
    X, y = _points(posterior, X, y, "X", "y")
    held_out = X_test is not None and len(X_test) > 0
    test = _points(posterior, X_test, y_test, "X_test", "y_test") if held_out else None
    one_input = X.shape[1] == 1
    ax = _axes(ax, *((8.0, 4.5) if one_input else (5.2, 5.2)))
    if one_input:
        _draw_curve(ax, posterior, X[:, 0], y, test)
        origin = float(posterior.standardiser.x_origin[0])
        offset = f" - {origin:.0f}" if origin else ""
        label_axes(ax, (one_line(x_label) or "x") + offset, one_line(y_label) or "y")
    else:
        _draw_scatter(ax, posterior, X, y, test)
        name = one_line(y_label) or "y"
        label_axes(ax, f"actual {name}", f"predicted {name}")
    return _saved(ax, path)


def plot_spectrum(
    posterior: Posterior,
    frequencies: Any = None,
    *,
    axis: int = 0,
    kernels: int = 0,
    ax: Axes | None = None,
    path: str | os.PathLike[str] | None = None,
    x_label: str = "",
) -> Axes:
    """Picture the spectral density along one input, on a logarithmic scale.

    Parameters
    ----------
    posterior : Posterior
    frequencies : array, shape (F,), optional
        Cycles per unit of x. Default: from 0 to where the kernels of the posterior end, closer at their peaks.
    axis : int
        The input.
    kernels : int
        0: the posterior mean and a 90 % band. Else the mean, and so many of the heaviest kernels by themselves, the
        more opaque the more they weigh.
    ax, path, x_label
        As for `plot_fit`; the label is "frequency (cycles per unit of x)" by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    MissingDependencyError
        If matplotlib is not installed.
    """
    kernels = integer(kernels, "kernels", minimum=0)
    if frequencies is None:
        frequencies = _frequencies(posterior, axis)
    frequencies = float_array(frequencies, "frequencies", ndim=1, dtype=np.float64)
    band = posterior.spectral_density(frequencies, axis=axis)
    ax = _axes(ax, 8.0, 4.0)
    floor = 10.0**-_DECADES * float(np.max(band.upper, initial=0.0)) or 10.0**-_DECADES
    unseen = 0.01 * floor  # below the picture, but positive
    lower, mean, upper = (np.maximum(a, unseen) for a in (band.lower, band.mean, band.upper))
    if kernels == 0:
        ax.fill_between(frequencies, lower, upper, color=_MODEL, alpha=0.2, linewidth=0.0, label="90 % of kernels")
        ax.plot(frequencies, mean, color=_MODEL, linewidth=1.6, label="mean")
    else:
        _draw_kernels(ax, posterior, frequencies, axis, kernels, unseen)
        ax.plot(frequencies, mean, color=_DATA, linewidth=1.4, label="mean")
    ax.set(yscale="log", ylim=(floor, None), xlim=(frequencies.min(), frequencies.max()))
    label_axes(ax, one_line(x_label, _MOST_COLUMNS) or "frequency (cycles per unit of x)", "spectral density")
    ax.legend(frameon=False)
    return _saved(ax, path)


def plot_evidence(
    posterior: Posterior,
    *,
    known: float | None = None,
    ax: Axes | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Axes:
    """Picture the log evidence, batch by batch, against the likelihoods that it took.

    Parameters
    ----------
    posterior : Posterior
    known : float, optional
        The true log evidence, where there is one.
    ax, path
        As for `plot_fit`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    MissingDependencyError
        If matplotlib is not installed.

    Notes
    -----
    The scale shows the second half of the batches whole. What lies below it, as the first estimates do that no draw has
    found the posterior for, is marked at the lower edge.
    """
    cost = np.array([row.cost for row in posterior.history])
    value = np.array([row.log_evidence for row in posterior.history])
    sd = np.array([row.log_evidence_sd for row in posterior.history])
    ax = _axes(ax, 8.0, 4.0)
    low, high = value - 2.0 * sd, value + 2.0 * sd
    bottom, top = _range_of_evidence(value, low, high, known)
    shown = np.isfinite(value)
    finite = shown & np.isfinite(sd)
    ax.fill_between(cost[finite], low[finite], high[finite], color=_MODEL, alpha=0.2, linewidth=0.0, label="± 2 sd")
    ax.plot(cost[shown], value[shown], color=_MODEL, linewidth=1.4, marker="o", markersize=3.5, label="log evidence")
    below = shown & (value < bottom)
    if below.any():
        edge = np.full(int(below.sum()), bottom)
        ax.plot(cost[below], edge, "v", color=_GREY, markersize=7.0, clip_on=False, zorder=5, label="below this scale")
    if known is not None:
        ax.axhline(known, color=_HELD_OUT, linewidth=1.2, linestyle="--", label="known")
    ax.set(xlabel="likelihoods (one with its gradient counts 3)", ylabel="log evidence (nats)", ylim=(bottom, top))
    ax.legend(frameon=False, loc="lower right")
    return _saved(ax, path)


def plot_weights(
    posterior: Posterior, *, most: int = 30, ax: Axes | None = None, path: str | os.PathLike[str] | None = None
) -> Axes:
    """Picture the weights of the heaviest kernels in predictions, coloured by their numbers of components.

    Parameters
    ----------
    posterior : Posterior
    most : int
        Kernels shown.
    ax, path
        As for `plot_fit`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    MissingDependencyError
        If matplotlib is not installed.

    Notes
    -----
    A kernel's weight is its row sum of the pair weights, which may be a little below 0. The legend has the posterior
    probability of each size.
    """
    most = integer(most, "most", minimum=1)
    weights = posterior.pair_weights.sum(axis=1)
    sizes = posterior.mixtures_standardised.n_components
    order = np.argsort(-weights, kind="stable")
    ax = _axes(ax, 8.0, 4.0)
    first = order[:most]
    colors = [_SIZES[(n - 1) % len(_SIZES)] for n in sizes[first]]
    ax.bar(np.arange(1, len(first) + 1), weights[first], color=colors, width=0.8)
    for n, probability in enumerate(posterior.component_probabilities, start=1):
        label = f"{n} component{'' if n == 1 else 's'}, probability {_rounded(float(probability))}"
        ax.bar([1], [0.0], color=_SIZES[(n - 1) % len(_SIZES)], label=label)  # for the legend, where none is shown too
    carried = int(np.searchsorted(np.cumsum(weights[order]), _CARRIED)) + 1
    ax.set_title(
        f"{min(carried, len(order))} of {len(order)} kernels carry {100 * _CARRIED:.0f} % of the weight",
        fontsize="medium",
        loc="left",
    )
    ax.set(xlabel="kernel, by weight", ylabel="weight in predictions", xlim=(0.3, len(first) + 0.7))
    locator: Any = ax.xaxis.get_major_locator()
    locator.set_params(integer=True)
    ax.legend(frameon=False)
    return _saved(ax, path)


def plot_panels(
    posterior: Posterior,
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    *,
    path: str | os.PathLike[str] | None = None,
    x_label: str = "",
    y_label: str = "",
) -> tuple[Axes, Axes, Axes, Axes]:
    """Picture everything in one figure: the fit, and below it the spectrum, the evidence and the weights.

    Parameters are those of `plot_fit`.

    Returns
    -------
    tuple of four matplotlib.axes.Axes
        In that order.

    Raises
    ------
    MissingDependencyError
        If matplotlib is not installed.
    """
    figure = _figure(12.0, 7.6)
    grid = figure.add_gridspec(2, 3, height_ratios=(1.25, 1.0))
    parts = [figure.add_subplot(grid[0, :]), *(figure.add_subplot(grid[1, k]) for k in range(3))]
    plot_fit(posterior, X, y, X_test, y_test, ax=_dressed(parts[0]), x_label=x_label, y_label=y_label)
    unit = one_line(x_label, _NARROW)
    label = f"frequency (cycles per unit of {unit})" if unit else ""
    plot_spectrum(posterior, ax=_dressed(parts[1]), x_label=label)
    plot_evidence(posterior, ax=_dressed(parts[2]))
    plot_weights(posterior, ax=_dressed(parts[3]))
    for part in parts[1:]:
        part.legend(frameon=False, fontsize="small")
    _saved(parts[0], path)
    return parts[0], parts[1], parts[2], parts[3]


def _draw_curve(axes: Axes, posterior: Posterior, x: Array, y: Array, test: tuple[Array, Array] | None) -> None:
    everything = x if test is None else np.concatenate([x, test[0][:, 0]])
    margin = 0.02 * (float(np.ptp(everything)) or 1.0)
    grid = np.linspace(everything.min() - margin, everything.max() + margin, _GRID_POINTS)
    prediction = posterior.predict(Inputs(grid[:, None], posterior.standardiser.x_origin))
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
    prediction = posterior.predict(Inputs(X, posterior.standardiser.x_origin))
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


def _draw_kernels(axes: Axes, posterior: Posterior, at: Array, axis: int, count: int, least: float) -> None:
    """The heaviest kernels by themselves."""
    p = posterior.node_probabilities
    rows = np.argsort(-p, kind="stable")[:count]
    rows = rows[p[rows] > 0.0][::-1]  # the heaviest on top
    g = posterior.nodes[rows]
    centre = g.means[:, axis][:, None]
    scale = np.maximum(g.scales[:, axis], np.finfo(float).tiny)[:, None]
    with np.errstate(over="ignore"):
        both = sum(np.exp(-0.5 * ((at - sign * centre) / scale) ** 2) for sign in (1.0, -1.0))
        parts = 0.5 * g.weights[:, None] * both / (np.sqrt(2.0 * np.pi) * scale)
    opacity = _FAINTEST + (_STRONGEST - _FAINTEST) * np.sqrt(p[rows] / p[rows].max())
    for i, alpha in enumerate(opacity):
        density = parts[g.offsets[i] : g.offsets[i + 1]].sum(axis=0)
        label = "kernels, opaque by weight" if i == len(rows) - 1 else None
        axes.plot(at, np.maximum(density, least), color=_MODEL, alpha=float(alpha), linewidth=1.1, label=label)


def _frequencies(posterior: Posterior, axis: int) -> Array:
    """From 0 to three scales past the last component that matters, closer where kernels have their peaks."""
    p = posterior.node_probabilities
    rows = np.argsort(-p, kind="stable")[: max(1, int(np.searchsorted(np.cumsum(np.sort(p)[::-1]), 0.99)) + 1)]
    g = posterior.nodes[rows]
    share = g.weights / segment_sums(g.weights, g.offsets)[g.owner]
    centre, scale = np.abs(g.means[share > _COUNTED, axis]), g.scales[share > _COUNTED, axis]
    end = float(np.max(centre + 3.0 * scale, initial=0.0)) or 1.0
    heaviest = slice(0, _GRID_POINTS // _PEAK_POINTS * 2)
    peaks = centre[heaviest, None] + scale[heaviest, None] * np.linspace(-4.0, 4.0, _PEAK_POINTS)
    grid: Array = np.unique(np.concatenate([np.linspace(0.0, end, _GRID_POINTS), peaks.ravel()]))
    return grid[(grid >= 0.0) & (grid <= end)]


def _rounded(probability: float) -> str:
    return "< 0.001" if probability < 1e-3 else f"{probability:.3f}"


def _range_of_evidence(value: Array, low: Array, high: Array, known: float | None) -> tuple[float, float]:
    """What the second half of the batches covers, the known value, and a margin."""
    late = (np.arange(len(value)) >= len(value) // 2) & np.isfinite(low) & np.isfinite(high)
    inside = [value[-1], *low[late], *high[late], *([] if known is None else [known])]
    bottom, top = float(np.min(inside)), float(np.max(inside))
    margin = 0.15 * (top - bottom) or 1.0
    return bottom - margin, top + margin


def _points(posterior: Posterior, X: Any, y: Any, x_name: str, y_name: str) -> tuple[Array, Array]:
    """Inputs (N, D), less the origins of the posterior's, and targets (N,)."""
    inputs = Inputs.of(X, x_name).ordered_as(posterior.feature_names, x_name)
    y, _ = targets(y, y_name)
    if len(y) != len(inputs):
        raise ValueError(f"{y_name}: {len(y)} targets beside {len(inputs)} rows of {x_name}, expected as many")
    if len(y) == 0 or inputs.n_dims == 0:
        raise ValueError(f"{x_name}: shape {inputs.numbers.shape}, expected at least one row and one column")
    return inputs.relative_to(posterior.standardiser.x_origin), y


def _figure(width: float, height: float) -> Any:
    """Without pyplot, whose figures live until closed and whose backend is the caller's business."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError(
            "plots need matplotlib: pip install 'maskerade_fast[plot]'", name="matplotlib"
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def _axes(given: Axes | None, width: float, height: float) -> Axes:
    """The caller's axes as they are, or those of a new figure."""
    return _dressed(_figure(width, height).add_subplot()) if given is None else given


def _dressed(axes: Axes) -> Axes:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=_GREY, alpha=0.2, linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def _legend_above(axes: Axes) -> None:
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
    axes.legend(ncols=5, frameon=False, handlelength=1.4, columnspacing=1.4, **place)


def _saved(axes: Axes, path: str | os.PathLike[str] | None) -> Axes:
    if path is not None:
        save_picture(axes, path)
    return axes
