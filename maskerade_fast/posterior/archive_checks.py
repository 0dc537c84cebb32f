"""Checks of the numbers of a saved posterior, after those of shapes and types.

A file that was edited, or damaged under a new checksum, may hold well-formed arrays of impossible numbers:
probabilities above 1, pair weights that are no covariance. Much later they would give predictions of NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._checks import Array, check_finite, check_size

_ROUNDING = 1e-6  # of sums of probabilities, which were divided by their total
_FACTOR = 1e-8  # of the largest pair weight: as far as `combine_gaussians` allows F F^T to differ from W
_LARGEST_FREQUENCY = 1e75  # per standardised x; its fourth power does not overflow
_LARGEST = 1e150  # of units; their squares and inverses neither overflow nor vanish


def check_values(parts: dict[str, Any]) -> None:
    """Raise ValueError for numbers that no posterior has, with the part, the number and what was expected.

    Parameters
    ----------
    parts : dict
        The fields of a posterior from `posterior_archive.from_arrays`; their shapes fit each other.
    """
    _check_units(parts["standardiser"])
    check_size(np.asarray(parts["data_standardised"].X), "X")
    check_size(np.asarray(parts["data_standardised"].y), "y")
    log_likelihoods = np.asarray(parts["log_likelihoods"])
    _require(log_likelihoods < np.inf, log_likelihoods, "log_likelihoods", "a number below infinity")
    _require(log_likelihoods.max() > -np.inf, log_likelihoods.max(), "log_likelihoods", "a finite number among them")
    evidence, sd = float(parts["log_evidence"]), float(parts["log_evidence_sd"])
    _require(evidence < np.inf, evidence, "log_evidence", "a number below infinity")
    _require(sd >= 0.0, sd, "log_evidence_sd", "a number >= 0")
    for name in ("component_probabilities", "node_probabilities"):
        _check_probabilities(np.asarray(parts[name]), name)
    largest = len(parts["component_probabilities"])
    for name in ("mixtures", "nodes"):
        g = parts[f"{name}_standardised"]
        sizes = g.n_components
        _require(sizes <= largest, sizes, f"{name}: components", f"at most {largest}, as component_probabilities has")
        _require(g.noise_variances is not None, None, f"{name}: noise_variances", "one a mixture")
        for part in ("means", "scales"):
            check_size(getattr(g, part), f"{name}: {part}", _LARGEST_FREQUENCY)
    _check_pairs(np.asarray(parts["pair_weights"]), np.asarray(parts["factor"]))
    _check_history(np.asarray(parts["history"]))


def _check_units(units: Any) -> None:
    """Bounds within which numbers can be converted in both directions and squared."""
    for name in ("x_range", "y_scale"):
        value = np.asarray(getattr(units, name), dtype=np.float64)
        good = (value >= 1.0 / _LARGEST) & (value <= _LARGEST)
        _require(good, value, name, f"between {1.0 / _LARGEST:g} and {_LARGEST:g}")
    for name in ("x_min", "x_origin", "y_mean"):
        value = np.asarray(getattr(units, name), dtype=np.float64)
        _require(np.abs(value) <= _LARGEST, value, name, f"a number up to {_LARGEST:g}")


def _check_probabilities(values: Array, name: str) -> None:
    _require((values >= 0.0) & (values <= 1.0 + _ROUNDING), values, name, "a probability")
    _require(abs(float(values.sum()) - 1.0) <= _ROUNDING, float(values.sum()), f"the sum of {name}", "1")


def _check_pairs(weights: Array, factor: Array) -> None:
    """W is symmetric, has sum 1 and equals F F^T: so no density is negative."""
    check_finite(weights, "pair_weights")
    check_finite(factor, "factor")
    check_size(weights, "pair_weights")
    check_size(factor, "factor", 1e75)  # its products are finite
    largest = float(np.abs(weights).max())
    asymmetry = float(np.abs(weights - weights.T).max())
    _require(asymmetry <= _FACTOR * largest, asymmetry, "pair_weights less its transpose", "0")
    total = float(weights.sum())
    _require(abs(total - 1.0) <= _ROUNDING * max(1.0, largest), total, "the sum of pair_weights", "1")
    gap = float(np.abs(factor @ factor.T - weights).max())
    _require(gap <= _FACTOR * largest, gap, "factor: F F^T less pair_weights", "0")


def _check_history(rows: Array) -> None:
    """Whole counts, seconds, log evidence, its sd and the best log-likelihood of each batch."""
    _require(len(rows) > 0, len(rows), "history: rows", "one for each batch")
    counts, seconds, rest = rows[:, :2], rows[:, 2], rows[:, 3:]
    whole = (counts >= 0.0) & (counts < 2.0**53) & (counts == np.floor(np.where(np.isfinite(counts), counts, 0.0)))
    _require(whole, counts, "history: counts", "whole numbers >= 0")
    _require((seconds >= 0.0) & (seconds < np.inf), seconds, "history: seconds", "finite numbers >= 0")
    _require(rest == rest, rest, "history", "no NaN")
    _require(rest[:, 2] < np.inf, rest[:, 2], "history: best log-likelihood", "numbers below infinity")
    for name, column in (("evaluations", counts[:, 0]), ("seconds", seconds)):
        _require(np.diff(column) >= 0.0, np.diff(column), f"history: steps of {name}", "none below 0")
    _require(rest[:, 1] >= 0.0, rest[:, 1], "history: log_evidence_sd", "numbers >= 0")


def _require(good: Any, values: Any, name: str, expected: str) -> None:
    """Raise ValueError with the first of `values` that is not `good`."""
    good = np.asarray(good)
    if not good.all():
        values = np.asarray(values)
        value = values[np.unravel_index(int(np.argmin(good)), good.shape)] if good.ndim else values
        raise ValueError(f"{name}: {value}, expected {expected}")
