"""Distances between all pairs of mixtures by lanes; `backends.contract` has the maths.

The mixtures of the right-hand side lie in *lanes*: windows of 256 mixtures, ordered by size within a window,
and for each rank k the k-th components of all mixtures of the window that have one, side by side. The innermost
loop then runs over mixtures with unit stride, adds straight into one sum a mixture, and LLVM vectorises it;
neither a temporary of size pairs x components nor a ragged sum is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._checks import Array
from ..._containers import cached_property
from ..._memory import require_room
from ._distance_gradients import add_gradients
from ._distance_loops import ROWS, Lanes, Side, fill_lanes, fill_pairs, fill_self_terms
from ._distance_tiles import WINDOW, tile_address
from ._jit import repeated
from ._loop_arrays import loop_array
from ._parallel import parallel_for

__all__ = ["pairwise_distance", "pairwise_distance_vjp", "prepare_atoms"]

_SERIAL_WORK = 400_000  # component pairs below which waking another thread (150 us) costs more than it saves
_N_DATA = 3  # columns of Atoms.data before the features


class Atoms:
    """One batch of mixtures, ready for `pairwise_distance`; made by `prepare_atoms`."""

    def __init__(
        self, offsets: Array, weights: Array, points: Array, n_reflect: int, bandwidth: float, mass_correction: bool
    ) -> None:
        self.offsets, self.weights, self.points = offsets, weights, points
        self.n_reflect, self.bandwidth, self.mass_correction = n_reflect, bandwidth, mass_correction
        self.data = np.empty((0, _N_DATA))

    @cached_property
    def lanes(self) -> Lanes:
        """The layout needed on the right-hand side, made at the first use."""
        counts = np.diff(self.offsets)
        n, n_windows = len(counts), -(-len(counts) // WINDOW)
        starts = np.zeros(n_windows + 1, dtype=np.int64)
        if n:
            np.cumsum(np.maximum.reduceat(counts, np.arange(0, n, WINDOW)), out=starts[1:])
        lanes = Lanes(
            atoms=_aligned_zeros(int(starts[-1]) * (1 + self.points.shape[1]) * WINDOW),
            widths=np.zeros(starts[-1], dtype=np.int64),
            starts=starts,
            lane=np.zeros((n_windows, WINDOW), dtype=np.int64),
            data=np.zeros((n_windows, self.data.shape[1], WINDOW)),
        )
        fill_lanes(self.side, lanes)
        return lanes

    @property
    def side(self) -> Side:
        """The arrays needed on the left-hand side."""
        return Side(self.offsets, self.weights, self.points, self.data, self.n_reflect, self.bandwidth)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "lanes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From a pickle, whose arrays may lie in memory that is shared and read-only."""
        vars(self).update(state, offsets=loop_array(state["offsets"], np.int64))
        for name in ("weights", "points", "data"):
            setattr(self, name, loop_array(state[name]))

    @property
    def masses(self) -> Array:
        """Total weight of each mixture, (B,) float64."""
        return self.data[:, 1]


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
    """Sum self terms in the order of the tiles; lanes are laid out at the first use on the right-hand side."""
    weights, points = loop_array(weights), loop_array(points)
    offsets = loop_array(offsets, np.int64)
    atoms = Atoms(offsets, weights, points, n_reflect, float(bandwidth), bool(mass_correction))
    n_features = 0 if features is None else features.shape[1]
    data = np.zeros((len(atoms), _N_DATA + n_features))
    if features is not None:
        data[:, _N_DATA:] = features

    atoms.data = data

    def block(start: int, stop: int) -> None:
        fill_self_terms(start, stop, atoms.side, atoms.mass_correction)

    run(block, len(atoms), 1024, len(weights) * 4)
    return atoms


def pairwise_distance(a: Any, b: Any = None, *, precision: str = "double") -> Array:
    """Walk over tiles of rows and windows; float64 whatever the precision."""
    return pairwise(a, b, 0, 1.0, 1.0)


def pairwise(a: Atoms, b: Atoms | None, power: int, outputscale: float, lengthscale: float) -> Array:
    """`pairwise_distance` (power 0) or the hyper-kernel of it (power 1, 2) in the same pass."""
    other = a if b is None else b
    require_room((len(a), len(other)), "a matrix between mixtures")
    out = np.empty((len(a), len(other)))
    if out.size:
        walk_tiles(a, other, ROWS, 4, b is None, (power, outputscale, lengthscale), np.empty((0, 0, 0)), out)
    return out


def walk_tiles(
    a: Atoms, b: Atoms, rows: int, tiles: int, symmetric: bool, kernel: tuple[int, float, float], vectors: Array,
    out: Array,
) -> None:  # fmt: skip
    """`fill_pairs` of all tiles.

    Parameters
    ----------
    a, b : Atoms
    rows : int
        Mixtures of `a` in a tile.
    tiles : int
        In a block of one thread; with `vectors` all windows of `b`, since these add to the same rows.
    symmetric : bool
        `b` is `a`.
    kernel : power, outputscale, lengthscale
        Power 0 for distances.
    vectors : (k, V, WINDOW) float64
        By lane; none for the matrix itself.
    out : (B_a, B_b), or (B_a, k) zeros
    """
    side, lanes, (power, outputscale, lengthscale) = a.side, b.lanes, kernel
    tile = tile_address(a.points.shape[1] // 2, a.bandwidth > 0.0)
    shape = (power, float(outputscale), -1.0 / lengthscale**2)

    fill = repeated(fill_pairs)

    def block(start: int, stop: int) -> None:
        fill(start, stop, tile, rows, symmetric, *shape, side, lanes, vectors, out)

    run(block, -(-len(a) // rows) * len(lanes.lane), tiles, len(a.weights) * len(b.weights))


def pairwise_distance_vjp(a: Any, b: Any, cotangent: Array, distance: Array | None = None) -> tuple[Array, Array]:
    """Sum each gradient over the windows of b in order, on one thread."""
    cotangent = loop_array(cotangent)
    g_weights, g_points = np.zeros(a.weights.shape), np.zeros(a.points.shape)
    if cotangent.size == 0:
        return g_weights, g_points
    distance = pairwise_distance(a, None if b is a else b) if distance is None else loop_array(distance, np.float64)
    side, lanes, add = a.side, b.lanes, repeated(add_gradients)

    def block(start: int, stop: int) -> None:
        add(start, stop, cotangent, distance, a.mass_correction, side, lanes, g_weights, g_points)

    run(block, len(a), 4, 2 * len(a.weights) * len(b.weights))
    return g_weights, g_points


def _aligned_zeros(size: int) -> Array:
    """From the start of a cache line on: vectors that straddle two lines cost 6 % of a distance."""
    line = 64 // 8
    room = np.zeros(size + line)
    first = -room.ctypes.data // 8 % line
    return room[first : first + size]


def run(kernel: Any, n_items: int, block: int, work: int) -> None:
    if work < _SERIAL_WORK:
        kernel(0, n_items)
    else:
        parallel_for(kernel, n_items, block)
