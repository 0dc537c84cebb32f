"""Digits of tables that float64 does not hold: taken off exactly, or refused by row."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from commands import table_of
from numpy.testing import assert_array_equal

from maskerade_fast import DataError


@pytest.mark.parametrize("step", [10**9, 1000, 300, 1, 7 * 10**14])
@pytest.mark.parametrize("unit", ["{}", "{}.0", "{}000000e-6", "-{}"])
def test_c39_integer_nanoseconds(tmp_path: Path, step: int, unit: str) -> None:
    n = 90
    x = [17 * 10**17 + k * step for k in range(n)]
    rows = "".join(f"{unit.format(stamp)},{k % 6}\n" for k, stamp in enumerate(x))
    table = table_of(tmp_path, "ns,y\n" + rows)
    sign = -1 if unit[0] == "-" else 1
    assert_array_equal(table.values[:, 0] - table.values[0, 0], [sign * float(k * step) for k in range(n)])
    for k in range(n):
        assert int(table.origins[0]) + int(table.values[k, 0]) == sign * x[k]
    assert table.origins[1] == 0.0
    assert any("was taken off ns, so that float64 holds its digits" in note for note in table.notes)


@pytest.mark.parametrize(
    "cells",
    [
        ["1700000000.000000001", "1700000000.000000002", "1700000000.000000005"],
        ["2450000,12345678901", "2450000,5", "NA", "2450000,75000000001"],
        ["-1e18", "-1000000000000000001.5", "-1000000000000000003"],
        ["123456789012345678901234567890", "123456789012345678901234567891", "123456789012345678901234567899.25"],
    ],
)
def test_digits_beyond_float64(tmp_path: Path, cells: list[str]) -> None:
    table = table_of(tmp_path, "t;y\n" + "".join(f"{cell};{k}\n" for k, cell in enumerate(cells)))
    assert table.origins[0] == np.floor(table.origins[0]) != 0.0
    for cell, value in zip(cells, table.values[:, 0], strict=True):
        if cell == "NA":
            assert np.isnan(value)
        else:
            assert value == float(Fraction(cell.replace(",", ".")) - Fraction(float(table.origins[0])))


def test_other_columns_keep_their_bits(tmp_path: Path) -> None:
    """Also exact ones far from 0, constants, and large numbers of a large range."""
    columns = [
        ["1950.0833333333333", "1951.1666666666667", "1960.25"],
        ["2251799813685248", "2251799813685248.5", "2251799813685249"],
        ["0.1", "0.1", "0.10"],
        ["1700000000000000001", "1700000000000000001", "1700000000000000001"],
        ["-1e150", "0.7e150", "3"],
        ["1e17", "900000000000000001", "300000000000000001"],
        ["1700000000.5", "1700000000.25", "1700000001"],
    ]
    rows = "".join(",".join(row) + "\n" for row in zip(*columns, strict=True))
    table = table_of(tmp_path, rows)
    assert_array_equal(table.values.T, [[float(cell) for cell in column] for column in columns])
    assert_array_equal(table.origins, np.zeros(len(columns)))


@pytest.mark.parametrize("form", ["{!r}", "{:.17g}", "{:.18e}", "{:.6f}"])
def test_digits_of_float64_numbers_are_no_longer_ones(tmp_path: Path, form: str) -> None:
    """Columns as NumPy and pandas write them keep their bits, also of a short span far from 0: a grid stays one."""
    for x in (2004.88887 + 0.000114 * np.arange(300), 1_700_000_000.1 + 0.25 * np.arange(300)):
        cells = [form.format(float(value)) for value in x]
        table = table_of(tmp_path, "x,y\n" + "".join(f"{cell},{k}\n" for k, cell in enumerate(cells)))
        assert_array_equal(table.origins, np.zeros(2))
        assert_array_equal(table.values[:, 0], [float(cell) for cell in cells])


def test_too_many_digits_are_refused_by_row(tmp_path: Path) -> None:
    long = "1700000000000000001." + "3" * 2000
    table = table_of(tmp_path, f"t,y\n1700000000000000000,1\n{long},2\n")
    message = f"{tmp_path / 'data.csv'}, line 3, column 't': '17000000000000000"
    assert table.problems[0].startswith(message)
    assert table.problems[0].endswith("expected at most 1000 characters; round it")
    assert_array_equal(table.numbers([1]), [[1.0], [2.0]])


STAMPS = [1_700_000_000_000_000_000 + 300 * i for i in range(9)]


def column(cells: Iterable[object]) -> str:
    return "t,y\n" + "".join(f"{cell},{k}\n" for k, cell in enumerate(cells))


@pytest.mark.parametrize(
    "cells",
    [
        ["1700000000000000300"],
        ["1700000000000000300"] * 3,
        ["0", "5", "NA", "1700000000000000300"],
        ["1700000000000000300", '"1700000000000000301.25"', "1.7e18", "17000000000000003D2"],
        ["1.5", "-2", "0", "1e-400"],
    ],
)
@pytest.mark.parametrize("origin", [1.7e18, 0.0, -3.0, 0.1])
def test_differences_from_another_origin_are_rounded_once(tmp_path: Path, cells: list[str], origin: float) -> None:
    table = table_of(tmp_path, column(cells))
    differences = table.less([1, 0], np.array([0.0, origin]))
    assert_array_equal(differences[:, 0], np.arange(float(len(cells))))
    for cell, value in zip(cells, differences[:, 1], strict=True):
        if cell == "NA":
            assert np.isnan(value)
        else:
            assert value == float(Fraction(cell.strip('"').replace("D", "e")) - Fraction(origin))


def test_other_origins_are_checked(tmp_path: Path) -> None:
    table = table_of(tmp_path, "t,u,y\n1,red,0." + "1" * 2000 + "\n2,blue,3\n")
    with pytest.raises(ValueError, match=r"origins: shape \(1,\), expected \(2,\), one for each column"):
        table.less([0, 2], np.zeros(1))
    with pytest.raises(ValueError, match="origins"):
        table.less([0], np.array([np.nan]))
    with pytest.raises(DataError, match="line 2, column 'u': 'red'"):
        table.less([1], np.zeros(1))
    with pytest.raises(DataError, match=r"line 2, column 'y': .*expected at most 1000 characters; round it"):
        table.less([2], np.ones(1))


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        ([10**40 + 300 * i for i in range(9)], 2),
        ([10**60 + 300 * i for i in range(9)], 2),
        ([0, *(10**18 + 300 * i for i in range(1, 9))], 3),
        ([16 * 10**17 + 1, *STAMPS], 4),
        ([0, *(f"1700000000.{i:09d}" for i in range(9))], 4),
        ([-5, 5, 2**53 + 1, 2**53], 4),
    ],
)
def test_digits_that_are_lost_are_refused_by_row(tmp_path: Path, cells: list[object], line: int) -> None:
    """No origin holds all of them; less that of a model the rows near it are exact."""
    table = table_of(tmp_path, column(cells))
    with pytest.raises(
        DataError, match=f"line {line}, column 't': .* has more digits than .*; split the file"
    ) as caught:
        table.numbers([0])
    assert str(caught.value) == table.lost[0]
    assert table.problems == {}
    with pytest.raises(DataError, match="more digits"):
        table.without_origin(0)
    near = float(Fraction(str(cells[-1])))
    for cell, value in zip(cells, table.less([0], np.array([near]))[:, 0], strict=True):
        assert value == float(Fraction(str(cell)) - Fraction(near))


def floats(low: float, high: float, count: int = 2000) -> list[float]:
    return [float(x) for x in np.random.default_rng(3).uniform(low, high, count)]


@pytest.mark.parametrize(
    "cells",
    [
        ["1.989e30", "1.99e30", "1.991e30"],
        [repr(x) for x in floats(1e16, 4e16)],
        [f"{x:.17g}" for x in floats(1e16, 4e16)],
        [f"{x:.3f}" for x in floats(1e16, 4e16)],
        [repr(x) for x in floats(-1e150, 1e150)],
        [f"{x:.18e}" for x in floats(0.0, 1.0)],
        [f"{x:.25f}" for x in floats(0.0, 1.0)],
        [str(int(x) + 1) for x in floats(1e16, 4e16)],
        [f"{x!r}123" for x in floats(0.1, 1.0)],
        ["1", "2", "1000000000000000001"],
        ["1700000000000000001"] * 3,
    ],
)
def test_ordinary_columns_keep_their_bits_without_a_note(tmp_path: Path, cells: list[str]) -> None:
    table = table_of(tmp_path, column(cells))
    assert (table.lost, table.notes, table.origins[0]) == ({}, (), 0.0)
    assert_array_equal(table.numbers([0])[:, 0], [float(cell) for cell in cells])
    assert_array_equal(table.without_origin(0), [float(cell) for cell in cells])


def test_exact_stamps_need_no_origin_as_targets(tmp_path: Path) -> None:
    """They have one as inputs, for stamps between them; less nothing they are what they are."""
    table = table_of(tmp_path, column([17 * 10**17 + 10**9 * i for i in range(9)]))
    assert table.origins[0] == 1.7e18
    assert_array_equal(table.without_origin(0), [float(17 * 10**17 + 10**9 * i) for i in range(9)])
    with pytest.raises(DataError, match="more digits"):
        table_of(tmp_path, column(STAMPS)).without_origin(0)
