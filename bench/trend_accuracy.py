"""Errors of log-likelihoods with a trend on a regular grid, Toeplitz and dense, against 40 digits.

    python bench/trend_accuracy.py [--golden tests/golden/toeplitz_trend.json]     # needs mpmath; half a minute

Months of the airline series, standardised, under three waves and under one smooth bump, with a constant and a line of
sd 1, 10 and 1000. The reference is a Cholesky factorisation of the whole covariance, trend and all, with mpmath.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

from maskerade_fast import GMMBatch, log_likelihood

ROOT = Path(__file__).parents[1]
MIXTURES = {
    "waves": ([0.5, 0.3, 0.2], [0.0, 1 / 12, 2 / 12], [0.004, 0.003, 0.002]),
    "smooth": ([1.0], [0.0], [0.01]),
}
NOISES = (1e-2, 1e-4, 1e-6)
WIDTHS = (1.0, 10.0, 1000.0)
TOLERANCES = {1e-2: 1e-12, 1e-4: 1e-11, 1e-6: 1e-9}  # of golden cases, relative


def reference(weights: Any, means: Any, scales: Any, y: Any, noise: float, basis: Any) -> Any:
    """Log-likelihood on the grid 0, 1, 2, ..., by plain Cholesky."""
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
                value = float(reference(*MIXTURES[name], y, noise, basis))
                case |= {"tolerance": TOLERANCES[noise], "log_likelihood": value}
                cases.append(case | {"y": y.tolist(), "basis": basis.tolist()})
    path.write_text(json.dumps(cases) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors of log-likelihoods with a trend.")
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--golden", type=Path, help="write the cases of the test suite, and no table")
    args = parser.parse_args()
    mp.mp.dps = 40
    if args.golden:
        write_golden(args.golden)
        return
    print("| mixture | noise | sd | log-likelihood | error: Toeplitz | dense |")
    print("| --- | --: | --: | --: | --: | --: |")
    y, x = months(args.points), np.arange(args.points) * 1.0
    for name in MIXTURES:
        for noise in NOISES:
            for width in WIDTHS:
                basis = line(args.points, width)
                exact = reference(*MIXTURES[name], y, noise, basis)
                values = [
                    log_likelihood(batch(name), x, y, noise, basis=basis, structure=s).value[0]
                    for s in ("toeplitz", "dense")
                ]
                errors = " | ".join(f"{float(abs(mp.mpf(float(value)) - exact)):.0e}" for value in values)
                print(f"| {name} | {noise:.0e} | {width:g} | {float(exact):.2f} | {errors} |", flush=True)


if __name__ == "__main__":
    main()
