"""Readers of files survive anything: a result, or one line that names the file.

`HYPOTHESIS_PROFILE=long` tries fifty times more; tests/fuzz/fuzz_readers.py goes by coverage, by hand.
"""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis")

import forged
from comparisons import peak
from hypothesis import example, given
from hypothesis import strategies as st

import maskerade_fast as mf
from maskerade_fast._text import listed
from maskerade_fast.cli import main
from maskerade_fast.storage.archive import ALWAYS_READ, load_arrays, save_arrays
from maskerade_fast.storage.csv_files import read_table

CELLS = st.one_of(
    st.sampled_from(forged.CELLS),
    st.integers(-99, 99).map(str),
    st.integers(17 * 10**17, 17 * 10**17 + 99).map(str),
    st.floats(allow_nan=False).map(repr),
    st.floats(-1e4, 1e4).map(lambda x: f"{x:.3f}".replace(".", ",")),
    st.text(max_size=8),
)


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """Something like a table: rows of about equal length, perhaps quoted, with comments, packed, cut or hit."""
    width, delimiter = draw(st.integers(1, 4)), draw(st.sampled_from(forged.DELIMITERS))
    ending = draw(st.sampled_from(["\n", "\r\n", "\r", delimiter + "\n", "\n\n", "\u2028"]))
    some = draw(st.lists(CELLS, min_size=1, max_size=3))  # columns of one kind too
    cells = st.sampled_from(some) if draw(st.booleans()) else CELLS
    rows = draw(st.lists(st.lists(cells, min_size=width, max_size=width + draw(st.integers(0, 1))), max_size=5))
    quote = draw(st.booleans())
    lines = [delimiter.join('"' + c.replace('"', '""') + '"' if quote else c for c in row) for row in rows]
    for line in draw(st.lists(st.sampled_from(forged.OTHER_LINES), max_size=2)):
        lines.insert(draw(st.integers(0, len(lines))), line)
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"]))
    content = (ending.join(lines) + draw(st.sampled_from(["", ending]))).encode(encoding, errors="replace")
    content = draw(st.sampled_from([b""] * 9 + list(forged.MARKS))) + content
    if draw(st.booleans()):
        content = gzip.compress(content, mtime=0)
    return hit(draw, content)


def hit(draw: st.DrawFn, content: bytes) -> bytes:
    if draw(st.booleans()):
        return content
    at, new = draw(st.integers(0, len(content))), draw(st.binary(max_size=6))
    return draw(st.sampled_from([content[:at], content[:at] + new + content[at + len(new) :]]))


EDITS = st.lists(
    st.sampled_from(forged.EDITS).flatmap(
        lambda what: st.tuples(
            st.just(what),
            st.integers(0, 40),
            st.integers(0, 20_000),
            st.binary(max_size=40)
            | st.sampled_from({"rename": forged.NAMES, "header": forged.HEADERS}.get(what, forged.NUMBERS)),
        )
    ),
    max_size=4,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@given(content=tables() | st.binary(max_size=60), header=st.sampled_from([None, True, False]))
@example(content=b'"a\xef\xbb\xbfa\tb\n1e3"a\t', header=None)
@example(content=b'"a\nb",y\nx,1\n', header=None)
@example(content=b"sep=;", header=None)
@example(content=b"# a\r1;1700000000000000001\r2;1700000000000000003", header=None)
def test_any_table(folder: Path, content: bytes, header: bool | None) -> None:
    table = forged.survives(lambda path: read_table(path, header=header), folder / "data.csv", content)
    if table is not None:
        forged.check_table(table)


@given(edits=EDITS)
@example(edits=[])
@example(edits=[("data", 8, 1, b"\0" * 8)])
def test_any_edited_archive(folder: Path, edits: list[forged.Edit]) -> None:
    content = forged.forged(forged.members(folder), edits)
    loaded = forged.survives(mf.load, folder / "data.npz", content)
    if not edits:
        assert loaded is not None
        np.testing.assert_array_equal(loaded.predict([1.5]).mean, forged.posterior().predict([1.5]).mean)


@given(content=st.binary(max_size=200))
def test_any_bytes_as_an_archive(folder: Path, content: bytes) -> None:
    assert forged.survives(mf.load, folder / "data.npz", content) is None


@pytest.mark.parametrize("header", forged.HEADERS)
def test_headers_that_claim_what_is_not_there(tmp_path: Path, header: bytes) -> None:
    parts = forged.members(tmp_path)
    y = [name for name, _ in parts].index(b"y.npy")
    content = forged.forged(parts, [("header", y, 0, header)])
    assert peak(lambda: forged.survives(mf.load, tmp_path / "data.npz", content)) < 2**20


def message(read: Callable[[Path], Any], path: Path, content: bytes) -> str:
    assert forged.survives(read, path, content) is None
    with pytest.raises(mf.DataError) as caught:
        read(path)
    return str(caught.value).removeprefix(str(path))


def test_packed_tables_do_not_burst(tmp_path: Path) -> None:
    bomb = gzip.compress(b"1,2\n" * 2**25, 9, mtime=0)  # 128 MiB
    assert len(bomb) < 2**18
    messages = []
    used = peak(lambda: messages.append(message(read_table, tmp_path / "bomb.csv", bomb)))
    assert messages == [": a gzip file more than 100 times larger inside than outside; unpack it first"]
    assert used < 4 * ALWAYS_READ


def test_packed_archives_do_not_burst(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, maskerade_fast_kind="posterior", maskerade_fast_version=1, X=np.zeros(2**24))
    assert path.stat().st_size < 2**18
    messages = []
    used = peak(lambda: messages.append(message(mf.load, path, path.read_bytes())))
    assert messages == [": damaged (more than 100 times larger inside than outside)"]
    assert used < 2**22


def test_what_is_saved_can_be_read_however_well_it_packs(tmp_path: Path) -> None:
    save_arrays(tmp_path / "equal", {"a": np.zeros(2**24)}, kind="thing", version=1)
    assert load_arrays(tmp_path / "equal", kind="thing", version=1)["a"].shape == (2**24,)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"maskerade_fast_version": np.inf}, ": damaged (its layout is no number from 1)"),
        ({"maskerade_fast_version": 99}, ": written by a newer maskerade_fast (layout 99 > 3)"),
        ({"maskerade_fast_version": 0}, ": damaged (its layout is no number from 1)"),
        ({"maskerade_fast_kind": "a\nb"}, ": holds a 'a\\nb', expected a posterior"),
        ({"history": np.full((1, 6), np.inf)}, "history: counts: inf, expected whole numbers >= 0"),
        ({"history": np.zeros(3)}, "history: expected a 2-D array, got shape (3,)"),
        ({"history": np.zeros((2, 9))}, "history: 9 columns, expected 6"),
        ({"pair_weights": np.eye(2)}, "pair_weights: shape (2, 2), expected (3, 3)"),
        ({"factor": np.eye(2)}, "factor: shape (2, 2), expected (3, 2)"),
        ({"log_evidence": np.zeros(2)}, "log_evidence: expected a 0-D array, got shape (2,)"),
        ({"standardiser_x_range": np.zeros(1)}, "ranges > 0"),
        ({"standardiser_y_scale": -1.0}, "y_scale: -1.0, expected > 0"),
        ({"nodes_means": np.ones((4, 2)), "nodes_scales": np.ones((4, 2))}, "nodes: 3 in 2 dimensions, expected some"),
        ({"trend": np.array(["none"])}, "trend: dtype <U4 of shape (1,), expected text"),
    ],
)
def test_parts_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], expected: str) -> None:
    forged.posterior().save(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as good:
        np.savez(tmp_path / "odd.npz", **{**good, **arrays})
    assert expected in message(mf.load, tmp_path / "odd.npz", (tmp_path / "odd.npz").read_bytes())


def test_members_that_are_no_arrays(tmp_path: Path) -> None:
    parts = forged.members(tmp_path)
    for edits, expected in (
        ([("rename", 0, 0, b"readme")], "it lacks 'X'"),
        ([("replace", 0, 0, b"hello, world")], "X.npy: no array"),
        ([("twin", 0, 0, b"")], "two arrays of one name"),
        ([("central", 0, 8, struct.pack("<H", 1)), ("local", 0, 6, struct.pack("<H", 1))], "encrypted"),
        ([("central", 0, 10, struct.pack("<H", 14))], "compressed in a way"),
    ):
        assert expected in message(mf.load, tmp_path / "data.npz", forged.forged(parts, edits))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("hello.txt", "hello")
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    assert "not a file saved" in message(mf.load, tmp_path / "data.npz", array.getvalue() + stream.getvalue())


def test_names_of_columns_stay_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(f"c{k}" for k in range(10_000))
    assert listed(names).endswith("c17, ..., c9999")
    path = tmp_path / "data.csv"
    path.write_bytes(b'"a\nb",y\n1,2\n')
    with pytest.raises(mf.DataError, match=r"there are 'a\\nb', y"):
        read_table(path).column("z")
    path.write_bytes(b'"\x1b[2Ja",y\n1,2\n2,3\n')
    assert main(["fit", str(path), "--target", "z"]) == 2
    assert "there are '\\x1b[2Ja', y" in capsys.readouterr().err
