"""Held-out rows of real data: RMSE, joint log density and coverage of `marginalise`, beside the best single kernels.

    python -m bench.studies.predictions --data-dir DIR [--splits 3] [--budget 2500] [--components 2] [--map] [--ml]
    python -m bench.studies.predictions --trend none constant linear --budget 500 --components 5 --last airline

Sets are CSV files of DIR (default: the folder MASKERADE_DATA names), target in the last column: yacht, autompg,
concrete, airfoil by default. A split holds out a tenth of the rows at random; splits are numbered, the same for every
run and for the tables of `paper`. With --last it holds out the last tenth, and the number is the run's seed alone. RMSE
is in the target's units, the log density that of all held-out targets together, and a row that of each by itself,
standardised by the training targets as the log evidence is.
"""

from __future__ import annotations

import argparse
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np

from bench.studies.paper.data import Absent, Split, last_tenth, load, random_tenth
from bench.studies.paper.recipes import best_kernel, measured
from maskerade_fast.model.trend import TRENDS

SETS = ("yacht", "autompg", "concrete", "airfoil")


def line(split: Split, components: int, budget: int, seed: int, trend: str, beside: list[str]) -> dict[str, float]:
    """Return the figures of one run, with RMSE and joint log density of the single kernels in `beside`."""
    modelled = {"trend": trend} if trend else {}
    row = measured(split, "default", seed=seed, components=components, budget=budget, **modelled)
    there: dict[str, Any] = {"seed": seed, "components": components, "trend": trend or "linear"}
    plain: dict[str, Any] = {**there, "trend": "none", "sizes": [components], "steps": 200}
    for kind in beside:
        settings = plain if kind == "ml" else there
        prediction, row[kind], _ = best_kernel(split, **settings, likelihood_only=kind == "ml")
        row[f"{kind}_rmse"] = float(np.sqrt(np.mean((prediction.mean - split.y_new) ** 2)))
    return row


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
    parser.add_argument(
        "--ml", action="store_true", help="and that of largest likelihood: six starts, --components, no trend"
    )
    options = parser.parse_args()
    beside = [kind for kind in ("map", "ml") if getattr(options, kind)]
    for name, trend in itertools.product(options.sets, options.trend):
        try:
            table = load(name, options.data_dir and Path(options.data_dir))
        except Absent as reason:
            parser.error(str(reason))
        rows = []
        label = f"{name} {trend}".rstrip()
        for seed in range(options.splits):
            split = last_tenth(table) if options.last else random_tenth(table, seed)
            row = line(split, options.components, options.budget, seed, trend, beside)
            rows.append(row)
            print(f"{label} {seed}: {text(row)}  effective draws {row['effective_draws']:.1f}", flush=True)
        kept = [k for k, v in rows[0].items() if isinstance(v, float)]
        print(f"{label}: {text({k: float(np.mean([row.get(k, np.nan) for row in rows])) for k in kept})}")


def text(row: dict[str, float]) -> str:
    """Of one run, or of means."""
    joint = row.get("log_density", np.nan)
    kernels = "".join(
        f"  {kind.upper()} {row[kind]:.1f} (RMSE {row[f'{kind}_rmse']:.3f})" for kind in ("map", "ml") if kind in row
    )
    return (
        f"RMSE {row['rmse']:.3f}  log density {joint:.1f}  a row {row['log_density_a_row']:.3f}  "
        f"in 50 % {row['inside_50']:.2f}  in 90 % {row['inside_90']:.2f}  evidence {row['log_evidence']:.2f} "
        f"± {row['log_evidence_sd']:.2f}  {row['seconds']:.0f} s{kernels}"
    )


if __name__ == "__main__":
    main()
