"""The caller's stream: every launch goes there, on the emulator, and nothing is put on another one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast import backends

X, Y = np.linspace(0.0, 1.0, 12), np.sin(np.arange(12.0))


@pytest.fixture
def launches(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Every launch from now on: entry and the stream that was current."""
    import cupy

    from maskerade_fast.backends.gpu import _loader

    found: list[tuple[str, Any]] = []
    launch = _loader.Kernel.__call__

    def recorded(kernel: Any, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
        found.append((kernel.name, cupy.cuda.get_current_stream()))
        launch(kernel, grid, block, args, shared_mem)

    monkeypatch.setattr(_loader.Kernel, "__call__", recorded)
    return found


@pytest.fixture
def stream(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The caller's, beside which none may be made."""
    import cupy

    own = cupy.cuda.Stream(non_blocking=True)

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("a stream was made")

    monkeypatch.setattr(type(own), "__init__", refuse)
    return own


def test_doors_launch_on_the_callers_stream(
    stream: Any, launches: list[tuple[str, Any]], rng: np.random.Generator
) -> None:
    import cupy

    n = 5
    g = mf.GMMBatch([0, 2, 3, n], rng.uniform(0.2, 1, n), rng.uniform(0, 3, (n, 1)), rng.uniform(0.1, 1, (n, 1)))
    g = g.to("gpu")
    x, y = (backends.to_device(a, "gpu") for a in (X, Y))
    with stream:
        distance = mf.energy_distance(g, g, metric=mf.Metric(mass_correction=True))
        mf.gram(g, x)
        for structure in ("dense", "toeplitz"):
            mf.log_likelihood(g, x, y, 0.1, grad=True, structure=structure)
            mf.predict_gp(g, x, y, 0.1, x[:2], structure=structure)
        assert cupy.cuda.get_current_stream() is stream
    assert backends.is_cupy(distance)
    assert len({name for name, _ in launches}) > 8
    assert {own for _, own in launches} == {stream}


def test_runs_stay_on_the_callers_stream(stream: Any, launches: list[tuple[str, Any]]) -> None:
    """From the first likelihood to the predictions."""
    with stream:
        post = mf.marginalise(X, Y, device="gpu", budget=30, max_components=2, nodes=32, seed=0)
        post.predict(X[:3])
        post.joint_log_density(X[:3], Y[:3])
    assert {own for _, own in launches} == {stream}
