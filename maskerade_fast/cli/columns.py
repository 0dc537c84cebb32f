"""Choice of the input and target columns of a table: by options for a fit, by the model for predictions."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .._checks import Array
from .._text import listed, shortened
from ..errors import DataError, UsageError
from ..model.inputs import ColumnNames, Inputs, check_names
from ..storage.csv_files import Table
from ..storage.csv_files.hints import is_constant, is_unnamed, looks_like_dates, running_number, sentinel


@dataclass(frozen=True)
class Selection:
    """Indices of D input columns, in the model's order, and of the target column, if there is one."""

    table: Table
    inputs: tuple[int, ...]
    target: int | None

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(self.table.names[k] for k in self.inputs)

    @property
    def target_name(self) -> str:
        """Empty where there is no target."""
        return "" if self.target is None else self.table.names[self.target]

    @property
    def names(self) -> ColumnNames:
        """The names that a model stores."""
        return ColumnNames(self.input_names, self.target_name, self.table.names, self.table.has_header)

    def X(self, origins: Array | None = None) -> Inputs:
        """Inputs of all rows (N, D), less `origins` or those of the table; NaN where a cell is missing."""
        places = list(self.inputs)
        if origins is None:
            return Inputs(self.table.numbers(places), self.table.origins[places])
        return Inputs(self.table.less(places, origins), origins)

    def whole(self) -> Array:
        """True for rows with all inputs, shape (N,)."""
        complete: Array = np.all(np.isfinite(self.table.values[:, list(self.inputs)]), axis=1)
        return complete

    def y(self, *, every_digit: bool = False) -> Array:
        """Targets of all rows (N,); NaN where a cell is missing, or where there is no target.

        With `every_digit`, DataError if float64 loses digits that matter.
        """
        if self.target is None:
            return np.full(len(self.table.values), np.nan)
        if every_digit:
            return self.table.without_origin(self.target)
        return self.table.less([self.target], np.zeros(1))[:, 0]


def parsed_names(option: str | None) -> tuple[str, ...] | None:
    """Names in ``--columns a,b``; a name with a comma is in double quotes. UsageError for no or equal names."""
    if option is None:
        return None
    cells = next(csv.reader([option], skipinitialspace=True), [])
    names = tuple(name.strip() for name in cells)
    if not names or "" in names:
        raise UsageError(f"--columns: {option!r}, expected names with commas between them")
    if len(set(names)) < len(names):
        raise UsageError(f"--columns: {option!r} names a column twice")
    return names


def chosen(table: Table, columns: Sequence[str] | None, target: str | None) -> Selection:
    """Choose the columns of a fit: the target is the last column by default, the inputs are `columns` or all others.

    Raises
    ------
    DataError
        For a name of no column or of several, and if no input is left.
    UsageError
        If the target is among `columns`.
    """
    goal = len(table.names) - 1 if target is None else table.column(target)
    if columns is None:
        inputs = tuple(k for k in range(len(table.names)) if k != goal)
    else:
        inputs = tuple(table.column(name) for name in columns)
    if goal in inputs:
        cure = "name another with --target" if target is None else "leave it out of --columns"
        raise UsageError(f"--columns: {shortened(table.names[goal])} is the target; {cure}")
    if not inputs:
        raise DataError(
            f"{table.path}: one column ({shortened(table.names[0])}), expected at least one input and a target"
        )
    return Selection(table, inputs, goal)


def matched(
    table: Table, names: ColumnNames, n_dims: int, columns: Sequence[str] | None, target: str | None
) -> tuple[Selection, str]:
    """Choose the columns of a table to predict; also a note about the choice ("" where names decided it).

    The inputs are `columns`, in the model's order, unless it is None; else they are matched by name if model and table
    have names; else by place, as in the table of the fit, or just the inputs.

    Raises
    ------
    DataError
        For columns that are missing or unknown, with both lists, and for other numbers of columns.
    UsageError
        For another number of `columns` than the model has inputs.
    """
    if columns is not None:
        if len(columns) != n_dims:
            raise UsageError(f"--columns: {len(columns)} names, expected {n_dims}, one for each input of the model")
        inputs = tuple(table.column(name) for name in columns)
        goal = _target(table, target or names.target, required=target is not None)
        return Selection(table, inputs, None if goal in inputs else goal), ""
    if names.features is not None and names.has_header and table.has_header:
        features = tuple(name.strip() for name in names.features)  # as the reader does with a table's
        return _by_name(table, names, features, target), ""
    return _by_place(table, names, n_dims, target)


def noted(table: Table) -> Iterator[str]:
    """The reader's notes as sentences."""
    for note in table.notes:
        yield f"{table.path}: {note}."


def remarks(selection: Selection, rows: Array) -> Iterator[str]:
    """Remarks on unusual inputs of a fit; `rows` (N,) is True for rows with all inputs."""
    table = selection.table
    constant = []
    for k in selection.inputs:
        values, name = table.values[rows, k], table.names[k]
        if is_constant(values):
            constant.append(name)
        elif table.has_header and is_unnamed(name, k) and running_number(values):
            yield (f"{_column(name)} has no name and counts the rows; it is an input unless --columns chooses others.")
        if dates := looks_like_dates(values, name):
            yield f"{dates[:1].upper()}{dates[1:]}."
        yield from _mark(_column(name), values)
    if constant:
        yield f"The same number in every row, which tells nothing: {listed(constant)}."
    if selection.target is not None:
        values = table.values[rows, selection.target]
        if is_constant(values):
            yield f"The target {shortened(selection.target_name)} is the same in every row."
        yield from _mark("The target", values)


def _mark(what: str, values: Array) -> Iterator[str]:
    """A remark on a number that may mean a missing one."""
    if (mark := sentinel(values)) is not None:
        yield f"{what} has {mark:g}, far from its other numbers; if it stands for a missing one, empty the cell."


def _column(name: str) -> str:
    return f"C{name[1:]}" if name.startswith("column ") else f"Column {shortened(name)}"


def _by_name(table: Table, names: ColumnNames, features: tuple[str, ...], target: str | None) -> Selection:
    if table.names == names.table and target in (None, names.target):
        inputs, goal = _places(names, features)
        return Selection(table, inputs, goal)
    goal = _target(table, target or names.target, required=target is not None)
    left_out = {*names.table, names.target} - {*features}
    others = [name for k, name in enumerate(table.names) if k != goal and name not in left_out]
    if set(features) <= set(others):
        cure = f"; --columns {','.join(features)} takes these alone"
    else:
        cure = "; --columns gives the inputs, as this table names them, in the model's order"
    try:
        check_names(others, features, table.path, cure)
    except ValueError as error:
        raise DataError(str(error)) from None
    if len(set(features)) < len(features):  # in the model's order, as was checked
        return Selection(table, tuple(k for k in range(len(table.names)) if table.names[k] in features), goal)
    return Selection(table, tuple(table.column(name) for name in features), goal)


def _places(names: ColumnNames, features: Sequence[str]) -> tuple[tuple[int, ...], int | None]:
    """Indices of inputs and target in the table of the fit; of equal names the last is the target."""
    left = list(range(len(names.table)))
    goal = max((k for k in left if names.table[k] == names.target), default=None)
    inputs = []
    for name in features:
        k = next(k for k in left if names.table[k] == name and k != goal)
        left.remove(k)
        inputs.append(k)
    return tuple(inputs), goal


def _by_place(table: Table, names: ColumnNames, n_dims: int, target: str | None) -> tuple[Selection, str]:
    width = len(table.names)
    why = "the model holds no names" if names.features is None or not names.has_header else "the table has no header"
    goal = _target(table, target, required=True)
    if goal is None and names.features is None and table.has_header:
        goal = _target(table, names.target, required=False)
    others = [k for k in range(width) if k != goal]
    inputs: Sequence[int]
    if goal is not None and len(others) == n_dims:
        inputs = others
        how = f"the target is {shortened(table.names[goal])}, the other columns are the model's inputs in their order"
    elif goal is None and width == n_dims:
        inputs = others
        how = "its columns are the model's inputs in their order"
    elif goal is None and names.features is not None and width == len(names.table):
        inputs, goal = _places(names, names.features)
        how = "its columns are those of the table that was fitted, in their order"
    elif goal is None and not names.table and names.target is None and width == n_dims + 1:
        goal, inputs = width - 1, others[:-1]
        how = f"the target is {shortened(table.names[goal])}, the other columns are the model's inputs in their order"
    else:
        whole = f", or the {len(names.table)} columns of the table that was fitted" if names.table else ""
        columns = "1 column" if width == 1 else f"{width} columns"
        features = f" ({listed(names.features)})" if names.features else ""
        raise DataError(
            f"{table.path}: {columns} ({listed(table.names)}), expected the model's {n_dims} "
            f"input{'s' if n_dims > 1 else ''}{features} in their order, and the target if --target names it{whole}; "
            f"{why}"
        )
    return Selection(table, tuple(inputs), goal), f"{table.path}: {why}; {how}."


def _target(table: Table, name: str | None, *, required: bool) -> int | None:
    if name is None or (not required and name not in table.names):
        return None
    return table.column(name)
