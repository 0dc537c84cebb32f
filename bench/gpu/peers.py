"""What a user of CuPy would write instead: broadcasting arrays, one fused ElementwiseKernel with cuSOLVER, GPyTorch.

All work on the arrays of `problems` and return what the backend returns: the same reference checks each.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable
from typing import Any

import cupy
from cupyx.scipy.linalg import solve_triangular

from .problems import NOISE, Mixture, Pairs, Regression

CHUNK = 2**30  # bytes of one temporary array
# Points up to which cuSOLVER's routine for batches is taken. On an H100 the likelihoods of 100 matrices of 1,503 points
# take 193 ms with one factorisation after another and 58 ms with it; of 4 matrices of 10,000 points 131 ms and 749 ms.
BATCHED = 4000


# ---- distances ----


def self_terms(weights: Any, points: Any) -> Any:
    gaps = points[:, :, None, :] - points[:, None, :, :]
    return cupy.einsum("bi,bij,bj->b", weights, cupy.sqrt((gaps * gaps).sum(-1)), weights)


def plain_distance(problem: Pairs, own: tuple[Any, Any]) -> Any:
    (w, v), (p, q) = problem.weights, problem.points
    out = cupy.empty((len(w), len(v)))
    rows = max(1, CHUNK // (8 * len(v) * w.shape[1] * v.shape[1] * p.shape[2]))
    for i in range(0, len(w), rows):
        gaps = p[i : i + rows, None, :, None, :] - q[None, :, None, :, :]
        distances = cupy.sqrt((gaps * gaps).sum(-1))
        both = w[i : i + rows, None, :, None] * v[None, :, None, :]
        terms = (both * distances).sum((2, 3))
        out[i : i + rows] = cupy.maximum(terms - 0.5 * own[0][i : i + rows, None] - 0.5 * own[1], 0.0)
    return out


_DISTANCE = cupy.ElementwiseKernel(
    "raw float64 w, raw float64 p, raw float64 v, raw float64 q, raw float64 own_w, raw float64 own_v, int32 n_terms, "
    "int32 n_coordinates, int64 n_right",
    "float64 out",
    """
    const long long a = i / n_right;
    const long long b = i - a * n_right;
    double total = 0.0;
    for (int k = 0; k < n_terms; ++k) {
        double row = 0.0;
        for (int l = 0; l < n_terms; ++l) {
            double squares = 0.0;
            for (int c = 0; c < n_coordinates; ++c) {
                const double gap = p[(a * n_terms + k) * n_coordinates + c] - q[(b * n_terms + l) * n_coordinates + c];
                squares += gap * gap;
            }
            row += v[b * n_terms + l] * sqrt(squares);
        }
        total += w[a * n_terms + k] * row;
    }
    out = fmax(total - 0.5 * own_w[a] - 0.5 * own_v[b], 0.0);
    """,
    "fused_distance",
)


def fused_distance(problem: Pairs, own: tuple[Any, Any]) -> Any:
    (w, v), (p, q) = problem.weights, problem.points
    out = cupy.empty((len(w), len(v)))
    return _DISTANCE(w, p, v, q, *own, w.shape[1], p.shape[2], len(v), out)


# ---- Gram matrices, likelihoods, gradients ----


def plain_gram(problem: Regression, start: int, stop: int) -> Any:
    x = problem.x
    t = x[:, None] - x
    K = cupy.zeros((stop - start, len(x), len(x)))
    for j in range(problem.w.shape[1]):
        w, m, s = (a[start:stop, j, None, None] for a in (problem.w, problem.m, problem.s))
        K += w * cupy.exp(-2 * math.pi**2 * s * s * (t * t)) * cupy.cos(2 * math.pi * m * t)
    diagonal = cupy.arange(len(x))
    K[:, diagonal, diagonal] += NOISE
    return K


_GRAM = cupy.ElementwiseKernel(
    "raw float64 w, raw float64 m, raw float64 s, raw float64 x, int32 n_terms, int64 n_points, float64 noise",
    "float64 out",
    """
    const long long row = i / n_points;
    const long long b = row / n_points;
    const double t = x[row - b * n_points] - x[i - row * n_points];
    double total = row - b * n_points == i - row * n_points ? noise : 0.0;
    for (int k = 0; k < n_terms; ++k) {
        const double a = s[b * n_terms + k] * t;
        total += w[b * n_terms + k] * exp(-19.739208802178716 * a * a) * cospi(2.0 * m[b * n_terms + k] * t);
    }
    out = total;
    """,
    "fused_gram",
)


def fused_gram(problem: Regression, start: int, stop: int) -> Any:
    w, m, s = (a[start:stop] for a in (problem.w, problem.m, problem.s))
    out = cupy.empty((stop - start, len(problem.x), len(problem.x)))
    return _GRAM(w, m, s, problem.x, w.shape[1], len(problem.x), NOISE, out)


def factors(K: Any, *, best: bool) -> Any:
    """Cholesky factors as `cupy.linalg.cholesky` makes them, or the faster of its two ways."""
    if best and K.shape[1] > BATCHED:
        for b in range(len(K)):
            K[b] = cupy.linalg.cholesky(K[b])
        return K
    return cupy.linalg.cholesky(K)


def solved(L: Any, right: Any) -> Any:
    """L^-1 right for a batch: one by one before CuPy 14, which has no routine for batches."""
    if not cupy.__version__.startswith("13."):
        return solve_triangular(L, right, lower=True)
    return cupy.stack([solve_triangular(L[b], right[b], lower=True) for b in range(len(L))])


def likelihoods(problem: Regression, gram: Any, *, best: bool) -> Any:
    """Values (B,) of the Gram matrices that `gram` makes, in chunks."""
    n_points, n_mixtures = len(problem.x), len(problem.w)
    value = cupy.empty(n_mixtures)
    step = max(1, CHUNK // (8 * n_points * n_points))
    for start in range(0, n_mixtures, step):
        stop = min(start + step, n_mixtures)
        L = factors(gram(problem, start, stop), best=best)
        y = cupy.ascontiguousarray(cupy.broadcast_to(problem.y[:, None], (stop - start, n_points, 1)))
        z = solved(L, y)
        logs = cupy.log(cupy.diagonal(L, axis1=1, axis2=2)).sum(1)
        value[start:stop] = -0.5 * (z * z).sum((1, 2)) - logs - 0.5 * n_points * math.log(2 * math.pi)
    return value


def plain_likelihood(problem: Regression) -> Any:
    return likelihoods(problem, plain_gram, best=False)


def fused_likelihood(problem: Regression) -> Any:
    return likelihoods(problem, fused_gram, best=True)


def weights_of_pairs(problem: Regression, K: Any) -> Any:
    """G = (alpha alpha' - C^-1) / 2, by the inverse factor."""
    n_points = len(problem.x)
    L = factors(K, best=True)
    identity = cupy.ascontiguousarray(cupy.broadcast_to(cupy.eye(n_points), L.shape))
    W = solved(L, identity)
    inverse = cupy.matmul(cupy.swapaxes(W, 1, 2), W)
    alpha = cupy.matmul(inverse, problem.y)
    return 0.5 * (alpha[:, :, None] * alpha[:, None, :] - inverse)


def plain_gradient(problem: Regression) -> list[Any]:
    """d weights (J,), d means (J, 1), d scales (J, 1), d noise (B, 1)."""
    x = problem.x
    t = x[:, None] - x
    G = weights_of_pairs(problem, plain_gram(problem, 0, len(problem.w)))
    out = [cupy.empty(problem.w.shape) for _ in range(3)]
    for j in range(problem.w.shape[1]):
        w, m, s = (a[:, j, None, None] for a in (problem.w, problem.m, problem.s))
        envelope = G * cupy.exp(-2 * math.pi**2 * s * s * (t * t))
        wave = envelope * cupy.cos(2 * math.pi * m * t)
        out[0][:, j] = wave.sum((1, 2))
        out[1][:, j] = (-2 * math.pi * w * t * envelope * cupy.sin(2 * math.pi * m * t)).sum((1, 2))
        out[2][:, j] = (-4 * math.pi**2 * s * w * (t * t) * wave).sum((1, 2))
    return packed(out, G)


_GRADIENT = cupy.ElementwiseKernel(
    "raw float64 g, raw float64 w, raw float64 m, raw float64 s, raw float64 x, int32 n_terms, int64 n_points",
    "float64 d_w, float64 d_m, float64 d_s",
    """
    const long long component = i / n_points;
    const long long row = i - component * n_points;
    const double* const pairs = &g[(component / n_terms * n_points + row) * n_points];
    double sums[3] = {0.0, 0.0, 0.0};
    for (long long j = 0; j < n_points; ++j) {
        const double t = x[row] - x[j];
        const double a = s[component] * t;
        const double envelope = pairs[j] * exp(-19.739208802178716 * a * a);
        double sine;
        double cosine;
        sincospi(2.0 * m[component] * t, &sine, &cosine);
        sums[0] += envelope * cosine;
        sums[1] += envelope * sine * t;
        sums[2] += envelope * cosine * t * t;
    }
    d_w = sums[0];
    d_m = -6.283185307179586 * w[component] * sums[1];
    d_s = -39.47841760435743 * s[component] * w[component] * sums[2];
    """,
    "fused_gradient",
)


def fused_gradient(problem: Regression) -> list[Any]:
    count, n = problem.w.shape
    n_points = len(problem.x)
    G = weights_of_pairs(problem, fused_gram(problem, 0, count))
    out = [cupy.empty((count, n, n_points)) for _ in range(3)]
    _GRADIENT(G, problem.w, problem.m, problem.s, problem.x, n, n_points, *out)
    return packed([a.sum(2) for a in out], G)


def packed(sums: list[Any], G: Any) -> list[Any]:
    trace = cupy.diagonal(G, axis1=1, axis2=2).sum(1)
    return [sums[0].ravel(), sums[1].reshape(-1, 1), sums[2].reshape(-1, 1), trace[:, None]]


# ---- the predictive mixture ----


def plain_moments(problem: Mixture) -> tuple[Any, Any, Any]:
    m, l = problem.means.T, 1.0 / problem.variances.T
    ls, ll = l[:, :, None] + l[:, None, :], l[:, :, None] * l[:, None, :]
    gaps = m[:, :, None] - m[:, None, :]
    Z = problem.pair_weights * cupy.sqrt(2.0 / ls) * cupy.sqrt(cupy.sqrt(ll)) * cupy.exp(-ll * gaps * gaps / (4 * ls))
    total = Z.sum((1, 2))
    centre = ((l * m)[:, :, None] + (l * m)[:, None, :]) / ls
    mean = (Z * centre).sum((1, 2)) / total
    rest = centre - mean[:, None, None]
    return total, mean, (Z * (rest * rest + 2.0 / ls)).sum((1, 2)) / total


_MOMENTS = cupy.ElementwiseKernel(
    "raw float64 pair_weights, raw float64 means, raw float64 variances, int64 h, int64 n_points",
    "float64 z, float64 first, float64 second",
    """
    const long long point = i / h;
    const long long row = i - point * h;
    const double m1 = means[row * n_points + point];
    const double l1 = 1.0 / variances[row * n_points + point];
    const double reference = means[point];
    double sums[3] = {0.0, 0.0, 0.0};
    for (long long j = 0; j < h; ++j) {
        const double m2 = means[j * n_points + point];
        const double l2 = 1.0 / variances[j * n_points + point];
        const double inverse = 1.0 / (l1 + l2);
        const double gap = m1 - m2;
        const double value = pair_weights[row * h + j] * sqrt(2.0 * inverse * sqrt(l1 * l2)) *
                             exp(-0.25 * l1 * l2 * inverse * gap * gap);
        const double centre = (l1 * m1 + l2 * m2) * inverse - reference;
        sums[0] += value;
        sums[1] += value * centre;
        sums[2] += value * (centre * centre + 2.0 * inverse);
    }
    z = sums[0];
    first = sums[1];
    second = sums[2];
    """,
    "fused_moments",
)


def fused_moments(problem: Mixture) -> tuple[Any, Any, Any]:
    h, n_points = problem.means.shape
    out = [cupy.empty((n_points, h)) for _ in range(3)]
    _MOMENTS(*problem, h, n_points, *out)
    total, first, second = (a.sum(1) for a in out)
    shift = first / total
    return total, problem.means[0] + shift, second / total - shift * shift


# ---- GPyTorch ----


def has_gpytorch() -> bool:
    """Return whether both packages are installed; importing torch to ask for its card would take seconds."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "gpytorch"))


def gpytorch_likelihood(problem: Regression, *, grad: bool) -> Callable[[], Any]:
    """Return a call of the likelihoods by dense Cholesky factors in float64 on the card; the first imports torch."""

    @functools.cache
    def made() -> Callable[[], Any]:
        from bench.micro.peers import gpytorch_likelihood
        from maskerade_fast import GMMBatch

        offsets, *arrays, X, y, _ = problem.backend_arguments()
        host = [cupy.asnumpy(array) for array in (*arrays, X, y)]
        batch = GMMBatch(offsets, *host[:3])
        return gpytorch_likelihood(batch, *host[3:], grad=grad, device="cuda", result=cupy.asarray)

    return lambda: made()()
