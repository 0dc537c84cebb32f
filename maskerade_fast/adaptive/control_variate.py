"""Evidence from draws of a settled measure, with the surrogate as control variate (mathematics.md section 9).

Draws θ_i from q give the unbiased mean of f(θ_i) = L π/q. The integral of a surrogate m of f can be computed, so with m
trained without θ_i the mean of f(θ_i) + β (∫ m dq - m(θ_i)) is unbiased too, and varies less the more m explains of f.
The surrogate models either L, which is smooth between mixtures where data are few, or f, which is flat where data are
many; the one with the smaller error is used.

The error is estimated from replicates: batches of draws with a scramble each, and nodes in independent nets.
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
from ..quadrature.evidence import Evidence, integrate, log_sd
from ..quadrature.surrogate import Surrogate
from .mixture_measure import MixtureMeasure

NETS = 8
"""Number of independent nets of nodes."""
MOST_REPLICATES = 12
"""Most replicates that an error is estimated from; more are joined."""
FEW_EFFECTIVE = 10.0
"""An estimate from fewer effective draws is called uncertain."""
# Outliers are cut at this times the mean of f times the root of the number of draws
_MOST_TIMES_ROOT = 2.0
# Factor for standard errors: a few replicates underestimate them now and then, with skewed weights more often
_CAUTION = 2.0
# Share of the variance of f from which a surrogate counts in the weights of predictions
_TRUSTED = 0.5


@dataclass(frozen=True, eq=False)
class ControlledEstimate:
    """Estimates from draws and surrogate together.

    Attributes
    ----------
    log_evidence, log_evidence_sd : float
    by_size : array, shape (N_max,)
        Posterior probabilities of the sizes.
    explained : float
        Share of the variance of f over the draws that the surrogate removes.
    surrogate, evidence : Surrogate, Evidence
        The surrogate of L or of f, whichever has the smaller error, and its integral over the nodes.
    log_f : array, shape (h,)
        log f of every mixture of the surrogate.
    sampled : array of bool, shape (h,)
        True for draws from q.
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
        """Share of the surrogate in the weights of predictions, 0 to 1."""
        return self.explained if self.explained >= _TRUSTED else 0.0


def plain_estimate(log_f: Array, replicates: Array) -> tuple[float, float]:
    """Log of the mean of f over draws, and the standard error of the logarithm from replicates.

    Parameters
    ----------
    log_f : array, shape (M,); minus infinity for f = 0
    replicates : array of int, shape (M,)
        Number of the replicate of each draw.
    """
    top = float(log_f.max())
    if top == -math.inf:
        return -math.inf, math.inf
    f = np.exp(log_f - top)
    mean = float(f.mean())
    return math.log(mean) + top, log_sd(standard_error(f, replicates) / mean)


def effective_size(log_f: Array) -> float:
    """(sum f)^2 / sum f^2, between 1 and the number of draws; 1 where all f are 0."""
    top = float(log_f.max())
    if top == -math.inf:
        return 1.0
    f = np.exp(log_f - top)
    return float(f.sum() ** 2 / (f @ f))


def cut_outliers(log_f: Array) -> tuple[Array, float]:
    """log f of draws with single outliers cut, and by how much that lowers the log of their mean.

    A draw where q is far too small can weigh more than all others together. With f cut at 2 √M times its mean the
    estimate is still consistent (Ionides 2008) and varies far less. Where fewer than ten draws would be effective even
    then, an outlier cannot be told from the others, and nothing is cut.
    """
    top = float(log_f.max())
    if top == -math.inf:
        return log_f, 0.0
    log_mean = float(special.logsumexp(log_f)) - math.log(len(log_f))
    cut = np.minimum(log_f, log_mean + math.log(_MOST_TIMES_ROOT) + 0.5 * math.log(len(log_f)))
    if effective_size(cut) < FEW_EFFECTIVE:
        return log_f, 0.0
    return cut, log_mean - (float(special.logsumexp(cut)) - math.log(len(cut)))


def standard_error(values: Array, replicates: Array) -> float:
    """Standard error of the mean of values, from the spread of the means of replicates.

    Fewer than four replicates are ignored: the spread of the values themselves then counts. More than 12 are joined to
    12, whose means are closer to normal.
    """
    labels = np.unique(replicates, return_inverse=True)[1]
    count = int(labels.max()) + 1
    if count < 4:
        return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.inf
    labels = labels * min(count, MOST_REPLICATES) // count
    sizes = np.bincount(labels)
    means = np.bincount(labels, values) / sizes
    shares = sizes / len(values)
    gaps = means - float(values.mean())
    k = len(sizes)
    spread = k / (k - 1) * float((shares * shares) @ (gaps * gaps))
    # two standard errors then cover as often as two of a normal distribution
    return math.sqrt(spread) * float(special.stdtrit(k - 1, special.ndtr(2.0)) / 2.0)


@single_threaded_blas()
def controlled_estimate(
    measure: MixtureMeasure,
    mixtures: GMMBatch,
    log_likelihoods: Array,
    replicates: Array,
    nets: Sequence[Draws],
    metric: Metric,
    power: int,
    device: str,
) -> ControlledEstimate:
    """Estimate the evidence from draws and a surrogate together.

    Parameters
    ----------
    measure : MixtureMeasure
        q, settled before the draws were made.
    mixtures : GMMBatch of h mixtures, on the host
    log_likelihoods : array, shape (h,)
    replicates : array of int, shape (h,)
        The replicate of each draw from q; -1 for other mixtures, which only train the surrogate.
    nets : sequence of Draws from q
        Independent nets of nodes.
    metric, power
        Of the surrogate.
    device : str
        Where its hyper-kernels are computed.
    """
    ratio = measure.log_density_ratio(mixtures)
    sampled = replicates >= 0
    log_f = log_likelihoods + ratio
    log_f[sampled], cut = cut_outliers(log_f[sampled])
    log_likelihoods = log_f - ratio
    placed = mixtures.to(device)
    of_likelihood = _Prediction.of(
        Surrogate.fit(placed, log_likelihoods, metric=metric, power=power), np.exp(ratio), replicates
    )
    of_f = _Prediction.of(Surrogate.fit(placed, log_f, metric=metric, power=power), np.ones(len(ratio)), replicates)
    chosen = of_likelihood if of_likelihood.relative_error < of_f.relative_error else of_f
    nodes = concat([net.mixtures for net in nets])
    placed_nodes = nodes.to(device)
    v = np.concatenate([net.weights for net in nets])
    if chosen is of_likelihood:
        v = v * np.exp(measure.log_density_ratio(nodes))
    best = _Fit.of(chosen, placed_nodes, v, np.repeat(np.arange(len(nets)), [len(net) for net in nets]))
    plain, plain_sd = plain_estimate(log_f[sampled], replicates[sampled])
    # two estimates of one number: as far as their difference exceeds its standard error, one of them is wrong
    disagreement = max(0.0, abs(best.log_mean - plain) - 2.0 * math.hypot(plain_sd, best.relative_error))
    log_evidence, sd = best.log_mean, math.hypot(log_sd(_CAUTION * best.relative_error), disagreement)
    if not best.relative_error < 1.0:  # so few draws that the control's noise can make the mean negative
        log_evidence, sd = plain, log_sd(_CAUTION * plain_sd)
    return ControlledEstimate(
        log_evidence=log_evidence,
        log_evidence_sd=math.hypot(sd, cut),
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
    """Leave-one-out predictions of f at the draws by a surrogate; in units of exp of its log_offset."""

    surrogate: Surrogate
    rows: Array  # of the draws among the h mixtures
    replicates: Array  # (M,)
    f: Array  # (M,)
    predicted: Array  # (M,)
    shift: Array  # (M,), z at a draw less its prediction
    coefficient: float
    explained: float

    @classmethod
    def of(cls, surrogate: Surrogate, scale: Array, replicates: Array) -> _Prediction:
        """Predict at the draws; f is `scale` (h,) times what the surrogate models."""
        rows = np.flatnonzero(replicates >= 0)
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
        return cls(surrogate, rows, replicates[rows], f, predicted, shift, coefficient, explained)

    @property
    def relative_error(self) -> float:
        """Relative error of the mean of f, without the error of the surrogate's integral."""
        mean = float(self.f.mean())
        error = standard_error(self.f - self.coefficient * self.predicted, self.replicates)
        return error / mean if mean > 0.0 else math.inf


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
        """Integrate the surrogate over nets of nodes, without each draw in turn."""
        surrogate, shift = prediction.surrogate, prediction.shift
        white = surrogate.whiten(surrogate.kernel(surrogate.prepared, surrogate.prepare(nodes)))
        mu = white.T @ surrogate.whitened
        influence = surrogate.solve_transposed(white)[prediction.rows]  # (M, m): of a unit at a draw on z at a node
        by_net = np.zeros((len(mu), int(net_of_node[-1]) + 1))
        by_net[np.arange(len(mu)), net_of_node] = node_weights
        whole = surrogate.epsilon * by_net.sum(axis=0) + 0.5 * (mu * mu) @ by_net
        linear = influence @ (by_net * mu[:, None])
        np.square(influence, out=influence)
        integrals = whole - shift[:, None] * linear + 0.5 * shift[:, None] ** 2 * (influence @ by_net)

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
            error=math.hypot(standard_error(terms, prediction.replicates), coefficient * node_error),
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
