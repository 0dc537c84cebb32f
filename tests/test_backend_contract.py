"""The backends have the same doors: plain annotated functions on arrays, equal in name and signature."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import typing
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from maskerade_fast import backends

NAMES = [name for name in ("cpu", "gpu") if importlib.util.find_spec(f"{backends.__name__}.{name}")]

pytestmark = pytest.mark.usefixtures("emulated")  # importing the GPU backend needs a cupy


def door_modules(name: str) -> dict[str, ModuleType]:
    """The public modules of one backend, by name; those that start with "_" are its own affair."""
    package = importlib.import_module(f"{backends.__name__}.{name}")
    found = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_")]
    return {module: importlib.import_module(f"{package.__name__}.{module}") for module in found}


def doors(name: str) -> dict[str, Any]:
    return {f"{m}.{d}": getattr(module, d) for m, module in door_modules(name).items() for d in module.__all__}


def faults_of(door: Any) -> list[str]:
    """What keeps `door` from being a plain annotated function of arrays and numbers."""
    if not inspect.isfunction(door):
        return ["is no plain function"]
    hints = typing.get_type_hints(door)
    parameters = inspect.signature(door).parameters.values()
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


@pytest.mark.parametrize("name", NAMES)
def test_every_door_is_a_plain_annotated_function(name: str) -> None:
    assert {d: f for d, door in doors(name).items() if (f := faults_of(door))} == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_package_shows_every_door(name: str) -> None:
    package = importlib.import_module(f"{backends.__name__}.{name}")
    by_module = doors(name)
    shown = sorted(d.partition(".")[2] for d in by_module)
    assert shown == sorted(package.__all__)
    assert len(shown) == len(set(shown))
    assert [d for d, door in by_module.items() if getattr(package, d.partition(".")[2]) is not door] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_heavy_operations_have_a_module(name: str) -> None:
    assert {"distances", "hyperkernel", "gram", "likelihood", "gp", "prediction"} <= set(door_modules(name))


def test_backends_agree() -> None:
    signatures = [{d: inspect.signature(door) for d, door in doors(name).items()} for name in NAMES]
    assert all(other == signatures[0] for other in signatures[1:])


def test_the_checker_sees() -> None:
    class Container: ...

    Container.__module__ = "maskerade_fast.gmm"

    def bare(x): ...

    def contained(x: list[Container], *rest: float) -> None: ...

    contained.__annotations__["x"] = list[Container]
    assert faults_of(bare) == ["x has no annotation", "says nothing of its result"]
    assert faults_of(contained) == ["takes *rest: 'float'", "speaks of the container Container"]
    assert faults_of(Container) == ["is no plain function"]
