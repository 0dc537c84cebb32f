"""Distances between mixtures, their gradients, hyper-kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import compare, driver, mixtures


def both(sizes_a: list[int], sizes_b: list[int], n_dims: int, **options: Any) -> None:
    """Every operation of the two modules, on both backends."""
    import cupy

    from maskerade_fast.backends import cpu, gpu

    rng = np.random.default_rng(7)
    sides = []
    for sizes in (sizes_a, sizes_b):
        offsets, weights, means, scales = mixtures(rng, sizes, n_dims)
        sides.append((offsets, weights, np.concatenate([means, scales], axis=1)))
    here = [cpu.prepare_atoms(*side, **options) for side in sides]
    there = [gpu.prepare_atoms(*map(cupy.asarray, side), **options) for side in sides]
    cotangent = rng.normal(size=(len(sizes_a), len(sizes_b)))
    v = rng.normal(size=(len(sizes_b), 3))
    shape = {"outputscale": 1.3, "lengthscale": 0.7, "power": 2}
    compare(gpu.pairwise_distance(*there), cpu.pairwise_distance(*here))
    compare(gpu.pairwise_distance(there[0]), cpu.pairwise_distance(here[0]))
    compare(gpu.pairwise_distance_vjp(*there, cupy.asarray(cotangent)), cpu.pairwise_distance_vjp(*here, cotangent))
    compare(gpu.hyperkernel(*there, **shape), cpu.hyperkernel(*here, **shape))
    E = np.abs(cotangent)
    compare(gpu.covariance_from_distance(cupy.asarray(E), **shape), cpu.covariance_from_distance(E, **shape))
    compare(gpu.hyperkernel_matvec(*there, cupy.asarray(v), **shape), cpu.hyperkernel_matvec(*here, v, **shape))


@driver("distances.cu", "hyperkernel.cu")
def one_axis() -> None:
    both([3, 1, 140, 5], [2, 70, 1, 4, *[1] * 40], 1)


@driver("distances.cu", "hyperkernel.cu")
def many_axes() -> None:
    both([3, 1, 9], [2, 40, 1, 4], 19)
