"""Distances between all pairs of mixtures by tiles; `backends.contract` has the maths.

A block of threads has a tile of whole mixtures of a, a thread for each component with its atom in registers, and
walks over 16 mixtures of b staged in shared memory (kernels/distances.cuh).
"""

from __future__ import annotations

from bisect import bisect_right
from copy import copy
from typing import Any

import cupy
import numpy as np

from ..._checks import Array
from .. import to_host
from ._loader import Kernel, device_of, load
from ._mixtures import FEW, grid_for, kernel_array

__all__ = ["pairwise_distance", "pairwise_distance_vjp", "prepare_atoms"]

# As in kernels/distances.cuh and distances.cu
TILE_A = 128
PAIR_THREADS = 64
TILE_B = 16
_WINDOW = 32
_N_DATA = 3  # columns of Atoms.data before the features
_VALUE_AXES = 18  # axes up to which a kernel is compiled for their number

PARTIAL_BYTES = 32 * 2**20  # partial sums kept at a time: what stays in the L2 cache of a large card


class Atoms:
    """What `prepare_atoms` makes: arrays on the card, and where the tiles of whole mixtures start."""

    def __init__(
        self, offsets: Array, weights: Array, points: Array, n_reflect: int, bandwidth: float, mass_correction: bool
    ) -> None:
        on_host = np.asarray(to_host(offsets), dtype=np.int64)
        both: Array = cupy.asarray(np.concatenate([on_host, tile_starts(on_host)]))  # one copy across the bus
        self.offsets, self.starts = both[: len(on_host)], both[len(on_host) :]
        self.weights, self.points = kernel_array(weights), kernel_array(points)
        self.n_reflect, self.bandwidth, self.mass_correction = n_reflect, bandwidth, mass_correction
        self.mixed = False
        self.data: Array = cupy.empty((len(on_host) - 1, _N_DATA))  # see fill_self_terms

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def masses(self) -> Array:
        """The second column of `data`."""
        return self.data[:, 1]

    @property
    def n_dims(self) -> int:
        return int(self.points.shape[1]) // 2

    @property
    def n_tiles(self) -> int:
        return len(self.starts) - 1

    def kernel(self, source: str, entry: str, mixed: bool = False) -> Kernel:
        """An entry compiled for the number of axes and the distance of these atoms."""
        form = 2 * (self.bandwidth > 0.0) + (self.n_reflect > 0)
        n_axes = self.n_dims if self.n_dims <= _VALUE_AXES else 0
        return load(source, entry, MF_D=n_axes, MF_FORM=form, MF_MIXED=int(mixed))

    def fill_self_terms(self) -> None:
        """The first columns of `data`, in the precision of the distances."""
        args = (self.offsets, self.weights, self.points, self.starts, self.data)
        sizes = (
            np.int32(self.n_dims),
            np.int32(self.data.shape[1]),
            np.float64(self.bandwidth),
            np.int32(self.mass_correction),
        )
        if len(self):
            self.kernel("distances", "self_terms_f64", self.mixed)((self.n_tiles,), (TILE_A,), (*args, *sizes))


def prepare_atoms(
    offsets: Array,
    weights: Array,
    points: Array,
    n_reflect: int = 0,
    *,
    bandwidth: float = 0.0,
    mass_correction: bool = False,
    features: Array | None = None,
) -> Any:
    """Lay out tiles on the host and launch the self terms."""
    if n_reflect not in (0, points.shape[1] // 2):
        raise ValueError(f"n_reflect: {n_reflect}, expected 0 or {points.shape[1] // 2}, half of the coordinates")
    with device_of(weights, points, features):
        atoms = Atoms(offsets, weights, points, n_reflect, float(bandwidth), bool(mass_correction))
        if features is not None:
            atoms.data = cupy.concatenate([atoms.data, kernel_array(features)], axis=1)
        atoms.fill_self_terms()
    return atoms


def in_float32(atoms: Any, weight_unit: float = 1.0, unit: float = 1.0) -> Any:
    """`atoms` of an energy distance whose terms are in float32, gradients excepted; it shares what it can.

    Weights and coordinates are divided by the units, powers of two, so that squares and sums stay in range.
    """
    # Differences are of coordinates split in two float32 each; sums of 8 terms are in float32, the rest in float64
    if atoms.bandwidth > 0.0:
        raise ValueError("precision: 'mixed' is for the energy distance, the Gaussian MMD needs 'double'")
    other = copy(atoms)
    other.mixed = True
    with device_of(atoms.points):
        other.weights, other.points = atoms.weights / weight_unit, atoms.points / unit
        other.data = atoms.data.copy()
        for divisor in (weight_unit, unit, weight_unit):  # one by one: their product may leave the range of float64
            other.data[:, _N_DATA:] /= divisor
        other.fill_self_terms()
    return other


def pairwise_distance(a: Any, b: Any = None, *, precision: str = "double") -> Array:
    """Launch one block per pair of tiles; "mixed" takes coordinates and weights to about 1, by powers of two."""
    if precision == "double":
        return pairwise(a, b, 0, 1.0, 1.0)
    sides = (a,) if b is None else (a, b)
    with device_of(*(side.points for side in sides)):
        weight_unit, unit = _units(sides)
        rounded = [in_float32(side, weight_unit, unit) for side in sides]
        out = pairwise(rounded[0], None if b is None else rounded[1], 0, 1.0, 1.0)
        for factor in (weight_unit, unit, weight_unit):
            out *= factor
        return out


def _units(sides: tuple[Any, ...]) -> tuple[float, float]:
    """Powers of two just above the largest weight and coordinate, 1 where there is none but 0; one copy to the host."""
    maxima = [cupy.abs(array).max() for side in sides if len(side.weights) for array in (side.weights, side.points)]
    if not maxima:
        return 1.0, 1.0
    largest = to_host(cupy.stack(maxima)).reshape(-1, 2).max(axis=0)
    weight_unit, unit = np.ldexp(1.0, np.maximum(np.frexp(largest)[1], -1000)).tolist()
    return weight_unit, unit


def pairwise(a: Atoms, b: Atoms | None, power: int, outputscale: float, lengthscale: float) -> Array:
    """Launch `pairwise_f64`: distances for power 0, covariances for power 1 and 2."""
    symmetric = b is None
    other = a if b is None else b
    with device_of(a.points, other.points):
        out: Array = cupy.empty((len(a), len(other)))
        if out.size == 0:
            return out
        sizes = (np.int64(len(other)), np.int32(a.n_dims), np.int32(a.data.shape[1]), np.float64(a.bandwidth))
        args = (a.offsets, a.weights, a.points, a.data, a.starts, *right_hand_side(other), out, *sizes)
        kernel = a.kernel("distances", "pairwise_f64", a.mixed)
        grid = a.n_tiles * -(-len(other) // TILE_B)
        kernel((grid,), (PAIR_THREADS,), (*args, np.int32(symmetric), *parameters(power, outputscale, lengthscale)))
        return out


def pairwise_distance_vjp(a: Any, b: Any, cotangent: Array, distance: Array | None = None) -> tuple[Array, Array]:
    """Sum gradients over 32 mixtures of b at a time, then add these partial sums in order."""
    with device_of(a.points, b.points, cotangent):
        cotangent = kernel_array(cotangent)
        empty_or_zeros = cupy.empty if cotangent.size else cupy.zeros
        g_weights: Array = empty_or_zeros(a.weights.shape)
        g_points: Array = empty_or_zeros(a.points.shape)
        if cotangent.size:
            if distance is None:
                distance = pairwise_distance(a, None if b is a else b)
            shape = (np.int32(a.n_dims), np.float64(a.bandwidth))
            sums, cotangent = _cotangent_sums(a, b, cotangent, kernel_array(distance))
            totals = _partial_gradients(a, b, cotangent, shape)
            sizes = (np.int64(len(a)), np.int64(len(a.weights)), *shape, np.int32(a.mass_correction))
            args = (a.offsets, a.weights, a.points, sums, totals, g_weights, g_points, *sizes)
            a.kernel("distances", "finish_gradient_f64")((grid_for(len(a.weights), TILE_A, FEW),), (TILE_A,), args)
        return g_weights, g_points


def _cotangent_sums(a: Atoms, b: Atoms, cotangent: Array, distance: Array) -> tuple[Array, Array]:
    """Row sums of the cotangent, plain and times the differences of moments and of masses: (B_a, 3); and the cotangent.

    Both without the pairs that are clamped at 0.
    """
    sums: Array = cupy.empty((len(a), 3))
    unclamped = cupy.empty_like(cotangent)
    args = (a.data, b.data, cotangent, distance, sums, unclamped, np.int64(len(b)), np.int32(a.data.shape[1]))
    a.kernel("distances", "cotangent_sums_f64")((len(a),), (TILE_A,), args)
    return sums, unclamped


def _partial_gradients(a: Atoms, b: Atoms, cotangent: Array, shape: tuple[Any, ...]) -> Array:
    """What b adds to the gradients of a, before the factors of a: (1 + P, J_a)."""
    totals: Array = cupy.zeros((1 + a.points.shape[1], len(a.weights)))
    n_windows = -(-len(b) // _WINDOW)
    partial_sums = partial_sums_for(totals, n_windows)
    for first in range(0, n_windows, len(partial_sums)):
        count = min(len(partial_sums), n_windows - first)
        sizes = (np.int64(len(a.weights)), np.int64(len(b)), np.int64(first), np.int32(count), *shape)
        args = (a.offsets, a.points, a.starts, b.offsets, b.weights, b.points, cotangent, partial_sums, *sizes)
        a.kernel("distances", "partial_gradients_f64")((a.n_tiles * count,), (TILE_A,), args)
        add_partial_sums(a.kernel("distances", "add_partial_sums_f64"), partial_sums, totals, count)
    return totals


def tile_starts(offsets: Array) -> Array:
    """First mixture of each tile, and the end: whole mixtures of TILE_A components together at most, or one larger."""
    ends = offsets[1:].tolist()
    starts, stop = [0], 0
    while stop < len(ends):
        largest = TILE_A + (ends[stop - 1] if stop else 0)
        stop = max(stop + 1, bisect_right(ends, largest, lo=stop))
        starts.append(stop)
    return np.array(starts, dtype=np.int64)


def right_hand_side(b: Atoms) -> tuple[Array, Array, Array, Array]:
    return b.offsets, b.weights, b.points, b.data


def parameters(power: int, outputscale: float, lengthscale: float) -> tuple[Any, ...]:
    """The hyper-kernel's arguments of a kernel."""
    return np.int32(power), np.float64(outputscale), np.float64(-1.0 / lengthscale**2)


def partial_sums_for(totals: Array, most: int) -> Array:
    """Room for `most` partial sums like `totals`, fewer where they would take more than PARTIAL_BYTES."""
    partial_sums: Array = cupy.empty((max(1, min(most, PARTIAL_BYTES // totals.nbytes)), *totals.shape))
    return partial_sums


def add_partial_sums(kernel: Kernel, partial_sums: Array, totals: Array, count: int) -> None:
    """Add the first `count` partial sums to `totals`, one after the other."""
    args = (partial_sums, totals, np.int32(count), np.int64(totals.size))
    kernel((grid_for(totals.size, TILE_A, FEW),), (TILE_A,), args)
