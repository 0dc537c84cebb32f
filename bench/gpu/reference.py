"""Errors of results on the card, against formulas in float64 on the host.

``tests/oracle`` gives the expected values of distances, Gram matrices and predictive mixtures. Its loops take 25 us a
pair of points, hence a minute for one matrix of 1,503 points: likelihoods and their gradients have NumPy's formulas
here. Every error is relative to the largest term of the sums involved, and NaN where a value is not finite.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import cupy
import numpy as np
from scipy.linalg import solve_triangular

from bench import ROOT
from maskerade_fast.backends import to_host

from .problems import NOISE, Mixture, Pairs, Regression

sys.path.append(str(ROOT / "tests"))

import oracle

Mixtures = list[tuple[Any, Any, Any]]


def relative(got: Any, expected: Any, largest: Any) -> float:
    """Return the largest difference over `largest`; NaN, not 0, where something is NaN."""
    return float(np.max(np.abs(to_host(got) - expected))) / float(np.max(np.abs(largest)))


def mixtures(problem: Pairs, side: int, chosen: Any) -> Mixtures:
    """Return weights, means and scales of some mixtures, on the host."""
    weights, points = (cupy.asnumpy(arrays[side])[chosen] for arrays in problem)
    D = problem.n_axes
    return [(w, p[:, :D], p[:, D:]) for w, p in zip(weights, points, strict=True)]


def distance_error(problem: Pairs, got: Any, size: int = 24) -> float:
    """Return the error of a random part of the matrix; its largest distance is a fair size of the terms."""
    rng = np.random.default_rng(0)
    rows, columns = (rng.permutation(len(w))[:size] for w in problem.weights)
    expected = oracle.energy_distance(mixtures(problem, 0, rows), mixtures(problem, 1, columns))
    return relative(cupy.asnumpy(got)[np.ix_(rows, columns)], expected, expected)


def distance_gradient_error(problem: Pairs, cotangent: Any, got: tuple[Any, Any]) -> float:
    """Return the error of the gradients of two mixtures on the left against all on the right: 2 s for a thousand."""
    rows, n = [0, len(problem.weights[0]) - 1], problem.weights[0].shape[1]
    right = mixtures(problem, 1, slice(None))
    expected = oracle.energy_distance_vjp(mixtures(problem, 0, rows), right, cupy.asnumpy(cotangent)[rows])
    g_weights = cupy.asnumpy(got[0]).reshape(-1, n)[rows].ravel()
    g_points = cupy.asnumpy(got[1]).reshape(-1, n, 2 * problem.n_axes)[rows].reshape(2 * n, -1)
    points = np.concatenate(expected[1:], axis=1)
    return float(np.max([relative(g_weights, expected[0], expected[0]), relative(g_points, points, points)]))


def covariance(problem: Regression, b: int) -> tuple[Any, Any, Any]:
    """Return C of mixture b, and x and the columns w, m, s of the mixture on the host."""
    w, m, s, x = (cupy.asnumpy(a) for a in (problem.w[b], problem.m[b], problem.s[b], problem.x))
    K = np.zeros((len(x), len(x)))
    step = max(1, 2**24 // len(x))
    for i in range(0, len(x), step):
        t = x[i : i + step, None] - x
        for j in range(len(w)):
            K[i : i + step] += w[j] * np.exp(-2 * np.pi**2 * s[j] ** 2 * t**2) * np.cos(2 * np.pi * m[j] * t)
    K[np.diag_indices_from(K)] = w.sum() + NOISE
    return K, x, (w, m, s)


def gram_error(problem: Regression, got: Any, count: int = 3) -> float:
    expected = [covariance(problem, b)[0] for b in range(min(count, len(problem.w)))]
    return float(np.max([relative(got[b], K, K) for b, K in enumerate(expected)]))


def likelihood_terms(problem: Regression, b: int) -> list[float]:
    """Return the three terms whose sum is the log-likelihood of mixture b."""
    L = np.linalg.cholesky(covariance(problem, b)[0])
    z = solve_triangular(L, cupy.asnumpy(problem.y), lower=True, check_finite=False)
    return [-0.5 * float(z @ z), -float(np.log(np.diagonal(L)).sum()), -0.5 * len(L) * math.log(2 * math.pi)]


def likelihood_error(value: Any, terms: list[list[float]]) -> float:
    """Return the error of the first values, by the terms of each."""
    host = cupy.asnumpy(value)
    return float(np.max([relative(host[b], sum(own), own) for b, own in enumerate(terms)]))


def likelihood_gradient_error(problem: Regression, gradients: Any, count: int = 2) -> float:
    errors = []
    q = problem.w.shape[1]
    got = [cupy.asnumpy(g) for g in gradients]
    for b in range(min(count, len(problem.w))):
        K, x, parameters = covariance(problem, b)
        alpha = np.linalg.solve(K, cupy.asnumpy(problem.y))
        G = 0.5 * (np.outer(alpha, alpha) - np.linalg.inv(K))
        t = x[:, None] - x
        expected = []
        for w, m, s in zip(*parameters, strict=True):
            envelope = G * np.exp(-2 * np.pi**2 * s**2 * t**2)
            wave = envelope * np.cos(2 * np.pi * m * t)
            slope = -2 * np.pi * w * t * envelope * np.sin(2 * np.pi * m * t)
            expected.append([wave.sum(), slope.sum(), (-4 * np.pi**2 * s * w * t**2 * wave).sum()])
        part = slice(b * q, (b + 1) * q)
        for own, right in zip((got[0][part], got[1][part, 0], got[2][part, 0]), np.transpose(expected), strict=True):
            errors.append(relative(own, right, right))
        errors.append(relative(got[3][b, 0], np.trace(G), np.trace(G)))
    return float(np.max(errors))


def moments_of(problem: Mixture, points: int = 3) -> Any:
    """Return the oracle's mixture at the first points, which takes 0.3 s a point of 300 Gaussians."""
    means, variances = (cupy.asnumpy(a)[:, :points] for a in (problem.means, problem.variances))
    return oracle.combine_gaussians(cupy.asnumpy(problem.pair_weights), means, variances)


def moments_error(problem: Mixture, got: tuple[Any, Any, Any], expected: Any) -> float:
    """Return the error of the sum of all pairs' weights, the mean and the variance at each point of `expected`."""
    total = cupy.asnumpy(problem.pair_weights)[0, 0] / expected.shares[0]  # a Gaussian overlaps itself by 1
    grown = np.abs(expected.shares).sum(axis=0)
    largest = [grown * total, grown * np.abs(expected.means), grown * (expected.means**2 + expected.variances)]
    values = zip(got, (total, expected.mean, expected.variance), largest, strict=True)
    count = len(total)
    return float(np.max([relative(own[:count], right, scale) for own, right, scale in values]))
