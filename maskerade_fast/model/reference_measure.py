"""Reference measures q over mixtures: where nodes and candidates come from, with their density.

The evidence is Z = ∫ L dπ = ∫ f dq with f = L π/q (mathematics.md sections 6 and 9). The method above sees a
measure only through `ReferenceMeasure`: it never assumes that q is the prior, or that f is the likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .._checks import Array, generator, integer
from .draws import Draws
from .gmm import GMMBatch
from .latent import LatentMap
from .prior import Prior


class ReferenceMeasure(Protocol):
    """A probability measure q over mixtures of 1..N_max components that can be drawn from and scored.

    Subclasses give the first four members; `nodes` and `random_draws` follow from them.
    """

    @property
    def latent_map(self) -> LatentMap:
        """The one-to-one map from latent coordinates in which draws, searches and bounds live."""
        ...

    @property
    def size_probabilities(self) -> Array:
        """q(n) for n = 1..N_max; sums to 1."""
        ...

    def net(self, counts: int | Sequence[int], rng: Any = None) -> Draws:
        """Low-discrepancy draws: `counts` of every size (or one count per size), rounded up to powers of two.

        Ordered by size, as `Prior.sample`: the weight of a draw of size n is q(n)/m_n, and sizes of
        probability 0 get none.
        """
        ...

    def log_density_ratio(self, mixtures: GMMBatch) -> Array:
        """log π/q of each mixture, shape (B,): log f = log L + this. Labels are treated alike in π and q."""
        ...

    def nodes(self, total: int, rng: Any = None) -> Draws:
        """Quadrature nodes: at most `total` of them, shared among the sizes in powers of two.

        Every size starts from the largest power of two within its share ``total * q(n)``, at least 1; then
        the size with the largest weight a node is doubled (ties go to the largest size, which has most
        dimensions) as long as it fits.

        Parameters
        ----------
        total : int
            At least 1; exceeded only where it is less than the number of sizes.
        rng : numpy.random.Generator, int or None

        Returns
        -------
        Draws
            Weights sum to 1.
        """
        total = integer(total, "total", minimum=1)
        probabilities = self.size_probabilities
        counts = np.array([_floor_power_of_two(total * p) if p > 0.0 else 0 for p in probabilities])
        while True:
            weights = np.where(counts > 0, probabilities / np.maximum(counts, 1), -1.0)
            n = len(weights) - 1 - int(np.argmax(weights[::-1]))
            if counts.sum() + counts[n] > total:
                return self.net(counts.tolist(), rng)
            counts[n] *= 2

    def random_draws(self, count: int, rng: Any = None) -> Draws:
        """Exactly `count` draws from the measure in random order, each of weight 1/count.

        The numbers of each size are `count` q(n), rounded up or down at random with the right mean; within a
        size they are the first points of a scrambled low-discrepancy net. Initial designs, random
        acquisition and the starts of searches come from here.

        Parameters
        ----------
        count : int
            At least 1.
        rng : numpy.random.Generator, int or None
        """
        count = integer(count, "count", minimum=1)
        rng = generator(rng, "rng")
        probabilities = self.size_probabilities
        # one uniform shift for all sizes (systematic sampling); the last edge is exact, whatever the rounding
        edges = np.minimum(np.cumsum(probabilities) * count + rng.random(), count).astype(np.int64)
        edges[np.flatnonzero(probabilities)[-1] :] = count
        numbers = np.diff(edges, prepend=0)
        pool = self.net(np.maximum(numbers, 1).tolist(), rng)
        sizes = pool.latent.sizes
        firsts = np.searchsorted(sizes, sizes, side="left")
        rows = np.flatnonzero(np.arange(len(sizes)) - firsts < numbers[sizes - 1])
        rows = rng.permutation(rows)
        return Draws(pool.mixtures[rows], np.full(count, 1.0 / count), pool.latent[rows])


@dataclass(frozen=True, eq=False)
class PriorMeasure(ReferenceMeasure):
    """The prior as its own reference measure, as in the paper: f is the likelihood."""

    prior: Prior

    @property
    def latent_map(self) -> LatentMap:
        """See `ReferenceMeasure`."""
        return self.prior.latent_map

    @property
    def size_probabilities(self) -> Array:
        """See `ReferenceMeasure`."""
        return self.prior.size_probabilities

    def net(self, counts: int | Sequence[int], rng: Any = None) -> Draws:
        """See `ReferenceMeasure`."""
        return self.prior.sample(counts, rng)

    def log_density_ratio(self, mixtures: GMMBatch) -> Array:
        """Zeros, shape (B,)."""
        return np.zeros(len(mixtures))


def _floor_power_of_two(share: float) -> int:
    return 1 << max(int(share).bit_length() - 1, 0)
