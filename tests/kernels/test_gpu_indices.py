"""Places beyond 2^31 numbers of an array: kernels on sparse memory, launched with the few blocks that reach so far.

An index that overflowed 32 bits would read zeros, or leave the result where nobody looks, or end the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulate
import numpy as np
import oracle
import pytest
from gpu_calls import assert_all_equal
from numpy.testing import assert_allclose, assert_array_equal

FAR = 2**31
WINDOW = 32  # as in kernels/distances.cu

Sparse = Callable[..., Any]


@pytest.fixture
def sparse(emulated: Any, request: pytest.FixtureRequest) -> Sparse:
    """Arrays of zeros, of which only what is written takes memory."""
    if request.config.getoption("--card"):
        pytest.skip("sparse memory is the emulator's alone")
    return emulated.sparse


def test_panels(cupy: Any, sparse: Sparse, rng: np.random.Generator) -> None:
    """The last panel of each of two matrices, its one row below, and their values: the last of 17 10^9 bytes each."""
    from maskerade_fast.backends.gpu import _blocked

    n, last = 46416, 16
    rows, c = n + 1, n - last
    assert c * n > FAR
    matrices = sparse(2, rows, n)
    roots = rng.normal(size=(2, last, last))
    squares = roots @ roots.transpose(0, 2, 1) + last * np.eye(last)
    y = rng.normal(size=(2, last))
    before = rng.normal(size=(2, last + 1, 64))  # of the panel before this one, and y's
    matrices[:, c:, c - 64 : c] = cupy.asarray(before)
    products = before @ before.transpose(0, 2, 1)
    matrices[:, c:n, c:] = cupy.asarray(squares + products[:, :-1, :-1])
    matrices[:, n, c:] = cupy.asarray(y + products[:, -1, :-1])
    info, pivots = cupy.zeros(2, dtype=np.int32), cupy.ones((2, n))
    _blocked._update(matrices, cupy.zeros(2), info, pivots, c, last, c - 64)
    sizes = tuple(np.int32(k) for k in (rows, n, c))
    solve = _blocked._kernel("panel_solve_f64", _blocked.LOW)
    solve((2,), (2 * _blocked.LOW,), (matrices, pivots, *sizes), shared_mem=_blocked.stage_bytes(_blocked.LOW))
    half = _blocked.half_values(_blocked.Factors(matrices, pivots, info), n)
    assert_array_equal(info.get(), 0)
    for k in range(2):
        L = np.linalg.cholesky(squares[k])
        z = np.linalg.solve(L, y[k])
        assert_allclose(np.tril(matrices[k, c:n, c:].get()), L, rtol=0.0, atol=1e-12)
        assert_allclose(matrices[k, n, c:].get(), z, rtol=0.0, atol=1e-11)
        z = np.concatenate([before[k, -1], z])
        assert_allclose(half[k].get(), 0.5 * z @ z + np.log(np.diagonal(L)).sum(), rtol=1e-12)


def test_points(cupy: Any, sparse: Sparse, rng: np.random.Generator) -> None:
    """The last of 2^30 points of three Gaussians."""
    h, n_points = 3, 2**30 + 8
    last = n_points - 1
    means, variances, centre = sparse(h, n_points), sparse(h, n_points), sparse(n_points)
    m, v = rng.normal(size=h), rng.uniform(0.5, 2.0, h)
    means[:, last], variances[:, last] = cupy.asarray(m), cupy.asarray(v)
    W = cupy.asarray(np.diag([1.0, 2.0, 0.5]))
    local = cupy.empty((1, 3, h))
    sizes = tuple(np.int64(k) for k in (h, n_points, last))
    args: tuple[Any, ...] = (W, cupy.asarray([1]), means, variances, centre, local, *sizes)
    loaded("prediction", "pair_locals_f64")((1,), (256,), args)
    middle = W.get().diagonal() @ m / 3.5
    assert_allclose(centre[last].get(), middle, rtol=1e-14)
    assert_allclose(local.get()[0], [m - middle, 1.0 / v, v**-0.25], rtol=1e-13)


def test_pairs_of_joint_gaussians(cupy: Any, sparse: Sparse, rng: np.random.Generator) -> None:
    """The pair (65599, 65598), number 2.15 10^9, with covariances that far: unit matrices."""
    from maskerade_fast.backends.gpu import mixture_prediction as prediction

    h, n = 65_600, 182
    i, j = h - 1, h - 2
    pair = i * (i - 1) // 2 + j
    assert pair > FAR < j * n * n
    weights, means, covariances = sparse(h, h), sparse(h, n), sparse(h, n, n)
    weights[i, j] = 0.7
    mu = 0.1 * rng.normal(size=(2, n))
    means[j:] = cupy.asarray(mu)
    covariances[j:] = cupy.asarray(np.eye(n))
    pair_sums: Any = prediction._pairs_in_shared(weights, means, covariances, cupy.zeros(h), pair, 1)
    sums = pair_sums.get()[0]
    size = 2.0 * 0.7 * np.exp(-np.sum((mu[0] - mu[1]) ** 2) / 8.0)
    assert_allclose(sums, [*(size * mu.mean(axis=0)), size], rtol=1e-12)


def last_block(emulated: Any) -> None:

    emulated.state.options = emulate.Options(blocks=slice(-1, None))


def assert_same_bits(near: list[Any], far: list[Any]) -> None:
    """Of results near the beginning of arrays and far from it, few of them 0 (distances are clamped there)."""
    assert_all_equal(near, far)
    assert all(np.count_nonzero(result) > 0.9 * result.size for result in near)


SIDE = 46_400
"""Points of a matrix whose last rows begin beyond 2^31 entries."""


def test_inverses(cupy: Any, sparse: Sparse, emulated: Any, rng: np.random.Generator) -> None:
    """The last two squares of the second of two factors, then of its inverse."""
    from maskerade_fast.backends.gpu import _blocked

    n, last = SIDE, 128
    matrices, whitening = sparse(2, n + 1, n), sparse(2, n, n)
    L, z = np.tril(rng.normal(size=(last, last))) + 20.0 * np.eye(last), rng.normal(size=last)
    pivots, alpha = cupy.ones((2, n)), cupy.zeros((2, n))
    matrices[1, -1 - last : -1, -last:], matrices[1, -1, -last:] = cupy.asarray(L), cupy.asarray(z)
    pivots[1, -last:] = cupy.asarray(1.0 / L.diagonal())
    emulated.state.options = emulate.Options(blocks=slice(-4, None))
    side, sizes = n // _blocked.LOW, (np.int32(n + 1), np.int32(n))
    shared = _blocked.stage_bytes(_blocked.LOW)
    args: tuple[Any, ...] = (matrices, pivots, whitening, alpha, np.int64(2), *sizes)
    _blocked._kernel("whitening_f64", _blocked.LOW)((2 * side,), (128,), args, shared_mem=shared)
    assert_allclose(np.triu(whitening[1, -last:, -last:].get()), np.linalg.inv(L).T, rtol=0.0, atol=1e-15)
    assert_allclose(alpha[1, -last:].get(), np.linalg.solve(L.T, z), rtol=0.0, atol=1e-14)
    squares = side * (side + 1)
    _blocked._kernel("inverse_f64", _blocked.LOW)((squares,), (128,), (whitening, matrices, *sizes), shared_mem=shared)
    block = np.tril(matrices[1, -1 - last : -1, -last:].get())[-64:]  # the last row of squares
    assert_allclose(block, np.tril(np.linalg.inv(L @ L.T))[-64:], rtol=0.0, atol=1e-15)


def points_of(rng: np.random.Generator, n: int, base: int, before: int, sparse: Sparse) -> tuple[Any, ...]:
    """Two mixtures, the second of two components after `base` + `before` others, and the last 128 of `n` points.

    As oracle.gram takes them, and as kernels do: weights, scales, offsets, points and phase tables.
    """
    import cupy

    X, m, s = rng.normal(size=128), rng.normal(size=2), rng.uniform(0.1, 0.4, 2)
    w = rng.uniform(0.2, 1.0, 2)
    weights, scales = sparse(base + before + 2), sparse(base + before + 2, 1)
    weights[-2:], scales[-2:, 0] = cupy.asarray(w), cupy.asarray(s)
    offsets = cupy.asarray(base + np.array([0, before, before + 2]))
    points, tables = sparse(1, n), sparse(before + 2, 2, n)
    points[0, -128:] = cupy.asarray(X)
    turns = 2.0 * np.pi * m[:, None] * X
    tables[-2:, :, -128:] = cupy.asarray(np.stack([np.cos(turns), np.sin(turns)], axis=1))
    return ([(w, m[:, None], s[:, None])], X[:, None]), (weights, scales, offsets, points, tables)


@pytest.mark.parametrize("entry", ["gram_f64", "gram_symmetric_f64"])
def test_gram(cupy: Any, sparse: Sparse, emulated: Any, rng: np.random.Generator, entry: str) -> None:
    """The last tiles of the second of two matrices, of components that far, with phase tables that large."""
    n = SIDE
    (batch, X), (*mixtures, points, tables) = points_of(rng, n, FAR, FAR // (2 * n) + 1, sparse)
    out = sparse(2, n, n)
    expected = oracle.gram(batch, X)[0]
    kernel = loaded("gram", entry, MF_PER_AXIS=0)
    last_block(emulated)
    if entry == "gram_f64":
        sizes = (np.int64(0), np.int64(2), *(np.int32(k) for k in (n, n, 1)))
        kernel((2 * (n // 16) * (n // 32) // 4,), (128,), (*mixtures, points, tables, points, tables, out, *sizes))
        assert_allclose(out[1, -16:, -128:].get(), expected[-16:], rtol=0.0, atol=1e-14)
        return
    stats, noise = cupy.zeros((2, 3)), cupy.zeros((2, n))
    stats[1, 0], noise[1, -128:] = batch[0][0].sum(), 0.25
    sizes = (*(np.int64(k) for k in (0, 2, 2)), *(np.int32(k) for k in (n, n, 1)))
    tiles = 2 * (n // 32) * (n // 32 + 1)
    kernel((-(-tiles // 4),), (128,), (*mixtures, points, tables, stats, noise, out, *sizes))
    block = out[1, -32:, -32:].get()
    assert_allclose(block, expected[-32:, -32:] + 0.25 * np.eye(32), rtol=0.0, atol=1e-14)


def loaded(source: str, entry: str, **macros: int) -> Any:
    from maskerade_fast.backends.gpu import _loader

    return _loader.load(source, entry, **macros)


def test_phase_tables(cupy: Any, sparse: Sparse, emulated: Any) -> None:
    """The last points of the last of 2050 components, in the last of 2049 dimensions."""
    n, count, first, n_dims = 2**20, 2050, 2**20, 2049
    means, points, tables = sparse(first + count, n_dims), sparse(n_dims, n), sparse(count, 2, n)
    assert count * n > FAR < first * n_dims
    x = np.linspace(0.0, 1.0, 32)
    means[-1, -1], points[-1, -32:] = 0.7, cupy.asarray(x)
    last_block(emulated)
    sizes = (np.int64(first), np.int64(count), np.int32(n), np.int32(n_dims))
    args = (means, points, cupy.zeros(n_dims), tables, *sizes)
    loaded("gram", "phase_tables_f64", MF_PER_AXIS=0)((count * n // 256,), (256,), args)
    turns = 2.0 * np.pi * 0.7 * x
    assert_allclose(tables[-1, :, -32:].get(), [np.cos(turns), np.sin(turns)], rtol=0.0, atol=1e-15)


GRADIENT = {"MF_GRADIENT": 1, "MF_AXES": 1, "MF_PER_AXIS": 0}


def test_covariances(cupy: Any, sparse: Sparse, emulated: Any, rng: np.random.Generator) -> None:
    """The last square, and the targets below it, of the second of two mixtures."""
    n = SIDE
    (batch, X), (*mixtures, points, tables) = points_of(rng, n, FAR, FAR // (2 * n) + 1, sparse)
    y, stats, matrices = cupy.zeros(n), cupy.zeros((2, 3)), sparse(2, n + 1, n)
    y[-64:], stats[1, 0] = 3.0, batch[0][0].sum()
    shifts, noise = cupy.asarray([0.0, 0.5]), cupy.full((1, 1), 0.25)
    sizes = (*(np.int64(k) for k in (0, 1)), *(np.int32(k) for k in (1, n, 1, n)))
    last_block(emulated)
    side = n // 64
    args = (*mixtures, points, tables, y, stats, noise, shifts, matrices, *sizes)
    loaded("likelihood", "covariance_f64", **GRADIENT)((side * (side + 1),), (256,), args)
    expected = oracle.gram(batch, X[-64:])[0] + 0.75 * np.eye(64)
    assert_allclose(np.tril(matrices[1, -65:-1, -64:].get()), np.tril(expected), rtol=0.0, atol=1e-14)
    assert_array_equal(matrices[1, -1, -64:].get(), 3.0)


def test_slices_of_a_gradient(cupy: Any, sparse: Sparse, emulated: Any, rng: np.random.Generator) -> None:
    """The last 18 tiles of pairs, which make the last slice: the bits of a matrix of 320 points that ends so too."""
    mixture = [cupy.asarray(a) for a in ([0.5, 0.7], [[0.2], [0.1]], [0, 2])]
    X, alpha, inverse = rng.normal(size=288), rng.normal(size=288), rng.normal(size=(16, 288))
    table = rng.normal(size=(2, 2, 288))
    last_block(emulated)
    both = []
    for n in (320, SIDE):
        slices = -(-(n // 16) * (n // 16 + 1) // 64)
        points, tables, weights, matrix = sparse(1, n), sparse(2, 2, n), sparse(n), sparse(n, n)
        points[0, -288:], tables[:, :, -288:] = cupy.asarray(X), cupy.asarray(table)
        weights[-288:], matrix[-16:, -288:] = cupy.asarray(alpha), cupy.asarray(inverse)
        sums = sparse(slices, 2, 1, 3)
        args = (*mixture, points, tables, weights, matrix, sums, np.int64(0), *(np.int32(k) for k in (n, 1, n)))
        loaded("likelihood", "gradient_slices_f64", **GRADIENT)((slices,), (256,), args)
        both.append([sums[-1].get()])
    assert_same_bits(*both)


def small_and_far(sparse: Sparse, far: bool, base: int) -> tuple[Any, Any, Any]:
    """offsets, weights, points and data of two batches whose last 2 and 16 mixtures alone have components, 2 each, and
    the tile of the first: alone, or after so many more that pairs have places beyond 2^31, and components `base`."""
    import cupy

    rng, batches = np.random.default_rng(3), []
    for n, own in ((66_002 if far else 2, 2), (66_000 if far else 16, 16)):
        counts = np.zeros(n, np.int64)
        counts[-own:] = 2
        offsets = (base if far else 0) + np.concatenate([[0], np.cumsum(counts)])
        weights, points, data = sparse(int(offsets[-1])), sparse(int(offsets[-1]), 2), sparse(n, 3)
        weights[-2 * own :] = cupy.asarray(rng.uniform(0.1, 1.0, 2 * own))
        points[-2 * own :] = cupy.asarray(rng.normal(size=(2 * own, 2)))
        data[-own:] = cupy.asarray(rng.uniform(size=(own, 3)))
        batches.append((cupy.asarray(offsets), weights, points, data))
    n_a = len(batches[0][3])
    return *batches, cupy.asarray([n_a - 2, n_a])


TERMS = {"MF_D": 1, "MF_FORM": 0, "MF_MIXED": 0}


def test_distances(cupy: Any, sparse: Sparse, emulated: Any) -> None:
    """A pair of tiles whose atoms, terms of their own, and place in the result lie that far."""
    from maskerade_fast.backends.gpu.distances import PAIR_THREADS, TILE_A, TILE_B, parameters

    both = []
    for far in (False, True):
        a, b, starts = small_and_far(sparse, far, FAR)
        n_a, n_b = len(a[3]), len(b[3])
        assert not far or (n_a - 2) * n_b > FAR
        out, sizes = sparse(n_a, n_b), (np.int32(1), np.int32(3), np.float64(0.0), np.int32(0))
        last_block(emulated)
        for (*batch, own), tile in ((a, starts), (b, cupy.asarray([n_b - 16, n_b]))):
            loaded("distances", "self_terms_f64", **TERMS)((1,), (TILE_A,), (*batch, tile, own, *sizes))
        args = (*a, starts, *b, out, np.int64(n_b), *sizes, *parameters(0, 1.0, 1.0))
        loaded("distances", "pairwise_f64", **TERMS)((-(-n_b // TILE_B),), (PAIR_THREADS,), args)
        both.append([a[3][-2:, :2].get(), b[3][-16:, :2].get(), out[-2:, -16:].get()])
    assert_same_bits(*both)


def test_products(cupy: Any, sparse: Sparse, emulated: Any, rng: np.random.Generator) -> None:
    """The second partial sum of two, of vectors so many that theirs lie that far too."""
    both, vectors_of = [], rng.normal(size=(16, 3))
    for far in (False, True):
        a, b, starts = small_and_far(sparse, far, FAR)
        n_a, n_b, n_vectors = len(a[3]), len(b[3]), 32_600 if far else 3
        vectors, partial_sums = sparse(n_b, n_vectors), sparse(2, n_a, n_vectors)
        vectors[-16:, -3:] = cupy.asarray(vectors_of)
        sizes = (*(np.int64(k) for k in (n_a, n_b, n_b // 16 - 2)), *(np.int32(k) for k in (2, n_vectors, 1, 3)))
        args = (
            *a,
            starts,
            *b,
            vectors,
            partial_sums,
            *sizes,
            np.float64(0.0),
            np.int32(1),
            np.float64(1.3),
            np.float64(0.5),
        )
        last_block(emulated)
        loaded("hyperkernel", "product_f64", **TERMS)((2,), (64,), args)
        both.append([partial_sums[1, -2:, -3:].get()])
    assert_same_bits(*both)


def test_gradients_of_distances(cupy: Any, sparse: Sparse, emulated: Any, rng: np.random.Generator) -> None:
    """Sums of the last mixture's cotangents, partial gradients, and the last components' gradients."""
    g = rng.normal(size=(2, 16))
    both = []
    for far in (False, True):
        a, b, starts = small_and_far(sparse, far, 2**30)
        n_a, n_b, n_components = len(a[3]), len(b[3]), len(a[1])
        cotangent, distance, unclamped = sparse(n_a, n_b), sparse(n_a, n_b), sparse(n_a, n_b)
        cotangent[-2:, -16:], distance[-2:, -16:] = cupy.asarray(g), 9.0
        sums = sparse(n_a, 3)
        last_block(emulated)
        args: tuple[Any, ...] = (a[3], b[3], cotangent, distance, sums, unclamped, np.int64(n_b), np.int32(3))
        loaded("distances", "cotangent_sums_f64", **TERMS)((n_a,), (128,), args)
        windows = 2 if far else 1
        partial_sums = sparse(windows, 3, n_components)
        sizes = (*(np.int64(k) for k in (n_components, n_b, -(-n_b // WINDOW) - windows)), np.int32(windows))
        args = (a[0], a[2], starts, *b[:3], cotangent, partial_sums, *sizes, np.int32(1), np.float64(0.0))
        loaded("distances", "partial_gradients_f64", **TERMS)((windows,), (128,), args)
        totals, g_weights, g_points = sparse(3, n_components), sparse(n_components), sparse(n_components, 2)
        totals[:, -4:] = partial_sums[-1, :, -4:]
        sizes = (np.int64(n_a), np.int64(n_components), np.int32(1), np.float64(0.0), np.int32(1))
        args = (*a[:3], sums, totals, g_weights, g_points, *sizes)
        loaded("distances", "finish_gradient_f64", **TERMS)((-(-n_components // 128),), (128,), args)
        results = (sums[-1], unclamped[-1, -16:], partial_sums[-1, :, -4:], g_weights[-4:], g_points[-4:])
        both.append([result.get() for result in results])
    assert_same_bits(*both)
