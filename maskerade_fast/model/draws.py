"""Low-discrepancy draws of mixtures of every size, with their weights: what the prior and other measures share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._checks import Array, generator, integer
from .._containers import container
from .._memory import require_bytes
from .gmm import GMMBatch
from .latent import Latent, LatentMap
from .nets import BITS, power_of_two


@container
class Draws:
    """Mixtures drawn from a measure, with weights that sum to 1.

    Parameters
    ----------
    mixtures : GMMBatch of B mixtures
    weights : array, shape (B,)
        v of mathematics.md section 4: ∫ f dq is Σ_s v_s f(θ_s).
    latent : Latent
        Coordinates of the mixtures under the measure's latent map.
    """

    mixtures: GMMBatch
    weights: Array
    latent: Latent

    def __len__(self) -> int:
        return len(self.weights)


def draws_of_sizes(
    m: int | Sequence[int],
    probabilities: Array,
    latent_map: LatentMap,
    coordinates: Callable[[int, int, np.random.Generator], Array],
    rng: Any,
) -> Draws:
    """Draws of every size: a net of its own for each, of the weight p(n)/m_n a draw.

    Parameters
    ----------
    m, rng : as for `Prior.sample`
    probabilities : array, shape (N_max,)
        p(n).
    coordinates : callable
        ``coordinates(n, count, rng)`` are latent coordinates (count, d) of `count` draws of size n.
    """
    rng = generator(rng, "rng")
    counts = _draw_counts(m, probabilities)
    _require_room(latent_map, counts)
    values = [coordinates(n, int(count), rng).ravel() for n, count in enumerate(counts, start=1) if count]
    latent = latent_map.latent(np.repeat(np.arange(1, len(counts) + 1), counts), np.concatenate(values))
    weights = np.repeat(probabilities / np.maximum(counts, 1), counts)
    return Draws(latent_map.forward(latent), weights / weights.sum(), latent)


def _draw_counts(m: int | Sequence[int], probabilities: Array) -> Array:
    """Draws of each size, powers of two; 0 for sizes of probability 0."""
    if isinstance(m, int | np.integer):
        least = [integer(m, "m", minimum=1)] * len(probabilities)
    else:
        if not hasattr(m, "__len__"):
            raise TypeError(f"m: {m!r}, expected an integer or one for each of {len(probabilities)} sizes")
        if len(m) != len(probabilities):
            raise ValueError(f"m: {len(m)} counts, expected an integer or one for each of {len(probabilities)} sizes")
        least = [
            integer(k, f"m[{i}]", minimum=1 if p > 0.0 else 0)
            for i, (k, p) in enumerate(zip(m, probabilities, strict=True))
        ]
    most = max(least)
    if most > 1 << BITS:
        raise ValueError(f"m: {most} draws of a size, expected at most {1 << BITS}, the points of a Sobol net")
    return np.array([power_of_two(k) if p > 0.0 else 0 for k, p in zip(least, probabilities, strict=True)])


def _require_room(latent_map: LatentMap, counts: Array) -> None:
    """MemoryError for more draws, `counts` of each size, than half of the free memory has room for."""
    needed = sum(int(count) * latent_map.mixture_bytes(n) for n, count in enumerate(counts, start=1))
    require_bytes(needed, f"m: {int(counts.sum())} draws in all")
