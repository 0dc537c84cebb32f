"""Energy distance and Gaussian MMD: golden values, the oracle with its gradients, exactness, threads and sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from batches import as_type, random_batch
from comparisons import close, one_thread

from maskerade_fast.errors import UnequalMassWarning
from maskerade_fast.model.gmm import GMMBatch, GMMGradient, concat
from maskerade_fast.ops.distances import energy_distance, energy_distance_vjp, gaussian_mmd2, gaussian_mmd2_vjp
from maskerade_fast.ops.metric import Metric

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "distances.json").read_text())
PARTS = ("weights", "means", "scales")
METRICS = [
    {},
    {"reflect": True},
    {"frequency_scale": 0.4, "scale_scale": 3.0},
    {"mass_correction": True},
    {"reflect": True, "mass_correction": True, "scale_scale": 0.7},
]
METRIC_IDS = ["plain", "reflect", "scaled", "mass", "all"]


def one(mixture: dict[str, Any]) -> GMMBatch:
    return GMMBatch.from_list([tuple(mixture[k] for k in PARTS)])


def gradients_close(actual: GMMGradient, expected: Any, tolerance: float = 1e-12) -> None:
    for part, value in zip(PARTS, expected, strict=True):
        close(getattr(actual, part), value, tolerance)


# golden values and the oracle


@pytest.mark.parametrize("size", [0, 1, 7, 8, 65])
def test_aligned_rooms_have_their_size(size: int) -> None:
    from maskerade_fast.backends.cpu import distances

    room = distances._aligned_zeros(size)
    assert room.shape == (size,)
    assert size == 0 or room.ctypes.data % 64 == 0
    assert not room.any()


@pytest.mark.parametrize("case", [c for c in GOLDEN if "grad_a" in c], ids=lambda c: f"D{c['D']}")
def test_golden(case: dict[str, Any]) -> None:
    a, b, mirror = one(case["a"]), one(case["b"]), Metric(reflect=True)
    close(energy_distance(a, b), [[case["energy_distance"]]])
    close(energy_distance(a, b, metric=mirror), [[case["energy_distance_reflected"]]])
    close(gaussian_mmd2(a, b, bandwidth=case["bandwidth"]), [[case["gaussian_mmd2"]]])
    close(gaussian_mmd2(a, b, bandwidth=case["bandwidth"], metric=mirror), [[case["gaussian_mmd2_reflected"]]])
    gradients_close(energy_distance_vjp(a, b, [[1.0]]), [case["grad_a"][k] for k in PARTS])


@pytest.mark.parametrize("case", [c for c in GOLDEN if "unequal_mass" in c], ids=lambda c: f"D{c['D']}")
def test_golden_unequal_masses(case: dict[str, Any]) -> None:
    a, b = one(case["a"]), one(case["b"])
    with pytest.warns(UnequalMassWarning):
        close(energy_distance(a, b), [[case["energy_distance"]]])
    close(energy_distance(a, b, metric=Metric(mass_correction=True)), [[case["energy_distance_mass_corrected"]]])


@pytest.mark.parametrize("D", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("options", METRICS, ids=METRIC_IDS)
def test_energy_distance_meets_oracle(D: int, options: dict[str, Any], rng: np.random.Generator) -> None:
    a, b = (random_batch(rng, B, D, unit="mass_correction" not in options) for B in (3, 4))
    left, right, metric = oracle.mixtures_of(a), oracle.mixtures_of(b), Metric(**options)
    close(energy_distance(a, b, metric=metric), oracle.energy_distance(left, right, **options))
    close(energy_distance(a, metric=metric), oracle.energy_distance(left, **options))
    G, H = rng.normal(size=(3, 4)), rng.normal(size=(3, 3))
    gradients_close(energy_distance_vjp(a, b, G, metric=metric), oracle.energy_distance_vjp(left, right, G, **options))
    gradients_close(
        energy_distance_vjp(a, None, H, metric=metric), oracle.energy_distance_vjp(left, None, H, **options)
    )


@pytest.mark.parametrize("options", METRICS, ids=METRIC_IDS)
@pytest.mark.parametrize(("D", "scale"), [(1, 1.0), (2, 1e-60), (5, 1e60)])
def test_mixed_precision_meets_oracle(
    backend: str, D: int, scale: float, options: dict[str, Any], rng: np.random.Generator
) -> None:
    """In units of the largest cross term, on any scale of the weights; on the CPU the bits of "double"."""
    a, b = (random_batch(rng, B, D, (1, 20), unit="mass_correction" not in options) for B in (3, 4))
    a, b = (GMMBatch(g.offsets, scale * g.weights, g.means, g.scales) for g in (a, b))
    mixtures = [oracle.mixtures_of(g) for g in (a, b)]
    metric, terms = Metric(**options), {k: v for k, v in options.items() if k != "mass_correction"}
    atoms = [oracle.atoms(m, **terms) for side in mixtures for m in side]
    cross = max(sum(p[0] * q[0] * oracle.gap(p, q) for p in left for q in right) for left in atoms for right in atoms)
    for pair, expected in (((a, b), oracle.energy_distance(*mixtures, **options)), ((a,), None)):
        mixed, double = (energy_distance(*pair, metric=metric, precision=name) for name in ("mixed", "double"))
        np.testing.assert_allclose(mixed, double if expected is None else expected, rtol=0.0, atol=3e-7 * cross)
        assert (mixed == double).all() == (backend == "cpu")
    assert (np.diag(mixed) == 0.0).all()


@pytest.mark.parametrize("D", [1, 2, 5])
@pytest.mark.parametrize("options", METRICS[:3], ids=METRIC_IDS[:3])
def test_gaussian_mmd2_meets_oracle(D: int, options: dict[str, Any], rng: np.random.Generator) -> None:
    a, b = (random_batch(rng, B, D, unit=False) for B in (3, 4))
    left, right = oracle.mixtures_of(a), oracle.mixtures_of(b)
    ours: dict[str, Any] = {"bandwidth": 0.6, "metric": Metric(**options)}
    reference: dict[str, Any] = {"bandwidth": 0.6, **options}
    close(gaussian_mmd2(a, b, **ours), oracle.gaussian_mmd2(left, right, **reference))
    close(gaussian_mmd2(a, **ours), oracle.gaussian_mmd2(left, **reference))
    G, H = rng.normal(size=(3, 4)), rng.normal(size=(3, 3))
    gradients_close(gaussian_mmd2_vjp(a, b, G, **ours), oracle.gaussian_mmd2_vjp(left, right, G, **reference))
    gradients_close(gaussian_mmd2_vjp(a, None, H, **ours), oracle.gaussian_mmd2_vjp(left, None, H, **reference))


def test_many_dimensions_and_components(rng: np.random.Generator) -> None:
    a, b = random_batch(rng, 2, 18, (20, 30)), random_batch(rng, 2, 18, (1, 40))
    left, right = oracle.mixtures_of(a), oracle.mixtures_of(b)
    close(energy_distance(a, b), oracle.energy_distance(left, right))
    close(energy_distance(a, b, metric=Metric(reflect=True)), oracle.energy_distance(left, right, reflect=True))
    G = rng.normal(size=(2, 2))
    gradients_close(energy_distance_vjp(a, b, G), oracle.energy_distance_vjp(left, right, G))


@pytest.mark.parametrize("sizes", [(1, 1), (300, 300), (1, 60)])
def test_batches_equal_pairs(sizes: tuple[int, int], rng: np.random.Generator) -> None:
    """Windows, tiles and ranks of every shape: each entry is that of the two mixtures alone, to the bit."""
    a, b = random_batch(rng, 9, 2, sizes), random_batch(rng, 11, 2, sizes)
    E = energy_distance(a, b)
    assert [[energy_distance(a[i], b[j])[0, 0] for j in range(11)] for i in range(9)] == E.tolist()


# exactness


@pytest.mark.filterwarnings("ignore::maskerade_fast.UnequalMassWarning")
@pytest.mark.parametrize("D", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("options", METRICS, ids=METRIC_IDS)
def test_equal_mixtures_are_exactly_at_0(D: int, options: dict[str, Any], rng: np.random.Generator) -> None:
    """On the diagonal, and between copies in two batches: self terms repeat the order of the cross terms."""
    a, metric = random_batch(rng, 300, D, unit=False), Metric(**options)
    E = energy_distance(a, metric=metric)
    assert (np.diag(E) == 0.0).all()
    assert (E == E.T).all()
    assert (E >= 0.0).all()
    assert (np.diag(energy_distance(a, a[:], metric=metric)) == 0.0).all()
    upper = np.triu_indices(300)
    assert (energy_distance(a, a, metric=metric)[upper] == E[upper]).all()
    M = gaussian_mmd2(a, bandwidth=0.3, metric=metric)
    assert (M == M.T).all()
    assert (np.diag(M) == 0.0).all()
    assert (np.diag(gaussian_mmd2(a, a[:], bandwidth=0.3, metric=metric)) == 0.0).all()


@pytest.mark.parametrize("D", [1, 3, 7])
@pytest.mark.parametrize("options", METRICS, ids=METRIC_IDS)
def test_chunks_and_threads_leave_the_bits(D: int, options: dict[str, Any], rng: np.random.Generator) -> None:
    a, b, metric = (random_batch(rng, 301, D), random_batch(rng, 523, D), Metric(**options))
    G = rng.normal(size=(301, 523))

    def results() -> list[np.ndarray]:
        g = energy_distance_vjp(a, b, G, metric=metric)
        E = [energy_distance(a, other, metric=metric) for other in (b, None)]
        return [*E, g.weights, g.means, g.scales]

    E, symmetric, g_weights, *others = results()
    with one_thread():
        for x, y in zip(results(), (E, symmetric, g_weights, *others), strict=True):
            np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(energy_distance(a[17:140], b[300:], metric=metric), E[17:140, 300:])
    np.testing.assert_array_equal(energy_distance(a[100:], metric=metric), symmetric[100:, 100:])
    part = energy_distance_vjp(a[100:], b, G[100:], metric=metric)
    np.testing.assert_array_equal(part.weights, g_weights[a.offsets[100] :])


def test_gap_far_from_the_origin() -> None:
    """No expansion of the square, which would lose the gap altogether."""
    a = GMMBatch.from_list([([1.0], [1e6], [1.0])])
    b = GMMBatch.from_list([([1.0], [1e6 + 1e-3], [1.0])])
    assert energy_distance(a, b)[0, 0] == pytest.approx(1.0000000475e-3, rel=1e-10)
    assert energy_distance(concat([a, a])).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_dead_atom_far_away() -> None:
    padded = GMMBatch.from_list([([0.6, 0.4, 0.0], [0.0, 3.0, 1e8], [1.0, 1.0, 5.0])])
    plain = GMMBatch.from_list([([0.6, 0.4], [0.0, 3.0], [1.0, 1.0])])
    q = GMMBatch.from_list([([1.0], [0.0], [1.0])])
    assert energy_distance(padded, q)[0, 0] == energy_distance(plain, q)[0, 0] == pytest.approx(0.48, abs=1e-15)
    assert np.isfinite(energy_distance_vjp(padded, q, [[1.0]]).weights).all()
    with pytest.raises(ValueError, match="means: some exceed"):
        energy_distance(GMMBatch.from_list([([1.0, 0.0], [0.0, 1e200], [1.0, 1.0])]), q)


# gradients


@pytest.mark.parametrize("reflect", [False, True])
def test_gradients_of_coinciding_atoms_and_tiny_weights(reflect: bool) -> None:
    """The subgradient 0 at ||p - q|| = 0; differences agree where the kinks cancel: in the weights."""
    a = GMMBatch.from_list([([1.0 - 1e-12, 1e-12], [0.5, 0.0], [0.25, 0.0]), ([0.5, 0.5], [1.0, 1.0], [1.0, 1.0])])
    b = GMMBatch.from_list([([0.4, 0.6], [0.5, 2.0], [0.25, 0.5]), ([1.0], [1.0], [1.0])])
    G, metric = np.array([[1.0, -2.0], [0.5, 3.0]]), Metric(reflect=reflect)
    g = energy_distance_vjp(a, b, G, metric=metric)
    gradients_close(g, oracle.energy_distance_vjp(oracle.mixtures_of(a), oracle.mixtures_of(b), G, reflect=reflect))

    def value(w: np.ndarray) -> float:  # weights may pass below 0
        moved = GMMBatch.trusted(a.offsets, w.copy(), a.means, a.scales)
        return float(np.sum(G[0] * energy_distance(moved, b, metric=metric)[0]))

    close(g.weights[:2], oracle.central_differences(value, a.weights)[:2], 1e-7)
    for part in PARTS:
        np.testing.assert_allclose(getattr(energy_distance_vjp(a, a, np.eye(2), metric=metric), part), 0.0, atol=1e-15)
        assert (getattr(energy_distance_vjp(a, None, np.eye(2), metric=metric), part) == 0.0).all()


# types, layouts and bad input


def test_float32_in_float32_out(rng: np.random.Generator) -> None:
    a, b = random_batch(rng, 5, 2), random_batch(rng, 6, 2)
    small = [as_type(g, np.float32) for g in (a, b)]
    same = [as_type(g, np.float64) for g in small]
    for f in (energy_distance, lambda x, y: gaussian_mmd2(x, y, bandwidth=0.5)):
        E = f(*small)
        assert E.dtype == np.float32
        np.testing.assert_array_equal(E, f(*same).astype(np.float32))
        close(E, f(a, b), 2e-4)
    g = energy_distance_vjp(small[0], small[1], np.ones((5, 6)))
    assert {getattr(g, k).dtype for k in PARTS} == {np.dtype(np.float32)}


@pytest.mark.parametrize("reflect", [False, True])
def test_empty_batches(reflect: bool, rng: np.random.Generator) -> None:
    metric = Metric(reflect=reflect)
    none = GMMBatch([0], np.zeros(0), np.zeros((0, 2)), np.zeros((0, 2)))
    some = random_batch(rng, 3, 2)
    for f in (energy_distance, lambda *x, metric: gaussian_mmd2(*x, bandwidth=1.0, metric=metric)):
        assert f(none, metric=metric).shape == (0, 0)
        assert f(none, some, metric=metric).shape == (0, 3)
        assert f(some, none, metric=metric).shape == (3, 0)
    assert energy_distance_vjp(none, some, np.zeros((0, 3)), metric=metric).means.shape == (0, 2)
    assert (energy_distance_vjp(some, none, np.zeros((3, 0)), metric=metric).means == 0.0).all()


@pytest.mark.parametrize("B", [1, 65535, 65536, 70000])
def test_large_batches(B: int) -> None:
    """The last elements are as the first."""
    p = ([0.7, 0.3], [0.5, 1.0], [0.1, 0.2])
    q = GMMBatch.from_list([([1.0], [0.0], [1.0])])
    means, scales = (np.tile(x, B)[:, None] for x in p[1:])
    many = GMMBatch(np.arange(B + 1) * 2, np.tile(p[0], B), means, scales)
    expected = energy_distance(GMMBatch.from_list([p]), q)[0, 0]
    assert (energy_distance(many, q) == expected).all()
    across = energy_distance(q, many)
    assert (across == across[0, 0]).all()
    close(across[0, 0], expected, 1e-15)


def test_bad_input_is_named(rng: np.random.Generator) -> None:
    a, b, c = (random_batch(rng, 3, 2), random_batch(rng, 4, 1), random_batch(rng, 4, 2))
    small = as_type(a, np.float32)
    with pytest.raises(ValueError, match="b: mixtures of 1 dimensions, expected 2"):
        energy_distance(a, b)
    with pytest.raises(ValueError, match="b: dtype float32, expected float64"):
        energy_distance(a, small)
    with pytest.raises(ValueError, match=r"cotangent: shape \(4, 3\), expected \(3, 4\)"):
        energy_distance_vjp(a, c, np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"cotangent\[0, 1\]|cotangent\[\(0, 1\)\]"):
        energy_distance_vjp(a, c, np.where(np.arange(12).reshape(3, 4) == 1, np.nan, 0.0))
    with pytest.raises(ValueError, match="bandwidth"):
        gaussian_mmd2(a, c, bandwidth=0.0)
    with pytest.raises(ValueError, match="bandwidth"):
        gaussian_mmd2(a, c, bandwidth=1e-200)
    with pytest.raises(ValueError, match="frequency_scale: 3 entries, expected 2"):
        energy_distance(a, c, metric=Metric(frequency_scale=[1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="scale_scale"):
        Metric(scale_scale=[1.0, 0.0])
    with pytest.raises(ValueError, match="mass_weight"):
        Metric(mass_weight=-1.0)
    with pytest.raises(TypeError, match="expected a Metric"):
        energy_distance(a, c, metric="energy")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a GMMBatch"):
        energy_distance([a], c)  # type: ignore[arg-type]
    for precision in ("half", "single", "Mixed", None):
        with pytest.raises(ValueError, match=rf"precision: {precision!r}, expected one of 'double', 'mixed'"):
            energy_distance(a, c, precision=precision)  # type: ignore[arg-type]


def test_metrics_compare_and_hash() -> None:
    assert Metric(frequency_scale=np.array([1.0, 2.0])) == Metric(frequency_scale=[1, 2])
    yes: Any = np.True_
    assert len({Metric(reflect=True), Metric(reflect=yes), Metric()}) == 2


@pytest.mark.usefixtures("backend")
def test_every_backend(rng: np.random.Generator) -> None:
    test_energy_distance_meets_oracle(2, METRICS[4], rng)
    test_energy_distance_meets_oracle(1, METRICS[2], rng)
    test_gaussian_mmd2_meets_oracle(1, METRICS[0], rng)
    test_float32_in_float32_out(rng)
    test_empty_batches(False, rng)
    test_bad_input_is_named(rng)
