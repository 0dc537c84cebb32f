"""How a split is fitted in each mode, and the figures that a fit gets.

``default`` is `marginalise` as it is. ``paper`` is the paper's recipe: its prior with unit mass and a noise variance of
1e-3, nodes and candidates from the prior, mutual information, no trend.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy.stats import norm

import maskerade_fast as mf
from bench.studies.yardsticks import map_kernel
from maskerade_fast.adaptive.counted_posterior import CountedPosterior
from maskerade_fast.model.data import RegressionData
from maskerade_fast.model.units import Standardiser
from maskerade_fast.quadrature.problem import Problem

from .data import Array, Split
from .harness import Row

MODES = ("paper", "default")
PAPER_NOISE = 1e-3
_CALIBRATED_ROWS = 2000  # of more, leave-one-out predictions take minutes
_JOINT_ROWS = 1000  # more held-out rows than these have no joint density: its covariances would not fit


def fit(split: Split, mode: str, *, seed: int, components: int, nyquist: str = "average", **settings: Any) -> Any:
    """The posterior of one mode; `settings` go to `marginalise`."""
    if mode == "default":
        return mf.marginalise(split.X, split.y, max_components=components, seed=seed, device="cpu", **settings)
    prior = mf.Prior.paper(split.X, max_components=components, noise_variance=PAPER_NOISE, nyquist=nyquist)
    return mf.marginalise(split.X, split.y, prior=prior, proposals="prior", seed=seed, device="cpu", **settings)


def measured(split: Split, mode: str, **settings: Any) -> Row:
    """Figures of a fit: errors, densities and coverage of the held-out rows, evidence, counts, seconds.

    Coverage is that of the calibrated intervals (`Posterior.interval`), the model's own beside it: rows were held out
    among those that were learned from.
    """
    start = time.perf_counter()
    post = fit(split, mode, **settings)
    fitted = time.perf_counter() - start
    row = score(split, post.predict(split.X_new))
    if len(split.y) <= _CALIBRATED_ROWS:
        lower, upper = post.interval(split.X_new, [0.5, 0.9])
        row |= {"inside_50_model": row["inside_50"], "inside_90_model": row["inside_90"]}
        row["inside_50"], row["inside_90"] = np.mean((split.y_new > lower) & (split.y_new < upper), axis=1).tolist()
    if len(split.y_new) <= _JOINT_ROWS:
        joint = post.joint_log_density(split.X_new, split.y_new)
        row["log_density"] = joint + len(split.y_new) * np.log(split.y_scale)
    return {**row, **spent(post, split), "fit_seconds": fitted, "seconds": time.perf_counter() - start}


def score(split: Split, prediction: Any) -> Row:
    """Of pointwise predictions, in the target's units and standardised by the training targets.

    `rmse` is in the target's units, `standard_rmse` over the training targets' sd; `log_density_a_row` is the mean over
    rows of that of a standardised target; `inside_50` and `inside_90` are shares of rows in the central intervals.
    """
    error = float(np.sqrt(np.mean((prediction.mean - split.y_new) ** 2)))
    lower_90, lower_50, upper_50, upper_90 = prediction.quantile([0.05, 0.25, 0.75, 0.95])
    return {
        "rmse": error,
        "standard_rmse": error / split.y_scale,
        "log_density_a_row": float(np.mean(prediction.log_density(split.y_new)) + np.log(split.y_scale)),
        "inside_50": float(np.mean((split.y_new >= lower_50) & (split.y_new <= upper_50))),
        "inside_90": float(np.mean((split.y_new >= lower_90) & (split.y_new <= upper_90))),
    }


def spent(post: Any, split: Split) -> Row:
    """Evidence of the standardised targets, and what it took."""
    last = post.history[-1]
    return {
        "log_evidence": post.log_evidence + len(split.y) * np.log(split.y_scale),
        "log_evidence_sd": post.log_evidence_sd,
        "effective_draws": post.effective_sample_size,
        "evaluations": last.evaluations,
        "cost": last.cost,
        "warnings": list(post.warnings),
    }


class Gaussian:
    """Pointwise Gaussian predictions, in the form of the package's."""

    def __init__(self, mean: Array, variance: Array) -> None:
        self.mean, self.sd = np.asarray(mean, float), np.sqrt(np.maximum(np.asarray(variance, float), 1e-300))

    def quantile(self, q: Any) -> Array:
        """Shape (len(q), M)."""
        values: Array = norm.ppf(np.asarray(q)[:, None], self.mean, self.sd)
        return values

    def log_density(self, y: Array) -> Array:
        values: Array = norm.logpdf(y, self.mean, self.sd)
        return values


def best_kernel(
    split: Split,
    *,
    seed: int,
    components: int,
    trend: str,
    likelihood_only: bool,
    starts: int = 6,
    steps: int = 60,
    sizes: list[int] | None = None,
) -> tuple[Gaussian, float, Row]:
    """The single spectral mixture kernel of largest likelihood, or of largest posterior density; free noise and mass.

    Returns
    -------
    predictions of new observations, their joint log density in standardised units, what it took
    """
    data = RegressionData(split.X, split.y, trend)
    units = Standardiser.from_data(data)
    scaled = units.to_unit(data)
    target = CountedPosterior(Problem.of(scaled, mf.Prior.from_data(split.X, max_components=components)))
    rng = np.random.default_rng(seed)
    estimate = map_kernel(target, rng, starts=starts, steps=steps, sizes=sizes, likelihood_only=likelihood_only)
    best = estimate.mixtures[int(np.argmax(estimate.weights))]  # type: ignore[index]
    points = units.X_to_unit(split.X_new)
    bases: dict[str, Any] = {"basis": scaled.basis, "basis_new": scaled.basis_at(points)}
    many = len(split.y_new) > _JOINT_ROWS
    kind = "diagonal" if many else "full"
    gp: Any = mf.predict_gp(best, scaled.X, scaled.y, None, points, covariance=kind, observed=True, **bases)
    variance = gp.variance[0] if many else np.diagonal(gp.covariance[0])
    scale = split.y_scale
    joint = np.nan
    if not many:
        joint = joint_log_density(units.y_to_unit(split.y_new), gp.mean[0], gp.covariance[0])
    gaussian = Gaussian(units.y_mean + scale * gp.mean[0], scale**2 * variance)
    return gaussian, joint, {"cost": target.cost, "evaluations": target.evaluations}


def joint_log_density(y: Array, mean: Array, covariance: Array) -> float:
    """log N(y; mean, covariance); the covariance may be singular to rounding."""
    from scipy.stats import multivariate_normal

    return float(multivariate_normal.logpdf(y, mean, covariance, allow_singular=True))


def measured_kernel(split: Split, **settings: Any) -> Row:
    """Figures of the best single kernel."""
    start = time.perf_counter()
    prediction, joint, took = best_kernel(split, **settings)
    return {**score(split, prediction), "log_density": joint, **took, "seconds": time.perf_counter() - start}
