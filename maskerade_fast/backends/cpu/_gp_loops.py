"""Compiled loops of predictions; `gp.py` explains the blocks of test points."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import types

from ..._checks import Array
from ._addresses import by_address
from ._arguments import (
    GRAM_ENTRIES,
    MIXTURES,
    NEW_POINTS,
    GramEntries,
    Mixtures,
    NewPoints,
    Problem,
    Workspace,
    f2,
    f3,
    i8,
)
from ._covariance_loops import call_factor, factor_address, whitened
from ._gram_loops import call_rows, call_tables, gram_entries, mirror, total_weight
from ._jit import inlined, inner, loop
from ._lapack import solve_rows, solve_vector, subtract_squares
from ._likelihood_loops import BLOCKS_STAGE, FACTOR_STAGE, FINISH_STAGE, VALUE_STAGE
from ._math import EPS, dot

POINTS = 128  # test points in a block


@inlined
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
        variance = 0.0 if -variance <= 8.0 * n * EPS * largest * total * total else math.nan
    return variance


@inlined
def predict_block(
    b: int,
    block: int,
    problem: Problem,
    new: NewPoints,
    largest: float,
    work: Workspace,
    solved: Array,
    first_row: int,
    entries: GramEntries,
    mean: Array,
    variance: Array,
) -> None:
    """Means and latent variances of one block of test points; its V' goes to `solved` from `first_row` on."""
    mixtures, x, n_phases, matrix = problem.mixtures, problem.points.x, problem.n_phases, work.matrix
    n_points = x.shape[1]
    start = block * POINTS
    stop = min(start + POINTS, new.x.shape[1])
    first = mixtures.offsets[b]
    n = mixtures.offsets[b + 1] - first
    rows = solved[first_row : first_row + stop - start]
    block_x = np.ascontiguousarray(new.x[:, start:stop])
    block_high = np.ascontiguousarray(new.high[:, start:stop])
    block_low = np.ascontiguousarray(new.low[:, start:stop])
    block_basis = np.ascontiguousarray(new.basis[:, start:stop])
    cos_new = np.empty((n * n_phases, stop - start))
    sin_new = np.empty((n * n_phases, stop - start))
    scratch = np.empty(n_points)
    call_tables(entries.fill_tables, (first, n, mixtures.means, block_high, block_low, n_phases, cos_new, sin_new))
    sides = (mixtures.weights, work.rates, block_x, cos_new, sin_new, x, work.cosines, work.sines)
    call_rows(entries.gram_rows, (0, stop - start, 0, n, first, *sides, n_phases, block_basis, problem.basis, rows))
    blas = entries.blas
    solve_rows(blas, False, n_points, stop - start, matrix.ctypes.data, n_points, rows.ctypes.data, n_points)
    prior = total_weight(first, n, mixtures.weights)
    for r in range(stop - start):
        mean[b, start + r] = dot(rows[r], work.vector, n_points)
        own = prior
        for c in range(new.basis.shape[0]):
            own += new.basis[c, start + r] * new.basis[c, start + r]
        variance[b, start + r] = latent_variance(blas, own, rows[r], matrix, largest, scratch)


@inner
def finish_covariance(
    b: int,
    mixtures: Mixtures,
    n_phases: int,
    new: NewPoints,
    rates: Array,
    solved: Array,
    entries: GramEntries,
    variance: Array,
    covariance: Array,
) -> None:
    """K(X*, X*) - V'V, symmetric, with the diagonal that `latent_variance` gives."""
    n_new = new.x.shape[1]
    first = mixtures.offsets[b]
    n = mixtures.offsets[b + 1] - first
    cosines = np.empty((n * n_phases, n_new))
    sines = np.empty((n * n_phases, n_new))
    out = covariance[b]
    call_tables(entries.fill_tables, (first, n, mixtures.means, new.high, new.low, n_phases, cosines, sines))
    sides = (mixtures.weights, rates, new.x, cosines, sines, new.x, cosines, sines)
    call_rows(entries.gram_rows, (0, n_new, 1, n, first, *sides, n_phases, new.basis, new.basis, out))
    for i in range(n_new):
        out[i, i] = 0.0
    n_points = solved.shape[1]
    subtract_squares(entries.blas, n_new, n_points, solved.ctypes.data, n_points, out.ctypes.data, n_new)
    for i in range(n_new):
        out[i, i] = variance[b, i]
    mirror(out)


covariance_address, call_covariance = by_address(
    types.void(i8, MIXTURES, i8, NEW_POINTS, f2, f2, GRAM_ENTRIES, f2, f3), finish_covariance
)


class PredictionEntries(NamedTuple):
    """Addresses of what `predictions` calls; that of `finish_covariance` is 0 where there is no covariance."""

    gram: GramEntries
    factor_mixture: int
    finish_covariance: int


class PredictionResults(NamedTuple):
    """Results of a batch; `covariance` may be empty."""

    mean: Array  # (B, M)
    variance: Array  # (B, M)
    covariance: Array  # (B, M, M)
    info: Array  # (B,) int32


@cache
def prediction_entries(full: bool) -> PredictionEntries:
    """Addresses in this process; functions that are not compiled yet are."""
    return PredictionEntries(gram_entries(), factor_address(), covariance_address() if full else 0)


@loop
def predictions(
    start: int,
    stop: int,
    stages: int,
    part_start: int,
    part_stop: int,
    problem: Problem,
    new: NewPoints,
    full: bool,
    largest_noise: Array,
    work: Workspace,
    solved: Array,
    entries: PredictionEntries,
    results: PredictionResults,
    added: Array,
) -> None:
    """Mixtures ``start : stop``, one after another on this thread, or one stage of one mixture.

    `part_start` and `part_stop` bound the blocks of points.
    """
    mixtures, mean, variance, info = problem.mixtures, results.mean, results.variance, results.info
    for b in range(start, stop):
        if stages & FACTOR_STAGE:
            info[b], added[b] = call_factor(entries.factor_mixture, (b, problem, work, entries.gram))
        if info[b] != 0:
            continue
        if stages & VALUE_STAGE:
            whitened(entries.gram.blas, work.matrix, problem.y, work.vector)
        if stages & BLOCKS_STAGE:
            k0 = total_weight(mixtures.offsets[b], mixtures.offsets[b + 1] - mixtures.offsets[b], mixtures.weights)
            largest = k0 + largest_noise[b] + added[b]
            for block in range(part_start, part_stop):
                first_row = block * POINTS if full else 0
                predict_block(b, block, problem, new, largest, work, solved, first_row, entries.gram, mean, variance)
        if stages & FINISH_STAGE:
            call_covariance(
                entries.finish_covariance,
                (b, mixtures, problem.n_phases, new, work.rates, solved, entries.gram, variance, results.covariance),
            )
