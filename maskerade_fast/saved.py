"""A posterior's parts as plain arrays, and back: what `Posterior.save` writes and `load` checks.

Nothing here knows the class: parts go by the names of its fields, and what was read is trusted only after every shape
and unit fits the others.
"""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import Any

import numpy as np

from ._checks import Array, float_array, positive, real
from .backends import to_host
from .data import RegressionData, Standardiser
from .gmm import GMMBatch

_PLAIN = (
    "log_likelihoods",
    "log_evidence",
    "log_evidence_sd",
    "component_probabilities",
    "pair_weights",
    "factor",
    "node_probabilities",
)
_HISTORY_COLUMNS = 6


def packed(posterior: Any) -> dict[str, Array]:
    """Everything a posterior rests on, in NumPy arrays by name."""
    data, rows = posterior.data_standardised, len(posterior.history)
    arrays: dict[str, Array] = {
        "X": to_host(data.X),
        "y": to_host(data.y),
        "trend": np.array(posterior.trend),
        "history": np.array([astuple(row) for row in posterior.history], dtype=float).reshape(rows, _HISTORY_COLUMNS),
        "warnings": np.array(posterior.warnings, dtype=np.str_),
    }
    for field in fields(Standardiser):
        arrays[f"standardiser_{field.name}"] = np.asarray(getattr(posterior.standardiser, field.name))
    for prefix, g in (("mixtures", posterior.mixtures_standardised), ("nodes", posterior.nodes_standardised)):
        for field in fields(GMMBatch):
            if getattr(g, field.name) is not None:
                arrays[f"{prefix}_{field.name}"] = to_host(getattr(g, field.name))
    for name in _PLAIN:
        arrays[name] = np.asarray(getattr(posterior, name))
    return arrays


def unpacked(arrays: dict[str, Array]) -> dict[str, Any]:
    """The fields of a posterior from `packed` arrays; `history` as rows of numbers.

    Raises
    ------
    KeyError
        If an array is missing.
    ValueError, TypeError, OverflowError
        If one is not what it should be, or does not fit the others.
    """
    trend = arrays.get("trend", np.array("none"))  # files of layout 1 have none
    if trend.shape != () or arrays["warnings"].dtype.kind != "U":
        raise TypeError("trend or warnings: not text")
    history = float_array(arrays["history"], "history", ndim=2, allow="any")
    if history.shape[1] != _HISTORY_COLUMNS:
        raise ValueError(f"history: {history.shape[1]} columns, expected {_HISTORY_COLUMNS}")
    values: dict[str, Any] = {
        name: array if array.ndim else float(array) for name, array in arrays.items() if name != "trend"
    }
    parts = {
        "data_standardised": RegressionData.from_arrays(values["X"], values["y"], str(trend)),
        "standardiser": _part(Standardiser, "standardiser", values),
        "mixtures_standardised": _part(GMMBatch, "mixtures", values),
        "nodes_standardised": _part(GMMBatch, "nodes", values),
        "warnings": tuple(str(w) for w in values["warnings"]),
        "history": history,
        **{name: values[name] for name in _PLAIN},
    }
    _check_shapes(parts)
    _check_units(parts["standardiser"], parts["data_standardised"].n_dims)
    return parts


def _part(kind: type[Any], prefix: str, values: dict[str, Any]) -> Any:
    """An object of a class whose fields were saved as ``prefix_field``, those that were None left out."""
    names = [field.name for field in fields(kind) if f"{prefix}_{field.name}" in values]
    return kind(**{name: values[f"{prefix}_{name}"] for name in names})


def _check_shapes(parts: dict[str, Any]) -> None:
    """ValueError or TypeError unless arrays and mixtures fit each other."""
    mixtures, nodes, factor = parts["mixtures_standardised"], parts["nodes_standardised"], parts["factor"]
    shapes = {
        "log_likelihoods": (len(mixtures),),
        "pair_weights": (len(mixtures), len(mixtures)),
        "factor": (len(mixtures), np.shape(factor)[-1] if np.ndim(factor) else 0),
        "node_probabilities": (len(nodes),),
        "component_probabilities": np.shape(parts["component_probabilities"])[:1] or (0,),
        "log_evidence": (),
        "log_evidence_sd": (),
    }
    for name, shape in shapes.items():
        value = float_array(parts[name], name, ndim=len(shape), allow="any")
        if value.shape != shape:
            raise ValueError(f"{name}: shape {value.shape}, expected {shape}")
    n_dims = parts["data_standardised"].n_dims
    for name, g in (("mixtures", mixtures), ("nodes", nodes)):
        if g.n_dims != n_dims or len(g) == 0:
            raise ValueError(f"{name}: {len(g)} in {g.n_dims} dimensions, expected some in the {n_dims} of X")


def _check_units(units: Standardiser, n_dims: int) -> None:
    """ValueError or TypeError unless units belong to D inputs and can be converted from."""
    x_min, x_range = (float_array(getattr(units, name), name, ndim=1) for name in ("x_min", "x_range"))
    real(units.y_mean, "y_mean")
    positive(units.y_scale, "y_scale")
    if not (x_min.shape == x_range.shape == (n_dims,) and (x_range > 0.0).all()):
        raise ValueError(f"x_min, x_range: shapes {x_min.shape} and {x_range.shape}, expected ({n_dims},), ranges > 0")
