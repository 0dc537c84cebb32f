"""Compiled loops over the roots or exponentials of a tile of pairs, one function a dimension, called by address.

All have one signature; `tile_address` chooses, so that none is compiled but the one that a metric needs. A call with
arrays costs 25 ns of reference counts, a root 1 ns: so all roots of a tile are in one function. It indexes atoms as one
flat array by unsigned numbers: LLVM then knows how far apart rows are, and needs one check for overlap with the sums,
not one a coordinate, and none for indices below 0. That is a tenth of the time in five dimensions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types

from ..._checks import Array
from ._addresses import address_of, caller
from ._arguments import f1, f2, f8, i1, i8
from ._jit import inner, joined
from ._math import exp_neg, fma, lanes, sqrt, unsigned

WINDOW = 256  # long enough to hide the start of a loop; one rank of D = 5 takes 22 kB of the 32 kB of L1
_TILE = types.void(f1, i1, i8, i8, i1, f1, f2, i8, i8, i8, f8, f2, f1, f1)  # what `fill_pairs` calls by its address


@joined
def squares(s: float, x: tuple[float, ...], sign: float, atoms: Array, q: Any, l: Any) -> float:
    """s + the squares of x - sign q, where lane l of the first coordinate is ``atoms[q + l]``."""
    for k in range(len(x)):
        d = x[k] - sign * atoms[q + unsigned(k * WINDOW) + l]
        s = fma(d, d, s)
    return s


@joined
def _add_roots(
    mean: tuple[float, ...], scale: tuple[float, ...], reflect: bool, w: float, atoms: Array, q: Any, width: Any,
    r: int, totals: Array,
) -> None:  # fmt: skip
    """totals[r, l] += w w_l times a distance; with `reflect` the mean of those to the atom and to its mirror image."""
    q_mean, q_scale = q + unsigned(WINDOW), q + unsigned(WINDOW * (1 + len(mean)))
    if reflect:
        for l in lanes(width):
            s = squares(0.0, scale, 1.0, atoms, q_scale, l)
            distances = sqrt(squares(s, mean, 1.0, atoms, q_mean, l)) + sqrt(squares(s, mean, -1.0, atoms, q_mean, l))
            totals[r, l] = fma(0.5 * w * atoms[q + l], distances, totals[r, l])
    else:
        for l in lanes(width):  # two chains have half the latency of one
            s = squares(0.0, mean, 1.0, atoms, q_mean, l) + squares(0.0, scale, 1.0, atoms, q_scale, l)
            totals[r, l] = fma(w * atoms[q + l], sqrt(s), totals[r, l])


def _energy(n_dims: int) -> Any:
    """totals[r, l] += w_i w_l ||p_i - p_l|| for all ranks and components of the rows, for one D <= 5.

    All coordinates stay in registers on the way to the root. With `reflect`, half the mass of each component is at
    its mirror image; mirroring both ends of a distance changes nothing, so that two of the four distances remain.
    """

    def energy(
        atoms: Array, widths: Array, first: int, last: int, offsets: Array, weights: Array, points: Array, base: int,
        n_rows: int, n_reflect: int, bandwidth: float, totals: Array, u: Array, v: Array,
    ) -> None:  # fmt: skip
        reflect = n_reflect > 0
        for rank in range(first, last):
            width = unsigned(widths[rank])
            q = unsigned(rank * (1 + 2 * n_dims) * WINDOW)
            for r in range(n_rows):
                for i in range(offsets[base + r], offsets[base + r + 1]):
                    w, x0, x1 = weights[i], points[i, 0], points[i, 1]
                    if n_dims == 1:  # Numba compiles one of these branches
                        _add_roots((x0,), (x1,), reflect, w, atoms, q, width, r, totals)
                        continue
                    x2, x3 = points[i, 2], points[i, 3]
                    if n_dims == 2:
                        _add_roots((x0, x1), (x2, x3), reflect, w, atoms, q, width, r, totals)
                        continue
                    x4, x5 = points[i, 4], points[i, 5]
                    if n_dims == 3:
                        _add_roots((x0, x1, x2), (x3, x4, x5), reflect, w, atoms, q, width, r, totals)
                        continue
                    x6, x7 = points[i, 6], points[i, 7]
                    if n_dims == 4:
                        _add_roots((x0, x1, x2, x3), (x4, x5, x6, x7), reflect, w, atoms, q, width, r, totals)
                        continue
                    scale = (x5, x6, x7, points[i, 8], points[i, 9])
                    _add_roots((x0, x1, x2, x3, x4), scale, reflect, w, atoms, q, width, r, totals)

    energy.__qualname__ = f"energy_{n_dims}"  # the disk cache has one file a name
    return inner(energy)


@joined
def _add_squares(
    sign: float, points: Array, i: int, begin: int, end: int, atoms: Array, q: Any, width: Any, r2: Array
) -> None:
    """`squares` of the coordinates [begin, end) on top of `r2`, by fours as far as they go."""
    for p in range(begin, end - 3, 4):
        x = (points[i, p], points[i, p + 1], points[i, p + 2], points[i, p + 3])
        for l in lanes(width):
            r2[l] = squares(r2[l], x, sign, atoms, q + unsigned(WINDOW * (1 + p)), l)
    for p in range(end - (end - begin) % 4, end):
        x0 = points[i, p]
        for l in lanes(width):
            r2[l] = squares(r2[l], (x0,), sign, atoms, q + unsigned(WINDOW * (1 + p)), l)


@inner
def _long_energy(
    atoms: Array, widths: Array, first: int, last: int, offsets: Array, weights: Array, points: Array, base: int,
    n_rows: int, n_reflect: int, bandwidth: float, totals: Array, r2: Array, mirrored: Array,
) -> None:  # fmt: skip
    """As `_energy` for any D, its squares kept in `r2` and `mirrored`."""
    n, reflect = points.shape[1], n_reflect > 0
    for rank in range(first, last):
        width = unsigned(widths[rank])
        q = unsigned(rank * (1 + n) * WINDOW)
        for r in range(n_rows):
            for i in range(offsets[base + r], offsets[base + r + 1]):
                w = weights[i]
                for l in lanes(width):
                    r2[l] = 0.0
                _add_squares(1.0, points, i, n // 2, n, atoms, q, width, r2)
                if reflect:
                    for l in lanes(width):
                        mirrored[l] = r2[l]
                    _add_squares(-1.0, points, i, 0, n // 2, atoms, q, width, mirrored)
                _add_squares(1.0, points, i, 0, n // 2, atoms, q, width, r2)
                if reflect:
                    for l in lanes(width):
                        distances = sqrt(r2[l]) + sqrt(mirrored[l])
                        totals[r, l] = fma(0.5 * w * atoms[q + l], distances, totals[r, l])
                else:
                    for l in lanes(width):
                        totals[r, l] = fma(w * atoms[q + l], sqrt(r2[l]), totals[r, l])


@inner
def _gaussian(
    atoms: Array, widths: Array, first: int, last: int, offsets: Array, weights: Array, points: Array, base: int,
    n_rows: int, n_reflect: int, bandwidth: float, totals: Array, u: Array, v: Array,
) -> None:  # fmt: skip
    """totals[r, l] -= 2 w_i w_l <N(p_i), N(p_l)> for all ranks and components of the rows."""
    n = points.shape[1]
    signs = 2 if n_reflect > 0 else 1
    for rank in range(first, last):
        width = unsigned(widths[rank])
        q = unsigned(rank * (1 + n) * WINDOW)
        for r in range(n_rows):
            for i in range(offsets[base + r], offsets[base + r + 1]):
                for k in range(signs):
                    _overlap(atoms, q, width, points, i, bandwidth * bandwidth, 1.0 - 2.0 * k, u, v)
                    w = -2.0 / signs * weights[i]
                    for l in lanes(width):
                        totals[r, l] = fma(w * atoms[q + l], sqrt(u[l]) * exp_neg(v[l]), totals[r, l])


@inner
def _overlap(
    atoms: Array, q: Any, width: Any, points: Array, i: int, b2: float, sign: float, product: Array, exponent: Array
) -> None:
    """product[l] = prod_d b^2/V_d and exponent[l] = -1/2 sum_d (m_d - sign m'_d)^2/V_d, V_d = s_d^2 + s'_d^2
    + b^2."""
    n_dims = points.shape[1] // 2
    for l in lanes(width):
        product[l] = 1.0
        exponent[l] = 0.0
    for d in range(n_dims):
        m, s = points[i, d], points[i, n_dims + d]
        v = fma(s, s, b2)
        q_mean, q_scale = q + unsigned((1 + d) * WINDOW), q + unsigned((1 + n_dims + d) * WINDOW)
        for l in lanes(width):
            s_l = atoms[q_scale + l]
            t = b2 / fma(s_l, s_l, v)
            u = fma(-sign, atoms[q_mean + l], m)
            product[l] *= t
            exponent[l] = fma(u * u, t * (-0.5 / b2), exponent[l])


call_tile = caller(_TILE)


@cache
def tile_address(n_dims: int, gaussian: bool) -> int:
    """Of the function that adds the terms of a tile, for `fill_pairs`; compiled if need be."""
    return address_of(_TILE, _gaussian if gaussian else _energy(n_dims) if n_dims <= 5 else _long_energy)
