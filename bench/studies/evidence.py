"""Error and cost of the evidence: `marginalise`, its variants and the yardsticks of `yardsticks`, in one table.

    python -m bench.studies.evidence --methods default smc/256 --seeds 10 [PROBLEM ...]
    python -m bench.studies.evidence --table --out bench/results/evidence.json    # the rows of a file, as markdown
    python -m bench.studies.evidence --methods default information uncertainty --budgets 300 600 --chart FILE.svg ...

Rows go to ``build/bench/evidence.json``, or to the file that ``--out`` names, beside those that it has. Problems are
those of tests/golden/evidence.json and bench/results/unseen.json, all by default. Methods:

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

import maskerade_fast as mf
from bench import BUILD, RESULTS, ROOT
from bench.studies.yardsticks import Estimate, nested_sampling, prior_monte_carlo, tempered_smc
from bench.surroundings import surroundings
from maskerade_fast.adaptive.counted_posterior import CountedPosterior
from maskerade_fast.model.data import RegressionData
from maskerade_fast.quadrature.problem import Problem as RunProblem

Rows = list[dict[str, Any]]

UNSEEN = RESULTS / "unseen.json"
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
    """Data, the paper's prior, and the evidence by brute force."""

    name: str
    x: Any
    y: Any
    prior: mf.Prior
    log_evidence: float

    @property
    def budget(self) -> int:
        return 1500 if self.name == "airline" else 600


def problems(names: list[str]) -> list[Problem]:
    """Return the problems of these names, or all."""
    golden = json.loads((ROOT / "tests" / "golden" / "evidence.json").read_text())
    unseen = json.loads(UNSEEN.read_text())["problems"] if UNSEEN.exists() else []
    every = {fixture["name"]: fixture for fixture in [*golden, *unseen]}
    return [problem_of(every[name]) for name in names or every]


def problem_of(fixture: dict[str, Any]) -> Problem:
    if "X" in fixture:
        x, y = np.array(fixture["X"]), np.array(fixture["y"])
    else:
        x, y = np.loadtxt(ROOT / "examples" / "airline.csv", delimiter=",", skiprows=1).T
        x, y = (x - x.min()) / (x.max() - x.min()), (y - y.mean()) / y.std()
    prior = mf.Prior.paper(x, max_components=fixture["max_components"], noise_variance=fixture["noise_variance"])
    return Problem(fixture["name"], x, y, prior, fixture["log_evidence"])


def measure(problem: Problem, method: str, seed: int, budget: int | None = None) -> dict[str, Any]:
    """One run, as a row of the results; `budget` instead of the problem's for the methods of marginalise."""
    kind, _, size = method.partition("/")
    begin = time.perf_counter()
    if kind in YARDSTICKS:
        target = CountedPosterior(RunProblem.of(RegressionData(problem.x, problem.y), problem.prior))
        estimate = YARDSTICKS[kind](target, int(size), np.random.default_rng(seed))
        value, sd, cost = estimate.log_evidence, estimate.log_evidence_sd, estimate.cost
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
        **({} if budget is None else {"budget": budget}),
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
    def of(cls, rows: Rows) -> Summary:
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


def summaries(rows: Rows) -> dict[str, dict[str, Summary]]:
    """By problem, then by method."""
    groups: dict[str, dict[str, Rows]] = {}
    for row in rows:
        groups.setdefault(row["problem"], {}).setdefault(row["method"], []).append(row)
    return {p: {m: Summary.of(some) for m, some in sorted(by.items(), key=_order)} for p, by in groups.items()}


def cost_at(error: float, runs: list[Summary]) -> tuple[float, bool]:
    """Likelihoods at which a method's rms error is `error`, and whether that is beyond what was run.

    A line through the logarithms of error and cost, its slope between -1 and -1/2; -1/2 for a single run.
    """
    x, y = np.log([s.cost for s in runs]), np.log([max(s.rms, 1e-12) for s in runs])
    slope = float(np.clip(np.polyfit(x, y, 1)[0], *_SLOPES)) if len(runs) > 1 else _SLOPES[1]
    cost = float(np.exp(x.mean() + (np.log(error) - y.mean()) / slope))
    return cost, not min(s.cost for s in runs) <= cost <= max(s.cost for s in runs)


def table(rows: Rows) -> str:
    """Errors and costs, then costs at equal error, as markdown."""
    groups = summaries(rows)
    lines = [
        "| problem | method | runs | rms error | mean error | worst | median sd | within 2 sd | cost | seconds |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for problem, by_method in groups.items():
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
    for problem, by_method in groups.items():
        if "default" not in by_method:
            continue
        ours = by_method["default"]
        cells = []
        for kind in YARDSTICKS:
            runs = [s for m, s in by_method.items() if m.partition("/")[0] == kind]
            if not runs:
                cells.append("")
                continue
            cost, beyond = cost_at(ours.rms, runs)
            cells.append(f"{cost:,.0f} = {cost / ours.cost:,.1f}x{'*' if beyond else ''}")
        lines.append(f"| {problem} | {ours.rms:.4f} | {ours.cost:,.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _order(item: tuple[str, Any]) -> tuple[int, int]:
    kind, _, size = item[0].partition("/")
    return [*SETTINGS, *YARDSTICKS].index(kind), int(size or 0)


def chart(rows: Rows, path: Path) -> None:
    """Draw a panel per problem: rms error against the budget, with the band of one standard error of it."""
    from matplotlib.figure import Figure

    labels = {"default": "random (the default)", "information": "information", "uncertainty": "uncertainty"}
    names = list(dict.fromkeys(row["problem"] for row in rows))
    figure = Figure(figsize=(3.4 * len(names), 3.0), layout="constrained")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        for method, text in labels.items():
            own = [row for row in rows if row["problem"] == name and row["method"] == method]
            budgets = sorted({row["budget"] for row in own})
            squares = [np.array([row["error"] for row in own if row["budget"] == b]) ** 2 for b in budgets]
            rms = np.array([np.sqrt(s.mean()) for s in squares])
            spread = np.array([s.std(ddof=1) / np.sqrt(len(s)) / (2.0 * np.sqrt(s.mean())) for s in squares])
            (line,) = axes.plot(budgets, rms, marker="o", label=text)
            axes.fill_between(budgets, np.maximum(rms - spread, 1e-4), rms + spread, color=line.get_color(), alpha=0.2)
        axes.set(title=name, xlabel="likelihoods", yscale="log", ylabel="rms error, nats" if name == names[0] else "")
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("problems", nargs="*", metavar="PROBLEM")
    parser.add_argument("--methods", nargs="+", default=["default"], metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--budgets", nargs="+", type=int, default=[None], help="default: the problem's")
    parser.add_argument("--out", type=Path, default=BUILD / "evidence.json")
    parser.add_argument("--table", action="store_true", help="only show what is in the file")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw rows that have a budget")
    args = parser.parse_args()
    rows: Rows = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
    if not args.table:
        mf.warm_up()
        args.out.parent.mkdir(parents=True, exist_ok=True)
        for seed in range(args.seeds):  # outermost: a part of the runs is a comparison too
            for problem in problems(args.problems):
                for method, budget in ((m, b) for m in args.methods for b in args.budgets):
                    row = {**measure(problem, method, seed, budget), "commit": surroundings()["commit"]}
                    rows = [r for r in rows if key_of(r) != key_of(row)] + [row]
                    print(json.dumps(row), file=sys.stderr, flush=True)
            where = {k: v for k, v in surroundings().items() if k != "commit"}
            lines = ",\n".join(json.dumps(r) for r in rows)
            args.out.write_text(f'{{"surroundings": {json.dumps(where)},\n"rows": [\n{lines}\n]}}\n')
    chosen = [row for row in rows if not args.problems or row["problem"] in args.problems]
    if args.chart:
        chart([row for row in chosen if "budget" in row], args.chart)
    print(table([row for row in chosen if "budget" not in row]))


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["problem"], row["method"], row["seed"], row.get("budget")


if __name__ == "__main__":
    main()
