"""The predictive mixture of the GPU backend, on the emulator: the oracle, the CPU's, chunks, orders of threads."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import oracle
import pytest
from gpu_calls import EVERY_ORDER, assert_all_equal, assert_close, call, covariances, pair_problem
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr

from maskerade_fast.backends import cpu

OPERATIONS = "mixture_prediction"


def assert_pairs_close(computed: Any, expected: Any) -> None:
    """Every array of a result."""
    for one, other in zip(computed, expected, strict=True):
        assert_close(one, other)


@pytest.fixture(params=[True, False])
def in_shared(request: pytest.FixtureRequest, emulated: Any, gpu: ModuleType) -> bool:
    """Whether the matrices of joint densities fit into shared memory; nothing fits on the card without."""
    if not request.param:
        emulated.state.devices[0].shared_bytes = gpu._STATIC_SHARED
    return bool(request.param)


@EVERY_ORDER
@pytest.mark.parametrize(("h", "n_points"), [(1, 3), (7, 5), (33, 2), (130, 1)])  # 130: more than one slice of pairs
def test_sums_over_pairs_are_the_oracle(gpu: ModuleType, rng: np.random.Generator, h: int, n_points: int) -> None:
    W, means, variances = pair_problem(rng, h, n_points, spread=3.0)
    y = rng.normal(size=(5, n_points))
    expected = oracle.combine_gaussians(W, means, variances)
    total, mean, variance = call(gpu.pair_moments, W, means, variances)
    assert_close(total, cpu.pair_moments(W, means, variances)[0])
    assert_close(mean, expected.mean)
    assert_close(variance, expected.variance)
    cdf = call(gpu.pair_cdf, W, means, variances, y)
    assert_close(cdf, [expected.cdf(row) * total for row in y])
    factor = np.linalg.cholesky(W)
    log_density = call(gpu.pair_log_density, factor, means, variances, y[0])
    assert_allclose(log_density - np.log(total), expected.log_density(y[0]), rtol=0.0, atol=1e-11)


@pytest.mark.parametrize("n_points", [*range(1, 19), 31, 32, 33, 63, 65])
def test_any_number_of_points(gpu: ModuleType, rng: np.random.Generator, n_points: int) -> None:
    """Both sides of every number of points that a block has: 4 or 8, a warp each, and of its multiples."""
    W, means, variances = pair_problem(rng, 3, n_points)
    factor, y = np.linalg.cholesky(W), rng.normal(size=(5, n_points))
    assert_pairs_close(call(gpu.pair_moments, W, means, variances), cpu.pair_moments(W, means, variances))
    assert_close(call(gpu.pair_cdf, W, means, variances, y), cpu.pair_cdf(W, means, variances, y))
    assert_allclose(
        call(gpu.pair_log_density, factor, means, variances, y[0]),
        cpu.pair_log_density(factor, means, variances, y[0]),
        rtol=0.0,
        atol=1e-12,
    )
    levels = np.full((2, n_points), 0.3)
    quantiles = cpu.pair_quantiles(W, means, variances, levels)
    assert_allclose(call(gpu.pair_quantiles, W, means, variances, levels), quantiles, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("spread", [0.0, 1.0, 50.0])
def test_three_hundred_observations(gpu: ModuleType, rng: np.random.Generator, spread: float) -> None:
    W, means, variances = pair_problem(rng, 300, 2, spread)
    moments = cpu.pair_moments(W, means, variances)
    assert_pairs_close(call(gpu.pair_moments, W, means, variances), moments)
    levels = np.array([[0.3, 0.5], [0.999, 1e-6]])
    quantiles = call(gpu.pair_quantiles, W, means, variances, levels)
    expected = cpu.pair_quantiles(W, means, variances, levels)
    assert (np.abs(quantiles - expected) <= 1e-9 * np.sqrt(moments[2])).all()
    factor, y = rng.normal(size=(300, 70)), means[0]
    assert_close(
        call(gpu.pair_log_density, factor, means, variances, y), cpu.pair_log_density(factor, means, variances, y)
    )


@EVERY_ORDER
@pytest.mark.parametrize("spread", [0.0, 1.0, 50.0])  # one mode to many far apart
def test_quantiles_are_the_cpus(gpu: ModuleType, rng: np.random.Generator, spread: float) -> None:
    W, means, variances = pair_problem(rng, 6, 4, spread)
    levels = np.repeat([[0.0], [1e-300], [1e-9], [0.25], [0.5], [0.75], [1.0 - 1e-9], [1.0]], 4, axis=1)
    quantiles = call(gpu.pair_quantiles, W, means, variances, levels)
    expected = cpu.pair_quantiles(W, means, variances, levels)
    assert_array_equal(quantiles[[0, -1]], [[-np.inf] * 4, [np.inf] * 4])
    sd = np.sqrt(cpu.pair_moments(W, means, variances)[2])
    assert (np.abs(quantiles[1:-1] - expected[1:-1]) <= 1e-9 * sd).all()


@EVERY_ORDER
@pytest.mark.parametrize("spread", [0.0, 3.0, 1e4])
def test_draws_are_quantiles(gpu: ModuleType, rng: np.random.Generator, spread: float) -> None:
    """Modes much narrower than their distance, one of them in the very middle, are not stepped over."""
    W, means, variances = pair_problem(rng, 5, 2, spread)
    means[:, 0], variances[:, 0] = spread * np.array([-1.0, -1.0, 0.0, 1.0, 1.0]), 1e-4
    levels = 1.0 - rng.random((100, 2))
    draws = call(gpu.pair_draws, W, means, variances, levels)
    total = cpu.pair_moments(W, means, variances)[0]
    assert (np.abs(cpu.pair_cdf(W, means, variances, draws) / total - levels) <= 1e-7).all()
    same = call(gpu.pair_draws, W, means, variances, np.full((70, 2), 0.25))  # all draws of a point in one place
    expected = cpu.pair_quantiles(W, means, variances, np.full((1, 2), 0.25))
    assert (np.abs(same - expected) <= 1e-9 * np.sqrt(cpu.pair_moments(W, means, variances)[2])).all()


def test_tails_of_the_normal_distribution(gpu: ModuleType) -> None:
    z = np.linspace(-37.0, 8.0, 91)
    one = np.ones((1, 91))
    cdf = call(gpu.pair_cdf, np.eye(1), np.zeros_like(one), one, z[None])[0]
    assert_allclose(cdf, ndtr(z), rtol=4e-13)


def test_one_observation_is_its_gaussian(gpu: ModuleType) -> None:
    means, variances = np.array([[3.0, -1e9]]), np.array([[0.25, 4.0]])
    total, mean, variance = call(gpu.pair_moments, np.full((1, 1), 0.7), means, variances)
    assert_allclose(total, 0.7, rtol=1e-15)
    assert_array_equal(mean, means[0])
    assert_allclose(variance, variances[0], rtol=1e-15)
    y = np.array([1e3, 5.0])
    expected = math.log(0.7) - 0.5 * (y - means[0]) ** 2 / variances[0] - 0.5 * np.log(2.0 * np.pi * variances[0])
    log_density = call(gpu.pair_log_density, np.full((1, 1), math.sqrt(0.7)), means, variances, y)
    assert_allclose(log_density, expected, rtol=1e-15)


def test_equal_means_come_back_exactly(gpu: ModuleType, rng: np.random.Generator) -> None:
    W, means, variances = pair_problem(rng, 5, 3)
    means[:] = 0.1
    assert_array_equal(call(gpu.pair_moments, W, means, variances)[1], means[0])


def test_a_large_offset_costs_no_variance(gpu: ModuleType, rng: np.random.Generator) -> None:
    W, means, variances = pair_problem(rng, 5, 4)
    means = np.round(means * 2.0**20) / 2.0**20  # exact after the shift
    variance = call(gpu.pair_moments, W, means, variances)[2]
    assert_allclose(call(gpu.pair_moments, W, means + 2.0**26, variances)[2], variance, rtol=1e-12)


def test_variance_stays_positive_where_terms_cancel(gpu: ModuleType, rng: np.random.Generator) -> None:
    """Nearly opposite rows of F and nearly equal Gaussians leave little but the rounding of terms of size 1."""
    factor = np.array([[1.0], [-1.0 + 2e-8]])
    means, variances = np.zeros((2, 200)), np.ones((2, 200))
    means[1], variances[1] = 1e-9 * rng.normal(size=200), 1.0 + 1e-9 * rng.normal(size=200)
    total, _, variance = call(gpu.pair_moments, factor @ factor.T, means, variances)
    assert (total > 0.0).sum() > 20
    bound = np.finfo(float).eps * np.abs(factor @ factor.T).sum()
    assert (variance * total >= 0.999 * bound)[total > 0.0].all()
    assert (variance * total <= 1.001 * bound)[total > 0.0].any()  # where the sum itself is smaller or negative


def test_a_mixture_without_weight_is_nan(gpu: ModuleType) -> None:
    W = np.array([[1.0, -1.0], [-1.0, 1.0]])
    total, mean, variance = call(gpu.pair_moments, W, np.zeros((2, 2)), np.ones((2, 2)))
    assert (np.abs(total) <= 1e-15).all()
    vanishing = ~(total > 0.0)
    assert np.isnan(mean[vanishing]).all()
    assert np.isnan(variance[vanishing]).all()
    zero = call(gpu.pair_moments, np.zeros((2, 2)), np.zeros((2, 2)), np.ones((2, 2)))
    assert_array_equal(zero[0], [0.0, 0.0])
    assert np.isnan(zero[1:]).all()


def test_extreme_ranges_stay_finite(gpu: ModuleType) -> None:
    W, means = np.eye(3) + 0.1, np.array([[0.0], [1.0], [-1.0]])
    variances = np.array([[1e-100], [1.0], [1e100]])
    y = np.array([[5.0]])
    for computed, expected in (
        (call(gpu.pair_moments, W, means, variances), cpu.pair_moments(W, means, variances)),
        (call(gpu.pair_cdf, W, means, variances, y), cpu.pair_cdf(W, means, variances, y)),
    ):
        assert_allclose(computed, expected, rtol=1e-9, atol=1e-15)
    assert np.isfinite(call(gpu.pair_quantiles, W, means, variances, y / 20.0)).all()


def test_log_density_far_out_and_without_weight(gpu: ModuleType, rng: np.random.Generator) -> None:
    """An observation without weight, wide and far, changes no bit; no density at all is -inf."""
    factor, means, variances = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), np.ones((4, 3))
    more = [np.insert(a, 2, 0.0, axis=0) for a in (factor, means, variances)]
    more[1][2], more[2][2] = 1e6, 1e12
    y = np.full(3, 1e4)
    log_density = call(gpu.pair_log_density, factor, means, variances, y)
    assert np.isfinite(log_density).all()
    assert_allclose(log_density, cpu.pair_log_density(factor, means, variances, y), rtol=1e-13)
    assert_array_equal(call(gpu.pair_log_density, *more, y), log_density)
    assert_array_equal(call(gpu.pair_log_density, np.zeros((4, 3)), means, variances, y), [-np.inf] * 3)


def test_bits_do_not_depend_on_company_or_chunks(
    gpu: ModuleType, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    h, n_points = 20, 7
    W, means, variances = pair_problem(rng, h, n_points, spread=3.0)
    factor, y = rng.normal(size=(h, 40)), rng.normal(size=n_points)
    levels = 1.0 - rng.random((9, n_points))
    C, joint_means = covariances(rng, 6, 10), rng.normal(size=(6, 10))

    def everything(columns: Any, rows: Any) -> list[Any]:
        gaussians = means[:, columns], variances[:, columns]
        return [
            *call(gpu.pair_moments, W, *gaussians),
            call(gpu.pair_log_density, factor, *gaussians, y[columns]),
            *call(gpu.pair_cdf, W, *gaussians, levels[rows][:, columns]),
            *call(gpu.pair_quantiles, W, *gaussians, levels[rows][:, columns]),
        ]

    def rest() -> list[Any]:
        joint = call(gpu.joint_pair_moments, W[:6, :6], joint_means, C, joint_means[1])
        return [call(gpu.pair_draws, W, means, variances, levels), *joint]

    together, more = everything(slice(None), slice(None)), rest()
    monkeypatch.setattr(gpu, "_CHUNK_BYTES", 3000)
    assert_all_equal([*together, *more], [*everything(slice(None), slice(None)), *rest()])
    alone = everything([5], slice(None))
    for a, b in zip(together, alone, strict=True):
        assert a[5] == b[0]
    few = everything(slice(None), [6])  # one level instead of nine
    assert_array_equal(few[4], together[4 + 6])
    assert_array_equal(few[5], together[4 + 9 + 6])


@EVERY_ORDER
@pytest.mark.parametrize(("h", "n"), [(1, 3), (4, 1), (5, 4), (3, 8), (3, 9), (3, 40)])  # 8: a panel of the factor
def test_joint_is_the_cpus(
    emulated: Any, gpu: ModuleType, rng: np.random.Generator, h: int, n: int, in_shared: bool
) -> None:
    W, means, _ = pair_problem(rng, h, n)
    C, y = covariances(rng, h, n), rng.normal(size=n)
    computed = call(gpu.joint_pair_moments, W, means, C, y)
    total, mean_sum, log_densities, info = cpu.joint_pair_moments(W, means, C, y)
    assert ("joint_singles_f64" in emulated.state.launches) == in_shared
    assert_allclose(computed[0], total, rtol=1e-12)
    assert_close(computed[1], mean_sum)
    assert_allclose(computed[2], log_densities, rtol=1e-12)
    assert (computed[3], info) == (0, 0)
    if h > 1:
        logs = 0.5 * (computed[2] - computed[2].max())
        log_density = computed[2].max() + math.log(np.exp(logs) @ W @ np.exp(logs)) - math.log(computed[0])
        expected = oracle.combine_gaussians_joint(W, means, C, y)
        assert log_density == pytest.approx(expected[0], abs=1e-10)
        assert_close(computed[1] / computed[0], expected[1], 1e-11)


@pytest.mark.parametrize("n_matrices", [1, 2, 3])
def test_joint_in_chunks(
    emulated: Any, gpu: ModuleType, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, n_matrices: int
) -> None:
    """So many matrices at a time leave the bits of all at once."""
    emulated.state.devices[0].shared_bytes = gpu._STATIC_SHARED
    W, means, _ = pair_problem(rng, 5, 9)
    C, y = covariances(rng, 5, 9), rng.normal(size=9)
    whole = call(gpu.joint_pair_moments, W, means, C, y)
    monkeypatch.setattr(gpu, "_CHUNK_BYTES", n_matrices * 24 * 10**2)
    assert_all_equal(call(gpu.joint_pair_moments, W, means, C, y), whole)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.usefixtures("in_shared")
def test_joint_names_the_bad_covariance(gpu: ModuleType, rng: np.random.Generator, place: int) -> None:
    W, means, _ = pair_problem(rng, 3, 12)
    for bad in (-np.eye(12), np.diag([1.0] * 11 + [0.0]), np.diag([1.0, -1.0] + [1.0] * 10)):
        C = covariances(rng, 3, 12)
        C[place] = bad
        total, mean_sum, log_densities, info = call(gpu.joint_pair_moments, W, means, C, np.zeros(12))
        assert info == place + 1
        assert math.isnan(total)
        assert np.isnan(mean_sum).all()
        assert np.isnan(log_densities).all()


def test_both_sides_of_the_shared_memory_limit(emulated: Any, gpu: ModuleType, rng: np.random.Generator) -> None:
    """The largest n that a card's shared memory takes, and the next."""
    W, means, _ = pair_problem(rng, 2, 21)
    C = covariances(rng, 2, 21)
    emulated.state.devices[0].shared_bytes = gpu._joint_bytes(20) + gpu._STATIC_SHARED
    for n, kernel in ((20, "joint_pairs_f64"), (21, "joint_finish_pairs_f64")):
        emulated.state.launches.clear()
        computed = call(gpu.joint_pair_moments, W, means[:, :n], C[:, :n, :n], means[0, :n])
        expected = cpu.joint_pair_moments(W, means[:, :n].copy(), C[:, :n, :n].copy(), means[0, :n].copy())
        assert kernel in emulated.state.launches
        for a, b in zip(computed, map(np.asarray, expected), strict=True):
            assert_allclose(a, b, rtol=1e-11)


def test_pairs_are_counted_by_rows(gpu: ModuleType) -> None:
    rows = [i for i in range(1, 40) for _ in range(i)]
    assert [gpu._row_of(pair) for pair in range(len(rows))] == rows
    assert gpu._row_of(10**17 * (10**17 - 1) // 2 - 1) == 10**17 - 1


def test_no_points_and_no_values(gpu: ModuleType) -> None:
    W, none, y = np.eye(2), np.empty((2, 0)), np.empty((3, 0))
    assert [a.shape for a in call(gpu.pair_moments, W, none, none)] == [(0,)] * 3
    for function in (gpu.pair_cdf, gpu.pair_quantiles, gpu.pair_draws):
        assert call(function, W, none, none, y).shape == (3, 0)
        assert call(function, W, np.zeros((2, 4)), np.ones((2, 4)), np.empty((0, 4))).shape == (0, 4)
    assert call(gpu.pair_log_density, W, none, none, np.empty(0)).shape == (0,)


@pytest.mark.parametrize("change", [np.asfortranarray, lambda a: a.astype(np.float32)], ids=["fortran", "float32"])
def test_layouts_and_types(gpu: ModuleType, rng: np.random.Generator, change: Any) -> None:
    W, means, variances = (np.round(a * 2.0**10) / 2.0**10 for a in pair_problem(rng, 5, 4))
    variances += 0.25  # the round numbers are exact in float32
    levels = np.full((2, 4), 0.25)
    for function, arguments in ((gpu.pair_moments, ()), (gpu.pair_quantiles, (levels,)), (gpu.pair_draws, (levels,))):
        inputs = (W, means, variances, *arguments)
        assert_array_equal(call(function, *map(change, inputs)), call(function, *inputs))
