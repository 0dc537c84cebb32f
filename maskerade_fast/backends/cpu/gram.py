"""Gram matrices of spectral mixtures by angle addition (mathematics.md section 1).

With phases a_i = 2 pi m.(x_i - x_0), cos(a_i - a_j) = cos a_i cos a_j + sin a_i sin a_j: sine and cosine are
needed once a point and component, and a pair costs one exponential and a few multiply-adds. Phases are kept
in turns and to twice the working precision until they are reduced, so frequencies times large inputs cost no
digits; lags are plain differences of the inputs.

x_0 has the least value of each axis, and no product has the weight on one side of a pair alone: inputs shifted exactly
give the same bits, rows in another order the permuted matrix. (The root of the weight on both sides
is as symmetric, but its roundings let 15 of 4000 singular matrices of repeated rows pass as regular, instead of 2.)

The per-axis phase, a product of cosines over the axes, is the same with D phases instead of one.
"""

from __future__ import annotations

import numpy as np

from ..._checks import Array
from ..._memory import require_room
from ._gram_loops import ROWS, SPLIT_SIZE, finish_triangles, gram_entries, gram_items
from ._jit import repeated
from ._loop_arrays import least_values, loop_array, loop_batch, points_by_axis
from ._parallel import n_threads, parallel_for

__all__ = ["gram"]


def gram(
    offsets: Array,
    weights: Array,
    means: Array,
    scales: Array,
    X: Array,
    Y: Array | None,
    noise: Array,
    *,
    per_axis: bool,
) -> Array:
    """Tabulate phases once per component and point; threads share blocks of rows."""
    triangle = int(Y is None)
    other = X if Y is None else Y
    n_mixtures, n_points, n_columns = len(offsets) - 1, len(X), len(other)
    require_room((n_mixtures, n_points, n_columns), "K: Gram matrices")
    out = np.empty((n_mixtures, n_points, n_columns))
    dtype = np.result_type(weights, X, other)
    if out.size == 0:
        return out.astype(dtype)
    origin = least_values(X)
    x = points_by_axis(X, origin)
    y = x if triangle else points_by_axis(other, origin)
    n_phases = X.shape[1] if per_axis else 1
    mixtures, noise, entries = loop_batch(offsets, weights, means, scales), loop_array(noise), gram_entries()
    # A mixture's tables serve all its rows, unless there are fewer matrices than threads.
    whole = n_mixtures >= n_threads() or n_points < SPLIT_SIZE
    rows = n_points if whole else ROWS
    per_matrix = -(-n_points // rows)
    items = n_mixtures * per_matrix
    block = max(1, items // (16 * n_threads())) if whole else 1

    fill, no_basis = repeated(gram_items), np.empty((0, 0))

    def kernel(start: int, stop: int) -> None:
        fill(start, stop, rows, entries, mixtures, x, y, triangle, n_phases, no_basis, out)

    parallel_for(kernel, items, block)
    if triangle:
        parallel_for(
            lambda start, stop: finish_triangles(start, stop, mixtures.offsets, mixtures.weights, noise, out),
            n_mixtures,
            block,
        )
    return out.astype(dtype, copy=False)
