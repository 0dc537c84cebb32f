"""Compiled loops: no layout of an argument makes Numba compile again, and calls that would crash are refused."""

from __future__ import annotations

import importlib
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from operations import M, assert_same, operations

import maskerade_fast as mf
from maskerade_fast.backends import cpu

Array = np.ndarray


def signatures() -> dict[str, int]:
    """Compiled versions of every loop of the package."""
    loops = {
        f"{name}.{key}": value
        for name, module in list(sys.modules.items())
        if name.startswith("maskerade_fast")
        for key, value in vars(module).items()
        if isinstance(value, Dispatcher)
    }
    return {name: len(loop.signatures) for name, loop in loops.items()}


def read_only(a: Array) -> Array:
    a.setflags(write=False)
    return a


def strided(a: Array) -> Array:
    return np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a


def unaligned(a: Array) -> Array:
    room = np.empty(a.nbytes + 1, dtype=np.uint8)[1:]
    out = np.frombuffer(room.data, dtype=a.dtype).reshape(a.shape)
    out[...] = a
    return out


def mapped(a: Array) -> Array:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "array.npy"
        np.save(path, a)
        return np.load(path, mmap_mode="r")


def through_buffers(value: Any) -> Any:
    """What a worker process gets where arrays are shared: joblib's and Ray's are read-only."""
    buffers: list[Any] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(b.raw()) for b in buffers])


LAYOUTS: dict[str, Callable[[Array], Any]] = {
    "plain": lambda a: a,
    "read-only": read_only,
    "fortran": lambda a: a.copy(order="F"),
    "fortran read-only": lambda a: read_only(a.copy(order="F")),
    "strided": strided,
    "reversed": lambda a: a[..., ::-1].copy()[..., ::-1] if a.ndim else a,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "unaligned": unaligned,
    "list": lambda a: a.tolist(),
    "float32": lambda a: a.astype(np.float32) if a.dtype.kind == "f" else a.astype(np.int32),
    "float32 read-only": lambda a: read_only(a.astype(np.float32) if a.dtype.kind == "f" else a),
    "memory-mapped": mapped,
    "subclass": lambda a: a.view(type("Labelled", (np.ndarray,), {})),
}


@pytest.fixture(scope="module")
def plain() -> dict[str, int]:
    operations(LAYOUTS["plain"])
    counts = signatures()
    assert counts["maskerade_fast.backends.cpu._gram_loops.gram_items"] == 1
    return counts


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "plain"])
def test_no_layout_compiles_again(layout: str, plain: dict[str, int]) -> None:
    results = operations(LAYOUTS[layout])
    assert signatures() == plain
    if "float32" not in layout:
        assert_same(results, operations())


def test_objects_from_shared_memory_compile_nothing(plain: dict[str, int]) -> None:
    g = through_buffers(mf.GMMBatch.from_list([([1.0], [0.0], [1.0])]))
    assert not g.weights.flags.writeable
    operations(LAYOUTS["plain"], through_buffers)
    assert signatures() == plain


def test_a_posterior_from_shared_memory_predicts_with_the_loops_at_hand(tmp_path: Path, plain: dict[str, int]) -> None:
    x = np.linspace(0.0, 1.0, 14) ** 1.1
    post = mf.marginalise(x, np.sin(9 * x), budget=30, nodes=32, max_components=2, seed=0, device="cpu")
    before = post.predict(x[:M], observed=True).mean
    interval = post.interval(x[:M])
    post.joint_log_density(x[:M], np.zeros(M))
    counts = signatures()
    path = tmp_path / "x.npy"
    np.save(path, x)
    new = np.load(path, mmap_mode="r")[:M]
    other = through_buffers(post)
    assert not other.pair_weights.flags.writeable
    np.testing.assert_array_equal(other.predict(new, observed=True).mean, before)
    np.testing.assert_array_equal(other.interval(new), interval)
    other.joint_log_density(new, np.zeros(M))
    other.kernel(new)
    other.spectral_density(new)
    assert signatures() == counts


def test_the_counter_sees_a_second_version() -> None:
    from maskerade_fast.backends.cpu._distance_loops import covariance

    covariance(1, 1.0, -1.0, 3, np.ones(3))
    before = signatures()["maskerade_fast.backends.cpu._distance_loops.covariance"]
    covariance(1, 1.0, -1.0, 3, np.ones((3, 2))[:, 0])
    assert signatures()["maskerade_fast.backends.cpu._distance_loops.covariance"] == before + 1


def test_inner_functions_refuse_calls_from_python() -> None:
    from maskerade_fast.backends.cpu import _gram_loops, _math, _schur

    for function, arguments in (
        (_math.exp_neg, (-1.0,)),
        (_math.dot, (np.ones(2), np.ones(2), 2)),
        (_schur.eliminate, (0.5, 2, np.ones(2), np.ones(2))),
        (_gram_loops.fill_tables, (0,)),
    ):
        with pytest.raises(TypeError, match="no wrapper for Python"):
            function(*arguments)


def test_every_loop_without_a_wrapper_is_guarded() -> None:
    """A call of one from Python would end the process."""
    from numba.core.dispatcher import Dispatcher

    from maskerade_fast.backends.cpu._jit import _Inner

    seen = 0
    for path in sorted(Path(cpu.__file__ or "").parent.glob("*.py")):
        module = importlib.import_module(f"maskerade_fast.backends.cpu.{path.stem}")
        for name, value in vars(module).items():
            if isinstance(value, Dispatcher):
                bare = bool(value.targetoptions.get("no_cpython_wrapper"))
                assert isinstance(value, _Inner) == bare, name
                seen += bare
    assert seen > 20
