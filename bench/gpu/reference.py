"""The float64 NumPy oracle: straight formulas on the host for a part of a problem, large enough to tell.

Every function returns an error relative to the largest term of the sums involved, NaN where a value is not finite.
"""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np
from scipy.linalg import solve_triangular

from .problems import NOISE, Mixture, Pairs, Regression


def relative(got: Any, expected: Any, largest: float) -> float:
    """Largest difference by `largest`; NaN, not 0, where something is NaN."""
    return float(np.max(np.abs(np.asarray(got) - expected))) / largest


def cross(p: Any, v: Any, q: Any, u: Any) -> Any:
    """sum_ij v_i u_j |p_i - q_j| of all pairs of mixtures, (A, B)."""
    distances = np.sqrt(((p[:, None, :, None, :] - q[None, :, None, :, :]) ** 2).sum(-1))
    return np.einsum("ai,abij,bj->ab", v, distances, u)


def diagonal_terms(p: Any, v: Any) -> Any:
    """sum_ij v_i v_j |p_i - p_j| of each mixture with itself, (B,)."""
    distances = np.sqrt(((p[:, :, None, :] - p[:, None, :, :]) ** 2).sum(-1))
    return np.einsum("bi,bij,bj->b", v, distances, v)


def distance_part(problem: Pairs, size: int = 32) -> tuple[Any, Any, Any, Any]:
    """Rows and columns of the part that is checked, and the host copies of their mixtures."""
    rng = np.random.default_rng(0)
    rows, columns = (rng.permutation(len(w))[:size] for w in problem.weights)
    weights = [cupy.asnumpy(w) for w in problem.weights]
    points = [cupy.asnumpy(p) for p in problem.points]
    return rows, columns, weights, points


def distance_error(problem: Pairs, got: Any) -> float:
    rows, columns, weights, points = distance_part(problem)
    p, v, q, u = points[0][rows], weights[0][rows], points[1][columns], weights[1][columns]
    terms = cross(p, v, q, u)
    own = [diagonal_terms(p, v), diagonal_terms(q, u)]
    expected = np.maximum(terms - 0.5 * own[0][:, None] - 0.5 * own[1], 0.0)
    return relative(cupy.asnumpy(got)[np.ix_(rows, columns)], expected, float(terms.max()))


def distance_gradient_error(problem: Pairs, cotangent: Any, got: tuple[Any, Any]) -> float:
    """Against the formulas of the gradient for some mixtures of the left side and all of the right."""
    rows, _, weights, points = distance_part(problem, 4)
    n = weights[0].shape[1]
    worst = 0.0
    g_weights = cupy.asnumpy(got[0]).reshape(-1, n)
    g_points = cupy.asnumpy(got[1]).reshape(len(g_weights), n, -1)
    host = cupy.asnumpy(cotangent)
    for a in rows:
        p, v = points[0][a], weights[0][a]
        parts_w, parts_p = np.zeros(n), np.zeros_like(p)
        scale_w, scale_p = np.zeros(n), np.zeros_like(p)
        sides = [(points[1].reshape(-1, p.shape[1]), (host[a][:, None] * weights[1]).ravel()), (p, -host[a].sum() * v)]
        for q, u in sides:
            gaps = p[:, None, :] - q[None, :, :]
            r = np.sqrt((gaps**2).sum(-1))
            slopes = np.divide(gaps, r[:, :, None], out=np.zeros_like(gaps), where=r[:, :, None] > 0)
            terms_w, terms_p = u * r, v[:, None, None] * u[:, None] * slopes
            parts_w, parts_p = parts_w + terms_w.sum(1), parts_p + terms_p.sum(1)
            scale_w, scale_p = scale_w + np.abs(terms_w).sum(1), scale_p + np.abs(terms_p).sum(1)
        errors = [
            relative(g_weights[a], parts_w, float(scale_w.max())),
            relative(g_points[a], parts_p, float(scale_p.max())),
        ]
        worst = float(np.max([worst, *errors]))  # np.max keeps NaN
    return worst


def covariance(problem: Regression, b: int) -> tuple[Any, Any, Any, Any]:
    """C, and the host copies of x, w and (m, s) of mixture b."""
    w, m, s, x = (cupy.asnumpy(a) for a in (problem.w[b], problem.m[b], problem.s[b], problem.x))
    K = np.zeros((len(x), len(x)))
    step = max(1, 2**24 // len(x))
    for i in range(0, len(x), step):
        t = x[i : i + step, None] - x
        for j in range(len(w)):
            K[i : i + step] += w[j] * np.exp(-2 * np.pi**2 * s[j] ** 2 * t**2) * np.cos(2 * np.pi * m[j] * t)
    K[np.diag_indices_from(K)] = w.sum() + NOISE
    return K, x, w, (m, s)


def gram_error(problem: Regression, got: Any, count: int = 3) -> float:
    chosen = range(min(count, len(problem.w)))
    errors = []
    for b in chosen:
        K = covariance(problem, b)[0]
        errors.append(relative(cupy.asnumpy(got[b]), K, float(K.max())))
    return float(np.max(errors))


def likelihood_terms(problem: Regression, b: int) -> list[float]:
    """The three terms whose sum is the log-likelihood of mixture b."""
    L = np.linalg.cholesky(covariance(problem, b)[0])
    z = solve_triangular(L, cupy.asnumpy(problem.y), lower=True, check_finite=False)
    return [-0.5 * float(z @ z), -float(np.log(np.diagonal(L)).sum()), -0.5 * len(L) * math.log(2 * math.pi)]


def likelihood_error(value: Any, terms: list[list[float]]) -> float:
    """Of the first values, whose terms are given."""
    host = cupy.asnumpy(value)
    errors = [relative(host[b], sum(own), max(map(abs, own))) for b, own in enumerate(terms)]
    return float(np.max(errors))


def likelihood_gradient_error(problem: Regression, gradients: Any, count: int = 2) -> float:
    errors = []
    q = problem.w.shape[1]
    got = [cupy.asnumpy(g) for g in gradients]
    for b in range(min(count, len(problem.w))):
        K, x, w, (m, s) = covariance(problem, b)
        inverse = np.linalg.inv(K)
        alpha = np.linalg.solve(K, cupy.asnumpy(problem.y))
        G = 0.5 * (np.outer(alpha, alpha) - inverse)
        t = x[:, None] - x
        expected: list[list[float]] = [[], [], []]
        for j in range(q):
            envelope = np.exp(-2 * np.pi**2 * s[j] ** 2 * t**2)
            wave = envelope * np.cos(2 * np.pi * m[j] * t)
            expected[0].append((G * wave).sum())
            expected[1].append((G * (-2 * np.pi * w[j] * t * envelope * np.sin(2 * np.pi * m[j] * t))).sum())
            expected[2].append((G * (-4 * np.pi**2 * s[j] * w[j] * t**2 * wave)).sum())
        part = slice(b * q, (b + 1) * q)
        for own, right in zip((got[0][part], got[1][part, 0], got[2][part, 0]), expected, strict=True):
            errors.append(relative(own, np.array(right), float(np.abs(right).max())))
        errors.append(relative(got[3][b, 0], np.trace(G), abs(float(np.trace(G)))))
    return float(np.max(errors))


def moments_error(problem: Mixture, got: tuple[Any, Any, Any], points: int = 8) -> float:
    W = cupy.asnumpy(problem.pair_weights)
    means, variances = (cupy.asnumpy(a)[:, :points] for a in (problem.means, problem.variances))
    errors = []
    for k in range(means.shape[1]):
        m, l = means[:, k], 1.0 / variances[:, k]
        ls, ll = l[:, None] + l, l[:, None] * l
        Z = W * np.sqrt(2.0 / ls) * ll**0.25 * np.exp(-ll * (m[:, None] - m) ** 2 / (4 * ls))
        total = Z.sum()
        centre = ((l * m)[:, None] + l * m) / ls
        mean = (Z * centre).sum() / total
        variance = (Z * ((centre - mean) ** 2 + 2.0 / ls)).sum() / total
        scale = float(np.abs(Z).sum())
        errors.append(relative(cupy.asnumpy(got[0])[k], total, scale))
        grown = scale / abs(float(total))
        errors.append(relative(cupy.asnumpy(got[1])[k], mean, grown * float(np.abs(m).max())))
        errors.append(relative(cupy.asnumpy(got[2])[k], variance, grown * float((m**2 + 2.0 / l).max())))
    return float(np.max(errors))
