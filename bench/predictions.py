"""Held-out rows of real data: RMSE, joint log density and coverage of `marginalise`, beside the best single kernels.

    python bench/predictions.py --data-dir DIR [--splits 3] [--budget 2500] [--components 2] [--map] [--ml] [SET ...]

Sets are CSV files of DIR (default: the folder MASKERADE_DATA names), target in the last column: yacht, autompg,
concrete, airfoil by default. A split holds out a tenth of the rows at random; splits are numbered, the same for every
run. With --last it holds out the last tenth, and the number is the run's seed alone. RMSE is in the target's units, the
log density that of all held-out targets together, and a row that of each by itself, standardised by the training
targets as the log evidence is. Coverage is that of calibrated intervals, with --last of the model's own.

    python bench/predictions.py --data-dir DIR --trend none constant linear --budget 500 --components 5 --last airline
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from baselines import map_kernel
from scipy.stats import multivariate_normal

import maskerade_fast as mf
from maskerade_fast.data import RegressionData, Standardiser
from maskerade_fast.target import Target
from maskerade_fast.trend import TRENDS

SETS = ("yacht", "autompg", "concrete", "airfoil")


def split(path: Path, seed: int, last: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows: X, y, X_test, y_test; a tenth at random, or the last tenth."""
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    order = np.arange(len(table))[::-1] if last else np.random.default_rng(seed).permutation(len(table))
    count = int(np.ceil(0.1 * len(table)))
    test, train = table[order[:count]], table[order[count:]]
    return train[:, :-1], train[:, -1], test[:, :-1], test[:, -1]


class Baseline(NamedTuple):
    """A single kernel's predictions: RMSE in the target's units, joint log density of standardised targets."""

    rmse: float
    log_density: float
    seconds: float


def single_kernel(
    X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray, n: int, seed: int, trend: str, plain: bool
) -> Baseline:
    """The best of six ascents of each size; `plain`: of the likelihood alone, of `n` components, without a trend."""
    start = time.perf_counter()
    data = RegressionData.from_arrays(X, y, "none" if plain else trend)
    standardiser = Standardiser.from_data(data)
    scaled = standardiser.to_unit(data)
    target = Target(scaled, mf.Prior.from_data(X, max_components=n), "cpu")
    rng = np.random.default_rng(seed)
    found = map_kernel(target, rng, sizes=[n] if plain else None, steps=200 if plain else 60, likelihood_only=plain)
    best = found.mixtures[int(np.argmax(found.weights))]
    points = standardiser.X_to_unit(X_new)
    bases = {"basis": scaled.basis, "basis_new": scaled.basis_at(points)}
    gp = mf.predict_gp(best, scaled.X, scaled.y, None, points, covariance="full", observed=True, **bases)
    there = standardiser.y_to_unit(y_new)
    return Baseline(
        float(np.sqrt(np.mean((gp.mean[0] - there) ** 2))) * standardiser.y_scale,
        float(multivariate_normal.logpdf(there, gp.mean[0], gp.covariance[0], allow_singular=True)),
        time.perf_counter() - start,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Predictions of held-out rows.")
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("MASKERADE_DATA"))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--budget", type=int, default=2500)
    parser.add_argument("--components", type=int, default=2)
    parser.add_argument("--last", action="store_true", help="forecast the last tenth of the rows")
    parser.add_argument(
        "--trend", nargs="+", choices=TRENDS, default=[""], help="one after another (default: the package's)"
    )
    parser.add_argument("--map", action="store_true", help="run the MAP kernel too, with the same trend")
    parser.add_argument("--ml", action="store_true", help="and the maximum-likelihood kernel of --components, no trend")
    options = parser.parse_args()
    if options.data_dir is None or not Path(options.data_dir).is_dir():
        parser.error("--data-dir: expected the folder of the data sets (or MASKERADE_DATA)")
    for name, trend in itertools.product(options.sets, options.trend):
        rows = []
        label = f"{name} {trend}".rstrip()
        modelled = {"trend": trend} if trend else {}
        for seed in range(options.splits):
            X, y, X_new, y_new = split(Path(options.data_dir) / f"{name}.csv", seed, options.last)
            start = time.perf_counter()
            settings = {"max_components": options.components, "budget": options.budget, "seed": seed, "device": "cpu"}
            post = mf.marginalise(X, y, **settings, **modelled)
            p = post.predict(X_new)
            density = post.joint_log_density(X_new, y_new) + len(y_new) * np.log(y.std())
            a_row = float(np.mean(p.log_density(y_new))) + np.log(y.std())
            evidence = post.log_evidence + len(y) * np.log(y.std())
            seconds = time.perf_counter() - start
            lower, upper = post.interval(X_new, [0.5, 0.9], calibrated=not options.last)
            inside = np.mean((y_new > lower) & (y_new < upper), axis=1).tolist()
            beside = {
                kernel: single_kernel(X, y, X_new, y_new, options.components, seed, post.trend, plain)
                for kernel, plain, wanted in (("MAP", False, options.map), ("ML", True, options.ml))
                if wanted
            }
            error = float(np.sqrt(np.mean((p.mean - y_new) ** 2)))
            others = [number for b in beside.values() for number in b]
            rows.append((error, density, *inside, a_row, evidence, *others))
            kernels = "".join(
                f"  {kernel} {b.log_density:.1f} (RMSE {b.rmse:.3f}, {b.seconds:.0f} s)" for kernel, b in beside.items()
            )
            print(
                f"{label} {seed}: RMSE {error:.3f}  log density {density:.1f}  a row {a_row:.3f}  "
                f"in 50 % {inside[0]:.2f}  in 90 % {inside[1]:.2f}  "
                f"evidence {evidence:.2f} ± {post.log_evidence_sd:.2f}  "
                f"effective draws {post.effective_sample_size:.1f}  {seconds:.0f} s{kernels}",
                flush=True,
            )
        mean = np.mean(rows, axis=0)
        kernels = "".join(
            f"  {kernel} {mean[7 + 3 * k]:.1f} (RMSE {mean[6 + 3 * k]:.3f})" for k, kernel in enumerate(beside)
        )
        print(
            f"{label}: RMSE {mean[0]:.3f}  log density {mean[1]:.1f}  a row {mean[4]:.3f}  in 50 % {mean[2]:.2f}  "
            f"in 90 % {mean[3]:.2f}  evidence {mean[5]:.2f}{kernels}"
        )


if __name__ == "__main__":
    main()
