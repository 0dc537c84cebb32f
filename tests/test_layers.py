"""A module imports only from rows below its own or from its left in its own row; numba and cupy stay home."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = "maskerade_fast"
PACKAGE = Path(__file__).parents[1] / ROOT

# Bottom to top; within a row left to right (gmm first: the Standardiser of data maps
# mixtures between units). A name ending in "." stands for every module of that package.
ROWS: list[list[str]] = [
    ["_start", "errors", "_text", "_checks", "_containers", "_memory", "_version", "_sobol"],
    ["output_files", "pictures", "streams", "console", "heartbeat"],
    ["backends._blas", "backends._lags", "backends.contract", "backends", "backends.cpu.", "backends.gpu."],
    ["gmm", "grid", "trend", "inputs", "data", "sticks", "latent", "prior"],
    ["student", "relabelling", "measure", "mixture_measure", "warping"],
    ["optimize", "archive", "masses", "distances", "metric_distances", "hyperkernel"],
    ["gram", "likelihood", "gp", "frames"],
    ["recorder", "journal", "history"],
    ["tables."],
    ["foresight", "saved_checks"],
    ["surrogate_fit", "surrogate", "integrals", "acquisition", "problem", "counted_posterior"],
    ["starts", "modes", "proposals", "importance", "prediction", "joint_prediction"],
    ["spectra", "calibration", "saved", "posterior", "limits", "run.", "plotting"],
    ["predictions_csv", "cli."],
    ["__init__", "__main__"],
]
HOME = {
    "numba": "backends.cpu.",
    "llvmlite": "backends.cpu.",
    "cupy": "backends.gpu.",
    "cupyx": "backends.gpu.",
}


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name below the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found[name] = ast.parse(path.read_text())
    return found


def place(module: str) -> tuple[int, int] | None:
    """Row and column of a module, None if `ROWS` has no place for it."""
    for i, row in enumerate(ROWS):
        for j, name in enumerate(row):
            if module == name or (name.endswith(".") and (module + ".").startswith(name)):
                return i, j
    return None


def imports(module: str, tree: ast.Module, known: set[str]) -> list[str]:
    """Full names of all that `tree` imports, anywhere in it: "maskerade_fast.gmm", "numpy".

    ``from .backends import cpu`` counts as the module it names. Imports for types alone count like others.
    """
    is_package = any(name.startswith(module + ".") for name in known)
    package = [ROOT, *module.split(".")] if is_package else [ROOT, *module.split(".")][:-1]
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                names.append(full if full.removeprefix(ROOT + ".") in known else base)
    return names


def violations(trees: dict[str, ast.Module]) -> list[str]:
    """One line for every import that the layers forbid."""
    faults = []
    for module, tree in trees.items():
        own = place(module)
        if own is None:
            faults.append(f"{module}: has no place in the layers")
            continue
        for full in imports(module, tree, set(trees)):
            top, _, below = full.partition(".")
            if top in HOME and not (module + ".").startswith(HOME[top]):
                faults.append(f"{module} imports {full}, which only {HOME[top]}* may")
            if top != ROOT:
                continue
            name = below or "__init__"
            target = place(name)
            if target is None:
                continue  # reported where that module is looked at
            if ROWS[own[0]][own[1]] == "backends.gpu." and name.startswith("backends.cpu"):
                faults.append(f"{module} imports {name}: the backends do not know each other")
            elif target > own or (target == own and not ROWS[own[0]][own[1]].endswith(".")):
                faults.append(f"{module} imports {name}, which is not below it")
    return faults


def test_the_package_keeps_its_layers() -> None:
    assert violations(modules()) == []


def test_every_module_is_seen() -> None:
    assert {"__init__", "gmm", "errors", "backends", "backends.cpu", "backends.cpu._math"} <= set(modules())


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        ("gmm", "from .prior import Prior", "gmm imports prior, which is not below it"),
        ("gmm", "from . import prior", "gmm imports prior, which is not below it"),
        ("gmm", "import maskerade_fast.surrogate", "gmm imports surrogate, which is not below it"),
        ("gmm", "from maskerade_fast import GMMBatch", "gmm imports __init__, which is not below it"),
        ("gmm", "from . import plotting", "gmm imports plotting, which is not below it"),
        (
            "errors",
            "def f():\n    from ._checks import real",
            "errors imports _checks, which is not below it",
        ),
        ("gmm", "import numba", "gmm imports numba, which only backends.cpu.* may"),
        ("backends", "from numba import njit", "backends imports numba, which only backends.cpu.* may"),
        (
            "backends.cpu.gram",
            "import cupy as cp",
            "backends.cpu.gram imports cupy, which only backends.gpu.* may",
        ),
        (
            "backends.cpu.gram",
            "from ...gmm import GMMBatch",
            "backends.cpu.gram imports gmm, which is not below it",
        ),
        (
            "backends.cpu.gram",
            "from ..gpu import gram",
            "backends.cpu.gram imports backends.gpu.gram, which is not",
        ),
        (
            "backends.gpu.gram",
            "from ..cpu.gram import f",
            "backends.gpu.gram imports backends.cpu.gram: the backends",
        ),
        (
            "backends.gpu.gram",
            "from ...backends.cpu import f",
            "backends.gpu.gram imports backends.cpu: the backends",
        ),
        ("helpers", "", "helpers: has no place in the layers"),
    ],
)
def test_the_checker_sees(module: str, line: str, fault: str) -> None:
    names = ["__init__", "gmm", "prior", "surrogate", "plotting", "errors", "_checks", "backends"]
    names += [f"backends.{device}{file}" for device in ("cpu", "gpu") for file in ("", ".gram")]
    trees = {name: ast.parse("") for name in names}
    assert violations(trees) == []
    found = violations({**trees, module: ast.parse(line)})
    assert len(found) == 1
    assert found[0].startswith(fault)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("prior", "from .gmm import GMMBatch"),
        ("gmm", "from .backends import to_host"),
        ("gmm", "import plotting"),
        ("backends.cpu", "from .gram import gram"),
        ("backends.cpu.gram", "from ._math import fma\nfrom ...errors import DataError\nimport numba"),
        ("backends.gpu.gram", "import cupy"),
        ("__init__", "from .gmm import GMMBatch"),
    ],
)
def test_the_checker_lets_pass(module: str, line: str) -> None:
    names = ["__init__", "gmm", "prior", "plotting", "errors", "backends", "backends.cpu", "backends.cpu.gram"]
    names += ["backends.cpu._math", "backends.gpu", "backends.gpu.gram"]
    trees = {name: ast.parse("") for name in names}
    assert violations({**trees, module: ast.parse(line)}) == []
