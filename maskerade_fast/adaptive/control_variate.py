"""Evidence from draws of a settled measure, with the surrogate as control variate (mathematics.md section 9).

Draws θ_i from q give the unbiased mean of f(θ_i) = L π/q. A surrogate m of f, trained without θ_i, has a known
integral, so the mean of f(θ_i) + β (∫ m dq - m(θ_i)) is unbiased as well, and varies less as far as m explains f. The
surrogate models either L itself, smooth between mixtures where data are few, or f, flat where data are many; the one
that leaves the smaller error is taken.

The error comes from replicates: batches of draws with a scramble each, and nodes in independent nets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from .._checks import Array
from .._containers import short_repr
from ..backends import single_threaded_blas
from ..model.draws import Draws
from ..model.gmm import GMMBatch, concat
from ..ops.metric import Metric
from ..quadrature.evidence import Evidence, integrate
from ..quadrature.surrogate import Surrogate
from .mixture_measure import MixtureMeasure

NETS = 8
"""Independent nets of nodes."""
MOST_GROUPS = 12
FEW_EFFECTIVE = 10.0
"""Draws below which an estimate is called uncertain."""
# Times the mean of f and the root of the number of draws, where outliers are cut
_MOST_TIMES_ROOT = 2.0
# Standard errors from a handful of replicates are too small now and then, and skewed weights make them so more often
_CAUTION = 2.0
# A surrogate has a say in the weights of predictions if it explains as much of f
_TRUSTED = 0.5


@dataclass(frozen=True, eq=False)
class Controlled:
    """What draws and surrogate say together.

    Attributes
    ----------
    log_evidence, log_evidence_sd : float
    by_size : array, shape (N_max,)
        Posterior probabilities of the sizes.
    explained : float
        Share of the variance of f over the draws that the surrogate removes.
    surrogate, evidence : Surrogate, Evidence
        The surrogate that was taken, of L or of f, and its integral over the nodes.
    log_f : array, shape (h,)
        Of every mixture the surrogate has, under q; `sampled` says which are draws from q.
    sampled : array of bool, shape (h,)
    effective_sample_size : float
        Of the draws.
    """

    log_evidence: float
    log_evidence_sd: float
    by_size: Array
    explained: float
    surrogate: Surrogate
    evidence: Evidence
    log_f: Array
    sampled: Array
    effective_sample_size: float

    __repr__ = short_repr

    @property
    def trusted(self) -> float:
        """The surrogate's say in the weights of predictions, 0 to 1."""
        return self.explained if self.explained >= _TRUSTED else 0.0


def plain_estimate(log_f: Array, groups: Array) -> tuple[float, float]:
    """Log of the mean of f over draws, and the standard error of the logarithm from replicates.

    Parameters
    ----------
    log_f : array, shape (M,); minus infinity for f = 0
    groups : array of int, shape (M,)
        Which replicate each draw belongs to.
    """
    top = float(log_f.max())
    if top == -math.inf:
        return -math.inf, math.inf
    f = np.exp(log_f - top)
    mean = float(f.mean())
    return math.log(mean) + top, log_sd(standard_error(f, groups) / mean)


def effective_size(log_f: Array) -> float:
    """(sum f)^2 / sum f^2, between 1 and the number of draws; 1 where all f are 0."""
    top = float(log_f.max())
    if top == -math.inf:
        return 1.0
    f = np.exp(log_f - top)
    return float(f.sum() ** 2 / (f @ f))


def truncated(log_f: Array) -> tuple[Array, float]:
    """log f of draws with single outliers cut, and what that takes from the log of their mean.

    A draw where q is far too small can weigh more than all others together. Cut at 2 √M times the mean of f the mean
    is still consistent (Ionides 2008), and varies far less. Where fewer than ten draws would be effective even so,
    there is no telling what is an outlier, and nothing is cut.
    """
    top = float(log_f.max())
    if top == -math.inf:
        return log_f, 0.0
    log_mean = float(special.logsumexp(log_f)) - math.log(len(log_f))
    cut = np.minimum(log_f, log_mean + math.log(_MOST_TIMES_ROOT) + 0.5 * math.log(len(log_f)))
    if effective_size(cut) < FEW_EFFECTIVE:
        return log_f, 0.0
    return cut, log_mean - (float(special.logsumexp(cut)) - math.log(len(cut)))


def standard_error(values: Array, groups: Array) -> float:
    """Of the mean of values, from the spread of the means of replicates; from that of the values if there are few.

    Replicates are joined to at most 12, so that their means are about normal.
    """
    labels = np.unique(groups, return_inverse=True)[1]
    count = int(labels.max()) + 1
    if count < 4:
        return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.inf
    labels = labels * min(count, MOST_GROUPS) // count
    sizes = np.bincount(labels)
    means = np.bincount(labels, values) / sizes
    shares = sizes / len(values)
    gaps = means - float(values.mean())
    k = len(sizes)
    spread = k / (k - 1) * float((shares * shares) @ (gaps * gaps))
    return math.sqrt(spread) * _student_factor(k - 1)


def _student_factor(freedom: int) -> float:
    """What makes two standard errors hold as often as with known variance."""
    return float(special.stdtrit(freedom, special.ndtr(2.0)) / 2.0)


def log_sd(relative: float) -> float:
    """Standard deviation of the log of a log-normal number, from its relative standard deviation."""
    return math.sqrt(math.log1p(min(relative, 1e150) ** 2))


@single_threaded_blas()
def controlled_estimate(
    measure: MixtureMeasure,
    mixtures: GMMBatch,
    log_likelihoods: Array,
    groups: Array,
    nets: Sequence[Draws],
    metric: Metric,
    power: int,
    device: str,
) -> Controlled:
    """Evidence by draws and surrogate together.

    Parameters
    ----------
    measure : MixtureMeasure
        q, settled before the draws were made.
    mixtures : GMMBatch of h mixtures, on the host
        All that were evaluated.
    log_likelihoods : array, shape (h,)
    groups : array of int, shape (h,)
        The replicate of each draw from q; -1 for mixtures that are no draws from it, which only train.
    nets : sequence of Draws from q
        Independent nets of nodes.
    metric, power
        Of the surrogate.
    device : str
        Where its hyper-kernels are computed.
    """
    ratio = measure.log_density_ratio(mixtures)
    sampled = groups >= 0
    log_f = log_likelihoods + ratio
    log_f[sampled], cut = truncated(log_f[sampled])
    log_likelihoods = log_f - ratio
    placed = mixtures.to(device)
    of_likelihood = _Prediction.of(
        Surrogate.fit(placed, log_likelihoods, metric=metric, power=power), np.exp(ratio), groups
    )
    of_f = _Prediction.of(Surrogate.fit(placed, log_f, metric=metric, power=power), np.ones(len(ratio)), groups)
    chosen = of_likelihood if of_likelihood.relative_error < of_f.relative_error else of_f
    nodes = concat([net.mixtures for net in nets])
    placed_nodes = nodes.to(device)
    v = np.concatenate([net.weights for net in nets])
    if chosen is of_likelihood:
        v = v * np.exp(measure.log_density_ratio(nodes))
    best = _Fit.of(chosen, placed_nodes, v, np.repeat(np.arange(len(nets)), [len(net) for net in nets]))
    plain, plain_sd = plain_estimate(log_f[sampled], groups[sampled])
    # two estimates of one number: what their difference exceeds its own standard error by is an error of either
    disagreement = max(0.0, abs(best.log_mean - plain) - 2.0 * math.hypot(plain_sd, best.relative_error))
    found = best.log_mean, math.hypot(log_sd(_CAUTION * best.relative_error), disagreement)
    if not best.relative_error < 1.0:  # so few draws that the control's noise can make the mean negative
        found = plain, log_sd(_CAUTION * plain_sd)
    return Controlled(
        log_evidence=found[0],
        log_evidence_sd=math.hypot(found[1], cut),
        by_size=best.by_size(mixtures.n_components, nodes.n_components, measure.prior.max_components),
        explained=chosen.explained,
        surrogate=chosen.surrogate,
        evidence=integrate(chosen.surrogate, placed_nodes, best.node_weights / len(nets)),
        log_f=log_f,
        sampled=sampled,
        effective_sample_size=effective_size(log_f[sampled]),
    )


@dataclass(frozen=True, eq=False)
class _Prediction:
    """What a surrogate says of f at each draw without having seen it; in units of exp of its log_offset."""

    surrogate: Surrogate
    rows: Array  # of the draws among the h mixtures
    groups: Array  # (M,)
    f: Array  # (M,)
    predicted: Array  # (M,)
    shift: Array  # (M,), z at a draw less its prediction
    coefficient: float
    explained: float

    @classmethod
    def of(cls, surrogate: Surrogate, scale: Array, groups: Array) -> _Prediction:
        """`scale` (h,) turns what the surrogate models into f."""
        rows = np.flatnonzero(groups >= 0)
        alpha = surrogate.solve_transposed(surrogate.whitened)
        inverse = surrogate.whiten(np.eye(len(alpha)))
        shift = (alpha / np.einsum("ij,ij->j", inverse, inverse))[rows]
        f = np.exp(surrogate.log_values[rows] - surrogate.log_offset) * scale[rows]
        predicted = (surrogate.epsilon + 0.5 * (surrogate.z[rows] - shift) ** 2) * scale[rows]
        variance, spread = float(predicted.var()), float(f.var())
        slope = float(np.mean((f - f.mean()) * (predicted - predicted.mean()))) / variance if variance > 0.0 else 0.0
        coefficient = min(max(slope, 0.0), 1.0)
        left = float((f - coefficient * predicted).var())
        explained = 1.0 - left / spread if spread > 0.0 else 1.0
        return cls(surrogate, rows, groups[rows], f, predicted, shift, coefficient, explained)

    @property
    def relative_error(self) -> float:
        """Of the mean of f, were the integral of the surrogate known."""
        mean = float(self.f.mean())
        return (
            standard_error(self.f - self.coefficient * self.predicted, self.groups) / mean if mean > 0.0 else math.inf
        )


@dataclass(frozen=True, eq=False)
class _Fit:
    """One surrogate as control variate; numbers in units of exp of its log_offset."""

    prediction: _Prediction
    node_weights: Array  # (m,), of all nets: each net by itself integrates
    node_values: Array  # (m,)
    integrals: Array  # (M, nets), of the surrogate without each draw
    mean: float
    error: float

    @property
    def log_mean(self) -> float:
        return math.log(self.mean) + self.prediction.surrogate.log_offset if self.mean > 0.0 else -math.inf

    @property
    def relative_error(self) -> float:
        return self.error / self.mean if self.mean > 0.0 else math.inf

    @classmethod
    def of(cls, prediction: _Prediction, nodes: GMMBatch, node_weights: Array, net_of_node: Array) -> _Fit:
        """With the integral of the surrogate over nets of nodes."""
        surrogate, shift = prediction.surrogate, prediction.shift
        white = surrogate.whiten(surrogate.kernel(surrogate.prepared, surrogate.prepare(nodes)))
        mu = white.T @ surrogate.whitened
        pulls = surrogate.solve_transposed(white)[prediction.rows]  # (M, m): what a unit at a draw adds at a node
        by_net = np.zeros((len(mu), int(net_of_node[-1]) + 1))
        by_net[np.arange(len(mu)), net_of_node] = node_weights
        whole = surrogate.epsilon * by_net.sum(axis=0) + 0.5 * (mu * mu) @ by_net
        linear = pulls @ (by_net * mu[:, None])
        np.square(pulls, out=pulls)
        integrals = whole - shift[:, None] * linear + 0.5 * shift[:, None] ** 2 * (pulls @ by_net)

        coefficient = prediction.coefficient
        terms = prediction.f + coefficient * (integrals.mean(axis=1) - prediction.predicted)
        nets = by_net.shape[1]
        node_error = float(integrals.mean(axis=0).std(ddof=1)) / math.sqrt(nets) if nets > 1 else 0.0
        return cls(
            prediction=prediction,
            node_weights=node_weights,
            node_values=surrogate.epsilon + 0.5 * mu * mu,
            integrals=integrals,
            mean=float(terms.mean()),
            error=math.hypot(standard_error(terms, prediction.groups), coefficient * node_error),
        )

    def by_size(self, sizes: Array, node_sizes: Array, n_max: int) -> Array:
        """Share of each size in the estimate, (n_max,)."""
        draws, nets = self.prediction, self.integrals.shape[1]
        residual = (draws.f - draws.coefficient * draws.predicted) / len(draws.f)
        parts: Array = np.bincount(sizes[draws.rows] - 1, residual, n_max)
        parts = parts + draws.coefficient * np.bincount(
            node_sizes - 1, self.node_weights * self.node_values / nets, n_max
        )
        parts = np.maximum(parts, 0.0)
        return np.asarray(parts / parts.sum()) if parts.any() else np.full(n_max, 1.0 / n_max)
