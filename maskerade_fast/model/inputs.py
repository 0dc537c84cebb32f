"""Inputs as users have them: arrays, data frames, integers that float64 cannot hold; with the names of their columns.

An input is kept as a float64 number beside an origin, x = origin + number. The origin is 0 unless float64 has too few
digits, as for nanoseconds since 1970: it is then taken off exactly, before anything is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks import Array, check_finite, float_array, is_cupy, plain_array, seen_by_host
from .._containers import short_repr
from .._text import listed
from ..backends import array_namespace, to_host

_MOST_EXACT = 2**53  # the integers up to here are float64 numbers
_GRAIN = 2**11  # multiples of it below 2^64 have at most 53 bits
_EPS = float(np.finfo(np.float64).eps)
_LITTLE = 1e-9  # of a range, as an error of targets
_MATTERS = 1e-12  # of a column's range: rounding that is larger is taken off with an origin


@dataclass(frozen=True, eq=False)
class Inputs:
    """N rows of D inputs.

    Parameters
    ----------
    numbers : array, shape (N, D)
        Inputs less `origins`; float64, or float32 if they came so.
    origins : array, shape (D,)
        Float64, on the host; 0 unless float64 cannot hold the column's digits.
    names : tuple of D str, optional
        Of the columns.
    """

    numbers: Array
    origins: Array
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, X: Any, name: str = "X", *, finite: bool = True) -> Inputs:
        """From an array (N, D), (N,) or, for one point of one input, a number; from a data frame, a series, or itself.

        ``finite=False`` leaves it to the caller to refuse NaN and infinity.

        Raises
        ------
        ValueError
            For other numbers of dimensions, NaN or infinity.
        TypeError
            For what is not real numbers, naming the column of a data frame, and for arrays with a unit.
        """
        if isinstance(X, Inputs):
            return X
        frame = frame_columns(X, name)
        if frame is None:
            array = plain_array(X, name)
            if finite:
                check_finite(seen_by_host(array), name)
            if array.ndim < 2:
                array = array.reshape(-1, 1)
            if array.ndim != 2:
                raise ValueError(f"{name}: expected a 1-D or 2-D array, got shape {array.shape}")
            return cls(*_exact(array, name))
        names, columns = frame
        if not columns:
            return cls(np.empty((len(X), 0)), np.empty(0), names)
        for label, column in columns:
            check_finite(column, f"{name}, column {label}" if label else name)
        parts = [_exact(column[:, None], name) for _, column in columns]
        numbers = np.hstack([numbers for numbers, _ in parts])
        return cls(np.ascontiguousarray(numbers), np.concatenate([origins for _, origins in parts]), names)

    @property
    def n_dims(self) -> int:
        """D."""
        return int(self.numbers.shape[1])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> Inputs:
        """Some rows, by a slice, a mask or indices."""
        return Inputs(self.numbers[rows], self.origins, self.names)

    def ordered_as(self, names: Sequence[str] | None, name: str = "X") -> Inputs:
        """Columns in the order of `names`; as they are where these or `names` have none.

        Raises
        ------
        ValueError
            If a column is missing or unknown, with both lists; if equal names leave it open which column is which.
        """
        if names is None or self.names is None or tuple(names) == self.names:
            return self
        check_names(self.names, names, name)
        places = [self.names.index(n) for n in names]
        return Inputs(np.ascontiguousarray(self.numbers[:, places]), self.origins[places], tuple(names))

    def relative_to(self, origins: Array) -> Array:
        """The inputs less other origins, shape (N, D); rounded once."""
        shift = self.origins - origins
        if not shift.any():
            return self.numbers
        moved: Array = self.numbers.astype(np.float64) + array_namespace(self.numbers).asarray(shift)
        return moved


@dataclass(frozen=True)
class ColumnNames:
    """Names of the columns that a model was fitted to.

    Parameters
    ----------
    features : tuple of D str, optional
        The inputs, in the model's order; None where they had no names.
    target : str, optional
    table : tuple of str
        Every column of the table that was read, in its order; empty where there was no table.
    has_header : bool
        False: the table had no header, and its columns go by their places.
    time, time_unit : str
        Which input is a time, and its unit; empty where none is.
    """

    features: tuple[str, ...] | None = None
    target: str | None = None
    table: tuple[str, ...] = ()
    has_header: bool = True
    time: str = ""
    time_unit: str = ""

    __repr__ = short_repr


UNNAMED = ColumnNames()


def check_names(names: Sequence[str], expected: Sequence[str], name: str, cure: str = "") -> None:
    """ValueError with both lists unless `names` are the `expected` names in any order, each of them once."""
    missing = [n for n in expected if n not in names]
    unknown = [n for n in names if n not in expected]
    if missing or unknown:
        parts = [f"{what} {listed(some)}" for what, some in (("missing", missing), ("unknown", unknown)) if some]
        raise ValueError(
            f"{name}: columns {listed(names) or 'none'}, expected {listed(expected)} as the model was fitted with "
            f"({'; '.join(parts)}){cure}"
        )
    if len(set(names)) < len(names) and tuple(names) != tuple(expected):
        raise ValueError(
            f"{name}: columns {listed(names)}, some of one name, expected them in the model's order: {listed(expected)}"
        )


def targets(y: Any, name: str = "y") -> tuple[Array, str | None]:
    """Targets (N,) from an array (N,) or (N, 1), a number, a series or a data frame of one column; and their name.

    Raises
    ------
    ValueError
        For several columns, NaN or infinity; for integers whose differences float64 would lose.
    TypeError
        For what is not real numbers, and for arrays with a unit.
    """
    frame = frame_columns(y, name)
    label = None
    if frame is None:
        array = plain_array(y, name)
    else:
        names, columns = frame
        if len(columns) != 1:
            raise ValueError(f"{name}: {len(columns)} columns, expected one; pass the column of the targets")
        (_, array), label = columns[0], None if names is None else names[0]
    if array.ndim == 0 or (array.ndim == 2 and array.shape[1] == 1):
        array = array.reshape(-1)
    if array.ndim == 1 and array.size and _lose_digits(array):
        raise ValueError(
            f"{name}: integers up to {_largest(array)}, too long for float64 beside their differences; "
            "subtract an offset from them first"
        )
    return float_array(array, name, ndim=1), label


def frame_columns(value: Any, name: str) -> tuple[tuple[str, ...] | None, list[tuple[str, Array]]] | None:
    """Names and labelled columns (N,) of a data frame or a series; None for anything else.

    Recognised by the methods that pandas, polars and pyarrow frames and series have; none of these packages is
    imported. Labels that are no text, such as the running numbers of unnamed columns, are names as they print; a series
    without a name has none.

    Raises
    ------
    TypeError
        For a column that does not hold real numbers, by its name; for names some of which are text and some are not;
        for a lazy frame.
    """
    kind = type(value)
    if isinstance(value, np.ndarray) or is_cupy(value):
        return None
    if hasattr(kind, "collect") and hasattr(kind, "collect_schema"):
        raise TypeError(f"{name}: a lazy frame, expected one with its numbers; call .collect() first")
    if hasattr(kind, "iloc") and hasattr(kind, "to_numpy") and hasattr(value, "columns"):  # pandas
        labels = list(value.columns)
        columns: Iterable[Any] = [value.iloc[:, k] for k in range(len(labels))]
    elif hasattr(kind, "get_columns") and hasattr(value, "columns"):  # polars
        labels, columns = list(value.columns), value.get_columns()
    elif hasattr(kind, "column_names") and hasattr(value, "column"):  # pyarrow
        labels, columns = list(value.column_names), [value.column(k) for k in range(len(value.column_names))]
    elif _is_series(value):
        labels, columns = [value.name], [value]
        if not isinstance(value.name, str):
            return None, [("", _column(value, name))]
    else:
        return None
    names = _names(labels, name)
    return names, [
        (repr(label), _column(column, f"{name}: column {label!r}"))
        for label, column in zip(names, columns, strict=True)
    ]


def _is_series(value: Any) -> bool:
    """Of pandas, polars or the like; xarray's arrays, which have coordinates and perhaps a unit, are none."""
    kind = type(value)
    one_column = hasattr(kind, "to_numpy") and hasattr(kind, "name") and len(getattr(value, "shape", ())) == 1
    return one_column and not hasattr(kind, "coords")


def _names(labels: Sequence[Any], name: str) -> tuple[str, ...]:
    """Names of a frame's columns: text as it is; other labels, as numbers or pairs, as they print."""
    text = [isinstance(label, str) for label in labels]
    if any(text) and not all(text):
        raise TypeError(
            f"{name}: columns {listed([str(label) for label in labels])}, some of which are named by text and some are "
            "not; expected all or none, as in frame.rename(columns=str)"
        )
    return tuple(map(str, labels))


def _column(column: Any, what: str) -> Array:
    """A column of a data frame as an array of real numbers; missing entries are NaN."""
    array = np.asarray(column.to_numpy())
    dtype = getattr(column, "dtype", None) or getattr(column, "type", array.dtype)
    if array.dtype == object and getattr(dtype, "kind", "") in tuple("iufb"):  # pandas' types with missing entries
        exact = None if column.isna().any() else getattr(dtype, "numpy_dtype", None)
        array = column.to_numpy(dtype=exact) if exact is not None else column.to_numpy(dtype=float, na_value=np.nan)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{what} holds {dtype}, expected real numbers; convert it to numbers or leave it out")
    return array


def _exact(array: Array, name: str) -> tuple[Array, Array]:
    """Numbers (N, D) and origins (D,) of an array of real numbers (N, D), as `Inputs` holds them."""
    origins = np.zeros(array.shape[1])
    long = array.dtype.itemsize > (8 if array.dtype.kind == "f" else 7)
    if not long or array.size == 0:
        return float_array(array, name, ndim=2, allow="any"), origins
    columns = []
    for d in range(array.shape[1]):
        column, origins[d] = (_exact_floats if array.dtype.kind == "f" else _exact_integers)(array[:, d])
        columns.append(column)
    return float_array(array_namespace(*columns).stack(columns, axis=1), name, ndim=2, allow="any"), origins


def _exact_integers(column: Array) -> tuple[Array, float]:
    """Integers of 64 bits less a multiple of 2^11 at or below the least of them, if some are beyond 2^53."""
    least = int(to_host(column.min()))
    if max(-least, int(to_host(column.max()))) <= _MOST_EXACT:
        return column.astype(np.float64), 0.0
    origin = least // _GRAIN * _GRAIN
    # differences of less than 2^64 are right in unsigned arithmetic, whatever the sign of its terms
    xp = array_namespace(column)
    shifted = column.astype(np.uint64) - xp.asarray(origin % 2**64, dtype=np.uint64)
    return shifted.astype(np.float64), float(origin)


def _exact_floats(column: Array) -> tuple[Array, float]:
    """Floats of more than 64 bits, less a whole number below the least of them if their rounding matters."""
    rounded = column.astype(np.float64)
    if not np.isfinite(rounded).all() or bool((rounded == column).all()):
        return rounded, 0.0
    step = _EPS * float(np.abs(rounded).max())
    if step <= _MATTERS * float(np.ptp(column)):
        return rounded, 0.0
    origin = float(np.floor(column.min()).astype(np.float64))
    return (column - column.dtype.type(origin)).astype(np.float64), origin


def _lose_digits(array: Array) -> bool:
    """Whether rounding to float64 changes integers by more than a little of their range."""
    numbers, origins = _exact(array[:, None], "")
    return bool(origins.any() and abs(float(origins[0])) * _EPS > _LITTLE * (numbers.max() - numbers.min()))


def _largest(array: Array) -> int:
    return max(int(to_host(array.max())), -int(to_host(array.min())))
