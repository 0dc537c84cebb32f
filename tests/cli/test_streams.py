"""Commands in a shell (C48, C49): every encoding, closed and full streams, interrupts, names with signs of formulas."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskerade_fast.run.drive
from maskerade_fast.cli import main
from maskerade_fast.storage.csv_files import read_table

posix = pytest.mark.skipif(os.name != "posix", reason="a shell and /dev/full")
FAST = ["--budget", "12", "--seed", "3"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    x = np.linspace(0.0, 6.0, 20)
    rows = "".join(f"{a},{b}\n" for a, b in zip(x, np.sin(x), strict=True))
    (tmp_path / "d.csv").write_text("価格_$,cost_$_per_$_unit\n" + rows, encoding="utf-8")
    return tmp_path / "d.csv"


def shell(data: Path, redirection: str, **environment: str) -> tuple[int, bytes, bytes]:
    """A fit under bash, which redirects its streams; both files are written in every case."""
    model, predictions = data.with_name("m.npz"), data.with_name("p.csv")
    fit = f"'{sys.executable}' -m maskerade_fast fit d.csv {' '.join(FAST)} --save m.npz --predictions p.csv"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {fit} {redirection}"],
        cwd=data.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert model.read_bytes()[:2] == b"PK", done.stderr
    assert read_table(predictions).names[:2] == ("価格_$", "cost_$_per_$_unit")
    assert read_table(predictions).values.shape == (20, 9)
    assert list(data.parent.glob(".*.tmp")) == []
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@posix
@pytest.mark.parametrize(
    ("environment", "sign"),
    [
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}, b" +- "),
        ({"PYTHONIOENCODING": "ascii"}, b" +- "),
        ({"PYTHONIOENCODING": "cp437"}, b" \xf1 "),
    ],
)
def test_c48_encodings(data: Path, environment: dict[str, str], sign: bytes) -> None:
    status, out, _ = shell(data, "", **environment)
    assert status == 0
    assert b"to learn cost_$_per_$_unit from ??_$" in out
    assert sign in out


@posix
@pytest.mark.parametrize(
    ("redirection", "environment", "status", "line"),
    [
        ("> /dev/full", {}, 2, b"(No space left on device)"),
        ("> /dev/full", {"PYTHONUNBUFFERED": "1"}, 2, b"(No space left on device)"),
        (">&-", {}, 2, b"(it is closed)"),
        ("<&- >&- 2>&-", {}, 2, b""),
        ("2>&-", {}, 0, b""),
        ("2> /dev/full", {}, 0, b""),
        ("| true", {"PYTHONUNBUFFERED": "1"}, 0, b""),
        ("2>&1 | head -1", {}, 0, b""),
    ],
)
def test_c48_closed_full_and_broken_streams(
    data: Path, redirection: str, environment: dict[str, str], status: int, line: bytes
) -> None:
    code, _, err = shell(data, redirection, **environment)
    assert code == status
    assert err.splitlines()[-1:] == (
        [b"maskerade-fast fit: standard output: cannot be written " + line] if line else []
    )


@posix
def test_c48_an_interrupted_fit_keeps_what_it_has(
    capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = maskerade_fast.run.drive._report
    rows = []

    def interrupted(row: Any, *others: Any) -> bool:
        rows.append(row)
        if len(rows) == 2:
            signal.raise_signal(signal.SIGINT)
        return report(row, *others)

    monkeypatch.setattr(maskerade_fast.run.drive, "_report", interrupted)
    model, predictions = tmp_path / "m.npz", tmp_path / "p.csv"
    status = main(
        ["fit", str(data), "--budget", "200", "--seed", "3", "--save", str(model), "--predictions", str(predictions)]
    )
    out, err = capsys.readouterr()
    assert (status, len(rows)) == (130, 2)
    assert f"{rows[1].evaluations} likelihoods" in out
    assert err.splitlines()[-1].startswith("maskerade-fast fit: interrupted; the result rests on")
    assert maskerade_fast.load(model).history[-1].evaluations == rows[1].evaluations
    assert read_table(predictions).values.shape == (20, 9)


def test_c49_names_with_signs_of_formulas(capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, options in (("a.png", []), ("b.svg", ["--panels"])):
        assert main(["fit", str(data), *FAST, "--quiet", "--plot", str(tmp_path / name), *options]) == 0
        assert capsys.readouterr() == ("", "")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    drawn = (tmp_path / "b.svg").read_text(encoding="utf-8")  # texts, or comments beside their outlines
    for label in ("cost_$_per_$_unit", "価格_$", "frequency (cycles per unit of 価格_$)"):
        assert label in drawn
