"""The result of `marginalise`: evidence, weights of kernels and sizes, and predictions in the user's units.

Everything is stored in standardised units (x in [0, 1], y of mean 0 and sd 1) and converted when it is returned. Data
and mixtures are on one device, which computes predictions; numbers of mixtures and of pairs of them are on the host.
"""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._checks import Array, callers_level, float_array, integer, is_cupy, one_of
from .._containers import cached_property, own_arrays
from .._text import listed, shortened
from ..backends import array_namespace, on_their_device, single_threaded_blas, to_device_of, to_host
from ..model.data import RegressionData
from ..model.gmm import GMMBatch
from ..model.inputs import UNNAMED, ColumnNames, Inputs, targets
from ..model.units import Standardiser
from ..ops.gp import GPPrediction, predict_gp
from ..ops.joint_prediction import combine_gaussians_joint
from ..ops.mixture_prediction import Prediction, combine_gaussians
from . import posterior_archive
from .bands import Band, Weighted, kernel_band, spectral_band
from .calibration import calibrated_level, left_out_probabilities
from .history import HistoryRow
from .selection import heaviest, predictive

_JOINT_BYTES = 256 * 2**20  # of covariances of new points at a time
# Most mixtures for leave-one-out predictions; fewer for more points, as the time grows with the cube of their number
_MOST_LEFT_OUT, _MANY_POINTS = 32, 2000
_FEW_NAMES = 6  # of inputs and sizes that `repr` shows


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior over spectral mixture kernels, and the predictions it implies.

    `marginalise` and `load` return it. Attributes ending in ``_standardised`` are in standardised units; the others,
    and arguments and results of methods, are in the user's units. Data, mixtures and nodes ``_standardised`` are on
    `device`, all other attributes on the host; results of methods live where their arguments do.

    Attributes
    ----------
    log_evidence, log_evidence_sd : float
        Natural log of the density of all N targets, and the sd of its error as the quadrature estimates it.
    component_probabilities : array, shape (max_components,)
        Posterior probability of each mixture size.
    mixtures : GMMBatch
        The h evaluated mixtures, with their noise variances; NumPy arrays.
    nodes : GMMBatch
        The m mixtures that give the bands of kernel and spectrum, with `node_probabilities`; NumPy arrays.
    log_likelihoods : array, shape (h,)
    pair_weights : array, shape (h, h)
        W of mathematics.md section 8, scaled to add up to 1: positive semi-definite, though single entries may be
        negative.
    effective_sample_size : float
        (sum |r|)^2 / sum r^2 of the row sums r of `pair_weights`: how many mixtures carry the predictions.
    warnings : tuple of str
        Sentences about what may be wrong with the result.
    history : tuple of HistoryRow
        One row per batch.
    columns : ColumnNames
        Of the table or data frame with the training data.
    feature_names : tuple of D str, or None
    target_name : str or None
    """

    data_standardised: RegressionData
    standardiser: Standardiser
    mixtures_standardised: GMMBatch
    log_likelihoods: Array
    log_evidence: float
    log_evidence_sd: float
    component_probabilities: Array
    pair_weights: Array
    factor: Array
    nodes_standardised: GMMBatch
    node_probabilities: Array
    warnings: tuple[str, ...]
    history: tuple[HistoryRow, ...]
    columns: ColumnNames = UNNAMED

    def __post_init__(self) -> None:
        own_arrays(self)

    def __repr__(self) -> str:
        data, probabilities = self.data_standardised, self.component_probabilities
        inputs = f"{data.n_dims} input{'' if data.n_dims == 1 else 's'}"
        if names := self.feature_names:
            shown = ", ".join(names[:_FEW_NAMES]) + (", ..." if len(names) > _FEW_NAMES else "")
            inputs += f" ({shortened(shown, 100)})"
        likeliest = np.sort(np.argsort(-probabilities, kind="stable")[:_FEW_NAMES])
        sizes = ", ".join(f"{n + 1}: {probabilities[n]:.2f}" for n in likeliest)
        named = f", target {shortened(self.target_name, 60)}" if self.target_name else ""
        return "\n  ".join(
            [
                f"Posterior of {data.n_points} rows of {inputs}{named}",
                f"trend: {self.trend}",
                f"log evidence: {self.log_evidence:.2f} ± {self.log_evidence_sd:.2g}",
                f"probabilities of numbers of components: {sizes}{', ...' if self.max_components > _FEW_NAMES else ''}",
                f"mixtures: {len(self.log_likelihoods)}, of which {self.effective_sample_size:.1f} effective",
                f"warnings: {len(self.warnings) or 'none'}",
            ]
        )

    @property
    def mixtures(self) -> GMMBatch:
        return self.standardiser.mixtures_from_unit(self.mixtures_standardised.to("cpu"))

    @property
    def nodes(self) -> GMMBatch:
        return self.standardiser.mixtures_from_unit(self.nodes_standardised.to("cpu"))

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the inputs in the model's order; None where they had none."""
        return self.columns.features if self.columns.has_header else None

    @property
    def target_name(self) -> str | None:
        """Name of the target; None where it had none."""
        return self.columns.target if self.columns.has_header else None

    @property
    def trend(self) -> str:
        """Trend that is added to the Gaussian process: "none", "constant" or "linear"."""
        return self.data_standardised.trend

    @property
    def device(self) -> str:
        """Where predictions are computed: "cpu" or "gpu"."""
        return "gpu" if is_cupy(self.mixtures_standardised.weights) else "cpu"

    def to(self, device: str) -> Posterior:
        """The same posterior on "cpu" or "gpu"; itself if it is there already.

        Raises
        ------
        BackendUnavailableError
            For "gpu" where there is none, with the cause.
        """
        if one_of(device, "device", ("cpu", "gpu")) == self.device:
            return self
        return replace(
            self,
            data_standardised=self.data_standardised.to(device),
            mixtures_standardised=self.mixtures_standardised.to(device),
            nodes_standardised=self.nodes_standardised.to(device),
        )

    @property
    def effective_sample_size(self) -> float:
        rows = np.abs(self.pair_weights.sum(axis=1))
        return float(rows.sum() ** 2 / (rows @ rows))

    @property
    def max_components(self) -> int:
        """Largest mixture size considered."""
        return len(self.component_probabilities)

    @on_their_device
    @single_threaded_blas()
    def predict(self, X_new: Any, observed: bool = True) -> Prediction:
        """Predictive distribution at each new point separately.

        Parameters
        ----------
        X_new : array, shape (M, D), or (M,) or a number for D = 1; or a data frame
            A frame's columns are matched by name where the model has names.
        observed : bool
            True: of a new observation, noise included; False: of the latent function.

        Returns
        -------
        Prediction
            Computed on `device`; its results live where `X_new` does.

        Raises
        ------
        ValueError
            For another number of columns, NaN or infinity; for missing or unknown columns of a frame, with both lists.
        TypeError
            For what is not real numbers, and for arrays with a unit.

        Notes
        -----
        O(k N^2 (N + M) + k^2 M) for k mixtures. Mixtures that together have at most 1e-4 of the mass are left out, each
        with all of its pairs: without a single pair the density could be negative.
        """
        points = self._points(X_new)
        rows = self._kept
        mixtures = self.mixtures_standardised[rows]
        gp = self._data_predictions(rows, points, observed=observed)
        # A latent variance can be 0 to rounding at a data point; a Gaussian needs a width.
        least = np.finfo(float).eps * mixtures.mass[:, None]
        prediction = combine_gaussians(
            to_device_of(gp.mean, self.pair_weights[np.ix_(rows, rows)]),
            gp.mean,
            array_namespace(gp.variance).maximum(gp.variance, least),
            factor=to_device_of(gp.mean, self.factor[rows]),
        )
        return prediction.scaled(self.standardiser.y_mean, self.standardiser.y_scale).moved(points)

    @on_their_device
    @single_threaded_blas()
    def interval(self, X_new: Any, level: Any = 0.9, calibrated: bool = True) -> tuple[Array, Array]:
        """Central interval of a new observation at each point separately: its lower and its upper ends.

        Parameters
        ----------
        X_new : array, shape (M, D), or (M,) for D = 1
        level : float or array, shape (k,)
            Probability of the interval, between 0 and 1; the ends are (M,) or (k, M).
        calibrated : bool
            True: the interval that held this share of the observations in leave-one-out predictions (`calibration`),
            for points among the data. False: the model's own interval, for points beyond the data, which leave-one-out
            predictions do not tell about.

        Notes
        -----
        The first calibrated call takes O(N^3) for each of the 32 heaviest mixtures (fewer beyond 2000 points) and 32
        N^2 bytes, on the host; MemoryError if so much is not free.
        """
        level = float_array(level, "level", ndim=(0, 1), dtype=np.float64)
        levels = np.atleast_1d(to_host(level))
        if not ((levels > 0.0) & (levels < 1.0)).all():
            raise ValueError(f"level: {levels}, expected probabilities between 0 and 1")
        if calibrated:
            levels = np.array([calibrated_level(self._left_out, float(p)) for p in levels])
        prediction = self.predict(X_new)
        lower, upper = (prediction.quantile(to_device_of(prediction.mean, 0.5 + side * levels)) for side in (-0.5, 0.5))
        return (lower, upper) if level.ndim else (lower[0], upper[0])

    @on_their_device
    @single_threaded_blas()
    def joint_log_density(self, X_new: Any, y_new: Any) -> float:
        """Log density of all new observations together.

        Parameters
        ----------
        X_new : array, shape (M, D), or (M,) or a number for D = 1; or a data frame
        y_new : array, shape (M,) or (M, 1); a number for one point; a series or a data frame of one column
        """
        X_new = self._points(X_new)
        y_new = targets(y_new, "y_new")[0].astype(np.float64, copy=False)
        array_namespace(X_new, y_new)  # refuses a mixture of devices
        if len(y_new) != len(X_new):
            raise ValueError(f"y_new: {len(y_new)} values for {len(X_new)} points of X_new, expected as many")
        target = self.standardiser.y_to_unit(y_new)
        rows = self._kept
        weights = self.pair_weights[np.ix_(rows, rows)]
        if np.count_nonzero(weights) > len(rows):
            parts = [(rows, weights, self.factor[rows])]
        else:  # an ordinary mixture: some at a time, for the covariances have M^2 entries each
            step = max(1, _JOINT_BYTES // (8 * max(len(X_new), 1) ** 2))
            pieces = [rows[i : i + step] for i in range(0, len(rows), step)]
            own = np.diag(self.pair_weights)
            parts = [(r, np.diag(own[r]), np.diag(np.sqrt(own[r]))) for r in pieces]
        logs = []
        for some, pairs, factor in parts:
            gp = self._data_predictions(some, X_new, covariance="full", observed=True)
            y_there, W, F = (to_device_of(gp.mean, a) for a in (target, pairs, factor))
            joint = combine_gaussians_joint(W, gp.mean, gp.covariance, y_there, factor=F)
            logs.append(joint.log_density + (math.log(pairs.sum() / weights.sum()) if len(parts) > 1 else 0.0))
        return float(np.logaddexp.reduce(logs)) + self.standardiser.log_density_shift(len(y_new))

    def kernel(self, lags: Any) -> Band:
        """The kernel at `lags`, shape (L,) or a number for D = 1, or (L, D), under the posterior; units of y squared.

        It is the kernel of the process without the trend.
        """
        lags = float_array(lags, "lags", ndim=(0, 1, 2), dtype=np.float64)
        points = to_host(lags) if lags.ndim == 2 else to_host(lags).reshape(-1, 1)
        if points.shape[1] != self.data_standardised.n_dims:
            raise ValueError(f"lags: {points.shape[1]} columns, expected {self.data_standardised.n_dims}")
        return kernel_band(self._carrying_nodes, points).moved(lags)

    def spectral_density(self, frequencies: Any, axis: int = 0) -> Band:
        """Two-sided spectral density along input `axis` at `frequencies` (F,) or a number, in cycles per unit of x.

        Units of y squared per cycle per unit of x; over all frequencies it integrates to the kernel at lag 0.
        """
        frequencies = float_array(frequencies, "frequencies", ndim=(0, 1), dtype=np.float64)
        n_dims = self.data_standardised.n_dims
        axis = integer(axis, "axis", minimum=-n_dims)
        if axis >= n_dims:
            raise ValueError(f"axis: {axis}, expected an input dimension below {n_dims}")
        return spectral_band(self._carrying_nodes, to_host(frequencies).reshape(-1), axis).moved(frequencies)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one .npz file, whole or not at all; `load` reads it and returns a posterior on the CPU."""
        posterior_archive.write(path, self)

    @cached_property
    def _kept(self) -> Array:
        """Indices of the mixtures that predictions use."""
        return predictive(self.pair_weights)

    def _data_predictions(self, rows: Array, X_new: Array, **options: Any) -> GPPrediction:
        """Predictions by each of some mixtures, in standardised units."""
        data = self.data_standardised
        points = to_device_of(data.X, self.standardiser.X_to_unit(X_new))
        g = self.mixtures_standardised[rows]
        functions = data.basis_at(points)
        return predict_gp(g, data.X, data.y, None, points, basis=data.basis, basis_new=functions, **options)

    @cached_property
    def _left_out(self) -> Array:
        """Leave-one-out distribution functions at the observations, by the heaviest mixtures."""
        mass = np.maximum(self.pair_weights.sum(axis=1), 0.0)
        share = min(1.0, (_MANY_POINTS / self.data_standardised.n_points) ** 3)
        rows = np.sort(np.argsort(-mass, kind="stable")[: max(1, int(share * _MOST_LEFT_OUT))])
        return left_out_probabilities(self.mixtures_standardised[rows], mass[rows], self.data_standardised)

    @cached_property
    def _carrying_nodes(self) -> Weighted:
        """The nodes that carry all but 1e-6 of the posterior, in the user's units, on the host."""
        rows = np.sort(heaviest(self.node_probabilities, 1.0 - 1e-6))
        return Weighted(self.nodes[rows], self.node_probabilities[rows] / self.node_probabilities[rows].sum())

    def _points(self, X_new: Any) -> Array:
        """New points (M, D), less the origins of the inputs; where `X_new` lives."""
        inputs = Inputs.of(X_new, "X_new").ordered_as(self.feature_names, "X_new")
        n_dims = self.data_standardised.n_dims
        if inputs.names is not None and self.feature_names is None and n_dims > 1:
            warnings.warn(
                f"X_new: the model holds no names; columns {listed(inputs.names)} are taken by their places",
                stacklevel=callers_level(),
            )
        if inputs.n_dims != n_dims:
            one = f"; one point of {n_dims} inputs is [[...]]" if inputs.numbers.shape == (n_dims, 1) else ""
            raise ValueError(f"X_new: shape {inputs.numbers.shape}, expected (M, {n_dims}){one}")
        return inputs.relative_to(self.standardiser.x_origin).astype(np.float64, copy=False)


def load(path: str | os.PathLike[str]) -> Posterior:
    """Read a posterior that `Posterior.save` wrote; nothing in the file is ever executed.

    Raises
    ------
    DataError
        If the file is not such a file, is truncated, or was written by a newer version.
    """
    return Posterior(**posterior_archive.read(path))
