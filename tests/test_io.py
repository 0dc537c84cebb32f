"""CSV in and out, and archives: right numbers, or one line naming file, line and column."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io as standard_io
import os
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from maskerade_fast import DataError, combine_gaussians, io
from maskerade_fast.archive import load_arrays, save_arrays
from maskerade_fast.io import read_csv, write_predictions

NUMBERS = [[1.0, 2.0, -3.5], [4.0, 5e-3, 6.0]]


def written(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


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
        ("year,1960,1961\n1,2,-3.5\n4,5e-3,6\n", ("year", "1960", "1961")),
        ("a,,y\n1,2,-3.5\n4,5e-3,6\n", ("a", "column 2", "y")),
        (gzip.compress(b"a,b,y\n1,2,-3.5\n4,5e-3,6\n", mtime=0), ("a", "b", "y")),
    ],
    ids=["comma", "no header", "semicolon", "tab", "quotes", "BOM", "blanks", "years", "unnamed", "gzip"],
)
def test_forms_of_a_table(tmp_path: Path, content: str | bytes, names: tuple[str, ...]) -> None:
    table = read_csv(written(tmp_path, content))
    assert table.names == names
    assert_array_equal(table.values, NUMBERS)
    assert table.n_dropped == 0


@pytest.mark.parametrize("missing", ["", "NA", "n/a", "NaN", "null", "None", "?", " "])
def test_missing_cells_drop_their_row(tmp_path: Path, missing: str) -> None:
    table = read_csv(written(tmp_path, f"a,y\n1,2\n3,{missing}\n{missing},4\n5,6\n"))
    assert_array_equal(table.values, [[1.0, 2.0], [5.0, 6.0]])
    assert table.n_dropped == 2


def test_target_by_name_and_by_default(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, "a,y,b\n1,2,3\n4,5,6\n"))
    X, y, names, target = table.split("y")
    assert_array_equal(X, [[1.0, 3.0], [4.0, 6.0]])
    assert_array_equal(y, [2.0, 5.0])
    assert (names, target) == (("a", "b"), "y")
    X, y, names, target = table.split()
    assert_array_equal(y, [3.0, 6.0])
    assert (names, target) == (("a", "y"), "b")


@pytest.mark.parametrize(
    ("content", "target", "message"),
    [
        ("a,b\n1,2\n", "z", "target 'z' is no column; there are a, b"),
        ("a,a\n1,2\n", "a", "target 'a' is the name of several columns"),
        ("a\n1\n2\n", None, r"one column \(a\), expected at least one input"),
    ],
)
def test_bad_targets(tmp_path: Path, content: str, target: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_csv(written(tmp_path, content)).split(target)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty, expected rows of numbers"),
        ("\n\n", "empty, expected rows of numbers"),
        ("a,b\n", "no row without missing cells"),
        ("a,b\n1,\n,2\n", "no row without missing cells"),
        ("a,b\n1,2\n3\n", "line 3: 1 cell, expected 2 as in line 1"),
        ("a,b\n1,2\n3,4,5\n", "line 3: 3 cells, expected 2"),
        ("a,b\n1,2\n3,red\n", "line 3, column 'b': 'red', expected a finite number"),
        ("a,colour\n1,red\n3,blue\n", "line 2, column 'colour': 'red', expected a finite number"),
        ("1,red\n3,blue\n", "line 1, column 'column 2': 'red', expected a finite number"),
        ("a,b\n1,inf\n", "line 2, column 'b': 'inf', expected a finite number"),
        ("a,b\n1,1_000\n", "'1_000', expected a finite number"),
        ("a;b\n1,5;2,5\n", "line 2, column 'a': '1,5', expected a finite number"),
        ('a,b\n1,"2\n', r"line 2: not a CSV file \(unexpected end of data\)"),
        ('a,b\n1,2\n\n"3"x,4\n5,6\n', "line 4: not a CSV file"),
        ('a,b\n"1\n1",2\n3,"4\n5,6\n' + "7,8\n" * 100, "line 2, column 'a'"),
        ('a,b\n1,2\n3,"4\n5,6\n' + "7,8\n" * 100, "line 3: not a CSV file"),
        ("a,b\n1," + "2" * 200_000 + "\n", r"line 2: not a CSV file \(field larger than field limit"),
        (b"a,b\n1,\xff\xfe\n", r"not UTF-8 text \(byte 6\)"),
        (gzip.compress(b"a,b\n1,2\n" * 50, mtime=0)[:-12], "damaged gzip file"),
    ],
)
def test_bad_files(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_csv(written(tmp_path, content))
    assert "\n" not in str(caught.value)
    assert "data.csv" in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_csv(tmp_path / "none.csv")
    with pytest.raises(DataError, match="cannot be read"):
        read_csv(tmp_path)


def test_one_row(tmp_path: Path) -> None:
    assert_array_equal(read_csv(written(tmp_path, "3,4\n")).values, [[3.0, 4.0]])
    assert_array_equal(read_csv(written(tmp_path, "a,b\n3,4\n")).values, [[3.0, 4.0]])


def test_predictions_come_back(tmp_path: Path) -> None:
    X = np.array([[0.1, 1.0], [1.0 / 3.0, 2.0]])
    p = combine_gaussians([[1.0]], [[0.5, -0.25]], [[4.0, 1.0]])
    write_predictions(tmp_path / "out.csv", X, ("a", "b, quoted"), p, np.array([7.0, 8.0]), "y")
    table = read_csv(tmp_path / "out.csv")
    assert table.names == ("a", "b, quoted", "y", "mean", "sd", "q05", "q25", "q50", "q75", "q95")
    columns = [X, [[7.0], [8.0]], p.mean[:, None], [[2.0], [1.0]], p.quantile([0.05, 0.25, 0.5, 0.75, 0.95]).T]
    assert_array_equal(table.values, np.hstack(columns))  # written to the last bit
    stream = standard_io.StringIO()
    write_predictions(stream, X, ("a", "b"), p)
    assert next(csv.reader([stream.getvalue().splitlines()[0]]))[:4] == ["a", "b", "mean", "sd"]
    with pytest.raises(DataError, match="cannot be written"):
        write_predictions(tmp_path / "no" / "out.csv", X, ("a", "b"), p)


def test_archive_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "model"  # no suffix is added
    arrays: dict[str, Any] = {
        "matrix": np.arange(6.0).reshape(2, 3),
        "number": 0.1,
        "words": np.array(["a", "µ"]),
        "none": np.empty((0, 2)),
    }
    save_arrays(path, arrays, kind="thing", version=2)
    loaded = load_arrays(path, kind="thing", version=2)
    assert loaded.keys() == arrays.keys()
    for name, value in arrays.items():
        assert_array_equal(loaded[name], value)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_archive_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.npz"
    save_arrays(path, {"a": 1.0}, kind="thing", version=1)

    def full_disk(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\)"):
        save_arrays(path, {"a": 2.0}, kind="thing", version=1)
    assert load_arrays(path, kind="thing", version=1)["a"] == 1.0
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]


def test_archive_refuses_objects(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"arrays\['a'\]: dtype object"):
        save_arrays(tmp_path / "model.npz", {"a": np.array([None])}, kind="thing", version=1)


def test_archive_refuses_other_files(tmp_path: Path) -> None:
    good = tmp_path / "good.npz"
    save_arrays(good, {"a": np.arange(1000.0)}, kind="thing", version=3)
    content = good.read_bytes()
    foreign = tmp_path / "foreign.npz"
    np.savez(foreign, a=1.0)
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, a=np.array([{}], dtype=object), maskerade_fast_kind="thing", maskerade_fast_version=3)
    other_zip = tmp_path / "other.zip"
    with zipfile.ZipFile(other_zip, "w") as archive:
        archive.writestr("hello.txt", "hello")
    middle = len(content) // 2
    cases = [
        (written(tmp_path, content[:-30], "cut.npz"), "damaged, or not a file saved"),
        (written(tmp_path, content[:middle] + b"\0" * 40 + content[middle + 40 :], "hit.npz"), "damaged"),
        (written(tmp_path, "a,b\n1,2\n", "text.npz"), "damaged, or not a file saved"),
        (written(tmp_path, b"", "empty.npz"), "damaged, or not a file saved"),
        (tmp_path / "none.npz", "No such file"),
        (tmp_path, "cannot be read"),
        (foreign, "not a file saved by maskerade_fast"),
        (other_zip, "not a file saved by maskerade_fast"),
        (pickled, "damaged"),
    ]
    for path, message in cases:
        with pytest.raises(DataError, match=message) as caught:
            load_arrays(path, kind="thing", version=3)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"written by a newer maskerade_fast \(layout 3 > 2\)"):
        load_arrays(good, kind="thing", version=2)
    with pytest.raises(DataError, match="holds a thing, expected a posterior"):
        load_arrays(good, kind="posterior", version=3)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_pipes(fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe is read to its end, as that of a shell's <(...); it may neither keep us waiting nor go on for ever."""
    monkeypatch.setattr(io, "_SILENCE", 0.1)
    with pytest.raises(DataError, match=r"a pipe from which nothing came for 0\.1 s"):  # nobody writes
        read_csv(fifo)

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

    monkeypatch.setattr(io, "_SILENCE", 2.0)
    thread = writing("a,b\n1,2\n", *["3,4\n"] * 8)
    assert read_csv(fifo).values.shape == (9, 2)
    thread.join()
    monkeypatch.setattr(io, "_SILENCE", 0.1)
    keep = os.open(fifo, os.O_RDWR)
    with pytest.raises(DataError, match=r"a pipe from which nothing came for 0\.1 s"):
        read_csv(fifo)
    os.close(keep)
    monkeypatch.setattr(io, "_MOST_PIPED", 10_000)
    thread = writing(*["1,2\n" * 4000] * 5)
    with pytest.raises(DataError, match="a pipe of more than 10000 bytes"):
        read_csv(fifo)
    thread.join()
    with pytest.raises(DataError, match="pipe: a pipe or a device, expected a file"):
        load_arrays(fifo, kind="a", version=1)


def test_devices_and_files_beyond_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/dev/zero").exists():
        with pytest.raises(DataError, match="/dev/zero: a device, expected a file"):
            read_csv("/dev/zero")
        with pytest.raises(DataError, match="/dev/zero: a pipe or a device"):
            load_arrays("/dev/zero", kind="a", version=1)
    with (tmp_path / "holes.csv").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(DataError, match="1099511627776 bytes, to read which takes some 16 times as many"):
        read_csv(tmp_path / "holes.csv")
    with pytest.raises(DataError, match="damaged, or not a file saved"):
        load_arrays(tmp_path / "holes.csv", kind="a", version=1)
