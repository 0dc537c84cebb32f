"""Picture of the heaviest kernels and their weights in predictions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import integer
from ..posterior.posterior import Posterior
from .figures import axes_or_new, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours for sizes 1, 2, ...; larger sizes repeat them
_SIZES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#000000")
_CARRIED = 0.95  # of the weight, whose kernels are counted


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

    Notes
    -----
    A kernel's weight is its row sum of the pair weights, which may be a little below 0. The legend has the posterior
    probability of each size.
    """
    most = integer(most, "most", minimum=1)
    weights = posterior.pair_weights.sum(axis=1)
    sizes = posterior.mixtures_standardised.n_components
    order = np.argsort(-weights, kind="stable")
    ax = axes_or_new(ax, 8.0, 4.0)
    first = order[:most]
    colors = [_SIZES[(n - 1) % len(_SIZES)] for n in sizes[first]]
    ax.bar(np.arange(1, len(first) + 1), weights[first], color=colors, width=0.8)
    for n, probability in enumerate(posterior.component_probabilities, start=1):
        share = "< 0.001" if probability < 1e-3 else f"{probability:.3f}"
        label = f"{n} component{'' if n == 1 else 's'}, probability {share}"
        ax.bar(
            [1], [0.0], color=_SIZES[(n - 1) % len(_SIZES)], label=label
        )  # for the legend, also without kernels of n
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
    return save_picture(ax, path)
