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
    a, b = (cpu.prepare_atoms(*side, **options) for side in sides)
    p, q = (gpu.prepare_atoms(*map(cupy.asarray, side), **options) for side in sides)
    cotangent = rng.normal(size=(len(sizes_a), len(sizes_b)))
    v = rng.normal(size=(len(sizes_b), 3))
    shape: dict[str, Any] = {"outputscale": 1.3, "lengthscale": 0.7, "power": 2}
    compare(gpu.pairwise_distance(p, q), cpu.pairwise_distance(a, b))
    compare(gpu.pairwise_distance(p), cpu.pairwise_distance(a))
    compare(gpu.pairwise_distance_vjp(p, q, cupy.asarray(cotangent)), cpu.pairwise_distance_vjp(a, b, cotangent))
    compare(gpu.hyperkernel(p, q, **shape), cpu.hyperkernel(a, b, **shape))
    E = np.abs(cotangent)
    compare(gpu.covariance_from_distance(cupy.asarray(E), **shape), cpu.covariance_from_distance(E, **shape))
    compare(gpu.hyperkernel_matvec(p, q, cupy.asarray(v), **shape), cpu.hyperkernel_matvec(a, b, v, **shape))


@driver("distances.cu", "hyperkernel.cu")
def one_axis() -> None:
    both([3, 1, 140, 5], [2, 70, 1, 4, *[1] * 40], 1)


@driver("distances.cu", "hyperkernel.cu")
def many_axes() -> None:
    both([3, 1, 9], [2, 40, 1, 4], 19)
