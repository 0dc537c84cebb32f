"""What compiled functions take, in named parts: long lists of arrays would be mixed up.

Each part has its Numba type beside it, for signatures of functions that are called by address (`_addresses`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from ..._checks import Array

f8, i8 = types.float64, types.int64
f1, f2, f3 = (types.Array(f8, n, "C") for n in (1, 2, 3))
i1 = types.Array(i8, 1, "C")


class Mixtures(NamedTuple):
    """A GMMBatch."""

    offsets: Array  # (B + 1,) int64
    weights: Array  # (J,)
    means: Array  # (J, D)
    scales: Array  # (J, D)


class Points(NamedTuple):
    """Points by axis: themselves, and their exact differences from the origin of phases as high + low."""

    x: Array  # (D, N)
    high: Array  # (D, N)
    low: Array  # (D, N)


class Problem(NamedTuple):
    """Mixtures and data of a batch of Gaussian processes."""

    mixtures: Mixtures
    points: Points
    y: Array  # (N,)
    noise: Array  # (B or 1, N or 1), with what the basis adds to the diagonal
    basis: Array  # (q, N)
    jitter: float
    n_phases: int


class Workspace(NamedTuple):
    """Buffers of one worker: the matrix, the tables of the mixture in hand, and one vector."""

    matrix: Array  # (N, N)
    rates: Array  # (n_max, D)
    cosines: Array  # (n_max * n_phases, N)
    sines: Array  # (n_max * n_phases, N)
    vector: Array  # (N,)

    @classmethod
    def empty(cls, n_max: int, n_points: int, n_dims: int, n_phases: int) -> Workspace:
        """Room for mixtures of up to `n_max` components."""
        cosines, sines = (np.empty((n_max * n_phases, n_points)) for _ in range(2))
        return cls(np.empty((n_points, n_points)), np.empty((n_max, n_dims)), cosines, sines, np.empty(n_points))

    @staticmethod
    def bytes(n_max: int, n_points: int, n_dims: int, n_phases: int, rows: int) -> int:
        """Size, with `rows` further rows of a matrix for what the caller has in work."""
        return 8 * n_points * (n_points + 2 * n_max * n_phases + 1 + rows) + 8 * n_max * n_dims


class NewPoints(NamedTuple):
    """Test points and the basis functions there."""

    x: Array  # (D, M)
    high: Array  # (D, M)
    low: Array  # (D, M)
    basis: Array  # (q, M)


class GramEntries(NamedTuple):
    """Addresses of what likelihoods and predictions both rest on."""

    blas: Array  # of `_lapack.addresses`
    fill_tables: int
    gram_rows: int


def _named(kind: Any, *fields: Any) -> Any:
    return types.BaseTuple.from_types(fields, kind)


MIXTURES = _named(Mixtures, i1, f1, f2, f2)
POINTS = _named(Points, f2, f2, f2)
PROBLEM = _named(Problem, MIXTURES, POINTS, f1, f2, f2, f8, i8)
WORKSPACE = _named(Workspace, f2, f2, f2, f2, f1)
NEW_POINTS = _named(NewPoints, f2, f2, f2, f2)
GRAM_ENTRIES = _named(GramEntries, i1, i8, i8)
