"""The archive of a posterior: its fields as plain arrays in a file, and the fields from a file.

The functions use the names of the fields, and not the class. Nothing that was read is used before every shape and unit
is checked against the others.
"""

from __future__ import annotations

import os
from dataclasses import asdict, astuple, fields
from typing import Any

import numpy as np

from .._checks import Array, float_array, positive, real
from .._text import shortened
from ..backends import to_host
from ..errors import DataError
from ..model.data import RegressionData
from ..model.gmm import GMMBatch
from ..model.inputs import ColumnNames
from ..model.units import Standardiser
from ..storage.archive import load_arrays, save_arrays
from .archive_checks import check_values
from .history import HistoryRow

_PLAIN = (
    *("log_likelihoods", "log_evidence", "log_evidence_sd", "component_probabilities"),
    *("pair_weights", "factor", "node_probabilities"),
)
_KIND = "posterior"
_ARCHIVE_VERSION = 3  # of the layout; a newer one is refused
_HISTORY_COLUMNS = 6
_TEXTS = (
    *("trend", "warnings", "columns_features", "columns_target"),
    *("columns_table", "columns_time", "columns_time_unit"),
)


def write(path: str | os.PathLike[str], posterior: Any) -> None:
    """Write the fields of a posterior; see `Posterior.save`."""
    save_arrays(path, to_arrays(posterior), kind=_KIND, version=_ARCHIVE_VERSION)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and check the fields of a posterior; DataError in one line for any fault of the file."""
    arrays = load_arrays(path, kind=_KIND, version=_ARCHIVE_VERSION)
    try:
        parts = from_arrays(arrays)
        rows = (HistoryRow(int(r[0]), int(r[1]), *map(float, r[2:])) for r in parts["history"])
        return {**parts, "history": tuple(rows)}
    except KeyError as error:
        raise DataError(f"{path}: not a complete saved posterior (it lacks {error})") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{path}: not a complete saved posterior ({shortened(str(error), 200)})") from None


def to_arrays(posterior: Any) -> dict[str, Array]:
    """The fields of a posterior in NumPy arrays by name."""
    data, rows = posterior.data_standardised, len(posterior.history)
    arrays: dict[str, Array] = {
        "X": to_host(data.X),
        "y": to_host(data.y),
        "trend": np.array(posterior.trend),
        "history": np.array([astuple(row) for row in posterior.history], dtype=float).reshape(rows, _HISTORY_COLUMNS),
        "warnings": np.array(posterior.warnings, dtype=np.str_),
    }
    for name, value in asdict(posterior.columns).items():
        if value is not None:
            arrays[f"columns_{name}"] = np.array(value, dtype=np.bool_ if name == "has_header" else np.str_)
    for field in fields(Standardiser):
        arrays[f"standardiser_{field.name}"] = np.asarray(getattr(posterior.standardiser, field.name))
    for prefix, g in (("mixtures", posterior.mixtures_standardised), ("nodes", posterior.nodes_standardised)):
        for field in fields(GMMBatch):
            if getattr(g, field.name) is not None:
                arrays[f"{prefix}_{field.name}"] = to_host(getattr(g, field.name))
    for name in _PLAIN:
        arrays[name] = np.asarray(getattr(posterior, name))
    return arrays


def from_arrays(arrays: dict[str, Array]) -> dict[str, Any]:
    """The fields of a posterior from the arrays of `to_arrays`; `history` as rows of numbers.

    Raises
    ------
    KeyError
        If an array is missing.
    ValueError, TypeError, OverflowError
        If an array has a wrong type, shape or value, or does not fit the others.
    """
    arrays = {"trend": np.array("none"), **arrays}  # files of layout 1 have none
    if arrays.get("columns_has_header", np.array(True)).dtype != np.bool_:
        raise TypeError("columns_has_header: expected true or false")
    for name in _TEXTS:
        shape = 1 if name in ("warnings", "columns_features", "columns_table") else 0
        if name in arrays and (arrays[name].dtype.kind != "U" or arrays[name].ndim != shape):
            raise TypeError(f"{name}: dtype {arrays[name].dtype} of shape {arrays[name].shape}, expected text")
    history = float_array(arrays["history"], "history", ndim=2, allow="any")
    if history.shape[1] != _HISTORY_COLUMNS:
        raise ValueError(f"history: {history.shape[1]} columns, expected {_HISTORY_COLUMNS}")
    values: dict[str, Any] = {
        name: array if array.ndim else float(array) for name, array in arrays.items() if name not in _TEXTS
    }
    parts = {
        "data_standardised": RegressionData(values["X"], values["y"], str(arrays["trend"])),
        "standardiser": _part(Standardiser, "standardiser", values),
        "mixtures_standardised": _part(GMMBatch, "mixtures", values),
        "nodes_standardised": _part(GMMBatch, "nodes", values),
        "warnings": _words(arrays["warnings"]),
        "history": history,
        "columns": _columns(arrays),
        **{name: values[name] for name in _PLAIN},
    }
    _check_shapes(parts)
    n_dims = parts["data_standardised"].n_dims
    _check_unit_shapes(parts["standardiser"], n_dims)
    features = parts["columns"].features
    if features is not None and len(features) != n_dims:
        raise ValueError(f"columns_features: {len(features)} names, expected {n_dims} as X has columns")
    check_values(parts)
    return parts


def _columns(arrays: dict[str, Array]) -> ColumnNames:
    """Names of columns; files of layout 2 have none."""
    saved = {field.name: arrays.get(f"columns_{field.name}") for field in fields(ColumnNames)}
    values: dict[str, Any] = {
        name: _words(array) if array.ndim else array.item() for name, array in saved.items() if array is not None
    }
    return ColumnNames(**values)


def _words(array: Array) -> tuple[str, ...]:
    return tuple(str(word) for word in array)


def _part(kind: type[Any], prefix: str, values: dict[str, Any]) -> Any:
    """An object of class `kind` from its fields, which are saved as ``prefix_field`` unless they are None."""
    names = [field.name for field in fields(kind) if f"{prefix}_{field.name}" in values]
    return kind(**{name: values[f"{prefix}_{name}"] for name in names})


def _check_shapes(parts: dict[str, Any]) -> None:
    """Raise ValueError or TypeError unless arrays and mixtures fit each other."""
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


def _check_unit_shapes(units: Standardiser, n_dims: int) -> None:
    """Raise ValueError or TypeError unless the units are numbers for D inputs and the scales positive."""
    names = ("x_min", "x_range", "x_origin")
    x_min, x_range, x_origin = (float_array(getattr(units, name), name, ndim=1) for name in names)
    real(units.y_mean, "y_mean")
    positive(units.y_scale, "y_scale")
    if not (x_min.shape == x_range.shape == x_origin.shape == (n_dims,) and (x_range > 0.0).all()):
        raise ValueError(f"x_min, x_range, x_origin: expected shapes ({n_dims},), ranges > 0")
