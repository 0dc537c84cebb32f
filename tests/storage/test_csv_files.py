"""Tables as text: right numbers in every form, or one line that names file, line and column."""

from __future__ import annotations

import contextlib
import gzip
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from maskerade_fast import DataError
from maskerade_fast.storage.archive import load_arrays
from maskerade_fast.storage.csv_files import Table, read_table
from maskerade_fast.storage.csv_files import text as table_text

NUMBERS = [[1.0, 2.0, -3.5], [4.0, 5e-3, 6.0]]
NAN = np.nan


def written(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def table_of(folder: Path, content: str | bytes, header: bool | None = None) -> Table:
    return read_table(written(folder, content), header=header)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("a,b,y\n1,2,-3.5\n4,5e-3,6\n", ("a", "b", "y")),
        ("1,2,-3.5\n4,5e-3,6\n", ("column 1", "column 2", "column 3")),
        ("a;b;y\n1;2;-3.5\n4;5e-3;6\n", ("a", "b", "y")),
        ("a\tb\ty\n1\t2\t-3.5\n4\t5e-3\t6\n", ("a", "b", "y")),
        ('"a, in m","b ""x""",y\n"1",2,-3.5\n4,5e-3,6', ("a, in m", 'b "x"', "y")),
        ("\ufeffa,b,y\r\n1,2,-3.5\r\n4,5e-3,6\r\n", ("a", "b", "y")),
        ("a, b, y\n 1, 2 , -3.5\n\n  \n4,5e-3,6\n\n", ("a", "b", "y")),
        ("a,b,y\r1,2,-3.5\r4,5e-3,6\r", ("a", "b", "y")),
        ("year,1960,1961\n1,2,-3.5\n4,5e-3,6\n", ("year", "1960", "1961")),
        ("a,,y\n1,2,-3.5\n4,5e-3,6\n", ("a", "column 2", "y")),
        ("a,a,y\n1,2,-3.5\n4,5e-3,6\n", ("a", "a", "y")),
        (gzip.compress(b"a,b,y\n1,2,-3.5\n4,5e-3,6\n", mtime=0), ("a", "b", "y")),
        ("a\tb\ty\n1\t2\t-3,5\n4\t5e-3\t6\n".encode("utf-16"), ("a", "b", "y")),
        ("\ufeffa,b,y\n1,2,-3.5\n4,5e-3,6\n".encode("utf-16-be"), ("a", "b", "y")),
        ("sep=;\na;b;y\n1;2;-3,5\n4;5e-3;6\n", ("a", "b", "y")),
        ("sep=|\r\na|b|y\r\n1|2|-3.5\r\n4|5e-3|6\r\n", ("a", "b", "y")),
        ("a b   y\n1 2 -3.5\n4 5e-3 6\n", ("a", "b", "y")),
        ("  1\t2   -3.5  \n 4  5e-3\t\t6\n", ("column 1", "column 2", "column 3")),
        ("1 2 -3,5\n4 5e-3 6,0\n", ("column 1", "column 2", "column 3")),
        ('"a b" "" y\n1 2 -3.5\n4 5e-3 6\n', ("a b", "column 2", "y")),
        ("# measured by hand\n# a b y\n1 2 -3.5\n# again\n4 5e-3 6\n", ("a", "b", "y")),
        ("#a,b,y\n1,2,-3.5\n4,5e-3,6\n", ("a", "b", "y")),
        ("#,b,y\n1,2,-3.5\n4,5e-3,6\n", ("#", "b", "y")),
        ("% a\tb\ty\n1\t2\t-3.5\n4\t5e-3\t6\n", ("a", "b", "y")),
        ("// old, names, here\na,b,y\n1,2,-3.5\n  # not a row\n4,5e-3,6\n", ("a", "b", "y")),
        ("# a, b\n1,2,-3.5\n4,5e-3,6\n", ("column 1", "column 2", "column 3")),
        ("# 7, 8, 9\n1,2,-3.5\n4,5e-3,6\n", ("column 1", "column 2", "column 3")),
        ("# a,b,y\n\n1,2,-3.5\n4,5e-3,6\n", ("column 1", "column 2", "column 3")),
        ('"1","2","-3,5"\n"4","5e-3","6"\n', ("column 1", "column 2", "column 3")),
    ],
)
def test_forms_of_a_table(tmp_path: Path, content: str | bytes, names: tuple[str, ...]) -> None:
    table = table_of(tmp_path, content)
    assert table.names == names
    assert_array_equal(table.values, NUMBERS)
    assert_array_equal(table.origins, np.zeros(3))
    assert table.problems == {}
    assert table.path == str(tmp_path / "data.csv")


@pytest.mark.parametrize("missing", ["", "NA", "n/a", "#N/A", "NaN", "null", "None", "?", " "])
def test_rows_with_missing_cells_stay(tmp_path: Path, missing: str) -> None:
    table = table_of(tmp_path, f"a,y\n1,2\n\n3,{missing}\n{missing},4\n{missing},{missing}\n5,6\n")
    assert_array_equal(table.values, [[1.0, 2.0], [3.0, NAN], [NAN, 4.0], [NAN, NAN], [5.0, 6.0]])
    assert [line for line, _ in table._reader.rows()] == [2, 4, 5, 6, 7]
    assert_array_equal(table.numbers([1]), [[2.0], [NAN], [4.0], [NAN], [6.0]])


def test_lines_are_those_on_which_rows_begin(tmp_path: Path) -> None:
    table = table_of(tmp_path, '# c\n"a\nb",y\n1,2\n\n"3\n# no comment",4\n# c\n5,6\n')
    assert table.names == ("a\nb", "y")
    assert [line for line, _ in table._reader.rows()] == [4, 6, 9]
    assert_array_equal(table.values[:, 1], [2.0, 4.0, 6.0])


def test_columns_by_name(tmp_path: Path) -> None:
    table = table_of(tmp_path, "a,y,b,b\n1,2,3,4\n")
    assert [table.column("a"), table.column("y")] == [0, 1]
    assert_array_equal(table.numbers([2, 0]), [[3.0, 1.0]])
    with pytest.raises(DataError, match=r"data\.csv: 'z' is no column; there are a, y, b, b"):
        table.column("z")
    with pytest.raises(DataError, match=r"data\.csv: 'b' is the name of several columns; there are a, y, b, b"):
        table.column("b")
    assert table_of(tmp_path, "1,2\n").column("column 2") == 1


@pytest.mark.parametrize(
    ("content", "k", "problem"),
    [
        ("a,b\n1,2\n3,red\n4,blue\n", 1, "line 3, column 'b': 'red', expected a finite number"),
        ("a,colour\n1,red\n3,blue\n", 1, "line 2, column 'colour': 'red', expected a finite number"),
        ("1,red\n3,blue\n", 1, "line 1, column 'column 2': 'red', expected a finite number"),
        ("2024-01-31,1\n2024-02-01,2\n", 0, "line 1, column 'column 1': '2024-01-31', expected a finite number"),
        ("day,y\n2024-01-31,1\n", 0, "line 2, column 'day': '2024-01-31', expected a finite number"),
        ("2024-01-31,NA\n2024-02-01,2\n", 0, "line 1, column 'column 1': '2024-01-31', expected a finite number"),
        ("a,b\n1,inf\n", 1, "line 2, column 'b': 'inf', expected a finite number"),
        ("a,b\n1,1e999\n", 1, "line 2, column 'b': '1e999', expected a finite number"),
        ("a,b\n1,1_000\n", 1, "line 2, column 'b': '1_000', expected a finite number"),
        ("a_b,b\n1,2\n1,3_000\n", 1, "line 3, column 'b': '3_000', expected a finite number"),
        ("a,b\n1\0,2\n", 0, r"line 2, column 'a': '1\x00', expected a finite number"),
        ("a,b\n1,#REF!\n", 1, "line 2, column 'b': '#REF!', expected a finite number"),
        ("b,a\n1,2\n#NUM!,3\n", 0, "line 3, column 'b': '#NUM!', expected a finite number"),
        ('a,b\n"1\n1",2\n3,"4\n5"\n', 0, r"line 2, column 'a': '1\n1', expected a finite number"),
        ("a,b\n1,5%\n", 1, "'5%', expected a finite number; write the number alone, without a sign of percent"),
        ("a,b\n1,\u22125\n", 1, "expected a finite number; write minus as -"),
        ("a,b\n1,$ 5\n", 1, "'$ 5', expected a finite number; write the number alone"),
        ("a,b\n1,5 €\n", 1, "'5 €', expected a finite number; write the number alone"),
        ("a;b\n1 234;2\n", 0, "'1 234', expected a finite number; write thousands without separators"),
        ("a;b\n1\u202f234,5;2\n", 0, "expected a finite number; write thousands without separators"),
        ("a;b\n1'234;2\n", 0, "expected a finite number; write thousands without separators"),
        ("a;b\n1,234.5;2\n", 0, "expected a finite number; write thousands without separators"),
        ("a;b\n1.234,56;2\n", 0, "expected a finite number; write thousands without separators"),
        ("a;b\n1,234,567;2\n", 0, "expected a finite number; write thousands without separators"),
        ('a,b\n2,"1,234.5"\n', 1, "expected a finite number; write thousands without separators"),
        ("y\n1 234\n5 678\n", 0, "line 2, column 'y': '1 234', expected a finite number; write thousands"),
        ("1 234,5 678\n2 345,6 789\n", 0, "expected a finite number; write thousands without separators"),
        (
            "1,234;5,678\n2,345;6,789\n",
            0,
            "line 1, column 'column 1': '1,234', which may be 1234 or 1.234; write decimals",
        ),
        ('a,b\n1,"1,234"\n2,"2,345"\n', 1, "line 2, column 'b': '1,234', which may be 1234 or 1.234; write decimals"),
        (
            "a;b\n1;1,5\n2;2.5\n",
            1,
            "line 3, column 'b': '2.5', expected decimal commas or points in one column, not both",
        ),
        (
            "a;b\n1.234;1,5\n2.345;2,5\n",
            0,
            "'1.234', which may be 1234 or 1.234 beside decimal commas in b; write decimals",
        ),
    ],
)
def test_columns_that_are_not_numeric(tmp_path: Path, content: str, k: int, problem: str) -> None:
    """They are complained of when they are used; the others may be used."""
    table = table_of(tmp_path, content)
    assert problem in table.problems[k]
    assert np.isnan(table.values[:, k]).all()
    with pytest.raises(DataError) as caught:
        table.numbers([k])
    assert str(caught.value) == table.problems[k]
    assert str(caught.value).startswith(f"{tmp_path / 'data.csv'}")
    assert str(caught.value).isprintable()
    others = [j for j in range(len(table.names)) if j not in table.problems]
    assert np.isfinite(table.numbers(others)).all() or "NA" in content


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ("1,5;2,5\n3,5;4,5\n", [[1.5, 2.5], [3.5, 4.5]]),
        ("a;b\n1,234;0\n2,345;5,67\n", [[1.234, 0.0], [2.345, 5.67]]),  # the second column tells
        ("a;b\n0,234;1\n-,5;2\n", [[0.234, 1.0], [-0.5, 2.0]]),
        ("a\tb\n1234,567\t1\n1e2\t2\n", [[1234.567, 1.0], [100.0, 2.0]]),
        ("a b\n1,5 2,5\n-1,5e-3 ?\n", [[1.5, 2.5], [-1.5e-3, NAN]]),
        ("a;b\n1,5;2.5\n2,5;3.5\n", [[1.5, 2.5], [2.5, 3.5]]),  # each column in its own way
    ],
)
def test_decimal_commas(tmp_path: Path, content: str, values: list[list[float]]) -> None:
    table = table_of(tmp_path, content)
    assert_array_equal(table.values, values)
    assert any(note.startswith("commas were taken as decimal ones in ") for note in table.notes)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("lat lon,v\n12 5,3\n13 6,4\n", ("lat lon", "v")),
        ("12 5,3\n13 6,4\n", ("column 1", "column 2")),
        ("a;b, c\nx,y;2\nz,w;3\n", ("a", "b, c")),
        ("city,v\nNew York,8\nLos Angeles,4\n", ("city", "v")),
        ("day\tv\n2024-01-31 12:00\t8,5\n2024-02-01 12:00\t4\n", ("day", "v")),
        ("2024-01-31 12:00 8.5\n2024-02-01 12:00 4\n", ("column 1", "column 2", "column 3")),
        ("year\tmean unc\n1958 \t 1 2\n1959\t3   4\n", ("year", "mean", "unc")),
        ("New York\nLos Angeles\nSan Francisco\n", ("New York",)),
        ("a\tb\tc\n1\t\t3\n\t2\t\n", ("a", "b", "c")),
    ],
)
def test_what_separates_cells(tmp_path: Path, content: str, names: tuple[str, ...]) -> None:
    assert table_of(tmp_path, content).names == names


NAMES, DATA = "was taken as names", "was taken as data"


@pytest.mark.parametrize(
    ("content", "has_header", "note"),
    [
        ("2018,2019\n1.5,2.5\n2.5,0.5\n", True, NAMES),  # C44
        ("2018,2019\n1,2\n3,4\n5,6\n", True, NAMES),
        ("2018,2019\n150000,160000\n151000,161000\n", True, NAMES),
        ("2019,2018,2017\n-1,0.5,1\n0,NA,3\n1,2,4\n", True, NAMES),
        (",2018,2019\nnorth,1.5,2.5\nsouth,2.5,3.5\n", True, NAMES),
        ("2019,y\n1,NA\n2,3\n", True, NAMES),  # C44
        ("2019,y\n1,\n2,\n", True, NAMES),
        ("y,2019\n" + "NA,1\n" * 300 + "5,2\n", True, NAMES),
        ("year,2018,name\n1,2,red\n", True, NAMES),
        (",0,1\n0,1.5,2.5\n1,2.5,3.5\n", True, NAMES),  # as a data frame is written without names
        ("2018,2019\n1,\n2,\n", True, NAMES),
        ("2018,2020,2019\n1,0,3\n2,2,2\n", True, NAMES),
        ("20240131,20240229\n1.5,2.5\n1,2\n", True, NAMES),
        ("201712,201801\n1,2\n3,4\n", True, NAMES),
        (",5%,95%\n1,2,3\n", True, ""),
        ("2018,2019\n1,2\n", False, DATA),
        ("2018,2019\n1,20000\n-30000,5\n20000,-10000\n", False, DATA),
        ("350.5,351.0,351.5\n0.1,0.2,0.3\n0.2,0.1,0.2\n", False, DATA),
        ("1 234;5 678\n900;800\n", False, DATA),
        ("$5,$6\n4,2\n", False, DATA),
        ("inf,inf\n4,2\n", False, DATA),
        ("1_000,2\n4,2\n", False, DATA),
        ("0,1\n0.5,2.5\n1.5,3.5\n", False, DATA),
        ("10,20,30\n1.5,2.5,3.5\n2.5,3.5,4.5\n", False, DATA),
        ("5,name\n6,red\n7,blue\n", False, DATA),
        ("2018,2019\n2019,2020\n2020,2021\n", False, ""),
        ("2018,5\n2019,6\n2020,7\n", False, ""),
        ("1,112\n2,118\n3,132\n", False, ""),
        ("2000.5,2001.5\n1,2\n2,3\n", False, DATA),
        ("1800,2000\n900,1000\n880,990\n870,985\n", False, DATA),  # both decay
        ("2018\n1\n2\n", False, DATA),
        (",2018\n0,1.5\n1,2.5\n", True, NAMES),
        ("3,4\n", False, ""),
        (",,\n1,2,3\n", False, ""),
        ("a,b\n,\n,\n", True, ""),
        ("a,b\n1,2\n", True, ""),
        ("red,blue\n", None, ""),
        ("NA,a\nb1,b2\n", True, ""),
    ],
)
def test_headers(tmp_path: Path, content: str, has_header: bool | None, note: str) -> None:
    if has_header is None:
        with pytest.raises(DataError, match="nothing but names in line 1, expected rows of numbers below"):
            table_of(tmp_path, content)
        return
    table = table_of(tmp_path, content)
    n_rows = content.count("\n")
    assert (table.has_header, len(table.values)) == (has_header, n_rows - has_header)
    spoken = [line for line in table.notes if NAMES in line or DATA in line]
    assert len(spoken) == (note != "")
    for line in spoken:
        assert note in line
        assert f"--header {'no' if has_header else 'yes'}" in line


def test_header_as_asked(tmp_path: Path) -> None:
    table = table_of(tmp_path, "2018,\n1,2\n", header=True)
    assert (table.names, table.values.tolist(), table.notes) == (("2018", "column 2"), [[1.0, 2.0]], ())
    table = table_of(tmp_path, "a,b\n1,2\n", header=False)
    assert table.names == ("column 1", "column 2")
    assert set(table.problems) == {0, 1}
    table = table_of(tmp_path, "# a,b\n1,2\n", header=False)
    assert (table.names, table.has_header) == (("column 1", "column 2"), False)
    with pytest.raises(DataError, match="nothing but names in line 1"):
        table_of(tmp_path, "1,2\n", header=True)


def test_notes(tmp_path: Path) -> None:
    notes = table_of(tmp_path, "# x\n# a b\n1 2,5\n# y\n3 4\n").notes
    assert notes == (
        "cells are separated by blanks",
        "line 2, a comment, was taken as names (a, b)",
        "skipped 2 comments: lines 1 and 4",
        "commas were taken as decimal ones in b",
    )
    assert table_of(tmp_path, "a,b\n1,2\n").notes == ()
    notes = table_of(tmp_path, "1,2,\n3,4,\n").notes
    assert notes == ("the last column was left out: without a name, and empty (lines end with a delimiter)",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty, expected rows of numbers"),
        ("\n\n", "empty, expected rows of numbers"),
        ("# a\n% b\n", "nothing but comments, expected rows of numbers"),
        ("a,b\n", "nothing but names in line 1"),
        ("id,y\n#1 2\n", "nothing but names in line 1, expected rows of numbers below"),
        ("a,b\n1,2\n3\n", "line 3: 1 cell, expected 2 as in line 1"),
        ("a,b\n1,2\n3,4,5\n", "line 3: 3 cells, expected 2"),
        ("a,b\n1,2,\n3,4,\n", "line 2: 3 cells, expected 2 as in line 1; it ends with a delimiter"),
        ("a,b\n" + "1,2\n" * 200 + "# c\n1\n", "line 203: 1 cell, expected 2 as in line 1"),
        ("1 2\n3 4\n5\n", "line 3: 1 cell, expected 2 as in line 1"),
        ("year co2 (ppm)\n1 2\n3 4\n", "line 2: 2 cells, expected 3 as in line 1"),
        ('a,b\n1,"2\n', r"line 2: not a CSV file \(unexpected end of data\)"),
        ('a,b\n1,2\n\n"3"x,4\n5,6\n', "line 4: not a CSV file"),
        ('# c\na b\n1 "2\n', "line 3: not a CSV file"),
        ('a,b\n1,2\n3,"4\n5,6\n' + "7,8\n" * 100, "line 3: not a CSV file"),
        (b"a,b\n1,\xff\xfe\n", r"not UTF-8 text \(byte 6\); save it as UTF-8"),
        ("a,b\n1,2\n".encode("utf-16")[:-1], r"not UTF-16 text \(byte 16\); save it as UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "looks like UTF-16 text without its mark"),
        ("a,b\n1,2\n".encode("utf-32"), "looks like UTF-32 text, expected a table as text; save it as UTF-8"),
        (gzip.compress(b"a,b\n1,2\n" * 50, mtime=0)[:-12], "damaged gzip file"),
        (gzip.compress(b"%PDF-1.7", mtime=0), "looks like a PDF document"),
        (b"PK\x03\x04" + b"\0" * 26 + b"xl/workbook.xml", r"an Excel workbook \(.xlsx\), .*; save its sheet as CSV"),
        (b"PK\x03\x04" + b"\0" * 26 + b"a.npy", r"a NumPy archive \(.npz\), .*; write its table with numpy.savetxt"),
        (b"PK\x03\x04" + b"\0" * 26 + b"a.csv", "a zip archive, expected a table as text; unpack it first"),
        (b"PAR1\x15", "looks like a Parquet file, expected a table as text; write it as CSV"),
        (b"BZh91AY&SY\x8a", "looks like a bzip2 file, expected a table as text; unpack it first"),
        (b"\xfd7zXZ\0\0", "looks like an xz file"),
        (b"<!DOCTYPE html>\n<p>404", "looks like a web page or XML"),
        (b'{"a": [1, 2]}', "looks like JSON"),
    ],
)
def test_bad_files(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        table_of(tmp_path, content)
    assert "\n" not in str(caught.value)
    assert "data.csv" in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(DataError, match="cannot be read"):
        read_table(tmp_path)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_pipes(fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe is read to its end, as that of a shell's <(...); it may neither keep us waiting nor go on for ever."""
    monkeypatch.setattr(table_text, "_SILENCE", 0.1)
    with pytest.raises(DataError, match=r"a pipe from which nothing came for 0\.1 s"):  # nobody writes
        read_table(fifo)

    def writing(*pieces: str) -> threading.Thread:
        def write() -> None:
            with contextlib.suppress(BrokenPipeError), fifo.open("w") as file:
                for piece in pieces:
                    file.write(piece)
                    file.flush()
                    time.sleep(0.05)

        keep = os.open(fifo, os.O_RDWR)  # so that the reader, who does not wait for a writer, finds one
        thread = threading.Thread(target=write)
        thread.start()
        time.sleep(0.2)
        os.close(keep)
        return thread

    monkeypatch.setattr(table_text, "_SILENCE", 2.0)
    thread = writing("a,b\n1,2\n", *["3,4\n"] * 8)
    assert read_table(fifo).values.shape == (9, 2)
    thread.join()
    monkeypatch.setattr(table_text, "_SILENCE", 0.1)
    keep = os.open(fifo, os.O_RDWR)
    with pytest.raises(DataError, match=r"a pipe from which nothing came for 0\.1 s"):
        read_table(fifo)
    os.close(keep)
    monkeypatch.setattr(table_text, "_MOST_PIPED", 10_000)
    thread = writing(*["1,2\n" * 4000] * 5)
    with pytest.raises(DataError, match="a pipe of more than 10000 bytes"):
        read_table(fifo)
    thread.join()
    with pytest.raises(DataError, match="pipe: a pipe or a device, expected a file"):
        load_arrays(fifo, kind="a", version=1)


def test_devices_and_files_beyond_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/dev/zero").exists():
        with pytest.raises(DataError, match="/dev/zero: a device, expected a file"):
            read_table("/dev/zero")
        with pytest.raises(DataError, match="/dev/zero: a pipe or a device"):
            load_arrays("/dev/zero", kind="a", version=1)
    with (tmp_path / "holes.csv").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(DataError, match="1099511627776 bytes, to read which takes some 17 times as many"):
        read_table(tmp_path / "holes.csv")
    with pytest.raises(DataError, match="damaged, or not a file saved"):
        load_arrays(tmp_path / "holes.csv", kind="a", version=1)
