"""Figures, axes, colours and labels of all pictures, and pictures as files.

Matplotlib reads ``$`` in a text as the beginning of a formula, and refuses formulas that it cannot parse. Here names of
columns are shown as they are.
"""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import MissingDependencyError
from ..storage.output_files import replacing, replacing_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MODEL, HELD_OUT, DATA, GREY = "#2166ac", "#d6604d", "#1a1a1a", "#8c8c8c"
_COLUMNS = 48  # of text that fit along an axis
# Warnings about characters that no font has; Matplotlib shows boxes for them
_MISSING_GLYPHS = (r"Glyph \d+ .* missing from", r"Matplotlib currently does not support .* natively")
_DPI = 160


def new_figure(width: float, height: float) -> Any:
    """Make a figure without pyplot, which keeps figures until they are closed and whose backend is the caller's."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError(
            "plots need matplotlib: pip install 'maskerade_fast[plot]'", name="matplotlib"
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def axes_or_new(ax: Axes | None, width: float, height: float) -> Axes:
    """`ax` as it is, or axes in a new figure where it is None."""
    return styled(new_figure(width, height).add_subplot()) if ax is None else ax


def styled(axes: Axes) -> Axes:
    """`axes` with a light grid and without a frame above and at the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=GREY, alpha=0.2, linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def legend_above(axes: Axes) -> None:
    """Put a legend of one row above the axes."""
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
    axes.legend(ncols=5, frameon=False, handlelength=1.4, columnspacing=1.4, **place)


def one_line(name: str, columns: int = _COLUMNS) -> str:
    """`name` as printable text of at most so many columns; ideographs take two."""
    text = " ".join("".join(c if c.isprintable() else " " for c in str(name)).split())
    if _width(text) <= columns:
        return text
    while _width(text) > columns - 3:
        text = text[:-1]
    return text + "..."


def label_axes(axes: Axes, x_label: str, y_label: str) -> None:
    """Set both labels, of which no part is read as a formula or as TeX."""
    literal: dict[str, Any] = {"parse_math": False, "usetex": False}
    axes.set_xlabel(x_label, **literal)
    axes.set_ylabel(y_label, **literal)


def save_picture(axes: Axes, path: str | os.PathLike[str] | None) -> Axes:
    """Save the whole figure to `path`, if there is one, in the format of its suffix (.png if none); return `axes`.

    Raises
    ------
    OSError
        If that fails.
    """
    if path is None:
        return axes
    kind = os.path.splitext(path)[1][1:].lower() or "png"
    figure: Any = axes.figure.figure  # of a figure inside a figure: the outermost
    opened: Any = replacing_text if kind == "pgf" else replacing
    with opened(path) as file, _boxes_for_missing_glyphs():
        figure.savefig(file, dpi=_DPI, format=kind)
    return axes


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "FW" else 1 for c in text)


@contextmanager
def _boxes_for_missing_glyphs() -> Iterator[None]:
    with warnings.catch_warnings():
        for message in _MISSING_GLYPHS:
            warnings.filterwarnings("ignore", message=message)
        yield
