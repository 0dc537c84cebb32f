"""The largest error of each kernel against the oracle, on the emulator: of a door's results, for all it launched.

An error is that of an array against the oracle's, relative to the largest entry there (of log-likelihoods and log
densities: to each). Only float64 counts; what mixed precision loses is wanted. Run by `kernel_report.py`.
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

PER_AXIS = ("joint", "per_axis")
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
        found: dict[str, float] = {}
        for computed, expected in topic(np.random.default_rng(20220328)):
            error = error_of(computed, expected)
            for kernel in fake_cupy.state.launches:
                found[kernel] = max(found.get(kernel, 0.0), error)
            fake_cupy.state.launches.clear()
        for kernel, error in found.items():
            if topic is not draws or kernel not in worst:
                worst[kernel] = max(worst.get(kernel, 0.0), error)
    return worst


def error_of(computed: Any, expected: Any) -> float:
    """The largest over the arrays of a result; infinite for what should be finite and is not."""
    if isinstance(expected, (tuple, list)):
        return max(error_of(a, b) for a, b in zip(computed, expected, strict=True))
    got, wanted = (np.asarray(a.get() if hasattr(a, "get") else a) for a in (computed, expected))
    assert got.shape == wanted.shape
    gap = np.max(np.abs(got - wanted), initial=0.0) / max(float(np.max(np.abs(wanted), initial=0.0)), 1e-300)
    return float(gap) if np.isfinite(gap) else float("inf")


def distances(rng: np.random.Generator) -> Pairs:
    from test_gpu_distances import CASES, FORMS, atoms, card, ragged, reference, reference_vjp

    door = importlib.import_module("maskerade_fast.backends.gpu.distances")
    for D, form in CASES:
        a, b, options = ragged(rng, 5, D), ragged(rng, 4, D), FORMS[form]
        there = [atoms(door, side, **options) for side in (a, b)]
        yield door.pairwise_distance(*there), reference(a, b, **options)
        yield door.pairwise_distance(there[0]), reference(a, None, **options)
        G = rng.normal(size=(5, 4))
        yield door.pairwise_distance_vjp(*there, card(G)), reference_vjp(a, b, G, **options)


def hyperkernels(rng: np.random.Generator) -> Pairs:
    from test_gpu_distances import card, ragged
    from test_gpu_hyperkernel import PARAMETERS, prepared

    door = importlib.import_module("maskerade_fast.backends.gpu.hyperkernel")
    for D, parameters in itertools.product((1, 19), PARAMETERS):
        a, b = ragged(rng, 5, D), ragged(rng, 4, D)
        there = [prepared(side) for side in (a, b)]
        expected = oracle.hyperkernel(a.mixtures(), b.mixtures(), **parameters)
        yield door.hyperkernel(*there, **parameters), expected
        yield door.hyperkernel(there[0], **parameters), oracle.hyperkernel(a.mixtures(), None, **parameters)
        v = rng.normal(size=(4, 3))
        yield door.hyperkernel_matvec(*there, card(v), **parameters), expected @ v
        E = rng.random((5, 7))
        yield door.covariance_from_distance(card(E), **parameters), oracle.covariance_from_distance(E, **parameters)


def grams(rng: np.random.Generator) -> Pairs:
    from test_gpu_gram import gram, ragged

    door = importlib.import_module("maskerade_fast.backends.gpu.gram")
    for D, phase in itertools.product((1, 2, 5, 18), PER_AXIS):
        batch, X, Y = ragged(rng, [1, 3, 5], D), rng.normal(size=(21, D)) + 10.0, rng.normal(size=(7, D)) + 10.0
        yield gram(door, batch, X, Y, phase=phase), oracle.gram(batch, X, Y, phase=phase)
        noise = rng.uniform(0.1, 1.0, size=(3, 21))
        yield gram(door, batch, X, noise=noise, phase=phase), oracle.gram(batch, X, noise_variance=noise, phase=phase)


def likelihoods(rng: np.random.Generator) -> Pairs:
    """One size for each way that a matrix can go."""
    from regimes import regimes
    from test_gpu_likelihood import ragged, run

    door = importlib.import_module("maskerade_fast.backends.gpu.likelihood")
    for D, grad in ((1, False), (1, True), (2, True)):
        for way, n_points in (("small", 40), ("panels", 90), ("blocked", 150)):
            batch = ragged(rng, [1, 3], D)
            X, y = rng.uniform(-2, 2, size=(n_points, D)), rng.normal(size=n_points)
            noise = rng.uniform(0.05, 0.5, size=2)
            value, _, _, gradients = run(door, batch, X, y, noise[:, None], regimes(door, way), grad=grad)
            expected = oracle.log_likelihood(batch, X, y, noise)
            pairs = [(value[k : k + 1], expected[k : k + 1]) for k in range(2)]
            if grad:
                slopes = oracle.log_likelihood_gradient(batch, X, y, noise)
                pairs += zip(gradients, [*slopes[:3], slopes[3].sum(axis=1, keepdims=True)], strict=True)
            yield [computed for computed, _ in pairs], [wanted for _, wanted in pairs]


def factors(rng: np.random.Generator) -> Pairs:
    import cupy
    from test_gpu_likelihood import positive

    door = importlib.import_module("maskerade_fast.backends.gpu.cholesky")
    for n in (16, 33, 150):
        matrices = positive(rng, 2, n)
        yield door.cholesky(cupy.asarray(matrices))[0], np.linalg.cholesky(matrices)


def processes(rng: np.random.Generator) -> Pairs:
    from test_gpu_gp import predict, problem

    door = importlib.import_module("maskerade_fast.backends.gpu.gp")
    for sizes, D, n_points, n_new in [([3, 1, 4], 1, 15, 9), ([2, 1], 3, 33, 31), ([2], 1, 70, 33)]:
        arguments = problem(rng, sizes, D, n_points, n_new)
        offsets, weights, means, scales, X, y, noise, X_new = arguments
        mixtures = [(weights[i:j], means[i:j], scales[i:j]) for i, j in itertools.pairwise(offsets)]
        expected = oracle.predict_gp(mixtures, X, y, noise, X_new)
        mean, _, covariance, _ = predict(door, arguments)
        yield (mean, covariance), expected[:2]


def grids(rng: np.random.Generator) -> Pairs:
    """Regular ones, with and without a trend: values, gradients, and predictions, at the data of no noise too."""
    import cupy
    from test_gpu_likelihood import ragged

    door = importlib.import_module("maskerade_fast.backends.gpu.toeplitz")
    options = {"jitter": 0.0, "max_bytes": None}
    for n_points, functions in ((33, 0), (300, 0), (40, 2)):
        batch, X, y = ragged(rng, [1, 3], 1), np.arange(n_points)[:, None] / 8.0, rng.normal(size=n_points)
        noise, X_new = rng.uniform(0.05, 0.5, size=2), rng.uniform(0.0, 10.0, size=(9, 1))
        here: dict[str, Any] = {"basis": rng.normal(size=(n_points, functions))} if functions else {}
        new: dict[str, Any] = {"basis_new": rng.normal(size=(9, functions))} if functions else {}
        flat = [cupy.asarray(np.concatenate([mixture[k] for mixture in batch])) for k in range(3)]
        there = (np.array([0, 1, 4]), *flat, *map(cupy.asarray, (X, y, noise[:, None])))
        bases, bases_new = ({name: cupy.asarray(V) for name, V in given.items()} for given in (here, new))
        value, _, _, gradients = door.toeplitz_log_likelihood(*there, grad=True, **bases, **options)
        expected = oracle.log_likelihood(batch, X, y, noise, **here)
        slopes = oracle.log_likelihood_gradient(batch, X, y, noise, **here)
        pairs = [(value[k : k + 1], expected[k : k + 1]) for k in range(2)]
        pairs += zip(gradients, [*slopes[:3], slopes[3].sum(axis=1, keepdims=True)], strict=True)
        yield [computed for computed, _ in pairs], [wanted for _, wanted in pairs]
        arguments = (*there, cupy.asarray(X_new))
        mean, _, covariance, _ = door.toeplitz_predict_gp(*arguments, full=True, **bases, **bases_new, **options)
        yield (mean, covariance), oracle.predict_gp(batch, X, y, noise, X_new, **here, **new)[:2]
    X, y = np.arange(40.0)[:, None], rng.normal(size=40)
    there = (np.array([0, 1]), *map(cupy.asarray, (np.ones(1), [[0.1]], [[0.2]], X, y, np.zeros((1, 1)), X[:8])))
    mean, variance, _, _ = door.toeplitz_predict_gp(*there, full=False, **options)
    yield (mean, 1.0 + variance), (y[None, :8], np.ones((1, 8)))  # beside k(0) = 1


def predictions(rng: np.random.Generator) -> Pairs:
    from test_gpu_prediction import on_card, problem

    door = importlib.import_module("maskerade_fast.backends.gpu.prediction")
    for h, n_points in [(1, 3), (7, 5), (33, 2)]:
        W, means, variances = problem(rng, h, n_points, spread=3.0)
        expected = oracle.combine_gaussians(W, means, variances)
        total, mean, variance = on_card(door.pair_moments, W, means, variances)
        yield (mean, variance), (expected.mean, expected.variance)
        y = rng.normal(size=(5, n_points))
        yield on_card(door.pair_cdf, W, means, variances, y) / total, np.array([expected.cdf(row) for row in y])
        log_density = on_card(door.pair_log_density, np.linalg.cholesky(W), means, variances, y[0]) - np.log(total)
        yield from zip(log_density, expected.log_density(y[0]), strict=True)


def quantiles(rng: np.random.Generator, solve: str = "pair_quantiles") -> Pairs:
    """By the probabilities below them."""
    from test_gpu_prediction import on_card, problem

    door = importlib.import_module("maskerade_fast.backends.gpu.prediction")
    for h, n_points in [(1, 3), (7, 5), (33, 2)]:
        W, means, variances = problem(rng, h, n_points, spread=3.0)
        expected, levels = oracle.combine_gaussians(W, means, variances), rng.uniform(0.01, 0.99, (3, n_points))
        found = on_card(getattr(door, solve), W, means, variances, levels)
        yield np.array([expected.cdf(row) for row in found]), levels


def draws(rng: np.random.Generator) -> Pairs:
    """By interpolation, to 1e-7 of probability: counts for the kernels alone that nothing else launches."""
    return quantiles(rng, "pair_draws")


def joint_predictions(rng: np.random.Generator) -> Pairs:
    """In shared memory, and by the library where that is too small."""
    from test_gpu_prediction import covariances, on_card, problem

    door: Any = importlib.import_module("maskerade_fast.backends.gpu.prediction")
    for shared, (h, n) in itertools.product((232448, door._STATIC_SHARED), [(4, 1), (3, 9), (3, 40)]):
        fake_cupy.state.devices[0].shared_bytes = shared
        importlib.import_module("maskerade_fast.backends.gpu._loader")._limits_of.cache_clear()
        W, means, _ = problem(rng, h, n)
        C, y = covariances(rng, h, n), rng.normal(size=n)
        total, mean_sum, log_densities, _ = on_card(door.joint_pair_moments, W, means, C, y)
        logs = 0.5 * (log_densities - log_densities.max())
        log_density = log_densities.max() + np.log(np.exp(logs) @ W @ np.exp(logs)) - np.log(total)
        yield (log_density, mean_sum / total), oracle.combine_gaussians_joint(W, means, C, y)
