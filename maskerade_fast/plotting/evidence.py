"""Picture of the evidence, batch by batch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from .._checks import Array
from ..posterior.posterior import Posterior
from .figures import GREY, HELD_OUT, MODEL, axes_or_new, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        The true log evidence, if it can be computed.
    ax, path
        As for `plot_fit`.

    Notes
    -----
    The vertical scale covers the second half of the batches. Lower values are marked at the lower edge, such as the
    first estimates, before any draw has reached the posterior.
    """
    cost = np.array([row.cost for row in posterior.history])
    value = np.array([row.log_evidence for row in posterior.history])
    sd = np.array([row.log_evidence_sd for row in posterior.history])
    ax = axes_or_new(ax, 8.0, 4.0)
    low, high = value - 2.0 * sd, value + 2.0 * sd
    bottom, top = _range_of_evidence(value, low, high, known)
    shown = np.isfinite(value)
    finite = shown & np.isfinite(sd)
    ax.fill_between(cost[finite], low[finite], high[finite], color=MODEL, alpha=0.2, linewidth=0.0, label="± 2 sd")
    ax.plot(cost[shown], value[shown], color=MODEL, linewidth=1.4, marker="o", markersize=3.5, label="log evidence")
    below = shown & (value < bottom)
    if below.any():
        edge = np.full(int(below.sum()), bottom)
        ax.plot(cost[below], edge, "v", color=GREY, markersize=7.0, clip_on=False, zorder=5, label="below this scale")
    if known is not None:
        ax.axhline(known, color=HELD_OUT, linewidth=1.2, linestyle="--", label="known")
    ax.set(xlabel="likelihoods (one with its gradient counts 3)", ylabel="log evidence (nats)", ylim=(bottom, top))
    ax.legend(frameon=False, loc="lower right")
    return save_picture(ax, path)


def _range_of_evidence(value: Array, low: Array, high: Array, known: float | None) -> tuple[float, float]:
    """The range of the second half of the batches and of the true value, with a margin."""
    late = (np.arange(len(value)) >= len(value) // 2) & np.isfinite(low) & np.isfinite(high)
    inside = [value[-1], *low[late], *high[late], *([] if known is None else [known])]
    bottom, top = float(np.min(inside)), float(np.max(inside))
    margin = 0.15 * (top - bottom) or 1.0
    return bottom - margin, top + margin
