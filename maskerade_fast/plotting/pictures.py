"""Labels from the user's names, and pictures as files; for `plotting`.

Matplotlib reads ``$`` in a text as the beginning of a formula, and refuses formulas that it cannot parse. Names of
columns are shown as they are.
"""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..storage.output_files import replacing, replacing_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 48  # of text that fit along an axis
# Matplotlib says so of every character that no font has, and shows a box
_MISSING_GLYPHS = (r"Glyph \d+ .* missing from", r"Matplotlib currently does not support .* natively")
_DPI = 160


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


def save_picture(axes: Axes, path: str | os.PathLike[str]) -> None:
    """Save the whole figure in the format of the suffix of `path`, .png if it has none; OSError if that fails."""
    kind = os.path.splitext(path)[1][1:].lower() or "png"
    figure: Any = axes.figure.figure  # of a figure inside a figure: the outermost
    opened: Any = replacing_text if kind == "pgf" else replacing
    with opened(path) as file, _boxes_for_missing_glyphs():
        figure.savefig(file, dpi=_DPI, format=kind)


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "FW" else 1 for c in text)


@contextmanager
def _boxes_for_missing_glyphs() -> Iterator[None]:
    with warnings.catch_warnings():
        for message in _MISSING_GLYPHS:
            warnings.filterwarnings("ignore", message=message)
        yield
