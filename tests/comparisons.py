"""Comparisons of results: near in units of the largest entry, or equal in every bit. One thread; peaks of memory."""

from __future__ import annotations

import contextlib
import dataclasses
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np


def close(actual: Any, expected: Any, tolerance: float = 1e-12, least: float = 1.0) -> None:
    """Within `tolerance` of the largest entry of `expected`, or of `least` if all are smaller."""
    expected = np.asarray(expected, dtype=np.float64)
    scale = max(least, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=tolerance * scale)


def same_bits(left: Any, right: Any) -> None:
    """Two results of one type hold the same arrays, in every bit, dtype and shape."""
    assert type(left) is type(right)
    for field in dataclasses.fields(left):
        own, other = getattr(left, field.name), getattr(right, field.name)
        if dataclasses.is_dataclass(own):
            same_bits(own, other)
        else:
            np.testing.assert_array_equal(own, other, err_msg=field.name, strict=True)


def gradients(grad: Any) -> list[Any]:
    """Arrays of a gradient of likelihoods: by weights, means, scales and noise variances."""
    return [grad.weights, grad.means, grad.scales, grad.noise_variance]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compiled loops run on one thread within."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def peak(call: Callable[[], Any]) -> int:
    """The most bytes that a call has allocated at once."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
