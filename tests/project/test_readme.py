"""The examples of README and guide run, and the conventions hold to the digits that the README prints."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest

import maskerade_fast as mf

README = Path(__file__).parents[2] / "README.md"


def single(weight, mean, scale):
    return mf.GMMBatch.from_list([([weight], [np.atleast_1d(mean)], [np.atleast_1d(scale)])])


@pytest.mark.parametrize(
    ("page", "count"), [("README.md", 9), ("docs/guide/first-fit.md", 9), ("docs/guide/embedding.md", 20)]
)
def test_examples_run(page, count):
    if not (README.parent / page).is_file():
        pytest.skip("the guide is part of the source tree only")
    result = doctest.testfile(str(README.parent / page), module_relative=False)
    assert result.attempted >= count
    assert result.failed == 0


def test_conventions():
    """The numbers of the README's table, read from the README."""
    text = README.read_text()

    def printed(value: float, digits: int = 6) -> None:
        assert f"{value:.{digits}f}".rstrip("0").rstrip(".") in text

    printed(mf.log_likelihood(single(1.5, 0.3, 0.1), [3.0], [0.7], 0.1).value[0])
    g = single(1.0, [1.0, 2.0], [0.1, 0.2])
    for phase, expected in (("joint", -0.294137766569626), ("per_axis", 0.237962451842318)):
        value = mf.gram(g, [[0.3, 0.2]], [[0.0, 0.0]], phase=phase)[0, 0, 0]
        printed(value)
        np.testing.assert_allclose(value, expected, atol=1e-14)
    printed(mf.gram(single(1.0, 0.0, 0.5), [1 / np.pi], [0.0])[0, 0, 0])
    a, b = single(1.0, 0.0, 1.0), single(1.0, 3.0, 1.0)
    assert mf.energy_distance(a, b)[0, 0] == 3.0
    printed(mf.hyperkernel(a, b, outputscale=2.0, lengthscale=1.0)[0, 0])
