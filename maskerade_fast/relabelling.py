"""All orders of a mixture's components in latent coordinates (docs/mathematics.md section 9, label switching).

Likelihood and prior ignore the order of components; densities of proposals in latent coordinates do not. A ratio of
densities of *mixtures* therefore averages over the orders.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from ._checks import Array
from .gmm import GMMBatch
from .latent import LatentMap

ALL_ORDERS = 6
"""Components up to which every order is taken; beyond, the order of the means and its single exchanges."""
_CHUNK_BYTES = 64 * 2**20


@lru_cache(maxsize=32)
def orders(n: int) -> Array:
    """Orders of n components, (P, n); the identity comes first."""
    if n <= ALL_ORDERS:
        return np.array(list(itertools.permutations(range(n))), dtype=np.int64)
    rows = [np.arange(n)]
    for i, j in itertools.combinations(range(n), 2):
        row = np.arange(n)
        row[[i, j]] = j, i
        rows.append(row)
    return np.array(rows, dtype=np.int64)


def relabelled(latent_map: LatentMap, mixtures: GMMBatch, n: int) -> Iterator[tuple[slice, Array]]:
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
        if n > ALL_ORDERS:
            part = _sorted(part, n)
        yield slice(start, start + len(part)), latent_map.in_orders(part, table)


def _sorted(mixtures: GMMBatch, n: int) -> GMMBatch:
    """Components in the order of their first means."""
    first = np.argsort(mixtures.means[:, 0].reshape(-1, n), axis=1, kind="stable")
    rows = (first + n * np.arange(len(mixtures))[:, None]).ravel()
    weights, means, scales = mixtures.weights[rows], mixtures.means[rows], mixtures.scales[rows]
    return GMMBatch.trusted(mixtures.offsets, weights, means, scales, mixtures.noise_variances)
