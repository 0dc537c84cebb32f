"""The command line: what it prints and writes, and one line with exit status 2 for each kind of bad input."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import refused, run
from numpy.testing import assert_allclose, assert_array_equal

import maskerade_fast
from maskerade_fast import BackendUnavailableError
from maskerade_fast.cli import main
from maskerade_fast.storage.csv_files import read_table

FAST = ["--budget", "12", "--seed", "3"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    x = np.linspace(0.0, 10.0, 24)
    rows = "".join(f"{a},{b}\n" for a, b in zip(x, np.sin(x) + 0.01 * x**2, strict=True))
    path = tmp_path / "wave.csv"
    path.write_text("time,height\n" + rows)
    return path


def test_fit_then_predict(capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot, predictions, model = tmp_path / "fit.png", tmp_path / "p.csv", tmp_path / "m.npz"
    written = ["--plot", plot, "--panels", "--predictions", predictions, "--save", model]
    status, out, err = run(capsys, "fit", data, "--test-fraction", 0.25, *FAST, *written)
    assert (status, err) == (0, "")
    for word in (
        "18 rows to learn height from time (header in the first row); 6 held out",
        "Log evidence",
        "±",
        "Mixture size",
    ):
        assert word in out
    for word in ("12 likelihoods", "RMSE", "Log density", "Time", "Wrote"):
        assert word in out
    assert plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    held_out = read_table(predictions)
    assert held_out.names[:4] == ("time", "height", "mean", "sd")
    assert held_out.values.shape == (6, 9)

    new = tmp_path / "new.csv"
    new.write_text("time\n" + "".join(f"{float(t)!r}\n" for t in held_out.values[:, 0]))
    again = tmp_path / "again.csv"
    status, out, err = run(capsys, "predict", model, new, "--predictions", again)
    assert (status, out, err) == (0, "", "")
    assert_allclose(read_table(again).values[:, 1:], held_out.values[:, 2:], rtol=1e-12)
    status, out, err = run(capsys, "predict", model, data)  # with its target: scores on standard error
    assert status == 0
    assert out.splitlines()[0] == "time,height,mean,sd,q05,q25,q50,q75,q95"
    assert len(out.splitlines()) == 25
    assert "RMSE" in err


def test_same_seed_same_numbers(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    fits = [run(capsys, "fit", data, "--test-fraction", 0.2, *FAST)[1].splitlines() for _ in range(2)]
    first, second = ([line for line in fit if not line.startswith("Time")] for fit in fits)
    assert first == second


def test_trend(capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.npz"
    assert run(capsys, "fit", data, "--trend", "linear", "--save", model, *FAST)[0] == 0
    assert maskerade_fast.load(model).trend == "linear"
    with pytest.raises(SystemExit, match="2"):
        run(capsys, "fit", data, "--trend", "cubic")


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    assert run(capsys, "fit", data, "--quiet", *FAST) == (0, "", "")


@pytest.mark.parametrize("content", ["x,y\n0,2\n1,2\n2,2\n3,2\n", "5,2\n", "0,1\n0,1.5\n1,2\n"])
def test_degenerate_data_fit(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str) -> None:
    """A constant target, a single row, a repeated input."""
    path, predictions = tmp_path / "data.csv", tmp_path / "p.csv"
    path.write_text(content)
    status, out, err = run(capsys, "fit", path, "--predictions", predictions, *FAST)
    assert (status, err) == (0, "")
    assert "Log evidence" in out
    values = read_table(predictions).values
    assert np.isfinite(values).all()
    if "5" not in content.split("\n")[1]:
        assert_array_equal(values[:, 2], np.full(len(values), 2.0))  # exactly the constant
    assert (values[:, 3] > 0.0).all()


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, [], "No such file"),
        ("", [], "empty"),
        ("a,b\n1,red\n2,blue\n", [], "column 'b': 'red', expected a finite number"),
        ("a,b\n1,2\n3\n", [], "line 3: 1 cell,"),
        ("a\n1\n2\n", [], "one column"),
        ("a,b\n1,2\n", ["--target", "c"], "'c' is no column; there are a, b"),
        ("a,b\n1,2\n", ["--test-fraction", "0.5"], "leaves none to learn from"),
        ("a,b\n1,2\n2,3\n", ["--test-fraction", "1.5"], "--test-fraction: 1.5"),
        ("a,b\n1,2\n2,3\n", ["--test-fraction", "nan"], "--test-fraction: nan"),
        ("a,b\n1,2\n2,3\n", ["--budget", "0"], "budget: 0, expected >= 1"),
        ("a,b\n1,2\n2,3\n", ["--minutes", "-1"], "--minutes: -1, expected more than 0"),
        ("a,b\n1,2\n2,3\n", ["--minutes", "0"], "--minutes: 0, expected more than 0"),
        ("a,b\n1,2\n2,3\n", ["--seed", "-1"], "seed: -1"),
        ("a,b\n1,2\n2,3\n", ["--save", "none/m.npz"], "no folder"),
    ],
)
def test_bad_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str | None, options: list[str], message: str
) -> None:
    path = tmp_path / "data.csv"
    if content is not None:
        path.write_text(content)
    assert message in refused(capsys, "fit", path, "--quiet", *options)


@pytest.mark.usefixtures("without_cupy")
def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    assert "device='gpu': the GPU backend needs CuPy" in refused(capsys, "fit", data, "--quiet", "--device", "gpu")
    assert "not usable: the GPU backend needs CuPy" in run(capsys, "info")[1]


@pytest.mark.usefixtures("emulated")
def test_a_gpu(capsys: pytest.CaptureFixture[str], data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def recorded(*_: Any, device: str, **__: Any) -> None:
        seen["device"] = device
        raise BackendUnavailableError("enough seen")

    assert "emulated device; CuPy is" in run(capsys, "info")[1]
    monkeypatch.setattr("maskerade_fast.run.marginalise.marginalise", recorded)
    refused(capsys, "fit", data, "--quiet", "--device", "gpu")
    assert seen == {"device": "gpu"}


def test_bad_options_of_argparse(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["fit"], ["fit", "a.csv", "--split", "odd"], ["fit", "a.csv", "--budget", "many"], ["bench"], []):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_bad_models(capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path) -> None:
    assert "No such file" in refused(capsys, "predict", tmp_path / "none.npz", data)
    assert "not a file saved by maskerade_fast" in refused(capsys, "predict", data, data)
    model, wide = tmp_path / "m.npz", tmp_path / "wide.csv"
    assert run(capsys, "fit", data, "--quiet", "--save", model, *FAST)[0] == 0
    wide.write_text("1,2,3\n4,5,6\n")
    assert "3 columns (column 1, column 2, column 3), expected the model's 1 input (time)" in refused(
        capsys, "predict", model, wide
    )


def test_plot_without_matplotlib(
    capsys: pytest.CaptureFixture[str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backend_bases", None)
    assert "there is no --plot" in refused(capsys, "fit", data, "--panels", *FAST)
    line = refused(capsys, "fit", data, "--plot", "fit.png", *FAST)
    assert "pip install 'maskerade_fast[plot]'" in line


def test_interrupt_before_a_result(
    capsys: pytest.CaptureFixture[str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("maskerade_fast.run.marginalise.marginalise", interrupted)
    status, _, err = run(capsys, "fit", data)
    assert status == 130
    assert err == "maskerade-fast fit: interrupted before there was a result\n"


def test_minutes_replace_the_budget(
    capsys: pytest.CaptureFixture[str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def recorded(X: Any, y: Any, **options: Any) -> None:
        seen.update(options)
        raise BackendUnavailableError("enough\nseen")

    monkeypatch.setattr("maskerade_fast.run.marginalise.marginalise", recorded)
    assert refused(capsys, "fit", data, "--quiet", "--minutes", 0.5) == "maskerade-fast fit: enough seen\n"
    assert (seen["budget"], seen["time_budget"], seen["progress"]) == (None, 30.0, False)


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "info")
    assert status == 0
    for word in ("maskerade_fast", "numpy", "threads", "BLAS", "compiled code", "devices", "GPU"):
        assert word in out


def test_module() -> None:
    command = [sys.executable, "-m", "maskerade_fast"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("maskerade-fast")
    missing = subprocess.run([*command, "fit", "none.csv"], capture_output=True, text=True)
    assert missing.returncode == 2
    assert missing.stderr == "maskerade-fast fit: none.csv: cannot be read (No such file or directory)\n"


def test_checkpoint(capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path) -> None:
    """The same call prints the same; other data are refused; a random split needs a seed."""
    path = tmp_path / "run.checkpoint"
    command = ["fit", data, "--test-fraction", 0.25, "--checkpoint", path]
    outputs = [run(capsys, *command, *FAST)[1].split("Time") for _ in range(2)]
    assert outputs[0][0] == outputs[1][0]
    assert path.stat().st_size > 0
    assert "--checkpoint: beside a random split expected --seed" in refused(capsys, *command)
    status, _, err = run(capsys, "fit", data, *FAST, "--checkpoint", path)
    assert (status, err.count("\n")) == (2, 1)
    assert f"fit: checkpoint: {path}: of another run: X differs, y differs" in err
    assert "no folder" in refused(capsys, "fit", data, "--checkpoint", tmp_path / "no" / "where")


@pytest.mark.parametrize("threads", ["0", "-1", "two", ""])
def test_numbers_of_threads_that_are_none(
    capsys: pytest.CaptureFixture[str], data: Path, monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    assert f"NUMBA_NUM_THREADS: {threads!r}, expected a whole number" in refused(capsys, "fit", data)


def test_warm_up_asks_every_device(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("maskerade_fast.cli.warm_up.compile_ahead", lambda n_dims: calls.append(n_dims))
    monkeypatch.setattr("maskerade_fast.run.warm_up.warm_up_on", calls.append)
    for problem, devices in (("no driver", ["cpu"]), (None, ["cpu", "gpu"])):
        calls.clear()
        monkeypatch.setattr("maskerade_fast.cli.warm_up.gpu_problem", lambda problem=problem: problem)
        assert main(["warm-up"]) == 0
        assert calls == [1, *devices]
        assert capsys.readouterr().out.startswith(f"Compiled for {' and '.join(devices)}, or found compiled, in ")
    calls.clear()
    assert main(["warm-up", "--device", "cpu"]) == 0
    assert calls == [1, "cpu"]


def test_the_collector_works_again_after_the_first_row(data: Path) -> None:
    """A command starts without it (`_start`)."""
    gc.disable()
    try:
        assert main(["fit", str(data), *FAST, "--quiet"]) == 0
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
