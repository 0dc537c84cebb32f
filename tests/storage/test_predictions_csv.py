"""Predictions as CSV: every row, every digit, no name twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.testing import assert_array_equal

from maskerade_fast import combine_gaussians
from maskerade_fast.model.inputs import Inputs
from maskerade_fast.storage.csv_files import read_table
from maskerade_fast.storage.predictions_csv import distinct, prediction_lines

EVERY = np.ones(2, dtype=bool)


def test_predictions_come_back(tmp_path: Path) -> None:
    X = Inputs(np.array([[0.1, 1.0], [1.0 / 3.0, 2.0]]), np.zeros(2))
    p = combine_gaussians([[1.0]], [[0.5, -0.25]], [[4.0, 1.0]])
    lines = prediction_lines(X, ("a", "b, quoted"), p, EVERY, np.array([7.0, 8.0]), "y")
    (tmp_path / "out.csv").write_text("".join(lines))
    table = read_table(tmp_path / "out.csv")
    assert table.names == ("a", "b, quoted", "y", "mean", "sd", "q05", "q25", "q50", "q75", "q95")
    columns: list[Any] = [
        X.numbers,
        [[7.0], [8.0]],
        p.mean[:, None],
        [[2.0], [1.0]],
        p.quantile([0.05, 0.25, 0.5, 0.75, 0.95]).T,
    ]
    assert_array_equal(table.values, np.hstack(columns))  # written to the last bit
    assert next(prediction_lines(X, ("a", "b"), p, EVERY)) == "a,b,mean,sd,q05,q25,q50,q75,q95\n"


def test_rows_without_a_prediction_stay() -> None:
    X = Inputs(np.array([[np.nan], [2.0], [3.0]]), np.zeros(1))
    p = combine_gaussians([[1.0]], [[0.5]], [[4.0]])
    lines = list(prediction_lines(X, ("a",), p, np.array([False, True, False]), np.array([1.0, np.nan, 2.0])))
    assert lines[1] == ",1.0" + "," * 7 + "\n"
    assert lines[2].startswith("2.0,,0.5,2.0,")
    assert lines[3] == "3.0,2.0" + "," * 7 + "\n"


def test_inputs_are_written_with_all_their_digits() -> None:
    X = Inputs(np.array([[1.0, 0.25], [3.0, 1e-9]]), np.array([1.7e18, -1.7e9]))
    p = combine_gaussians([[1.0]], [[0.5, 0.5]], [[4.0, 4.0]])
    cells = [line.split(",")[:2] for line in prediction_lines(X, ("t", "u"), p, EVERY)][1:]
    assert cells == [["1700000000000000001", "-1699999999.75"], ["1700000000000000003", "-1699999999.999999999"]]


def test_names_are_distinct() -> None:
    assert list(distinct(["a", "a", "b", "a 2", "a"])) == ["a", "a 3", "b", "a 2", "a 4"]
    assert list(distinct(["b", "a"])) == ["b", "a"]
