"""A `Posterior` from what a run has learned: in standardised units first, then in the user's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from .._checks import Array
from ..data import Standardiser
from ..history import HistoryRow
from ..importance import Controlled
from ..integrals import Evidence
from ..posterior import Posterior
from ..problem import Problem
from ..surrogate import Surrogate


def from_quadrature(
    problem: Problem, surrogate: Surrogate, evidence: Evidence, log_likelihoods: Array, warnings: Iterable[str]
) -> Posterior:
    """From a surrogate of the problem's f and its integral; standardised units, and no history.

    Parameters
    ----------
    log_likelihoods : array, shape (h,)
        Of the surrogate's mixtures.
    warnings : iterable of str
        Of the run.
    """
    weights, factor = _pair_weights(surrogate, evidence)
    probabilities = np.zeros(problem.prior.max_components)
    probabilities[evidence.sizes - 1] = evidence.mean_by_size / evidence.mean
    node_mass = evidence.node_weights * evidence.node_values
    return Posterior(
        data_standardised=problem.data,
        standardiser=Standardiser.identity(problem.data),
        mixtures_standardised=surrogate.mixtures,
        log_likelihoods=log_likelihoods,
        log_evidence=evidence.log_evidence,
        log_evidence_sd=evidence.log_evidence_sd,
        component_probabilities=probabilities,
        pair_weights=weights,
        factor=factor,
        nodes_standardised=evidence.nodes,
        node_probabilities=node_mass / node_mass.sum(),
        warnings=tuple(warnings),
        history=(),
    )


def from_draws(
    problem: Problem, controlled: Controlled, log_likelihoods: Array, last: HistoryRow, warnings: Iterable[str]
) -> Posterior:
    """From draws with a surrogate as control variate; standardised units, `last` being all of the history.

    Predictions weigh the draws by f. As far as the surrogate explains f, and if it explains half or more, they take
    its pair weights instead; a mixture of both is positive semi-definite as both are.

    Parameters
    ----------
    log_likelihoods : array, shape (h,)
        Of the surrogate's mixtures.
    last : HistoryRow
        The row of this estimate, which no step of the run gave.
    warnings : iterable of str
        Of the run.
    """
    share = controlled.trusted
    surrogate, evidence = controlled.surrogate, controlled.evidence
    log_f = np.where(controlled.sampled, controlled.log_f, -np.inf)  # others may be too large for exp
    f = np.exp(log_f - log_f.max())
    f *= (1.0 - share) / f.sum()
    weights, factor = np.diag(f), np.diag(np.sqrt(f))
    nodes, node_mass = surrogate.mixtures, f
    if share > 0.0:
        pairs, pair_factor = _pair_weights(surrogate, evidence)
        weights = weights + share * pairs
        factor = np.hstack([factor, math.sqrt(share) * pair_factor])
        nodes, node_mass = evidence.nodes, evidence.node_weights * evidence.node_values
    return Posterior(
        data_standardised=problem.data,
        standardiser=Standardiser.identity(problem.data),
        mixtures_standardised=surrogate.mixtures,
        log_likelihoods=log_likelihoods,
        log_evidence=controlled.log_evidence,
        log_evidence_sd=controlled.log_evidence_sd,
        component_probabilities=controlled.by_size[: problem.prior.max_components],
        pair_weights=weights,
        factor=factor,
        nodes_standardised=nodes,
        node_probabilities=node_mass / node_mass.sum(),
        warnings=tuple(warnings),
        history=(last,),
    )


def in_the_users_units(
    post: Posterior, standardiser: Standardiser, history: tuple[HistoryRow, ...], warnings: Iterable[str]
) -> Posterior:
    """A posterior of standardised data as one of the data that the standardiser was made from.

    `history` is in the user's units already; it and `warnings` replace those of `post`.
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


def _pair_weights(surrogate: Surrogate, evidence: Evidence) -> tuple[Array, Array]:
    """W of docs/mathematics.md section 8, shape (h, h), scaled to add up to 1, and F with W = F F^T."""
    amplitude = np.exp(0.5 * (surrogate.log_values - surrogate.log_offset))
    weights = amplitude[:, None] * evidence.weights * amplitude
    scale = float(weights.sum())
    return weights / scale, amplitude[:, None] * evidence.factor / np.sqrt(scale)
