"""A module imports only from its own package and from packages below it; numba and cupy stay home."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = "maskerade_fast"
PACKAGE = Path(__file__).parents[1] / ROOT

# Bottom to top. "_" stands for the modules beside the packages: errors, _checks and the like.
LAYERS = ["_", "backends", "model", "ops", "storage", "quadrature", "adaptive", "posterior", "run", "plotting", "cli"]
HOME = {"numba": "backends.cpu", "llvmlite": "backends.cpu", "cupy": "backends.gpu", "cupyx": "backends.gpu"}
OTHER = {"backends.cpu": "backends.gpu", "backends.gpu": "backends.cpu"}


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name below the package."""
    trees = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        trees[name] = ast.parse(path.read_text())
    return trees


def layer(module: str) -> int | None:
    """Number of the layer from the bottom; above all of them for the package itself and its ``__main__``."""
    top, dot, _ = module.partition(".")
    if top in ("__init__", "__main__"):
        return len(LAYERS)
    if top in LAYERS:
        return LAYERS.index(top)
    return None if dot else 0


def imports(module: str, tree: ast.Module, known: set[str]) -> list[str]:
    """Full names of all that `tree` imports, anywhere in it: "maskerade_fast.model.gmm", "numpy".

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
        own = layer(module)
        if own is None:
            faults.append(f"{module}: has no place in the layers")
            continue
        for full in imports(module, tree, set(trees)):
            top, _, below = full.partition(".")
            if top in HOME and not (module + ".").startswith(HOME[top] + "."):
                faults.append(f"{module} imports {full}, which only {HOME[top]} may")
            if top != ROOT:
                continue
            name = below or "__init__"
            other = OTHER.get(".".join(module.split(".")[:2]))
            target = layer(name)
            if other and (name + ".").startswith(other + "."):
                faults.append(f"{module} imports {name}: the backends do not know each other")
            elif target is not None and target > own:  # None is reported where that module is looked at
                faults.append(f"{module} imports {name}, which is not below it")
    return faults


def test_the_package_keeps_its_layers() -> None:
    assert violations(modules()) == []


def test_every_layer_is_there() -> None:
    assert {name.partition(".")[0] for name in modules() if "." in name} == set(LAYERS[1:])


KNOWN = ["__init__", "errors", "_checks", "backends", "backends.cpu", "backends.cpu.gram", "backends.cpu._math"]
KNOWN += ["backends.gpu", "backends.gpu.gram", "model", "model.gmm", "model.prior", "ops", "ops.gram", "run.drive"]


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        ("model.gmm", "from ..ops.gram import gram", "model.gmm imports ops.gram, which is not below it"),
        ("model.gmm", "from .. import ops", "model.gmm imports ops, which is not below it"),
        ("model.gmm", "import maskerade_fast.run.drive", "model.gmm imports run.drive, which is not below it"),
        ("model.gmm", "from maskerade_fast import GMMBatch", "model.gmm imports __init__, which is not below it"),
        ("errors", "def f():\n    from .model.gmm import x", "errors imports model.gmm, which is not below it"),
        ("model.gmm", "import numba", "model.gmm imports numba, which only backends.cpu may"),
        ("backends", "from numba import njit", "backends imports numba, which only backends.cpu may"),
        ("backends.cpu.gram", "import cupy as cp", "backends.cpu.gram imports cupy, which only backends.gpu may"),
        ("backends.cpu.gram", "from ...model.gmm import x", "backends.cpu.gram imports model.gmm, which is not below"),
        ("backends.cpu.gram", "from ..gpu import gram", "backends.cpu.gram imports backends.gpu.gram: the backends"),
        ("backends.gpu.gram", "from ..cpu.gram import f", "backends.gpu.gram imports backends.cpu.gram: the backends"),
        ("backends.gpu.gram", "from ...backends.cpu import f", "backends.gpu.gram imports backends.cpu: the backends"),
        ("helpers.some", "", "helpers.some: has no place in the layers"),
    ],
)
def test_the_checker_sees(module: str, line: str, fault: str) -> None:
    trees = {name: ast.parse("") for name in KNOWN}
    assert violations(trees) == []
    faults = violations({**trees, module: ast.parse(line)})
    assert len(faults) == 1
    assert faults[0].startswith(fault)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("model.prior", "from .gmm import GMMBatch"),
        ("model.gmm", "from .prior import Prior"),
        ("model.gmm", "from ..backends import to_host"),
        ("model.gmm", "from .._checks import real"),
        ("model.gmm", "import plotting"),
        ("backends.cpu", "from .gram import gram"),
        ("backends.cpu.gram", "from ._math import fma\nfrom ...errors import DataError\nimport numba"),
        ("backends.gpu.gram", "import cupy"),
        ("backends", "from . import cpu, gpu"),
        ("__init__", "from .model.gmm import GMMBatch"),
    ],
)
def test_the_checker_lets_pass(module: str, line: str) -> None:
    assert violations({**{name: ast.parse("") for name in KNOWN}, module: ast.parse(line)}) == []
