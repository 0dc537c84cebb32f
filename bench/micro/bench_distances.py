"""Distances between mixtures, against NumPy broadcasting over padded arrays and against JAX; `floors` has the floor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench.micro import peers, problems
from maskerade_fast import Metric, energy_distance, energy_distance_vjp, gaussian_mmd2
from maskerade_fast.ops.hyperkernel import HyperKernel, hyperkernel, hyperkernel_matvec
from maskerade_fast.ops.metric_distances import prepare

PAIRS = pytest.mark.parametrize(("B_a", "B_b", "D"), problems.PAIRS)
KERNEL: dict[str, Any] = {"outputscale": 1.0, "lengthscale": 1.0}
REFLECTED = Metric(reflect=True)


def two_batches(B_a: int, B_b: int, D: int) -> tuple[Any, Any]:
    return problems.random_mixtures(B_a, D, seed=1), problems.random_mixtures(B_b, D, seed=2)


@functools.cache
def cotangent(B_a: int, B_b: int) -> Any:
    return np.random.default_rng(0).normal(size=(B_a, B_b))


def broadcast_cross(wa: Any, pa: Any, wb: Any, pb: Any, rows: int = 20) -> Any:
    """sum_ij w_i w'_j ||p_i - q_j|| by blocks of rows, so that the temporaries stay near 100 MB."""
    out = np.empty((len(wa), len(wb)))
    for start in range(0, len(wa), rows):
        block = slice(start, start + rows)
        gap = pa[block, None, :, None, :] - pb[None, :, None, :, :]
        r = np.sqrt(np.einsum("abijp,abijp->abij", gap, gap))
        out[block] = np.einsum("ai,abij,bj->ab", wa[block], r, wb, optimize=True)
    return out


def broadcast_self(w: Any, p: Any) -> Any:
    gap = p[:, :, None, :] - p[:, None, :, :]
    return np.einsum("ai,aij,aj->a", w, np.sqrt((gap**2).sum(axis=-1)), w)


def broadcast_energy(a: tuple[Any, Any], b: tuple[Any, Any]) -> Any:
    E = broadcast_cross(*a, *b) - 0.5 * broadcast_self(*a)[:, None] - 0.5 * broadcast_self(*b)
    return np.maximum(E, 0.0)


def mirrored(g: Any) -> tuple[Any, Any]:
    """Return padded weights and points with half of each atom at the reflected mean."""
    w, p = problems.padded(g)
    return np.hstack([w, w]) / 2, np.hstack([p, p * np.repeat([-1.0, 1.0], g.n_dims)])


Operation = tuple[Callable[[Any, Any], Any], Callable[[Any, Any, Any], tuple[Any, Any]]]
OPERATIONS: dict[str, Operation] = {
    "energy distance": (
        energy_distance,
        lambda E, a, b: (E[:50], broadcast_energy(problems.padded(a[:50]), problems.padded(b))),
    ),
    "energy distance of one batch": (lambda a, b: energy_distance(a), lambda E, a, b: (E, energy_distance(a, a))),
    "energy distance, reflected": (
        lambda a, b: energy_distance(a, b, metric=REFLECTED),
        lambda E, a, b: (E[:20], broadcast_energy(mirrored(a[:20]), mirrored(b))),
    ),
    "energy distance gradient": (
        lambda a, b: energy_distance_vjp(a, b, cotangent(len(a), len(b))).means[:1],
        lambda g, a, b: (g, energy_distance_vjp(a[:1], b, cotangent(len(a), len(b))[:1]).means[:1]),
    ),
    "gaussian mmd": (
        lambda a, b: gaussian_mmd2(a, b, bandwidth=0.5),
        lambda M, a, b: (M[3:4, 5:6], gaussian_mmd2(a[3], b[5], bandwidth=0.5)),
    ),
    "hyper-kernel": (lambda a, b: hyperkernel(a, b, **KERNEL), lambda K, a, b: (K, np.exp(-energy_distance(a, b)))),
}
"""By group: a call of two batches, and what its result is compared with."""


@pytest.mark.parametrize(
    ("library", "check"),
    [pytest.param(*o, marks=pytest.mark.benchmark(group=name), id=name) for name, o in OPERATIONS.items()],
)
@PAIRS
def test_distances(benchmark: Any, B_a: int, B_b: int, D: int, library: Any, check: Any) -> None:
    a, b = two_batches(B_a, B_b, D)
    library(a, b)
    actual, expected = check(benchmark(library, a, b), a, b)
    np.testing.assert_allclose(actual, expected, rtol=1e-14, atol=1e-13)


@pytest.mark.benchmark(group="energy distance")
@pytest.mark.parametrize(
    "library",
    [
        pytest.param(lambda a, b: lambda: broadcast_energy(a, b), marks=pytest.mark.peer("NumPy"), id="NumPy"),
        pytest.param(peers.jax_energy, marks=[pytest.mark.peer("JAX"), peers.needs("jax")], id="JAX"),
    ],
)
@PAIRS
def test_peers(benchmark: Any, B_a: int, B_b: int, D: int, library: Any) -> None:
    a, b = two_batches(B_a, B_b, D)
    call = library(problems.padded(a), problems.padded(b))
    call()
    np.testing.assert_allclose(benchmark.pedantic(call, rounds=3), energy_distance(a, b), atol=1e-13)


@pytest.mark.benchmark(group="pullback")
@pytest.mark.parametrize(("B_a", "B_b", "D"), problems.CANDIDATES)
def test_pullback(benchmark: Any, B_a: int, B_b: int, D: int) -> None:
    a, b = two_batches(B_a, B_b, D)
    ready, G = prepare(b), cotangent(B_a, B_b)

    def value_and_gradient() -> tuple[Any, Any]:
        K, pullback = HyperKernel(**KERNEL).pullback(a, ready)
        return K, pullback(G)

    value_and_gradient()
    K, _ = benchmark(value_and_gradient)
    np.testing.assert_array_equal(K, hyperkernel(a, b, **KERNEL))


@pytest.mark.benchmark(group="matvec")
@pytest.mark.parametrize(("B", "D"), problems.STREAMED)
def test_matvec(benchmark: Any, B: int, D: int) -> None:
    g = problems.random_mixtures(B, D)
    v = np.random.default_rng(0).normal(size=B)
    hyperkernel_matvec(g[:2], g[:2], v[:2], **KERNEL)
    out = benchmark.pedantic(hyperkernel_matvec, (g, g, v), KERNEL, rounds=3)
    np.testing.assert_allclose(out[:5], hyperkernel(g[:5], g, **KERNEL) @ v, atol=1e-11 * np.abs(v).sum())
