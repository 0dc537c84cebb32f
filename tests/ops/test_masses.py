"""Unequal masses (C47): distances warn, the hyper-kernel refuses, and gradients of clamped distances are 0."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import oracle
import pytest
from batches import as_type, one, random_batch

from maskerade_fast import Metric, UnequalMassWarning
from maskerade_fast.model.gmm import GMMBatch, concat
from maskerade_fast.ops.distances import energy_distance, energy_distance_vjp, gaussian_mmd2, gaussian_mmd2_vjp
from maskerade_fast.ops.hyperkernel import HyperKernel, hyperkernel, hyperkernel_matvec, hyperkernel_vjp
from maskerade_fast.ops.metric_distances import prepare, squared_distance

HYPER: dict[str, Any] = {"outputscale": 1.0, "lengthscale": 1.0}
CURE = r"expected equal ones; pass metric=Metric\(mass_weight=\.\.\.\), or Metric\(mass_correction=True\)"
PARTS = ("weights", "means", "scales")


def unequal(dtype: Any = np.float64) -> GMMBatch:
    """Four mixtures of mass 1, 2, 20 and 1."""
    heavy = ([10.0, 10.0], [0.0, 3.0], [1.0, 1.0])
    one, two, apart = (([w], [m], [1.0]) for w, m in ((1.0, 0.0), (2.0, 0.0), (1.0, 2.0)))
    return as_type(GMMBatch.from_list([one, two, heavy, apart]), dtype)


def test_c47_distances_of_unequal_masses_warn(dtype: Any) -> None:
    """The formula stands: 0 between different mixtures, or clamped there from -270."""
    g = unequal(dtype)
    for a, b in ((g, None), (g[0], g[1]), (g[1], g[[2, 3]])):
        with pytest.warns(
            UnequalMassWarning, match=r"weights: total masses .*Metric\(mass_correction=True\)"
        ) as caught:
            E = energy_distance(a, b)
        assert len(caught) == 1
        left, right = oracle.mixtures_of(a), None if b is None else oracle.mixtures_of(b)
        np.testing.assert_allclose(E, oracle.energy_distance(left, right), rtol=1e-6)
        with pytest.warns(UnequalMassWarning) as caught:
            energy_distance_vjp(a, b, np.ones(E.shape))
        assert len(caught) == 1


def test_c47_the_warning_names_the_callers_line() -> None:
    with pytest.warns(UnequalMassWarning) as caught:
        energy_distance(unequal())
    assert caught[0].filename == __file__


def test_c47_masses_that_are_equal_or_seen_to_do_not_warn(rng: np.random.Generator) -> None:
    """Any warning is an error here. Weights normalised in float32, and kept so or not, are equal."""
    g = unequal()
    energy_distance(g, metric=Metric(mass_correction=True))
    energy_distance(g[[0, 3]])
    energy_distance(g[1], g[[1, 1]])
    gaussian_mmd2(g, bandwidth=1.0)
    none = GMMBatch([0], np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))
    energy_distance(none, g[0])
    energy_distance(none, none)
    energy_distance(one([0.0, 0.0], [1.0, 2.0], [1.0, 1.0]))
    for total in (1.0, 3.7e-20, 2.9e20):
        weights = [w / w.sum() * np.float32(total) for w in (rng.random(n).astype(np.float32) for n in (1, 2, 7, 900))]
        for dtype in (np.float32, np.float64):
            batch = GMMBatch.from_list([(w.astype(dtype), *np.ones((2, len(w)), dtype)) for w in weights])
            energy_distance(batch)
            hyperkernel(batch, **HYPER)


@pytest.mark.parametrize("apart", [1e-4, 0.5])
def test_c47_masses_apart_by_more_than_rounding(apart: float) -> None:
    g = concat([one([0.4, 0.6], [0.0, 1.0], [1.0, 1.0]), one([1.0 + apart], [0.5], [1.0])])
    with pytest.warns(UnequalMassWarning):
        energy_distance(g)
    with pytest.raises(ValueError, match=CURE):
        hyperkernel(g, **HYPER)


def test_c47_the_hyperkernel_refuses_unequal_masses(dtype: Any) -> None:
    g = unequal(dtype)
    v, G = np.ones(4, dtype), np.ones((4, 4), dtype)
    calls = [
        lambda **k: hyperkernel(g, **HYPER, **k),
        lambda **k: hyperkernel(g[0], g[1], **HYPER, **k),
        lambda **k: hyperkernel_matvec(g, None, v, **HYPER, **k),
        lambda **k: hyperkernel_vjp(g, None, G, **HYPER, **k),
        lambda **k: HyperKernel(**HYPER, **k).pullback(g, g),
        lambda **k: squared_distance(g, **k),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=CURE):
            call()
        with pytest.raises(ValueError, match=CURE):
            call(metric=Metric(reflect=True))
        call(metric=Metric(mass_weight=0.5))
        call(metric=Metric(mass_correction=True))
    K = hyperkernel(g, **HYPER, metric=Metric(mass_weight=0.5))
    assert np.linalg.eigvalsh(K)[0] > 1e-3


def test_c47_batches_prepared_apart() -> None:
    """Each of equal masses, but not the masses of the other."""
    g = unequal()
    with pytest.raises(ValueError, match=CURE):
        prepare(g)
    assert len(prepare(g, metric=Metric(mass_weight=0.5))) == 4
    ready = prepare(g[[0, 3]])
    hyperkernel(ready, g[[3, 0]], **HYPER)
    for other in (g[1], prepare(g[1])):
        with pytest.raises(ValueError, match=CURE):
            hyperkernel(ready, other, **HYPER)


@pytest.mark.filterwarnings("ignore::maskerade_fast.UnequalMassWarning")
def test_c47_gradients_of_clamped_distances_are_0(rng: np.random.Generator) -> None:
    """Central differences where the distance is above 0, exactly 0 where it is clamped there, in any company."""
    g = unequal()
    E = energy_distance(g)
    assert (E[:3, :3] == 0.0).all()
    assert E[3, :2].tolist() == [2.0, 4.0]
    assert E[3, 2] == 0.0
    for a, b, G in ((g[:3], g[:3], rng.normal(size=(3, 3))), (g[[2]], g, np.ones((1, 4)))):
        gradient = energy_distance_vjp(a, b, G)
        assert all((getattr(gradient, part) == 0.0).all() for part in PARTS)
    G = rng.normal(size=(4, 4))
    for other in (None, g, g[:]):
        gradient = energy_distance_vjp(g, other, G)
        expected = oracle.energy_distance_vjp(
            oracle.mixtures_of(g), None if other is None else oracle.mixtures_of(other), G
        )
        for part, value in zip(PARTS, expected, strict=True):
            np.testing.assert_allclose(getattr(gradient, part), value, rtol=0, atol=1e-13)
    a, b = (random_batch(rng, B, 1, unit=False) for B in (5, 4))
    E, G = energy_distance(a, b), rng.normal(size=(5, 4))
    assert 3 < (E == 0.0).sum() < 17
    gradient = energy_distance_vjp(a, b, G)
    for part in PARTS:

        def objective(values: np.ndarray, part: str = part) -> float:
            moved = GMMBatch(a.offsets, **{p: values if p == part else getattr(a, p) for p in PARTS})
            return float(np.sum(G * energy_distance(moved, b)))

        numeric = oracle.central_differences(objective, getattr(a, part))
        np.testing.assert_allclose(getattr(gradient, part), numeric, rtol=0, atol=1e-6)


def test_c47_gradients_of_coincident_mixtures_are_0(rng: np.random.Generator) -> None:
    """Equal masses, one mixture in two ways: the distance is 0, or rounding makes it so."""
    w, m, s = rng.dirichlet(np.ones(3)), rng.normal(size=(3, 1)), rng.random((3, 1))
    a, b = one(w, m, s), concat([one(w, m, s), one(np.repeat(w / 2, 2), np.repeat(m, 2), np.repeat(s, 2))])
    for value, vjp in (
        (energy_distance(a, b), energy_distance_vjp(a, b, [[1.0, 0.0]])),
        (gaussian_mmd2(a, b, bandwidth=1.0), gaussian_mmd2_vjp(a, b, [[1.0, 0.0]], bandwidth=1.0)),
    ):
        assert value[0, 0] == 0.0
        assert all((getattr(vjp, part) == 0.0).all() for part in PARTS)


@pytest.mark.parametrize("power", [1, 2])
def test_c47_features_keep_their_gradient_where_the_distance_is_clamped(power: int) -> None:
    """Noise and mass terms come on top of the clamp: twins of other noise and mass are apart by these alone."""
    a = GMMBatch.from_list([([1.0, 2.0], [0.0, 1.0], [1.0, 1.0])], [0.5])
    b = GMMBatch.from_list([([2.0, 4.0], [0.0, 1.0], [1.0, 1.0])], [2.0])
    metric = Metric(noise_weight=0.7, mass_weight=0.3)
    gradient = hyperkernel_vjp(a, b, [[1.0]], **HYPER, power=power, metric=metric)
    left, right = oracle.mixtures_of(a), oracle.mixtures_of(b)
    options: dict[str, Any] = {"noise_weight": 0.7, "mass_weight": 0.3, "noise_a": [0.5], "noise_b": [2.0]}
    expected = oracle.hyperkernel_vjp(left, right, [[1.0]], **HYPER, power=power, **options)
    for name, value in zip((*PARTS, "noise_variance"), expected, strict=True):
        np.testing.assert_allclose(getattr(gradient, name), value, rtol=1e-12, atol=1e-15)
    assert (gradient.means == 0.0).all()
    assert (gradient.scales == 0.0).all()
    assert (gradient.weights != 0.0).all()
    assert np.all(gradient.noise_variance != 0.0)


@pytest.mark.parametrize("seen_bytes", [2**20, 0])
def test_c47_masses_on_a_card_take_no_wait_of_their_own(
    emulated: Any, monkeypatch: pytest.MonkeyPatch, seen_bytes: int
) -> None:
    """They come with the largest coordinate, whether the arrays are small enough to be copied or not."""
    monkeypatch.setattr("maskerade_fast._checks._SEEN_BYTES", seen_bytes)
    g = unequal().to("gpu")
    before = emulated.state.synchronised
    with pytest.warns(UnequalMassWarning, match="from 1 to 20"):
        energy_distance(g)
    assert emulated.state.synchronised == before + 1
    with pytest.raises(ValueError, match="from 1 to 20"):
        prepare(g)
    prepare(g[[0, 3]])
    far = GMMBatch.from_list([([1.0], [1e200], [1.0])]).to("gpu")
    with pytest.raises(ValueError, match="means: some exceed"):
        prepare(far)


@pytest.mark.usefixtures("backend")
def test_every_backend(rng: np.random.Generator) -> None:
    dtype = np.dtype(np.float64)
    test_c47_distances_of_unequal_masses_warn(dtype)
    test_c47_the_hyperkernel_refuses_unequal_masses(dtype)
    test_c47_features_keep_their_gradient_where_the_distance_is_clamped(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnequalMassWarning)
        test_c47_gradients_of_clamped_distances_are_0(rng)
