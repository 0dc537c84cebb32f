"""Which columns the commands take, what they say of them, and the outputs that they refuse: what strangers tried."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import refused, run, written
from numpy.testing import assert_allclose, assert_array_equal

import maskerade_fast as mf
from maskerade_fast.storage.csv_files import read_table

FAST = ["--budget", "12", "--seed", "3", "--max-components", "1"]
N = 12
A, B = np.arange(float(N)), np.cos(np.arange(N) ** 2).round(3)
Y = (2.0 * A + np.sin(3.0 * B)).round(4)


def means(out: str) -> list[str]:
    """The column of means in what `predict` printed."""
    lines = [line.split(",") for line in out.splitlines()]
    return [line[lines[0].index("mean")] for line in lines[1:]]


def fitted(capsys: Any, data: Path, *options: object) -> Path:
    model = data.with_suffix(".npz")
    status, _, err = run(capsys, "fit", data, "--save", model, "--quiet", *FAST, *options)
    assert (status, err) == (0, "")
    return model


def predicted(capsys: Any, model: Path, data: Path, *options: object) -> list[float]:
    status, out, err = run(capsys, "predict", model, data, *options)
    assert status == 0, err
    return [float(mean) for mean in means(out)]


def test_a_target_that_is_named_is_no_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """By place too: of a model without names, and of one that was fitted to an array and a series."""
    model = fitted(capsys, written(tmp_path / "d.csv", "", [A, B, Y]))
    expected = predicted(capsys, model, written(tmp_path / "ab.csv", "a,b", [A, B]))
    other = written(tmp_path / "yab.csv", "y,a,b", [Y, A, B])
    assert predicted(capsys, model, other, "--target", "y") == expected
    pandas = pytest.importorskip("pandas")
    post = mf.marginalise(np.stack([A, B], axis=1), pandas.Series(Y, name="y"), budget=12, seed=0, max_components=1)
    post.save(model)
    expected = predicted(capsys, model, tmp_path / "ab.csv")
    assert predicted(capsys, model, other) == expected
    assert predicted(capsys, model, written(tmp_path / "uyv.csv", "u,y,v", [A, Y, B])) == expected
    assert "expected the model's 2 inputs" in refused(
        capsys, "predict", model, written(tmp_path / "n.csv", "y,u", [Y, A])
    )


def test_the_table_of_the_fit_can_always_be_predicted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Also where names stand twice."""
    for names in ("x,y,y", "x,x,y", "a,b,y"):
        data = written(tmp_path / "d.csv", names, [A, B, Y])
        model = fitted(capsys, data, "--predictions", tmp_path / "fit.csv")
        fit = read_table(tmp_path / "fit.csv")
        mean = predicted(capsys, model, data)
        assert_array_equal(mean, fit.values[:, fit.column("mean")])


def test_the_models_own_origin_is_taken_off(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One row, equal rows, rows far apart: the same prediction as among all rows."""
    stamps = [1_700_000_000_000_000_000 + 300 * k for k in range(N)]
    model = fitted(capsys, written(tmp_path / "d.csv", "t,y", [stamps, Y]))
    everything = predicted(capsys, model, written(tmp_path / "t.csv", "t", [stamps]))
    for rows in ([1], [1, 1], [3, 1]):
        new = written(tmp_path / "new.csv", "t", [[stamps[k] for k in rows]])
        assert_allclose(predicted(capsys, model, new), [everything[k] for k in rows], rtol=1e-12)
    new = written(tmp_path / "new.csv", "t", [[stamps[1], "NA", 0]])
    status, out, _ = run(capsys, "predict", model, new)
    assert status == 0
    assert_allclose(float(means(out)[0]), everything[1], rtol=1e-12)
    assert [line.split(",")[0] for line in out.splitlines()[1:]] == [str(stamps[1]), "", "0"]


def test_ordinary_targets_far_from_0(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Pressures, latitudes, masses: no digit of theirs is lost, whatever the range of the rows."""
    for y in (1013 + 0.01 * A, 47.3731 + 1e-5 * A, 3e16 + 1e14 * A, 1.989e30 + 1e27 * A, 1.7e9 + 0.001 * A):
        cells = [f"{value:.10g}" if value < 1e10 else repr(float(value)) for value in y]
        data = written(tmp_path / "d.csv", "x,y", [A, cells])
        status, out, err = run(capsys, "fit", data, "--save", tmp_path / "m.npz", *FAST)
        assert (status, err) == (0, "")
        assert "taken off" not in out
        assert len(predicted(capsys, tmp_path / "m.npz", written(tmp_path / "n.csv", "x,y", [A[:2], cells[:2]]))) == 2


def test_a_header_of_the_models_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Numbers as names: what `fit` took as a header, `predict` takes as one, in any order; so do names of options."""
    data = written(tmp_path / "d.csv", "2018,2019,y", [A, B, Y])
    model = fitted(capsys, data, "--header", "yes")
    expected = predicted(capsys, model, written(tmp_path / "n.csv", "2018,2019", [A[:2], B[:2]]))
    assert len(expected) == 2
    assert predicted(capsys, model, written(tmp_path / "n.csv", "2019,2018", [B[:2], A[:2]])) == expected
    data = written(tmp_path / "c.csv", "country,1990,1991", [[f"c{k}" for k in range(N)], A, Y])
    status, out, _ = run(capsys, "fit", data, "--columns", "1990", "--target", "1991", *FAST)
    assert status == 0
    assert "12 rows to learn 1991 from 1990 (header" in out


def test_targets_in_words_cost_scores_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = fitted(capsys, written(tmp_path / "d.csv", "a,y", [A, Y]))
    new = written(tmp_path / "n.csv", "a,y", [A[:3], ["to come"] * 3])
    status, out, err = run(capsys, "predict", model, new)
    assert (status, len(out.splitlines())) == (0, 4)
    assert "There are no scores" in err
    assert "column 'y': 'to come'" in err


def test_constant_columns_are_named_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = written(tmp_path / "d.csv", "a,b,c,y", [A, [4] * N, [5] * N, Y])
    _, out, _ = run(capsys, "fit", data, *FAST)
    assert "The same number in every row, which tells nothing: b, c." in out


def test_a_number_that_may_stand_for_a_missing_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    y = [-999.9 if k == 4 else value for k, value in enumerate(B)]
    _, out, _ = run(capsys, "fit", written(tmp_path / "d.csv", "a,y", [A, y]), *FAST)
    assert "The target has -999.9, far from its other numbers" in out


@pytest.mark.parametrize("name", ["-", "", "new/"])
def test_names_that_are_no_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(capsys, "fit", tmp_path / "d.csv", "--save", name)
    assert stopped.value.code == 2
    assert f"{name!r}, expected the name of a file" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="a shell")
@pytest.mark.parametrize("shell", [">>", "1<>"])
def test_standard_output_onto_the_input(capsys: pytest.CaptureFixture[str], tmp_path: Path, shell: str) -> None:
    data = written(tmp_path / "d.csv", "a,y", [A, Y])
    model = fitted(capsys, data)
    content = data.read_bytes()
    command = f'"{sys.executable}" -m maskerade_fast predict "{model}" "{data}" {shell} "{data}"'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "standard output goes into" in done.stderr
    assert data.read_bytes() == content


@pytest.mark.skipif(os.name != "posix", reason="a locale of bytes")
def test_names_of_columns_are_utf8_in_every_locale(tmp_path: Path) -> None:
    data = written(tmp_path / "d.csv", "時間,y", [A, Y])
    command = [sys.executable, "-m", "maskerade_fast", "fit", str(data), *FAST]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command += ["--columns", "時間", "--target", "y", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_one_output_that_fails_costs_no_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is said, and the failure names its file."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("maskerade_fast.cli.fit.write_predictions", full)
    data = written(tmp_path / "d.csv", "a,y", [A, Y])
    outputs = ["--save", tmp_path / "m.npz", "--predictions", tmp_path / "p.csv"]
    status, out, err = run(capsys, "fit", data, *FAST, *outputs)
    assert status == 2
    assert f"Wrote {tmp_path / 'm.npz'}." in out
    assert err == f"maskerade-fast fit: {tmp_path / 'p.csv'}: cannot be written (No space left on device)\n"
    assert mf.load(tmp_path / "m.npz").feature_names == ("a",)
