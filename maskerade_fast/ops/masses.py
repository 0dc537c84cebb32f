"""Total masses of mixtures: whether they are equal, as an energy distance without a cure needs them to be.

mathematics.md section 2: for unequal masses E can be 0, or far below 0, between different mixtures, and the
hyper-kernel of it is not positive definite.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np

from .._checks import Array, callers_level
from ..backends import to_host
from ..errors import UnequalMassWarning
from ..model.gmm import GMMBatch, segment_sums

_LARGEST_SUM = 1e306  # of products of two masses and a distance: a few of them are added
_EPS32 = float(np.finfo(np.float32).eps)


class Masses(NamedTuple):
    """Least and greatest total mass of the mixtures of some batches."""

    least: float
    greatest: float
    offsets: tuple[Array, ...]  # of the batches

    def joined(self, other: Masses) -> Masses:
        least, greatest = min(self.least, other.least), max(self.greatest, other.greatest)
        return Masses(least, greatest, self.offsets + other.offsets)

    @property
    def differ(self) -> bool:
        """Whether they are apart by more than sums and quotients in float32, which the user may have taken, round.

        For n components in the largest mixture that is 2 (n + 4) eps, relative to the greatest mass.
        """
        gap, unit = self.greatest - self.least, 2.0 * _EPS32 * self.greatest
        return gap > 5.0 * unit and gap > unit * (4 + max(int(np.diff(o).max(initial=0)) for o in self.offsets))

    def __str__(self) -> str:
        return (
            f"weights: total masses of the mixtures from {self.least:.9g} to {self.greatest:.9g}, expected equal ones"
        )

    def warn_if_unequal(self) -> None:
        """UnequalMassWarning, at the line outside the package that led here."""
        if self.differ:
            warnings.warn(
                f"{self}: their energy distance can be 0 between different mixtures; pass "
                "metric=Metric(mass_correction=True), or take `hyperkernel`, where mass_weight counts",
                UnequalMassWarning,
                stacklevel=callers_level(),
            )

    def check_equal(self) -> None:
        """ValueError with the cure, for a kernel that would not be positive definite."""
        if self.differ:
            raise ValueError(f"{self}; pass metric=Metric(mass_weight=...), or Metric(mass_correction=True)")


def positive_masses(g: GMMBatch) -> Array:
    """Total mass of each mixture, (B,) float64, to be divided by; ValueError for one of 0."""
    mass = segment_sums(g.weights.astype(np.float64), g.offsets)
    if not (mass > 0).all():
        b = int((mass > 0).argmin())
        raise ValueError(f"weights of mixture {b}: total {float(mass[b])}, expected > 0 where metric.mass_weight > 0")
    return mass


def check_sums(masses: Array, greatest: float, farthest: float) -> None:
    """ValueError where sums of products of weights and distances overflow; trusted batches may have any masses."""
    most = math.sqrt(_LARGEST_SUM / max(1.0, farthest))
    if greatest > most:
        b = int(to_host(masses > most).argmax())
        raise ValueError(
            f"weights of mixture {b}: a total of {float(masses[b]):.3g}, expected at most {most:.3g} beside means and "
            f"scales up to {farthest:.3g}, as its squared distances would overflow; rescale y"
        )
