"""Errors of the dense and the Toeplitz path on regular grids, against Levinson's recursion with 64-bit mantissas.

    python bench/grid_accuracy.py [N ...]        # default 500 2000; 7779 takes minutes

Targets are a random walk with noise, standardised; mixtures from one broad bump over the whole series (a condition
number of N / noise) to hardly any correlation. Errors are relative: of the value, and of the largest entry of the
gradient in weights, means, scales and noise.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import problems

from maskerade_fast import GMMBatch, log_likelihood

LD = np.longdouble
PI = LD("3.14159265358979323846264338327950288")
NOISES = (1e-6, 1e-3, 1.0)


def mixtures(N: int) -> dict[str, GMMBatch]:
    parts: dict[str, tuple[Any, Any, Any]] = {
        "smooth": ([1.0], [[0.0]], [[2.0 / N]]),
        "mixed": ([0.7, 0.2, 0.1], [[0.0], [5.3 / N], [0.2]], [[20.0 / N], [3.0 / N], [0.05]]),
        "rough": ([1.0], [[0.0]], [[0.2]]),
    }
    return {name: GMMBatch.from_list([part]) for name, part in parts.items()}


def reference(g: GMMBatch, y: Any, noise: float) -> tuple[Any, Any]:
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
    """Of the value; the largest of the gradient's parts, each relative to its largest entry."""
    given = [result.grad.weights, result.grad.means[:, 0], result.grad.scales[:, 0], result.grad.noise_variance]
    scales = [abs(part).max() for part in gradient]
    parts = [abs(a - b).max() / s for a, b, s in zip(given, gradient, scales, strict=True) if s > 0]
    return float(abs((result.value[0] - value) / value)), float(max(parts))


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors of likelihoods on regular grids.")
    parser.add_argument("sizes", nargs="*", type=int, default=[500, 2000], metavar="N")
    sizes = parser.parse_args().sizes
    if np.finfo(LD).nmant < 63:
        raise SystemExit("this machine's long double has no 64-bit mantissa")
    print("| N | mixture | noise | value: Toeplitz | dense | apart | gradient: Toeplitz | dense |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for N in sizes:
        _, X, y = problems.series(N, 1)
        for name, g in mixtures(N).items():
            for noise in NOISES:
                value, gradient = reference(g, y, noise)
                fast, dense = (
                    log_likelihood(g, X, y, noise, grad=True, structure=structure)
                    for structure in ("toeplitz", "dense")
                )
                (a, b), (c, d) = errors(fast, value, gradient), errors(dense, value, gradient)
                apart = float(abs(fast.value[0] / dense.value[0] - 1))
                row = " | ".join(f"{e:.0e}" for e in (noise, a, c, apart, b, d))
                print(f"| {N} | {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
