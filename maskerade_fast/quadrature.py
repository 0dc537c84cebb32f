"""The loop: draw, evaluate, refit, integrate, propose, until the budget is spent (docs/mathematics.md sections 4 to 8).

The loop knows a reference measure q and values of f = likelihood * prior / q. It does not know whether q is the prior.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ._checks import Array, generator, integer, one_of, positive
from .acquisition import ACQUISITIONS, propose
from .backends import gpu_problem, on_their_device, require_gpu, single_threaded_blas, to_host
from .checkpoint import Journal, Unrecorded, described_seed, fingerprint
from .data import RegressionData, Standardiser
from .distances import Metric
from .foresight import require_matrix_room, require_time
from .gmm import GMMBatch, concat
from .gram import warn_if_collapsed
from .heartbeat import ticking
from .inputs import ColumnNames, Inputs, targets
from .integrals import Evidence, integrate
from .latent import LogNormal
from .likelihood import log_likelihood
from .limits import Limits, check_room, last_batch
from .measure import PriorMeasure, ReferenceMeasure
from .posterior import HistoryRow, Posterior
from .prior import Draws, Prior
from .sampling import SamplingRun
from .streams import Stream
from .surrogate import Surrogate

_DEFAULT_MAX_COMPONENTS = 5
_DEFAULT_TREND = "linear"  # docs/method.md has what it does to evidence and forecasts
# The rougher of the paper's two hyper-kernels: with power 2 the surrogate is too smooth for the likelihood, and its
# evidence too sure. 300 evaluations, five seeds, rms error (median reported sd) with 1 and with 2: two_tones_12
# 0.001 (0.004) and 0.008 (0.002), two_tones_40 0.039 (0.025) and 0.059 (0.016).
_POWER = 1

Callback = Callable[[HistoryRow], Any]


@on_their_device
def marginalise(
    X: Any,
    y: Any,
    *,
    prior: Prior | None = None,
    max_components: int | None = None,
    budget: int | None = 500,
    time_budget: float | None = None,
    initial: int = 100,
    batch_size: int = 20,
    acquisition: str | None = None,
    proposals: str = "laplace",
    trend: str | None = None,
    nodes: int = 4096,
    noise_variance: float | None = None,
    standardise: bool = True,
    device: str = "auto",
    seed: int | np.random.Generator | None = None,
    progress: bool = False,
    callback: Callback | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Posterior:
    """Marginalise a Gaussian process over spectral mixture kernels.

    Parameters
    ----------
    X : array, shape (N, D), or (N,) for D = 1; or a data frame
        Names of a frame's columns are kept, and `Posterior.predict` matches frames by them. Integers beyond 2^53, as
        nanoseconds since 1970, keep all their digits.
    y : array, shape (N,) or (N, 1); or a series, or a data frame of one column
    prior : Prior, optional
        Of mixtures for standardised data; ``Prior.from_data(X)`` by default.
    max_components : int, optional
        Largest mixture of the default prior, 5 if not given; not to be given beside `prior`.
    budget : int or None
        Likelihood evaluations, a value with gradient counting as 3. None: as many as `time_budget` allows. With
        "laplace" at most 1000 draws come from the settled measure; what is left then goes into its refits.
    time_budget : float, optional
        Seconds; no batch is started that is not expected to end in time, and no run whose one likelihood is expected
        to take longer. With both budgets, the first one met ends the run. "laplace" ends after some 50,000 likelihoods,
        however much time is left.
    initial : int
        Evaluations at draws from the prior, before anything else; with "laplace" at most a tenth of the budget.
    batch_size : int
        Evaluations at a time: between fits of the surrogate, or in a replicate of draws.
    acquisition : {"information", "uncertainty", "random"}, optional
        Where to evaluate once the measure is settled. Default: "random" draws from it with "laplace", "information"
        with "prior". Other than random ones take turns with draws.
    proposals : {"laplace", "prior"}
        The reference measure, where nodes and candidates come from. "laplace": t distributions round the posterior's
        modes, refitted by weighted draws (docs/method.md). "prior": the paper's recipe.
    trend : {"none", "constant", "linear"}, optional
        What is added to the Gaussian process: a constant, or a constant and a line in every input, with Gaussian priors
        as wide as the targets (`trend`), marginalised analytically. Default: "linear", but "none" beside `prior`.
    nodes : int
        Quadrature nodes in all, shared in powers of two among the sizes; at most 2^20, and on the CPU so many that one
        integral takes ten minutes (some 450,000 for sizes up to 5): the time grows with their square.
    noise_variance : float, optional
        In the units of y squared; fixes the noise of a prior that leaves it free.
    standardise : bool
        False: `X` and `y` are taken as they are, and the prior speaks of them.
    device : {"auto", "cpu", "gpu"}
        "auto" takes the GPU where there is one that can be used, else the CPU.
    seed : int, Generator or None
        The same seed, backend and `budget` give the same bits.
    progress : bool
        Show a progress bar on standard error.
    callback : callable, optional
        Called with each new `HistoryRow`; the run ends if it returns True.
    checkpoint : path, optional
        A file that keeps every likelihood as it is evaluated. The same call with the same file goes on where a run was
        killed, to the same bits, or gives the result of a finished run again; nothing is lost but the batch in flight.
        A file of other data, prior, options, seed or versions is refused. What may change: `progress`, `callback`
        (called for rows of the file too), `budget` and `time_budget` with "prior". With ``seed=None`` the file keeps
        the seed. The clock of a time budget goes on from the last batch kept; docs/limits.md has sizes and times.

    Returns
    -------
    Posterior
        After Ctrl-C too, of what was evaluated until then, unless nothing was.

    Raises
    ------
    ValueError, TypeError
        For arguments out of range, naming them; ValueError if no drawn mixture has a finite likelihood, or if
        `time_budget` is shorter than one likelihood.
    MemoryError
        If the covariance of the rows, where it is a dense matrix, or what `nodes`, `initial`, `batch_size` or `budget`
        ask for has no room in half of the free memory.
    BackendUnavailableError
        For ``device="gpu"`` where no GPU can be used, with the cause.
    DataError
        For a `checkpoint` that is of another run, by the names of what differs; that is damaged or no checkpoint; that
        another process uses; or that cannot be written, at the start or later. What it holds is kept.

    Notes
    -----
    With a GPU, data and mixtures live on the current one from the first likelihood to the predictions: likelihoods,
    distances, hyper-kernels with their gradients and products, predictions and sums over pairs are computed there. On
    the host are the draws, latent coordinates and L-BFGS-B (Sobol nets and special functions are SciPy's), and the
    dense algebra of the h observations: factors of h x h matrices, solves for h x m ones, and vectors. With h of some
    hundred these take LAPACK milliseconds, one after another, each deciding what comes next.
    """
    one_of(proposals, "proposals", ("laplace", "prior"))
    if trend is None:
        trend = _DEFAULT_TREND if prior is None else "none"  # a prior that is given is the whole model
    inputs = Inputs.of(X)
    y, target = targets(y)
    names = ColumnNames(inputs.names, target)
    data = RegressionData.from_arrays(inputs.numbers, y, trend)
    warn_if_collapsed(data.X, "X")
    device = _chosen_device(device)
    data = data.to("cpu")  # units and prior are found on the host
    if acquisition is None:
        acquisition = "random" if proposals == "laplace" else "information"
    one_of(acquisition, "acquisition", ACQUISITIONS)
    limits = Limits.checked(budget, time_budget, initial, batch_size)
    integer(nodes, "nodes", minimum=1)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: {callback!r}, expected a callable or None")
    if not isinstance(checkpoint, str | os.PathLike | None):
        raise TypeError(f"checkpoint: {checkpoint!r}, expected a path or None")
    generator(seed)  # refuses what is no seed
    if device == "cpu":
        if checkpoint is None or not os.path.exists(checkpoint):  # a finished run may have nothing left to evaluate
            require_time(data, limits.seconds, 1 if proposals == "laplace" else min(limits.initial, limits.batch_size))
        require_matrix_room(data)
    units = Standardiser.from_data if standardise else Standardiser.identity
    standardiser = units(data, inputs.origins)
    scaled = standardiser.to_unit(data).to(device)
    prior = _chosen_prior(prior, max_components, data, noise_variance, standardiser, standardise)
    check_room(limits, nodes, prior, proposals, device)
    shift = standardiser.log_density_shift(data.n_points)
    record = Unrecorded()
    if checkpoint is not None:
        chosen = {"proposals": proposals, "acquisition": acquisition, "trend": trend, "nodes": nodes}
        chosen |= {"standardise": bool(standardise), "device": device, "seed": described_seed(seed)}
        identity = _identity(data, prior, limits, chosen)
        record = Journal(checkpoint, identity, extensible=proposals == "prior")
        seed = record.identity["seed"] if seed is None else seed
    rng = generator(seed)
    with record, _progress_bar(progress, limits) as bar:
        if proposals == "laplace":
            sampling = SamplingRun(scaled, prior, default_metric(prior), _POWER, nodes, shift, device, rng, record)
            rows = sampling.steps(limits, acquisition)
            post = _finished(sampling, rows, lambda row: _report(row, bar, callback), standardiser, prior)
        else:
            measure: ReferenceMeasure = PriorMeasure(prior)
            run = _Run(scaled, measure, default_metric(prior), measure.draw(nodes, rng), shift, device, record)
            rows = run.steps(limits, acquisition, rng)
            post = _finished(run, rows, lambda row: _report(row, bar, callback), standardiser, prior)
    return replace(post, columns=names)


def _finished(
    run: SamplingRun | _Run,
    rows: Iterator[HistoryRow],
    report: Callable[[HistoryRow], bool],
    standardiser: Standardiser,
    prior: Prior,
) -> Posterior:
    """The posterior of a run that goes on until its budget ends, `report` returns False, or Ctrl-C."""
    try:
        for row in rows:
            if not report(row):
                break
        return run.posterior(standardiser, prior.max_components)
    except KeyboardInterrupt:  # in the posterior too, which takes some seconds: it is begun anew
        if run.state is None:
            raise
        run.interrupted = True
    return run.posterior(standardiser, prior.max_components)


def _identity(data: RegressionData, prior: Prior, limits: Limits, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint is of, by the names of `marginalise`; all that the bits of a run depend on."""
    identity = {"X": fingerprint(data.X), "y": fingerprint(data.y), **chosen, "max_components": prior.max_components}
    if chosen["proposals"] == "laplace":  # budgets are planned with from the first batch on
        identity |= {"budget": limits.budget, "time_budget": limits.seconds}
    identity |= {"initial": limits.initial, "batch_size": limits.batch_size}
    for field in fields(prior):
        value = getattr(prior, field.name)
        identity[f"prior.{field.name}"] = fingerprint(value) if isinstance(value, np.ndarray) else repr(value)
    return identity


def _batches(
    run: _Run, measure: ReferenceMeasure, limits: Limits, acquisition: str, rng: np.random.Generator
) -> Iterator[GMMBatch]:
    """What to evaluate, batch by batch: the first design, in pieces so that a run can end within it, then proposals."""
    design = measure.candidates(limits.initial, rng).mixtures
    for start in range(0, len(design), limits.batch_size):
        if run.state is not None and not limits.next_batch(run.cost, run.seconds, run.last_batch_seconds):
            return
        yield design[start : start + limits.batch_size]
    if run.state is None:
        return
    while size := limits.next_batch(run.cost, run.seconds, run.last_batch_seconds):
        proposal = propose(acquisition, run.known.surrogate, run.known.evidence, measure, size, rng)
        run.failed_starts += proposal.n_dropped + proposal.n_abnormal
        yield proposal.mixtures


def _report(row: HistoryRow, bar: Any, callback: Callback | None) -> bool:
    """Show and hand out the newest row; False if the callback wants to stop."""
    bar.set_postfix_str(f"log evidence {row.log_evidence:.2f} ± {row.log_evidence_sd:.2f}", refresh=False)
    bar.update(row.cost - bar.n)
    return callback is None or callback(row) is not True


@dataclass(frozen=True)
class _State:
    """What a run knows after a batch; the parts belong together."""

    surrogate: Surrogate
    evidence: Evidence
    log_likelihoods: Array
    history: tuple[HistoryRow, ...]


class _Run:
    """A run in progress. Its state is replaced in one assignment, so that an interrupt finds it whole at any moment."""

    def __init__(
        self,
        data: RegressionData,
        measure: ReferenceMeasure,
        metric: Metric,
        nodes: Draws,
        log_density_shift: float,
        device: str,
        record: Unrecorded,
    ) -> None:
        self.data, self.measure, self.metric = data, measure, metric
        self.nodes, self.node_weights = nodes.mixtures.to(device), nodes.weights
        self.shift = log_density_shift
        self.device, self.record = device, record
        self.failed_starts = 0
        self.interrupted = False
        self.state: _State | None = None
        self.hopeless: GMMBatch | None = None  # evaluated before any likelihood was finite

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self.record.seconds()

    @property
    def last_batch_seconds(self) -> float:
        """What the last batch took with everything that belongs to one: search, evaluation, fit, callback."""
        return last_batch(self.known.history)[1]

    @property
    def known(self) -> _State:
        """The state, once there is one."""
        assert self.state is not None
        return self.state

    @property
    def cost(self) -> int:
        """Likelihoods evaluated; a value with gradient would count as 3."""
        return 0 if self.state is None else self.state.history[-1].cost

    @single_threaded_blas()
    def evaluate(self, mixtures: GMMBatch) -> None:
        """Evaluate a batch, given on the host, and bring surrogate and evidence up to date."""

        def evaluate() -> tuple[Array]:
            placed = mixtures.to(self.device)
            return (to_host(log_likelihood(placed, self.data.X, self.data.y, basis=self.data.basis).value),)

        (values,) = self.record.evaluated(mixtures, False, evaluate)
        if self.state is None and self.hopeless is not None:
            mixtures = concat([self.hopeless, mixtures])
            values = np.concatenate([np.full(len(self.hopeless), -np.inf), values])
        if self.state is None and not (values > -np.inf).any():
            self.hopeless = mixtures
            return
        log_f = values + self.measure.log_density_ratio(mixtures)
        placed = mixtures.to(self.device)
        log_likelihoods, history = values, tuple[HistoryRow, ...]()
        if self.state is None:
            surrogate = Surrogate.fit(placed, log_f, metric=self.metric, power=_POWER)
        else:
            surrogate = self.state.surrogate.extend(placed, log_f).refit()
            log_likelihoods = np.concatenate([self.state.log_likelihoods, values])
            history = self.state.history
        evidence = integrate(surrogate, self.nodes, self.node_weights)
        row = HistoryRow(
            evaluations=len(log_likelihoods),
            cost=len(log_likelihoods),
            seconds=self.seconds,
            log_evidence=evidence.log_evidence + self.shift,
            log_evidence_sd=evidence.log_evidence_sd,
            best_log_likelihood=float(log_likelihoods.max()) + self.shift,
        )
        self.state = _State(surrogate, evidence, log_likelihoods, (*history, row))

    def steps(self, limits: Limits, acquisition: str, rng: np.random.Generator) -> Iterator[HistoryRow]:
        """Evaluate batch after batch; a row for each after which there is a state."""
        for mixtures in _batches(self, self.measure, limits, acquisition, rng):
            self.evaluate(mixtures)
            if self.state is not None:
                yield self.known.history[-1]

    def posterior(self, standardiser: Standardiser, max_components: int) -> Posterior:
        if self.state is None:
            raise ValueError("y: no drawn mixture has a finite likelihood; is the noise variance too small?")
        known = self.known
        return Posterior.from_quadrature(
            self.data,
            standardiser,
            known.surrogate,
            known.evidence,
            known.log_likelihoods,
            max_components,
            tuple(self._warnings(known)),
            known.history,
        )

    def _warnings(self, known: _State) -> Iterator[str]:
        count = len(known.log_likelihoods)
        failures = int((known.log_likelihoods == -np.inf).sum())
        f = np.exp(known.surrogate.log_values - known.surrogate.log_offset)
        effective = float(f.sum() ** 2 / (f @ f))
        if self.interrupted:
            yield f"interrupted after {count} evaluations; the result rests on those"
        if failures:
            yield f"{failures} of {count} mixtures had a singular covariance and count as likelihood 0"
        if self.failed_starts:
            yield f"{self.failed_starts} searches for the next batch ended abnormally; the best point they saw was used"
        if known.surrogate.at_bound:
            yield "the surrogate's length ended at a bound of its range: the evaluations hardly inform it"
        if known.surrogate.spacing_warning:
            yield known.surrogate.spacing_warning
        if count >= 10 and effective < max(2.0, 0.02 * count):
            yield (
                f"the likelihood rests on {effective:.1f} of {count} evaluations: the evidence may be far too low, "
                "and its sd, which is the surrogate's own, far too small"
            )


def _chosen_device(device: Any) -> str:
    """ "cpu" or "gpu"; BackendUnavailableError for a GPU that cannot be used."""
    if one_of(device, "device", ("auto", "cpu", "gpu")) == "auto":
        return "cpu" if gpu_problem() else "gpu"
    if device == "gpu":
        require_gpu()
    return str(device)


def _chosen_prior(
    prior: Prior | None,
    max_components: int | None,
    data: RegressionData,
    noise_variance: float | None,
    standardiser: Standardiser,
    standardise: bool,
) -> Prior:
    if prior is None:
        count = _DEFAULT_MAX_COMPONENTS if max_components is None else max_components
        prior = Prior.from_data(data.X, max_components=count, standardise=standardise)
    elif max_components is not None:
        raise ValueError("max_components: given beside prior, which has its own; expected one of the two")
    elif not isinstance(prior, Prior):
        raise TypeError(f"prior: {type(prior).__name__}, expected a Prior")
    elif prior.n_dims != data.n_dims:
        raise ValueError(f"prior: made for {prior.n_dims} inputs, X has {data.n_dims}")
    if noise_variance is None:
        return prior
    noise = positive(noise_variance, "noise_variance")
    return prior.with_noise_variance(standardiser.variance_to_unit(noise))


def default_metric(prior: Prior) -> Metric:
    """The distance between mixtures that suits a prior.

    Reflected where means take every sign; with terms for noise and mass where the prior leaves them free, weighted so
    that one prior standard deviation of their logarithm counts 0.3 of the prior spread of the frequencies. (Held-out
    log density a row, four random splits, for 0.1, 0.3 and 1: airline -4.34, -4.35, -4.45; Lake Huron -0.79, -0.74,
    -0.70.)
    """
    unit = 0.3 * float(np.linalg.norm(prior.mean_sd))
    noise_weight, mass_weight = (
        unit / part.log_sd if isinstance(part, LogNormal) else 0.0 for part in (prior.noise_variance, prior.mass)
    )
    return Metric(reflect=not prior.fold, noise_weight=noise_weight, mass_weight=mass_weight)


@contextmanager
def _progress_bar(show: bool, limits: Limits) -> Iterator[Any]:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # no thread of tqdm's own

    # Drawn by a thread alone: its clock goes on within a long batch, and Ctrl-C in the run cannot strike while it is
    # drawn, which would leave tqdm's lock locked
    bar = Bar(total=limits.budget, unit="likelihood", disable=not show, file=Stream(sys.stderr), miniters=math.inf)
    with bar, ticking(bar.refresh, every=0.5) if show else nullcontext():
        yield bar
