"""The last of so many matrices, rows or points that its place is beyond 2^31 numbers: the bits of the same one alone.

Each kernel is launched twice, with the last block of its grid alone, or the last two: on arrays of one item, then on
sparse ones that hold that item at their very end, after a gap that no 32-bit index spans.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from far_launches import CASES, Arrays, case, factor, i32, i64
from numpy.testing import assert_array_equal


@case(40 * 40)
def gp_solve_f64(of: Arrays) -> Any:
    n, n_new, stride = 40, 40, 2048
    cross, mean, variance = of.last(of.rng.normal(size=(n, n_new))), of.room(stride), of.room(stride)
    batch = (of.last(factor(of.rng, n)), of.here(of.rng.normal(size=n)), of.offsets(2), of.here([0.5, 0.7]))
    args = (*batch, cross, of.room(2, n), mean, variance, *i64(n, n_new, stride, 0))
    return "gp", "gp_solve_f64", {}, 2 * of.count, 256, 0, args, [cross[-1, :, 31:], mean[-1, :n_new], variance[-1]]


@case(40)
def gp_solve_far_columns(of: Arrays) -> Any:
    n = 40
    cross, mean, variance = of.columns(of.rng.normal(size=n)), of.room(), of.room()
    tiles = -(-of.count // 31)
    batch = (of.here(factor(of.rng, n)[None]), of.here(of.rng.normal(size=n)), of.here([0, 2]), of.here([0.5, 0.7]))
    args = (*batch, cross, of.zeros(1, tiles, n), mean, variance, *i64(n, of.count, of.count, 0))
    return "gp", "gp_solve_f64", {}, tiles, 256, 0, args, [cross[:, -1], mean[-1:], variance[-1:]]


@case(40 * 40)
def gp_covariance_f64(of: Arrays) -> Any:
    n = 40
    covariance = of.last(of.rng.normal(size=(n, n)))
    args = (of.last(of.rng.normal(size=(n, n))), covariance, *i64(n, n))
    return "gp", "gp_covariance_f64", {}, 3 * of.count, 256, 0, args, [covariance[-1, 32:, 32:]]


@case(40 * 40)
def gp_clip_f64(of: Arrays) -> Any:
    n, stride = 40, 2048
    solved, variance = of.last(of.rng.normal(size=(n, n))), of.room(stride)
    variance[-1, 33:35] = of.here([-1e-15, -1.0])
    batch = (of.last(factor(of.rng, n)), of.offsets(1), of.here([1.0]), of.last(0.5))
    args = (*batch, solved, variance, *i64(n, n, stride, 0))
    return "gp", "gp_clip_f64", {}, 2 * of.count, 256, 0, args, [solved[-1, :, 33:35], variance[-1, :n]]


@case(40)
def gp_clip_far_columns(of: Arrays) -> Any:
    n = 40
    solved, variance = of.columns(of.rng.normal(size=n)), of.room()
    variance[-1:] = of.here([-1e-15])
    batch = (of.here(factor(of.rng, n)[None]), of.here([0, 1]), of.here([1.0]), of.here([0.5]))
    args = (*batch, solved, variance, *i64(n, of.count, of.count, 0))
    return "gp", "gp_clip_f64", {}, -(-of.count // 32), 256, 0, args, [solved[:, -1], variance[-1:]]


# ---- likelihoods ----
GRADIENT = {"MF_GRADIENT": 1, "MF_AXES": 1, "MF_PER_AXIS": 0}


def problem(of: Arrays, n: int, far: bool) -> tuple[Any, ...]:
    """weights, scales, offsets, points, tables, y, stats, noise of the last mixture, of `n` points."""
    turns = of.rng.uniform(size=(2, n))
    tables = of.here(np.stack([np.cos(turns), np.sin(turns)], axis=1))
    X, y = of.here(of.rng.normal(size=(1, n))), of.here(of.rng.normal(size=n))
    noise = of.last(of.rng.uniform(0.1, 1.0, n)) if far else of.here([[0.3]])
    batch = (of.here([0.5, 0.7]), of.here([[0.2], [0.1]]), of.offsets(2))
    return *batch, X, tables, y, of.last([1.2, 2.0, 2.2]), noise


@case(48)
def likelihood_shared_f64(of: Arrays) -> Any:
    """Its noise by point."""
    n, d_noise = 48, of.room(48)
    outputs = (of.room(), of.room(dtype=np.int32), of.room())
    gradients = [of.here(np.zeros(shape)) for shape in (2, (2, 1), (2, 1))]
    sizes = (np.float64(0.0), *i64(0, of.count + (of.count == 1)), *i32(n, n, 1))
    args = (*problem(of, n, True), *outputs, *gradients, d_noise, *sizes)
    results = [outputs[0][-1:], *gradients, d_noise[-1]]
    return "likelihood", "likelihood_shared_f64", GRADIENT | {"MF_BLOCK": 128}, of.count, 128, 13440, args, results


@case(6 * 256)
def likelihood_panel_f64(of: Arrays) -> Any:
    n, factors = 48, of.room(6, 16, 16)
    outputs = (of.room(), of.room(dtype=np.int32), of.room())
    gradients = [of.here(np.zeros(shape)) for shape in (2, (2, 1), (2, 1))]
    d_noise = of.room(1)
    sizes = (np.float64(0.0), *i64(0, 1), *i32(1, n, 1, 5))
    args = (*problem(of, n, False), factors, *outputs, *gradients, d_noise, *sizes)
    results = [factors[-1], outputs[0][-1:], *gradients, d_noise[-1]]
    return "likelihood", "likelihood_panel_f64", GRADIENT | {"MF_BLOCK": 512}, of.count, 512, 11392, args, results


@case(64 * 65)
def covariance_f64(of: Arrays) -> Any:
    n, matrices = 64, of.room(65, 64)
    args = (*problem(of, n, False), of.last(0.25), matrices, *i64(0, 1), *i32(1, n, 1, n))
    return "likelihood", "covariance_f64", GRADIENT, of.count, 256, 0, args, [matrices[-1]]


@case(3)
def diagonal_stats_f64(of: Arrays) -> Any:
    stats = of.room(3)
    args = (of.here([0.5, 0.7]), of.offsets(2), of.here([[0.3, 0.4]]), stats, *i64(1), *i32(2))
    return "gram", "diagonal_stats_f64", {"MF_PER_AXIS": 0}, of.count, 32, 0, args, [stats[-1]]


@case(40)
def diagonal_stats_of_noise_by_point(of: Arrays) -> Any:
    stats = of.room(3)
    noise = of.last(of.rng.uniform(size=40))
    args = (of.here([0.5, 0.7]), of.offsets(2), noise, stats, *i64(max(of.count, 2)), *i32(40))
    return "gram", "diagonal_stats_f64", {"MF_PER_AXIS": 0}, of.count, 32, 0, args, [stats[-1]]


# ---- grids ----
@case(33)
def toeplitz_trend_f64(of: Arrays) -> Any:
    n, functions = 33, 2
    white, below = of.last(of.rng.normal(size=(1 + functions, n))), of.room(1 + functions, functions)
    value, solutions = of.room(), of.last(of.rng.normal(size=(1 + functions, n)))
    args = (white, of.here([0.5, 0.2]), below, of.room(dtype=np.int32), value, solutions)
    sizes = (*i64(0), *i32(n, functions, 1))
    results = [white[-1], below[-1], value[-1:], solutions[-1]]
    return "toeplitz", "toeplitz_trend_f64", {}, of.count, 256, 0, (*args, *sizes), results


def predictions(of: Arrays, n: int, solved: Any, count: int, n_new: int, basis: Any) -> Any:
    """Of two functions, at the last test point of the last mixture."""
    mean, variance, left = of.zeros(count, n_new), of.zeros(count, n_new), of.zeros(count, 2, n_new)
    arrays = (of.rng.normal(size=(3, n)), of.rng.normal(size=(3, 2)), np.array([1.0, 2.0, 3.0]))
    white, below, stats = (of.last(a) if count == of.count else of.here(a[None]) for a in arrays)
    info = of.here(np.zeros(1, np.int32)) if count != of.count else of.room(dtype=np.int32)
    args = (solved, white, below, basis, stats, info, mean, variance, left, *i64(0, count, n_new), *i32(n, 2))
    results = [mean[-1, -1:], variance[-1, -1:], left[-1, :, -1]]
    return "toeplitz", "toeplitz_predict_f64", {}, -(-count * n_new // 256), 256, 0, args, results


@case(33)
def toeplitz_predict_f64(of: Arrays) -> Any:
    return predictions(of, 33, of.last(of.rng.normal(size=(33, 1))), of.count, 1, of.here(of.rng.normal(size=(2, 1))))


@case(33)
def toeplitz_predict_far_columns(of: Arrays) -> Any:
    solved = of.columns(of.rng.normal(size=33))
    return predictions(of, 33, solved, 1, of.count, of.columns(of.rng.normal(size=2)))


@case(33)
def toeplitz_totals_f64(of: Arrays) -> Any:
    totals = of.room()
    args = (of.last(of.rng.normal(size=33)), totals, *i64(of.count), *i32(33))
    return "toeplitz", "toeplitz_totals_f64", {}, -(-of.count // 8), 256, 0, args, [totals[-1:]]


@case(1)
def toeplitz_clip_f64(of: Arrays) -> Any:
    variance = of.last([-1e-15])
    arrays = (of.last([2.0]), of.last([[0.3], [0.4]]), of.last([1.0, 1.0, 1.0]), of.last(0.5))
    args = (*arrays, variance, *i64(0, of.count, 1), *i32(33, 2))
    return "toeplitz", "toeplitz_clip_f64", {}, -(-of.count // 256), 256, 0, args, [variance[-1]]


@case(33)
def toeplitz_sums_f64(of: Arrays) -> Any:
    n, sums = 33, of.room(33)
    arrays = (of.last(of.rng.normal(size=n)), of.last(of.rng.normal(size=(2, n))), of.room(dtype=np.int32))
    args = (*arrays, of.last(0.7), sums, *i64(0), *i32(2, n))
    return "toeplitz", "toeplitz_sums_f64", {}, of.count, 256, 0, args, [sums[-1]]


@case(33)
def toeplitz_gradient_f64(of: Arrays) -> Any:
    """The sums, and the phase tables, of as many components before."""
    n, gradients = 33, [of.room() for _ in range(4)]
    offsets = of.offsets(of.count)
    offsets[-2] = of.count - 1
    arrays = (of.last(0.5), of.last(0.2), offsets, of.here(of.rng.normal(size=(2, n))))
    args = (*arrays, of.last(of.rng.normal(size=(2, n))), of.last(of.rng.normal(size=n)), *gradients, *i64(0), *i32(n))
    return "toeplitz", "toeplitz_gradient_f64", {}, of.count, 256, 0, args, [a[-1:] for a in gradients]


@case(33)
def toeplitz_schur_f64(of: Arrays) -> Any:
    n = 33
    offsets = of.offsets(of.count)
    offsets[-2] = of.count - 1
    lags, turns = np.arange(n) / n, of.rng.uniform(size=n)
    batch = (of.last(0.5), of.last(0.2), offsets, of.here(lags))
    tables = of.last(np.stack([np.cos(turns), np.sin(turns)]))
    targets = of.last(of.rng.normal(size=(1, n)))
    outputs = (of.room(), of.room(dtype=np.int32), of.room(), of.room())
    solved = (of.room(n), of.room(1, n))
    scratch = of.room(2, 4, n)
    sizes = (np.float64(0.0), *i64(0, 1, n, n, 1, n, n, 1), *i32(n))
    args = (*batch, tables, targets, of.last([0.5, 9.0, 9.0]), scratch, *outputs, of.here([0.0]), *solved, *sizes)
    results = [outputs[0][-1:], outputs[1][-1:], solved[0][-1], solved[1][-1]]
    return "schur", "toeplitz_schur_f64", {"MF_WHOLE": 1, "MF_SIDES": 1}, of.count, 256, 0, args, results


# ---- joint densities ----
@case(20 * 20)
def joint_singles_f64(of: Arrays) -> Any:
    n, out = 20, (of.room(), of.room())
    L = factor(of.rng, n)
    args = (of.last(of.rng.normal(size=n)), of.last(L @ L.T), of.here(of.rng.normal(size=n)), *out, *i32(n))
    return "joint", "joint_singles_f64", {}, of.count, 256, 8 * (n * (n + 1) // 2 + 3 * n), args, [a[-1:] for a in out]


@case(20 * 20, last=2)
def joint_border_singles_f64(of: Arrays) -> Any:
    n, out = 20, of.room(21, 21)
    arrays = (of.last(of.rng.normal(size=n)), of.last(of.rng.normal(size=(n, n))), of.here(of.rng.normal(size=n)))
    grid = -(-of.count * 441 // 256)
    return "joint", "joint_border_singles_f64", {}, grid, 256, 0, (*arrays, out, *i64(n, 0, of.count)), [out[-1, -8:]]


@case(21 * 21, last=2)
def joint_border_pairs_f64(of: Arrays) -> Any:
    """The last pair of so many, of Gaussians that are all zeros but for the last two."""
    n = 20
    h = pairs_of(of.count)
    means, covariances = of.rng.normal(size=(2, n)), of.rng.normal(size=(2, n, n))
    place = h * (h - 1) // 2 - of.count
    out = of.room(21, 21)
    args = (of.here(padded(means, h)), of.here(padded(covariances, h)), out, *i64(n, place, of.count))
    return "joint", "joint_border_pairs_f64", {}, -(-of.count * 441 // 256), 256, 0, args, [out[-1, -8:]]


def pairs_of(count: int) -> int:
    """The least number of Gaussians with so many pairs."""
    return int(np.ceil(0.5 + np.sqrt(0.25 + 2.0 * count)))


def padded(items: Any, n: int) -> Any:
    return np.concatenate([np.zeros((n - len(items), *items.shape[1:])), items])


@case(21 * 21)
def joint_finish_singles_f64(of: Arrays) -> Any:
    out = (of.room(), of.room())
    args = (of.last(factor(of.rng, 21)), *out, *i32(20), *i64(0))
    return "joint", "joint_finish_singles_f64", {}, of.count, 256, 0, args, [a[-1:] for a in out]


@case(21 * 21)
def joint_finish_pairs_f64(of: Arrays) -> Any:
    n = 20
    h = pairs_of(of.count)
    out, place = of.room(n + 1), h * (h - 1) // 2 - of.count
    weights = of.zeros(h, h)
    weights[-1, -2] = 0.7
    roots = of.rng.normal(size=(2, n, n))
    covariances = of.here(padded(roots @ roots.transpose(0, 2, 1), h))
    means = of.here(padded(of.rng.normal(size=(2, n)), h))
    log_dets = of.here(padded(of.rng.normal(size=2), h))
    args = (of.last(factor(of.rng, n + 1)), weights, means, covariances, log_dets, out, *i64(h), *i32(n), *i64(place))
    return "joint", "joint_finish_pairs_f64", {}, of.count, 256, 16 * n, args, [out[-1]]


@case(21)
def joint_accumulate_f64(of: Arrays) -> Any:
    """The last of so many pairs, the only one of its row that is left to add."""
    h, n = pairs_of(of.count) + 1, 20
    last = h * (h - 1) // 2
    sums = of.zeros(h, n + 1)
    pairs = of.last(of.rng.normal(size=n + 1))
    args = (pairs, sums, *i64(n, h - 1, last - of.count, last))
    return "joint", "joint_accumulate_f64", {}, 1, 256, 0, args, [sums[-1]]


# ---- predictive mixtures ----
def mixture(of: Arrays, h: int) -> tuple[Any, Any]:
    """Packed pair weights, and the last point's locals."""
    local = of.rng.uniform(0.5, 2.0, size=(3, h))
    return of.here(of.rng.uniform(size=h * (h + 1) // 2)), of.last(local)


@case(9)
def pair_moments_f64(of: Arrays) -> Any:
    partial = of.room(1, 6)
    args = (*mixture(of, 3), partial, *i64(3, 1))
    return "prediction", "pair_moments_f64", {}, of.count, 256, 0, args, [partial[-1]]


@case(6)
def pair_moments_finish_f64(of: Arrays) -> Any:
    out = [of.room() for _ in range(3)]
    args = (of.last(of.rng.uniform(1.0, 2.0, (1, 6))), *out, *i64(1, of.count, 0))
    return "prediction", "pair_moments_finish_f64", {}, -(-of.count // 8), 256, 0, args, [a[-1:] for a in out]


@case(3)
def pair_cdf_f64(of: Arrays) -> Any:
    """The fifth row of values, of the last point."""
    out = of.columns(np.zeros(5))
    args = (*mixture(of, 3), of.last(0.3), of.columns(of.rng.normal(size=5)), out, *i64(3, of.count, 0, 5))
    return "prediction", "pair_cdf_f64", {}, 2 * of.count, 256, 0, args, [out[4, -1:]]


@case(3)
def pair_quantiles_f64(of: Arrays) -> Any:
    out = of.columns(np.zeros(5))
    moments = (of.last(4.0), of.last(0.1), of.last(1.5))
    args = (*mixture(of, 3), *moments, of.columns(np.full(5, 0.4)), out, *i64(3, of.count, 0, 5))
    return "prediction", "pair_quantiles_f64", {}, 2 * of.count, 256, 0, args, [out[4, -1:]]


@case(2)
def pair_nodes_f64(of: Arrays) -> Any:
    nodes, owners = of.columns([0.3, 0.0, 0.0]), of.last(of.count - 1)
    args = (*mixture(of, 2), of.last(2.0), owners, nodes, *i64(2, 0, of.count))
    return "prediction", "pair_nodes_f64", {}, of.count, 256, 0, args, [nodes[:, -1]]


@case(2)
def cubic_errors_f64(of: Arrays) -> Any:
    errors = of.room()
    nodes = [of.columns(column) for column in ([0.0, 0.1, 0.5], [0.4, 0.4, 0.9], [1.0, 0.8, 0.3])]
    args = (*nodes, errors, *i64(of.count))
    return "prediction", "cubic_errors_f64", {}, -(-of.count // 256), 256, 0, args, [errors[-1:]]


@case(2)
def pair_invert_f64(of: Arrays) -> Any:
    """The last interval, for the third draw of the last point."""
    out, edges = of.columns(np.zeros(3)), of.here([of.count - 1, of.count])
    nodes = [of.columns(column) for column in ([0.0, 0.1, 0.5], [1.0, 0.8, 0.3])]
    args = (edges, *nodes, of.columns([0.2, 0.3, 0.6]), out, *i64(of.count, of.count, of.count - 1, 1, 3))
    return "prediction", "pair_invert_f64", {}, 1, 256, 0, args, [out[:, -1]]


@case(3)
def density_amplitudes_f64(of: Arrays) -> Any:
    amplitudes, largest = of.room(3), of.room()
    columns = of.columns(of.rng.normal(size=3)), of.columns(of.rng.uniform(1.0, 2.0, 3))
    args = (of.here(np.zeros(3)), *columns, of.last(0.2), amplitudes, largest, *i64(3, of.count, 0))
    return "prediction", "density_amplitudes_f64", {}, of.count, 256, 0, args, [amplitudes[-1], largest[-1:]]


@case(5)
def pair_log_density_f64(of: Arrays) -> Any:
    out = of.room()
    arrays = (of.here(of.rng.normal(size=(5, 2))), of.last(of.rng.uniform(size=5)), of.last(0.3))
    args = (*arrays, out, *i64(5, 2, 0, of.count))
    return "prediction", "pair_log_density_f64", {}, -(-of.count // 4), 256, 0, args, [out[-1:]]


@case(1, last=2)
def pair_pack_f64(of: Arrays) -> Any:
    """Rows of a triangle with 2^31 pairs: the last of them from a matrix of 4.3 10^9 weights."""
    h = pairs_of(of.count) if of.count > 1 else 2
    weights, packed = of.zeros(h, h), of.zeros(h * (h + 1) // 2)
    weights[-1, -2:] = of.here([0.3, 0.4])
    args = (weights, packed, *i64(h))
    return "prediction", "pair_pack_f64", {}, -(-(h * (h + 1) // 2) // 256), 256, 0, args, [packed[-2:]]


# ---- distances ----
@case(1)
def hyperkernel_covariance_f64(of: Arrays) -> Any:
    values = of.last(0.7)
    args = (values, *i64(of.count), *i32(2), np.float64(1.3), np.float64(0.5))
    return "hyperkernel", "covariance_f64", {}, -(-of.count // 128), 128, 0, args, [values[-1:]]


@case(2)
def add_partial_sums_f64(of: Arrays) -> Any:
    totals = of.last(0.7)
    args = (of.columns(of.rng.normal(size=3)), totals, *i32(3), *i64(of.count))
    source = {"MF_D": 1, "MF_FORM": 0, "MF_MIXED": 0}
    return "distances", "add_partial_sums_f64", source, -(-of.count // 128), 128, 0, args, [totals[-1:]]


@pytest.mark.parametrize("name", CASES)
def test_the_last_item(name: str, emulated: Any, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--card"):
        pytest.skip("sparse memory is the emulator's alone")
    import emulate

    from maskerade_fast.backends.gpu import _loader

    far, last, work = CASES[name]
    emulated.state.options = emulate.Options(blocks=slice(-last, None))
    both = []
    for count in (1, far):
        source, entry, macros, blocks, threads, shared, args, results = work(
            Arrays(emulated, np.random.default_rng(7), count)
        )
        _loader.load(source, entry, **macros)((blocks,), (threads,), args, shared_mem=shared)
        both.append([result.get() for result in results])
    for one, other in zip(*both, strict=True):
        assert_array_equal(one, other)
    assert any(np.any(one != 0.0) for one in both[0])
