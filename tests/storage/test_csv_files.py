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
from commands import table_of
from numpy.testing import assert_array_equal

from maskerade_fast import DataError
from maskerade_fast.storage.archive import load_arrays
from maskerade_fast.storage.csv_files import read_table
from maskerade_fast.storage.csv_files import text as table_text

NUMBERS = [[1.0, 2.0, -3.5], [4.0, 5e-3, 6.0]]
NAN = np.nan


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
        ("a|b|y\n1|2|-3.5\n4|5e-3|6\n", ("a", "b", "y")),
        ("a | b | y\n1 | 2 | -3.5\n4 | 5e-3 | 6\n", ("a", "b", "y")),
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
    ("content", "values"),
    [
        ("1,5;2,5\n3,5;4,5\n", [[1.5, 2.5], [3.5, 4.5]]),
        ("a;b\n1,234;0\n2,345;5,67\n", [[1.234, 0.0], [2.345, 5.67]]),  # the second column tells
        ("a;b\n0,234;1\n-,5;2\n", [[0.234, 1.0], [-0.5, 2.0]]),
        ("a\tb\n1234,567\t1\n1e2\t2\n", [[1234.567, 1.0], [100.0, 2.0]]),
        ("a b\n1,5 2,5\n-1,5e-3 ?\n", [[1.5, 2.5], [-1.5e-3, NAN]]),
        ("a;b\n1,5;2.5\n2,5;3.5\n", [[1.5, 2.5], [2.5, 3.5]]),  # each column in its own way
        ("1,5|2,5\n3,5|4,5\n", [[1.5, 2.5], [3.5, 4.5]]),
    ],
)
def test_decimal_commas(tmp_path: Path, content: str, values: list[list[float]]) -> None:
    table = table_of(tmp_path, content)
    assert_array_equal(table.values, values)
    assert any(note.startswith("commas were taken as decimal ones in ") for note in table.notes)


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
        ("x,#a,%hum\n1,2,3\n", ("x", "#a", "%hum")),
        ("x #a\n1 2\n", ("x", "#a")),
        ("# %hum y\n1 2\n", ("%hum", "y")),
        ("## #a,//b\n1,2\n", ("#a", "//b")),
        ("%hum,y\n1,2\n", ("hum", "y")),
        ("name|y\nred, dark|2\nblue|4\n", ("name", "y")),
    ],
)
def test_names_of_columns(tmp_path: Path, content: str, names: tuple[str, ...]) -> None:
    assert table_of(tmp_path, content).names == names
