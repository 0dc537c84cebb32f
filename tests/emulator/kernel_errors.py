"""The largest error of each kernel against the oracle, on the emulator: of an operation's results, for all it launched.

An error is that of an array against the oracle's, relative to the largest entry there (of log-likelihoods and log
densities: to each). Only float64 counts; mixed precision loses more by design. Run by `kernel_report.py`.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import fake_cupy
import numpy as np
import oracle
from gpu_calls import (
    FORM_CASES,
    FORMS,
    atoms,
    call,
    card,
    covariances,
    distance_oracle,
    distance_oracle_vjp,
    flat,
    gp_oracle,
    gp_problem,
    gram,
    host,
    likelihood,
    pair_problem,
    positive,
    predict,
    ragged,
    ragged_side,
    regimes,
)

PHASES = ("joint", "per_axis")
Pairs = Iterator[tuple[Any, Any]]
"""Computed and expected, in turn: what is launched in between made the former."""


def errors() -> dict[str, float]:
    """The largest error by kernel."""
    worst: dict[str, float] = {}
    sys.modules.update(fake_cupy.modules)
    for topic in (
        *(distances, hyperkernels, grams, likelihoods, factors, processes, grids),
        *(predictions, joint_predictions, quantiles, draws),
    ):
        fake_cupy.reset()
        own: dict[str, float] = {}
        for computed, expected in topic(np.random.default_rng(20220328)):
            error = error_of(computed, expected)
            for kernel in fake_cupy.state.launches:
                own[kernel] = max(own.get(kernel, 0.0), error)
            fake_cupy.state.launches.clear()
        for kernel, error in own.items():
            if topic is not draws or kernel not in worst:
                worst[kernel] = max(worst.get(kernel, 0.0), error)
    return worst


def error_of(computed: Any, expected: Any) -> float:
    """The largest over the arrays of a result; infinite for what should be finite and is not."""
    if isinstance(expected, (tuple, list)):
        return max(error_of(a, b) for a, b in zip(computed, expected, strict=True))
    left, right = map(np.asarray, (host(computed), host(expected)))
    assert left.shape == right.shape
    gap = np.max(np.abs(left - right), initial=0.0) / max(float(np.max(np.abs(right), initial=0.0)), 1e-300)
    return float(gap) if np.isfinite(gap) else float("inf")


def module_of(name: str) -> Any:
    return importlib.import_module(f"maskerade_fast.backends.gpu.{name}")


def distances(rng: np.random.Generator) -> Pairs:
    gpu = module_of("distances")
    for D, form in FORM_CASES:
        a, b, options = ragged_side(rng, 5, D), ragged_side(rng, 4, D), FORMS[form]
        there = [atoms(gpu, side, **options) for side in (a, b)]
        yield gpu.pairwise_distance(*there), distance_oracle(a, b, **options)
        yield gpu.pairwise_distance(there[0]), distance_oracle(a, None, **options)
        G = rng.normal(size=(5, 4))
        yield gpu.pairwise_distance_vjp(*there, card(G)), distance_oracle_vjp(a, b, G, **options)


def hyperkernels(rng: np.random.Generator) -> Pairs:
    gpu = module_of("hyperkernel")
    for D, power in itertools.product((1, 19), (1, 2)):
        parameters: dict[str, Any] = {"outputscale": 1.3, "lengthscale": 0.8, "power": power}
        a, b = ragged_side(rng, 5, D), ragged_side(rng, 4, D)
        there = [atoms(module_of("distances"), side) for side in (a, b)]
        expected = oracle.hyperkernel(a.mixtures(), b.mixtures(), **parameters)
        yield gpu.hyperkernel(*there, **parameters), expected
        yield gpu.hyperkernel(there[0], **parameters), oracle.hyperkernel(a.mixtures(), None, **parameters)
        v = rng.normal(size=(4, 3))
        yield gpu.hyperkernel_matvec(*there, card(v), **parameters), expected @ v
        E = rng.random((5, 7))
        yield gpu.covariance_from_distance(card(E), **parameters), oracle.covariance_from_distance(E, **parameters)


def grams(rng: np.random.Generator) -> Pairs:
    gpu = module_of("gram")
    for D, phase in itertools.product((1, 2, 5, 18), PHASES):
        batch, X, Y = ragged(rng, [1, 3, 5], D, 0.0), rng.normal(size=(21, D)) + 10.0, rng.normal(size=(7, D)) + 10.0
        yield gram(gpu, batch, X, Y, phase=phase), oracle.gram(batch, X, Y, phase=phase)
        noise = rng.uniform(0.1, 1.0, size=(3, 21))
        yield gram(gpu, batch, X, noise=noise, phase=phase), oracle.gram(batch, X, noise_variance=noise, phase=phase)


def values_and_slopes(batch: Any, X: Any, y: Any, noise: Any, value: Any, gradients: Any, **basis: Any) -> Any:
    """A log-likelihood's results as computed, and as the oracle has them; values one by one."""
    expected = oracle.log_likelihood(batch, X, y, noise, **basis)
    computed, reference = [value[:1], value[1:]], [expected[:1], expected[1:]]
    if gradients is not None:
        *components, by_point = oracle.log_likelihood_gradient(batch, X, y, noise, **basis)
        computed += gradients
        reference += [*components, by_point.sum(axis=1, keepdims=True)]
    return computed, reference


def likelihoods(rng: np.random.Generator) -> Pairs:
    """One size for each way that a matrix can go."""
    gpu = module_of("likelihood")
    for D, grad in ((1, False), (1, True), (2, True)):
        for way, n_points in (("small", 40), ("panels", 90), ("blocked", 150)):
            batch = ragged(rng, [1, 3], D)
            X, y = rng.uniform(-2, 2, size=(n_points, D)), rng.normal(size=n_points)
            noise = rng.uniform(0.05, 0.5, size=2)
            value, _, _, gradients = likelihood(gpu, batch, X, y, noise[:, None], regimes(gpu, way), grad=grad)
            yield values_and_slopes(batch, X, y, noise, value, gradients)


def factors(rng: np.random.Generator) -> Pairs:
    for n in (16, 33, 150):
        matrices = positive(rng, 2, n)
        yield call(module_of("cholesky").cholesky, matrices)[0], np.linalg.cholesky(matrices)


def processes(rng: np.random.Generator) -> Pairs:
    for sizes, D, n_points, n_new in [([3, 1, 4], 1, 15, 9), ([2, 1], 3, 33, 31), ([2], 1, 70, 33)]:
        arguments = gp_problem(rng, sizes, D, n_points, n_new)
        mean, _, covariance, _ = predict(module_of("gp"), arguments)
        yield (mean, covariance), gp_oracle(arguments)[:2]


def grids(rng: np.random.Generator) -> Pairs:
    """Regular ones, with and without a trend: values, gradients, and predictions, at the data of no noise too."""
    gpu = module_of("toeplitz")
    options = {"jitter": 0.0, "max_bytes": None}
    for n_points, functions in ((33, 0), (300, 0), (40, 2)):
        batch, X, y = ragged(rng, [1, 3], 1), np.arange(n_points)[:, None] / 8.0, rng.normal(size=n_points)
        noise, X_new = rng.uniform(0.05, 0.5, size=2), rng.uniform(0.0, 10.0, size=(9, 1))
        basis: dict[str, Any] = {"basis": rng.normal(size=(n_points, functions))} if functions else {}
        new: dict[str, Any] = {"basis_new": rng.normal(size=(9, functions))} if functions else {}
        arguments = (*flat(batch), X, y, noise[:, None])
        value, _, _, gradients = call(gpu.toeplitz_log_likelihood, *arguments, grad=True, **basis, **options)
        yield values_and_slopes(batch, X, y, noise, value, gradients, **basis)
        results = call(gpu.toeplitz_predict_gp, *arguments, X_new, full=True, **basis, **new, **options)
        yield (results[0], results[2]), oracle.predict_gp(batch, X, y, noise, X_new, **basis, **new)[:2]
    X, y = np.arange(40.0)[:, None], rng.normal(size=40)
    one: Any = [(np.ones(1), np.array([[0.1]]), np.array([[0.2]]))]
    results = call(gpu.toeplitz_predict_gp, *flat(one), X, y, np.zeros((1, 1)), X[:8], full=False, **options)
    yield (results[0], 1.0 + results[1]), (y[None, :8], np.ones((1, 8)))  # beside k(0) = 1


SIZES = [(1, 3), (7, 5), (33, 2)]
"""Gaussians and points of predictive mixtures."""


def predictions(rng: np.random.Generator) -> Pairs:
    gpu = module_of("mixture_prediction")
    for h, n_points in SIZES:
        W, means, variances = pair_problem(rng, h, n_points, spread=3.0)
        expected = oracle.combine_gaussians(W, means, variances)
        total, mean, variance = call(gpu.pair_moments, W, means, variances)
        yield (mean, variance), (expected.mean, expected.variance)
        y = rng.normal(size=(5, n_points))
        yield call(gpu.pair_cdf, W, means, variances, y) / total, np.array([expected.cdf(row) for row in y])
        log_density = call(gpu.pair_log_density, np.linalg.cholesky(W), means, variances, y[0]) - np.log(total)
        yield from zip(log_density, expected.log_density(y[0]), strict=True)


def quantiles(rng: np.random.Generator, solve: str = "pair_quantiles") -> Pairs:
    """By the probabilities below them."""
    for h, n_points in SIZES:
        W, means, variances = pair_problem(rng, h, n_points, spread=3.0)
        expected, levels = oracle.combine_gaussians(W, means, variances), rng.uniform(0.01, 0.99, (3, n_points))
        rows = call(getattr(module_of("mixture_prediction"), solve), W, means, variances, levels)
        yield np.array([expected.cdf(row) for row in rows]), levels


def draws(rng: np.random.Generator) -> Pairs:
    """By interpolation, to 1e-7 of probability: counts for the kernels alone that nothing else launches."""
    return quantiles(rng, "pair_draws")


def joint_predictions(rng: np.random.Generator) -> Pairs:
    """In shared memory, and by the library where that is too small."""
    gpu = module_of("mixture_prediction")
    for shared, (h, n) in itertools.product((232448, gpu._STATIC_SHARED), [(4, 1), (3, 9), (3, 40)]):
        fake_cupy.state.devices[0].shared_bytes = shared
        module_of("_loader")._limits_of.cache_clear()
        W, means, _ = pair_problem(rng, h, n)
        C, y = covariances(rng, h, n), rng.normal(size=n)
        total, mean_sum, log_densities, _ = call(gpu.joint_pair_moments, W, means, C, y)
        logs = 0.5 * (log_densities - log_densities.max())
        log_density = log_densities.max() + np.log(np.exp(logs) @ W @ np.exp(logs)) - np.log(total)
        yield (log_density, mean_sum / total), oracle.combine_gaussians_joint(W, means, C, y)
