"""Error and cost of the evidence: `marginalise`, its variants and the yardsticks of `baselines`, in one table.

    python bench/evidence.py --methods default smc/256 --seeds 10 [PROBLEM ...]    # adds to bench/results/evidence.json
    python bench/evidence.py --table                                               # what is there, as markdown

Problems are those of tests/golden/evidence.json and bench/unseen.json, all by default. Methods:

    default                   marginalise as it is: 600 likelihoods, 1500 for airline
    information, uncertainty  the same with these acquisitions, in turns with draws
    paper                     marginalise(proposals="prior"): the paper's recipe, as many likelihoods
    prior_mc/N                prior Monte Carlo, N draws of each size in 8 scrambled Sobol nets
    smc/N                     tempered SMC, N particles of each size
    nested/N                  nested sampling (dynesty), N live points for each size
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import ROOT, load_fixture
from baselines import Estimate, nested_sampling, prior_monte_carlo, tempered_smc

import maskerade_fast as mf
from maskerade_fast.adaptive.counted_posterior import CountedPosterior
from maskerade_fast.model.data import RegressionData
from maskerade_fast.quadrature.problem import Problem as RunProblem

FIXTURES = ("two_tones_12", "two_tones_40", "smooth_25", "airline")
UNSEEN = ROOT / "bench" / "unseen.json"
RESULTS = ROOT / "bench" / "results" / "evidence.json"
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "information": {"acquisition": "information"},
    "uncertainty": {"acquisition": "uncertainty"},
    "paper": {"proposals": "prior"},
}
YARDSTICKS: dict[str, Callable[[CountedPosterior, int, np.random.Generator], Estimate]] = {
    "prior_mc": prior_monte_carlo,
    "smc": tempered_smc,
    "nested": nested_sampling,
}
# Errors of Monte Carlo fall no slower than the root of the cost, those of nets no faster than the cost itself
_SLOPES = (-1.0, -0.5)


@dataclass(frozen=True, eq=False)
class Problem:
    """Data, the paper's prior, and the evidence that is known."""

    name: str
    x: Any
    y: Any
    prior: mf.Prior
    log_evidence: float

    @property
    def budget(self) -> int:
        return 1500 if self.name == "airline" else 600


def problems(names: list[str]) -> list[Problem]:
    """The named ones, or all."""
    unseen = {p["name"]: p for p in json.loads(UNSEEN.read_text())["problems"]} if UNSEEN.exists() else {}
    found = []
    for name in names or [*FIXTURES, *unseen]:
        if name in unseen:
            known = unseen[name]
            x, y = np.array(known["X"]), np.array(known["y"])
            prior = mf.Prior.paper(x, known["max_components"], known["noise_variance"])
            found.append(Problem(name, x, y, prior, known["log_evidence"]))
        else:
            found.append(Problem(name, *load_fixture(name)))
    return found


def measure(problem: Problem, method: str, seed: int, budget: int | None = None) -> dict[str, Any]:
    """One run, as a row of the results; `budget` instead of the problem's for the methods of marginalise."""
    kind, _, size = method.partition("/")
    begin = time.perf_counter()
    if kind in YARDSTICKS:
        target = CountedPosterior(RunProblem.of(RegressionData(problem.x, problem.y), problem.prior))
        found = YARDSTICKS[kind](target, int(size), np.random.default_rng(seed))
        value, sd, cost = found.log_evidence, found.log_evidence_sd, found.cost
    else:
        post = mf.marginalise(
            problem.x,
            problem.y,
            prior=problem.prior,
            budget=budget or problem.budget,
            standardise=False,
            seed=seed,
            device="cpu",
            **SETTINGS[kind],
        )
        value, sd, cost = post.log_evidence, post.log_evidence_sd, post.history[-1].cost
    return {
        "problem": problem.name,
        "method": method,
        "seed": seed,
        "error": float(value - problem.log_evidence),
        "sd": float(sd),
        "cost": int(cost),
        "seconds": round(time.perf_counter() - begin, 3),
    }


@dataclass(frozen=True)
class Summary:
    """Of the runs of one method on one problem."""

    runs: int
    rms: float
    mean: float
    worst: float
    sd: float
    within: float
    cost: float
    seconds: float

    @classmethod
    def of(cls, rows: list[dict[str, Any]]) -> Summary:
        error, sd, cost, seconds = (np.array([row[key] for row in rows]) for key in ("error", "sd", "cost", "seconds"))
        return cls(
            len(rows),
            float(np.sqrt(np.mean(error**2))),
            float(error.mean()),
            float(np.abs(error).max()),
            float(np.median(sd)),
            float(np.mean(np.abs(error) <= 2.0 * sd)),
            float(cost.mean()),
            float(np.median(seconds)),
        )


def summaries(rows: list[dict[str, Any]]) -> dict[str, dict[str, Summary]]:
    """By problem, then by method."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        found.setdefault(row["problem"], {}).setdefault(row["method"], []).append(row)
    return {p: {m: Summary.of(some) for m, some in sorted(by.items(), key=_order)} for p, by in found.items()}


def cost_at(error: float, known: list[Summary]) -> tuple[float, bool]:
    """Likelihoods at which a method's rms error is `error`, and whether that is beyond what was run.

    A line through the logarithms of error and cost, its slope between -1 and -1/2; -1/2 for a single run.
    """
    x, y = np.log([s.cost for s in known]), np.log([max(s.rms, 1e-12) for s in known])
    slope = float(np.clip(np.polyfit(x, y, 1)[0], *_SLOPES)) if len(known) > 1 else _SLOPES[1]
    cost = float(np.exp(x.mean() + (np.log(error) - y.mean()) / slope))
    return cost, not min(s.cost for s in known) <= cost <= max(s.cost for s in known)


def table(rows: list[dict[str, Any]]) -> str:
    """Errors and costs, then costs at equal error, as markdown."""
    found = summaries(rows)
    lines = [
        "| problem | method | runs | rms error | mean error | worst | median sd | within 2 sd | cost | seconds |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for problem, by_method in found.items():
        for method, s in by_method.items():
            lines.append(
                f"| {problem} | {method} | {s.runs} | {s.rms:.4f} | {s.mean:+.4f} | {s.worst:.4f} | {s.sd:.4f} "
                f"| {s.within:.0%} | {s.cost:,.0f} | {s.seconds:.1f} |"
            )
    lines += [
        "",
        "Likelihoods for the rms error of the default, over the default's; * beyond the sizes that were run.",
        "",
        f"| problem | rms error | cost | {' | '.join(YARDSTICKS)} |",
        f"|---|--:|--:|{'--:|' * len(YARDSTICKS)}",
    ]
    for problem, by_method in found.items():
        if "default" not in by_method:
            continue
        ours = by_method["default"]
        cells = []
        for kind in YARDSTICKS:
            known = [s for m, s in by_method.items() if m.partition("/")[0] == kind]
            if not known:
                cells.append("")
                continue
            cost, beyond = cost_at(ours.rms, known)
            cells.append(f"{cost:,.0f} = {cost / ours.cost:,.1f}x{'*' if beyond else ''}")
        lines.append(f"| {problem} | {ours.rms:.4f} | {ours.cost:,.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _order(item: tuple[str, Any]) -> tuple[int, int]:
    kind, _, size = item[0].partition("/")
    return [*SETTINGS, *YARDSTICKS].index(kind), int(size or 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("problems", nargs="*", metavar="PROBLEM")
    parser.add_argument("--methods", nargs="+", default=["default"], metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="only print what is in the file")
    args = parser.parse_args()
    rows = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
    if args.table:
        chosen = [row for row in rows if not args.problems or row["problem"] in args.problems]
        print(table(chosen))
        return
    from surroundings import surroundings

    mf.warm_up()
    for problem in problems(args.problems):
        for method in args.methods:
            for seed in range(args.seeds):
                key = (problem.name, method, seed)
                row = {**measure(problem, method, seed), "commit": surroundings()["commit"]}
                rows = [r for r in rows if (r["problem"], r["method"], r["seed"]) != key] + [row]
                print(json.dumps(row), file=sys.stderr, flush=True)
            where = {k: v for k, v in surroundings().items() if k != "commit"}
            lines = ",\n".join(json.dumps(r) for r in rows)
            args.out.write_text(f'{{"surroundings": {json.dumps(where)},\n"rows": [\n{lines}\n]}}\n')
    print(table([row for row in rows if not args.problems or row["problem"] in args.problems]))


if __name__ == "__main__":
    main()
