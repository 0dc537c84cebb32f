"""Where the latent coordinates of mixtures lie in one flat array; `latent` has their order and their meaning."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .._checks import Array


@dataclass(frozen=True, eq=False)
class Layout:
    """Where everything lies: indices into the flat coordinates, and the (B, n_max) table of sticks."""

    component_offsets: Array  # (B + 1,)
    owner: Array  # (J,)
    stick: Array  # (B, n_max); 0 in the padding
    sticks_left: Array  # (B, n_max): n - j, at least 1
    is_stick: Array  # (B, n_max)
    is_component: Array  # (B, n_max)
    means: Array  # (J, D)
    scales: Array  # (J, D)
    extra: Array  # (B,): first coordinate after the scales


@lru_cache(maxsize=16)  # a search needs the same sizes thousands of times
def layout_of(sizes_bytes: bytes, n_dims: int, n_extra: int) -> Layout:
    """The layout of mixtures of these sizes, given as the bytes of an int64 array, which the cache can hash."""
    sizes = np.frombuffer(sizes_bytes, dtype=np.int64)
    starts = cumulated(sizes * (1 + 2 * n_dims) - 1 + n_extra)[:-1]
    component_offsets = cumulated(sizes)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    column = np.arange(sizes.max(initial=1))
    is_component = column < sizes[:, None]
    is_stick = column < sizes[:, None] - 1
    local = np.arange(component_offsets[-1]) - component_offsets[owner]
    means = ((starts + sizes - 1)[owner] + local * n_dims)[:, None] + np.arange(n_dims)
    return Layout(
        component_offsets=component_offsets,
        owner=owner,
        stick=np.where(is_stick, starts[:, None] + column, 0),
        sticks_left=np.maximum(sizes[:, None] - 1 - column, 1).astype(np.float64),
        is_stick=is_stick,
        is_component=is_component,
        means=means,
        scales=means + (sizes * n_dims)[owner][:, None],
        extra=starts + sizes * (1 + 2 * n_dims) - 1,
    )


@lru_cache(maxsize=32)
def breaks_of_orders(orders_bytes: bytes, n: int, n_dims: int, n_extra: int) -> tuple[Array, Array, Array]:
    """The U different sticks of orders of n components, and where each order finds its coordinates.

    Returns
    -------
    broken : (U,)
        The component broken off.
    behind : (n, U)
        1 for those behind it, else 0.
    places : (P, d)
        Of the coordinates of each order in a row of all breaks and then the coordinates in the mixtures' own order.
    """
    orders = np.frombuffer(orders_bytes, dtype=np.int64).reshape(-1, n)
    sticks: dict[tuple[int, frozenset[int]], int] = {}
    of_order = [
        [sticks.setdefault((row[j], frozenset(row[j + 1 :])), len(sticks)) for j in range(n - 1)]
        for row in orders.tolist()
    ]
    behind = np.zeros((n, len(sticks)))
    for (_, others), u in sticks.items():
        behind[list(others), u] = 1.0
    broken = np.array([component for component, _ in sticks], dtype=np.int64)
    first = len(sticks) + n - 1  # of the means
    of_means = first + (orders[:, :, None] * n_dims + np.arange(n_dims)).reshape(len(orders), -1)
    of_extra = np.broadcast_to(first + 2 * n * n_dims + np.arange(n_extra), (len(orders), n_extra))
    of_weights = np.array(of_order, dtype=np.int64).reshape(len(orders), n - 1)
    return broken, behind, np.concatenate([of_weights, of_means, of_means + n * n_dims, of_extra], axis=1)


def cumulated(counts: Array) -> Array:
    """Offsets (B + 1,) of segments of these lengths (B,)."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
