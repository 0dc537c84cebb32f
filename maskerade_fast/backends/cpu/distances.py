"""Distances between all pairs of mixtures, as squared MMDs of their atoms (MATH.md section 2).

An atom is a point of R^P, P = 2 D, the scaled mean followed by the scaled scale of one component. Both distances are

    d(a, b) = c(a, b) - c(a, a)/2 - c(b, b)/2,    c(a, b) = sum_ij w_i w'_j g(p_i, q_j),

with g = ||p - q|| for the energy distance and g = -2 <N(p), N(q)> for the Gaussian MMD.

The mixtures of the right-hand side lie in *lanes*: windows of 256 mixtures, ordered by size within a window, and for
each k the k-th components of all mixtures of the window that have one, side by side. The innermost loop then runs over
mixtures with unit stride, adds straight into one sum a mixture, and LLVM vectorises it; neither a temporary of size
pairs x components nor a ragged sum is left. The terms of a pair are added in one order wherever it lies in a batch, so
neither chunks nor threads change a bit, and c(a, a) below repeats that order, so that d of equal mixtures is exactly 0.
"""

from __future__ import annotations

from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ..._checks import Array
from ._math import exp_neg, fma
from ._parallel import parallel_for

__all__ = ["pairwise_distance", "pairwise_distance_vjp", "prepare_atoms"]

WINDOW = 256  # long enough to hide the start of a loop; one level of D = 5 takes 22 kB of the 32 kB of L1
_ROWS = 128  # mixtures of a in a tile of pairs: 128 x 256 stay in the 512 kB of L2
_LEADING = WINDOW + 8  # row length of a tile: no power of two, or its columns would share cache sets
_VECTOR = 4  # levels are padded to this many lanes, so that the vectorised loops leave no remainder
_SERIAL_WORK = 400_000  # component pairs below which waking another thread (150 us) costs more than it saves
_N_DATA = 3  # columns of Atoms.data before the features


class Lanes(NamedTuple):
    """The right-hand side in the layout of the module's docstring; L levels in V windows."""

    atoms: Array  # (L, 1 + P, WINDOW): weight, then point; padded with weight 0
    widths: Array  # (L,) lanes in use, a multiple of _VECTOR
    starts: Array  # (V + 1,) levels of a window
    order: Array  # (V, WINDOW) mixture in each lane
    data: Array  # (V, 3 + F, WINDOW) Atoms.data by lane


class Atoms:
    """One batch of mixtures, ready for `pairwise_distance`; made by `prepare_atoms`."""

    def __init__(
        self,
        offsets: Array,
        weights: Array,
        points: Array,
        n_reflect: int,
        bandwidth: float,
        mass_correction: bool,
    ) -> None:
        self.offsets, self.weights, self.points = offsets, weights, points
        self.n_reflect, self.bandwidth, self.mass_correction = n_reflect, bandwidth, mass_correction
        self.data = np.empty((0, _N_DATA))

    @cached_property
    def lanes(self) -> Lanes:
        """The layout needed on the right-hand side, made when first asked for."""
        counts = np.diff(self.offsets)
        n, n_coordinates = len(counts), self.points.shape[1]
        n_windows = -(-n // WINDOW)
        window = np.arange(n) // WINDOW
        order = np.lexsort((-counts, window))
        lane = np.empty(n, dtype=np.int64)
        lane[order] = np.arange(n) % WINDOW
        starts = np.zeros(n_windows + 1, dtype=np.int64)
        if n:
            np.cumsum(np.maximum.reduceat(counts, np.arange(0, n, WINDOW)), out=starts[1:])
        owner = np.repeat(np.arange(n), counts)
        level = starts[window[owner]] + np.arange(len(owner)) - self.offsets[owner]
        atoms = np.zeros((starts[-1], 1 + n_coordinates, WINDOW))
        atoms[level, 0, lane[owner]] = self.weights
        atoms[level, 1:, lane[owner]] = self.points
        used = np.bincount(level, minlength=starts[-1])
        by_lane = np.zeros((n_windows, WINDOW), dtype=np.int64)
        by_lane.reshape(-1)[:n] = order
        data = np.zeros((n_windows, self.data.shape[1], WINDOW))
        data[window, :, lane] = self.data
        return Lanes(atoms, -(-used // _VECTOR) * _VECTOR, starts, by_lane, data)

    def __len__(self) -> int:
        return len(self.offsets) - 1


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
    """Self terms, masses and moments of every mixture, kept with its atoms.

    Parameters
    ----------
    offsets : (B + 1,) int64
    weights : (J,)
    points : (J, P)
        Scaled means, then scaled scales.
    n_reflect : int
        The first so many coordinates are taken with both signs: D for reflected mixtures, else 0.
    bandwidth : float
        Of the Gaussian MMD; 0 for the energy distance.
    mass_correction : bool
        Add (M_a - M_b)(f_a - f_b) to the energy distance.
    features : (B, F), optional
        sum_f |features_af - features_bf| is added to the clamped distance.

    Returns
    -------
    Atoms
        For the doors of this backend alone. Holds float64 copies where the arrays are of another type, read-only or
        not contiguous.
    """
    weights, points = _native(weights, np.float64), _native(points, np.float64)
    offsets = _native(offsets, np.int64)
    atoms = Atoms(offsets, weights, points, n_reflect, float(bandwidth), bool(mass_correction))
    n_features = 0 if features is None else features.shape[1]
    data = np.zeros((len(atoms), _N_DATA + n_features))
    if features is not None:
        data[:, _N_DATA:] = features

    def block(start: int, stop: int) -> None:
        _self_terms(
            start, stop, offsets, weights, points, n_reflect, atoms.bandwidth, atoms.mass_correction, data
        )

    _run(block, len(atoms), 1024, len(weights) * 4)
    atoms.data = data
    return atoms


def pairwise_distance(a: Any, b: Any = None) -> Array:
    """Distance of every mixture of `a` to every one of `b`, clamped at 0, plus the features' terms.

    Parameters
    ----------
    a, b
        From `prepare_atoms`, with equal options. Without `b`: `a` with itself, exactly symmetric, diagonal exactly 0.

    Returns
    -------
    (B_a, B_b) float64
    """
    return pairwise(a, b, 0, 1.0, 1.0)


def pairwise(a: Atoms, b: Atoms | None, power: int, outputscale: float, lengthscale: float) -> Array:
    """`pairwise_distance` (power 0) or the hyper-kernel of it (power 1, 2) in the same pass."""
    symmetric = b is None
    other = a if b is None else b
    n_a, n_b = len(a), len(other)
    out = np.empty((n_a, n_b))
    if out.size == 0:
        return out
    lanes = other.lanes
    n_tiles = -(-n_a // _ROWS) * len(lanes.order)

    def block(start: int, stop: int) -> None:
        _pairs(
            start, stop, symmetric, power, outputscale, -1.0 / lengthscale**2,
            a.offsets, a.weights, a.points, a.data, a.n_reflect, a.bandwidth, *lanes, out,
        )  # fmt: skip

    _run(block, n_tiles, 2 if n_a > 32 else 4, len(a.weights) * len(other.weights))
    return out


def pairwise_distance_vjp(a: Any, b: Any, cotangent: Array) -> tuple[Array, Array]:
    """Gradient of sum(cotangent * pairwise_distance(a, b)) in the weights and points of `a`, without the features.

    Where atoms coincide the subgradient 0 is taken; the clamp is there against rounding and has no part in it.

    Parameters
    ----------
    a, b
        From `prepare_atoms`.
    cotangent : (B_a, B_b) float64

    Returns
    -------
    weights : (J_a,) float64
    points : (J_a, P) float64
    """
    cotangent = _native(cotangent, np.float64)
    g_weights, g_points = np.zeros(a.weights.shape), np.zeros(a.points.shape)
    if cotangent.size == 0:
        return g_weights, g_points
    lanes = b.lanes

    def block(start: int, stop: int) -> None:
        _vjp(
            start, stop, cotangent, a.mass_correction, a.offsets, a.weights, a.points, a.data, a.n_reflect, a.bandwidth, *lanes, g_weights, g_points,
        )  # fmt: skip

    _run(block, len(a), 4, 2 * len(a.weights) * len(b.weights))
    return g_weights, g_points


def _native(array: Array, dtype: Any) -> Array:
    """Numba compiles one version for each layout: let there be one."""
    if array.dtype == dtype and array.flags.carray:
        return array
    return np.require(array, dtype=dtype, requirements=["C", "A", "W"])


def _run(kernel: Any, n_items: int, block: int, work: int) -> None:
    if work < _SERIAL_WORK:
        kernel(0, n_items)
    else:
        parallel_for(kernel, n_items, block)


# ---------------------------------------------------------------------------------------------------------------------
# Kernels. Squared distances start from the coordinates that are not reflected and go up one by one; all sums use `fma`
# and no fast-math, except the plain sums over lanes of the gradients, so that vectors and remainders round alike.


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _energy(atoms, widths, first, last, points, weights, begin, end, total, r2):  # type: ignore[no-untyped-def]
    """total[l] += w_i w_l ||p_i - p_l|| over levels and over components [begin, end); `r2` comes and goes as 0.

    The last 2, 4 or 6 coordinates are added on the way to the root, the rest in blocks of 4 through `r2`. The
    loops are in one function since each call with arrays costs reference counts, 25 ns against 1 ns a root.
    """
    n = points.shape[1]
    tail = n if n <= 6 else 4 + n % 4
    for level in range(first, last):
        width = widths[level]
        for i in range(begin, end):
            for p in range(0, n - tail, 4):
                x0, x1, x2, x3 = points[i, p], points[i, p + 1], points[i, p + 2], points[i, p + 3]
                for l in range(width):
                    d0 = x0 - atoms[level, p + 1, l]
                    d1 = x1 - atoms[level, p + 2, l]
                    d2 = x2 - atoms[level, p + 3, l]
                    d3 = x3 - atoms[level, p + 4, l]
                    r2[l] = fma(d3, d3, fma(d2, d2, fma(d1, d1, fma(d0, d0, r2[l]))))
            w, x0, x1 = weights[i], points[i, n - 2], points[i, n - 1]
            if tail == 2:
                for l in range(width):
                    d0 = x0 - atoms[level, n - 1, l]
                    d1 = x1 - atoms[level, n, l]
                    r = sqrt(fma(d1, d1, fma(d0, d0, r2[l])))
                    total[l] = fma(w * atoms[level, 0, l], r, total[l])
            elif tail == 4:
                x2, x3 = points[i, n - 4], points[i, n - 3]
                for l in range(width):
                    d0 = x0 - atoms[level, n - 1, l]
                    d1 = x1 - atoms[level, n, l]
                    d2 = x2 - atoms[level, n - 3, l]
                    d3 = x3 - atoms[level, n - 2, l]
                    r = sqrt(fma(d1, d1, fma(d0, d0, fma(d3, d3, fma(d2, d2, r2[l])))))
                    total[l] = fma(w * atoms[level, 0, l], r, total[l])
                    r2[l] = 0.0
            else:
                x2, x3, x4, x5 = points[i, n - 4], points[i, n - 3], points[i, n - 6], points[i, n - 5]
                for l in range(width):
                    d0 = x0 - atoms[level, n - 1, l]
                    d1 = x1 - atoms[level, n, l]
                    d2 = x2 - atoms[level, n - 3, l]
                    d3 = x3 - atoms[level, n - 2, l]
                    d4 = x4 - atoms[level, n - 5, l]
                    d5 = x5 - atoms[level, n - 4, l]
                    s = fma(d3, d3, fma(d2, d2, fma(d5, d5, fma(d4, d4, r2[l]))))
                    total[l] = fma(w * atoms[level, 0, l], sqrt(fma(d1, d1, fma(d0, d0, s))), total[l])
                    r2[l] = 0.0


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _reflected_energy(atoms, widths, first, last, points, weights, begin, end, n_reflect, total, r2, mirrored):  # type: ignore[no-untyped-def]
    """As `_energy`, with half the mass of each component at its mirror image in the first coordinates.

    Mirroring both ends of a distance changes nothing, so that two of the four distances remain.
    """
    n = points.shape[1]
    for level in range(first, last):
        width = widths[level]
        for i in range(begin, end):
            for p in range(n_reflect, n):
                x0 = points[i, p]
                for l in range(width):
                    d0 = x0 - atoms[level, p + 1, l]
                    r2[l] = fma(d0, d0, r2[l])
            for l in range(width):
                mirrored[l] = r2[l]
            for p in range(n_reflect):
                x0 = points[i, p]
                for l in range(width):
                    d0 = x0 - atoms[level, p + 1, l]
                    d1 = x0 + atoms[level, p + 1, l]
                    r2[l] = fma(d0, d0, r2[l])
                    mirrored[l] = fma(d1, d1, mirrored[l])
            half = 0.5 * weights[i]
            for l in range(width):
                total[l] = fma(half * atoms[level, 0, l], sqrt(r2[l]) + sqrt(mirrored[l]), total[l])
                r2[l] = 0.0


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _gaussian(atoms, widths, first, last, points, weights, begin, end, n_reflect, bandwidth, total, u, v):  # type: ignore[no-untyped-def]
    """total[l] -= 2 w_i w_l <N(p_i), N(p_l)> over levels and over components [begin, end)."""
    signs = 2 if n_reflect > 0 else 1
    for level in range(first, last):
        width = widths[level]
        for i in range(begin, end):
            for k in range(signs):
                _overlap(atoms, level, width, points, i, bandwidth * bandwidth, 1.0 - 2.0 * k, u, v)
                w = -2.0 / signs * weights[i]
                for l in range(width):
                    total[l] = fma(w * atoms[level, 0, l], sqrt(u[l]) * exp_neg(v[l]), total[l])
                    u[l] = 0.0


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _overlap(atoms, level, width, points, i, b2, sign, product, exponent):  # type: ignore[no-untyped-def]
    """product[l] = prod_d b^2/V_d and exponent[l] = -1/2 sum_d (m_d - sign m'_d)^2/V_d, V_d = s_d^2 + s'_d^2 + b^2."""
    n_dims = points.shape[1] // 2
    for l in range(width):
        product[l] = 1.0
        exponent[l] = 0.0
    for d in range(n_dims):
        m, s = points[i, d], points[i, n_dims + d]
        v = fma(s, s, b2)
        for l in range(width):
            s_l = atoms[level, 1 + n_dims + d, l]
            t = b2 / fma(s_l, s_l, v)
            u = fma(-sign, atoms[level, 1 + d, l], m)
            product[l] *= t
            exponent[l] = fma(u * u, t * (-0.5 / b2), exponent[l])


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _cross(atoms, widths, first, last, offsets, weights, points, a, n_reflect, bandwidth, total, u, v):  # type: ignore[no-untyped-def]
    """total[l] = c(a, b_l) for one mixture a and one window; `u` and `v` are scratch, `u` zeros."""
    for l in range(widths[first]):
        total[l] = 0.0
    begin, end = offsets[a], offsets[a + 1]
    if bandwidth > 0.0:
        _gaussian(atoms, widths, first, last, points, weights, begin, end, n_reflect, bandwidth, total, u, v)
    elif n_reflect > 0:
        _reflected_energy(atoms, widths, first, last, points, weights, begin, end, n_reflect, total, u, v)
    else:
        _energy(atoms, widths, first, last, points, weights, begin, end, total, u)


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _finish(data_a, i_a, data_b, window, width, total):  # type: ignore[no-untyped-def]
    """Turn c(a, b) in `total` into the distance; `data_a`: self term, mass, moment, features of a."""
    self_a, mass_a, moment_a = data_a[i_a, 0], data_a[i_a, 1], data_a[i_a, 2]
    for l in range(width):
        e = total[l] - 0.5 * self_a - 0.5 * data_b[window, 0, l]
        e = fma(mass_a - data_b[window, 1, l], moment_a - data_b[window, 2, l], e)
        total[l] = 0.0 if e < 0.0 else e
    for f in range(3, data_a.shape[1]):
        for l in range(width):
            total[l] += abs(data_a[i_a, f] - data_b[window, f, l])


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def covariance(power, outputscale, rate, width, values):  # type: ignore[no-untyped-def]
    """Distances to hyper-kernel in place: outputscale * exp(rate * E^(power/2)), rate < 0; power 0 leaves E."""
    if power == 1:
        for l in range(width):
            values[l] = outputscale * exp_neg(rate * sqrt(values[l]))
    elif power == 2:
        for l in range(width):
            values[l] = outputscale * exp_neg(rate * values[l])


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _pairs(  # type: ignore[no-untyped-def]
    start, stop, symmetric, power, outputscale, rate,
    offsets, weights, points, data, n_reflect, bandwidth,
    atoms, widths, starts, order, data_b, out,
):  # fmt: skip
    """Tiles [start, stop) of `out`: _ROWS mixtures of a by one window of b."""
    n_a, n_b = out.shape
    tile = np.empty((_ROWS, _LEADING))
    u, v, total = np.zeros(WINDOW), np.empty(WINDOW), np.empty(WINDOW)
    for t in range(start, stop):
        row, window = t // len(order), t % len(order)
        base_a, base_b = row * _ROWS, window * WINDOW
        if symmetric and base_a >= base_b + WINDOW:
            continue
        first, last = starts[window], starts[window + 1]
        n_lanes = min(WINDOW, n_b - base_b)
        n_rows = min(_ROWS, n_a - base_a)
        for r in range(n_rows):
            _cross(
                atoms,
                widths,
                first,
                last,
                offsets,
                weights,
                points,
                base_a + r,
                n_reflect,
                bandwidth,
                total,
                u,
                v,
            )
            _finish(data, base_a + r, data_b, window, widths[first], total)
            covariance(power, outputscale, rate, widths[first], total)
            if not symmetric:
                for l in range(n_lanes):
                    out[base_a + r, order[window, l]] = total[l]
            else:
                for l in range(n_lanes):
                    tile[r, order[window, l] - base_b] = total[l]
        if symmetric:
            _mirror(tile, base_a, n_rows, base_b, n_lanes, 0.0 if power == 0 else outputscale, out)


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _mirror(tile, base_a, n_rows, base_b, n_columns, diagonal, out):  # type: ignore[no-untyped-def]
    """Write the part of a tile above the diagonal of the symmetric `out`, its transpose and the diagonal."""
    for r in range(n_rows):
        for c in range(max(0, base_a + r + 1 - base_b), n_columns):
            out[base_a + r, base_b + c] = tile[r, c]
        if base_b <= base_a + r < base_b + n_columns:
            out[base_a + r, base_a + r] = diagonal
    for c in range(n_columns):
        for r in range(min(n_rows, base_b + c - base_a)):
            out[base_b + c, base_a + r] = tile[r, c]


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _self_terms(start, stop, offsets, weights, points, n_reflect, bandwidth, mass_correction, data):  # type: ignore[no-untyped-def]
    """c(a, a), mass and first moment; every sum in the order of `_cross`, so that they cancel exactly."""
    n = points.shape[1]
    n_dims = n // 2
    b2 = bandwidth * bandwidth
    signs = 2 if n_reflect > 0 else 1
    for a in range(start, stop):
        total, mass, moment = 0.0, 0.0, 0.0
        for j in range(offsets[a], offsets[a + 1]):
            for i in range(offsets[a], offsets[a + 1]):
                if bandwidth == 0.0:
                    g = 0.0
                    for p in range(n_reflect, n):
                        d = points[i, p] - points[j, p]
                        g = fma(d, d, g)
                    mirrored = g
                    for p in range(n_reflect):
                        d = points[i, p] - points[j, p]
                        g = fma(d, d, g)
                        d = points[i, p] + points[j, p]
                        mirrored = fma(d, d, mirrored)
                    if n_reflect > 0:
                        total = fma(0.5 * weights[i] * weights[j], sqrt(g) + sqrt(mirrored), total)
                    else:
                        total = fma(weights[i] * weights[j], sqrt(g), total)
                else:
                    for k in range(signs):
                        product, exponent = 1.0, 0.0
                        for d in range(n_dims):
                            s_i, s_j = points[i, n_dims + d], points[j, n_dims + d]
                            t = b2 / fma(s_j, s_j, fma(s_i, s_i, b2))
                            u = fma(2.0 * k - 1.0, points[j, d], points[i, d])
                            product *= t
                            exponent = fma(u * u, t * (-0.5 / b2), exponent)
                        w = -2.0 / signs * weights[i]
                        total = fma(w * weights[j], sqrt(product) * exp_neg(exponent), total)
            mass += weights[j]
            if mass_correction:
                moment = fma(weights[j], _norm(points, j), moment)
        data[a, 0], data[a, 1], data[a, 2] = total, mass, moment


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _norm(points, i):  # type: ignore[no-untyped-def]
    total = 0.0
    for p in range(points.shape[1]):
        total = fma(points[i, p], points[i, p], total)
    return sqrt(total)


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _vjp(  # type: ignore[no-untyped-def]
    start, stop, cotangent, mass_correction, offsets, weights, points, data, n_reflect, bandwidth,
    atoms, widths, starts, order, data_b, g_weights, g_points,
):  # fmt: skip
    """Gradients of the mixtures [start, stop) of a."""
    n_b = cotangent.shape[1]
    n = points.shape[1]
    u, v, pull = np.zeros(WINDOW), np.empty(WINDOW), np.empty(WINDOW)
    inverse, sign = np.empty((n // 2, WINDOW)), np.ones(n)
    for a in range(start, stop):
        begin, end = offsets[a], offsets[a + 1]
        sum_pull, sum_moment, sum_mass = 0.0, 0.0, 0.0
        for window in range(len(starts) - 1):
            first, last = starts[window], starts[window + 1]
            n_lanes = min(WINDOW, n_b - window * WINDOW)
            for l in range(n_lanes):
                g = cotangent[a, order[window, l]]
                pull[l] = g
                sum_pull += g
                sum_moment += g * (data[a, 2] - data_b[window, 2, l])
                sum_mass += g * (data[a, 1] - data_b[window, 1, l])
            for l in range(n_lanes, widths[first]):
                pull[l] = 0.0
            if bandwidth > 0.0:
                _gaussian_vjp(
                    atoms, widths, first, last, points, weights, begin, end, n_reflect, bandwidth,
                    pull, u, v, inverse, g_weights, g_points,
                )  # fmt: skip
            else:
                _energy_vjp(
                    atoms, widths, first, last, points, weights, begin, end, n_reflect,
                    pull, u, v, sign, g_weights, g_points,
                )  # fmt: skip
        _self_vjp(begin, end, points, weights, n_reflect, bandwidth, -sum_pull, g_weights, g_points)
        if mass_correction:
            for i in range(begin, end):
                norm = _norm(points, i)
                g_weights[i] += sum_moment + sum_mass * norm
                if norm > 0.0:
                    for p in range(n):
                        g_points[i, p] += sum_mass * weights[i] * points[i, p] / norm


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator]
def _energy_vjp(  # type: ignore[no-untyped-def]
    atoms, widths, first, last, points, weights, begin, end, n_reflect, pull, r2, share, sign, g_weights, g_points
):  # fmt: skip
    """Add sum_l pull_l w_l d||p_i - p_l|| over levels to components [begin, end); 0/0 = 0 where atoms meet."""
    n = points.shape[1]
    signs = 2 if n_reflect > 0 else 1
    for level in range(first, last):
        width = widths[level]
        for i in range(begin, end):
            for k in range(signs):
                for p in range(n_reflect):
                    sign[p] = 1.0 - 2.0 * k
                for p in range(0, n - 3, 4):
                    x0, x1, x2, x3 = points[i, p], points[i, p + 1], points[i, p + 2], points[i, p + 3]
                    c0, c1, c2, c3 = sign[p], sign[p + 1], sign[p + 2], sign[p + 3]
                    for l in range(width):
                        d0 = x0 - c0 * atoms[level, p + 1, l]
                        d1 = x1 - c1 * atoms[level, p + 2, l]
                        d2 = x2 - c2 * atoms[level, p + 3, l]
                        d3 = x3 - c3 * atoms[level, p + 4, l]
                        r2[l] += d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3
                x0, x1, c0, c1 = points[i, n - 2], points[i, n - 1], sign[n - 2], sign[n - 1]
                rest = 1.0 if n % 4 == 2 else 0.0
                s, s0, s1 = 0.0, 0.0, 0.0
                for l in range(width):
                    d0 = rest * (x0 - c0 * atoms[level, n - 1, l])
                    d1 = rest * (x1 - c1 * atoms[level, n, l])
                    r = sqrt(r2[l] + d0 * d0 + d1 * d1)
                    h = pull[l] * atoms[level, 0, l]
                    c = h / r if r > 0.0 else 0.0
                    s += h * r
                    s0 += c * d0
                    s1 += c * d1
                    share[l] = c
                    r2[l] = 0.0
                w = weights[i] / signs
                g_weights[i] += s / signs
                g_points[i, n - 2] += w * s0
                g_points[i, n - 1] += w * s1
                for p in range(0, n - 3, 4):
                    x0, x1, x2, x3 = points[i, p], points[i, p + 1], points[i, p + 2], points[i, p + 3]
                    c0, c1, c2, c3 = sign[p], sign[p + 1], sign[p + 2], sign[p + 3]
                    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
                    for l in range(width):
                        s0 += share[l] * (x0 - c0 * atoms[level, p + 1, l])
                        s1 += share[l] * (x1 - c1 * atoms[level, p + 2, l])
                        s2 += share[l] * (x2 - c2 * atoms[level, p + 3, l])
                        s3 += share[l] * (x3 - c3 * atoms[level, p + 4, l])
                    g_points[i, p] += w * s0
                    g_points[i, p + 1] += w * s1
                    g_points[i, p + 2] += w * s2
                    g_points[i, p + 3] += w * s3


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator]
def _gaussian_vjp(  # type: ignore[no-untyped-def]
    atoms, widths, first, last, points, weights, begin, end, n_reflect, bandwidth,
    pull, product, exponent, inverse, g_weights, g_points,
):  # fmt: skip
    """Add -2 sum_l pull_l w_l d<N(p_i), N(p_l)> over levels to components [begin, end)."""
    n_dims = points.shape[1] // 2
    b2 = bandwidth * bandwidth
    signs = 2 if n_reflect > 0 else 1
    for level in range(first, last):
        width = widths[level]
        for i in range(begin, end):
            for k in range(signs):
                sign = 1.0 - 2.0 * k
                for l in range(width):
                    product[l] = 1.0
                    exponent[l] = 0.0
                for d in range(n_dims):
                    m, s = points[i, d], points[i, n_dims + d]
                    for l in range(width):
                        s_l = atoms[level, 1 + n_dims + d, l]
                        t = 1.0 / (s * s + s_l * s_l + b2)
                        z = m - sign * atoms[level, 1 + d, l]
                        inverse[d, l] = t
                        product[l] *= b2 * t
                        exponent[l] -= 0.5 * z * z * t
                total = 0.0
                for l in range(width):
                    h = -2.0 / signs * pull[l] * atoms[level, 0, l] * sqrt(product[l]) * exp_neg(exponent[l])
                    total += h
                    exponent[l] = h
                    product[l] = 0.0
                g_weights[i] += total
                for d in range(n_dims):
                    m, g_m, g_s = points[i, d], 0.0, 0.0
                    for l in range(width):
                        t = inverse[d, l]
                        z = (m - sign * atoms[level, 1 + d, l]) * t
                        g_m -= exponent[l] * z
                        g_s += exponent[l] * (z * z - t)
                    g_points[i, d] += weights[i] * g_m
                    g_points[i, n_dims + d] += weights[i] * points[i, n_dims + d] * g_s


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _self_vjp(begin, end, points, weights, n_reflect, bandwidth, pull, g_weights, g_points):  # type: ignore[no-untyped-def]
    """Add `pull` times the gradient of c(a, a)/2: the half cancels against the two places of every component."""
    n = points.shape[1]
    n_dims = n // 2
    b2 = bandwidth * bandwidth
    signs = 2 if n_reflect > 0 else 1
    for i in range(begin, end):
        for j in range(begin, end):
            for k in range(signs):
                sign = 1.0 - 2.0 * k
                if bandwidth > 0.0:
                    product, exponent = 1.0, 0.0
                    for d in range(n_dims):
                        s_i, s_j = points[i, n_dims + d], points[j, n_dims + d]
                        t = b2 / fma(s_j, s_j, fma(s_i, s_i, b2))
                        z = fma(-sign, points[j, d], points[i, d])
                        product *= t
                        exponent = fma(z * z, t * (-0.5 / b2), exponent)
                    h = -2.0 / signs * pull * weights[j] * sqrt(product) * exp_neg(exponent)
                    g_weights[i] += h
                    for d in range(n_dims):
                        s_i, s_j = points[i, n_dims + d], points[j, n_dims + d]
                        inv = 1.0 / fma(s_j, s_j, fma(s_i, s_i, b2))
                        z = fma(-sign, points[j, d], points[i, d]) * inv
                        g_points[i, d] -= weights[i] * h * z
                        g_points[i, n_dims + d] += weights[i] * h * s_i * (z * z - inv)
                    continue
                r2 = 0.0
                for p in range(n):
                    z = fma(-sign if p < n_reflect else -1.0, points[j, p], points[i, p])
                    r2 = fma(z, z, r2)
                if r2 > 0.0:
                    h = pull * weights[j] / signs
                    r = sqrt(r2)
                    g_weights[i] += h * r
                    for p in range(n):
                        z = fma(-sign if p < n_reflect else -1.0, points[j, p], points[i, p])
                        g_points[i, p] += weights[i] * h * z / r
