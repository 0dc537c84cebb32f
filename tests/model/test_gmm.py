"""Ragged batches: what they accept, what they refuse and in which words, how they come apart and join."""

from __future__ import annotations

import dataclasses
import pickle
import re
from typing import Any

import numpy as np
import pytest
from comparisons import same_bits

from maskerade_fast.errors import BackendUnavailableError
from maskerade_fast.model.gmm import GMMBatch, concat

OFFSETS = [0, 2, 3, 6]
WEIGHTS = [0.6, 0.4, 1.0, 0.2, 0.3, 0.5]
NOISE = [0.1, 0.2, 0.3]


@pytest.fixture
def means(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(6, 2))


@pytest.fixture
def scales(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(0.1, 1.0, size=(6, 2))


@pytest.fixture
def batch(means: np.ndarray, scales: np.ndarray) -> GMMBatch:
    """Three mixtures of 2, 1 and 3 components in two dimensions, with noise."""
    return GMMBatch(OFFSETS, WEIGHTS, means, scales, NOISE)


def arrays(g: GMMBatch) -> dict[str, Any]:
    return {field.name: getattr(g, field.name) for field in dataclasses.fields(g)}


def test_shapes(batch: GMMBatch) -> None:
    assert (batch.n_mixtures, len(batch), batch.n_dims, batch.dtype) == (3, 3, 2, np.dtype(np.float64))
    np.testing.assert_array_equal(batch.n_components, [2, 1, 3])
    np.testing.assert_array_equal(batch.owner, [0, 0, 1, 2, 2, 2])
    np.testing.assert_allclose(batch.mass, [1.0, 1.0, 1.0], rtol=1e-15)
    assert batch.offsets.dtype == np.int64
    assert repr(batch) == "GMMBatch(n_mixtures=3, n_components=6, n_dims=2, dtype=float64)"


def test_from_list_is_the_constructor(batch: GMMBatch, means: np.ndarray, scales: np.ndarray) -> None:
    cut = [slice(0, 2), slice(2, 3), slice(3, 6)]
    same_bits(GMMBatch.from_list([(WEIGHTS[s], means[s], scales[s]) for s in cut], NOISE), batch)


def test_from_list_takes_flat_arrays_in_one_dimension() -> None:
    g = GMMBatch.from_list([([0.6, 0.4], [0.0, 3.0], [1, 1]), ([1], [0], [1])])
    assert g.means.shape == g.scales.shape == (3, 1)
    assert g.noise_variances is None


# What is refused, and how


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 5, 3], "offsets: mixture 1 has -2 components, expected at least 1"),
        ([0, 1, 1, 6], "offsets: mixture 1 has 0 components, expected at least 1"),
        ([0, 2, 2, 6], "offsets: mixture 1 has 0 components, expected at least 1"),
        ([0, -1, 6], "offsets: mixture 0 has -1 components, expected at least 1"),
        ([1, 6], "offsets[0]: 1, expected 0"),
        ([[0, 6]], "offsets: shape (1, 2), expected (B + 1,)"),
        ([], "offsets: shape (0,), expected (B + 1,)"),
        ([0, 7], "weights: shape (6,), expected 7 components as offsets[-1] says"),
        ([0, 5], "weights: shape (6,), expected 5 components as offsets[-1] says"),
    ],
)
def test_offsets_that_do_not_fit(offsets: Any, message: str, means: np.ndarray, scales: np.ndarray) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        GMMBatch(offsets, WEIGHTS, means, scales)


@pytest.mark.parametrize("offsets", [[0.0, 6.0], [False, True], ["0", "6"]])
def test_offsets_are_integers(offsets: Any, means: np.ndarray, scales: np.ndarray) -> None:
    with pytest.raises(TypeError, match=r"^offsets: dtype .*, expected integers"):
        GMMBatch(offsets, WEIGHTS, means, scales)


@pytest.mark.parametrize("value", [-0.2, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "where", "place"),
    [
        ("weights", 4, "weights of mixture 2, component 1"),
        ("scales", (5, 1), "scales of mixture 2, component 2, dimension 1"),
        ("means", (2, 0), "means of mixture 1, component 0, dimension 0"),
        ("noise_variances", 1, "noise_variances of mixture 1"),
    ],
)
def test_bad_numbers_are_named_by_mixture(batch: GMMBatch, name: str, where: Any, place: str, value: float) -> None:
    if name == "means" and np.isfinite(value):
        value = np.nan  # negative means are fine
    parts = {key: np.array(array) for key, array in arrays(batch).items()}
    parts[name][where] = value
    with pytest.raises(ValueError, match=f"^{place}: {value}, expected a finite number"):
        GMMBatch(**parts)


def test_one_dimension_goes_unnamed() -> None:
    with pytest.raises(ValueError, match=r"^scales of mixture 3, component 0: -0\.2, expected a finite number >= 0$"):
        GMMBatch.from_list([([1.0], [0.0], [s]) for s in (1.0, 1.0, 1.0, -0.2)])


def test_zero_weights_and_scales_and_negative_means_are_fine() -> None:
    g = GMMBatch.from_list([([0.0, 2.5], [-1.0, 3.0], [0.0, 0.0]), ([0.0], [0.0], [0.0])])
    np.testing.assert_array_equal(g.mass, [2.5, 0.0])


@pytest.mark.parametrize("bad", [np.array(1j), "a", None, np.datetime64("2020-01-01")])
@pytest.mark.parametrize("name", ["weights", "means", "scales", "noise_variances"])
def test_other_kinds_of_array_are_refused(batch: GMMBatch, name: str, bad: Any) -> None:
    parts = arrays(batch)
    parts[name] = np.full(parts[name].shape, bad)
    with pytest.raises(TypeError, match=f"^{name}: expected real numbers, got an array of dtype"):
        GMMBatch(**parts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"means": np.zeros(6)}, "means: expected a 2-D array, got shape (6,)"),
        ({"means": np.zeros((6, 0)), "scales": np.zeros((6, 0))}, "means: shape (6, 0), expected (J, D) with D >= 1"),
        ({"scales": np.zeros((6, 3))}, "scales: shape (6, 3), expected 6 components"),
        ({"weights": np.ones((6, 1))}, "weights: expected a 1-D array, got shape (6, 1)"),
        ({"weights": [[1.0], [1.0, 2.0]]}, "weights: expected a rectangular array"),
        ({"noise_variances": [0.1, 0.2]}, "noise_variances: shape (2,), expected (3,)"),
        ({"noise_variances": 0.1}, "noise_variances: expected a 1-D array, got shape ()"),
    ],
)
def test_shapes_that_do_not_fit(batch: GMMBatch, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        GMMBatch(**{**arrays(batch), **changes})


@pytest.mark.parametrize(
    ("mixtures", "message"),
    [
        ([], "mixtures: empty"),
        ([([1.0], [0.0])], "mixtures[0]: 2 entries, expected (weights, means, scales)"),
        (
            [([1.0], [0.0], [1.0]), ([0.5, 0.5], [0.0], [1.0, 1.0])],
            "mixtures[1]: means of shape (1,) beside weights of shape (2,), expected means and scales (n, 1)",
        ),
        (
            [([1.0], [[0.0]], [[1.0]]), ([1.0], [[0.0, 0.0]], [[1.0, 1.0]])],
            "mixtures[1]: means of shape (1, 2) beside weights of shape (1,), expected means and scales",
        ),
        (
            [([1.0], [[0.0, 0.0]], [[1.0]])],
            "mixtures[0]: scales of shape (1, 1) beside weights of shape (1,), expected means and scales",
        ),
        ([([], [], [])], "offsets: mixture 0 has 0 components, expected at least 1"),
        ([(1.0, 0.0, 1.0)], "mixtures[0]: weights of shape () beside weights of shape (), expected"),
        ([([1.0], [0.0], [1.0]), ([1.0], [0.0], [-1.0])], "scales of mixture 1, component 0: -1.0"),
    ],
)
def test_lists_that_do_not_fit(mixtures: Any, message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        GMMBatch.from_list(mixtures)


def test_text_in_a_list_is_refused_by_place() -> None:
    with pytest.raises(TypeError, match=r"^mixtures\[1\]: means: expected real numbers"):
        GMMBatch.from_list([([1.0], [0.0], [1.0]), ([1.0], ["a"], [1.0])])


# Layout and dtype


def layouts(array: np.ndarray) -> dict[str, np.ndarray]:
    """The same numbers, laid out in every way that has broken somebody."""
    wide = np.repeat(array, 2, axis=-1)
    frozen = array.copy()
    frozen.flags.writeable = False
    packed = np.zeros(array.shape, dtype=[("skew", "i1"), ("x", "f8")])
    packed["x"] = array
    return {
        "strided": wide[..., ::2],
        "backward": array[::-1].copy()[::-1],
        "Fortran": np.asfortranarray(array),
        "read-only": frozen,
        "unaligned": packed["x"],
        "big-endian": array.astype(">f8"),
        "list": array.tolist(),
    }


@pytest.mark.parametrize("kind", layouts(np.zeros((2, 2))))
def test_any_layout_gives_the_same_batch(batch: GMMBatch, kind: str) -> None:
    parts = {k: layouts(a)[kind] for k, a in arrays(batch).items() if k != "offsets"}
    before = pickle.dumps(parts)
    g = GMMBatch(np.array(OFFSETS, dtype=">i4"), **parts)
    same_bits(g, batch)
    assert pickle.dumps(parts) == before
    for array in arrays(g).values():  # one type for compiled code
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert array.flags.writeable
        assert array.dtype.isnative


def test_float32_stays_if_all_are_float32(batch: GMMBatch) -> None:
    single = {k: np.asarray(a, dtype=np.float32) for k, a in arrays(batch).items() if k != "offsets"}
    g = GMMBatch(OFFSETS, **single)
    assert {a.dtype for k, a in arrays(g).items() if k != "offsets"} == {np.dtype(np.float32)}
    assert g.mass.dtype == np.float32
    same_bits(GMMBatch(OFFSETS, **{k: a.astype(">f4") for k, a in single.items()}), g)
    for name in ("weights", "means", "scales"):
        mixed = GMMBatch(OFFSETS, **{**single, name: single[name].astype(np.float64)})
        assert {a.dtype for k, a in arrays(mixed).items() if k != "offsets"} == {np.dtype(np.float64)}


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.bool_, np.float16, np.longdouble])
def test_other_numbers_become_float64(kind: Any) -> None:
    g = GMMBatch([0, 1, 2], np.array([1, 0], dtype=kind), np.array([[1], [0]], dtype=kind), [[1], [1]])
    assert g.dtype == g.means.dtype == np.float64
    np.testing.assert_array_equal(g.weights, [1.0, 0.0])
    np.testing.assert_array_equal(g.means[1] - g.means[0], [-1.0])  # uint8 would wrap to 255


# Taking apart and joining


def test_a_batch_of_none(batch: GMMBatch) -> None:
    empty = GMMBatch([0], np.zeros(0), np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0))
    assert (len(empty), empty.n_dims, empty.mass.shape, empty.n_components.shape) == (0, 2, (0,), (0,))
    assert list(empty) == []
    same_bits(batch[:0], empty)
    same_bits(batch[[]], empty)
    same_bits(concat([empty, batch, empty]), batch)
    same_bits(concat([empty, empty]), empty)


@pytest.mark.parametrize("index", [[2, 0], slice(None, None, 2), [1, 1, 2], [True, False, True], [-1], np.array([1])])
def test_picking_several(batch: GMMBatch, index: Any) -> None:
    rows = np.arange(3)[index]
    same_bits(batch[index], concat([batch[int(row)] for row in rows]))


def test_picking_one(batch: GMMBatch) -> None:
    one = batch[-1]
    assert len(one) == 1
    np.testing.assert_array_equal(one.offsets, [0, 3])
    np.testing.assert_array_equal(one.weights, WEIGHTS[3:])
    np.testing.assert_array_equal(one.means, batch.means[3:])
    np.testing.assert_array_equal(one.noise_variances, [0.3])


@pytest.mark.parametrize("index", [3, -4, [0, 3], [True], [[0, 1]], None, 0.5, "a"])
def test_picking_what_is_not_there(batch: GMMBatch, index: Any) -> None:
    with pytest.raises(IndexError):
        batch[index]


def test_iteration_ends_and_joins_up(batch: GMMBatch) -> None:
    parts = list(batch)
    assert [len(p.weights) for p in parts] == [2, 1, 3]
    same_bits(concat(parts), batch)


def test_concat_refuses_what_does_not_join(batch: GMMBatch) -> None:
    flat = GMMBatch.from_list([([1.0], [0.0], [1.0])])
    with pytest.raises(ValueError, match=r"^batches: dimensions \[2, 1\], expected equal ones"):
        concat([batch, flat])
    with pytest.raises(ValueError, match=r"^batches: empty"):
        concat([])
    silent = dataclasses.replace(batch, noise_variances=None)
    with pytest.raises(ValueError, match=r"^batches: some carry noise_variances and some do not"):
        concat([batch, silent])


def test_nothing_can_be_assigned(batch: GMMBatch) -> None:
    for field in dataclasses.fields(batch):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(batch, field.name, None)


def test_parts_share_no_memory(batch: GMMBatch) -> None:
    for other in (batch[:], batch[0], concat([batch])):
        for name, array in arrays(other).items():
            assert not np.shares_memory(array, getattr(batch, name)), name


def test_pickle(batch: GMMBatch) -> None:
    same_bits(pickle.loads(pickle.dumps(batch)), batch)


@pytest.mark.usefixtures("without_cupy")
def test_devices(batch: GMMBatch) -> None:
    assert batch.to("cpu") is batch
    with pytest.raises(ValueError, match=r"^device: 'tpu', expected one of 'cpu', 'gpu'"):
        batch.to("tpu")
    with pytest.raises(BackendUnavailableError, match=r"^device='gpu': the GPU backend needs CuPy .*cuda12"):
        batch.to("gpu")
