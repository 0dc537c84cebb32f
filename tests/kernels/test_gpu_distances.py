"""Pairwise distances of the GPU backend, on the emulator: the oracle, exact zeros, gradients, tiles, chunks, orders."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from emulate import ORDERS
from gpu_calls import (
    EVERY_ORDER,
    FORM_CASES,
    FORMS,
    Side,
    assert_all_equal,
    assert_close,
    atoms,
    card,
    distance_oracle,
    distance_oracle_vjp,
    ragged_side,
    side_of,
)
from numpy.testing import assert_allclose, assert_array_equal

from maskerade_fast.backends import cpu

OPERATIONS = "distances"
EVERY_CASE = pytest.mark.parametrize(("D", "form"), FORM_CASES, ids=[f"D{d}-{form}" for d, form in FORM_CASES])


def close(computed: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """Within `tolerance` of the largest entry, or of 1 if all are smaller: terms are of order 1."""
    assert_close(computed, expected, tolerance, least=1.0)


def gradients_close(computed: Any, expected: Any) -> None:
    for x, y in zip(computed, expected, strict=True):
        close(x, y, 1e-11)


# the oracle


@EVERY_CASE
def test_meets_the_oracle(gpu: ModuleType, rng: np.random.Generator, D: int, form: str) -> None:
    a, b, options = ragged_side(rng, 5, D), ragged_side(rng, 4, D), FORMS[form]
    there = [atoms(gpu, side, **options) for side in (a, b)]
    close(gpu.pairwise_distance(*there), distance_oracle(a, b, **options))
    close(gpu.pairwise_distance(there[0]), distance_oracle(a, None, **options))
    G = rng.normal(size=(5, 4))
    gradients_close(gpu.pairwise_distance_vjp(*there, card(G)), distance_oracle_vjp(a, b, G, **options))


@EVERY_ORDER
@pytest.mark.parametrize(("D", "form"), [(1, "energy"), (2, "reflected"), (19, "gaussian")])
def test_several_tiles_and_windows(gpu: ModuleType, rng: np.random.Generator, D: int, form: str) -> None:
    """Two tiles of a, three of b, two windows of b, neither filled."""
    a, b, options = side_of(rng, [4] * 31 + [5, 1, 3], D), ragged_side(rng, 35, D, 2), FORMS[form]
    there = [atoms(gpu, side, **options) for side in (a, b)]
    assert there[0].n_tiles == 2
    close(gpu.pairwise_distance(*there), distance_oracle(a, b, **options))
    G = rng.normal(size=(34, 35))
    here = [atoms(cpu, side, **options) for side in (a, b)]
    close(gpu.pairwise_distance(there[0]), cpu.pairwise_distance(here[0]))
    gradients = gpu.pairwise_distance_vjp(there[0], there[1], card(G))
    gradients_close(gradients, cpu.pairwise_distance_vjp(here[0], here[1], G))


@pytest.mark.parametrize("D", [1, 18, 19])
@pytest.mark.parametrize("form", ["energy", "reflected-gaussian"])
def test_three_hundred_components(gpu: ModuleType, rng: np.random.Generator, D: int, form: str) -> None:
    """A mixture of more components than a tile is taken in parts, on either side, beside small ones."""
    side, options = side_of(rng, [2, 300, 1, 129, 3], D), FORMS[form]
    there, here = atoms(gpu, side, **options), atoms(cpu, side, **options)
    assert there.starts.get().tolist() == [0, 1, 2, 3, 4, 5]
    values = gpu.pairwise_distance(there, there)
    close(values, cpu.pairwise_distance(here, here))
    if form == "energy":  # the oracle's loops take a minute for the other
        close(values[:3, :1], distance_oracle(side.part(0, 3), side.part(0, 1)))
    assert (np.diag(values.get()) == 0.0).all()
    assert_array_equal(gpu.pairwise_distance(there).get()[np.triu_indices(5)], values.get()[np.triu_indices(5)])
    G = rng.normal(size=(5, 5))
    gradients_close(gpu.pairwise_distance_vjp(there, there, card(G)), cpu.pairwise_distance_vjp(here, here, G))


@pytest.mark.parametrize("reflect", [False, True])
def test_mass_correction_and_features(gpu: ModuleType, rng: np.random.Generator, reflect: bool) -> None:
    D = 2 if reflect else 1
    sides = ragged_side(rng, 6, D), ragged_side(rng, 7, D)
    a, b = (side._replace(weights=3.0 * rng.random(len(side.weights))) for side in sides)
    features = rng.normal(size=(6, 2)), rng.normal(size=(7, 2))
    options = {"reflect": reflect, "mass_correction": True}
    there = [atoms(gpu, side, features=f, **options) for side, f in zip((a, b), features, strict=True)]
    gap = np.abs(features[0][:, None] - features[1]).sum(axis=2)
    close(gpu.pairwise_distance(*there), distance_oracle(a, b, **options) + gap)
    own = np.abs(features[0][:, None] - features[0]).sum(axis=2)
    close(gpu.pairwise_distance(there[0]), distance_oracle(a, None, **options) + own)
    G = rng.normal(size=(6, 7))
    gradients_close(gpu.pairwise_distance_vjp(*there, card(G)), distance_oracle_vjp(a, b, G, **options))
    plain = [atoms(gpu, side, **options) for side in (a, b)]  # gradients leave features out
    distances = gpu.pairwise_distance(*there)
    whole = [gpu.pairwise_distance_vjp(*pair, card(G)) for pair in (there, plain)]
    for parts in zip(*whole, gpu.pairwise_distance_vjp(*there, card(G), distances), strict=True):
        for x in parts[1:]:
            assert_array_equal(x.get(), parts[0].get())


# exactness


@pytest.mark.parametrize(("D", "form"), [(1, form) for form in FORMS] + [(5, "energy"), (19, "reflected")])
def test_equal_mixtures_are_exactly_at_0(gpu: ModuleType, rng: np.random.Generator, D: int, form: str) -> None:
    side = ragged_side(rng, 70, D)
    there = atoms(gpu, side, **FORMS[form])
    E = gpu.pairwise_distance(there).get()
    assert (E == E.T).all()
    assert (E >= 0.0).all()
    assert (np.diag(E) == 0.0).all()
    again = gpu.pairwise_distance(there, atoms(gpu, side, **FORMS[form])).get()
    assert (np.diag(again) == 0.0).all()
    assert_array_equal(again[np.triu_indices(70)], E[np.triu_indices(70)])
    some = gpu.pairwise_distance(atoms(gpu, side.part(3, 9), **FORMS[form]), there).get()
    assert (some[range(6), range(3, 9)] == 0.0).all()


@pytest.mark.parametrize(("D", "form"), [(1, "energy"), (2, "reflected"), (19, "gaussian")])
def test_chunks_partial_sums_and_orders_leave_the_bits(
    gpu: ModuleType, emulated: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, D: int, form: str
) -> None:
    a, b, options = ragged_side(rng, 71, D), ragged_side(rng, 75, D), FORMS[form]
    G = rng.normal(size=(71, 75))

    def everything(a: Side, b: Side, G: Any) -> list[Any]:
        there = [atoms(gpu, side, **options) for side in (a, b)]
        values = gpu.pairwise_distance(*there), gpu.pairwise_distance(there[0])
        return [x.get() for x in (*values, *gpu.pairwise_distance_vjp(*there, card(G)))]

    whole = everything(a, b, G)
    for order in ORDERS.values():
        emulated.state.options = emulated.state.options._replace(order=order)
        assert_all_equal(everything(a, b, G), whole)
    part = everything(a.part(40, 71), b, G[40:])
    first = a.offsets[40]
    assert_all_equal(part, (whole[0][40:], whole[1][40:, 40:], whole[2][first:], whole[3][first:]))
    assert_array_equal(everything(a.part(0, 3), b.part(5, 30), G[:3, 5:30])[0], whole[0][:3, 5:30])
    for n_partial in (1, 2):  # for three windows: the last chunk of two is not full
        monkeypatch.setattr(gpu, "PARTIAL_BYTES", n_partial * 8 * (1 + 2 * D) * int(a.offsets[-1]))
        assert_all_equal(everything(a, b, G), whole)


def test_gap_far_from_the_origin(gpu: ModuleType) -> None:
    """CASES C08: no expansion of the square, which would lose the gap altogether."""
    a, b = (Side(np.array([0, 1]), np.ones(1), np.array([[m, 1.0]])) for m in (1e6, 1e6 + 1e-3))
    assert gpu.pairwise_distance(atoms(gpu, a), atoms(gpu, b)).get()[0, 0] == pytest.approx(1.0000000475e-3, rel=1e-10)


def test_dead_atom_far_away(gpu: ModuleType) -> None:
    """CASES C16."""
    padded = Side(np.array([0, 3]), np.array([0.6, 0.4, 0.0]), np.array([[0.0, 1.0], [3.0, 1.0], [1e8, 5.0]]))
    q = Side(np.array([0, 1]), np.ones(1), np.array([[0.0, 1.0]]))
    there = [atoms(gpu, side) for side in (padded, q)]
    assert gpu.pairwise_distance(*there).get()[0, 0] == pytest.approx(0.48, abs=1e-15)
    assert np.isfinite(gpu.pairwise_distance_vjp(*there, card(np.ones((1, 1))))[0].get()).all()


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_coinciding_atoms(gpu: ModuleType, form: str) -> None:
    """The subgradient is 0 where atoms meet; between equal batches the gradient is that of a minimum."""
    a = Side(np.array([0, 2, 4]), np.array([0.7, 0.3, 0.5, 0.5]), np.array([[0.5, 0.25], [0.0, 0.0], [1, 1], [1, 1]]))
    b = Side(np.array([0, 2, 3]), np.array([0.4, 0.6, 1.0]), np.array([[0.5, 0.25], [2.0, 0.5], [1.0, 1.0]]))
    G, options = np.array([[1.0, -2.0], [0.5, 3.0]]), FORMS[form]
    there = [atoms(gpu, side, **options) for side in (a, b)]
    gradients_close(gpu.pairwise_distance_vjp(*there, card(G)), distance_oracle_vjp(a, b, G, **options))
    for x in gpu.pairwise_distance_vjp(there[0], there[0], card(np.eye(2))):
        assert_allclose(x.get(), 0.0, atol=1e-15)
    for x in gpu.pairwise_distance_vjp(there[0], there[0], card(np.zeros((2, 2)))):
        assert (x.get() == 0.0).all()


# mixed precision


@pytest.mark.parametrize(("D", "form"), [(1, "energy"), (1, "reflected"), (5, "energy"), (19, "reflected")])
def test_mixed_precision(gpu: ModuleType, rng: np.random.Generator, D: int, form: str) -> None:
    """Absolute errors of some 1e-7 of the cross term, and two roundings of float32 more."""
    a, b = ragged_side(rng, 50, D, 20), ragged_side(rng, 20, D, 20)
    there = [atoms(gpu, side, **FORMS[form]) for side in (a, b)]
    E, mixed = gpu.pairwise_distance(*there).get(), gpu.pairwise_distance(*there, precision="mixed").get()
    largest = float(np.abs(there[0].data.get()[:, 0]).max() + E.max())
    assert_allclose(mixed, E, rtol=0.0, atol=3e-7 * largest)
    assert (mixed != E).any()
    own = gpu.pairwise_distance(there[0], precision="mixed").get()
    assert (np.diag(gpu.pairwise_distance(there[0], there[0], precision="mixed").get()) == 0.0).all()
    assert (own == own.T).all()
    assert_array_equal(gpu.pairwise_distance(*there, precision="double").get(), E)  # the atoms are as they were


def test_mixed_precision_far_from_the_origin(gpu: ModuleType) -> None:
    """Coordinates are split in two float32: a gap keeps its digits where one float32 has a spacing of 0.06."""
    a, b = (Side(np.array([0, 1]), np.ones(1), np.array([[m, 1.0]])) for m in (1e6, 1e6 + 1e-3))
    there = [atoms(gpu, side) for side in (a, b)]
    assert gpu.pairwise_distance(*there, precision="mixed").get()[0, 0] == pytest.approx(1e-3, rel=1e-5)


@pytest.mark.parametrize("weight", [2.0**-450, 2.0**-60, 2.0**60, 2.0**450])
@pytest.mark.parametrize("length", [2.0**-450, 2.0**60, 2.0**90, 2.0**120])
def test_mixed_precision_on_any_scale(gpu: ModuleType, rng: np.random.Generator, weight: float, length: float) -> None:
    """Powers of two change no bit, where float32 would overflow or leave nothing; features scale along."""
    a, b, features = ragged_side(rng, 4, 1), ragged_side(rng, 3, 1), rng.normal(size=(4, 1))
    factor = weight * weight * length
    small = [atoms(gpu, side, features=features[: len(side.offsets) - 1]) for side in (a, b)]
    scaled = [side._replace(weights=weight * side.weights, points=length * side.points) for side in (a, b)]
    large = [atoms(gpu, side, features=factor * features[: len(side.offsets) - 1]) for side in scaled]
    for pair in (slice(0, 2), slice(0, 1)):
        expected = factor * gpu.pairwise_distance(*small[pair], precision="mixed").get()
        assert_array_equal(gpu.pairwise_distance(*large[pair], precision="mixed").get(), expected)


@pytest.mark.parametrize("which", [0, 1])
def test_mixed_precision_of_sides_of_two_scales(gpu: ModuleType, rng: np.random.Generator, which: int) -> None:
    sides = [ragged_side(rng, 4, 1), ragged_side(rng, 3, 1)]
    large = sides[which]
    sides[which] = large._replace(weights=2.0**70 * large.weights, points=2.0**90 * large.points)
    there = [atoms(gpu, side) for side in sides]
    E, mixed = gpu.pairwise_distance(*there).get(), gpu.pairwise_distance(*there, precision="mixed").get()
    cross = float(max(E.max(), *(np.abs(side.data.get()[:, 0]).max() for side in there)))
    assert_allclose(mixed, E, rtol=0.0, atol=3e-7 * cross)


def test_mixed_precision_of_nothing(gpu: ModuleType, rng: np.random.Generator) -> None:
    none, some = Side(np.array([0]), np.zeros(0), np.zeros((0, 2))), ragged_side(rng, 3, 1)
    weightless = some._replace(weights=0.0 * some.weights, points=0.0 * some.points)
    sides = [atoms(gpu, side) for side in (none, some, weightless)]
    assert gpu.pairwise_distance(sides[0], precision="mixed").shape == (0, 0)
    assert gpu.pairwise_distance(sides[1], sides[0], precision="mixed").shape == (3, 0)
    assert (gpu.pairwise_distance(sides[2], precision="mixed").get() == 0.0).all()


def test_mixed_precision_is_for_the_energy_distance(gpu: ModuleType, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="the Gaussian MMD needs 'double'"):
        gpu.pairwise_distance(atoms(gpu, ragged_side(rng, 3, 1), bandwidth=1.0), precision="mixed")


# arrays, batches and tiles


def test_layouts_and_types(gpu: ModuleType, rng: np.random.Generator) -> None:
    import cupy

    a, b = ragged_side(rng, 5, 2), ragged_side(rng, 4, 2)
    E = gpu.pairwise_distance(atoms(gpu, a), atoms(gpu, b)).get()
    G = np.asfortranarray(rng.normal(size=(5, 4)))
    expected = gpu.pairwise_distance_vjp(atoms(gpu, a), atoms(gpu, b), card(np.ascontiguousarray(G)))[1].get()
    host_offsets = gpu.prepare_atoms(a.offsets, card(a.weights), cupy.asfortranarray(card(a.points)))
    assert_array_equal(gpu.pairwise_distance(host_offsets, atoms(gpu, b)).get(), E)
    assert_array_equal(gpu.pairwise_distance_vjp(host_offsets, atoms(gpu, b), card(G))[1].get(), expected)
    small = Side(a.offsets.astype(np.int32), *(x.astype(np.float32) for x in a[1:3]))
    same = Side(a.offsets, *(x.astype(np.float64) for x in small[1:3]))
    assert_array_equal(
        gpu.pairwise_distance(atoms(gpu, small), atoms(gpu, b)).get(),
        gpu.pairwise_distance(atoms(gpu, same), atoms(gpu, b)).get(),
    )


def test_reflection_takes_all_means_or_none(gpu: ModuleType, rng: np.random.Generator) -> None:
    a = Side(*map(card, ragged_side(rng, 2, 2)))
    with pytest.raises(ValueError, match="n_reflect: 1, expected 0 or 2"):
        gpu.prepare_atoms(*a, 1)


def test_arrays_of_two_devices_are_refused(gpu: ModuleType, emulated: Any, rng: np.random.Generator) -> None:
    import cupy

    emulated.state.devices.append(emulated.FakeDevice())
    a = atoms(gpu, ragged_side(rng, 2, 1))
    with cupy.cuda.Device(1):
        b = atoms(gpu, ragged_side(rng, 2, 1))
    with pytest.raises(ValueError, match=r"devices \[0, 1\]"):
        gpu.pairwise_distance(a, b)
    assert gpu.pairwise_distance(b).device.id == 1  # whichever device is current


@pytest.mark.parametrize("form", FORMS)
def test_empty_batches(gpu: ModuleType, rng: np.random.Generator, form: str) -> None:
    """CASES C24."""
    none = atoms(gpu, Side(np.array([0]), np.zeros(0), np.zeros((0, 2))), **FORMS[form])
    some = atoms(gpu, ragged_side(rng, 3, 1), **FORMS[form])
    assert gpu.pairwise_distance(none).shape == (0, 0)
    assert gpu.pairwise_distance(none, some).shape == (0, 3)
    assert gpu.pairwise_distance(some, none).shape == (3, 0)
    assert gpu.pairwise_distance_vjp(none, some, card(np.zeros((0, 3))))[1].shape == (0, 2)
    for x in gpu.pairwise_distance_vjp(some, none, card(np.zeros((3, 0)))):
        assert (x.get() == 0.0).all()


def test_tiles_are_whole_mixtures(gpu: ModuleType, rng: np.random.Generator) -> None:
    for counts in ([1], [128], [129], [1] * 128, [1] * 129, [64, 64, 1], [1, 128, 1], rng.integers(1, 200, 500)):
        offsets = np.concatenate([[0], np.cumsum(counts)])
        starts = gpu.tile_starts(offsets)
        assert starts[0] == 0
        assert starts[-1] == len(counts)
        sizes, n_mixtures = np.diff(offsets[starts]), np.diff(starts)
        assert (n_mixtures > 0).all()
        assert ((sizes <= 128) | (n_mixtures == 1)).all()
        assert (sizes[:-1] + np.asarray(counts)[starts[1:-1]] > 128).all()  # the next mixture did not fit
    assert gpu.tile_starts(np.array([0])).tolist() == [0]
