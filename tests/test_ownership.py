"""Containers own their arrays (C45): nothing that a caller does to its arrays changes them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.backends import to_device, to_host
from maskerade_fast.model.latent import Latent, LatentMap

Array = np.ndarray


def from_list(weights: Array, means: Array, scales: Array, noise: Array) -> mf.GMMBatch:
    return mf.GMMBatch.from_list([(weights, means, scales)], noise)


def surrogate(values: Array) -> mf.Surrogate:
    return mf.Surrogate.fit(mf.GMMBatch.from_list([([1.0], [0.5], [0.1]), ([1.0], [1.5], [0.1])]), values)


def evidence(weights: Array) -> mf.Evidence:
    fitted = surrogate(np.array([-1.0, -2.0]))
    return mf.integrate(fitted, fitted.mixtures, weights)


def draws(weights: Array, sizes: Array, offsets: Array, values: Array) -> mf.Draws:
    return mf.Draws(mf.GMMBatch.from_list([([1.0], [0.5], [0.1])]), weights, Latent(sizes, offsets, values))


TWO = np.array([[1.0], [2.0]])


BUILT: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "GMMBatch": (mf.GMMBatch, (np.array([0, 2]), np.ones(2), TWO, TWO, np.ones(1))),
    "GMMBatch.from_list": (from_list, (np.ones(2), TWO, TWO, np.ones(1))),
    "GMMGradient": (mf.GMMGradient, (np.ones(2), TWO, TWO, np.ones(1))),
    "Prior": (mf.Prior, (np.ones(1), np.zeros(1), np.ones(1), np.array([0.5, 0.5]))),
    "LatentMap": (
        lambda sd, mean, spread: LatentMap(sd, mean, spread, 1.0, True, 0.1, 1.0),
        (np.ones(1), np.zeros(1), np.ones(1)),
    ),
    "Latent": (Latent, (np.array([1]), np.array([0, 2]), np.zeros(2))),
    "Draws": (draws, (np.ones(1), np.array([1]), np.array([0, 2]), np.zeros(2))),
    "Metric": (lambda f, s: mf.Metric(frequency_scale=f, scale_scale=s), (np.ones(1), np.ones(1))),
    "Surrogate": (surrogate, (np.array([-1.0, -2.0]),)),
    "Evidence": (evidence, (np.array([0.5, 0.5]),)),
    "Prediction": (mf.combine_gaussians, (np.eye(2), np.zeros((2, 3)), np.ones((2, 3)))),
    "JointDensity": (mf.combine_gaussians_joint, (np.eye(2), TWO, np.ones((2, 1, 1)), np.zeros(1))),
}


def arrays_of(value: Any, seen: set[int] | None = None) -> list[Any]:
    """Copies of all arrays in an object and in those that it holds, on the host."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return []
    seen.add(id(value))
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return [to_host(value).copy()]
    inner = value if isinstance(value, tuple | list) else vars(value).values() if hasattr(value, "__dict__") else ()
    return [array for part in inner for array in arrays_of(part, seen)]


def spoil(array: Any) -> None:
    array[...] = 77 if array.dtype.kind == "i" else -5.0


@pytest.mark.parametrize("name", BUILT)
def test_c45_a_container_does_not_change_with_the_arrays_it_was_built_from(name: str) -> None:
    build, arrays = BUILT[name]
    arrays = tuple(a.copy() for a in arrays)
    container = build(*arrays)
    before = arrays_of(container)
    for array in arrays:
        spoil(array)
    after = arrays_of(container)
    assert len(before) == len(after) > 0 or name == "Metric"
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


class Lender:
    """An object that hands out its own memory."""

    def __init__(self, data: Array) -> None:
        self.data = data

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.data


@pytest.mark.parametrize(
    "view", [lambda a: a[:], lambda a: a.view(type("Labelled", (np.ndarray,), {})), memoryview, Lender]
)
def test_c45_nor_with_what_only_looks_at_an_array(view: Callable[[Array], Any]) -> None:
    """Views, subclasses, the buffer protocol and objects, through which other libraries lend their memory."""
    w = np.ones(2)
    g = mf.GMMBatch(np.array([0, 2]), view(w), np.ones((2, 1)), np.ones((2, 1)))
    spoil(w)
    assert g.weights.tolist() == [1.0, 1.0]
    assert type(g.weights) is np.ndarray


def test_c45_on_the_card_too(emulated: Any) -> None:
    placed = [to_device(a.copy(), "gpu") for a in (np.ones(2), TWO, TWO, np.ones(1))]
    g = mf.GMMBatch(np.array([0, 2]), *placed)
    gradient = mf.GMMGradient(*placed)
    listed = mf.GMMBatch.from_list([tuple(placed[:3])], placed[3])
    before = arrays_of((g, listed, gradient))
    for array in placed:
        array[...] = -5.0
    for a, b in zip(before, arrays_of((g, listed, gradient)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_c45_pure_functions_take_arrays_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only containers copy: a likelihood hands the caller's memory to the backend."""
    from maskerade_fast.backends import cpu

    seen: dict[str, Array] = {}
    real = cpu.log_likelihood

    def watched(*args: Any, **options: Any) -> Any:
        seen.update(X=args[4], y=args[5], noise=args[6])
        return real(*args, **options)

    monkeypatch.setattr(cpu, "log_likelihood", watched)
    g = mf.GMMBatch.from_list([([1.0], [0.5], [0.1])])
    X, y, noise = np.arange(3.0)[:, None], np.zeros(3), np.full((1, 3), 0.1)
    mf.log_likelihood(g, X, y, noise)
    assert all(np.shares_memory(seen[name], own) for name, own in (("X", X), ("y", y), ("noise", noise)))


def test_c45_own_arrays_stay_writable_through_copies_and_pickles() -> None:
    """Read-only ones would be copied by every operation, and DLPack would not lend them."""
    g = mf.GMMBatch([0, 2], np.ones(2), np.ones((2, 1)), np.ones((2, 1)), [0.1])
    for each in (g, copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        for field in fields(each):
            assert getattr(each, field.name).flags.carray
    assert np.from_dlpack(g.weights).tolist() == [1.0, 1.0]


def test_c45_results_that_users_build_own_their_arrays() -> None:
    """Those of the package's own functions too are nobody else's; built by hand, they are copies."""
    x = np.linspace(0.0, 1.0, 9)
    post = mf.marginalise(x, np.sin(9.0 * x), budget=12, max_components=1, seed=0)
    g = post.mixtures
    surrogate = mf.Surrogate.fit(g[:3], [-1.0, -2.0, -3.0], metric=mf.Metric(mass_weight=1.0, noise_weight=1.0))
    evidence = mf.integrate(surrogate, g, np.full(len(g), 1.0 / len(g)))
    likelihood, prediction = mf.log_likelihood(g, x, x), mf.predict_gp(g, x, x, None, x[:2])
    for result in (post, post.predict(x), surrogate, evidence, likelihood, prediction):
        values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        again = type(result)(**values)
        arrays = [name for name, value in values.items() if isinstance(value, np.ndarray) and value.size]
        assert arrays
        for name in arrays:
            assert not np.shares_memory(getattr(again, name), values[name]), (type(result).__name__, name)
            np.testing.assert_array_equal(getattr(again, name), values[name])
