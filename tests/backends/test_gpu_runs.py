"""Runs on the card, on the emulator: the same as on the host but for rounding, and what they launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batches import ragged

import maskerade_fast as mf
from maskerade_fast import backends
from maskerade_fast.model.data import RegressionData
from maskerade_fast.model.units import Standardiser
from maskerade_fast.quadrature import acquisition as acquisitions

pytestmark = pytest.mark.usefixtures("emulated")
X, Y = np.linspace(0.0, 1.0, 12), np.sin(np.arange(12.0))
RUN: dict[str, Any] = {"budget": 12, "initial": 8, "batch_size": 4, "nodes": 32, "max_components": 2, "seed": 0}
RUN["proposals"] = "prior"


def card(value: Any) -> Any:
    return backends.to_device(np.asarray(value), "gpu")


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
    for name in ("weights", "means", "scales", "noise_variances"):
        np.testing.assert_allclose(getattr(gpu.mixtures, name), getattr(host.mixtures, name), rtol=1e-8)
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


def test_uncertainty_on_the_card() -> None:
    """Its objective, and not where a search of it ends, is the same to rounding."""
    rng = np.random.default_rng(0)
    g, nodes, candidates = (ragged(rng, [2, 1, 3], 1) for _ in range(3))
    both = []
    for device in ("cpu", "gpu"):
        s = mf.Surrogate.fit(g.to(device), [0.0, -1.0, -2.0], lengthscale=1.0, metric=mf.Metric(mass_weight=0.5))
        s = s.extend(g[:1].to(device), [0.5])
        e = mf.integrate(s, nodes.to(device), [0.2, 0.3, 0.5])
        c = candidates.to(device)
        both.append(
            [
                *(s.mean(c), s.covariance(c), mf.uncertainty(s, c), mf.mutual_information(s, e, c)),
                *(mf.mutual_information(s, e, c, batch=True), e.log_evidence, e.log_evidence_sd, e.weights),
            ]
        )
    for a, b in zip(*both, strict=True):
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
