"""Tables in commands (C39, C41 to C44): exact stamps, columns by name, rows to be forecast, outputs, headers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import refused, run, written
from numpy.testing import assert_allclose, assert_array_equal

import maskerade_fast as mf
from maskerade_fast.cli import main
from maskerade_fast.storage.csv_files import read_table

FAST = ["--budget", "12", "--seed", "3", "--max-components", "1"]


@pytest.fixture(scope="module")
def rows() -> dict[str, list[float]]:
    rng = np.random.default_rng(5)
    a, b = np.arange(12.0), rng.uniform(0.0, 3.0, 12)
    return {"a": list(a), "b": list(b.round(3)), "y": list((2.0 * a + np.sin(b)).round(4))}


@pytest.fixture(scope="module")
def model(rows: dict[str, list[float]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fitted to y, a, b with the target in front."""
    folder = tmp_path_factory.mktemp("model")
    data = written(folder / "d.csv", "y,a,b", [rows["y"], rows["a"], rows["b"]])
    assert main(["fit", str(data), "--target", "y", "--save", str(folder / "m.npz"), "--quiet", *FAST]) == 0
    return folder / "m.npz"


# ---- C39: digits beyond float64 ----


@pytest.mark.parametrize("step", [10**9, 1000, 300])
@pytest.mark.parametrize("origin", [1_700_000_000_000_000_000, -(2**62) + 1, 2**53 + 1])
def test_c39_nanoseconds_lose_nothing(step: int, origin: int) -> None:
    """The same bits wherever the stamps begin; predictions too."""
    k = np.arange(24)
    y = np.sin(2.0 * np.pi * k / 6.0) + 0.02 * np.cos(9.0 * k)
    options: dict[str, Any] = {"budget": 12, "max_components": 1, "seed": 0}
    near, far = mf.marginalise(k * step, y, **options), mf.marginalise(origin + k * step, y, **options)
    assert far.log_evidence == near.log_evidence
    new = k[:5] * step + step // 3
    assert_array_equal(far.predict(origin + new).mean, near.predict(new).mean)
    assert far.joint_log_density(origin + new, y[:5]) == near.joint_log_density(new, y[:5])


def test_c39_stamps_in_tables_and_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Read, saved, loaded, predicted and written to the last nanosecond."""
    stamps = [1_700_000_000_000_000_001 + 7 * k for k in range(20)]
    y = np.sin(0.5 * np.arange(20.0)).round(6)
    data, near = (
        written(tmp_path / "d.csv", "t,y", [stamps, y]),
        written(tmp_path / "n.csv", "t,y", [range(0, 140, 7), y]),
    )
    lines = [run(capsys, "fit", path, "--save", tmp_path / f"{path.stem}.npz", *FAST)[1] for path in (data, near)]
    evidences = [next(line for line in out.splitlines() if line.startswith("Log evidence")) for out in lines]
    assert evidences[0] == evidences[1]
    assert mf.load(tmp_path / "d.npz").standardiser.x_origin[0] != 0.0
    new = written(tmp_path / "new.csv", "t", [[stamps[3] + 1, stamps[4]]])
    status, out, _ = run(capsys, "predict", tmp_path / "d.npz", new)
    assert status == 0
    first, second = (line.split(",") for line in out.splitlines()[1:])
    assert (first[0], second[0]) == (str(stamps[3] + 1), str(stamps[4]))
    _, out, _ = run(capsys, "predict", tmp_path / "n.npz", written(tmp_path / "new.csv", "t", [[22, 28]]))
    assert [line.split(",")[1:] for line in out.splitlines()[1:]] == [first[1:], second[1:]]


def test_c39_long_targets_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = written(tmp_path / "d.csv", "x,y", [range(9), [2**60 + 3 * k * k for k in range(9)]])
    line = refused(capsys, "fit", data)
    assert "line 3, column 'y'" in line
    assert "has more digits than a float64 number holds" in line


# ---- C41: columns by name ----


def test_c41_columns_in_any_order(capsys: pytest.CaptureFixture[str], rows: Any, model: Path, tmp_path: Path) -> None:
    def predicted(names: str, *columns: str, options: tuple[str, ...] = ()) -> Any:
        data = written(tmp_path / "new.csv", names, [rows[c] for c in columns])
        out = tmp_path / "out.csv"
        assert run(capsys, "predict", model, data, "--predictions", out, *options)[0] == 0
        table = read_table(out)
        return table.values[:, table.column("mean")]

    expected = predicted("a,b", "a", "b")
    assert_allclose(expected, rows["y"], atol=3.0)
    for names in ("b,a", "y,b,a", "b,y,a", "a,b,y"):
        assert_array_equal(predicted(names, *names.split(",")), expected)
    assert_array_equal(predicted("u,other,v", "b", "y", "a", options=("--columns", "v,u")), expected)
    assert_array_equal(predicted("", "a", "b"), expected)  # no header: by place
    assert_array_equal(predicted("", "y", "a", "b"), expected)  # as in the table of the fit


@pytest.mark.parametrize(
    ("names", "width", "words"),
    [
        ("u,v", 2, "columns u, v, expected a, b as the model was fitted with (missing a, b; unknown u, v)"),
        ("a,b,c", 3, "columns a, b, c, expected a, b as the model was fitted with (unknown c)"),
        ("a", 1, "(missing b)"),
        ("a,A", 2, "(missing b; unknown A)"),
        ("a,b,a", 3, "some of one name, expected them in the model's order: a, b"),
        ("a,b,y,y", 4, "'y' is the name of several columns"),
        (
            "",
            4,
            "4 columns (column 1, column 2, column 3, column 4), expected the model's 2 inputs (a, b) in their order",
        ),
        ("", 1, "or the 3 columns of the table that was fitted; the table has no header"),
    ],
)
def test_c41_other_columns_are_refused_with_both_lists(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, names: str, width: int, words: str
) -> None:
    data = written(tmp_path / "new.csv", names, [[0.5, 1.5, 2.25]] * width)
    assert words in refused(capsys, "predict", model, data)


def test_c41_bad_choices_of_columns(capsys: pytest.CaptureFixture[str], model: Path, rows: Any, tmp_path: Path) -> None:
    data = written(tmp_path / "d.csv", "a,b,y", [rows["a"], rows["b"], rows["y"]])
    for command, words in (
        (["predict", model, data, "--columns", "a"], "--columns: 1 names, expected 2"),
        (["predict", model, data, "--columns", "a,z"], "'z' is no column; there are a, b, y"),
        (["fit", data, "--columns", "a,y"], "--columns: y is the target; name another with --target"),
        (["fit", data, "--columns", "a,y", "--target", "y"], "--columns: y is the target; leave it out"),
        (["fit", data, "--columns", "a,a"], "names a column twice"),
        (["fit", data, "--columns", "a,,b"], "expected names with commas between them"),
        (["fit", data, "--columns", ""], "expected names with commas between them"),
        (["fit", data, "--columns", "a,q"], "'q' is no column"),
    ):
        assert words in refused(capsys, *command)


def test_c41_columns_that_were_left_out_are_known(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Text in a column that nobody uses does no harm, and the table of the fit can be predicted as it is."""
    data = written(
        tmp_path / "d.csv", 'place,"a, in m",b,y', [["Rome", "Oslo"] * 4, range(8), [3, 1] * 4, np.arange(8.0) ** 2]
    )
    model = tmp_path / "m.npz"
    status, out, _ = run(capsys, "fit", data, "--columns", '"a, in m"', "--save", model, *FAST)
    assert status == 0
    assert '8 rows to learn y from "a, in m" (header in the first row)' in out
    post = mf.load(model)
    assert (post.feature_names, post.target_name) == (("a, in m",), "y")
    assert post.columns.table == ("place", "a, in m", "b", "y")
    status, out, _ = run(capsys, "predict", model, data)
    assert status == 0
    assert out.splitlines()[0].startswith('"a, in m",y,mean,sd')
    assert "column 'place': 'Rome', expected a finite number" in refused(capsys, "fit", data, *FAST)


def test_c41_models_and_tables_without_names(capsys: pytest.CaptureFixture[str], rows: Any, tmp_path: Path) -> None:
    """Fitted without a header, or in Python to plain arrays: by place, and a note says so."""
    data = written(tmp_path / "d.csv", "", [rows["y"], rows["a"], rows["b"]])
    model = tmp_path / "m.npz"
    status, out, _ = run(capsys, "fit", data, "--target", "column 1", "--save", model, *FAST)
    assert status == 0
    assert "learn column 1 from column 2, column 3 (no header: columns go by their places)" in out
    assert mf.load(model).feature_names is None
    status, expected, err = run(capsys, "predict", model, data)
    assert status == 0
    assert "the model holds no names; its columns are those of the table that was fitted" in err
    _, out, _ = run(capsys, "predict", model, written(tmp_path / "e.csv", "p,q", [rows["a"], rows["b"]]))
    assert [line.split(",")[2] for line in out.splitlines()[1:]] == [
        line.split(",")[3] for line in expected.splitlines()[1:]
    ]
    X = np.transpose([rows["a"], rows["b"]])
    mf.marginalise(X, rows["y"], budget=12, seed=0, max_components=1).save(model)
    new = written(tmp_path / "e.csv", "p,q,r", [rows["a"], rows["b"], rows["y"]])
    status, _, err = run(capsys, "predict", model, new)
    assert status == 0
    assert "the model holds no names; the target is r, the other columns are the model's inputs in their order" in err
    assert "expected the model's 2 inputs" in refused(
        capsys, "predict", model, written(tmp_path / "e.csv", "p", [rows["a"]])
    )


def test_c41_frames_in_python(rows: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows)
    post = mf.marginalise(frame[["a", "b"]], frame[["y"]], budget=12, seed=0, max_components=1)
    post.save(tmp_path / "m.npz")
    post = mf.load(tmp_path / "m.npz")
    assert (post.feature_names, post.target_name) == (("a", "b"), "y")
    expected = post.predict(frame[["a", "b"]].to_numpy()).mean
    assert_array_equal(post.predict(frame[["b", "a"]]).mean, expected)
    with pytest.raises(
        ValueError, match=r"X_new: columns u, b, expected a, b as the model was fitted with \(missing a;"
    ):
        post.predict(frame.rename(columns={"a": "u"})[["u", "b"]])
    with pytest.raises(ValueError, match=r"\(unknown y\)"):
        post.predict(frame)
    assert np.isfinite(post.joint_log_density(frame[["b", "a"]], frame["y"]))
    nameless = mf.marginalise(frame[["a", "b"]].to_numpy(), frame["y"], budget=12, seed=0, max_components=1)
    with pytest.warns(UserWarning, match="X_new: the model holds no names; columns b, a are taken by their places"):
        nameless.predict(frame[["b", "a"]])


def test_c41_files_of_earlier_layouts_are_matched_by_place(
    capsys: pytest.CaptureFixture[str], model: Path, rows: Any, tmp_path: Path
) -> None:
    """Layout 2 has neither names nor origins; layout 1 has no trend either."""
    from maskerade_fast.storage.archive import load_arrays, save_arrays

    arrays = load_arrays(model, kind="posterior", version=3)
    old = {k: v for k, v in arrays.items() if not k.startswith("columns_") and k != "standardiser_x_origin"}
    data = written(tmp_path / "new.csv", "a,b", [rows["a"], rows["b"]])
    _, expected, _ = run(capsys, "predict", model, data)
    for version in (2, 1):
        save_arrays(tmp_path / "old.npz", old, kind="posterior", version=version)
        post = mf.load(tmp_path / "old.npz")
        assert (post.feature_names, post.trend) == (None, "linear" if version == 2 else "none")
        status, out, err = run(capsys, "predict", tmp_path / "old.npz", data)
        assert (status, out == expected or version == 1) == (0, True)
        assert "the model holds no names; its columns are the model's inputs in their order" in err
        old.pop("trend", None)


# ---- C42: rows to be forecast ----


@pytest.mark.parametrize("blank", [range(7, 12), range(12), range(0, 12, 3)], ids=["last", "all", "some"])
def test_c42_rows_without_a_target_are_predicted(
    capsys: pytest.CaptureFixture[str], model: Path, rows: Any, tmp_path: Path, blank: Any
) -> None:
    y = ["" if k in blank else value for k, value in enumerate(rows["y"])]
    data = written(tmp_path / "new.csv", "a,b,y", [rows["a"], rows["b"], y])
    status, out, err = run(capsys, "predict", model, data)
    assert status == 0
    lines = [line.split(",") for line in out.splitlines()]
    assert len(lines) == 13
    assert all(float(line[3]) for line in lines[1:])
    assert [line[2] == "" for line in lines[1:]] == [k in blank for k in range(12)]
    assert ("there are no scores" in err) == (len(blank) == 12)
    assert ("RMSE" in err) == (len(blank) < 12)
    if len(blank) < 12:
        assert f"on {12 - len(blank)} rows" in err


def test_c42_rows_without_inputs_stay(
    capsys: pytest.CaptureFixture[str], model: Path, rows: Any, tmp_path: Path
) -> None:
    a = ["NA" if k == 1 else value for k, value in enumerate(rows["a"])]
    data = written(tmp_path / "new.csv", "a,b", [a, rows["b"]])
    status, out, err = run(capsys, "predict", model, data)
    assert status == 0
    lines = [line.split(",") for line in out.splitlines()]
    assert len(lines) == 13
    assert lines[2] == ["", repr(float(rows["b"][1])), *[""] * 7]
    assert "1 row with missing inputs: kept, without a prediction." in err
    nothing = written(tmp_path / "none.csv", "a,b", [["", ""], [1.0, ""]])
    status, out, _ = run(capsys, "predict", model, nothing)
    assert (status, out.splitlines()[1:]) == (0, [",1.0" + "," * 7, "," * 8])


def test_c42_fits_tell_what_they_leave_out(capsys: pytest.CaptureFixture[str], rows: Any, tmp_path: Path) -> None:
    y, a = list(rows["y"]), list(rows["a"])
    y[3] = y[9] = a[5] = ""
    data = written(tmp_path / "d.csv", "a,b,y", [a, rows["b"], y])
    out_file = tmp_path / "out.csv"
    status, out, _ = run(capsys, "fit", data, "--predictions", out_file, *FAST)
    assert status == 0
    for words in ("2 rows without a target: predicted", "1 row with missing inputs", "9 rows to learn y from a, b"):
        assert words in out
    table = read_table(out_file)
    assert len(table.values) == 12
    mean = table.values[:, table.column("mean")]
    assert_array_equal(np.isnan(mean), np.arange(12) == 5)
    status, out, _ = run(
        capsys, "fit", data, "--split", "last", "--test-fraction", 0.25, "--predictions", out_file, *FAST
    )
    assert status == 0
    assert "2 held out (last)" in out
    assert_array_equal(read_table(out_file).values[:, 0], [3.0, np.nan, 9.0, 10.0, 11.0])
    empty = written(tmp_path / "e.csv", "a,b,y", [rows["a"], rows["b"], [""] * 12])
    assert "no row has all of a, b and y; nothing is in y" in refused(capsys, "fit", empty)


# ---- C43: outputs ----


def test_c43_outputs_are_checked_before_the_fit(
    capsys: pytest.CaptureFixture[str], rows: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = written(tmp_path / "d.csv", "a,b,y", [rows["a"], rows["b"], rows["y"]])
    content = data.read_bytes()
    os.link(data, tmp_path / "hard.csv")
    (tmp_path / "soft.csv").symlink_to(data)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("maskerade_fast.run.marginalise.marginalise", lambda *_, **__: pytest.fail("it began"))
    refusable: list[list[Any]] = [
        *(["--save", name] for name in ("d.csv", data, "hard.csv", "soft.csv", "./x/../d.csv", tmp_path, "no/m.npz")),
        ["--predictions", "d.csv"],
        ["--checkpoint", "soft.csv"],
        ["--save", "z", "--predictions", "z"],
        ["--save", "z", "--predictions", tmp_path / "z"],
        ["--plot", "z.png", "--save", "z.png"],
    ]
    for options in refusable:
        if "x/.." in str(options[1]):
            (tmp_path / "x").mkdir()
        assert "fit: --" in refused(capsys, "fit", data, *options)
    assert "predictions" in refused(capsys, "predict", model, data, "--predictions", data)
    assert "predictions" in refused(capsys, "predict", model, data, "--predictions", model)
    assert data.read_bytes() == content


def test_c43_names_of_outputs_are_used_once(capsys: pytest.CaptureFixture[str], rows: Any, tmp_path: Path) -> None:
    for names in ("mean,sd,y", "predicted mean,mean,q05", "a,a,y", "sd,b,sd 2"):
        data = written(tmp_path / "d.csv", names, [rows["a"], rows["b"], rows["y"]])
        status, _, err = run(capsys, "fit", data, "--predictions", tmp_path / "out.csv", *FAST)
        assert (status, err) == (0, "")
        columns = read_table(tmp_path / "out.csv").names
        assert len(set(columns)) == len(columns) == 10
        assert columns[0] == names.split(",")[0]


# ---- C44: headers ----


@pytest.mark.parametrize(
    ("content", "options", "n_rows", "words"),
    [
        ("2018,2019\n1.5,2\n2.5,4\n3.5,7\n", [], 3, "learn 2019 from 2018 (header"),
        ("2019,y\n1,NA\n2,4\n3,6\n", [], 2, "learn y from 2019 (header"),
        ("x,2019\n1,2\n2,4\n3,5\n", [], 3, "learn 2019 from x (header"),
        ("1,2\n2,4\n3,7\n", [], 3, "(no header"),
        ("1,2\n2,4\n3,7\n", ["--header", "yes"], 2, "learn 2 from 1 (header"),
        ("2018,2019\n1.5,2\n2.5,4\n", ["--header", "no"], 3, "(no header"),
    ],
)
def test_c44_headers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, options: list[str], n_rows: int, words: str
) -> None:
    data = tmp_path / "d.csv"
    data.write_text(content)
    status, out, _ = run(capsys, "fit", data, *options, *FAST)
    assert status == 0
    assert words in out
    assert f"{n_rows} rows to learn" in out


# ---- What deserves a look ----


@pytest.mark.parametrize(
    ("names", "columns", "options", "words"),
    [
        ("a,b,y", [[4.0] * 6, range(6), [1, 2, 3, 5, 8, 13]], [], "same number in every row, which tells nothing: a"),
        (",b,y", [range(6), [3, 1, 4, 1, 5, 9], [1, 2, 3, 5, 8, 13]], [], "Column 1 has no name and counts the rows"),
        ("a,y", [range(6), [2.0] * 6], [], "The target y is the same in every row"),
        ("day,y", [[20240130, 20240131, 20240201, 20240204, 20240205, 20240301], range(6)], [], "look like dates"),
        (
            "t,y",
            [range(6, 0, -1), range(6)],
            ["--split", "last", "--test-fraction", "0.2"],
            "Rows run backwards: t falls",
        ),
        ("t,y", [[1, 3, 2, 5, 4], range(5)], ["--split", "last", "--test-fraction", "0.2"], "not in the order of t"),
    ],
)
def test_odd_columns_are_reported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, names: str, columns: Any, options: list[str], words: str
) -> None:
    status, out, _ = run(capsys, "fit", written(tmp_path / "d.csv", names, columns), *options, *FAST)
    assert status == 0
    assert words in out
    plain = written(tmp_path / "p.csv", "a,y", [[0.5, 1.0, 2.0, 4.0, 7.0], [1, 2, 3, 5, 8]])
    status, out, _ = run(capsys, "fit", plain, *options, *FAST)
    assert words not in out
