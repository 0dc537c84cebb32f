"""What predictions from dense factors and on grids have in common: chunks of test points, and covariances."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from ..._checks import Array
from ._loader import load
from ._mixtures import bound_of

# As in kernels/gp.cu
GP_BLOCK = 256
_TILE = 32


def tiles_of(n_new: int) -> int:
    """Tiles of so many test points, as the kernels take them."""
    return -(-n_new // _TILE)


def subtract_squares(whitened: Array, covariance: Array) -> None:
    """Subtract V'V from `covariance` (count, M, M), V = `whitened` (count, N, M)."""
    count, n_points, n_new = whitened.shape
    side = tiles_of(n_new)
    args = (whitened, covariance, np.int64(n_points), np.int64(n_new))
    load("gp", "gp_covariance_f64")((count * (side * (side + 1) // 2),), (GP_BLOCK,), args)


def chunk_of(
    n_mixtures: int, n_new: int, least: int, needed: Callable[[int], int], max_bytes: int | None, what: str
) -> tuple[int, int]:
    """Mixtures and test points of a chunk: as many of both as fit, and rather more points than mixtures.

    Parameters
    ----------
    least : int
        Test points that must fit beside one mixture.
    needed : callable
        ``needed(width)`` is the working memory of one mixture with so many test points, in bytes.
    what : str
        What needs it, for the MemoryError that says that one mixture and `least` points do not fit.
    """
    bound, account = bound_of(max_bytes)
    if n_mixtures and needed(least) > bound:
        raise MemoryError(
            f"working memory for {what} and {least} test points needs {needed(least)} bytes, more than {account}"
        )
    if needed(n_new) <= bound:
        return max(1, min(n_mixtures, bound // needed(n_new))), max(n_new, 1)
    return 1, max(least, bisect_right(range(n_new), bound, key=needed) - 1)
