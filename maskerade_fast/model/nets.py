"""Scrambled Sobol nets with the bits of `scipy.stats.qmc.Sobol`, without loading scipy.stats, which takes 0.2 s.

Direction numbers are read from SciPy's file: those of Joe and Kuo, "Constructing Sobol sequences with better
two-dimensional projections", SIAM J. Sci. Comput. 30 (2008), under the BSD licence that SciPy carries. Matousek's
scrambling (J. Complexity 14, 1998) multiplies the digits of each coordinate by a random lower triangular matrix of bits
and shifts them. Where SciPy keeps its file elsewhere, its own class is used.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import scipy
from scipy import special

from .._checks import Array

__all__ = ["BITS", "MAX_DIMENSION", "power_of_two", "scrambled_net", "sobol_normal"]

BITS = 30  # of a coordinate
MAX_DIMENSION = 21201  # of the direction numbers SciPy ships

_FILE = Path("stats") / "_sobol_direction_numbers.npz"


def power_of_two(count: int) -> int:
    """The smallest power of two >= count, for count >= 1."""
    return 1 << (count - 1).bit_length()


def sobol_normal(dimension: int, count: int, rng: np.random.Generator) -> Array:
    """`count` (a power of two) points of a freshly scrambled Sobol net, through the standard normal quantile.

    Returns
    -------
    array, shape (count, dimension)
        Finite: the points, multiples of 2^-30, move to the middle of their cell, so that none is 0.

    Raises
    ------
    ValueError
        If SciPy has no direction numbers for so many dimensions.
    """
    if dimension > MAX_DIMENSION:
        raise ValueError(f"max_components: {dimension} latent dimensions, expected at most {MAX_DIMENSION} (Sobol)")
    if count == 1:  # one point of a scrambled net is uniform, and the net would take a millisecond to make
        return np.asarray(special.ndtri((rng.integers(0, 1 << BITS, (1, dimension)) + 0.5) * 2.0**-BITS))
    points = scrambled_net(dimension, count, BITS, rng) + 2.0 ** -(BITS + 1)
    normal: Array = special.ndtri(points)
    return normal


def scrambled_net(dimension: int, count: int, bits: int, rng: np.random.Generator) -> Array:
    """The first points of a scrambled Sobol sequence.

    Parameters
    ----------
    dimension : int
    count : int
        A power of two, at most 2**bits.
    bits : int
        Digits of a coordinate, at most 32.
    rng : Generator
        A child is spawned from it, as SciPy does; its own stream stays where it was.

    Returns
    -------
    points : array of float64, shape (count, dimension)
        Whole multiples of 2**-bits in [0, 1).
    """
    table = _table()
    if table is None:
        return _by_scipy(dimension, count, bits, rng)
    child = rng.spawn(1)[0]
    places = np.arange(bits, dtype=np.uint32)
    shift = child.integers(2, size=(dimension, bits), dtype=np.uint32) @ (np.uint32(1) << places)
    lower = np.tril(child.integers(2, size=(dimension, bits, bits), dtype=np.uint32))
    lower[:, places, places] = 1
    columns = _directions(dimension, bits)[:, : count.bit_length() - 1]
    digits = columns[:, None, :] >> places[::-1, None] & np.uint32(1)  # (dimension, bits, doublings), top digit first
    mixed = (lower.astype(np.float64) @ digits).astype(np.uint32) & np.uint32(1)  # sums of at most 32 ones
    directions = np.bitwise_or.reduce(mixed << places[::-1, None], axis=1)
    points = np.empty((count, dimension), dtype=np.uint32)
    points[0] = shift
    for k in range(directions.shape[1]):  # Gray's code: the points so far in reverse, with one more bit
        half = 1 << k
        np.bitwise_xor(points[:half][::-1], directions[:, k], out=points[half : 2 * half])
    return np.asarray(points * 2.0**-bits)


@cache
def _table() -> tuple[Array, Array] | None:
    """Primitive polynomials and initial direction numbers; None where SciPy's file is not as expected."""
    try:
        with np.load(Path(scipy.__file__).parent / _FILE) as numbers:
            return numbers["poly"], numbers["vinit"]
    except (OSError, KeyError, ValueError):
        return None


@cache
def _directions(dimension: int, bits: int) -> Array:
    """Direction numbers before scrambling, (dimension, bits) with the digits at the top."""
    table = _table()
    assert table is not None
    numbers = np.ones((dimension, bits), dtype=np.uint32)
    for d in range(1, dimension):
        polynomial = int(table[0][d])
        degree = polynomial.bit_length() - 1
        row = [int(m) for m in table[1][d, :degree]]
        for j in range(degree, bits):
            value = row[j - degree]
            for k in range(1, degree + 1):
                if polynomial >> (degree - k) & 1:
                    value ^= row[j - k] << k
            row.append(value)
        numbers[d] = row[:bits]
    return np.asarray(numbers << np.arange(bits, dtype=np.uint32)[::-1])


def _by_scipy(dimension: int, count: int, bits: int, rng: np.random.Generator) -> Array:
    from scipy.stats import qmc

    version = tuple(int(part) for part in scipy.__version__.split(".")[:2])
    keyword = "rng" if version >= (1, 15) else "seed"
    net = qmc.Sobol(dimension, scramble=True, bits=bits, **{keyword: rng})
    return np.asarray(net.random_base2(count.bit_length() - 1))
