"""All pictures of a fit in one figure."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..posterior.posterior import Posterior
from .evidence import plot_evidence
from .figures import new_figure, one_line, save_picture, styled
from .fit import plot_fit
from .spectrum import plot_spectrum
from .weights import plot_weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NARROW = 20  # columns of text of a name in the label of a small panel


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
    """
    figure = new_figure(12.0, 7.6)
    grid = figure.add_gridspec(2, 3, height_ratios=(1.25, 1.0))
    parts = [figure.add_subplot(grid[0, :]), *(figure.add_subplot(grid[1, k]) for k in range(3))]
    plot_fit(posterior, X, y, X_test, y_test, ax=styled(parts[0]), x_label=x_label, y_label=y_label)
    unit = one_line(x_label, _NARROW)
    label = f"frequency (cycles per unit of {unit})" if unit else ""
    plot_spectrum(posterior, ax=styled(parts[1]), x_label=label)
    plot_evidence(posterior, ax=styled(parts[2]))
    plot_weights(posterior, ax=styled(parts[3]))
    for part in parts[1:]:
        part.legend(frameon=False, fontsize="small")
    save_picture(parts[0], path)
    return parts[0], parts[1], parts[2], parts[3]
