"""Mixtures of multivariate t distributions over latent coordinates: proposal densities of adaptive importance sampling.

mathematics.md section 9. Each mixture size has one such density over its d coordinates, which are standard normal
under the prior; a share of the prior itself keeps the ratio of prior to density bounded. A kernel here is one t
distribution of a kernel density estimate, not a covariance and not CUDA code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from .._checks import Array
from .._containers import cached_property, short_repr
from ..backends import host_loops
from ..model.gmm import GMMBatch

FREEDOM = 5.0
"""Degrees of freedom: tails heavier than a posterior's; where this is normal, they cost little."""

LEAST_PRIOR = 0.1
"""Smallest share of the prior."""
BANDWIDTHS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
MOST_KERNELS = 60
WIDE_SHARE, WIDER = 0.5, 1.5
"""Each group of kernels gives this share to one t distribution, wider than the group's spread by this factor."""


@dataclass(frozen=True, eq=False)
class StudentMixture:
    """A share of N(0, I) and K multivariate t distributions with `FREEDOM` degrees of freedom.

    Parameters
    ----------
    shares : array, shape (K,)
        Probabilities of the t distributions; together with `prior_share` they sum to 1.
    centres : array, shape (K, d)
    factors : array, shape (K, d, d)
        Lower Cholesky factors of the scale matrices.
    prior_share : float
        In (0, 1].
    """

    shares: Array
    centres: Array
    factors: Array
    prior_share: float

    __repr__ = short_repr

    @classmethod
    def prior(cls, dimension: int) -> StudentMixture:
        """The prior alone."""
        return cls(np.empty(0), np.empty((0, dimension)), np.empty((0, dimension, dimension)), 1.0)

    @classmethod
    def average(cls, parts: Sequence[StudentMixture], weights: Array) -> StudentMixture:
        """The mixture of mixtures with these `weights`, which sum to 1."""
        return cls(
            np.concatenate([w * part.shares for w, part in zip(weights, parts, strict=True)]),
            np.concatenate([part.centres for part in parts]),
            np.concatenate([part.factors for part in parts]),
            float(sum(w * part.prior_share for w, part in zip(weights, parts, strict=True))),
        )

    @property
    def dimension(self) -> int:
        """d."""
        return int(self.centres.shape[1])

    @cached_property
    def _white(self) -> tuple[Array, Array, Array, Array]:
        """Edges of the runs of kernels with one factor, their origins, whitening and whitened centres.

        Distances are in units of sqrt(`FREEDOM`), as in t densities.
        """
        new = (self.factors[1:] != self.factors[:-1]).any(axis=(1, 2))
        runs = np.concatenate([[0], np.flatnonzero(new) + 1, [len(self.factors)]])
        origins = self.centres[runs[:-1]]
        whitening = np.linalg.inv(self.factors[runs[:-1]]) / math.sqrt(FREEDOM)
        of_kernel = np.repeat(np.arange(len(origins)), np.diff(runs))
        centres = np.einsum("kij,kj->ki", whitening[of_kernel], self.centres - origins[of_kernel])
        return runs, origins, whitening, centres

    @cached_property
    def _log_constants(self) -> Array:
        """Log of each t density at its centre times its share, less that of N(0, I) at 0; (K,)."""
        d = self.dimension
        constant = (
            special.gammaln(0.5 * (FREEDOM + d)) - special.gammaln(0.5 * FREEDOM) - 0.5 * d * math.log(FREEDOM / 2)
        )
        determinants = np.log(np.diagonal(self.factors, axis1=1, axis2=2)).sum(axis=1)
        with np.errstate(divide="ignore"):
            return np.asarray(constant - determinants + np.log(self.shares))

    def log_terms(self, xi: Array) -> Array:
        """Log of each t density times its share, less that of N(0, I): (K, B) at `xi` (B, d)."""
        runs, origins, whitening, centres = self._white
        terms = np.empty((len(self.shares), len(xi)))
        for r, (first, last) in enumerate(itertools.pairwise(runs)):
            z = (xi - origins[r]) @ whitening[r].T
            for k in range(first, last):
                gaps = z - centres[k]
                terms[k] = np.einsum("bd,bd->b", gaps, gaps)
        np.log1p(terms, out=terms)
        terms *= -0.5 * (FREEDOM + self.dimension)
        terms += self._log_constants[:, None]
        terms += 0.5 * np.einsum("bd,bd->b", xi, xi)
        return terms

    def log_ratio(self, xi: Array, *, left_out: Array | None = None) -> Array:
        """Log of the ratio of the density to that of N(0, I), shape (B,), at `xi` (B, d).

        A t density is a power of half an integer: no kernel and draw need an exponential or a logarithm.

        Parameters
        ----------
        left_out : array of int, shape (K,), optional
            For each t distribution the draw at whose density it is left out, or -1.
        """
        prior = math.log(self.prior_share)
        if not len(self.shares):
            return np.full(len(xi), prior)
        top = float(self._log_constants.max())
        none = np.full(len(self.shares), -1)
        sums = host_loops().student_sums(
            xi, *self._white, np.exp(self._log_constants - top), int(FREEDOM) + self.dimension,
            none if left_out is None else left_out,
        )  # fmt: skip
        with np.errstate(divide="ignore"):
            terms = np.log(sums) + top + 0.5 * np.einsum("bd,bd->b", xi, xi)
        for b in np.flatnonzero(sums < np.finfo(float).tiny):  # powers underflow far off in many dimensions
            here = self.log_terms(xi[b : b + 1])[:, 0]
            terms[b] = special.logsumexp(here if left_out is None else np.where(left_out == b, -np.inf, here))
        return np.asarray(np.logaddexp(prior, terms))

    def transform(self, normal: Array) -> Array:
        """Draws (B, d) from standard normal points (B, d + 2), whose last two coordinates choose part and spread."""
        d = self.dimension
        xi: Array = normal[:, :d].copy()
        edges = np.cumsum(np.concatenate([[self.prior_share], self.shares]))
        chosen = np.minimum(np.searchsorted(edges / edges[-1], special.ndtr(normal[:, d])), len(self.shares)) - 1
        chi2 = 2.0 * special.gammaincinv(0.5 * FREEDOM, special.ndtr(normal[:, d + 1]))
        spread = np.sqrt(FREEDOM / np.maximum(chi2, 1e-12))
        for k in range(len(self.shares)):
            rows = chosen == k
            xi[rows] = self.centres[k] + (xi[rows] * spread[rows, None]) @ self.factors[k].T
        return xi

    def refitted(self, xi: Array, weights: Array) -> StudentMixture:
        """The mixture of kernels around weighted draws that predicts each of them best from the others.

        Each t distribution of this mixture collects a group of draws. A group has its own centre and spread; with few
        effective draws they stay near those of the t distribution.

        Parameters
        ----------
        xi : array, shape (B, d)
        weights : array, shape (B,)
            Sum to 1.

        Notes
        -----
        West (1993): kernels of bandwidth h round points shrunk towards the centre by sqrt(1 - h^2) keep the first two
        moments; h = 1 is one t distribution per group. h maximises the weighted log density with each draw's own kernel
        left out.
        """
        if len(self.shares) == 0:
            return self
        terms = self.log_terms(xi)
        prior_part = float((self.prior_share * np.exp(-self.log_ratio(xi))) @ weights)
        prior_share = max(LEAST_PRIOR, prior_part)
        group_of_draw = np.argmax(terms, axis=0)
        parts = zip(self.centres, self.factors, strict=True)
        groups = [_Group.of(xi, weights * (group_of_draw == k), *part) for k, part in enumerate(parts)]
        chosen = np.argsort(-weights, kind="stable")[:MOST_KERNELS]
        chosen = chosen[weights[chosen] > 0.0]
        best, best_score = self, -np.inf
        for h in BANDWIDTHS:
            candidate, centre_draws = _kernels(groups, xi, np.sqrt(weights), group_of_draw, chosen, h, prior_share)
            score = float(weights @ candidate.log_ratio(xi, left_out=centre_draws))
            if score > best_score:
                best, best_score = candidate, score
        return best


@dataclass(frozen=True, eq=False)
class _Group:
    """Weight, centre and spread of the draws around a mode."""

    mass: float
    centre: Array
    factor: Array

    @classmethod
    def of(cls, xi: Array, weights: Array, centre: Array, factor: Array) -> _Group:
        """Moments of weighted draws, shrunk towards `centre` and `factor` where few draws are effective."""
        mass = float(weights.sum())
        if mass <= 0.0:
            return cls(0.0, centre, factor)
        d = len(centre)
        w = weights / mass
        effective = 1.0 / float(w @ w)
        trust = effective / (effective + d)
        moved = centre + trust * (w @ xi - centre)
        gaps = xi - moved
        scale = trust * (gaps * w[:, None]).T @ gaps + (1.0 - trust) * factor @ factor.T
        return cls(mass, moved, np.linalg.cholesky(scale + 1e-10 * np.trace(scale) / d * np.eye(d)))


def _kernels(
    groups: list[_Group], xi: Array, weights: Array, group_of_draw: Array, chosen: Array, h: float, prior_share: float
) -> tuple[StudentMixture, Array]:
    """Kernels of bandwidth h, and for each the draw that it is centred on, or -1 for a group's centre."""
    shares, centres, factors, centre_draws = [], [], [], []
    total = sum(group.mass for group in groups) or 1.0
    for k, group in enumerate(groups):
        rows = chosen[group_of_draw[chosen] == k] if h < 1.0 else chosen[:0]
        share = (1.0 - prior_share) * (0.9 * group.mass / total + 0.1 / len(groups))
        shares.append(np.array([share * (WIDE_SHARE if len(rows) else 1.0)]))
        centres.append(group.centre[None])
        factors.append(WIDER * group.factor[None])
        centre_draws.append(np.array([-1]))
        if len(rows):
            shares.append((1.0 - WIDE_SHARE) * share * weights[rows] / weights[rows].sum())
            centres.append(group.centre + math.sqrt(1.0 - h * h) * (xi[rows] - group.centre))
            factors.append(np.repeat(h * group.factor[None], len(rows), axis=0))
            centre_draws.append(rows)
    mixture = StudentMixture(np.concatenate(shares), np.concatenate(centres), np.concatenate(factors), prior_share)
    return mixture, np.concatenate(centre_draws)


def warm_up(g: GMMBatch, X: Array, y: Array) -> None:
    """Compile the loops of this module, on the host whatever `g` is: see `run.warm_up`."""
    StudentMixture(np.array([0.5]), np.zeros((1, 1)), np.ones((1, 1, 1)), 0.5).log_ratio(np.zeros((1, 1)))
