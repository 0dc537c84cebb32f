"""The caller's stream: every launch goes there, on the emulator, and nothing is put on another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import drivers
import numpy as np
import pytest
import sources
from drivers import recorded

import maskerade_fast as mf

X, Y = np.linspace(0.0, 1.0, 12), np.sin(np.arange(12.0))


@pytest.fixture
def stream(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The caller's, beside which none may be made."""
    import cupy

    own = cupy.cuda.Stream(non_blocking=True)

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("a stream was made")

    monkeypatch.setattr(type(own), "__init__", refuse)
    return own


def assert_only(stream: Any, state: Any) -> None:
    """All launches and all else since the beginning of the test went to `stream`."""
    assert len(state.streams) == len(state.launches) > 0
    elsewhere = [name for name, own in zip(state.launches, state.streams, strict=True) if own is not stream]
    assert not elsewhere, f"launched on another stream: {sorted(set(elsewhere))}"
    assert state.busy == {stream}


@pytest.mark.parametrize("name", drivers.all_drivers())
def test_operations_launch_on_the_callers_stream(name: str, emulated: Any, recordings: dict[str, Any]) -> None:
    """Each operation of the backend in each form that launches other kernels."""
    recording = recorded(drivers.all_drivers()[name], emulated, recordings)
    elsewhere = {name for name, stream in recording.launches if stream is not recording.stream}
    assert not elsewhere, f"launched on another stream: {sorted(elsewhere)}"
    assert recording.busy == {recording.stream}


def test_distances_in_another_precision(cupy: Any, stream: Any, emulated: Any, rng: np.random.Generator) -> None:
    from maskerade_fast.backends.gpu import pairwise_distance, prepare_atoms

    with stream:
        arrays = cupy.asarray(rng.uniform(size=6)), cupy.asarray(rng.normal(size=(6, 2)))
        atoms = prepare_atoms(np.array([0, 2, 6]), *arrays)
        emulated.state.busy.clear()
        pairwise_distance(atoms, precision="mixed")
    assert_only(stream, emulated.state)


def test_drivers_call_every_operation_and_launch_every_kernel(emulated: Any, recordings: dict[str, Any]) -> None:
    from maskerade_fast.backends import gpu

    recorded_all = [recorded(driver, emulated, recordings) for driver in drivers.all_drivers().values()]
    launched = {name for recording in recorded_all for name, _ in recording.launches}
    shipped = {name for text in sources.texts().values() for name in sources.ENTRY.findall(text)}
    assert not shipped - launched
    assert not set(gpu.__all__) - {name for recording in recorded_all for name in recording.operations}


def test_runs_stay_on_the_callers_stream(stream: Any, emulated: Any) -> None:
    """From the first likelihood to the predictions."""
    with stream:
        post = mf.marginalise(X, Y, device="gpu", budget=30, max_components=2, nodes=32, seed=0)
        post.predict(X[:3])
        post.joint_log_density(X[:3], Y[:3])
    assert_only(stream, emulated.state)


ELSEWHERE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a launch": lambda cupy, kernel, x: kernel((1,), (1,), (x,), stream=cupy.cuda.Stream.null),
    "a copy to the host": lambda cupy, kernel, x: cupy.asnumpy(x, stream=cupy.cuda.Stream.null),
    "a copy by the array": lambda cupy, kernel, x: x.get(stream=cupy.cuda.Stream.null),
    "a copy from the host": lambda cupy, kernel, x: x.set(np.ones(4), stream=cupy.cuda.Stream.null),
    "a new array": lambda cupy, kernel, x: within(cupy, lambda: cupy.empty(3)),
    "a fill": lambda cupy, kernel, x: within(cupy, lambda: x.fill(0.0)),
    "an operator": lambda cupy, kernel, x: within(cupy, lambda: x.__iadd__(1.0)),
    "an assignment": lambda cupy, kernel, x: within(cupy, lambda: x.__setitem__(0, 2.0)),
}


def within(cupy: Any, work: Callable[[], Any]) -> None:
    """Do `work` on the null stream."""
    with cupy.cuda.Stream.null:
        work()


@pytest.mark.parametrize("what", ELSEWHERE)
def test_work_on_another_stream_is_seen(cupy: Any, what: str, stream: Any, emulated: Any) -> None:
    code = 'extern "C" __global__ void f(double* x) { x[0] = 1.0; }'
    kernel = cupy.RawModule(code=code).get_function("f")
    with stream:
        x = cupy.zeros(4)
        emulated.state.busy.clear()
        kernel((1,), (1,), (x,))
        assert_only(stream, emulated.state)
        ELSEWHERE[what](cupy, kernel, x)
    with pytest.raises(AssertionError, match=r"launched on another stream: \['f'\]|Stream"):
        assert_only(stream, emulated.state)


def test_keywords_of_a_launch(cupy: Any, emulated: Any) -> None:
    """As in CuPy: shared_mem and stream; whether groups of blocks cooperate is the kernel's own affair."""
    code = 'extern "C" __global__ void f(double* x) { x[0] = 1.0; }'
    kernel = cupy.RawModule(code=code).get_function("f")
    x = cupy.zeros(1)
    kernel((1,), (1,), (x,), shared_mem=8, stream=None)
    for options in ({"streams": None}, {"enable_cooperative_groups": True}):
        with pytest.raises(TypeError):
            kernel((1,), (1,), (x,), **options)
    with pytest.raises(AttributeError, match="ptr"):
        kernel((1,), (1,), (x,), stream=0)
