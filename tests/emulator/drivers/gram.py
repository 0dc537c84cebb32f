"""Gram matrices."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from . import driver, mixtures, same_as_cpu


@driver("gram.cu")
def gram() -> None:
    """One block, which goes from square to square and so uses its shared memory again."""
    gpu: Any = importlib.import_module("maskerade_fast.backends.gpu.gram")
    rng = np.random.default_rng(3)
    batch = mixtures(rng, [3, 1], 2)
    X, Y = rng.normal(size=(70, 2)), rng.normal(size=(5, 2))
    noise = np.full((1, 1), 0.1)
    as_it_is = gpu.grid_for
    gpu.grid_for = lambda items, per_block: 1
    try:
        for per_axis in (False, True):
            same_as_cpu("gram", *batch, X, None, noise, per_axis=per_axis)
            same_as_cpu("gram", *batch, X, Y, noise, per_axis=per_axis)
    finally:
        gpu.grid_for = as_it_is
