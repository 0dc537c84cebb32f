"""CuPy arrays through the package, on the emulator: where results live, what is refused, cards and memory."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from batches import ragged

import maskerade_fast as mf
from maskerade_fast import _checks, backends
from maskerade_fast.model.data import RegressionData

X, Y = np.linspace(0.0, 1.0, 12), np.sin(np.arange(12.0))
RUN: dict[str, Any] = {"budget": 12, "initial": 8, "batch_size": 4, "nodes": 32, "max_components": 2, "seed": 0}
RUN["proposals"] = "prior"
METRIC = mf.Metric(noise_weight=0.1, mass_weight=0.2, frequency_scale=2.0, scale_scale=(3.0,))
HYPERKERNEL: dict[str, Any] = {"outputscale": 1.3, "lengthscale": 0.7, "power": 1, "metric": METRIC}


def card(value: Any) -> Any:
    return backends.to_device(np.asarray(value), "gpu")


def noisy(rng: np.random.Generator) -> mf.GMMBatch:
    g = ragged(rng, [2, 1, 3], 1)
    return mf.GMMBatch(g.offsets, g.weights, g.means, g.scales, [0.1, 0.2, 0.3])


def message_of(call: Callable[[], Any]) -> str:
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    return f"{type(caught.value).__name__}: {caught.value}"


# Checks and containers


@pytest.mark.usefixtures("emulated")
def test_checked_arrays_stay_on_the_card() -> None:
    x = card([[1.0, 2.0], [3.0, 4.0]])
    checked: Any = _checks.float_array(x, "x", ndim=2)
    assert backends.is_cupy(checked)
    assert checked.data.ptr == x.data.ptr
    for value, dtype in (
        (card([1, 2]), np.float64),
        (card([True]), np.float64),
        (card(np.array([1], np.float32)), np.float32),
    ):
        checked = _checks.float_array(value, "x", ndim=1)
        assert backends.is_cupy(checked)
        assert checked.dtype == dtype
    assert _checks.float_array(x.T, "x", ndim=2).flags.c_contiguous
    assert _checks.positive(card(2.0), "x") == 2.0


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("value", [[0.0, np.nan], [[0.0, 1.0], [np.inf, 0.0]], np.nan, [1j], [-np.inf]])
def test_checks_speak_alike(value: Any) -> None:
    def check(x: Any) -> Any:
        return _checks.float_array(x, "x", ndim=(0, 1, 2))

    assert message_of(lambda: check(card(value))) == message_of(lambda: check(value))


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offsets", [0, 5, 3]),  # C28: a kernel would read what is not there
        ("offsets", [0, -1, 6]),
        ("offsets", [0, 2, 3, 7]),
        ("offsets", [0.0, 6.0]),
        ("weights", [0.6, 0.4, 1.0, 0.2, -0.3, 0.5]),
        ("weights", [0.6, 0.4, 1.0]),
        ("means", [[0.0], [1.0], [np.nan], [3.0], [4.0], [5.0]]),
        ("means", np.zeros((6, 2))),
        ("scales", [[1.0], [1.0], [1.0], [1.0], [1.0], [-0.2]]),
        ("noise_variances", [0.1, np.inf, 0.3]),
        ("noise_variances", [0.1]),
    ],
)
def test_batches_refuse_alike(emulated: Any, rng: np.random.Generator, name: str, value: Any) -> None:
    g = noisy(rng)
    arrays = {field.name: getattr(g, field.name) for field in dataclasses.fields(g)} | {name: np.array(value)}
    expected = message_of(lambda: mf.GMMBatch(**arrays))
    assert message_of(lambda: mf.GMMBatch(**{key: card(array) for key, array in arrays.items()})) == expected
    assert emulated.state.launches == []


@pytest.mark.usefixtures("emulated")
def test_batches(rng: np.random.Generator) -> None:
    g = noisy(rng)
    G = g.to("gpu")
    assert G.to("gpu") is G
    assert [type(a) for a in (G.offsets, G.n_components)] == [np.ndarray, np.ndarray]
    same(G, g)
    for index in (0, [2, 0], slice(None, None, 2), [True, False, True]):
        same(G[index], g[index])
    same(G[card([True, False, True])], g[[0, 2]])
    same(mf.concat([G[1:], G[:1]]), mf.concat([g[1:], g[:1]]))
    same(mf.GMMBatch(card(g.offsets), *(card(a) for a in arrays_of(g))), g)
    same(mf.GMMBatch.from_list([tuple(card(a) for a in arrays_of(part)[:3]) for part in g], card([0.1, 0.2, 0.3])), g)
    assert backends.is_cupy(G.mass)
    np.testing.assert_allclose(backends.to_host(G.mass), g.mass, rtol=1e-15)
    np.testing.assert_array_equal(backends.to_host(G.owner), g.owner)
    assert repr(G) == repr(g)
    small = mf.GMMBatch(g.offsets, *(card(a.astype(np.float32)) for a in arrays_of(g)))
    assert [small.dtype, small.mass.dtype] == [np.dtype(np.float32)] * 2
    empty = G[:0]
    assert (len(empty), empty.mass.shape) == (0, (0,))
    gradient = mf.GMMGradient(*arrays_of(G)[:3]).to("cpu")
    assert isinstance(gradient.weights, np.ndarray)
    assert gradient.noise_variance is None


def same(G: mf.GMMBatch, g: mf.GMMBatch) -> None:
    """`G` lives on the card and has the bits of `g`."""
    assert all(backends.is_cupy(a) for a in arrays_of(G))
    np.testing.assert_array_equal(G.offsets, g.offsets, strict=True)
    for a, b in zip(arrays_of(G.to("cpu")), arrays_of(g), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def arrays_of(g: mf.GMMBatch) -> list[Any]:
    return [g.weights, g.means, g.scales, g.noise_variances]


@pytest.mark.usefixtures("emulated")
def test_mixed_arrays_are_refused(rng: np.random.Generator) -> None:
    g = noisy(rng)
    G, x, y = g.to("gpu"), X[:, None], Y
    W, means, C = np.eye(2), np.zeros((2, 3)), np.stack([np.eye(3)] * 2)
    p = mf.combine_gaussians(W, means, means + 1.0)
    calls: list[Callable[[], Any]] = [
        lambda: mf.GMMBatch(g.offsets, card(g.weights), g.means, g.scales),
        lambda: mf.GMMBatch(g.offsets, G.weights, G.means, G.scales, g.noise_variances),
        lambda: mf.concat([g, G]),
        lambda: mf.energy_distance(g, G),
        lambda: mf.energy_distance_vjp(G, None, np.ones((3, 3))),
        lambda: mf.gaussian_mmd2(G, g, bandwidth=1.0),
        lambda: mf.hyperkernel(G, g, **HYPERKERNEL),
        lambda: mf.hyperkernel_vjp(G, None, np.ones((3, 3)), **HYPERKERNEL),
        lambda: mf.hyperkernel_matvec(g, g, card(np.ones(3)), **HYPERKERNEL),
        lambda: mf.gram(G, x),
        lambda: mf.gram(g, card(x)),
        lambda: mf.gram(G, card(x), x),
        lambda: mf.gram(G, card(x), noise_variance=np.ones(3)),
        lambda: mf.log_likelihood(G, card(x), y),
        lambda: mf.log_likelihood(g, x, y, card(np.ones(3))),
        lambda: mf.predict_gp(G, card(x), card(y), None, x),
        lambda: mf.combine_gaussians(W, card(means), means + 1.0),
        lambda: mf.combine_gaussians(W, card(means), card(means + 1.0)),
        lambda: mf.combine_gaussians_joint(card(W), means, C, np.zeros(3)),
        lambda: p.log_density(card(np.zeros(3))),
        lambda: p.quantile(card([0.5])),
        lambda: RegressionData(x, card(y)),
        lambda: mf.marginalise(card(x), y, **RUN),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="NumPy and CuPy arrays are mixed"):
            call()
    prior = mf.Prior.from_data(X)
    refusing: list[Callable[[], Any]] = [lambda: prior.log_density(G), lambda: prior.latent_map.inverse(G)]
    for call in refusing:
        with pytest.raises(
            TypeError, match=r"mixtures: CuPy arrays, expected NumPy arrays here; move with g.to\('cpu'\)"
        ):
            call()


@pytest.mark.usefixtures("emulated")
def test_numbers_go_where_the_arrays_are(rng: np.random.Generator) -> None:
    g = noisy(rng)
    G, x = g.to("gpu"), card(X)
    for noise in (0.5, np.float32(0.5), card(0.5)):
        K = mf.gram(G, x, noise_variance=noise)
        np.testing.assert_allclose(backends.to_host(K), mf.gram(g, X, noise_variance=0.5), rtol=0.0, atol=1e-13)
    expected: Any = mf.predict_gp(g, X, Y, 0.2, X[:3], observed=True, covariance="full")
    prediction: Any = mf.predict_gp(G, x, card(Y), 0.2, card(X[:3]), observed=True, covariance="full")
    np.testing.assert_allclose(prediction.covariance.get(), expected.covariance, rtol=0.0, atol=1e-12)
    assert message_of(lambda: mf.gram(G, x, noise_variance=card([-1.0, 0.0, 0.0]))) == message_of(
        lambda: mf.gram(g, X, noise_variance=[-1.0, 0.0, 0.0])
    )


def test_collapsed_inputs_name_the_callers_line(rng: np.random.Generator) -> None:
    g, x = noisy(rng), (1.7e9 + np.arange(12.0)).astype(np.float32)
    for call in (
        lambda: mf.gram(g, x),
        lambda: mf.log_likelihood(g, x, Y),
        lambda: mf.predict_gp(g, x, Y, None, X),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert [w.filename for w in caught] == [__file__]


# Several cards


@pytest.fixture
def two_cards(emulated: Any) -> Any:
    emulated.state.devices.append(emulated.FakeDevice())
    return emulated


def test_another_card_than_the_current_one(cupy: Any, two_cards: Any, rng: np.random.Generator) -> None:
    """C27."""
    g = noisy(rng)
    with cupy.cuda.Device(1):
        G, x, y, x_new, v, w = g.to("gpu"), *map(card, (X, Y, X[:2], np.eye(3), np.eye(3) + 1.0))
        row = v[0]
    p = mf.combine_gaussians(v, v, w)
    results: list[Any] = [
        G.mass,
        G[1].weights,
        mf.concat([G, G]).weights,
        mf.energy_distance(G),
        mf.energy_distance_vjp(G, None, v).means,
        mf.hyperkernel(G, **HYPERKERNEL),
        mf.hyperkernel_vjp(G, None, v, **HYPERKERNEL).noise_variance,
        mf.hyperkernel_matvec(G, G, v, **HYPERKERNEL),
        mf.gram(G, x),
        mf.log_likelihood(G, x, y, grad=True).value,
        mf.predict_gp(G, x, y, None, x_new, observed=True).variance,
        *(p.mean, p.quantile(0.5), p.sample(2, 0), p.log_density(row)),
    ]
    assert [a.device.id for a in results] == [1] * len(results)
    assert cupy.cuda.Device().id == 0
    np.testing.assert_allclose(results[3].get(), mf.energy_distance(g), rtol=0.0, atol=1e-12)
    host = mf.combine_gaussians(np.eye(3), np.eye(3), np.eye(3) + 1.0)
    np.testing.assert_allclose(backends.to_host(p.quantile(0.5)), host.quantile(0.5), rtol=0.0, atol=1e-10)
    for call in (
        lambda: mf.energy_distance(G, g.to("gpu")),
        lambda: mf.gram(G, card(X)),
        lambda: mf.concat([G, g.to("gpu")]),
    ):
        with pytest.raises(ValueError, match=r"GPUs \[0, 1\]"):
            call()
    assert cupy.cuda.Device().id == 0


@pytest.mark.usefixtures("two_cards")
def test_compiled_code_belongs_to_a_card(cupy: Any) -> None:
    from maskerade_fast.backends.gpu import _loader

    kernels = []
    for device in (0, 1, 0):
        with cupy.cuda.Device(device):
            kernels.append(_loader.load("hyperkernel", "covariance_f64"))
    assert kernels[0] is kernels[2]
    assert kernels[0].raw is not kernels[1].raw


# Memory


def test_memory_errors_say_what_to_do(cupy: Any, emulated: Any, rng: np.random.Generator) -> None:
    """C29: the message has the bytes and the cure, and afterwards all goes on."""
    G = noisy(rng).to("gpu")
    x, y = card(rng.uniform(size=300)), card(rng.normal(size=300))
    with pytest.raises(MemoryError, match=r"300 points needs \d+ bytes, more than max_bytes=1000; pass a larger"):
        mf.log_likelihood(G, x, y, max_bytes=1000)
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(pool.total_bytes() + 100_000)
    try:
        with pytest.raises(MemoryError, match=r"allocating 2,160,128 bytes .* Pass a smaller max_bytes, or fewer"):
            mf.gram(G, x)
    finally:
        pool.set_limit(0)
    assert mf.gram(G, x[:5]).shape == (3, 5, 5)


@pytest.mark.parametrize("max_bytes", [None, 2**40])
def test_a_pools_limit_is_planned_for(
    cupy: Any, emulated: Any, rng: np.random.Generator, max_bytes: int | None
) -> None:
    """C29: with what the limit leaves, a batch goes in chunks, to the same bits."""
    G = mf.concat([noisy(rng)] * 20).to("gpu")
    x, y = card(rng.uniform(size=60)), card(rng.normal(size=60))
    pool = cupy.get_default_memory_pool()

    def results() -> tuple[list[np.ndarray[Any, Any]], int]:
        before = len(emulated.state.launches)
        value = mf.log_likelihood(G, x, y, max_bytes=max_bytes).value
        prediction = mf.predict_gp(G, x, y, None, x[:9], max_bytes=max_bytes)
        return [backends.to_host(a) for a in (value, prediction.mean, prediction.variance)], len(
            emulated.state.launches
        ) - before

    whole, at_once = results()
    pool.free_all_blocks()
    pool.set_limit(pool.used_bytes() + 600_000)
    try:
        parts, in_chunks = results()
        with pytest.raises(MemoryError, match=r"(half|nine tenths) of what CuPy's pool has left of its limit; .*raise"):
            mf.predict_gp(G, card(rng.uniform(size=200)), card(rng.uniform(size=200)), None, x[:9], max_bytes=max_bytes)
    finally:
        pool.set_limit(0)
    assert in_chunks > at_once
    for one, other in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("emulated")
def test_nothing_stays_behind_on_the_card(cupy: Any, rng: np.random.Generator) -> None:
    """C29: no call keeps memory of the card once its results are gone."""
    G = noisy(rng).to("gpu")
    x, y = card(rng.uniform(size=40)), card(rng.normal(size=40))
    used = cupy.get_default_memory_pool().used_bytes()
    for n in range(2, 12):
        mf.log_likelihood(G, x[:n], y[:n], grad=True)
        mf.predict_gp(G, x[:n], y[:n], None, x[n:])
        mf.hyperkernel_vjp(G, None, card(np.ones((3, 3))), **HYPERKERNEL)
    assert cupy.get_default_memory_pool().used_bytes() == used


# Which cards there are


@pytest.mark.usefixtures("emulated")
def test_a_usable_card(cupy: Any) -> None:
    assert backends.gpu_problem() is None
    assert len(backends.gpu_names()) == cupy.cuda.runtime.getDeviceCount()
    assert backends.gpu_names()[0] == cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()


def test_a_machine_without_cards(emulated: Any) -> None:
    emulated.state.devices.clear()
    problem = backends.gpu_problem()
    assert problem is not None
    assert re.match("no CUDA device can be used: .*cudaErrorNoDevice", problem)
    with pytest.raises(mf.BackendUnavailableError, match=r"^device='gpu': no CUDA device can be used"):
        mf.marginalise(X, Y, device="gpu", **RUN)
    assert mf.marginalise(X, Y, **RUN | {"budget": 8}).device == "cpu"


@pytest.mark.usefixtures("without_cupy")
def test_a_machine_without_cupy() -> None:
    for call in (backends.gpu_names, lambda: backends.to_device(X, "gpu"), lambda: mf.marginalise(X, Y, device="gpu")):
        with pytest.raises(mf.BackendUnavailableError, match=r"^device='gpu': the GPU backend needs CuPy"):
            call()
