"""What keeps CI honest: what a run leaves out, the least number of emulated cases, compilers, and the sweep."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sweep

ROOT = Path(__file__).parents[2]


def run(*arguments: str, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit status and output of pytest."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | dict(environment or {})
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_too_few_emulated_cases_fail() -> None:
    cases = (ROOT / "tests" / "kernels" / "test_kernel_common.py").read_text(encoding="utf-8").count("\ndef test_")
    status, output = run("tests/kernels/test_kernel_common.py")
    assert (status, f"{cases} emulated cases passed\n" in output) == (0, True)
    status, output = run("tests/kernels/test_kernel_common.py", "--ci")
    assert status == 1
    assert f"{cases} emulated cases passed, expected" in output


def test_a_missing_compiler_fails(tmp_path: Path) -> None:
    """Neither nvcc nor NVRTC: tests skip, and fail in CI; without g++ they fail anyway."""
    (tmp_path / "sitecustomize.py").write_text("import ctypes.util\nctypes.util.find_library = lambda name: None\n")
    paths = [p for p in os.environ["PATH"].split(os.pathsep) if not (Path(p) / "nvcc").exists()]
    without = {"PATH": os.pathsep.join(paths), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    case = "tests/kernels/test_kernel_sources.py::test_a_stack_frame_and_shared_memory_are_seen"
    if "1 skipped" not in run(case, environment=without)[1]:
        pytest.skip("NVRTC is among the packages of this environment")
    status, output = run(case, "--ci", environment=without)
    assert status == 1
    assert "neither nvcc nor NVRTC" in output
    status, output = run("tests/kernels/test_kernel_common.py", environment={"CXX": "no-such-compiler"})
    assert status == 1
    assert re.search(r"^\d+ failed in", output, re.M)


REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_b[1]"><properties><property name="emulated" value="3"/></properties>
</testcase>
<testcase classname="tests.test_a" name="test_b[2]"/>
<testcase classname="tests.test_a" name="test_c"><failure message="assert 1 == 2">long</failure></testcase>
<testcase classname="tests.test_a" name="test_d"><error message="no fixture">long</error></testcase>
<testcase classname="tests.test_a" name="test_e"><skipped message="no card"/></testcase>
</testsuite></testsuites>"""


def test_the_sweep_reads_reports(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert sweep.read(tmp_path / "report.xml") == {
        **{"passed": 2, "failed": 2, "skipped": 1, "emulated": 1},
        "failures": {"tests.test_a::test_c": "assert 1 == 2", "tests.test_a::test_d": "no fixture"},
    }


def test_the_sweep_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = {"test_a-1": ["tests/test_a.py::one"], "test_b-1": ["tests/test_b.py::two"]}
    monkeypatch.setattr(sweep, "FOLDER", tmp_path)
    monkeypatch.setattr(sweep, "pieces", lambda: everything)
    monkeypatch.setattr(sweep, "key", lambda piece: "sources")
    monkeypatch.setattr(sweep, "commit", lambda: "0123")
    monkeypatch.setattr(sys, "argv", ["sweep.py"])
    ran = []

    def pytest_alone(command: list[str], **options: Any) -> None:
        ran.append(command[-1])
        report = next(part.partition("=")[2] for part in command if part.startswith("--junitxml="))
        if len(ran) != 3:  # the third leaves none
            Path(report).write_text('<testsuite><testcase classname="a" name="b"/></testsuite>')

    monkeypatch.setattr(subprocess, "run", pytest_alone)
    sweep.run("test_a-1", everything["test_a-1"], 1)
    assert sweep.main() == 0
    assert ran == ["tests/test_a.py::one", "tests/test_b.py::two"]
    assert "2 of 2 pieces at 0123: 2 passed, 0 failed" in capsys.readouterr().out
    monkeypatch.setattr(sweep, "key", lambda piece: "other sources")
    assert sweep.main() == 1
    assert ran[2:] == ["tests/test_a.py::one", "tests/test_b.py::two"]
    said = capsys.readouterr().out
    assert "test_a-1: 0 passed, 1 failed" in said
    assert "FAILED pytest itself: 1 tests without outcome" in said


def test_long_pieces_outlive_other_changes() -> None:
    keys = [sweep.key(f"{name}-1") for name in (*sweep.SOURCES_OF, "test_card")]
    assert len(set(keys)) == len(keys)
    assert all(list(ROOT.glob(path)) for paths in sweep.SOURCES_OF.values() for path in paths)


TESTS = """
import pytest
def test_plain(): pass
def test_emulated(emulated): pass
@pytest.mark.sample
def test_sample(emulated): pass
@pytest.mark.slow
def test_slow(): pass
@pytest.mark.matrix
def test_matrix(): pass
@pytest.mark.sweep
def test_sweep(): pass
"""


@pytest.mark.parametrize(
    ("arguments", "chosen", "said"),
    [
        ("", "plain sample", "left out: 1 on the emulator, 1 of the compile matrix, 1 slow; --all runs them"),
        ("--all", "plain emulated sample slow matrix", None),
        ("--sweep", "plain emulated sample slow matrix sweep", None),
        ("-m slow", "slow", None),
        ("-m emulator", "emulated", None),
        ("-m sweep", "", None),
        ("test_some.py", "plain emulated sample slow matrix", None),
        ("test_some.py::test_slow", "slow", None),
    ],
)
def test_what_a_run_leaves_out(tmp_path: Path, arguments: str, chosen: str, said: str | None) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = sample\n    slow\n    matrix\n    sweep\n    emulator\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        f"import sys, pytest\nsys.path.append({str(ROOT / 'tests')!r})\nimport selection\n"
        "from selection import pytest_addoption\n"
        "def pytest_configure(config): config.pluginmanager.register(selection.Selection(config))\n"
        "@pytest.fixture\ndef emulated(): pass\n"
    )
    options = ["-p", "no:cacheprovider", "-vv", f"--rootdir={tmp_path}"]
    output = run(*options, *arguments.split(), cwd=tmp_path)[1]
    assert re.findall(r"::test_(\w+) PASSED", output) == chosen.split(), output
    assert (said is None) == ("left out" not in output)
    assert said is None or said in output
