"""Tables as other programs and people write them: read as they were meant, or refused with a cure that helps."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from commands import table_of
from numpy.testing import assert_array_equal

from maskerade_fast import DataError
from maskerade_fast._text import listed

NAN = np.nan
LACKING = "line 1 has one name fewer than there are columns: the first column has none"
LEFT_OUT = "the last column was left out: without a name, and empty (lines end with a delimiter)"


@pytest.mark.parametrize(
    ("content", "expected", "names"),
    [
        ("2018,2019\n1,2\n", ("2019",), ("2018", "2019")),
        ("1,1990,1991\n5,6,7\n", ("1991", "1990"), ("1", "1990", "1991")),
        ("a,b\nc,d\n", ("b",), ("a", "b")),
        (" e\u0301,y\n1,2\n", ("\u00e9",), ("\u00e9", "y")),
        ("1990 1991\na 5 6\nb 6 7\n", ("1991",), ("column 1", "1990", "1991")),
        ("2018,2019\n1,2\n", (), ("column 1", "column 2")),
        ("2018,2019\n1,2\n", ("2019", "2020"), ("column 1", "column 2")),
    ],
)
def test_names_that_are_looked_for(
    tmp_path: Path, content: str, expected: tuple[str, ...], names: tuple[str, ...]
) -> None:
    table = table_of(tmp_path, content, expected=expected)
    assert table.names == names
    assert not any("was taken as names" in note for note in table.notes)


def test_a_name_in_a_row_of_data_is_reported(tmp_path: Path) -> None:
    table = table_of(tmp_path, "country,1990,1991\nred,1,2\nblue,4,5\n")
    with pytest.raises(DataError, match=r"'1990' is no column; .*; line 1 was taken as data, --header yes takes it as"):
        table.column("1990")
    with pytest.raises(DataError, match=r"'1992' is no column; there are column 1, column 2, column 3$"):
        table.column("1992")
    assert table_of(tmp_path, "cafe\u0301,y\n1,2\n").column("caf\u00e9") == 0
    assert table_of(tmp_path, "caf\u00e9,y\n1,2\n").column("cafe\u0301") == 0


@pytest.mark.parametrize(
    ("content", "names", "n_rows"),
    [
        ("# x,y\n1,2\n3,4\n", ("x", "y"), 2),
        ("# x,y\na,b\n3,4\n", ("a", "b"), 1),
        ("# x,y,z\n1,2\n3,4\n", ("1", "2"), 1),
        ("# x,y\n\n1,2\n3,4\n", ("1", "2"), 1),
    ],
)
def test_header_yes_below_a_comment(tmp_path: Path, content: str, names: tuple[str, ...], n_rows: int) -> None:
    table = table_of(tmp_path, content, header=True)
    assert (table.names, len(table.values), table.has_header) == (names, n_rows, True)
    assert ("line 1, a comment, was taken as names (x, y)" in table.notes) == (names == ("x", "y"))


@pytest.mark.parametrize(
    ("content", "lines", "problem", "notes"),
    [
        ("who,a,b\n#1,2,2\n", [2], "line 2, column 'who': '#1'", ()),
        (
            "a,b\n1,2\n#3,0\n",
            [2, 3],
            "line 3, column 'a': '#3', expected a finite number; delete the line if it is",
            (),
        ),
        ("a,b\n1,2\n// 3,0\n", [2, 3], "line 3, column 'a': '// 3'", ()),
        ("a,b\n1,2\n#3,0,1\n# x\n4,5\n%\n", [2, 5], "", ("skipped 3 comments: lines 3 to 4 and 6",)),
        ("a b\n1 2\n# 3\n4 5\n", [2, 4], "", ("cells are separated by blanks", "skipped 1 comment: line 3")),
        ("a\n1\n#3\n", [2], "", ("skipped 1 comment: line 3",)),
        ('a,b\n1,2\n#3,"\n', [2], "", ("skipped 1 comment: line 3",)),
        ("a,b\n" + "1,2\n#\n" * 9, list(range(2, 19, 2)), "", ("skipped 9 comments: lines 3, 5, 7, 9, 11 and more",)),
    ],
)
def test_rows_that_begin_as_comments(
    tmp_path: Path, content: str, lines: list[int], problem: str, notes: tuple[str, ...]
) -> None:
    table = table_of(tmp_path, content)
    assert ([line for line, _ in table._reader.rows()], table.notes) == (lines, notes)
    assert problem in table.problems.get(0, "")
    assert (0 in table.problems) == bool(problem)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ('"mpg" "cyl"\n"Mazda RX4" 21 6\n"Datsun" 22.8 4\n', ("column 1", "mpg", "cyl")),
        ('"x"\n"1" 2.5\n"2" 3.5\n', ("column 1", "x")),
        (" a b\n0 1 2\n1 3 4\n", ("column 1", "a", "b")),
        ("     0    1\n0  1.5  2.5\n1  3.5  4.5\n", ("column 1", "0", "1")),
        ("a,b\n1,2,3\n2,3,4\n", ("column 1", "a", "b")),
        ("a\tb\nr1\t2\t3\nr2\t3\t4\n", ("column 1", "a", "b")),
        ("x\n1\t2\n2\t3\n", ("column 1", "x")),
        ('"x"\n"r1",2\n"r2",3.5\n', ("column 1", "x")),
    ],
)
def test_names_of_rows_without_one_above(tmp_path: Path, content: str, names: tuple[str, ...]) -> None:
    table = table_of(tmp_path, content)
    assert (table.names, len(table.values)) == (names, 2)
    assert LACKING in table.notes
    assert np.isfinite(table.numbers(range(1, len(names)))).all()


def test_cells_of_any_length(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    table = table_of(tmp_path, "a,b\n1," + "x" * 300_000 + '\n2,"' + "y\n" * 100_000 + '"\n')
    assert_array_equal(table.numbers([0]), [[1.0], [2.0]])
    assert csv.field_size_limit() == before
    with pytest.raises(DataError, match=r"line 2: not a CSV file \(unexpected end of data\)"):
        table_of(tmp_path, 'a,b\n1,"' + "x" * 300_000)
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("begin", ["\ufeff", "\n\n", "# c\n", "\ufeff\n  \n# c\n"])
def test_lines_that_name_the_delimiter(tmp_path: Path, begin: str) -> None:
    table = table_of(tmp_path, begin + "sep=;\na;b\n1,5;2\n")
    assert table.names == ("a", "b")
    assert_array_equal(table.values, [[1.5, 2.0]])


@pytest.mark.parametrize(
    "missing",
    [".", "..", "-", "--", "\u2014", ":", "<NA>", "NaT", "#DIV/0!", "#NA", "missing", "-nan", "-1.#IND", "\\N", '=""'],
)
def test_words_for_missing_numbers(tmp_path: Path, missing: str) -> None:
    table = table_of(tmp_path, f"a,y\n1,2\n3,{missing}\n{missing},4\n")
    assert_array_equal(table.values, [[1.0, 2.0], [3.0, NAN], [NAN, 4.0]])
    assert (table.notes, table.problems, table.empty) == ((), {}, ())


def test_numbers_of_other_programs(tmp_path: Path) -> None:
    table = table_of(tmp_path, 'a;b\n3.0D+02;="0"\n-1,5d-1;="1.5"\n')
    assert "'-1,5e-1', expected decimal commas or points in one column, not both" in table.problems[0]
    assert_array_equal(table.numbers([1]), [[0.0], [1.5]])
    table = table_of(tmp_path, "a b\n3.0D+02 1d0\n-.5D-1 NA\n")
    assert_array_equal(table.values, [[300.0, 1.0], [-0.05, NAN]])


def test_delimiters_at_the_ends_of_lines(tmp_path: Path) -> None:
    for content, names in (
        ("a,b,\n1,2,\n3,NA,\n", ("a", "b")),
        ("1,2,\n3,4,\n", ("column 1", "column 2")),
        ("# a,b,\n1,2,\n3,4,\n", ("a", "b")),
    ):
        table = table_of(tmp_path, content)
        assert table.names == names
        assert table.values.shape == (2, 2)
        assert table.notes[-1] == LEFT_OUT
        assert table.less([1], np.ones(1))[0] == 1.0
    notes = table_of(tmp_path, "a,b,,,\n1,2,,,\n3,4,,,\n").notes
    assert notes == ("the last 3 columns were left out: without a name, and empty (lines end with a delimiter)",)
    table = table_of(tmp_path, "a,b,c\n1,,\n3,,\n")
    assert (table.names, table.empty, table.notes) == (("a", "b", "c"), (1, 2), ())
    assert table_of(tmp_path, "a,b,\n1,2,\n3,4,5\n").names == ("a", "b", "column 3")


def test_names_in_lists_can_be_told_apart() -> None:
    assert listed(["a", "a, in m", " b", 'x"', 'c,"d"', "e\nf"]) == 'a, "a, in m", " b", x", "c,""d""", \'e\\nf\''
