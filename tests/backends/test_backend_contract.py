"""Both backends fulfil `backends.contract`: its names, signatures and annotations; operations carry one line each."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from maskerade_fast import backends
from maskerade_fast.backends.contract import Backend

NAMES = [name for name in ("cpu", "gpu") if importlib.util.find_spec(f"{backends.__name__}.{name}")]

# importing the GPU backend needs a cupy; nothing runs on it
pytestmark = [pytest.mark.usefixtures("emulated"), pytest.mark.sample]


def contract() -> dict[str, Any]:
    return {name: stub for name, stub in vars(Backend).items() if inspect.isfunction(stub) and not name.startswith("_")}


def operation_modules(name: str) -> dict[str, ModuleType]:
    """The public modules of one backend, by name; those that start with "_" are its own affair."""
    package = importlib.import_module(f"{backends.__name__}.{name}")
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_")]
    return {module: importlib.import_module(f"{package.__name__}.{module}") for module in names}


def operations(name: str) -> dict[str, Any]:
    return {f"{m}.{o}": getattr(module, o) for m, module in operation_modules(name).items() for o in module.__all__}


def signature_of(stub: Any) -> inspect.Signature:
    """Signature of a method of the contract as of a function of a module, annotations resolved."""
    signature = inspect.signature(stub, eval_str=True)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def faults_of(operation: Any) -> list[str]:
    """What keeps `operation` from being a plain annotated function of arrays and numbers."""
    if not inspect.isfunction(operation):
        return ["is no plain function"]
    hints = typing.get_type_hints(operation)
    parameters = inspect.signature(operation).parameters.values()
    faults = [f"{p.name} has no annotation" for p in parameters if p.name not in hints]
    faults += [f"takes {p}" for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    faults += [] if "return" in hints else ["says nothing of its result"]
    containers = {t.__name__ for hint in hints.values() for t in types_in(hint) if is_ours(t)}
    return faults + [f"speaks of the container {name}" for name in sorted(containers)]


def types_in(hint: Any) -> Iterator[Any]:
    yield hint
    for argument in typing.get_args(hint):
        yield from types_in(argument)


def is_ours(hint: Any) -> bool:
    return inspect.isclass(hint) and hint.__module__.startswith("maskerade_fast")


# signatures


@pytest.mark.parametrize("name", NAMES)
def test_the_backend_is_the_contract(name: str) -> None:
    package, stubs = importlib.import_module(f"{backends.__name__}.{name}"), contract()
    assert sorted(package.__all__) == sorted(stubs)
    differing = {o for o in stubs if inspect.signature(getattr(package, o), eval_str=True) != signature_of(stubs[o])}
    assert not differing


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_is_a_plain_annotated_function(name: str) -> None:
    assert {o: f for o, operation in operations(name).items() if (f := faults_of(operation))} == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_package_shows_every_operation(name: str) -> None:
    package = importlib.import_module(f"{backends.__name__}.{name}")
    by_module = operations(name)
    shown = sorted(o.partition(".")[2] for o in by_module)
    assert shown == sorted(package.__all__)
    assert len(shown) == len(set(shown))
    assert [o for o, operation in by_module.items() if getattr(package, o.partition(".")[2]) is not operation] == []


def test_operations_have_modules_of_equal_names() -> None:
    assert len({tuple(sorted(operations(name))) for name in NAMES}) == 1
    for name in NAMES:
        assert {"distances", "hyperkernel", "gram", "likelihood", "gp", "mixture_prediction"} <= set(
            operation_modules(name)
        )


def test_get_backend_gives_what_mypy_checked() -> None:
    assert typing.get_type_hints(backends.get_backend)["return"] is Backend
    for name in NAMES:
        tree = ast.parse(Path(importlib.import_module(f"{backends.__name__}.{name}").__file__ or "").read_text())
        assert f"_backend: Backend = {name}" in {ast.unparse(node) for node in ast.walk(tree)}


# docstrings


def undocumented(stub: Any) -> list[str]:
    """What the docstring of a stub leaves out: sections, and parameters that no line of "Parameters" names."""
    sections = re.split(r"^(\w+)\n-+$", inspect.getdoc(stub) or "", flags=re.MULTILINE)
    named = dict(zip(sections[1::2], sections[2::2], strict=True))
    lines = [line.partition(" : ")[0] for line in named.get("Parameters", "").split("\n") if line[:1].strip()]
    words = {word for line in lines for word in line.split(", ")}
    missing = [p for p in signature_of(stub).parameters if p not in words]
    missing += [f"unknown {word}" for word in words if word not in signature_of(stub).parameters]
    missing += [] if named.get("Returns", "").strip() else ["Returns"]
    return missing + ([] if sections[0].strip() else ["summary"])


def test_the_contract_names_every_parameter() -> None:
    assert {name: missing for name, stub in contract().items() if (missing := undocumented(stub))} == {}


@pytest.mark.parametrize("name", NAMES)
def test_operations_carry_one_line(name: str) -> None:
    docs = {o: operation.__doc__ or "" for o, operation in operations(name).items()}
    assert [o for o, doc in docs.items() if not doc.strip() or "\n" in doc] == []


# the checks themselves


def test_the_checker_of_functions_sees() -> None:
    class Container: ...

    Container.__module__ = "maskerade_fast.model.gmm"

    def bare(x): ...

    def contained(x: list[Container], *rest: float) -> None: ...

    contained.__annotations__["x"] = list[Container]
    assert faults_of(bare) == ["x has no annotation", "says nothing of its result"]
    assert faults_of(contained) == ["takes *rest: 'float'", "speaks of the container Container"]
    assert faults_of(Container) == ["is no plain function"]


def test_the_checker_of_docstrings_sees() -> None:
    def stub(self: Any, a: int, b: int) -> None:
        """Do it.

        Parameters
        ----------
        a, c : int
            Of b.
        """

    assert undocumented(stub) == ["b", "unknown c", "Returns"]
