"""What columns look like: dates as integers, running numbers, constants, numbers that fall down the file."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from maskerade_fast.table_hints import is_constant, looks_like_dates, running_number, runs_backwards

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
    note = looks_like_dates(months, "a\nb")
    assert note is not None
    assert note.endswith("differences between them are not months")
    assert note.isprintable()
    assert looks_like_dates(months + 10.0, "month") is None


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
