"""The package's own errors: wrong options raise UsageError, missing extras MissingDependencyError, files DataError."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import maskerade_fast as mf
from maskerade_fast import cli
from maskerade_fast.cli.console import Session
from maskerade_fast.cli.fit import fit
from maskerade_fast.cli.parser import parser

PACKAGE = Path(mf.__file__).parent


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.csv"
    path.write_text("a,b\n1,2\n2,3\n3,5\n")
    return path


def run_fit(*arguments: object) -> None:
    """The command within the process, without `run`, which turns errors into a line and an exit status."""
    fit(parser().parse_args(["fit", *map(str, arguments)]), Session())


def test_what_they_are() -> None:
    assert issubclass(mf.UsageError, ValueError)
    assert issubclass(mf.MissingDependencyError, ImportError)
    assert not issubclass(mf.UsageError, mf.DataError)


@pytest.mark.parametrize(
    "options",
    [
        ["--panels"],
        ["--test-fraction", 1.5],
        ["--test-fraction", 0.9],
        ["--minutes", 0],
        ["--columns", "a,"],
        ["--columns", "a,a"],
        ["--columns", "b"],
        ["--checkpoint", "run.checkpoint", "--test-fraction", 0.5],
        ["--save", "nowhere/model.npz"],
        ["--save", "m", "--predictions", "m"],
    ],
)
def test_wrong_options(data: Path, monkeypatch: pytest.MonkeyPatch, options: list[Any]) -> None:
    monkeypatch.chdir(data.parent)
    with pytest.raises(mf.UsageError, match=r"^--"):
        run_fit(data, "--quiet", *options)


def test_wrong_settings(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "none")
    with pytest.raises(mf.UsageError, match=r"^NUMBA_NUM_THREADS: 'none'"):
        cli._check_threads()


def test_wrong_files(data: Path) -> None:
    data.write_text("a,b\n1,red\n")
    with pytest.raises(mf.DataError, match="column 'b': 'red'"):
        run_fit(data, "--quiet")


def test_missing_extras(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backend_bases", None)
    with pytest.raises(mf.MissingDependencyError, match=r"^--plot needs matplotlib: pip install 'mask") as caught:
        run_fit(data, "--quiet", "--plot", data.parent / "a.png")
    assert caught.value.name == "matplotlib"


def raised(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name of every error that is made with a literal message, and how the message begins and goes on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("Error"):
            for argument in node.args[:1]:
                parts = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
                values = [p.value if isinstance(p, ast.FormattedValue) else p for p in parts]
                texts = [str(v.value) if isinstance(v, ast.Constant) else f"<{ast.unparse(v)}>" for v in values]
                yield node.func.id, "".join(texts)


def test_every_message_has_its_kind() -> None:
    """Of what the package raises: messages that begin with an option, and those that say what pip installs."""
    found: dict[str, set[str]] = {"option": set(), "extra": set()}
    for path in sorted(PACKAGE.rglob("*.py")):
        for kind, message in raised(ast.parse(path.read_text())):
            if "pip install" in message and "CuPy" not in message:
                found["extra"].add(kind)
            elif message.startswith(("--", "<option>")):
                found["option"].add(kind)
    assert found == {"option": {"UsageError"}, "extra": {"MissingDependencyError"}}
