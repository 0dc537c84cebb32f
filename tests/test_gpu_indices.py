"""Places beyond 2^31 numbers of an array: kernels on sparse memory, launched with the few blocks that reach so far.

An index that overflowed 32 bits would read zeros, or leave the result where nobody looks, or end the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest
from numpy.testing import assert_allclose, assert_array_equal

FAR = 2**31

Sparse = Callable[..., Any]


@pytest.fixture
def sparse(emulated: Any, request: pytest.FixtureRequest) -> Sparse:
    """Arrays of zeros, of which only what is written takes memory."""
    if request.config.getoption("--card"):
        pytest.skip("sparse memory is the emulator's alone")
    return emulated.sparse


def test_panels(sparse: Sparse, rng: np.random.Generator) -> None:
    """The last panel of each of three matrices, its one row below, and their values: the last of 9 10^9 bytes each."""
    import cupy

    from maskerade_fast.backends.gpu import _blocked

    n, last = 32784, 16
    rows, c = n + 1, n - last
    assert 2 * rows * n > FAR
    matrices = sparse(3, rows, n)
    roots = rng.normal(size=(3, last, last))
    squares = roots @ roots.transpose(0, 2, 1) + last * np.eye(last)
    y = rng.normal(size=(3, last))
    matrices[:, c:n, c:] = cupy.asarray(squares)
    matrices[:, n, c:] = cupy.asarray(y)
    info, pivots = cupy.zeros(3, dtype=np.int32), cupy.ones((3, n))
    _blocked._update(matrices, cupy.zeros(3), info, pivots, c, last, c)
    sizes = tuple(np.int32(k) for k in (rows, n, c))
    solve = _blocked._kernel("panel_solve_f64", _blocked.LOW)
    solve((3,), (2 * _blocked.LOW,), (matrices, pivots, *sizes), shared_mem=_blocked.stage_bytes(_blocked.LOW))
    half = _blocked.half_values(_blocked.Factors(matrices, pivots, info), n)
    assert_array_equal(info.get(), 0)
    for k in range(3):
        L = np.linalg.cholesky(squares[k])
        z = np.linalg.solve(L, y[k])
        assert_allclose(np.tril(matrices[k, c:n, c:].get()), L, rtol=1e-13, atol=1e-13)
        assert_allclose(matrices[k, n, c:].get(), z, rtol=1e-12)
        assert_allclose(half[k].get(), 0.5 * z @ z + np.log(np.diagonal(L)).sum(), rtol=1e-13)


def test_distances(sparse: Sparse, rng: np.random.Generator) -> None:
    """A pair of tiles whose atoms and whose place in the result lie that far."""
    import cupy

    from maskerade_fast.backends.gpu import distances

    n_a, n_b, first = 66_002, 66_000, 66_000
    assert first * n_b > FAR
    batches = []
    for n in (n_a, n_b):
        counts = np.zeros(n, np.int64)
        chosen = slice(first, n_a) if n == n_a else slice(0, 16)
        counts[chosen] = 2
        offsets = FAR + np.concatenate([[0], np.cumsum(counts)])
        size = int(offsets[-1])
        weights, points = sparse(size), sparse(size, 2)
        w, p = rng.uniform(0.1, 1.0, size - FAR), rng.normal(size=(size - FAR, 2))
        weights[FAR:], points[FAR:] = cupy.asarray(w), cupy.asarray(p)
        batches.append((cupy.asarray(offsets), weights, points, sparse(n, 3), w.reshape(-1, 2), p.reshape(-1, 2, 2)))
    a, b = batches
    terms = {"MF_D": 1, "MF_FORM": 0, "MF_MIXED": 0}
    own = distances.load("distances", "self_terms_f64", **terms)
    number = (np.int32(1), np.int32(3), np.float64(0.0), np.int32(0))
    starts_a, starts_b = cupy.asarray([first, n_a]), cupy.asarray([0, 16])
    for (offsets, weights, points, data, *_), starts in ((a, starts_a), (b, starts_b)):
        own((1,), (distances.TILE_A,), (offsets, weights, points, starts, data, *number))
    out = sparse(n_a, n_b)
    sizes = (np.int64(n_b), np.int32(1), np.int32(3), np.float64(0.0), np.int32(0))
    kernel = distances.load("distances", "pairwise_f64", **terms)
    args = (*a[:4], starts_a, *b[:4], out, *sizes, *distances.parameters(0, 1.0, 1.0))
    kernel((1,), (distances.PAIR_THREADS,), args)
    left, right = ([(w, p[:, :1], p[:, 1:]) for w, p in zip(batch[4], batch[5], strict=True)] for batch in batches)
    expected = oracle.energy_distance(left, right)
    assert_allclose(out[first:, :16].get(), expected, rtol=0.0, atol=1e-12)


def test_points(sparse: Sparse, rng: np.random.Generator) -> None:
    """The last of 2^30 points of three Gaussians."""
    import cupy

    from maskerade_fast.backends import cpu
    from maskerade_fast.backends.gpu import prediction

    h, n_points = 3, 2**30 + 8
    last = n_points - 1
    means, variances, y, centre = sparse(h, n_points), sparse(h, n_points), sparse(n_points), sparse(n_points)
    m, v, level = rng.normal(size=h), rng.uniform(0.5, 2.0, h), 0.3
    means[:, last], variances[:, last], y[last] = cupy.asarray(m), cupy.asarray(v), level
    W = cupy.asarray(np.diag([1.0, 2.0, 0.5]))
    local, amplitudes, largest = cupy.empty((1, 3, h)), cupy.empty((1, h)), cupy.empty(1)
    sizes = tuple(np.int64(k) for k in (h, n_points, last))
    args: tuple[Any, ...] = (W, cupy.asarray([1]), means, variances, centre, local, *sizes)
    prediction.load("prediction", "pair_locals_f64")((1,), (256,), args)
    middle = W.get().diagonal() @ m / 3.5
    assert_allclose(centre[last].get(), middle, rtol=1e-14)
    assert_allclose(local.get()[0], [m - middle, 1.0 / v, v**-0.25], rtol=1e-13)
    args = (cupy.zeros(h), means, variances, y, amplitudes, largest, *sizes)
    prediction.load("prediction", "density_amplitudes_f64")((1,), (256,), args)
    log_roots = np.log(amplitudes.get()[0]) + largest.get()
    for i in range(h):
        alone = cpu.pair_log_density(np.ones((1, 1)), m[[i], None], v[[i], None], np.array([level]))
        assert_allclose(2.0 * log_roots[i], alone[0], rtol=1e-13)


def test_pairs_of_joint_gaussians(sparse: Sparse, rng: np.random.Generator) -> None:
    """The pair (65599, 65598), number 2.15 10^9, with covariances that far: unit matrices."""
    import cupy

    from maskerade_fast.backends.gpu import prediction

    h, n = 65_600, 182
    i, j = h - 1, h - 2
    pair = i * (i - 1) // 2 + j
    assert pair > FAR < j * n * n
    weights, means, covariances = sparse(h, h), sparse(h, n), sparse(h, n, n)
    weights[i, j] = 0.7
    mu = 0.1 * rng.normal(size=(2, n))
    means[j:] = cupy.asarray(mu)
    covariances[j:] = cupy.asarray(np.eye(n))
    sums = prediction._pairs_in_shared(weights, means, covariances, cupy.zeros(h), pair, 1).get()[0]
    size = 2.0 * 0.7 * np.exp(-np.sum((mu[0] - mu[1]) ** 2) / 8.0)
    assert_allclose(sums, [*(size * mu.mean(axis=0)), size], rtol=1e-12)
