"""Log-likelihoods and their gradients, in every regime, and factors.

The regimes' limits are lowered so that few points reach them. One mixture is repaired by a jitter, which builds and
factors its matrix again in the same memory.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import numpy as np

from . import compare, driver, same_as_cpu


def regimes(chosen: Any) -> AbstractContextManager[Any]:
    """The regimes that the likelihood goes by."""
    from maskerade_fast.backends.gpu import likelihood as module

    return mock.patch.object(module, "regimes_of", return_value=chosen)


def likelihood(limits: tuple[int, int], grad: bool) -> None:
    import cupy

    from maskerade_fast.backends import cpu
    from maskerade_fast.backends.gpu.likelihood import Regimes, log_likelihood

    rng = np.random.default_rng(5)
    offsets = np.array([0, 2, 5])
    arrays = np.full(5, 0.5), rng.normal(size=(5, 1)), rng.uniform(0.3, 0.5, (5, 1))
    X = np.linspace(0.0, 40.0, 70)[:, None] + rng.uniform(-0.1, 0.1, size=(70, 1))
    X[40] = X[3]  # without noise, a pivot that is rounding
    data: tuple[Any, ...] = (X, rng.normal(size=70), np.array([[0.1], [0.0]]))
    options: dict[str, Any] = {"per_axis": False, "jitter": 1e3, "grad": grad, "max_bytes": None}
    expected = cpu.log_likelihood(offsets, *arrays, *data, **options)
    assert expected[2][0] == 0.0 < expected[2][1]
    there = map(cupy.asarray, (*arrays, *data))
    with regimes(Regimes(*limits, tiles=9, width=128)):
        compare(log_likelihood(offsets, *there, **options), expected)


@driver("likelihood.cu")
def small() -> None:
    likelihood((99, 99), grad=False)
    likelihood((99, 99), grad=True)
    rng = np.random.default_rng(9)
    options: dict[str, Any] = {"per_axis": False, "jitter": 0.0, "grad": True, "max_bytes": None}
    arrays = np.full(2, 0.5), rng.normal(size=(2, 1)), rng.uniform(0.3, 0.5, (2, 1))
    X, y = rng.normal(size=(70, 1)), rng.normal(size=70)
    same_as_cpu("log_likelihood", np.array([0, 2]), *arrays, X, y, np.full((1, 1), 0.1), **options)


@driver("likelihood.cu")
def panels() -> None:
    likelihood((0, 99), grad=False)
    likelihood((0, 99), grad=True)


@driver("likelihood.cu")
def least() -> None:
    """As few launches as meet every barrier of elimination.cuh: three tiles a side, in panels of two columns."""
    import cupy

    from maskerade_fast.backends import cpu
    from maskerade_fast.backends.gpu.likelihood import Regimes, log_likelihood

    rng = np.random.default_rng(5)
    arrays = np.ones(1), rng.normal(size=(1, 1)), rng.uniform(0.3, 0.5, (1, 1))
    data: tuple[Any, ...] = (rng.normal(size=(33, 1)), rng.normal(size=33), np.full((1, 1), 0.1))
    options: dict[str, Any] = {"per_axis": False, "jitter": 0.0, "grad": True, "max_bytes": None}
    expected = cpu.log_likelihood(np.array([0, 1]), *arrays, *data, **options)
    for limits in ((99, 99), (0, 99)):
        there = map(cupy.asarray, (*arrays, *data))
        with regimes(Regimes(*limits, tiles=5)):
            compare(log_likelihood(np.array([0, 1]), *there, **options), expected)


@driver("likelihood.cu", "cholesky.cu")
def blocked() -> None:
    likelihood((0, 0), grad=True)


@driver("cholesky.cu")
def factors() -> None:
    rng = np.random.default_rng(6)
    roots = rng.normal(size=(2, 70, 70))
    same_as_cpu("cholesky", roots @ roots.transpose(0, 2, 1) + np.eye(70))
