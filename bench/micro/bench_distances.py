"""Distances between mixtures, against NumPy broadcasting over padded arrays and against JAX; `floors` has the floor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.micro import peers, problems
from maskerade_fast import Metric, energy_distance, energy_distance_vjp, gaussian_mmd2
from maskerade_fast.ops.hyperkernel import HyperKernel, hyperkernel, hyperkernel_matvec
from maskerade_fast.ops.metric_distances import prepare

PAIRS = pytest.mark.parametrize(("B_a", "B_b", "D"), problems.PAIRS)
KERNEL: dict[str, Any] = {"outputscale": 1.0, "lengthscale": 1.0}


def two_batches(B_a: int, B_b: int, D: int) -> tuple[Any, Any]:
    return problems.random_mixtures(B_a, D, seed=1), problems.random_mixtures(B_b, D, seed=2)


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


@pytest.mark.benchmark(group="energy distance")
@PAIRS
def test_energy(benchmark: Any, B_a: int, B_b: int, D: int) -> None:
    a, b = two_batches(B_a, B_b, D)
    energy_distance(a, b)
    E = benchmark(energy_distance, a, b)
    np.testing.assert_allclose(E[:50], broadcast_energy(problems.padded(a[:50]), problems.padded(b)), atol=1e-13)


@pytest.mark.benchmark(group="energy distance")
@pytest.mark.peer("NumPy")
@PAIRS
def test_energy_numpy(benchmark: Any, B_a: int, B_b: int, D: int) -> None:
    a, b = two_batches(B_a, B_b, D)
    E = benchmark.pedantic(broadcast_energy, (problems.padded(a), problems.padded(b)), rounds=3)
    np.testing.assert_allclose(E, energy_distance(a, b), atol=1e-13)


@pytest.mark.benchmark(group="energy distance")
@pytest.mark.peer("JAX")
@peers.needs("jax")
@PAIRS
def test_energy_jax(benchmark: Any, B_a: int, B_b: int, D: int) -> None:
    a, b = two_batches(B_a, B_b, D)
    call = peers.jax_energy(problems.padded(a), problems.padded(b))
    call()
    np.testing.assert_allclose(benchmark.pedantic(call, rounds=3), energy_distance(a, b), atol=1e-13)


@pytest.mark.benchmark(group="energy distance of one batch")
@PAIRS
def test_energy_of_one_batch(benchmark: Any, B_a: int, B_b: int, D: int) -> None:
    a = problems.random_mixtures(B_a, D, seed=1)
    energy_distance(a)
    E = benchmark(energy_distance, a)
    np.testing.assert_allclose(E, energy_distance(a, a), atol=1e-13)


@pytest.mark.benchmark(group="energy distance, reflected")
@PAIRS
def test_energy_reflected(benchmark: Any, B_a: int, B_b: int, D: int) -> None:
    a, b = two_batches(B_a, B_b, D)
    metric = Metric(reflect=True)
    energy_distance(a, b, metric=metric)
    E = benchmark(energy_distance, a, b, metric=metric)
    (wa, pa), (wb, pb) = problems.padded(a[:20]), problems.padded(b)
    mirror = np.repeat([-1.0, 1.0], D)
    both = [(np.hstack([w, w]) / 2, np.hstack([p, p * mirror])) for w, p in ((wa, pa), (wb, pb))]
    np.testing.assert_allclose(E[:20], broadcast_energy(*both), atol=1e-13)


@pytest.mark.benchmark(group="energy distance gradient")
@PAIRS
def test_energy_vjp(benchmark: Any, B_a: int, B_b: int, D: int) -> None:
    a, b = two_batches(B_a, B_b, D)
    G = np.random.default_rng(0).normal(size=(B_a, B_b))
    energy_distance_vjp(a, b, G)
    g = benchmark(energy_distance_vjp, a, b, G)
    first = energy_distance_vjp(a[:1], b, G[:1])
    np.testing.assert_array_equal(g.means[: len(first.means)], first.means)


@pytest.mark.benchmark(group="gaussian mmd")
@PAIRS
def test_gaussian(benchmark: Any, B_a: int, B_b: int, D: int) -> None:
    a, b = two_batches(B_a, B_b, D)
    gaussian_mmd2(a, b, bandwidth=0.5)
    M = benchmark(gaussian_mmd2, a, b, bandwidth=0.5)
    np.testing.assert_array_equal(M[3:4, 5:6], gaussian_mmd2(a[3], b[5], bandwidth=0.5))


@pytest.mark.benchmark(group="hyper-kernel")
@PAIRS
def test_hyperkernel(benchmark: Any, B_a: int, B_b: int, D: int) -> None:
    a, b = two_batches(B_a, B_b, D)
    hyperkernel(a, b, **KERNEL)
    K = benchmark(hyperkernel, a, b, **KERNEL)
    np.testing.assert_allclose(K, np.exp(-energy_distance(a, b)), rtol=1e-14)


@pytest.mark.benchmark(group="pullback")
@pytest.mark.parametrize(("B_a", "B_b", "D"), problems.CANDIDATES)
def test_pullback(benchmark: Any, B_a: int, B_b: int, D: int) -> None:
    a, b = two_batches(B_a, B_b, D)
    ready, G = prepare(b), np.random.default_rng(0).normal(size=(B_a, B_b))

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
