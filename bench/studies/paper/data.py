"""Data sets, and how rows are held out: the same splits for every method, numbered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import ROOT
from maskerade_fast import GMMBatch, gram

Array = np.ndarray[Any, np.dtype[Any]]

SOLAR_STARTS, SOLAR_RUN = (16, 92, 166, 242, 316), 20  # rows that the published code withholds from the solar series
_FOLDS = 5
_RECOVERY = 20_220_328  # seed of the synthetic data


@dataclass(frozen=True)
class Split:
    """Rows to learn from and rows held out: X (N, D), y (N,), X_new (M, D), y_new (M,)."""

    X: Array
    y: Array
    X_new: Array
    y_new: Array

    @property
    def y_scale(self) -> float:
        """What standardised errors and densities are in: the population sd of the training targets."""
        return float(self.y.std())


class Absent(Exception):
    """A data set that is not in the folder."""


def load(name: str, folder: Path | None) -> Array:
    """All rows of a set, the target last.

    Raises
    ------
    Absent
        With the cause in a line.
    """
    if name == "airline":  # comes with the package
        folder = ROOT / "examples"
    if folder is None:
        raise Absent(f"{name}: no folder of data sets, give --data-dir or set MASKERADE_DATA")
    path = folder / f"{name}.csv"
    if not path.is_file():
        raise Absent(f"{name}: no file {path}")
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    if name == "sunspots_monthly":  # months as decimals of a year to 11 digits: on a grid but for that
        table[:, 0] = np.round(table[0, 0]) + np.arange(len(table)) / 12.0
    if name == "sterling_eri":  # weekends and holidays are absent: the row's number, as the published code has it
        table[:, 0] = np.arange(len(table))
    return table


def holding_out(table: Array, test: Array) -> Split:
    """The split whose test rows have these numbers."""
    train = np.setdiff1d(np.arange(len(table)), test)
    return Split(table[train, :-1], table[train, -1], table[test, :-1], table[test, -1])


def random_tenth(table: Array, number: int) -> Split:
    """A tenth of the rows at random; the first rows of the permutation of seed `number`."""
    order = np.random.default_rng(number).permutation(len(table))
    count = int(np.ceil(0.1 * len(table)))
    test, train = table[order[:count]], table[order[count:]]
    return Split(train[:, :-1], train[:, -1], test[:, :-1], test[:, -1])


def last_tenth(table: Array, rows: int | None = None) -> Split:
    """The last tenth of the rows, from the first nine tenths or the latest `rows` of these."""
    first = len(table) - int(np.ceil(0.1 * len(table)))
    begin = 0 if rows is None else max(0, first - rows)
    return Split(table[begin:first, :-1], table[begin:first, -1], table[first:, :-1], table[first:, -1])


def fold(table: Array, number: int) -> Split:
    """Number 5 r + k: the k-th of five folds of the r-th permutation, as in the protocol of BaNK."""
    order = np.random.default_rng(number // _FOLDS).permutation(len(table))
    return holding_out(table, np.sort(np.array_split(order, _FOLDS)[number % _FOLDS]))


def withheld_runs(table: Array) -> Split:
    """Five runs of 20 rows."""
    if len(table) < SOLAR_STARTS[-1] + SOLAR_RUN:
        raise ValueError(f"table: {len(table)} rows, expected those of the solar series, 391")
    return holding_out(table, np.concatenate([start + np.arange(SOLAR_RUN) for start in SOLAR_STARTS]))


def from_five_components(number: int = 0) -> tuple[Split, tuple[Array, Array, Array]]:
    """150 points on [-5, 5] drawn from a kernel of five components, noise sd 0.01; the middle third is held out.

    Returns
    -------
    split, (weights, means, scales)
        The kernel in cycles per unit of x, as in the published code's experiment of this name (the draw is ours).
    """
    weights, means, scales = (
        np.array([0.35, 0.65, 0.1, 0.6, 0.3]),
        np.array([0.5, 1.0, 0.25, 1.6, 0.9]),
        np.array([0.1, 0.05, 0.075, 0.15, 0.4]),
    )
    x = np.linspace(-5.0, 5.0, 150)
    rng = np.random.default_rng([_RECOVERY, number])
    K = np.asarray(gram(GMMBatch.from_list([(weights, means, scales)]), x))[0]
    values, vectors = np.linalg.eigh(K)
    y = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=len(x))) + 0.01 * rng.normal(size=len(x))
    return holding_out(np.column_stack([x, y]), np.arange(50, 100)), (weights, means, scales)
