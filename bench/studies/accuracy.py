"""Errors of likelihoods on regular grids, by the Toeplitz and the dense path, against more digits.

    python -m bench.studies.accuracy grid [N ...]      # default 500 2000; 7779 takes minutes
    python -m bench.studies.accuracy trend [N]         # default 100: half a minute; needs mpmath
    python -m bench.studies.accuracy trend --golden tests/golden/toeplitz_trend.json     # the cases of the test suite

``grid``: relative errors of the value, and of the gradient in weights, means, scales and noise (of its largest entry),
against Levinson's recursion with 64-bit mantissas. Targets are a random walk with noise, standardised; mixtures go from
one broad bump over the whole series (a condition number of N / noise) to hardly any correlation.

``trend``: errors of log-likelihoods with a constant and a line of sd 1, 10 and 1000, on months of the airline series
under three waves and one smooth bump, against a Cholesky factorisation of the whole covariance with 40 digits.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from bench import ROOT
from bench.micro import problems
from maskerade_fast import GMMBatch, log_likelihood

LD = np.longdouble
PI = LD("3.14159265358979323846264338327950288")
GRID_NOISES = (1e-6, 1e-3, 1.0)
MIXTURES = {
    "waves": ([0.5, 0.3, 0.2], [0.0, 1 / 12, 2 / 12], [0.004, 0.003, 0.002]),
    "smooth": ([1.0], [0.0], [0.01]),
}
NOISES = (1e-2, 1e-4, 1e-6)
WIDTHS = (1.0, 10.0, 1000.0)
TOLERANCES = {1e-2: 1e-12, 1e-4: 1e-11, 1e-6: 1e-9}  # of golden cases, relative


# ---- without a trend ----


def mixtures(N: int) -> dict[str, GMMBatch]:
    parts: dict[str, tuple[Any, Any, Any]] = {
        "smooth": ([1.0], [[0.0]], [[2.0 / N]]),
        "mixed": ([0.7, 0.2, 0.1], [[0.0], [5.3 / N], [0.2]], [[20.0 / N], [3.0 / N], [0.05]]),
        "rough": ([1.0], [[0.0]], [[0.2]]),
    }
    return {name: GMMBatch.from_list([part]) for name, part in parts.items()}


def levinson(g: GMMBatch, y: Any, noise: float) -> tuple[Any, Any]:
    """Value, and gradient (weights, means, scales, noise in one row), on the grid 0, 1, 2, ..."""
    N = len(y)
    lags, waves = np.arange(N).astype(LD), []
    for m, s in zip(g.means[:, 0], g.scales[:, 0], strict=True):
        phase = LD(m) * lags
        phase -= np.rint(phase)
        envelope = np.exp(-2 * PI**2 * LD(s) ** 2 * lags**2)
        waves.append((envelope * np.cos(2 * PI * phase), envelope * np.sin(2 * PI * phase)))
    c = sum(LD(w) * even for w, (even, _) in zip(g.weights, waves, strict=True))
    c[0] += LD(noise)
    a, alpha, targets = np.zeros(N, LD), np.zeros(N, LD), y.astype(LD)
    a[0], v, alpha[0] = 1, c[0], targets[0] / c[0]
    half = (targets[0] ** 2 / v + np.log(v)) / 2
    for k in range(1, N):
        gamma = -np.dot(a[:k], c[k:0:-1]) / v
        a[: k + 1] += gamma * a[: k + 1][::-1].copy()
        v *= 1 - gamma * gamma
        left = targets[k] - np.dot(alpha[:k], c[k:0:-1])
        alpha[: k + 1] += left / v * a[: k + 1][::-1]
        half += (left**2 / v + np.log(v)) / 2
    weighted = (N - 2 * lags) * a / v
    sums = np.empty(N, LD)
    for d in range(N):
        own = np.dot(weighted[: N - d], a[d:]) - d * np.dot(a[: N - d], a[d:]) / v
        sums[d] = (np.dot(alpha[: N - d], alpha[d:]) - own) / 2
    twice = 2 * sums
    twice[0] = 0
    d_w = [sums[0] + np.dot(twice, even) for even, _ in waves]
    d_m = [-2 * PI * LD(w) * np.dot(twice * lags, odd) for w, (_, odd) in zip(g.weights, waves, strict=True)]
    d_s = [
        -4 * PI**2 * LD(w) * LD(s) * np.dot(twice * lags**2, even)
        for w, s, (even, _) in zip(g.weights, g.scales[:, 0], waves, strict=True)
    ]
    return -half - LD(N) / 2 * np.log(2 * PI), [np.array(part) for part in (d_w, d_m, d_s, [sums[0]])]


def errors(result: Any, value: Any, gradient: Any) -> tuple[float, float]:
    """Return the relative error of the value, and the largest of the gradient's parts, each by its largest entry."""
    ours = [result.grad.weights, result.grad.means[:, 0], result.grad.scales[:, 0], result.grad.noise_variance]
    scales = [abs(part).max() for part in gradient]
    parts = [abs(a - b).max() / s for a, b, s in zip(ours, gradient, scales, strict=True) if s > 0]
    return float(abs((result.value[0] - value) / value)), float(max(parts))


def grid(sizes: list[int]) -> None:
    if np.finfo(LD).nmant < 63:
        raise SystemExit("this machine's long double has no 64-bit mantissa")
    print("| N | mixture | noise | value: Toeplitz | dense | apart | gradient: Toeplitz | dense |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for N in sizes:
        _, X, y = problems.series(N, 1)
        for name, g in mixtures(N).items():
            for noise in GRID_NOISES:
                value, gradient = levinson(g, y, noise)
                fast, dense = (log_likelihood(g, X, y, noise, grad=True, structure=s) for s in ("toeplitz", "dense"))
                (a, b), (c, d) = errors(fast, value, gradient), errors(dense, value, gradient)
                apart = float(abs(fast.value[0] / dense.value[0] - 1))
                row = " | ".join(f"{e:.0e}" for e in (noise, a, c, apart, b, d))
                print(f"| {N} | {name} | {row} |", flush=True)


# ---- with a trend ----


def cholesky(weights: Any, means: Any, scales: Any, y: Any, noise: float, basis: Any) -> Any:
    """Log-likelihood on the grid 0, 1, 2, ..., by plain Cholesky."""
    import mpmath as mp

    mp.mp.dps = 40
    n = len(y)
    parts = [tuple(map(mp.mpf, part)) for part in zip(weights, means, scales, strict=True)]
    kernel = [
        sum(w * mp.exp(-2 * (mp.pi * s * d) ** 2) * mp.cos(2 * mp.pi * m * d) for w, m, s in parts) for d in range(n)
    ]
    functions = [[mp.mpf(float(value)) for value in row] for row in basis]
    lower: list[list[Any]] = [[mp.mpf(0)] * n for _ in range(n)]
    half = mp.mpf(n) / 2 * mp.log(2 * mp.pi)
    whitened: list[Any] = []
    for i in range(n):
        for j in range(i + 1):
            entry = kernel[i - j] + mp.fdot(functions[i], functions[j]) + (mp.mpf(noise) if i == j else 0)
            entry -= mp.fdot(lower[i][:j], lower[j][:j])
            lower[i][j] = mp.sqrt(entry) if i == j else entry / lower[j][j]
        whitened.append((mp.mpf(float(y[i])) - mp.fdot(lower[i][:i], whitened)) / lower[i][i])
        half += whitened[i] ** 2 / 2 + mp.log(lower[i][i])
    return -half


def line(n: int, width: float) -> np.ndarray:
    """A constant and a line, as `trend_basis` has them."""
    return width * np.stack([np.ones(n), np.sqrt(12.0) * (np.arange(n) / (n - 1) - 0.5)], axis=1)


def months(n: int) -> np.ndarray:
    """Standardised targets, rounded to 6 decimals."""
    y = np.loadtxt(ROOT / "examples" / "airline.csv", delimiter=",", skiprows=1)[:n, 1]
    return np.round((y - y.mean()) / y.std(), 6)


def batch(name: str) -> GMMBatch:
    weights, means, scales = (np.array(part) for part in MIXTURES[name])
    return GMMBatch.from_list([(weights, means[:, None], scales[:, None])])


def write_golden(path: Path) -> None:
    cases = []
    for name in MIXTURES:
        for noise in NOISES:
            for width in (WIDTHS[0], WIDTHS[-1]):
                y, basis = months(48), line(48, width)
                weights, means, scales = MIXTURES[name]
                case = {"weights": weights, "means": means, "scales": scales, "sd": width, "noise": noise}
                value = float(cholesky(*MIXTURES[name], y, noise, basis))
                case |= {"tolerance": TOLERANCES[noise], "log_likelihood": value}
                cases.append(case | {"y": y.tolist(), "basis": basis.tolist()})
    path.write_text(json.dumps(cases) + "\n", encoding="utf-8")


def trend(n_points: int) -> None:
    print("| mixture | noise | sd | log-likelihood | error: Toeplitz | dense |")
    print("| --- | --: | --: | --: | --: | --: |")
    y, x = months(n_points), np.arange(n_points) * 1.0
    for name in MIXTURES:
        for noise in NOISES:
            for width in WIDTHS:
                basis = line(n_points, width)
                exact = cholesky(*MIXTURES[name], y, noise, basis)
                values = [
                    log_likelihood(batch(name), x, y, noise, basis=basis, structure=s).value[0]
                    for s in ("toeplitz", "dense")
                ]
                apart = " | ".join(f"{float(abs(type(exact)(float(value)) - exact)):.0e}" for value in values)
                print(f"| {name} | {noise:.0e} | {width:g} | {float(exact):.2f} | {apart} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors of likelihoods on regular grids.")
    parser.add_argument("what", choices=["grid", "trend"])
    parser.add_argument("sizes", nargs="*", type=int, metavar="N")
    parser.add_argument("--golden", type=Path, help="write the cases of the test suite, and no table")
    args = parser.parse_args()
    if args.golden:
        write_golden(args.golden)
    elif args.what == "grid":
        grid(args.sizes or [500, 2000])
    else:
        trend(*args.sizes or [100])


if __name__ == "__main__":
    main()
