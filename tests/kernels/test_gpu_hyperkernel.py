"""The hyper-kernel of the GPU backend, on the emulator: the oracle, the streamed product, chunks, orders, memory."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import oracle
import pytest
from emulate import ORDERS
from gpu_calls import EVERY_ORDER, Side, assert_close, atoms, card, ragged_side, side_of
from numpy.testing import assert_array_equal

from maskerade_fast.backends import cpu

OPERATIONS = "hyperkernel"
PARAMETERS: list[dict[str, Any]] = [{"outputscale": 1.3, "lengthscale": 0.8, "power": q} for q in (1, 2)]
both_powers = pytest.mark.parametrize("parameters", PARAMETERS, ids=["power1", "power2"])


def prepared(side: Side, **options: Any) -> Any:
    import maskerade_fast.backends.gpu.distances as module

    return atoms(module, side, **options)


@both_powers
@pytest.mark.parametrize("D", [1, 19])
def test_meets_the_oracle(gpu: ModuleType, rng: np.random.Generator, D: int, parameters: dict[str, Any]) -> None:
    """Noise variances come in as a feature, as row 3 of the layers passes them."""
    a, b = ragged_side(rng, 5, D), ragged_side(rng, 4, D)
    log_noise = [rng.normal(size=n) for n in (5, 4)]
    there = [prepared(s, features=0.3 * f[:, None]) for s, f in zip((a, b), log_noise, strict=True)]
    options: dict[str, Any] = {"noise_weight": 0.3, "noise_a": np.exp(log_noise[0])}
    expected = oracle.hyperkernel(a.mixtures(), b.mixtures(), **parameters, **options, noise_b=np.exp(log_noise[1]))
    assert_close(gpu.hyperkernel(*there, **parameters), expected)
    assert_close(
        gpu.hyperkernel(there[0], **parameters), oracle.hyperkernel(a.mixtures(), None, **parameters, **options)
    )
    v = rng.normal(size=(4, 3))
    assert_close(gpu.hyperkernel_matvec(*there, card(v), **parameters), expected @ v)


@EVERY_ORDER
@both_powers
def test_tiles_and_large_mixtures(gpu: ModuleType, rng: np.random.Generator, parameters: dict[str, Any]) -> None:
    a, b = side_of(rng, [3] * 43 + [300, 1, 5], 2), side_of(rng, [2] * 17 + [140, 1, 4], 2)
    there, here = ([f(s, reflect=True) for s in (a, b)] for f in (prepared, lambda s, **o: atoms(cpu, s, **o)))
    K = cpu.hyperkernel(*here, **parameters)
    assert_close(gpu.hyperkernel(*there, **parameters), K)
    v = rng.normal(size=(20, 2))
    assert_close(gpu.hyperkernel_matvec(*there, card(v), **parameters), K @ v)


@both_powers
def test_exactly_symmetric_with_its_scale_on_the_diagonal(
    gpu: ModuleType, rng: np.random.Generator, parameters: dict[str, Any]
) -> None:
    there = prepared(ragged_side(rng, 70, 1))
    K = gpu.hyperkernel(there, **parameters).get()
    assert (K == K.T).all()
    assert (np.diag(K) == 1.3).all()
    assert np.linalg.eigvalsh(K)[0] > -1e-12
    assert (np.diag(gpu.hyperkernel(there, there, **parameters).get()) == 1.3).all()


@both_powers
def test_covariance_from_distance(gpu: ModuleType, rng: np.random.Generator, parameters: dict[str, Any]) -> None:
    E = rng.random((3, 5, 7))
    E[0, 0, 0] = 0.0
    before = E.copy()
    expected = 1.3 * np.exp(-(E ** (parameters["power"] / 2)) / 0.8**2)
    values = card(E)
    result = gpu.covariance_from_distance(values, **parameters)
    assert_close(result, expected, 1e-15)
    assert_array_equal(values.get(), before)
    assert_close(
        gpu.covariance_from_distance(values.transpose(2, 0, 1), **parameters), expected.transpose(2, 0, 1), 1e-15
    )
    small = gpu.covariance_from_distance(values.astype(np.float32), **parameters)
    assert small.dtype == np.float64
    assert_close(small, expected, 1e-6)
    assert gpu.covariance_from_distance(card(np.zeros((0, 3))), **parameters).shape == (0, 3)


@pytest.mark.parametrize("k", [1, 3, 40])
def test_product_with_vectors(
    gpu: ModuleType, emulated: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    """Rows alone, partial sums of any number, orders of threads and other columns change no bit of a product."""
    import maskerade_fast.backends.gpu.distances as distances

    a, b, parameters = ragged_side(rng, 60, 1), ragged_side(rng, 83, 1), PARAMETERS[1]
    v = rng.normal(size=(83, k))
    there = [prepared(side) for side in (a, b)]
    product = gpu.hyperkernel_matvec(*there, card(v), **parameters)
    assert_close(product, gpu.hyperkernel(*there, **parameters).get() @ v)
    some = gpu.hyperkernel_matvec(prepared(a.part(40, 60)), there[1], card(np.asfortranarray(v)), **parameters)
    assert_array_equal(some.get(), product.get()[40:])
    one = gpu.hyperkernel_matvec(*there, card(v[:, -1:].copy()), **parameters)
    assert_array_equal(one.get(), product.get()[:, -1:])
    monkeypatch.setattr(distances, "PARTIAL_BYTES", 2 * 8 * 60 * k)
    for order in ORDERS.values():
        emulated.state.options = emulated.state.options._replace(order=order)
        emulated.state.launches.clear()
        assert_array_equal(gpu.hyperkernel_matvec(*there, card(v), **parameters).get(), product.get())
        assert emulated.state.launches == 3 * ["product_f64", "add_partial_sums_f64"]


def test_product_stores_no_matrix(gpu: ModuleType, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix would take 1.2 MB."""
    import cupy

    import maskerade_fast.backends.gpu.distances as distances

    monkeypatch.setattr(distances, "PARTIAL_BYTES", 20_000)
    b = prepared(side_of(rng, np.ones(3000, dtype=np.int64), 1))
    a, v = prepared(side_of(rng, np.ones(50, dtype=np.int64), 1)), card(rng.normal(size=(3000, 1)))
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    gpu.hyperkernel_matvec(a, b, v, **PARAMETERS[0])
    assert pool.total_bytes() - before < 30_000


def test_mixed_precision(gpu: ModuleType, rng: np.random.Generator) -> None:
    import maskerade_fast.backends.gpu.distances as distances

    exact = [prepared(ragged_side(rng, n, 1)) for n in (20, 30)]
    mixed = [distances.in_float32(side) for side in exact]
    K, v = gpu.hyperkernel(*exact, **PARAMETERS[1]), rng.normal(size=(30, 2))
    there = gpu.hyperkernel(*mixed, **PARAMETERS[1])
    assert_close(there, K.get(), 1e-6)
    assert (there.get() != K.get()).any()
    assert_close(gpu.hyperkernel_matvec(*mixed, card(v), **PARAMETERS[1]), there.get() @ v)


@both_powers
def test_empty_batches(gpu: ModuleType, rng: np.random.Generator, parameters: dict[str, Any]) -> None:
    none = prepared(Side(np.array([0]), np.zeros(0), np.zeros((0, 2))))
    some = prepared(ragged_side(rng, 3, 1))
    assert gpu.hyperkernel(none, **parameters).shape == (0, 0)
    assert gpu.hyperkernel(some, none, **parameters).shape == (3, 0)
    assert gpu.hyperkernel_matvec(none, some, card(np.zeros((3, 2))), **parameters).shape == (0, 2)
    assert gpu.hyperkernel_matvec(some, some, card(np.zeros((3, 0))), **parameters).shape == (3, 0)
    assert (gpu.hyperkernel_matvec(some, none, card(np.zeros((0, 2))), **parameters).get() == np.zeros((3, 2))).all()
