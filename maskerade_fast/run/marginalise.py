"""`marginalise`: checks its arguments, converts to standardised units, and runs one of the recipes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from .._checks import generator, integer, one_of, positive
from ..backends import gpu_problem, on_their_device, require_gpu
from ..model.data import RegressionData
from ..model.inputs import ColumnNames, Inputs, targets
from ..model.prior import Prior
from ..model.units import Standardiser
from ..ops.gram import warn_if_collapsed
from ..posterior.posterior import Posterior
from ..quadrature.acquisition import ACQUISITIONS
from ..quadrature.problem import Problem
from ..storage.journal import Journal, described_seed, fingerprint
from ..storage.recorder import NoRecord, Recorder
from . import defaults
from .adaptive_run import AdaptiveRun
from .budget import Limits, check_room, require_matrix_room
from .drive import Callback, Run, drive, progress_bar
from .likelihood_time import require_time
from .prior_run import PriorRun


@on_their_device
def marginalise(
    X: Any,
    y: Any,
    *,
    prior: Prior | None = None,
    max_components: int | None = None,
    budget: int | None = defaults.BUDGET,
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
        The posterior keeps the names of a frame's columns, and `Posterior.predict` matches frames by them. Integers
        beyond 2^53, as nanoseconds since 1970, keep all their digits.
    y : array, shape (N,) or (N, 1); or a series, or a data frame of one column
    prior : Prior, optional
        Of mixtures for standardised data; ``Prior.from_data(X)`` by default.
    max_components : int, optional
        Largest mixture of the default prior, 5 by default; an error together with `prior`. With "laplace" mixtures of
        more than 6 components are drawn from the prior alone, and a warning says so.
    budget : int or None
        Likelihood evaluations, a value with gradient counting as 3. None: as many as `time_budget` allows. With
        "laplace" at most 1000 draws come from the settled measure; the rest of the budget goes into its refits.
    time_budget : float, optional
        Seconds; a batch that would not end in time is not started, nor a run whose single likelihood would take longer.
        With both budgets, the one that is spent first ends the run. "laplace" ends after some 50,000 likelihoods,
        however much time is left.
    initial : int
        Evaluations at draws from the prior, before anything else; with "laplace" at most a tenth of the budget.
    batch_size : int
        Evaluations at a time: between fits of the surrogate, or in a replicate of draws.
    acquisition : {"information", "uncertainty", "random"}, optional
        Where to evaluate once the measure is settled. Default: "random" draws from it with "laplace", "information"
        with "prior". Batches chosen by information or uncertainty alternate with random ones.
    proposals : {"laplace", "prior"}
        The reference measure, from which nodes and candidates are drawn. "laplace": t distributions around the modes of
        the posterior, refitted to weighted draws (method.md). "prior": the paper's recipe.
    trend : {"none", "constant", "linear"}, optional
        Added to the Gaussian process: a constant, or a constant and a line in every input, with Gaussian priors as wide
        as the targets (`trend`), marginalised analytically. Default: "linear", or "none" together with `prior`.
    nodes : int
        Quadrature nodes in all, divided in powers of two among the sizes; at most 2^20. On the CPU one integral may
        take at most ten minutes (some 450,000 nodes for sizes up to 5): the time grows with their square.
    noise_variance : float, optional
        In the units of y squared; fixes the noise of a prior that leaves it free.
    standardise : bool
        False: `X` and `y` are used as they are, and `prior` describes these values.
    device : {"auto", "cpu", "gpu"}
        "auto" is the GPU if one can be used, else the CPU.
    seed : int, Generator or None
        The same seed, backend and `budget` give the same bits.
    progress : bool
        Show a progress bar on standard error.
    callback : callable, optional
        Called with each new `HistoryRow`; the run ends if it returns True.
    checkpoint : path, optional
        A file that stores every likelihood as soon as it is evaluated. The same call with the same file continues a run
        that was killed, to the same bits, or returns the result of a finished run again; only the batch that was being
        evaluated is lost. A file of other data, prior, options, seed or versions is refused. These may change:
        `progress`, `callback` (which is called for rows of the file too), and with "prior" `budget` and `time_budget`.
        With ``seed=None`` the file stores the seed. The clock of a time budget continues from the last batch in the
        file; docs/measured/limits.md has sizes and times.

    Returns
    -------
    Posterior
        After Ctrl-C, the posterior of the likelihoods until then, unless there are none.

    Raises
    ------
    ValueError, TypeError
        For arguments out of range, naming them; ValueError if no drawn mixture has a finite likelihood, or if
        `time_budget` is shorter than one likelihood.
    MemoryError
        If the covariance of the rows, where it is a dense matrix, or the mixtures of `nodes`, `initial`, `batch_size`
        or `budget` need more than half of the free memory.
    BackendUnavailableError
        For ``device="gpu"`` where no GPU can be used, with the cause.
    DataError
        For a `checkpoint` of another run, with the names of what differs; one that is damaged or no checkpoint; one
        that another process uses; or one that cannot be written, at the start or later. The file keeps its content.

    Notes
    -----
    With a GPU, data and mixtures live on the current one from the first likelihood to the predictions: likelihoods,
    distances, hyper-kernels with their gradients and products, predictions and sums over pairs are computed there. On
    the host are the draws, latent coordinates and L-BFGS-B (Sobol nets and special functions are SciPy's), and the
    dense algebra of the h observations: factors of h x h matrices, solves for h x m matrices, and vectors. With h of
    some hundred each of these takes LAPACK milliseconds, and the next depends on its result.
    """
    one_of(proposals, "proposals", ("laplace", "prior"))
    if trend is None:
        trend = defaults.TREND if prior is None else "none"  # the caller's prior is the whole model
    inputs = Inputs.of(X)
    y, target = targets(y)
    names = ColumnNames(inputs.names, target)
    data = RegressionData(inputs.numbers, y, trend)
    warn_if_collapsed(data.X, "X")
    device = _chosen_device(device)
    data = data.to("cpu")  # units and prior are derived on the host
    if acquisition is None:
        acquisition = "random" if proposals == "laplace" else "information"
    one_of(acquisition, "acquisition", ACQUISITIONS)
    limits = Limits.checked(budget, time_budget, initial, batch_size)
    integer(nodes, "nodes", minimum=1)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: {callback!r}, expected a callable or None")
    if not isinstance(checkpoint, str | os.PathLike | None):
        raise TypeError(f"checkpoint: {checkpoint!r}, expected a path or None")
    generator(seed)  # raises for what is no seed
    if device == "cpu":
        if checkpoint is None or not os.path.exists(checkpoint):  # with a file there may be nothing left to evaluate
            require_time(data, limits.seconds, 1 if proposals == "laplace" else min(limits.initial, limits.batch_size))
        require_matrix_room(data)
    units = Standardiser.from_data if standardise else Standardiser.identity
    standardiser = units(data, inputs.origins)
    scaled = standardiser.to_unit(data)
    prior = _chosen_prior(prior, max_components, data, noise_variance, standardiser, standardise)
    check_room(limits, nodes, prior, proposals, device)
    recorder: Recorder = NoRecord()
    if checkpoint is not None:
        chosen = {"proposals": proposals, "acquisition": acquisition, "trend": trend, "nodes": nodes}
        chosen |= {"standardise": bool(standardise), "device": device, "seed": described_seed(seed)}
        identity = _identity(data, prior, limits, chosen)
        recorder = Journal(checkpoint, identity, extensible=proposals == "prior")
        seed = recorder.identity["seed"] if seed is None else seed
    rng = generator(seed)
    with recorder, progress_bar(progress, limits.budget) as bar:
        problem = Problem.of(scaled, prior, device, recorder)
        recipe = AdaptiveRun if proposals == "laplace" else PriorRun
        run: Run[Any] = recipe(problem, limits, acquisition, nodes, rng)
        post = drive(run, standardiser, bar, callback)
    return replace(post, columns=names)


def _identity(data: RegressionData, prior: Prior, limits: Limits, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the run's bits depend on, keyed by argument name; stored so that another run is refused."""
    identity = {"X": fingerprint(data.X), "y": fingerprint(data.y), **chosen, "max_components": prior.max_components}
    if chosen["proposals"] == "laplace":  # the first batch already depends on the budgets
        identity |= {"budget": limits.budget, "time_budget": limits.seconds}
    identity |= {"initial": limits.initial, "batch_size": limits.batch_size}
    for field in fields(prior):
        value = getattr(prior, field.name)
        identity[f"prior.{field.name}"] = fingerprint(value) if isinstance(value, np.ndarray) else repr(value)
    return identity


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
        count = defaults.MAX_COMPONENTS if max_components is None else max_components
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
