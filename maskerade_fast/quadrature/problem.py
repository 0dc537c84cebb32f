"""The problem that a run solves, in standardised units, with the recorder that its likelihoods go through.

A `Problem` never changes. Its recorder may hold likelihoods of an earlier run and returns these instead of new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._checks import Array
from .._containers import short_repr
from ..backends import to_host
from ..model.data import RegressionData
from ..model.gmm import GMMBatch, GMMGradient
from ..model.latent import LogNormal
from ..model.prior import Prior
from ..ops.likelihood import log_likelihood
from ..ops.metric import Metric
from ..storage.recorder import NoRecord, Recorder
from .surrogate import Surrogate

# The rougher of the paper's two hyper-kernels. With power 2 the surrogate is too smooth for the likelihood, and the
# reported sd of its evidence too small. 300 evaluations, five seeds, rms error (median reported sd) with 1 and with 2:
# two_tones_12 0.001 (0.004) and 0.008 (0.002), two_tones_40 0.039 (0.025) and 0.059 (0.016).
POWER = 1
"""The hyper-kernel's q in runs."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Data, prior, metric, device and recorder of a run; everything in standardised units.

    Parameters
    ----------
    data : RegressionData
        On `device`.
    prior : Prior
    metric : Metric
        Distance between mixtures, for surrogates.
    device : {"cpu", "gpu"}
        Where likelihoods and hyper-kernels are computed.
    recorder : Recorder
    """

    data: RegressionData
    prior: Prior
    metric: Metric
    device: str
    recorder: Recorder

    __repr__ = short_repr

    @classmethod
    def of(cls, data: RegressionData, prior: Prior, device: str = "cpu", recorder: Recorder | None = None) -> Problem:
        """Make a problem with the metric that suits the prior; without a recorder no likelihood is kept."""
        recorder = NoRecord() if recorder is None else recorder
        return cls(data.to(device), prior, default_metric(prior), device, recorder)

    @property
    def seconds(self) -> float:
        """Seconds since the start of the run; every call reads the recorder's clock."""
        return self.recorder.seconds()

    def log_likelihoods(self, mixtures: GMMBatch) -> Array:
        """Log-likelihoods of mixtures on the host, shape (B,)."""

        def evaluate() -> tuple[Array]:
            placed = mixtures.to(self.device)
            return (to_host(log_likelihood(placed, self.data.X, self.data.y, basis=self.data.basis).value),)

        (values,) = self.recorder.evaluated(mixtures, False, evaluate)
        return values

    def log_likelihoods_with_gradients(self, mixtures: GMMBatch) -> tuple[Array, GMMGradient]:
        """Log-likelihoods, shape (B,), and their gradients with noise variances, all on the host."""

        def evaluate() -> Sequence[Array]:
            placed = mixtures.to(self.device)
            result = log_likelihood(placed, self.data.X, self.data.y, basis=self.data.basis, grad=True)
            assert result.grad is not None
            host = result.grad.to("cpu")
            assert host.noise_variance is not None
            return to_host(result.value), host.weights, host.means, host.scales, host.noise_variance

        values, *parts = self.recorder.evaluated(mixtures, True, evaluate)
        return values, GMMGradient(*parts)

    def surrogate(self, mixtures: GMMBatch, log_f: Array) -> Surrogate:
        """A surrogate of log f, shape (B,), at mixtures on the host; its hyper-kernels are computed on `device`."""
        return Surrogate.fit(mixtures.to(self.device), log_f, metric=self.metric, power=POWER)


def default_metric(prior: Prior) -> Metric:
    """The distance between mixtures that suits a prior.

    It is reflected where means take either sign. Where the prior leaves noise or mass free it has a term for them,
    weighted so that one prior standard deviation of their logarithm counts 0.3 of the prior spread of the frequencies.
    (Held-out log density per row, four random splits, for 0.1, 0.3 and 1: airline -4.34, -4.35, -4.45; Lake Huron
    -0.79, -0.74, -0.70.)
    """
    unit = 0.3 * float(np.linalg.norm(prior.mean_sd))
    noise_weight, mass_weight = (
        unit / part.log_sd if isinstance(part, LogNormal) else 0.0 for part in (prior.noise_variance, prior.mass)
    )
    return Metric(reflect=not prior.fold, noise_weight=noise_weight, mass_weight=mass_weight)
