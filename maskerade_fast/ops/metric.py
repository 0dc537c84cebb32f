"""How two mixtures are compared: units, reflection, and what counts besides the distance of their atoms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks import float_array, non_negative

__all__ = ["Metric"]


@dataclass(frozen=True)
class Metric:
    """How two mixtures are compared.

    Parameters
    ----------
    reflect : bool
        Atoms (w/2, +-m, s): means m and -m are then the same kernel. For D > 1; with D = 1 keep means >= 0.
    frequency_scale, scale_scale : float or (D,), optional
        Units of means and of scales (cycles per unit of x), public under these names: coordinates are divided by them.
        None: 1.
    mass_correction : bool
        Add (M_a - M_b)(f_a - f_b), M the total weight and f the first moment, to the energy distance: for
        mixtures of unequal mass. Blind to mass near the origin; prefer `mass_weight`.
    noise_weight : float
        c in c |log s2_a - log s2_b|, added to the squared distance under the hyper-kernel only.
    mass_weight : float
        c in c |log M_a - log M_b|, likewise; if > 0 the energy distance there is taken on weights / M.

    Raises
    ------
    ValueError
        For scales <= 0 or weights < 0.
    """

    reflect: bool = False
    frequency_scale: Any = None
    scale_scale: Any = None
    mass_correction: bool = False
    noise_weight: float = 0.0
    mass_weight: float = 0.0

    def __post_init__(self) -> None:
        for name in ("frequency_scale", "scale_scale"):
            object.__setattr__(self, name, _checked_unit(getattr(self, name), name))
        for name in ("reflect", "mass_correction"):
            object.__setattr__(self, name, bool(getattr(self, name)))
        for name in ("noise_weight", "mass_weight"):
            object.__setattr__(self, name, non_negative(getattr(self, name), name))


def checked_metric(metric: Metric | None) -> Metric:
    """The metric itself, or the default for None; TypeError for anything else."""
    if metric is None:
        return Metric()
    if not isinstance(metric, Metric):
        raise TypeError(f"metric: {type(metric).__name__}, expected a Metric")
    return metric


def _checked_unit(value: Any, name: str) -> float | tuple[float, ...] | None:
    if value is None:
        return None
    array = float_array(value, name, ndim=(0, 1), dtype=np.float64)
    if not (array > 0).all():
        raise ValueError(f"{name}: {value}, expected > 0")
    return float(array[()]) if array.ndim == 0 else tuple(array.tolist())
