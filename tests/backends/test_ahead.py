"""Compiling ahead: everything is compiled once, by two processes, whatever becomes of the second one."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow

# Runs the command and writes which loops this process compiled; BEFORE and HELPER stand for what a case does first
PROGRAM = """
import json, os, sys
import numba.core.event as event

class Compiled(event.Listener):
    names = []
    def on_start(self, event):
        self.names.append(event.data["dispatcher"].py_func.__module__ + "." + event.data["dispatcher"].py_func.__name__)
    def on_end(self, event): pass

event.register("numba:compile", Compiled())
BEFORE
from maskerade_fast.backends.cpu import _ahead
HELPER
from maskerade_fast.cli import main
status = main(sys.argv[2:])
open(sys.argv[1], "w").write(json.dumps([status, _ahead._helper.started, Compiled.names]))
"""


def table(folder: Path, kind: str) -> Path:
    rng = np.random.default_rng(0)
    if kind == "dense":
        return ROOT / "examples" / "airline.csv"
    path = folder / f"{kind}.csv"
    if kind == "grid":
        x = np.arange(60.0)
        rows = [f"{a},{np.sin(a):.6f}" for a in x]
        path.write_text("\n".join(["x,y", *rows]) + "\n")
    else:
        x2 = rng.uniform(size=(40, 2))
        path.write_text("\n".join(["a,b,y", *(f"{a:.6f},{b:.6f},{np.sin(4 * a) + b:.6f}" for a, b in x2)]) + "\n")
    return path


def with_cache(folder: Path, threads: str = "2") -> dict[str, str]:
    """An environment with a cache of its own in `folder`."""
    return {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "NUMBA_NUM_THREADS": threads}


def fit(
    folder: Path,
    kind: str,
    *options: str,
    before: str = "",
    helper: str = "",
    threads: str = "2",
) -> tuple[int, bool, list[str], str]:
    """Exit status, whether a helper was started, what this process compiled, and what the command printed."""
    program = PROGRAM.replace("BEFORE", before).replace("HELPER", helper)
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    command = ["fit", str(table(folder, kind)), "--test-fraction", "0.1", "--budget", "60", "--seed", "1"]
    done = subprocess.run(
        [sys.executable, "-c", program, str(report), *command, "--device", "cpu", *options],
        env=with_cache(folder, threads),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status, started, names = json.loads(report.read_text())
    return status, started, [n for n in names if n.startswith("maskerade_fast")], done.stdout + done.stderr


def picture(folder: Path) -> list[str]:
    """Options for one, where matplotlib is installed: it needs quantiles."""
    return ["--plot", str(folder / "fit.png")] if importlib.util.find_spec("matplotlib") else []


def result(printed: str) -> list[str]:
    """What does not depend on the clock."""
    return [line for line in printed.splitlines() if not line.startswith("Time")]


two_processors = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one processor"
)


@two_processors
@pytest.mark.parametrize("kind", ["dense", "grid", "plane"])
def test_a_first_fit_leaves_nothing_to_compile(tmp_path: Path, kind: str) -> None:
    status, started, first, printed = fit(tmp_path, kind, *picture(tmp_path))
    assert (status, started) == (0, True)
    assert not [name for name in first if "_student_loops" in name or "_pair_sums" in name]  # the helper's share
    status, started, names, again = fit(tmp_path, kind, *picture(tmp_path))
    assert (status, started, names) == (0, False, [])
    assert result(again) == result(printed)


@two_processors
def test_warm_up_leaves_nothing_to_compile(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "maskerade_fast", "warm-up", "--device", "cpu"]
    done = subprocess.run(command, env=with_cache(tmp_path), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0
    assert re.fullmatch(r"([0-9]+ s: Compiling for this machine, once\.\n)*", done.stderr)  # on a slow machine
    assert re.fullmatch(r"Compiled for cpu, or found compiled, in [0-9.]+ s.\n", done.stdout)
    for kind in ("dense", "grid", "plane"):
        status, started, names, _ = fit(tmp_path, kind, *picture(tmp_path))
        assert (status, started, names) == (0, False, [])


def test_warm_up_refuses_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from maskerade_fast import cli

    monkeypatch.setattr("maskerade_fast.backends.gpu_problem", lambda: "no card")
    assert cli.main(["warm-up", "--device", "gpu"]) == 2
    assert "device='gpu': no card" in capsys.readouterr().err


@two_processors
@pytest.mark.parametrize("columns", [1, 2])
def test_a_line_says_once_that_loops_are_compiled(tmp_path: Path, columns: int) -> None:
    code = """
from maskerade_fast.backends import compile_ahead
said = []
compile_ahead(COLUMNS, lambda: said.append("compiling"))
compile_ahead(COLUMNS, lambda: said.append("again"))
assert said == EXPECTED, said
""".replace("COLUMNS", str(columns))
    for expected in (["compiling"], []):
        command = [sys.executable, "-c", code.replace("EXPECTED", repr(expected))]
        subprocess.run(command, env=with_cache(tmp_path), check=True)


CASES = {
    "cannot start": "import subprocess\ndef no(*a, **k): raise OSError('no processes')\nsubprocess.Popen = no",
    "does not know its program": "_ahead.sys = type('S', (), {'executable': None, 'path': []})",
    "crashes at once": "_ahead.sys = type('S', (), {'executable': '/bin/false', 'path': []})",
    "is killed at work": """
import threading, time
def kill():
    while _ahead._helper._process is None: time.sleep(0.01)
    time.sleep(1.5)
    _ahead._helper._process.kill()
threading.Thread(target=kill, daemon=True).start()
""",
}


@two_processors
@pytest.mark.parametrize("case", CASES)
def test_without_the_helper_the_fit_compiles_all(tmp_path: Path, case: str) -> None:
    status, _, names, printed = fit(tmp_path, "dense", helper=CASES[case])
    assert status == 0
    assert any("_pair_sums" in name for name in names)
    status, _, names, again = fit(tmp_path, "dense")
    assert (status, names) == (0, [])
    assert result(again) == result(printed)


def test_one_thread_has_no_helper(tmp_path: Path) -> None:
    status, started, names, _ = fit(tmp_path, "dense", threads="1")
    assert (status, started) == (0, False)
    assert any("_pair_sums" in name for name in names)


def test_no_folder_for_a_cache_costs_no_result(tmp_path: Path) -> None:
    """Numba would refuse to decorate the first loop."""
    before = "from numba.core import caching\ncaching.CompileResultCacheImpl._locator_classes = []"
    status, started, names, _ = fit(tmp_path, "dense", before=before)
    assert (status, started) == (0, False)
    assert names
    assert not list(tmp_path.rglob("*.nbi"))


@two_processors
def test_two_commands_at_once_share_one_cache(tmp_path: Path) -> None:
    """In different dimensions, whose tiles of distances have one signature."""
    options = ["--test-fraction", "0.1", "--budget", "60", "--seed", "1", "--device", "cpu"]
    kinds = ("dense", "plane")
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "maskerade_fast", "fit", str(table(tmp_path, kind)), *options],
            env=with_cache(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for kind in kinds
    ]
    outputs = [run.communicate(timeout=300) for run in runs]
    for kind, run, (printed, errors) in zip(kinds, runs, outputs, strict=True):
        assert run.returncode == 0, errors
        assert result(fit(tmp_path, kind)[3]) == result(printed + errors)


def children(pid: int) -> list[int]:
    """Processes whose parent is `pid`."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # one that has ended
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                processes.append(int(path.parent.name))
    return processes


@pytest.fixture
def cold_fit(tmp_path: Path) -> Iterator[tuple[Any, int]]:
    """A first fit at work, and its helper."""
    command = [sys.executable, "-m", "maskerade_fast", "fit", str(table(tmp_path, "dense")), "--device", "cpu"]
    process = subprocess.Popen(
        command, env=with_cache(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        end = time.monotonic() + 60
        while not (helpers := children(process.pid)):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.02)
        yield process, helpers[0]
    finally:
        process.kill()
        process.communicate()


@two_processors
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_helper_ends_with_its_parent(cold_fit: tuple[Any, int], number: signal.Signals) -> None:
    process, helper = cold_fit
    time.sleep(1.0)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGKILL else 130)
    end = time.monotonic() + 10
    while Path(f"/proc/{helper}").exists():
        assert time.monotonic() < end, Path(f"/proc/{helper}/status").read_text()
        time.sleep(0.05)
