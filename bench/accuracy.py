"""Error of the evidence on problems whose evidence is known by brute force.

    python bench/accuracy.py [--seeds 5] [--budget 300] [--acquisition information] [FIXTURE ...]

For each fixture of tests/golden/evidence.json: the known log evidence, then for each seed the estimate, its error, the
sd that the run reports, and seconds; at the end the root mean square error beside the median reported sd.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import maskerade_fast as mf

ROOT = Path(__file__).parents[1]


def load_fixture(name: str) -> tuple[np.ndarray, np.ndarray, mf.Prior, float]:
    """Inputs, standardised targets, the paper's prior and the known log evidence."""
    fixtures = json.loads((ROOT / "tests" / "golden" / "evidence.json").read_text())
    fixture = next(f for f in fixtures if f["name"] == name)
    if "X" in fixture:
        x, y = np.array(fixture["X"]), np.array(fixture["y"])
    else:
        x, y = np.loadtxt(ROOT / "examples" / "airline.csv", delimiter=",", skiprows=1).T
        x, y = (x - x.min()) / (x.max() - x.min()), (y - y.mean()) / y.std()
    prior = mf.Prior.paper(x, max_components=fixture["max_components"], noise_variance=fixture["noise_variance"])
    return x, y, prior, fixture["log_evidence"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Error of the evidence on the fixtures.")
    names = ["two_tones_12", "two_tones_40", "smooth_25", "airline"]
    parser.add_argument("fixtures", nargs="*", default=names, metavar="FIXTURE")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--acquisition", default="information")
    args = parser.parse_args()
    mf.warm_up()
    for name in args.fixtures:
        x, y, prior, known = load_fixture(name)
        errors, sds = [], []
        print(f"{name}: known log evidence {known:.3f}, {args.budget} evaluations, {args.acquisition}")
        for seed in range(args.seeds):
            start = time.perf_counter()
            post = mf.marginalise(
                x, y, prior=prior, budget=args.budget, standardise=False, seed=seed, acquisition=args.acquisition
            )
            seconds = time.perf_counter() - start
            errors.append(post.log_evidence - known)
            sds.append(post.log_evidence_sd)
            print(
                f"  seed {seed}: {post.log_evidence:9.3f}  error {errors[-1]:+8.3f}  reported sd {sds[-1]:.3f}"
                f"  best {post.log_likelihoods.max():.2f}  {seconds:.1f} s",
                flush=True,
            )
        within = np.mean(np.abs(errors) <= 2 * np.array(sds))
        rms = np.sqrt(np.mean(np.square(errors)))
        print(f"  rms error {rms:.3f}, median reported sd {np.median(sds):.3f}, within 2 sd {within:.0%}")


if __name__ == "__main__":
    main()
