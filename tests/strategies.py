"""Hypothesis strategies: ragged mixtures and batches of them.

Numbers lie on a bounded grid: shrunk examples stay readable, and a failure is a fault of the code rather than
of a number near the end of the floating-point range (those have tests of their own). Zero weights, zero
scales, negative means and coinciding atoms all occur.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from maskerade_fast.model.gmm import GMMBatch

Array = NDArray[Any]

dimensions = st.integers(1, 4)


def arrays(shape: tuple[int, ...], low: int, high: int, unit: float = 0.125) -> st.SearchStrategy[Array]:
    """float64 arrays of multiples of `unit` from ``low * unit`` to ``high * unit``."""
    size = int(np.prod(shape))
    numbers = st.lists(st.integers(low, high), min_size=size, max_size=size)
    return numbers.map(lambda values: np.array(values, dtype=np.float64).reshape(shape) * unit)


@st.composite
def mixtures(
    draw: st.DrawFn, D: int | None = None, max_components: int = 5, unit_mass: bool = True
) -> tuple[Array, Array, Array]:
    """(weights (n,), means (n, D), scales (n, D)): weights add up to 1, or anything above 0."""
    D = draw(dimensions) if D is None else D
    n = draw(st.integers(1, max_components))
    weights = draw(arrays((n,), 0, 16))
    weights[draw(st.integers(0, n - 1))] += 1.0
    if unit_mass:
        weights /= weights.sum()
    return weights, draw(arrays((n, D), -32, 32)), draw(arrays((n, D), 0, 16))


@st.composite
def batches(
    draw: st.DrawFn,
    D: int | None = None,
    max_mixtures: int = 5,
    max_components: int = 5,
    unit_mass: bool = True,
    noise: bool = False,
) -> GMMBatch:
    """Ragged batches of 1 to `max_mixtures`; `noise`: with a noise variance above 0 for each."""
    D = draw(dimensions) if D is None else D
    members = st.lists(mixtures(D, max_components, unit_mass), min_size=1, max_size=max_mixtures)
    parts = draw(members)
    return GMMBatch.from_list(parts, draw(arrays((len(parts),), 1, 64, 2.0**-6)) if noise else None)
