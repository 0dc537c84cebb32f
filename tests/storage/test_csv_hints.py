"""What columns look like: dates as integers, running numbers, constants, numbers that fall down the file."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from maskerade_fast.storage.csv_files.hints import (
    is_constant,
    is_unnamed,
    looks_like_dates,
    running_number,
    runs_backwards,
    sentinel,
)

DAYS = [datetime.datetime(2024, 1, 29, 22, 58, 57) + datetime.timedelta(days=k) for k in range(40)]


@pytest.mark.parametrize("form", ["%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S"])
def test_dates_as_integers(form: str) -> None:
    values = np.array([float(day.strftime(form)) for day in DAYS])
    note = looks_like_dates(np.append(values[::-1], np.nan), "day")
    assert note == (
        f"column 'day' holds integers like {values[0]:.0f}, which look like dates; "
        "they are taken as numbers: differences between them are not days"
    )
    values[3] += 32 * 10.0 ** (len(f"{values[0]:.0f}") - 8)  # the 63rd of January
    assert looks_like_dates(values, "day") is None


def test_months_as_integers() -> None:
    months = np.array([100.0 * (1999 + k // 12) + k % 12 + 1 for k in range(24)])
    note = str(looks_like_dates(months, "a\nb"))
    assert note.endswith("differences between them are not months")
    assert note.isprintable()
    assert looks_like_dates(months + 50.0, "month") is None


@pytest.mark.parametrize(
    "values",
    [
        [],
        [np.nan] * 9,
        [20240131.0, 20240201.0, 20240202.0, 20240203.0],  # too few
        [20240101.0 + k for k in range(20)],  # evenly spaced: differences are days
        [20230228.0, 20230229.0, 20230301.0, 20230302.0, 20230304.0],  # no 29th of February
        [19000227.0, 19000228.0, 19000229.0, 19000301.0, 19000305.0],
        [20240131.5, 20240201.0, 20240202.0, 20240203.0, 20240207.0],
        [-20240131.0, 20240201.0, 20240202.0, 20240203.0, 20240207.0],
        [202401.0, 202402.0, 202404.0, 20240203.0, 20240207.0],  # two forms
        [10240131.0, 10240201.0, 10240202.0, 10240203.0, 10240207.0],
        [1.7e18, 1.71e18, 1.72e18, 1.74e18, 1.8e18],
        [202401312560.0, 202401312359.0, 202402012359.0, 202402022359.0, 202402042359.0],
    ],
)
def test_what_does_not_look_like_dates(values: list[float]) -> None:
    assert looks_like_dates(np.array(values), "day") is None


def test_leap_days_are_dates() -> None:
    assert looks_like_dates(np.array([20000228.0, 20000229.0, 20000301.0, 20000302.0, 20000304.0]), "day") is not None


@pytest.mark.parametrize(
    ("values", "running", "constant", "backwards"),
    [
        ([1.0, 2.0, 3.0], True, False, False),
        ([0.0, 1.0, 2.0], True, False, False),
        ([2.0, 3.0, 4.0], False, False, False),
        ([1.0, 2.0, 4.0], False, False, False),
        ([1.0, np.nan, 3.0], False, False, False),
        ([3.0, 2.0, 2.0, 1.0], False, False, True),
        ([3.0, np.nan, 1.0], False, False, True),
        ([3.0, 1.0, 2.0], False, False, False),
        ([5.0, np.nan, 5.0], False, True, False),
        ([1.0], False, False, False),
        ([np.nan, np.nan], False, False, False),
        ([], False, False, False),
    ],
)
def test_running_constant_and_backwards(values: list[float], running: bool, constant: bool, backwards: bool) -> None:
    column = np.array(values)
    assert running_number(column) is running
    assert is_constant(column) is constant
    assert runs_backwards(column) is backwards


@pytest.mark.parametrize(
    ("form", "unit"), [("%y%m%d", "days"), ("%d%m%Y", "days"), ("%m%d%Y", "days"), ("%Y%j", "days")]
)
def test_dates_in_other_forms(form: str, unit: str) -> None:
    start = datetime.date(2003, 11, 20)  # the first figure of some is 0
    values = np.array([float((start + datetime.timedelta(days=3 * k)).strftime(form)) for k in range(40)])
    note = str(looks_like_dates(values, "day"))
    assert note.endswith(f"differences between them are not {unit}")
    assert looks_like_dates(values[:11], "day") is None
    assert looks_like_dates(np.append(values, 99999999.0), "day") is None


def test_weeks_and_quarters_as_integers() -> None:
    weeks = np.array([100.0 * year + week for year in (2020, 2021) for week in range(1, 53)])
    quarters = np.array([10.0 * year + quarter for year in range(2018, 2023) for quarter in range(1, 5)])
    for values, unit, shift in ((weeks, "weeks", 60.0), (quarters, "quarters", 5.0)):
        note = str(looks_like_dates(values, "t"))
        assert note.endswith(f"differences between them are not {unit}")
        assert looks_like_dates(values + shift, "t") is None


@pytest.mark.parametrize("digits", range(3, 15))
def test_plain_integers_are_no_dates(digits: int) -> None:
    rng = np.random.default_rng(digits)
    for low in (10 ** (digits - 1), 1):
        columns = rng.integers(low, 10**digits, (1000, 12)).astype(float)
        assert [column for column in columns if looks_like_dates(column, "a")] == []


@pytest.mark.parametrize(
    ("values", "stand_in"),
    [
        ([1.0, 2.0, 3.0, -9999.0, -9999.0], -9999.0),
        ([1.25, 3.0, 2.0, -99.9], -99.9),
        ([0.0, 5000.0, 300.0, -999.0], -999.0),
        ([-5.0, 10.0, 20.0, 999.9], 999.9),
        ([280.0, 290.0, 285.0, 1e20], 1e20),
        ([280.0, 290.0, 285.0, 9.96921e36], 9.96921e36),
        ([280.0, 290.0, np.nan, 285.0, -99.99], -99.99),
        ([1.0, 2.0, 99.0], None),
        ([1.0, 50.0, 99.0], None),
        ([-50.0, 20.0, -99.0], None),
        ([-5000.0, 5000.0, 300.0, -999.0], None),
        ([5.0, 6.0, 7.0, 1000.0], None),
        ([5.0, -999.0], None),
        ([], None),
    ],
)
def test_numbers_that_stand_for_missing_ones(values: list[float], stand_in: float | None) -> None:
    assert sentinel(np.array(values)) == stand_in


def test_columns_without_a_name() -> None:
    assert is_unnamed("column 2", 1)
    assert is_unnamed("Unnamed: 0", 1)
    assert not any(is_unnamed(name, 1) for name in ("column 1", "index", "Unnamed", ""))
