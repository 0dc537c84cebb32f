"""A reference measure with a mixture of t distributions in the latent coordinates of every mixture size.

mathematics.md section 9. q does not depend on the order of the components, so its density sums over all orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from .._checks import Array
from .._containers import short_repr
from ..backends import single_threaded_blas
from ..model.component_orders import ALL_ORDERS, in_every_order
from ..model.draws import Draws, draws_of_sizes
from ..model.gmm import GMMBatch
from ..model.latent import Latent, LatentMap, check_on_host
from ..model.nets import sobol_normal
from ..model.prior import Prior
from ..model.reference_measure import ReferenceMeasure
from .student import StudentMixture


@dataclass(frozen=True, eq=False)
class MixtureMeasure(ReferenceMeasure):
    """A `StudentMixture` over the latent coordinates of every size, averaged over the orders of the components.

    Parameters
    ----------
    prior : Prior
    probabilities : array, shape (N_max,)
        q(n); > 0 wherever the prior's is.
    parts : tuple of N_max StudentMixture
        For sizes beyond `component_orders.ALL_ORDERS` the prior.
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
    def net(self, counts: int | Sequence[int], rng: Any = None) -> Draws:
        """See `ReferenceMeasure`."""

        def coordinates(n: int, count: int, rng: np.random.Generator) -> Array:
            part = self.parts[n - 1]
            return part.transform(sobol_normal(part.dimension + 2, count, rng))

        return draws_of_sizes(counts, self.size_probabilities, self.latent_map, coordinates, rng)

    def log_density_ratio(self, mixtures: GMMBatch) -> Array:
        """See `ReferenceMeasure`."""
        return self.match(mixtures)[0]

    @single_threaded_blas()
    def match(self, mixtures: GMMBatch) -> tuple[Array, Latent]:
        """log π/q of each mixture, and its latent coordinates in the order of components with the largest density."""
        check_on_host(mixtures)
        sizes = mixtures.n_components
        ratio = np.empty(len(mixtures))
        latent = self.latent_map.latent(sizes, np.empty(0))
        values = np.empty(latent.offsets[-1])
        for n in np.unique(sizes):
            rows = np.flatnonzero(sizes == n)
            part = self.parts[n - 1]
            with np.errstate(divide="ignore"):
                size_ratio = np.log(self.prior.size_probabilities[n - 1]) - np.log(self.size_probabilities[n - 1])
            if n > ALL_ORDERS:
                assert not len(part.shares), "the prior, which does not depend on the order"
                ratio[rows] = size_ratio
                places = latent.offsets[rows][:, None] + np.arange(part.dimension)
                values[places.ravel()] = self.latent_map.inverse(mixtures[rows]).values
                continue
            for some, xi in in_every_order(self.latent_map, mixtures[rows], int(n)):
                count, n_orders, d = xi.shape
                terms = part.log_ratio(xi.reshape(-1, d)).reshape(count, n_orders)
                chosen = rows[some]
                ratio[chosen] = size_ratio - special.logsumexp(terms, axis=1) + special.gammaln(n + 1.0)
                best = xi[np.arange(count), terms.argmax(axis=1)]
                values[latent.offsets[chosen][:, None] + np.arange(d)] = best
        return ratio, latent.with_values(values)


def adapted_sizes(prior: Prior) -> Array:
    """Sizes of the prior for which a `MixtureMeasure` may differ from the prior."""
    sizes = np.flatnonzero(prior.size_probabilities) + 1
    return sizes[sizes <= ALL_ORDERS]
