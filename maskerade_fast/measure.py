"""Reference measures q over mixtures: where nodes and candidates come from, with their density.

The evidence is Z = ∫ L dπ = ∫ f dq with f = L π/q (docs/mathematics.md sections 6 and 9). The method above sees a
measure only through `ReferenceMeasure`: it never assumes that q is the prior, or that f is the likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import special

from ._checks import Array, generator, integer
from ._containers import short_repr
from .backends import single_threaded_blas
from .gmm import GMMBatch
from .latent import Latent, LatentMap, check_on_host
from .prior import Draws, Prior, draw_counts, require_draw_room, sobol_normal
from .relabelling import ALL_ORDERS, relabelled
from .student import StudentMixture


class ReferenceMeasure(Protocol):
    """A probability measure q over mixtures of 1..N_max components that can be drawn from and scored.

    Subclasses give the first four members; `draw` and `candidates` follow from them.
    """

    @property
    def latent_map(self) -> LatentMap:
        """The one-to-one map from latent coordinates in which draws, searches and bounds live."""
        ...

    @property
    def size_probabilities(self) -> Array:
        """q(n) for n = 1..N_max; sums to 1."""
        ...

    def sample(self, m: int | Sequence[int], rng: Any = None) -> Draws:
        """Low-discrepancy draws, `m` a size (or one count for each size) rounded up to powers of two.

        Ordered by size, as `Prior.sample`: the weight of a draw of size n is q(n)/m_n, and sizes of
        probability 0 get none.
        """
        ...

    def log_density_ratio(self, mixtures: GMMBatch) -> Array:
        """log π/q of each mixture, shape (B,): log f = log L + this. Labels are treated alike in π and q."""
        ...

    def draw(self, total: int, rng: Any = None) -> Draws:
        """Quadrature nodes: at most `total` of them, shared among the sizes in powers of two.

        Every size starts from the largest power of two within its share ``total * q(n)``, at least 1; then
        the size with the largest weight a node is doubled (of equals the largest size, which has most
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
                return self.sample(counts.tolist(), rng)
            counts[n] *= 2

    def candidates(self, count: int, rng: Any = None) -> Draws:
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
        wanted = np.diff(edges, prepend=0)
        pool = self.sample(np.maximum(wanted, 1).tolist(), rng)
        sizes = pool.latent.sizes
        firsts = np.searchsorted(sizes, sizes, side="left")
        rows = np.flatnonzero(np.arange(len(sizes)) - firsts < wanted[sizes - 1])
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

    def sample(self, m: int | Sequence[int], rng: Any = None) -> Draws:
        """See `ReferenceMeasure`."""
        return self.prior.sample(m, rng)

    def log_density_ratio(self, mixtures: GMMBatch) -> Array:
        """Zeros, shape (B,)."""
        return np.zeros(len(mixtures))


@dataclass(frozen=True, eq=False)
class MixtureMeasure(ReferenceMeasure):
    """For every size a `StudentMixture` over the latent coordinates, its labels averaged.

    Parameters
    ----------
    prior : Prior
    probabilities : array, shape (N_max,)
        q(n); > 0 wherever the prior's is.
    parts : tuple of N_max StudentMixture
        Of sizes beyond `relabelling.ALL_ORDERS` the prior.
    """

    prior: Prior
    probabilities: Array
    parts: tuple[StudentMixture, ...]

    __repr__ = short_repr

    @classmethod
    def of_prior(cls, prior: Prior) -> MixtureMeasure:
        """The prior itself."""
        sizes = range(1, prior.max_components + 1)
        parts = tuple(StudentMixture.prior(prior.latent_map.dimension(n)) for n in sizes)
        return cls(prior, prior.size_probabilities, parts)

    @classmethod
    def average(cls, measures: Sequence[MixtureMeasure], counts: Sequence[int]) -> MixtureMeasure:
        """The measure from which `counts` draws of each of several measures are a stratified sample."""
        shares = np.asarray(counts, dtype=np.float64) / sum(counts)
        by_size = shares[:, None] * np.array([m.size_probabilities for m in measures])
        total = by_size.sum(axis=0)
        weights = by_size / np.where(total > 0.0, total, 1.0)
        parts = tuple(StudentMixture.average([m.parts[n] for m in measures], weights[:, n]) for n in range(len(total)))
        return cls(measures[0].prior, total, parts)

    @property
    def size_probabilities(self) -> Array:
        """See `ReferenceMeasure`."""
        return self.probabilities

    @property
    def latent_map(self) -> LatentMap:
        """See `ReferenceMeasure`."""
        return self.prior.latent_map

    @single_threaded_blas()
    def sample(self, m: int | Sequence[int], rng: Any = None) -> Draws:
        """See `ReferenceMeasure`."""
        rng = generator(rng, "rng")
        counts = draw_counts(m, self.size_probabilities)
        require_draw_room(self.latent_map, counts)
        values = []
        for count, part in zip(counts, self.parts, strict=True):
            if count:
                values.append(part.transform(sobol_normal(part.dimension + 2, int(count), rng)).ravel())
        sizes = np.repeat(np.arange(1, len(counts) + 1), counts)
        latent = self.latent_map.latent(sizes, np.concatenate(values))
        weights = np.repeat(self.size_probabilities / np.maximum(counts, 1), counts)
        return Draws(self.latent_map.forward(latent), weights / weights.sum(), latent)

    def log_density_ratio(self, mixtures: GMMBatch) -> Array:
        """See `ReferenceMeasure`."""
        return self.match(mixtures)[0]

    @single_threaded_blas()
    def match(self, mixtures: GMMBatch) -> tuple[Array, Latent]:
        """log π/q of each mixture, and its latent coordinates in the order of components that q favours most."""
        check_on_host(mixtures)
        sizes = mixtures.n_components
        ratio = np.empty(len(mixtures))
        found = self.latent_map.latent(sizes, np.empty(0))
        values = np.empty(found.offsets[-1])
        for n in np.unique(sizes):
            rows = np.flatnonzero(sizes == n)
            part = self.parts[n - 1]
            with np.errstate(divide="ignore"):
                size_ratio = np.log(self.prior.size_probabilities[n - 1]) - np.log(self.size_probabilities[n - 1])
            if n > ALL_ORDERS:
                assert not len(part.shares), "the prior's part, which forgets the order as the prior does"
                ratio[rows] = size_ratio
                places = found.offsets[rows][:, None] + np.arange(part.dimension)
                values[places.ravel()] = self.latent_map.inverse(mixtures[rows]).values
                continue
            for some, xi in relabelled(self.latent_map, mixtures[rows], int(n)):
                count, n_orders, d = xi.shape
                terms = part.log_ratio(xi.reshape(-1, d)).reshape(count, n_orders)
                chosen = rows[some]
                ratio[chosen] = size_ratio - special.logsumexp(terms, axis=1) + special.gammaln(n + 1.0)
                best = xi[np.arange(count), terms.argmax(axis=1)]
                values[found.offsets[chosen][:, None] + np.arange(d)] = best
        return ratio, found.with_values(values)


def adapted_sizes(prior: Prior) -> Array:
    """Sizes that the prior has and for which a `MixtureMeasure` may have more than the prior."""
    sizes = np.flatnonzero(prior.size_probabilities) + 1
    return sizes[sizes <= ALL_ORDERS]


def _floor_power_of_two(share: float) -> int:
    return 1 << max(int(share).bit_length() - 1, 0)
