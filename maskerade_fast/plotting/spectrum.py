"""Picture of the spectral density under the posterior."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import Array, float_array, integer
from ..model.gmm import segment_sums
from ..posterior.bands import spectral_densities
from ..posterior.posterior import Posterior
from ..posterior.selection import heaviest
from .figures import DATA, MODEL, axes_or_new, label_axes, one_line, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID_POINTS = 500
_DECADES = 6  # of a spectrum below its peak: squared exponentials fall below any scale
_PEAK_POINTS = 15  # of the grid of frequencies at each component
_LEAST_SHARE = 1e-3  # of a kernel's mass from which a component extends the range of frequencies
_FAINTEST, _STRONGEST = 0.06, 0.75  # opacity of a kernel of hardly any weight, and of the heaviest
_MOST_COLUMNS = 80  # of text below a wide picture


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
        0: the posterior mean and a 90 % band. Else the mean and this number of the heaviest kernels, the more opaque
        the heavier they are.
    ax, path, x_label
        As for `plot_fit`; the label is "frequency (cycles per unit of x)" by default.
    """
    kernels = integer(kernels, "kernels", minimum=0)
    if frequencies is None:
        frequencies = _frequencies(posterior, axis)
    frequencies = float_array(frequencies, "frequencies", ndim=1, dtype=np.float64)
    band = posterior.spectral_density(frequencies, axis=axis)
    ax = axes_or_new(ax, 8.0, 4.0)
    floor = 10.0**-_DECADES * float(np.max(band.upper, initial=0.0)) or 10.0**-_DECADES
    unseen = 0.01 * floor  # below the picture, but positive
    lower, mean, upper = (np.maximum(a, unseen) for a in (band.lower, band.mean, band.upper))
    if kernels == 0:
        ax.fill_between(frequencies, lower, upper, color=MODEL, alpha=0.2, linewidth=0.0, label="90 % of kernels")
        ax.plot(frequencies, mean, color=MODEL, linewidth=1.6, label="mean")
    else:
        _draw_kernels(ax, posterior, frequencies, axis, kernels, unseen)
        ax.plot(frequencies, mean, color=DATA, linewidth=1.4, label="mean")
    ax.set(yscale="log", ylim=(floor, None), xlim=(frequencies.min(), frequencies.max()))
    label_axes(ax, one_line(x_label, _MOST_COLUMNS) or "frequency (cycles per unit of x)", "spectral density")
    ax.legend(frameon=False)
    return save_picture(ax, path)


def _draw_kernels(axes: Axes, posterior: Posterior, at: Array, axis: int, count: int, least: float) -> None:
    """Draw the `count` heaviest kernels."""
    p = posterior.node_probabilities
    rows = np.argsort(-p, kind="stable")[:count]
    rows = rows[p[rows] > 0.0][::-1]  # the heaviest on top
    g = posterior.nodes[rows]
    parts = spectral_densities(g, at, axis)
    opacity = _FAINTEST + (_STRONGEST - _FAINTEST) * np.sqrt(p[rows] / p[rows].max())
    for i, alpha in enumerate(opacity):
        density = parts[g.offsets[i] : g.offsets[i + 1]].sum(axis=0)
        label = "kernels, opaque by weight" if i == len(rows) - 1 else None
        axes.plot(at, np.maximum(density, least), color=MODEL, alpha=float(alpha), linewidth=1.1, label=label)


def _frequencies(posterior: Posterior, axis: int) -> Array:
    """A grid from 0 to three scales past the last component that matters, finer around the peaks of kernels."""
    g = posterior.nodes[heaviest(posterior.node_probabilities, 0.99)]
    share = g.weights / segment_sums(g.weights, g.offsets)[g.owner]
    centre, scale = np.abs(g.means[share > _LEAST_SHARE, axis]), g.scales[share > _LEAST_SHARE, axis]
    end = float(np.max(centre + 3.0 * scale, initial=0.0)) or 1.0
    first = slice(0, _GRID_POINTS // _PEAK_POINTS * 2)  # of the heaviest kernels
    peaks = centre[first, None] + scale[first, None] * np.linspace(-4.0, 4.0, _PEAK_POINTS)
    grid: Array = np.unique(np.concatenate([np.linspace(0.0, end, _GRID_POINTS), peaks.ravel()]))
    return grid[(grid >= 0.0) & (grid <= end)]
