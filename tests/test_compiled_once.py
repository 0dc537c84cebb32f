"""No layout of an argument makes Numba compile again: every loop keeps the signatures that plain arrays gave it."""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import maskerade_fast as mf
from maskerade_fast.backends import cpu
from maskerade_fast.hyperkernel import covariance_from_distance, prepare, squared_distance
from maskerade_fast.student import StudentMixture

Array = np.ndarray
N, M, H = 9, 3, 4  # eighths are exact in float32 too


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


def operations(f: Callable[[Array], Any], shared: Callable[[Any], Any] = lambda value: value) -> None:
    """Call every public operation, its arrays in the layout of `f` and its objects as `shared` gives them."""
    rng = np.random.default_rng(5)
    X1, X2 = np.linspace(0.0, 1.0, N)[:, None], rng.uniform(size=(N, 2))
    y = np.sin(9 * X1[:, 0])
    for X in (X1, X2):
        D = X.shape[1]
        offsets = np.array([0, 1, 3, 6, 7])
        J = int(offsets[-1])
        arrays = (rng.uniform(0.5, 1.0, J), rng.uniform(size=(J, D)), rng.uniform(0.5, 1.0, (J, D)))
        g = shared(mf.GMMBatch(f(offsets), *map(f, arrays), noise_variances=f(np.full(H, 0.1))))
        table = f(np.full((H, N), 0.1))
        basis, basis_new = f(np.ones((N, 1))), f(np.ones((M, 1)))
        for phase in ("joint", "per_axis"):
            mf.gram(g, f(X), phase=phase)
            mf.gram(g, f(X), f(X[:M]), phase=phase)
            mf.log_likelihood(g, f(X), f(y), grad=True, phase=phase)
            mf.predict_gp(g, f(X), f(y), None, f(X[:M]), phase=phase)
        mf.gram(g, f(X), noise_variance=table)
        mf.log_likelihood(g, f(X), f(y), table, basis=basis, jitter=np.float32(0.5), grad=True)
        mf.predict_gp(g, f(X), f(y), table, f(X[:M]), basis=basis, basis_new=basis_new, covariance="full")
        distances(f, g, shared)
    g1 = shared(mf.GMMBatch.from_list([(f(np.ones(2)), f(np.ones(2)), f(np.ones(2)))]))
    for basis, basis_new in ((None, None), (f(np.ones((N, 1))), f(np.ones((M, 1))))):
        options = {"structure": "toeplitz", "basis": basis}
        mf.log_likelihood(g1, f(X1), f(y), f(np.array([0.1])), grad=True, **options)
        for kind in ("diagonal", "full"):
            mf.predict_gp(g1, f(X1), f(y), 0.1, f(X1[:M]), covariance=kind, basis_new=basis_new, **options)
    long = np.linspace(0.0, 1.0, 520)
    mf.log_likelihood(g1, f(long), f(long), 0.1, grad=True, structure="dense")
    cpu.cholesky(np.asarray(f(np.eye(3)[None])), 0.5)
    predictions(f, shared)
    latents(f, shared)


def distances(f: Callable[[Array], Any], g: Any, shared: Callable[[Any], Any]) -> None:
    cotangent = f(np.ones((H, H)))
    D = g.n_dims
    metric = mf.Metric(frequency_scale=f(np.ones(D)), scale_scale=f(np.array(2.0)), noise_weight=0.1, mass_weight=0.1)
    plain, reflected = mf.Metric(), mf.Metric(reflect=True, mass_correction=True)
    for each in (plain, reflected):
        mf.energy_distance(g, metric=each)
        mf.energy_distance(g, g, metric=each)
        mf.energy_distance_vjp(g, g, cotangent, metric=each)
        mf.gaussian_mmd2(g, g, bandwidth=1, metric=each)
        mf.gaussian_mmd2_vjp(g, None, cotangent, bandwidth=np.float32(1.0), metric=each)
    prepared = shared(prepare(g, metric=metric))
    for power in (1, 2.0, True, np.int32(2)):
        options: dict[str, Any] = {"outputscale": 2, "lengthscale": np.float32(1.0), "power": power}
        mf.hyperkernel(g, metric=metric, **options)
        mf.hyperkernel(prepared, prepared, **options)
        mf.hyperkernel_vjp(g, None, cotangent, metric=metric, **options)
        mf.hyperkernel_matvec(prepared, prepared, f(np.ones((H, 2))), **options)
        mf.hyperkernel_matvec(g, None, f(np.ones(H)), metric=metric, **options)
        covariance_from_distance(f(np.ones((2, 2))), **options)
    squared_distance(prepared, g)
    prior = mf.Prior(f(np.ones(D)), f(np.zeros(D)), f(np.ones(D)), noise_variance=0.1, mass=1.0)
    values = f(np.array([-1.0, -2.0, -1.5, -3.0]))
    surrogate = shared(mf.Surrogate.fit(g, values, metric=metric, power=1.0, lengthscale=1.0))
    evidence = shared(mf.integrate(surrogate, g, f(np.full(H, 0.25))))
    surrogate.mean(g)
    surrogate.covariance(g)
    surrogate.extend(g, values).refit()
    mf.mutual_information(surrogate, evidence, g)
    mf.mutual_information(surrogate, evidence, g, batch=True)
    mf.uncertainty(surrogate, g)
    prior.log_density(shared(prior.sample(2, 0)).mixtures)


def predictions(f: Callable[[Array], Any], shared: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(1)
    L, means, variances = np.tril(np.ones((H, H))), rng.normal(size=(H, M)), np.ones((H, M))
    W = L @ L.T
    for factor in (None, f(L)):
        p = shared(mf.combine_gaussians(f(W), f(means), f(variances), factor=factor))
        p.log_density(f(np.zeros(M)))
        p.cdf(f(np.zeros((2, M))))
        p.cdf(0.0)
        p.quantile(f(np.array([0.1, 0.5])))
        p.sample(2, 0)
        p.sample(70, 0)
        p.scaled(1.0, 2.0).quantile(0.5)
        mf.combine_gaussians_joint(f(W), f(means), f(np.tile(np.eye(M), (H, 1, 1))), f(np.zeros(M)), factor=factor)


def latents(f: Callable[[Array], Any], shared: Callable[[Any], Any]) -> None:
    arrays = (np.full(2, 0.25), np.zeros((2, 2)), np.stack([np.eye(2), 2 * np.eye(2)]))
    mixture = shared(StudentMixture(*map(np.asarray, map(f, arrays)), 0.5))
    mixture.log_ratio(np.asarray(f(np.ones((3, 2)))))
    mixture.log_ratio(np.asarray(f(np.ones((3, 2)))), left_out=np.asarray(f(np.array([0, -1]))))


@pytest.fixture(scope="module")
def plain() -> dict[str, int]:
    operations(LAYOUTS["plain"])
    found = signatures()
    assert found["maskerade_fast.backends.cpu.gram._gram_items"] == 1
    return found


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "plain"])
def test_no_layout_compiles_again(layout: str, plain: dict[str, int]) -> None:
    operations(LAYOUTS[layout])
    assert signatures() == plain


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
    found = signatures()
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
    assert signatures() == found


def test_the_counter_sees_a_second_version() -> None:
    from maskerade_fast.backends.cpu._math import sum_of

    values = np.ones(3)
    sum_of(values, 3)
    before = signatures()["maskerade_fast.backends.cpu._math.sum_of"]
    sum_of(np.ones((3, 2))[:, 0], 3)
    assert signatures()["maskerade_fast.backends.cpu._math.sum_of"] == before + 1
