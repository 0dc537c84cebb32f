"""Which columns of a table are inputs and which is the target: for a fit by options, for predictions by the model."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .._checks import Array
from .._text import listed, shortened
from ..errors import DataError
from ..inputs import ColumnNames, Inputs, check_names
from ..table_hints import is_constant, looks_like_dates, running_number
from ..tables import Table


@dataclass(frozen=True)
class Selection:
    """Columns of a table by their places: D inputs, in the model's order, and the target, if there is one."""

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
        """What a model keeps of it."""
        return ColumnNames(self.input_names, self.target_name, self.table.names, self.table.has_header)

    def X(self) -> Inputs:
        """All rows (N, D); NaN where a cell is missing."""
        places = list(self.inputs)
        return Inputs(self.table.numbers(places), self.table.origins[places])

    def whole(self) -> Array:
        """Which rows have all their inputs, shape (N,)."""
        complete: Array = np.all(np.isfinite(self.table.values[:, list(self.inputs)]), axis=1)
        return complete

    def y(self) -> Array:
        """Targets of all rows (N,); NaN where a cell is missing, or where there is no target.

        Raises
        ------
        DataError
            If the column is not numeric, or has more digits than float64 can hold beside its differences.
        """
        if self.target is None:
            return np.full(len(self.table.values), np.nan)
        if self.table.origins[self.target] != 0.0:
            raise DataError(
                f"{self.table.path}: target {shortened(self.target_name)} has more digits than a float64 number holds; "
                f"subtract {self.table.origins[self.target]:.0f} from it first"
            )
        return self.table.numbers([self.target])[:, 0].copy()


def parsed_names(option: str | None) -> tuple[str, ...] | None:
    """Names of ``--columns a,b``; a name with a comma stands in double quotes."""
    if option is None:
        return None
    names = tuple(name.strip() for name in next(csv.reader([option], skipinitialspace=True), []))
    if not names or "" in names:
        raise DataError(f"--columns: {option!r}, expected names with commas between them")
    if len(set(names)) < len(names):
        raise DataError(f"--columns: {option!r} names a column twice")
    return names


def chosen(table: Table, columns: Sequence[str] | None, target: str | None) -> Selection:
    """Columns of a fit: `target` is the last column by default, the inputs are all others or those of `columns`.

    Raises
    ------
    DataError
        For names that are no column or several, and where no input is left.
    """
    goal = len(table.names) - 1 if target is None else table.column(target)
    if columns is None:
        inputs = tuple(k for k in range(len(table.names)) if k != goal)
    else:
        inputs = tuple(table.column(name) for name in columns)
    if goal in inputs:
        cure = "name another with --target" if target is None else "leave it out of --columns"
        raise DataError(f"--columns: {shortened(table.names[goal])} is the target; {cure}")
    if not inputs:
        raise DataError(
            f"{table.path}: one column ({shortened(table.names[0])}), expected at least one input and a target"
        )
    return Selection(table, inputs, goal)


def matched(
    table: Table, names: ColumnNames, n_dims: int, columns: Sequence[str] | None, target: str | None
) -> tuple[Selection, str]:
    """Columns of a table to predict, and a note of how they were found ("" where they were matched by name).

    By `columns` if it is given, in the model's order; by name where model and table have names; else by place: those of
    the table of the fit, or just the inputs.

    Raises
    ------
    DataError
        For columns that are missing or unknown, with both lists, and for other numbers of columns.
    """
    if columns is not None:
        if len(columns) != n_dims:
            raise DataError(f"--columns: {len(columns)} names, expected {n_dims}, one for each input of the model")
        inputs = tuple(table.column(name) for name in columns)
        goal = _target(table, target or names.target, required=target is not None)
        return Selection(table, inputs, None if goal in inputs else goal), ""
    if names.features is not None and names.has_header and table.has_header:
        return _by_name(table, names, names.features, target), ""
    return _by_place(table, names, n_dims, target)


def noted(table: Table) -> Iterator[str]:
    """What the reader took where the file leaves a choice, as sentences."""
    for note in table.notes:
        yield f"{table.path}: {note}."


def remarks(selection: Selection, rows: Array) -> Iterator[str]:
    """What deserves a look among the inputs of a fit, in words; `rows` (N,) are those with all inputs."""
    table = selection.table
    for k in selection.inputs:
        values, name = table.values[rows, k], shortened(table.names[k])
        if len(values) > 1 and is_constant(values):
            yield f"Column {name} is the same in every row and tells nothing."
        elif table.has_header and name == f"column {k + 1}" and running_number(values):
            yield f"{name.capitalize()} has no name and counts the rows; it is an input (--columns chooses others)."
        if dates := looks_like_dates(values, name):
            yield f"{dates[:1].upper()}{dates[1:]}."
    if selection.target is not None and is_constant(table.values[rows, selection.target]):
        yield f"The target {shortened(selection.target_name)} is the same in every row."


def _by_name(table: Table, names: ColumnNames, features: tuple[str, ...], target: str | None) -> Selection:
    goal = _target(table, target or names.target, required=target is not None)
    left_out = {*names.table, names.target} - {*features}
    others = [name for k, name in enumerate(table.names) if k != goal and name not in left_out]
    cure = "; --columns names the inputs in the model's order"
    try:
        check_names(others, features, table.path, cure)
    except ValueError as error:
        raise DataError(str(error)) from None
    if len(set(features)) < len(features):  # in the model's order, as was checked
        return Selection(table, tuple(k for k in range(len(table.names)) if table.names[k] in features), goal)
    return Selection(table, tuple(table.column(name) for name in features), goal)


def _by_place(table: Table, names: ColumnNames, n_dims: int, target: str | None) -> tuple[Selection, str]:
    width = len(table.names)
    why = "the model holds no names" if names.features is None or not names.has_header else "the table has no header"
    goal = _target(table, target, required=True)
    if width == n_dims and goal is None:
        inputs: Sequence[int] = range(n_dims)
        how = "its columns are the model's inputs in their order"
    elif names.features is not None and width == len(names.table) == len(set(names.table)):
        inputs = [names.table.index(name) for name in names.features]
        goal = names.table.index(names.target or "") if goal is None else goal
        how = "its columns are those of the table that was fitted, in their order"
    elif not names.table and width == n_dims + 1:
        goal = width - 1 if goal is None else goal
        inputs = [k for k in range(width) if k != goal]
        how = f"the target is {shortened(table.names[goal])}, the other columns are the model's inputs in their order"
    else:
        whole = (
            f", or the {len(names.table)} of the table that was fitted" if names.table else ", with or without a target"
        )
        columns = "1 column" if width == 1 else f"{width} columns"
        raise DataError(
            f"{table.path}: {columns} ({listed(table.names)}), expected the model's {n_dims} "
            f"input{'s' if n_dims > 1 else ''} ({listed(names.features or ())}){whole}; {why}"
        )
    return Selection(table, tuple(inputs), goal), f"{table.path}: {why}; {how}."


def _target(table: Table, name: str | None, *, required: bool) -> int | None:
    if name is None or (not required and name not in table.names):
        return None
    return table.column(name)
