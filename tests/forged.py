"""Files that readers must survive: parts of tables, a saved posterior and its edits; what readers may do with bytes."""

from __future__ import annotations

import contextlib
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.model.data import RegressionData
from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.model.units import Standardiser
from maskerade_fast.posterior.history import HistoryRow
from maskerade_fast.posterior.posterior import Posterior
from maskerade_fast.storage.csv_files import Table

Edit = tuple[str, int, int, bytes]  # what, which member, where, with what
EDITS = ("drop", "rename", "twin", "header", "data", "replace", "cut", "swap", "local", "central", "file", "file cut")
NAMES = (
    b"X",
    b"y",
    b"trend",
    b"warnings",
    b"history",
    b"nodes_offsets",
    b"readme.txt",
    b"../up",
    b"a\nb",
    b"\xff",
    b"",
)
HEADERS = tuple(
    f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    for descr, order, shape in (
        ("'<f8'", "False", "(3,)"),
        ("'<f8'", "True", "(1, 3)"),
        ("'>f8'", "False", "()"),
        ("'<f8'", "False", "(-1,)"),
        ("'<f8'", "False", "(999999999999,)"),
        ("'<f8'", "False", "(0, 999999999999)"),
        ("'<f8'", "False", "(99999999999999999999,)"),
        ("'<f8'", "False", "(4294967296, 4294967296, 2)"),
        ("'<U0'", "False", "(999999999,)"),
        ("'<U999999999'", "False", "(0,)"),
        ("'<i8'", "False", "(3,)"),
        ("'<c16'", "False", "(1,)"),
        ("'|b1'", "False", "(8,)"),
        ("'<M8[ns]'", "False", "(1,)"),
        ("'|O'", "False", "(1,)"),
        ("[('a', '<f8')]", "False", "(1,)"),
        ("('<f8', (999999, 999999))", "False", "(1,)"),
        ("__import__('os').abort()", "False", "()"),
        ("'<f8'", "False", "(" * 200 + ")" * 200),
        ("'<f8'", "False", "(1L,)"),
        ("'\\d'", "False", "()"),
    )
)
# Of tables: cells, what divides them, lines that are no rows, first bytes of other kinds of files
CELLS = (
    *("", "NA", "?", "nan", "-nan", "inf", "1e999", "1_0", "0x10", "--1", "١", "1\0", '"', '""', '"a', "'", "x"),
    *("1,5", "-,5", "1,234", "1.234", "1.5", "1 234", "1'234", "1,234.5", "1.234,56", "5%", "$5", "#N/A", "#REF!"),
    *("2018", "2019", "20240131", "2024-01-31", "0.1", "9007199254740993", "1e300", "1e-400", "1" * 400, "3" * 1200),
    *(".", "-", "--", "NaT", "3.0D+02", '="0"', "(3.0)", "TRUE", "[s]", "#3", "1700000000.000000001", "1e200"),
    *("0." + "1" * 1200, "1e400", "1e-999999999999999999999", "0e99999999999999999999", "a b"),
)
DELIMITERS = (",", ";", "\t", ", ", "|", " ", "   ", " \t", ";", ",")
OTHER_LINES = ("# a, b", "#a;b;c", "% a b", "//", "#", '# "a', "sep=;", "sep=,", "sep= ", "sep=\t", "  # x", "", "  ")
MARKS = (b"PK\x03\x04", b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff", b"BZh9", b"PAR1", b"\xff\xfe\0\0", b"%PDF-", b"<html>")
NUMBERS = (b"\0" * 8, *(struct.pack("<d", x) for x in (np.nan, np.inf, -np.inf, -1.0, 1e308, 5e-324, 2.0**63)))


@cache
def posterior() -> Posterior:
    """Three mixtures of one and two components over five points, put together by hand."""
    x = np.linspace(0.0, 1.0, 5)
    sizes = np.array([0, 1, 3, 4])
    w, m, s = (
        np.array([1.0, 0.5, 0.5, 0.8]),
        np.array([[1.0], [2.0], [0.5], [1.5]]),
        np.array([[0.1], [0.2], [0.3], [0.1]]),
    )
    mixtures = GMMBatch(sizes, w, m, s, np.array([0.1, 0.2, 0.1]))
    factor = np.diag(np.sqrt([0.5, 0.3, 0.2]))
    return Posterior(
        data_standardised=RegressionData(x, np.sin(3.0 * x)),
        standardiser=Standardiser(np.array([1.0]), np.array([2.0]), 0.5, 1.5),
        mixtures_standardised=mixtures,
        log_likelihoods=np.array([-3.0, -4.0, -np.inf]),
        log_evidence=-3.5,
        log_evidence_sd=0.1,
        component_probabilities=np.array([0.6, 0.4]),
        pair_weights=factor @ factor,
        factor=factor,
        nodes_standardised=mixtures,
        node_probabilities=np.array([0.5, 0.3, 0.2]),
        warnings=("the model is made up",),
        history=(HistoryRow(3, 3, 0.1, -3.5, 0.1, -3.0),),
    )


@cache
def members(folder: Path) -> tuple[tuple[bytes, bytes], ...]:
    """Names and contents in the archive of `posterior`."""
    path = folder / "seed.npz"
    posterior().save(path)
    with zipfile.ZipFile(path) as archive:
        return tuple((name.encode(), archive.read(name)) for name in archive.namelist())


def forged(parts: Sequence[tuple[bytes, bytes]], edits: Sequence[Edit]) -> bytes:
    """An archive of `parts` with its checksums right, whatever the edits did to the contents; or with wrong fields in
    its directory, or bytes changed in the whole."""
    content = list(parts)
    late = []
    for what, which, where, value in edits:
        i = which % max(1, len(content))
        if what in ("local", "central", "file", "file cut"):
            late.append((what, which, where, value))
        elif not content:
            continue
        elif what == "drop":
            del content[i]
        elif what == "rename":
            content[i] = (value, content[i][1])
        elif what == "twin":
            content.append(content[i])
        elif what == "header":
            start = 10 + int.from_bytes(content[i][1][8:10], "little")
            header = value + b" " * (-(11 + len(value)) % 64) + b"\n"
            new = content[i][1][:8] + struct.pack("<H", min(len(header), 65535)) + header + content[i][1][start:]
            content[i] = (content[i][0], new)
        elif what == "data":  # from the end: numbers rather than headers
            at = max(0, len(content[i][1]) - 8 * (1 + where % 16))
            content[i] = (content[i][0], content[i][1][:at] + value + content[i][1][at + len(value) :])
        elif what == "replace":
            content[i] = (content[i][0], value)
        elif what == "cut":
            content[i] = (content[i][0], content[i][1][: where % (len(content[i][1]) + 1)])
        elif what == "swap":
            j = where % len(content)
            content[i], content[j] = (content[i][0], content[j][1]), (content[j][0], content[i][1])
    whole = bytearray(_zipped(content))
    for what, which, where, value in late:
        if what == "file cut":
            del whole[where % (len(whole) + 1) :]
            continue
        start, mark = 0, {"local": b"PK\x03\x04", "central": b"PK\x01\x02"}.get(what, b"")
        if mark:
            places = [match.start() for match in re.finditer(re.escape(mark), whole)]
            start, where = (places[which % len(places)] if places else 0), where % 46
        at = start + where % max(1, len(whole))
        whole[at : at + len(value)] = value
    return bytes(whole)


def _zipped(content: Sequence[tuple[bytes, bytes]]) -> bytes:
    stream = io.BytesIO()
    entries = []
    for name, data in content:
        crc, at = zlib.crc32(data), stream.tell()
        common = struct.pack("<5H3I2H", 20, 0, 0, 0, 33, crc, len(data), len(data), len(name) & 0xFFFF, 0)
        stream.write(b"PK\x03\x04" + common + name + data)
        entries.append(b"PK\x01\x02\x14\x00" + common + struct.pack("<3H2I", 0, 0, 0, 0, at) + name)
    at = stream.tell()
    directory = b"".join(entries)
    end = struct.pack("<4H2IH", 0, 0, len(entries) & 0xFFFF, len(entries) & 0xFFFF, len(directory), at, 0)
    return stream.getvalue() + directory + b"PK\x05\x06" + end


def survives(read: Callable[[Path], Any], path: Path, content: bytes) -> Any:
    """What `read` makes of `content`; None where it says in one line of bearable length, naming the file, why not."""
    path.write_bytes(content)
    try:
        return read(path)
    except mf.DataError as error:
        message = str(error)
        assert str(path) in message, message
        assert message.isprintable(), message
        assert len(message) < len(str(path)) + 1000, message
        return None


def check_table(table: Table) -> None:
    """What holds for every table that was read; and what it says is printable."""
    n_rows, n_columns = table.values.shape
    assert n_rows >= 1
    assert n_columns == len(table.names) == len(table.origins) >= 1
    assert not np.isinf(table.values).any()
    assert np.isfinite(table.origins).all()
    assert (np.floor(table.origins) == table.origins).all()
    lines = [line for line, _ in table._reader.rows()]
    assert len(lines) == n_rows
    assert (np.diff(lines) > 0).all()
    for line in (*table.notes, *table.problems.values(), *table.lost.values()):
        assert line.isprintable(), line
        assert len(line) < len(table.path) + 1000, line
    for k in (*table.problems, *table.lost):
        with pytest.raises(mf.DataError):
            table.numbers([k])
    good = [k for k in range(n_columns) if k not in table.problems and k not in table.lost]
    numbers = table.numbers(good)
    assert numbers.shape == (n_rows, len(good))
    assert not (np.abs(numbers) > 1e150).any()
    np.testing.assert_array_equal(table.less(good, table.origins[good]), numbers)
    with contextlib.suppress(mf.DataError):  # for numbers of more than 1000 characters
        away = table.less(good, np.full(len(good), 3.0))
        np.testing.assert_array_equal(np.isnan(away), np.isnan(numbers))
    assert not np.isfinite(table.values[:, list(table.empty)]).any()
    with pytest.raises(mf.DataError) as caught:
        table.column("no such column")
    assert str(caught.value).isprintable()
