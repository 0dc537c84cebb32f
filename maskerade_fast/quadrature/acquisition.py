"""Where to evaluate next: information about the evidence, or uncertainty of f (mathematics.md section 7).

Both are smooth functions of candidate mixtures with analytic gradients, maximised by L-BFGS-B in the latent coordinates
of a reference measure. Candidates of all sizes belong to one batch.

With ``u`` the node weights times the surrogate's mean there, the covariance of Z with the surrogate at candidates B is
``c = kappa(B, S) u - kappa(B, Theta) K^-1 kappa(Theta, S) u``: one product of ``kappa(B, [S, Theta])`` with the
coefficients that `integrate` keeps. The cotangent of that product is a rank-one matrix, so a gradient costs about as
much as a value.

Hyper-kernels of whole pools are computed where the surrogate's mixtures live. Latent coordinates stay on the host: the
search is SciPy's, and the map to mixtures rests on special functions that CuPy lacks. So does a step of the search
unless its pairs of components are many: on a card a value and its gradient take some 130 launches and copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from .._checks import Array, one_of
from .._containers import cached_property
from .._optimize import maximise
from ..backends import single_threaded_blas
from ..errors import OptimisationError
from ..model.gmm import GMMBatch, GMMGradient, concat
from ..model.latent import Latent, LatentMap
from ..model.reference_measure import ReferenceMeasure
from .evidence import Evidence
from .surrogate import Surrogate

ACQUISITIONS = ("information", "uncertainty", "random")

# Squared correlations reach 1 only by rounding; beyond this the information would be infinite.
_MOST_EXPLAINED = 1.0 - 1e-12
# Far from all observations the mean underflows; its logarithm has no useful slope there.
_LEAST_MEAN = 1e-100
# Variances of z below this fraction of the output scale are rounding: they occur only where the jitter is 0.
_ROUNDING = 1e-13
# Latent coordinates are standard normal under the prior: the search stays where it has any mass.
_LATENT_BOUND = 5.0

# Pairs of components in an evaluation of the search up to which the host computes it: 2 ms by 8 threads. No measure of
# this machine's speed has a say, since the last digits differ between host and card.
_HOST_PAIRS = 2**20


@single_threaded_blas()
def mutual_information(
    surrogate: Surrogate, evidence: Evidence, candidates: GMMBatch, batch: bool = False
) -> Array | float:
    """Information, in nats, that the surrogate's value at `candidates` carries about the evidence.

    Parameters
    ----------
    surrogate, evidence
        The surrogate and ``integrate(surrogate, nodes, node_weights)``.
    candidates : GMMBatch of b mixtures
        Where the surrogate's mixtures live.
    batch : bool
        True: one number for all together; False: shape (b,), each by itself.

    Raises
    ------
    ValueError
        With `batch`, if the candidates' covariance is not positive definite.
    """
    if batch:
        try:
            return _Information(surrogate, evidence).value_and_pull(candidates)[0] if len(candidates) else 0.0
        except np.linalg.LinAlgError:
            raise ValueError(
                "candidates: their covariance is not positive definite; raise the surrogate's `jitter`, or leave twins "
                "out"
            ) from None
    covariance = surrogate.kernel_matvec(candidates, evidence.support, evidence.coefficients)
    _, variance = surrogate.mean_and_variance(candidates)
    # Without jitter an observation has variance 0, up to rounding: asking there again tells nothing.
    known = variance <= _ROUNDING * surrogate.outputscale
    return _information(np.where(known, 0.0, covariance**2 / np.where(known, 1.0, variance)), evidence.variance)


@single_threaded_blas()
def uncertainty(surrogate: Surrogate, candidates: GMMBatch) -> Array:
    """Variance of f at each candidate under the linearised surrogate: mean^2 times variance of z, shape (b,)."""
    mean, variance = surrogate.mean_and_variance(candidates)
    return mean**2 * variance


@dataclass(frozen=True)
class Proposal:
    """A batch to evaluate, on the host, and the starts of the search that were dropped or ended abnormally."""

    mixtures: GMMBatch
    n_dropped: int = 0
    n_abnormal: int = 0


@single_threaded_blas()
def propose(
    acquisition: str,
    surrogate: Surrogate,
    evidence: Evidence,
    measure: ReferenceMeasure,
    size: int,
    rng: np.random.Generator,
    *,
    pool: int = 1024,
    n_starts: int = 4,
    max_iterations: int = 30,
) -> Proposal:
    """The next `size` mixtures to evaluate.

    Parameters
    ----------
    acquisition : {"information", "uncertainty", "random"}
    surrogate, evidence
        As for `mutual_information`.
    measure : ReferenceMeasure
        Where candidates come from, and the latent coordinates in which they are improved.
    size : int
        Mixtures wanted.
    rng : Generator
    pool : int
        Low-discrepancy candidates, of all sizes together, from which batches are picked greedily.
    n_starts : int
        Batches (information) or candidates (uncertainty) from which L-BFGS-B starts; the best end is taken.
    max_iterations : int
        Of each L-BFGS-B run.
    """
    one_of(acquisition, "acquisition", ACQUISITIONS)
    if acquisition == "random":
        return Proposal(measure.random_draws(size, rng).mixtures)
    draws = measure.random_draws(max(pool, size), rng)
    mixtures = draws.mixtures
    if acquisition == "uncertainty":
        return _propose_uncertain(surrogate, measure.latent_map, mixtures, size, n_starts, max_iterations)
    return _propose_informative(surrogate, evidence, measure.latent_map, mixtures, size, rng, n_starts, max_iterations)


def _propose_informative(
    surrogate: Surrogate,
    evidence: Evidence,
    latent_map: LatentMap,
    pool: GMMBatch,
    size: int,
    rng: np.random.Generator,
    n_starts: int,
    max_iterations: int,
) -> Proposal:
    """Greedy batches from the whole pool and from random halves of it, each improved jointly."""
    everything = np.arange(len(pool))
    half = max(size, len(pool) // 2)
    subsets = [everything] + [rng.permutation(len(pool))[:half] for _ in range(n_starts - 1)]
    greedy = _GreedyInformation(surrogate, evidence, pool)
    information = _Information(surrogate, evidence)
    n_support = len(evidence.support.batch.weights)
    best: tuple[float, GMMBatch] = (-np.inf, pool[everything[:size]])
    dropped = abnormal = 0
    for subset in subsets:
        start = pool[greedy.pick(subset, size)]
        steps = information.on_host if len(start.weights) * n_support <= _HOST_PAIRS else information
        value, mixtures, lost, odd = _ascend(steps, latent_map, [start], max_iterations)
        dropped, abnormal = dropped + lost, abnormal + odd
        if value > best[0]:
            best = value, mixtures
    return Proposal(best[1], dropped, abnormal)


def _propose_uncertain(
    surrogate: Surrogate, latent_map: LatentMap, pool: GMMBatch, size: int, n_starts: int, max_iterations: int
) -> Proposal:
    """One after another: the most uncertain point given those already chosen, whose values are not needed for that."""
    chosen: list[GMMBatch] = []
    dropped = abnormal = 0
    placed = surrogate.beside(pool)
    most = int(pool.n_components.max())
    for _ in range(size):
        objective = _Uncertainty(surrogate, chosen)
        scores = objective.scores(placed)
        starts = [pool[[i]] for i in np.argsort(-scores, kind="stable")[:n_starts]]
        if most * objective.n_support <= _HOST_PAIRS:
            objective = objective.on_host
        _, mixtures, lost, odd = _ascend(objective, latent_map, starts, max_iterations)
        dropped, abnormal = dropped + lost, abnormal + odd
        chosen.append(mixtures)
    return Proposal(concat(chosen), dropped, abnormal)


def _ascend(
    objective: _Information | _Uncertainty, latent_map: LatentMap, starts: list[GMMBatch], max_iterations: int
) -> tuple[float, GMMBatch, int, int]:
    """Best end of L-BFGS-B from `starts`; if every run failed, the best start. Sizes stay as they are in a run."""
    best: tuple[float, GMMBatch] = (-np.inf, starts[0])
    dropped = abnormal = 0
    for start in starts:
        template = latent_map.inverse(start)

        def value_and_gradient(values: Array, template: Latent = template) -> tuple[float, Array]:
            latent = Latent(template.sizes, template.offsets, values)
            mixtures = latent_map.forward(latent)
            value, gradient = objective.value_and_gradient(objective.surrogate.beside(mixtures))
            return value, latent_map.pullback(latent, gradient)

        point = np.clip(template.values, -_LATENT_BOUND, _LATENT_BOUND)
        try:
            end = maximise(
                value_and_gradient,
                point[None, :],
                lower=np.full_like(point, -_LATENT_BOUND),
                upper=np.full_like(point, _LATENT_BOUND),
                max_iterations=max_iterations,
            )
        except OptimisationError:
            dropped += 1
            continue
        abnormal += end.n_abnormal
        if end.value > best[0]:
            best = end.value, latent_map.forward(Latent(template.sizes, template.offsets, end.x))
    return *best, dropped, abnormal


class _Information:
    """Information of a whole batch about Z, with its gradient.

    With ``a = Sigma^-1 c`` and ``rho^2 = c.a / V``: ``d rho^2 = (2 a.dc - a dSigma a) / V``, and
    ``a dSigma a = a dkappa_BB a - 2 a dkappa_BT (K^-1 kappa_TB a)``. So the cotangent of kappa(B, [S, Theta]) is the
    outer product of a with one row.
    """

    def __init__(self, surrogate: Surrogate, evidence: Evidence) -> None:
        self.surrogate, self.evidence = surrogate, evidence
        self.support = evidence.support

    @cached_property
    def on_host(self) -> _Information:
        """The same for batches on the host."""
        other = _Information(self.surrogate.on_host, self.evidence)
        if other.surrogate is not self.surrogate:
            other.support = other.surrogate.prepare(self.support.batch.to("cpu"))
        return other

    def value_and_pull(self, batch: GMMBatch) -> tuple[float, Callable[[], GMMGradient]]:
        s, e = self.surrogate, self.evidence
        prepared = s.prepare(batch)
        cross, pull_cross = s.kernel_pullback(prepared, self.support)
        own, pull_own = s.kernel_pullback(prepared)
        m = len(e.nodes)
        white = s.whiten(cross[:, m:].T)
        sigma = own - white.T @ white
        sigma[np.diag_indices_from(sigma)] += s.jitter * s.outputscale
        c = cross @ e.coefficients
        factor = np.linalg.cholesky(sigma)
        a = cho_solve((factor, True), c)
        explained = float(c @ a)
        value = float(_information(np.array(explained), e.variance))

        def pull() -> GMMGradient:
            rest = e.variance - explained
            if not rest > (1.0 - _MOST_EXPLAINED) * e.variance:
                return _zero_gradient(batch)
            row = 2.0 * e.coefficients
            row[m:] += 2.0 * s.solve_transposed(white @ a)
            return _add(pull_cross(np.outer(0.5 * a / rest, row)), pull_own(np.outer(-0.5 * a / rest, a)))

        return value, pull

    def value_and_gradient(self, batch: GMMBatch) -> tuple[float, GMMGradient]:
        try:
            value, pull = self.value_and_pull(batch)
        except np.linalg.LinAlgError:  # twins within a batch, to the last digit: worth nothing
            return -np.inf, _zero_gradient(batch)
        return value, pull()


class _Uncertainty:
    """log of mean^2 times variance of z at one mixture, the variance conditioned on mixtures chosen before."""

    def __init__(self, surrogate: Surrogate, chosen: list[GMMBatch]) -> None:
        self.surrogate = surrogate
        self.chosen = chosen
        self.n_support = len(surrogate.mixtures.weights) + sum(len(g.weights) for g in chosen)
        self.support, self.factor = surrogate.prepared, surrogate.factor
        self.mean_weights = surrogate.solve_transposed(surrogate.whitened)
        if chosen:
            extra = surrogate.beside(concat(chosen))
            left = surrogate.whiten(surrogate.kernel(surrogate.prepared, extra)).T
            corner = surrogate.kernel(extra) - left @ left.T
            corner[np.diag_indices_from(corner)] += surrogate.jitter * surrogate.outputscale
            h, b = left.shape[1], left.shape[0]
            self.factor = np.zeros((h + b, h + b))
            self.factor[:h, :h], self.factor[h:, :h] = surrogate.factor, left
            # A twin of a chosen mixture leaves a corner of rounding errors: a floor keeps it positive definite.
            self.factor[h:, h:] = np.linalg.cholesky(corner + 1e-10 * surrogate.outputscale * np.eye(b))
            self.support = surrogate.prepare(concat([surrogate.mixtures, extra]))
            self.mean_weights = np.concatenate([self.mean_weights, np.zeros(b)])

    @cached_property
    def on_host(self) -> _Uncertainty:
        """The same for mixtures on the host."""
        host = self.surrogate.on_host
        return self if host is self.surrogate else _Uncertainty(host, self.chosen)

    def scores(self, pool: GMMBatch) -> Array:
        """mean^2 times variance at each mixture of the pool."""
        cross = self.surrogate.kernel(pool, self.support)
        white = solve_triangular(self.factor, cross.T, lower=True, check_finite=False)
        variance = self.surrogate.prior_variance - np.einsum("ij,ij->j", white, white)
        return np.asarray((cross @ self.mean_weights) ** 2 * variance)

    def value_and_gradient(self, batch: GMMBatch) -> tuple[float, GMMGradient]:
        cross, pull = self.surrogate.kernel_pullback(batch, self.support)
        white = solve_triangular(self.factor, cross[0], lower=True, check_finite=False)
        variance = self.surrogate.prior_variance - float(white @ white)
        mean = float(cross[0] @ self.mean_weights)
        if not (variance > 0.0 and abs(mean) > _LEAST_MEAN * np.sqrt(self.surrogate.outputscale)):
            return -np.inf, _zero_gradient(batch)
        solved = solve_triangular(self.factor, white, lower=True, trans="T", check_finite=False)
        row = 2.0 * self.mean_weights / mean - 2.0 * solved / variance
        return float(2.0 * np.log(abs(mean)) + np.log(variance)), pull(row[None, :])


class _GreedyInformation:
    """Batches picked one by one from a pool: each new point conditions variances and covariances of the rest.

    The pool, on the host, meets observations and nodes where the surrogate's mixtures live, and each pick on the host.
    """

    def __init__(self, surrogate: Surrogate, evidence: Evidence, pool: GMMBatch) -> None:
        placed = surrogate.prepare(surrogate.beside(pool))
        self.surrogate, self.pool = surrogate.on_host, pool
        self.prepared = placed if surrogate.on_host is surrogate else self.surrogate.prepare(pool)
        self.white = surrogate.whiten(surrogate.kernel(surrogate.prepared, placed))
        self.variance = surrogate.prior_variance - np.einsum("ij,ij->j", self.white, self.white)
        self.covariance = surrogate.kernel_matvec(placed, evidence.support, evidence.coefficients)

    def pick(self, subset: Array, size: int) -> Array:
        """Indices into the pool of `size` members of `subset`."""
        white, variance, covariance = self.white[:, subset], self.variance[subset], self.covariance[subset]
        floor = max(1e-3 * self.surrogate.jitter, _ROUNDING) * self.surrogate.outputscale
        columns = np.empty((0, len(subset)))
        picked: list[int] = []
        for _ in range(size):
            gain = np.where(variance > floor, covariance**2 / np.maximum(variance, floor), -np.inf)
            gain[picked] = -np.inf
            i = int(np.argmax(gain))
            picked.append(i)
            cross = self.surrogate.kernel(self.pool[subset[[i]]], self.prepared)[0, subset]
            column = cross - white.T @ white[:, i] - columns.T @ columns[:, i]
            column = column / np.sqrt(max(variance[i], floor))
            covariance = covariance - column * (covariance[i] / np.sqrt(max(variance[i], floor)))
            variance = variance - column**2
            columns = np.vstack([columns, column])
        return subset[picked]


def _information(explained: Array, variance: float) -> Array:
    """-log(1 - rho^2) / 2 for the part of `variance` that is explained."""
    if not variance > 0.0:
        return np.zeros_like(explained)
    return -0.5 * np.log1p(-np.clip(explained / variance, 0.0, _MOST_EXPLAINED))


def _zero_gradient(g: GMMBatch) -> GMMGradient:
    noise = None if g.noise_variances is None else np.zeros(len(g))
    return GMMGradient(np.zeros(len(g.weights)), np.zeros(g.means.shape), np.zeros(g.scales.shape), noise)


def _add(a: GMMGradient, b: GMMGradient) -> GMMGradient:
    noise = None
    if a.noise_variance is not None and b.noise_variance is not None:
        noise = a.noise_variance + b.noise_variance
    return GMMGradient(a.weights + b.weights, a.means + b.means, a.scales + b.scales, noise)
