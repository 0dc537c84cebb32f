"""Scrambled nets have SciPy's bits, and do not load scipy.stats."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy
from numpy.testing import assert_array_equal
from scipy.stats import qmc

from maskerade_fast.model import nets as _sobol
from maskerade_fast.model.nets import scrambled_net

KEYWORD = "rng" if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 15) else "seed"


@pytest.mark.parametrize("dimension", [1, 2, 3, 15, 40, 300])
@pytest.mark.parametrize("count", [1, 2, 4, 64, 1024])
@pytest.mark.parametrize("bits", [30, 32])
def test_scipys_bits(dimension: int, count: int, bits: int) -> None:
    ours, theirs = np.random.default_rng(7), np.random.default_rng(7)
    for _ in range(2):  # the second net comes from another child of the same generator
        net = qmc.Sobol(dimension, scramble=True, bits=bits, **{KEYWORD: theirs})
        assert_array_equal(scrambled_net(dimension, count, bits, ours), net.random_base2(count.bit_length() - 1))
    assert ours.integers(1 << 60) == theirs.integers(1 << 60)


def test_without_its_file_scipys_own_class_gives_the_same_net(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = scrambled_net(5, 16, 30, np.random.default_rng(1))
    _sobol._table.cache_clear()
    monkeypatch.setattr(_sobol, "_FILE", "not there")
    calls = []
    genuine = _sobol._by_scipy

    def noted(*arguments: Any) -> Any:
        calls.append(arguments)
        return genuine(*arguments)

    monkeypatch.setattr(_sobol, "_by_scipy", noted)
    try:
        assert_array_equal(scrambled_net(5, 16, 30, np.random.default_rng(1)), expected)
    finally:
        _sobol._table.cache_clear()
    assert len(calls) == 1


def test_a_net_does_not_load_scipy_stats() -> None:
    code = """
import sys
import numpy as np
from maskerade_fast.model.nets import sobol_normal
sobol_normal(3, 8, np.random.default_rng(0))
assert "scipy.stats" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
