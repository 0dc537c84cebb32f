"""The stand-in for cupy keeps the rules by which code for NumPy fails on a card."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal


def test_nothing_crosses_the_bus_unasked(cupy: Any) -> None:
    a, host = cupy.arange(3.0), np.arange(3.0)
    for mix in (
        lambda: np.asarray(a),
        lambda: np.array(a),
        lambda: a + host,
        lambda: host * a,
        lambda: cupy.concatenate([a, host]),
        lambda: cupy.maximum(a, host),
        lambda: a[host.astype(int)],
    ):
        with pytest.raises(TypeError):
            mix()
    with pytest.raises(ValueError, match="non-scalar"):
        a[:] = host
    assert_array_equal(a.get(), host)
    assert_array_equal(cupy.asnumpy(cupy.asarray(host)), host)


def test_type_and_module(cupy: Any) -> None:
    from maskerade_fast.backends import array_namespace, get_backend, is_cupy, to_host

    a = cupy.ones((2, 3), np.float32)
    assert is_cupy(a)
    assert array_namespace(a) is cupy
    backend: Any = get_backend(a)
    assert backend.__name__ == "maskerade_fast.backends.gpu"
    assert not isinstance(a, np.ndarray)
    assert (a.shape, a.ndim, a.size, a.nbytes, a.dtype, len(a)) == ((2, 3), 2, 6, 24, np.float32, 2)
    assert_array_equal(to_host(a), np.ones((2, 3)))


def test_reductions_stay_on_the_device(cupy: Any) -> None:
    a = cupy.arange(6.0).reshape(2, 3)
    for value in (a.sum(), cupy.max(a), a[1, 2], np.sum(a), (a > 3).any()):
        assert isinstance(value, cupy.ndarray)
        assert value.shape == ()
    assert float(a.sum()) == 15.0
    assert bool((a > 4).any())
    assert int(a[1, 2]) == 5
    assert range(10)[cupy.asarray(3)] == 3
    with pytest.raises(TypeError):
        range(10)[a[1, 2]]


def test_views_share_memory(cupy: Any) -> None:
    a = cupy.zeros((3, 4))
    a[1:, 2] = 5.0
    b = a.T[2]
    b += 1
    cupy.add(a, 1.0, out=a)
    assert_array_equal(a.get()[:, 2], [2.0, 7.0, 7.0])
    assert a.copy().data.ptr != a.data.ptr == a[:1].data.ptr


def test_new_memory_is_garbage(cupy: Any) -> None:
    a = cupy.arange(3.0)
    assert all(np.isnan(x.get()).all() for x in (cupy.empty(3), cupy.empty_like(a), cupy.ndarray(3)))
    assert (cupy.empty(3, np.int32).get() == -1).all()


@pytest.mark.parametrize("dtype", [object, "U3", ">f8", "M8[s]"])
def test_dtypes_that_a_card_does_not_have(cupy: Any, dtype: Any) -> None:
    with pytest.raises(ValueError, match="Unsupported"):
        cupy.asarray(np.zeros(2, dtype))


def test_unknown_names_say_what_to_do(cupy: Any) -> None:
    for missing in (lambda: cupy.no_such, lambda: cupy.cuda.no_such, lambda: cupy.ones(1).no_such):
        with pytest.raises(AttributeError, match="add it to"):
            missing()


def test_devices(cupy: Any, emulated: Any) -> None:
    emulated.state.devices.append(emulated.FakeDevice(capability=75))
    here = cupy.ones(3)
    with cupy.cuda.Device(1):
        there = cupy.ones(3)
        assert there.device == cupy.cuda.Device(1)
        assert cupy.cuda.Device().compute_capability == "75"
        with pytest.raises(ValueError, match="Array device must be same"):
            here + 1
    assert cupy.cuda.runtime.getDevice() == 0
    with pytest.raises(ValueError, match="Array device must be same"):
        here + there
    with pytest.raises(emulated.CUDARuntimeError):
        cupy.cuda.Device(2).use()


def test_the_pool_counts_what_lives(cupy: Any, emulated: Any) -> None:
    pool = cupy.get_default_memory_pool()
    gc.collect()
    before = pool.used_bytes()
    a = cupy.zeros(1000)
    view = a[5:]
    assert pool.used_bytes() == before + 8192
    del a
    assert pool.used_bytes() == before + 8192
    del view
    assert pool.used_bytes() == before
    assert pool.total_bytes() >= before + 8192
    pool.free_all_blocks()
    assert pool.total_bytes() == before
    pool.set_limit(size=before + 4096)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="8,192 bytes"):
        cupy.zeros(1000)
    pool.set_limit(size=0)


def test_linear_algebra(cupy: Any, rng: np.random.Generator) -> None:
    import cupyx
    from cupyx.scipy.linalg import solve_triangular

    roots = rng.normal(size=(2, 4, 4))
    matrices = roots @ roots.transpose(0, 2, 1) + np.eye(4)
    L = cupy.linalg.cholesky(cupy.asarray(matrices))
    assert_allclose(L.get(), np.linalg.cholesky(matrices))
    b = cupy.asarray(rng.normal(size=(2, 4, 3)))
    assert_allclose((L @ solve_triangular(L, b, lower=True)).get(), b.get(), atol=1e-12)
    matrices[1] *= -1.0
    factors = cupy.linalg.cholesky(cupy.asarray(matrices)).get()
    assert np.isfinite(factors[0]).all()
    assert np.isnan(factors[1]).all()
    with cupyx.errstate(linalg="raise"), pytest.raises(np.linalg.LinAlgError):
        cupy.linalg.cholesky(cupy.asarray(matrices))


def test_streams_and_events(cupy: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        assert cupy.cuda.get_current_stream() is stream
        start, end = stream.record(), stream.record()
    assert cupy.cuda.get_current_stream() is cupy.cuda.Stream.null
    assert cupy.cuda.get_elapsed_time(start, end) >= 0.0


def test_floating_point_warnings_stay_silent(cupy: Any) -> None:
    zero = cupy.zeros(2)
    assert np.isnan((zero / zero).get()).all()
    assert np.isinf(cupy.log(zero).get()).all()


def test_the_fixture_leaves_nothing_behind() -> None:
    loaded = sys.modules.get("cupy")
    assert getattr(loaded, "__version__", "") != "0.0.emulated"
    assert getattr(sys.modules.get("maskerade_fast.backends"), "gpu", None) is None or loaded is not None
