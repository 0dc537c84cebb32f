"""Randomness comes from the caller alone: no module has a seed of its own, and every part of a run uses the run's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf

PACKAGE = Path(mf.__file__).parent
MAKERS = ("default_rng", "Generator", "RandomState", "SeedSequence", "PCG64")
X = np.linspace(0.0, 1.0, 25)
Y = np.sin(2 * np.pi * 3 * X) + 0.3 * np.cos(2 * np.pi * 7 * X)


def calls(*names: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call in the package of functions and methods of these names."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in names:
                yield path.relative_to(PACKAGE).as_posix(), node


def test_no_module_has_a_seed_of_its_own() -> None:
    """One function makes generators, and from a variable; a checkpoint without a seed takes one of the system."""
    makers = [(path, ast.unparse(node)) for path, node in calls(*MAKERS)]
    sources = [ast.unparse(node) for _, node in calls("generator")]
    assert {source.removeprefix("generator(").split(",")[0].rstrip(")") for source in sources} == {"seed", "rng"}
    assert makers == [("_checks.py", "np.random.default_rng(seed)"), ("storage/journal.py", "np.random.SeedSequence()")]


@pytest.mark.parametrize(
    ("settings", "parts_of_run"),
    [
        ({"proposals": "prior", "acquisition": "information"}, {"random_draws", "propose"}),
        ({"proposals": "laplace"}, {"net", "random_draws", "find_modes", "Adaptation"}),
    ],
    ids=["prior", "laplace"],
)
def test_every_part_of_a_run_draws_by_its_seed(
    settings: dict[str, Any], parts_of_run: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generators that reach the parts are the run's."""
    from maskerade_fast.adaptive import adaptation as proposals
    from maskerade_fast.adaptive import mixture_measure
    from maskerade_fast.model import reference_measure as measure
    from maskerade_fast.run import adaptive_run, prior_run

    class Own(np.random.Generator):
        pass

    seen: list[tuple[str, Any]] = []

    def watched(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen.extend((name, a) for a in (*args, *kwargs.values()) if isinstance(a, np.random.Generator))
            return function(*args, **kwargs)

        return call

    parts = [
        (mixture_measure.MixtureMeasure, "net"),
        (measure.ReferenceMeasure, "random_draws"),
        (proposals, "find_modes"),
        (prior_run, "propose"),
        (adaptive_run, "Adaptation"),
    ]
    for owner, name in parts:
        monkeypatch.setattr(owner, name, watched(name, getattr(owner, name)))
    rng = Own(np.random.PCG64(3))
    mf.marginalise(X, Y, seed=rng, budget=120, max_components=2, nodes=64, **settings)
    assert {name for name, _ in seen} == parts_of_run
    assert {type(generator) for _, generator in seen} == {Own}
