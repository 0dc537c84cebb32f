"""No argument allocates without bound or starts what has no end: each is refused at once, with bytes and times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from comparisons import one_thread

import maskerade_fast as mf
from maskerade_fast import _memory
from maskerade_fast.adaptive.mixture_measure import MixtureMeasure
from maskerade_fast.quadrature.evidence import integral_seconds
from maskerade_fast.run.budget import Limits, check_room

X = np.linspace(0.0, 1.0, 14) ** 1.1
Y = np.sin(9 * X)
PRIOR = mf.Prior.from_data(X)
TWO = mf.GMMBatch.from_list([([1.0], [0.5], [0.1]), ([1.0], [1.5], [0.1])], [0.1, 0.2])


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every refusal takes less than two seconds, on a machine with 8 GB free."""
    monkeypatch.setattr(_memory, "free_bytes", lambda: 8 * 10**9)
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < 2.0


def fit(**options: Any) -> mf.Posterior:
    return mf.marginalise(X, Y, **{"budget": 30, "device": "cpu", "seed": 0, **options})


TIMED = {"budget": None, "time_budget": 9.0}
SIZES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"nodes": 10**9}, ValueError, r"nodes: 1000000000, of some 3\d+ components, need about \d+ bytes and \d+ days"),
    ({"nodes": 10**6}, ValueError, r"nodes: 1000000, .* and 45 min for one integral on one core; expected at most"),
    ({"nodes": 10**30}, ValueError, "nodes: 10{30}, "),
    ({**TIMED, "initial": 10**9}, MemoryError, r"initial: 1000000000 needs about \d+ bytes"),
    ({"budget": 10**12, "initial": 10**9}, MemoryError, r"initial: 1000000000 needs about \d+ bytes, more than"),
    ({**TIMED, "batch_size": 10**9}, MemoryError, r"batch_size: 1000000000 needs about"),
    ({"budget": 10**12}, MemoryError, r"budget: 1000000000000 needs about \d+ bytes, more than 4000000000"),
    ({"max_components": 10**9}, ValueError, "max_components: 1000000000, expected at most 21201"),
]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("proposals", ["laplace", "prior"])
@pytest.mark.parametrize(("options", "error", "words"), SIZES)
def test_sizes_of_a_run(options: dict[str, Any], error: type[Exception], words: str, proposals: str) -> None:
    """The paper's surrogate keeps every evaluation: a large budget may already lack room beside the nodes."""
    if proposals == "prior" and options.get("budget"):
        words = f"{words}|nodes: 4096 needs about"
    with pytest.raises(error, match=words):
        fit(proposals=proposals, **options)


def test_memory_bounds_nodes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "free_bytes", lambda: 10**8)
    with pytest.raises(MemoryError, match=r"nodes: 100000 needs about \d+ bytes, more than 50000000, half of the free"):
        fit(nodes=100_000)


def test_a_budget_beside_a_time_may_stand_for_no_limit() -> None:
    post = fit(budget=10**15, time_budget=0.5, nodes=32, max_components=1)
    assert post.history[-1].cost < 10**5


def test_sizes_that_are_common_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "free_bytes", lambda: 32 * 10**9)
    for nodes in (1, 4096, 2**18):
        check_room(Limits.checked(500, None, 100, 20), nodes, PRIOR, "laplace", "cpu")
    check_room(Limits.checked(10**6, None, 100_000, 1000), 4096, PRIOR, "laplace", "cpu")
    check_room(Limits.checked(None, 60.0, 100_000, 20), 4096, PRIOR, "prior", "cpu")
    check_room(Limits.checked(500, None, 100, 20), 2**20, PRIOR, "laplace", "gpu")


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: PRIOR.sample(10**9, 0), MemoryError, r"m: 5368709120 draws in all needs about \d+ bytes, more"),
        (lambda: PRIOR.sample([1, 1, 1, 1, 10**9], 0), MemoryError, "m: 1073741828 draws in all needs about"),
        (lambda: PRIOR.sample(10**30, 0), ValueError, "m: 10{30} draws of a size, expected at most 1073741824"),
        (lambda: mf.PriorMeasure(PRIOR).random_draws(10**9, 0), MemoryError, "draws in all needs about"),
        (lambda: mf.PriorMeasure(PRIOR).nodes(10**9, 0), MemoryError, "draws in all needs about"),
        (lambda: MixtureMeasure.of_prior(PRIOR).net(10**9, 0), MemoryError, "draws in all needs about"),
        (
            lambda: mf.combine_gaussians(np.eye(1), np.zeros((1, 2)), np.ones((1, 2))).sample(10**9, 0),
            MemoryError,
            r"k: 1000000000 draws of 2 points needs about 48000000000 bytes",
        ),
    ],
)
def test_draws(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def batch(count: int, size: int) -> mf.GMMBatch:
    ones = np.ones(count * size)
    return mf.GMMBatch.trusted(np.arange(0, count * size + 1, size), ones, ones[:, None], ones[:, None], ones[:count])


def test_nodes_of_an_integral(monkeypatch: pytest.MonkeyPatch) -> None:
    surrogate = mf.Surrogate.fit(TWO, [-1.0, -2.0])
    with pytest.raises(ValueError, match=r"1000000 of 2000000 components need about \d+ bytes and 1200 s on one"):
        mf.integrate(surrogate, batch(1_000_000, 2), np.ones(1_000_000))
    monkeypatch.setattr(_memory, "_SMALL", 0)
    monkeypatch.setattr(_memory, "free_bytes", lambda: 10**8)
    with pytest.raises(MemoryError, match=r"nodes: 1400000 beside 2 observations needs about 67200000 bytes"):
        mf.integrate(surrogate, batch(1_400_000, 1), np.ones(1_400_000))


@pytest.mark.usefixtures("at_once")
def test_observations_of_a_surrogate() -> None:
    with pytest.raises(MemoryError, match=r"mixtures: 100000 of them needs about 240000000000 bytes"):
        mf.Surrogate.fit(batch(100_000, 1), np.zeros(100_000))
    with pytest.raises(MemoryError, match="mixtures: as many, with those before, needs about"):
        mf.Surrogate.fit(batch(1, 1), [-1.0]).extend(batch(100_000, 1), np.zeros(100_000))


@pytest.mark.slow
def test_an_integral_takes_about_what_is_said() -> None:
    """Within a factor of five: the figure is for one core of some machine."""
    metric = mf.Metric(mass_weight=1.0)
    surrogate, count = mf.Surrogate.fit(TWO, [-1.0, -2.0], metric=metric), 6000
    drawn = np.random.default_rng(0).uniform(size=(3, 3 * count))
    offsets = np.arange(0, 3 * count + 1, 3)
    nodes = mf.GMMBatch.trusted(offsets, drawn[0], drawn[1][:, None], drawn[2][:, None], np.ones(count))
    times = []
    with one_thread():
        for _ in range(3):
            start = time.perf_counter()
            mf.integrate(surrogate, nodes, np.full(count, 1.0 / count))
            times.append(time.perf_counter() - start)
    assert 0.2 < min(times) / integral_seconds(3 * count) < 5.0
