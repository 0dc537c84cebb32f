"""`repr` of a container is short and holds no array; that of a posterior is ten lines at most, in plain words."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import forged
import numpy as np
import pytest
from operations import kinds_of_results

import maskerade_fast as mf
from maskerade_fast._containers import short_repr
from maskerade_fast.model.inputs import ColumnNames


@pytest.mark.parametrize("value", kinds_of_results(), ids=lambda value: type(value).__name__)
def test_containers_print_in_a_line(value: Any) -> None:
    shown = repr(value)
    assert shown.startswith(type(value).__name__ + "(")
    assert "array(" not in shown
    assert " at 0x" not in shown
    assert "\n" not in shown
    assert len(shown) < 2500
    longest = max((len(item) for item in re.findall(r"\[[^\]]*\]", shown)), default=0)
    assert longest < 80  # a few numbers of a row at most


def test_the_kinds_of_field() -> None:
    @dataclasses.dataclass(frozen=True)
    class Example:
        table: Any
        few: Any
        number: float
        name: str
        nothing: None
        loops: Any
        many: tuple[str, ...]
        _hidden: int

        __repr__ = short_repr

    example = Example(np.zeros((300, 2)), np.array([0.1, 0.25]), 1 / 3, "a", None, np.ufunc, tuple("abcdefg"), 3)
    expected = "Example(table=<float64 300x2>, few=[0.1, 0.25], number=0.333333, name='a', nothing=None, loops=<type>, "
    assert repr(example) == expected + "many=<7 entries>)"


def test_a_posterior_in_plain_words() -> None:
    assert repr(forged.posterior()).splitlines() == [
        "Posterior of 5 rows of 1 input",
        "  trend: none",
        "  log evidence: -3.50 ± 0.1",
        "  probabilities of numbers of components: 1: 0.60, 2: 0.40",
        "  mixtures: 3, of which 2.6 effective",
        "  warnings: 1",
    ]


def test_a_posterior_stays_short() -> None:
    """With a thousand sizes and warnings; names of columns are shown where there are some."""
    probabilities = np.random.default_rng(0).dirichlet(np.ones(1000))
    changes: dict[str, Any] = {"component_probabilities": probabilities, "warnings": ("long " * 100,) * 1000}
    post = dataclasses.replace(forged.posterior(), **changes)
    names = ColumnNames(tuple(f"column {k} \n" * 30 for k in range(50)), "sun\nspots " * 50)
    post = dataclasses.replace(post, columns=names)
    shown = repr(post)
    assert len(shown.splitlines()) <= 10
    assert max(map(len, shown.splitlines())) < 250
    assert "1 input ('column 0" in shown
    assert ", target 'sun" in shown
    assert "array(" not in shown


def test_a_posterior_of_many_inputs() -> None:
    X = np.random.default_rng(0).uniform(size=(12, 3))
    post = mf.marginalise(X, X[:, 0], budget=12, nodes=16, max_components=1, seed=0, device="cpu")
    assert repr(post).startswith("Posterior of 12 rows of 3 inputs\n  trend: linear\n")
