"""Builds the `Posterior` of a run: in standardised units first, then in the user's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._checks import Array
from ..adaptive.control_variate import ControlledEstimate
from ..model.gmm import GMMBatch
from ..model.units import Standardiser
from ..posterior.history import HistoryRow
from ..posterior.posterior import Posterior
from ..quadrature.evidence import Evidence
from ..quadrature.problem import Problem
from ..quadrature.surrogate import Surrogate


class _Weights(NamedTuple):
    """Weights of mixtures in predictions and bands."""

    pairs: Array  # W, (h, h), of sum 1
    factor: Array  # F with W = F F^T
    nodes: GMMBatch  # m mixtures that bands rest on
    node_mass: Array  # (m,), up to a factor


def from_quadrature(
    problem: Problem, surrogate: Surrogate, evidence: Evidence, log_likelihoods: Array, warnings: Iterable[str]
) -> Posterior:
    """Posterior from a surrogate of the problem's f and its integral, in standardised units and without a history.

    Parameters
    ----------
    log_likelihoods : array, shape (h,)
        Of the surrogate's mixtures.
    warnings : iterable of str
        Of the run.
    """
    by_size = np.zeros(problem.prior.max_components)
    by_size[evidence.sizes - 1] = evidence.mean_by_size / evidence.mean
    return _posterior(
        problem, surrogate.mixtures, log_likelihoods, evidence, by_size, _by_surrogate(surrogate, evidence), warnings
    )


def from_draws(
    problem: Problem, controlled: ControlledEstimate, log_likelihoods: Array, last: HistoryRow, warnings: Iterable[str]
) -> Posterior:
    """Posterior from draws with a surrogate as control variate, in standardised units; its history is `last`.

    Predictions weight the draws by f. A surrogate that explains half of f or more replaces these weights by its pair
    weights, in the proportion that it explains; a mixture of both is positive semi-definite because both are.

    Parameters
    ----------
    log_likelihoods : array, shape (h,)
        Of the surrogate's mixtures.
    last : HistoryRow
        The row of this estimate, which no step of the run yielded.
    warnings : iterable of str
        Of the run.
    """
    share, mixtures = controlled.trusted, controlled.surrogate.mixtures
    log_f = np.where(controlled.sampled, controlled.log_f, -np.inf)  # others may be too large for exp
    f = np.exp(log_f - log_f.max())
    f *= (1.0 - share) / f.sum()
    weights = _Weights(np.diag(f), np.diag(np.sqrt(f)), mixtures, f)
    if share > 0.0:
        own = _by_surrogate(controlled.surrogate, controlled.evidence)
        factor = np.hstack([weights.factor, math.sqrt(share) * own.factor])
        weights = own._replace(pairs=weights.pairs + share * own.pairs, factor=factor)
    by_size = controlled.by_size[: problem.prior.max_components]
    return _posterior(problem, mixtures, log_likelihoods, controlled, by_size, weights, warnings, (last,))


def _by_surrogate(surrogate: Surrogate, evidence: Evidence) -> _Weights:
    """W of mathematics.md section 8."""
    amplitude = np.exp(0.5 * (surrogate.log_values - surrogate.log_offset))
    pairs = amplitude[:, None] * evidence.weights * amplitude
    scale = float(pairs.sum())
    factor = amplitude[:, None] * evidence.factor / np.sqrt(scale)
    return _Weights(pairs / scale, factor, evidence.nodes, evidence.node_weights * evidence.node_values)


def _posterior(
    problem: Problem,
    mixtures: GMMBatch,
    log_likelihoods: Array,
    estimate: Evidence | ControlledEstimate,
    component_probabilities: Array,
    weights: _Weights,
    warnings: Iterable[str],
    history: tuple[HistoryRow, ...] = (),
) -> Posterior:
    return Posterior(
        data_standardised=problem.data,
        standardiser=Standardiser.identity(problem.data),
        mixtures_standardised=mixtures,
        log_likelihoods=log_likelihoods,
        log_evidence=estimate.log_evidence,
        log_evidence_sd=estimate.log_evidence_sd,
        component_probabilities=component_probabilities,
        pair_weights=weights.pairs,
        factor=weights.factor,
        nodes_standardised=weights.nodes,
        node_probabilities=weights.node_mass / weights.node_mass.sum(),
        warnings=tuple(warnings),
        history=history,
    )


def in_the_users_units(
    post: Posterior, standardiser: Standardiser, history: tuple[HistoryRow, ...], warnings: Iterable[str]
) -> Posterior:
    """Convert a posterior of standardised data to the units of the data that the standardiser was made from.

    `history`, in the user's units, and `warnings` replace those of `post`.
    """
    shift = standardiser.log_density_shift(post.data_standardised.n_points)
    return replace(
        post,
        standardiser=standardiser,
        log_likelihoods=post.log_likelihoods + shift,
        log_evidence=post.log_evidence + shift,
        history=history,
        warnings=tuple(warnings),
    )
