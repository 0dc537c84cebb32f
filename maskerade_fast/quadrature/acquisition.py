"""Search for the mixtures to evaluate next (mathematics.md section 7).

The criterion is the information about the evidence (`information`) or the uncertainty of f (`uncertainty`): smooth
functions of candidate mixtures, which L-BFGS-B maximises in the latent coordinates of a reference measure. A batch may
hold candidates of all sizes.

Hyper-kernels of whole pools are computed where the surrogate's mixtures live. Latent coordinates stay on the host: the
search is SciPy's, and the map to mixtures needs special functions that CuPy lacks. A step of the search also runs on
the host unless it has many pairs of components: on a card a value and its gradient take some 130 launches and copies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._checks import Array, one_of
from .._optimize import maximise
from ..backends import single_threaded_blas
from ..errors import OptimisationError
from ..model.gmm import GMMBatch, concat
from ..model.latent import Latent, LatentMap
from ..model.reference_measure import ReferenceMeasure
from .acquisition_information import GreedyInformation, Information
from .acquisition_uncertainty import Uncertainty
from .evidence import Evidence
from .surrogate import Surrogate

ACQUISITIONS = ("information", "uncertainty", "random")

# Latent coordinates are standard normal under the prior: the search stays where the prior has mass.
_LATENT_BOUND = 5.0

# Pairs of components up to which the host evaluates a step of the search: 2 ms by 8 threads. A constant, and not a
# measure of this machine's speed, because the last digits differ between host and card.
_HOST_PAIRS = 2**20


@dataclass(frozen=True)
class NextBatch:
    """Mixtures to evaluate, on the host, and how many starts of the search were dropped or ended abnormally."""

    mixtures: GMMBatch
    failed_starts: int = 0


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
) -> NextBatch:
    """Choose the next `size` mixtures to evaluate.

    Parameters
    ----------
    acquisition : {"information", "uncertainty", "random"}
    surrogate, evidence
        As for `mutual_information`.
    measure : ReferenceMeasure
        Where candidates come from, and the latent coordinates in which they are improved.
    size : int
        Number of mixtures.
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
        return NextBatch(measure.random_draws(size, rng).mixtures)
    draws = measure.random_draws(max(pool, size), rng)
    if acquisition == "uncertainty":
        return _uncertain_batch(surrogate, measure.latent_map, draws.mixtures, size, n_starts, max_iterations)
    return _informative_batch(
        surrogate, evidence, measure.latent_map, draws.mixtures, size, rng, n_starts, max_iterations
    )


def _informative_batch(
    surrogate: Surrogate,
    evidence: Evidence,
    latent_map: LatentMap,
    pool: GMMBatch,
    size: int,
    rng: np.random.Generator,
    n_starts: int,
    max_iterations: int,
) -> NextBatch:
    """The best of greedy batches from the whole pool and from random halves of it, each improved jointly."""
    everything = np.arange(len(pool))
    half = max(size, len(pool) // 2)
    subsets = [everything] + [rng.permutation(len(pool))[:half] for _ in range(n_starts - 1)]
    greedy = GreedyInformation(surrogate, evidence, pool)
    information = Information(surrogate, evidence)
    n_support = len(evidence.support.batch.weights)
    best: tuple[float, GMMBatch] = (-np.inf, pool[everything[:size]])
    failures = 0
    for subset in subsets:
        start = pool[greedy.pick(subset, size)]
        steps = information.on_host if len(start.weights) * n_support <= _HOST_PAIRS else information
        value, mixtures, failed = _ascend(steps, latent_map, [start], max_iterations)
        failures += failed
        if value > best[0]:
            best = value, mixtures
    return NextBatch(best[1], failures)


def _uncertain_batch(
    surrogate: Surrogate, latent_map: LatentMap, pool: GMMBatch, size: int, n_starts: int, max_iterations: int
) -> NextBatch:
    """One after another: the most uncertain point given those already chosen, whose values are not needed for that."""
    chosen: list[GMMBatch] = []
    failures = 0
    placed = surrogate.beside(pool)
    most = int(pool.n_components.max())
    for _ in range(size):
        objective = Uncertainty(surrogate, chosen)
        scores = objective.scores(placed)
        starts = [pool[[i]] for i in np.argsort(-scores, kind="stable")[:n_starts]]
        if most * objective.n_support <= _HOST_PAIRS:
            objective = objective.on_host
        _, mixtures, failed = _ascend(objective, latent_map, starts, max_iterations)
        failures += failed
        chosen.append(mixtures)
    return NextBatch(concat(chosen), failures)


def _ascend(
    objective: Information | Uncertainty, latent_map: LatentMap, starts: list[GMMBatch], max_iterations: int
) -> tuple[float, GMMBatch, int]:
    """Value and mixtures of the best end of L-BFGS-B from `starts`, and the number of runs that failed.

    If every run failed, the best start. Sizes stay as they are in a run.
    """
    best: tuple[float, GMMBatch] = (-np.inf, starts[0])
    failures = 0
    for start in starts:
        template = latent_map.inverse(start)

        def value_and_gradient(values: Array, template: Latent = template) -> tuple[float, Array]:
            latent = Latent(template.sizes, template.offsets, values)
            mixtures = latent_map.forward(latent)
            value, gradient = objective.value_and_gradient(objective.surrogate.beside(mixtures))
            return value, np.zeros_like(values) if gradient is None else latent_map.pullback(latent, gradient)

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
            failures += 1
            continue
        failures += end.n_abnormal
        if end.value > best[0]:
            best = end.value, latent_map.forward(Latent(template.sizes, template.offsets, end.x))
    return *best, failures
