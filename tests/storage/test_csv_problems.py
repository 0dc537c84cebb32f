"""Files that are no table, and columns that are no numbers: one line that names file, line and column, with a cure."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from commands import table_of

from maskerade_fast import DataError

PACKED = gzip.compress(b"a,b\n1,2\n" * 50, mtime=0)
DAMAGED = (PACKED[:-3] + b"abc", PACKED + b"junk", PACKED[:-12])


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
        ("a,b\n1,1e200\n2,3\n", 1, "line 2, column 'b': '1e200', expected a number up to 1e+150; rescale the column"),
        ("a,b\n1,3\n2,-1e151\n", 1, "line 3, column 'b': '-1e151', expected a number up to 1e+150"),
        ("t,y\n[s],[m]\n1,2\n", 0, "'[s]', expected a finite number; delete the row of units, or begin it with #"),
        ("t y\ns m\n1 2\n2 3\n", 1, "'m', expected a finite number; delete the row of units, or begin it with #"),
        ("a,b\n1,2\na,b\n3,4\n", 0, "line 3, column 'a': 'a', expected a finite number; the names again; delete the"),
        ("a,b\n1,2\nTotal,\n", 0, "line 3, column 'a': 'Total', expected a finite number; delete the line"),
        ("a,b\n2024-01-31,1\n", 0, "write the time as a number, or leave the column out with --columns"),
        ("a,b\n31.12.2023,1\n", 0, "write the time as a number"),
        ("a,b\n12:30,1\n", 0, "write the time as a number"),
        ("a,b\nJan 2024,1\n", 0, "write the time as a number"),
        ("a,b\n3 March 2024,1\n", 0, "write the time as a number"),
        ("a,b\n2024-Q1,1\n", 0, "write the time as a number"),
        ("a,b\nred,1\nblue,2\n", 0, "expected a finite number; write numbers, or leave the column out with --columns"),
        ("a,b\nred,1\n3,2\n", 0, "expected a finite number; correct the cell, delete the line, or leave the column"),
        ("who,colour\nann,red\nbob,blue\n", 1, "'red', expected a finite number; write numbers, or leave the column"),
        ("a,b\nTRUE,1\n", 0, "write 1 and 0, or leave the column out with --columns"),
        ("a,b\n0x1F,1\n", 0, "write the number with decimal digits"),
        ("a,b\n(3.0),1\n", 0, "write negative numbers with -, without brackets"),
        ("name|y\nred|2|3\n", 0, "if | separates cells, write sep=| in the first line"),
        ("a,b\n1,inf\n", 1, "leave the cell empty"),
        ("a,b\n1,2_0\n", 1, "write it without underscores"),
    ],
)
def test_columns_that_are_not_numeric(tmp_path: Path, content: str, k: int, problem: str) -> None:
    """Their use is refused; the others may be used."""
    table = table_of(tmp_path, content)
    assert problem in table.problems[k]
    assert np.isnan(table.values[:, k]).all()
    with pytest.raises(DataError) as caught:
        table.numbers([k])
    assert str(caught.value) == table.problems[k]
    assert str(caught.value).startswith(f"{tmp_path / 'data.csv'}")
    assert str(caught.value).isprintable()
    with pytest.raises(DataError):
        table.less([k], np.zeros(1))
    others = [j for j in range(len(table.names)) if j not in table.problems]
    assert np.isfinite(table.numbers(others)).all() or "NA" in content or ",\n" in content


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
        (
            "Some title\na,b\n1,2\n3,4\n",
            "line 2: 2 cells, expected 1 as in line 1; line 1 looks like a title: delete it or",
        ),
        ("Title\na;b\n1;2\n3;4\n", "line 1 looks like a title"),
        ("My own data\nx y\n1 2\n3 4\n", "line 2: 2 cells, expected 3 as in line 1; line 1 looks like a title"),
        (
            "Title\nby me\na,b\n1,2\n3,4\n",
            "line 3: 2 cells, expected 1 as in line 1; the lines above look like a title",
        ),
        (
            "x\n0,5\n1,5\n",
            "line 2: 2 cells, expected 1 as in line 1; if commas are decimal ones, write decimals with a",
        ),
        ("a,b\n1,2\n3,4\nSource: me\n", "line 4: 1 cell, expected 2 as in line 1; fill it up, delete it, or begin it"),
        ("a,b\n1,2\n3,4\n5,6,7\n", "line 4: 3 cells, expected 2 as in line 1; put cells with a delimiter in double"),
        (
            "a,b\n1,2,\n3,4,\n",
            "line 2: 3 cells, expected 2 as in line 1; it ends with a delimiter; end all lines with it",
        ),
        *((damaged, "damaged gzip file") for damaged in DAMAGED),
    ],
)
def test_bad_files(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError) as caught:
        table_of(tmp_path, content)
    assert re.search(message, str(caught.value)) or message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "data.csv" in str(caught.value)
