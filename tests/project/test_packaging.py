"""The wheel: pure, complete, importable anywhere; no CUDA package and no torch among its requirements."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.mark.slow
def test_wheel_is_pure(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")


@pytest.mark.slow
def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {p.relative_to(ROOT).as_posix() for p in (ROOT / "maskerade_fast").rglob("*.py")}
    kernels = {f"maskerade_fast/{p.relative_to(ROOT).as_posix()}" for p in (ROOT / "kernels").iterdir()}
    assert kernels
    assert sources | kernels | {"maskerade_fast/py.typed"} <= names
    tops = {n.split("/")[0] for n in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"maskerade_fast"}
    assert any(n.split("/")[-1] == "LICENSE" for n in names)
    assert not [n for n in names if n.endswith((".so", ".pyd", ".pyc", ".nbi", ".nbc"))]


@pytest.mark.slow
def test_plain_install_pulls_no_cuda_package(metadata: Message) -> None:
    required = [r for r in metadata.get_all("Requires-Dist") or [] if "extra ==" not in r]
    names = {r.split(">")[0].split("=")[0].split(";")[0].strip() for r in required}
    assert names == {"numpy", "scipy", "numba", "threadpoolctl", "tqdm"}
    assert not [r for r in required if "<" in r or "==" in r], "a requirement is pinned from above"


@pytest.mark.slow
def test_every_module_imports_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = """
import importlib, pkgutil, sys
import maskerade_fast
for info in pkgutil.walk_packages(maskerade_fast.__path__, "maskerade_fast.", onerror=lambda name: None):
    if info.name.rpartition(".")[2] not in ("__main__", "plotting") and ".gpu" not in info.name: # gpu needs a card
        importlib.import_module(info.name)
print({m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] == "maskerade_fast"})
"""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert str(ROOT / "maskerade_fast") not in run.stdout
    assert str(tmp_path / "site" / "maskerade_fast") in run.stdout


def test_each_cuda_version_has_an_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for version in (12, 13):
        assert [r.partition(">")[0] for r in extras[f"cuda{version}"]] == [f"cupy-cuda{version}x"]


def test_version_is_said_once() -> None:
    import maskerade_fast

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert maskerade_fast.__version__ == project["version"]
