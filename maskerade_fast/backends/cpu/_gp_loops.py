"""Compiled loops of predictions; `gp.py` explains the blocks of test points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ._covariance_loops import factor_mixture, whitened
from ._gram_loops import fill_tables, gram_rows, mirror, total_weight
from ._lapack import solve_rows, solve_vector, subtract_squares
from ._likelihood_loops import BLOCKS_STAGE, FACTOR_STAGE, FINISH_STAGE, VALUE_STAGE
from ._math import dot

Array = NDArray[Any]

POINTS = 128  # test points in a block
_EPS = 2.220446049250313e-16


@njit(inline="always")  # type: ignore[untyped-decorator]
def latent_variance(blas: Array, prior: float, solved: Array, factor: Array, largest: float, scratch: Array) -> float:
    """k(0) - |v|^2; a negative one becomes 0 if rounding explains it, else NaN.

    The factor is exact for a matrix within N eps max diag(C) of C, entry by entry, which moves |v|^2 by up to
    that times the square of the sum of |C^-1 k|; the bound is 8 N eps max diag(C) (1 + sum |C^-1 k|)^2.
    """
    n = len(solved)
    variance = prior - dot(solved, solved, n)
    if variance < 0.0:
        for i in range(n):
            scratch[i] = solved[i]
        solve_vector(blas, True, n, factor.ctypes.data, n, scratch.ctypes.data)
        total = 1.0
        for i in range(n):
            total += abs(scratch[i])
        variance = 0.0 if -variance <= 8.0 * n * _EPS * largest * total * total else math.nan
    return variance  # type: ignore[no-any-return]


@njit(inline="always")  # type: ignore[untyped-decorator]
def predict_block(
    b: int,
    block: int,
    blas: Array,
    offsets: Array,
    weights: Array,
    means: Array,
    x: Array,
    x_new: Array,
    high_new: Array,
    low_new: Array,
    n_phases: int,
    basis: Array,
    basis_new: Array,
    largest: float,
    matrix: Array,
    rates: Array,
    cosines: Array,
    sines: Array,
    z: Array,
    solved: Array,
    first_row: int,
    mean: Array,
    variance: Array,
) -> None:
    """Means and latent variances of one block of test points; its V' goes to `solved` from `first_row` on."""
    n_points = x.shape[1]
    start = block * POINTS
    stop = min(start + POINTS, x_new.shape[1])
    first = offsets[b]
    n = offsets[b + 1] - first
    rows = solved[first_row : first_row + stop - start]
    block_x = np.ascontiguousarray(x_new[:, start:stop])
    block_high = np.ascontiguousarray(high_new[:, start:stop])
    block_low = np.ascontiguousarray(low_new[:, start:stop])
    cos_new = np.empty((n * n_phases, stop - start))
    sin_new = np.empty((n * n_phases, stop - start))
    scratch = np.empty(n_points)
    fill_tables(first, n, means, block_high, block_low, n_phases, cos_new, sin_new)
    gram_rows(
        np.int64(0), stop - start, np.int64(0), n, first, weights, rates, block_x, cos_new, sin_new, x, cosines,
        sines, n_phases, np.ascontiguousarray(basis_new[:, start:stop]), basis, rows,
    )  # fmt: skip
    solve_rows(blas, False, n_points, stop - start, matrix.ctypes.data, n_points, rows.ctypes.data, n_points)
    prior = total_weight(first, n, weights)
    for r in range(stop - start):
        mean[b, start + r] = dot(rows[r], z, n_points)
        own = prior
        for c in range(basis_new.shape[0]):
            own += basis_new[c, start + r] * basis_new[c, start + r]
        variance[b, start + r] = latent_variance(blas, own, rows[r], matrix, largest, scratch)


@njit(inline="always")  # type: ignore[untyped-decorator]
def finish_covariance(
    b: int,
    blas: Array,
    offsets: Array,
    weights: Array,
    means: Array,
    x_new: Array,
    high_new: Array,
    low_new: Array,
    n_phases: int,
    basis_new: Array,
    rates: Array,
    solved: Array,
    variance: Array,
    covariance: Array,
) -> None:
    """K(X*, X*) - V'V, symmetric, with the diagonal that `latent_variance` gives."""
    n_new = x_new.shape[1]
    first = offsets[b]
    n = offsets[b + 1] - first
    cosines = np.empty((n * n_phases, n_new))
    sines = np.empty((n * n_phases, n_new))
    out = covariance[b]
    fill_tables(first, n, means, high_new, low_new, n_phases, cosines, sines)
    gram_rows(
        np.int64(0), n_new, np.int64(1), n, first, weights, rates, x_new, cosines, sines, x_new, cosines, sines,
        n_phases, basis_new, basis_new, out,
    )  # fmt: skip
    for i in range(n_new):
        out[i, i] = 0.0
    n_points = solved.shape[1]
    subtract_squares(blas, n_new, n_points, solved.ctypes.data, n_points, out.ctypes.data, n_new)
    for i in range(n_new):
        out[i, i] = variance[b, i]
    mirror(out)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def predictions(
    start: int,
    stop: int,
    stages: int,
    part_start: int,
    part_stop: int,
    blas: Array,
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    x: Array,
    high: Array,
    low: Array,
    y: Array,
    noise: Array,
    jitter: float,
    n_phases: int,
    x_new: Array,
    high_new: Array,
    low_new: Array,
    basis: Array,
    basis_new: Array,
    full: bool,
    largest_noise: Array,
    matrix: Array,
    rates: Array,
    cosines: Array,
    sines: Array,
    z: Array,
    solved: Array,
    mean: Array,
    variance: Array,
    covariance: Array,
    info: Array,
    shift: Array,
) -> None:
    """Mixtures ``start : stop``, one after another on this thread, or one stage of one mixture.

    One entry for all stages, as in `_likelihood_loops.likelihoods`; `part_start` and `part_stop` bound the blocks
    of points.
    """
    for b in range(start, stop):
        if stages & FACTOR_STAGE:
            info[b], shift[b] = factor_mixture(
                b, blas, offsets, weights, means, scales, x, high, low, noise, jitter, n_phases, basis,
                rates, cosines, sines, matrix,
            )  # fmt: skip
        if info[b] != 0:
            continue
        if stages & VALUE_STAGE:
            whitened(blas, matrix, y, z)
        if stages & BLOCKS_STAGE:
            k0 = total_weight(offsets[b], offsets[b + 1] - offsets[b], weights)
            largest = k0 + largest_noise[b] + shift[b]
            for block in range(part_start, part_stop):
                predict_block(
                    b, block, blas, offsets, weights, means, x, x_new, high_new, low_new, n_phases, basis, basis_new,
                    largest, matrix, rates, cosines, sines, z, solved, block * POINTS if full else 0, mean, variance,
                )  # fmt: skip
        if stages & FINISH_STAGE:
            finish_covariance(
                b, blas, offsets, weights, means, x_new, high_new, low_new, n_phases, basis_new, rates, solved,
                variance, covariance,
            )  # fmt: skip
