"""All orders of a mixture's components in latent coordinates (mathematics.md section 9, label switching).

Likelihood and prior ignore the order of components; densities of proposals in latent coordinates do not. A ratio of
densities of *mixtures* therefore averages over the orders.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from .._checks import Array
from .gmm import GMMBatch
from .latent import LatentMap

ALL_ORDERS = 6
"""Most components of a mixture whose orders are taken: of seven there would be 5040.

Some of the orders instead of all give a density that is too small by as much as n!. So only the prior, whose density
does not depend on the order, serves larger mixtures (`adaptive.mixture_measure`).
"""
_CHUNK_BYTES = 64 * 2**20


@lru_cache(maxsize=32)
def orders(n: int) -> Array:
    """All orders of n <= `ALL_ORDERS` components, (n!, n); the identity comes first."""
    assert n <= ALL_ORDERS
    return np.array(list(itertools.permutations(range(n))), dtype=np.int64)


def in_every_order(latent_map: LatentMap, mixtures: GMMBatch, n: int) -> Iterator[tuple[slice, Array]]:
    """Latent coordinates of `mixtures`, all of n components, in every one of their `orders`.

    Yields
    ------
    rows : slice
        Of `mixtures`; a few at a time, since there are n! orders.
    xi : array, shape (rows, P, d)
    """
    table = orders(n)
    d = latent_map.dimension(n)
    step = max(1, _CHUNK_BYTES // (8 * 4 * len(table) * d))
    for start in range(0, len(mixtures), step):
        part = mixtures[start : start + step]
        yield slice(start, start + len(part)), latent_map.in_orders(part, table)
