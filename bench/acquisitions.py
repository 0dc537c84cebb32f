"""Error of the evidence against its cost, where draws, information or uncertainty choose the likelihoods.

    python bench/acquisitions.py [--budgets 300 600] [--seeds 3] [PROBLEM ...] # adds to bench/results/acquisitions.json
    python bench/acquisitions.py --chart                # draws docs/pictures/acquisitions.svg from it

All three start from the same settled measure; "information" and "uncertainty" take turns with draws. The chart shows
the root mean square of the errors over seeds, with the band of one standard error of it.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from accuracy import ROOT
from evidence import measure, problems

RESULTS = ROOT / "bench" / "results" / "acquisitions.json"
CHART = ROOT / "docs" / "pictures" / "acquisitions.svg"
SMALL = ("two_tones_12", "two_tones_40", "smooth_25")
ACQUISITIONS = ("default", "information", "uncertainty")
LABELS = {"default": "random (the default)", "information": "information", "uncertainty": "uncertainty"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Evidence by acquisition.")
    parser.add_argument("problems", nargs="*", default=SMALL, metavar="PROBLEM")
    parser.add_argument("--budgets", nargs="+", type=int, default=[300, 600])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--chart", action="store_true", help="draw what is there")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if options.chart:
        chart(rows)
        return
    for seed in range(options.seeds):  # a part of the runs is a comparison too
        for problem in problems(list(options.problems)):
            for budget in options.budgets:
                for method in ACQUISITIONS:
                    key = {"problem": problem.name, "budget": budget, "method": method, "seed": seed}
                    if any(all(row[k] == v for k, v in key.items()) for row in rows):
                        continue
                    rows.append({**measure(problem, method, seed, budget), "budget": budget})
                    print(json.dumps(rows[-1]), flush=True)
                    RESULTS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def chart(rows: list[dict[str, Any]]) -> None:
    """A panel for each problem: rms error against the budget, a line and a band for each acquisition."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["problem"] for row in rows))
    figure = Figure(figsize=(3.4 * len(names), 3.0), layout="constrained")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        for method in ACQUISITIONS:
            own = [row for row in rows if row["problem"] == name and row["method"] == method]
            budgets = sorted({row["budget"] for row in own})
            squares = [np.array([row["error"] for row in own if row["budget"] == b]) ** 2 for b in budgets]
            rms = np.array([np.sqrt(s.mean()) for s in squares])
            spread = np.array([s.std(ddof=1) / np.sqrt(len(s)) / (2.0 * np.sqrt(s.mean())) for s in squares])
            (line,) = axes.plot(budgets, rms, marker="o", label=LABELS[method])
            axes.fill_between(budgets, np.maximum(rms - spread, 1e-4), rms + spread, color=line.get_color(), alpha=0.2)
        axes.set(title=name, xlabel="likelihoods", yscale="log", ylabel="rms error, nats" if name == names[0] else "")
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(CHART, metadata={"Date": None})


if __name__ == "__main__":
    main()
