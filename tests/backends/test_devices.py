"""CuPy arrays through the whole package, on the emulator: where results live, what is refused, cards and memory."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batches import ragged

import maskerade_fast as mf
from maskerade_fast import _checks, backends
from maskerade_fast.model.data import RegressionData, Standardiser
from maskerade_fast.quadrature import acquisition as acquisitions

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


# The door


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
    found: Any = mf.predict_gp(G, x, card(Y), 0.2, card(X[:3]), observed=True, covariance="full")
    np.testing.assert_allclose(found.covariance.get(), expected.covariance, rtol=0.0, atol=1e-12)
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


def test_another_card_than_the_current_one(two_cards: Any, rng: np.random.Generator) -> None:
    """C27."""
    import cupy

    g = noisy(rng)
    with cupy.cuda.Device(1):
        G, x, y, x_new, v, w = g.to("gpu"), *map(card, (X, Y, X[:2], np.eye(3), np.eye(3) + 1.0))
        row = v[0]
    p = mf.combine_gaussians(v, v, w)
    found: list[Any] = [
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
    assert [a.device.id for a in found] == [1] * len(found)
    assert cupy.cuda.Device().id == 0
    np.testing.assert_allclose(found[3].get(), mf.energy_distance(g), rtol=0.0, atol=1e-12)
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
def test_compiled_code_belongs_to_a_card() -> None:
    import cupy

    from maskerade_fast.backends.gpu import _loader

    kernels = []
    for device in (0, 1, 0):
        with cupy.cuda.Device(device):
            kernels.append(_loader.load("hyperkernel", "covariance_f64"))
    assert kernels[0] is kernels[2]
    assert kernels[0].raw is not kernels[1].raw


# Memory


def test_memory_errors_say_what_to_do(emulated: Any, rng: np.random.Generator) -> None:
    """C29: the bytes wanted and the knob, and afterwards all goes on."""
    import cupy

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
def test_a_pools_limit_is_planned_for(emulated: Any, rng: np.random.Generator, max_bytes: int | None) -> None:
    """C29: with what the limit leaves, a batch goes in chunks, to the same bits."""
    import cupy

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
def test_nothing_stays_behind_on_the_card(rng: np.random.Generator) -> None:
    """C29: no call keeps memory of the card once its results are gone."""
    import cupy

    G = noisy(rng).to("gpu")
    x, y = card(rng.uniform(size=40)), card(rng.normal(size=40))
    used = cupy.get_default_memory_pool().used_bytes()
    for n in range(2, 12):
        mf.log_likelihood(G, x[:n], y[:n], grad=True)
        mf.predict_gp(G, x[:n], y[:n], None, x[n:])
        mf.hyperkernel_vjp(G, None, card(np.ones((3, 3))), **HYPERKERNEL)
    assert cupy.get_default_memory_pool().used_bytes() == used


# The method


@pytest.mark.parametrize("acquisition", ["information", "uncertainty"])
def test_small_steps_of_a_search_stay_on_the_host(
    emulated: Any, monkeypatch: pytest.MonkeyPatch, acquisition: str
) -> None:
    """A card would spend them on launches: one proposal at a time took thousands."""
    runs, launches, waits = [], [], []
    for pairs in (acquisitions._HOST_PAIRS, 0):
        monkeypatch.setattr(acquisitions, "_HOST_PAIRS", pairs)
        before = len(emulated.state.launches), emulated.state.synchronised
        runs.append(mf.marginalise(X, Y, device="gpu", acquisition=acquisition, trend="none", **RUN))
        launches.append(len(emulated.state.launches) - before[0])
        waits.append(emulated.state.synchronised - before[1])
    assert launches[0] <= 60
    assert waits[0] <= 140
    assert launches[1] > 10 * launches[0]
    tolerance = 1e-8 if acquisition == "information" else 1e-2  # the last ascent is flat: it ends where rounding says
    assert runs[0].log_evidence == pytest.approx(runs[1].log_evidence, abs=tolerance)


def test_the_default_run(emulated: Any) -> None:
    """Ascents, refits and draws from the settled measure: the same on both devices but for rounding."""
    settings: dict[str, Any] = {**RUN, "budget": 110, "proposals": "laplace"}
    host = mf.marginalise(X, Y, device="cpu", **settings)
    gpu = mf.marginalise(X, Y, device="gpu", **settings)
    assert "likelihood_shared_f64" in emulated.state.launches
    assert [row.cost for row in gpu.history] == [row.cost for row in host.history]
    assert gpu.log_evidence == pytest.approx(host.log_evidence, abs=1e-4)
    np.testing.assert_allclose(gpu.predict(X).mean, host.predict(X).mean, atol=1e-4)


def test_checkpoints_of_the_card(emulated: Any, tmp_path: Path) -> None:
    """Likelihoods and gradients of the card go on to the same bits, evaluated once; those of the host are of another
    run."""
    settings: dict[str, Any] = {**RUN, "budget": 110, "proposals": "laplace", "checkpoint": tmp_path / "run"}
    gpu = mf.marginalise(X, Y, device="gpu", **settings)
    content = settings["checkpoint"].read_bytes()
    emulated.state.launches.clear()
    assert mf.marginalise(X, Y, device="gpu", **settings).log_evidence == gpu.log_evidence
    assert not any(name.startswith("likelihood") for name in emulated.state.launches)
    settings["checkpoint"].write_bytes(content[: len(content) * 2 // 3])
    again = mf.marginalise(X, Y, device="gpu", **settings)
    np.testing.assert_array_equal(again.pair_weights, gpu.pair_weights)
    with pytest.raises(mf.DataError, match="of another run: device is gpu there, cpu here"):
        mf.marginalise(X, Y, device="cpu", **settings)


@pytest.mark.parametrize("trend", ["none", "linear"])
def test_marginalise(emulated: Any, monkeypatch: pytest.MonkeyPatch, trend: str) -> None:
    """The same run on both devices, steps of the search too; what is shown is NumPy's either way."""
    monkeypatch.setattr(acquisitions, "_HOST_PAIRS", 0)
    host = mf.marginalise(X, Y, device="cpu", trend=trend, **RUN)
    assert emulated.state.launches == []
    gpu = mf.marginalise(X, Y, device="gpu", trend=trend, **RUN)
    assert {"likelihood_shared_f64", "pairwise_f64", "product_f64", "partial_gradients_f64"} <= set(
        emulated.state.launches
    )
    assert (host.device, gpu.device) == ("cpu", "gpu")
    assert backends.is_cupy(gpu.data_standardised.X)
    assert gpu.log_evidence == pytest.approx(host.log_evidence, abs=1e-8)
    assert gpu.log_evidence_sd == pytest.approx(host.log_evidence_sd, abs=1e-8)
    for name in ("log_likelihoods", "component_probabilities", "pair_weights"):
        np.testing.assert_allclose(getattr(gpu, name), getattr(host, name), rtol=0.0, atol=1e-8)
    for a, b in zip(arrays_of(gpu.mixtures), arrays_of(host.mixtures), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8)
    assert gpu.warnings == host.warnings

    x_new, y_new = np.array([0.05, 0.4, 1.1]), np.array([0.2, -0.3, 0.1])
    for posterior, place in ((gpu, np.asarray), (gpu, card), (host, card)):
        p, expected = posterior.predict(place(x_new)), host.predict(x_new)
        results = {
            "mean": (p.mean, expected.mean),
            "quantile": (p.quantile(place([0.1, 0.9])), expected.quantile([0.1, 0.9])),
            "cdf": (p.cdf(0.1), expected.cdf(0.1)),
            "log density": (p.log_density(place(y_new)), expected.log_density(y_new)),
            "draws": (p.sample(3, 0), expected.sample(3, 0)),
            "kernel": (posterior.kernel(place([0.1, 0.2])).upper, host.kernel([0.1, 0.2]).upper),
            "spectrum": (posterior.spectral_density(place([1.0])).mean, host.spectral_density([1.0]).mean),
        }
        for name, (a, b) in results.items():
            assert backends.is_cupy(a) == (place is card), name
            np.testing.assert_allclose(backends.to_host(a), b, rtol=0.0, atol=1e-7, err_msg=name)
        joint = posterior.joint_log_density(place(x_new), place(y_new))
        assert joint == pytest.approx(host.joint_log_density(x_new, y_new), abs=1e-7)
    assert backends.is_cupy(gpu.predict(x_new).means)  # sums over pairs stay on the card


@pytest.mark.usefixtures("emulated")
def test_warming_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles for the card too, and leaves nothing on the host by mistake."""
    from maskerade_fast.run import warm_up

    warmed: list[str] = []
    genuine = warm_up.warm_up_on
    monkeypatch.setattr("maskerade_fast.ops.likelihood._SHARED_POINTS", (20,))
    monkeypatch.setattr(warm_up, "warm_up_on", warmed.append)
    mf.warm_up()
    assert warmed == ["cpu", "gpu"]
    genuine("gpu")


@pytest.mark.usefixtures("emulated")
def test_auto_takes_the_card(tmp_path: Path) -> None:
    options = RUN | {"budget": 8, "acquisition": "random"}
    gpu = mf.marginalise(card(X), card(Y), **options)
    assert gpu.device == "gpu"
    assert mf.marginalise(X, Y, **options).device == "gpu"
    assert mf.marginalise(card(X), card(Y), device="cpu", **options).device == "cpu"
    gpu.save(tmp_path / "model.npz")
    loaded = mf.load(tmp_path / "model.npz")
    assert loaded.device == "cpu"
    assert loaded.to("cpu") is loaded
    np.testing.assert_array_equal(loaded.to("gpu").predict(X).mean, gpu.predict(X).mean)
    np.testing.assert_allclose(loaded.predict(X).mean, gpu.predict(X).mean, rtol=0.0, atol=1e-9)


@pytest.mark.usefixtures("emulated")
def test_uncertainty_on_the_card() -> None:
    """Its objective, and not where a search of it ends, is the same to rounding."""
    rng = np.random.default_rng(0)
    g = noisy(rng)
    nodes, candidates = noisy(rng), noisy(rng)
    found = []
    for device in ("cpu", "gpu"):
        s = mf.Surrogate.fit(g.to(device), [0.0, -1.0, -2.0], lengthscale=1.0, metric=mf.Metric(mass_weight=0.5))
        s = s.extend(g[:1].to(device), [0.5])
        e = mf.integrate(s, nodes.to(device), [0.2, 0.3, 0.5])
        c = candidates.to(device)
        found.append(
            [
                *(s.mean(c), s.covariance(c), mf.uncertainty(s, c), mf.mutual_information(s, e, c)),
                *(mf.mutual_information(s, e, c, batch=True), e.log_evidence, e.log_evidence_sd, e.weights),
            ]
        )
    for a, b in zip(*found, strict=True):
        assert isinstance(b, (np.ndarray, float))
        np.testing.assert_allclose(b, a, rtol=0.0, atol=1e-9)


def test_units_on_the_card(emulated: Any) -> None:
    data = RegressionData(X, Y).to("gpu")
    units = Standardiser.from_data(data.to("cpu"))
    scaled = units.to_unit(data)
    assert backends.is_cupy(scaled.X)
    np.testing.assert_array_equal(backends.to_host(scaled.X), units.X_to_unit(X[:, None]))
    np.testing.assert_array_equal(backends.to_host(scaled.y), units.y_to_unit(Y))
    assert emulated.state.launches == []


# Which cards there are


@pytest.mark.usefixtures("emulated")
def test_a_usable_card() -> None:
    import cupy

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
