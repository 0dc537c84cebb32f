"""Time and memory against N, B, m, h and D, with the slopes that were fitted and those that operations count.

    python -m bench.micro.scaling                      # ten minutes at most: build/bench/scaling.json and .svg
    python -m bench.micro.scaling --minutes 2 --only N,m
    python -m bench.micro.scaling --plot --out bench/results/scaling.json --chart docs/pictures/scaling.svg

Every point is the median of at least three calls after one that is not counted, where these fit; a curve ends with its
share of the time, and says so. Memory is what tracemalloc sees of one more call, its result included. A slope is that
of log time against log size by least squares over the upper half of the points, three at least, where fixed costs no
longer show.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import maskerade_fast as mf
from bench import BUILD
from bench.micro import problems
from bench.surroundings import surroundings

METRIC: dict[str, Any] = {"outputscale": 1.0, "lengthscale": 1.0}
NOISE = problems.NOISE


class Curve(NamedTuple):
    """One operation against one size."""

    name: str
    axis: str
    sizes: list[int]
    make: Callable[[int], Callable[[], Any]]
    """A call for a size; what it needs is made before."""
    expected: float
    """Slope in theory, by counting operations."""
    why: str


def likelihood(N: int, B: int = 1, D: int = 1, *, grad: bool = False) -> Callable[[], Any]:
    g, X, y = problems.regression(N, B, 5, D)
    return lambda: mf.log_likelihood(g, X, y, NOISE, grad=grad)


def regular(N: int, *, grad: bool = False) -> Callable[[], Any]:
    g, X, y = problems.series(N, 1)
    return lambda: mf.log_likelihood(g, X, y, NOISE, grad=grad, structure="toeplitz")


def surrogate(h: int) -> Any:
    g = problems.random_mixtures(h, 1, seed=3)
    values = -0.02 * np.add.reduceat(g.weights * g.means[:, 0], g.offsets[:-1]) ** 2
    return mf.Surrogate.fit(g, values, **METRIC)


def integral(m: int, h: int) -> Callable[[], Any]:
    s, nodes, weights = surrogate(h), problems.random_mixtures(m, 1, seed=4), np.full(m, 1.0 / m)
    return lambda: mf.integrate(s, nodes, weights)


def mean(m: int, h: int) -> Callable[[], Any]:
    s, nodes = surrogate(h), problems.random_mixtures(m, 1, seed=4)
    return lambda: s.mean(nodes)


def information(m: int, h: int = 200) -> Callable[[], Any]:
    s, nodes = surrogate(h), problems.random_mixtures(m, 1, seed=4)
    e, candidates = mf.integrate(s, nodes, np.full(m, 1.0 / m)), problems.random_mixtures(20, 1, seed=5)
    return lambda: mf.mutual_information(s, e, candidates)


def distances(B: int, D: int = 1) -> Callable[[], Any]:
    a, b = problems.random_mixtures(B, D, seed=1), problems.random_mixtures(B, D, seed=2)
    return lambda: mf.energy_distance(a, b)


def matvec(B: int) -> Callable[[], Any]:
    g, v = problems.random_mixtures(B, 1, seed=1), np.random.default_rng(0).normal(size=B)
    return lambda: mf.hyperkernel_matvec(g, g, v, **METRIC)


def mixture_of_pairs(h: int) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    factor, means, variances = rng.normal(size=(h, h)) + 0.5, rng.normal(size=(h, 150)), rng.lognormal(size=(h, 150))
    W = factor @ factor.T
    return lambda: mf.combine_gaussians(W, means, variances, factor=factor)


N_SIZES = [50, 100, 200, 500, 1000, 2000, 4000, 7000, 10_000]
CURVES = [
    Curve("log-likelihood", "N", N_SIZES, likelihood, 3.0, "Cholesky, N^3 / 3"),
    Curve("with gradient", "N", N_SIZES, lambda N: likelihood(N, grad=True), 3.0, "inverse by columns, N^3"),
    Curve("regular grid", "N", N_SIZES, regular, 2.0, "Schur's algorithm"),
    Curve("regular grid, with gradient", "N", N_SIZES, lambda N: regular(N, grad=True), 2.0, "Schur and Levinson"),
    Curve("log-likelihoods, N = 144", "B", [1, 10, 100, 1000, 10_000], lambda B: likelihood(144, B), 1.0, "one by one"),
    Curve("energy distances, B x B", "B", [10, 30, 100, 300, 1000, 3000], distances, 2.0, "pairs"),
    Curve("hyper-kernel product, B x B", "B", [100, 1000, 10_000, 100_000], matvec, 2.0, "pairs"),
    Curve(
        "evidence, h = 100",
        "m",
        [100, 1000, 10_000, 100_000, 1_000_000],
        lambda m: integral(m, 100),
        2.0,
        "pairs of nodes for the variance",
    ),
    Curve(
        "mean of the surrogate, h = 100",
        "m",
        [100, 1000, 10_000, 100_000, 1_000_000],
        lambda m: mean(m, 100),
        1.0,
        "m h pairs",
    ),
    Curve("information, h = 200", "m", [100, 300, 1000, 3000, 10_000], information, 1.0, "m h for each candidate"),
    Curve(
        "evidence, m = 4096", "h", [50, 100, 200, 400, 800, 1600], lambda h: integral(4096, h), 2.0, "m h^2 beside m^2"
    ),
    Curve("surrogate", "h", [50, 100, 200, 400, 800, 1600], lambda h: lambda: surrogate(h), 3.0, "Cholesky, h^3"),
    Curve("predictive mixture, 150 points", "h", [50, 100, 200, 400, 800], mixture_of_pairs, 2.0, "pairs"),
    Curve("log-likelihoods, N = 500", "D", [1, 2, 4, 8, 16, 32], lambda D: likelihood(500, 4, D), 1.0, "lags a pair"),
    Curve("energy distances, 1000 x 1000", "D", [1, 2, 4, 8, 16, 32], lambda D: distances(1000, D), 1.0, "axes a pair"),
]


def timed(call: Callable[[], Any], limit: float) -> tuple[float, int]:
    """Median seconds of the calls that fit in `limit` seconds, 3 to 15 of them or the first alone; how many."""
    begin = time.perf_counter()
    call()
    first = time.perf_counter() - begin
    if first > limit / 4:
        return first, 1
    times: list[float] = []
    while len(times) < 3 or (len(times) < 15 and sum(times) < limit / 4):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times), len(times)


def megabytes(call: Callable[[], Any]) -> float:
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def measured(curve: Curve, seconds: float) -> dict[str, Any]:
    """Points of a curve within `seconds`; stops before the size that would not fit."""
    points: list[dict[str, Any]] = []
    left, spent, ended = seconds, 0.0, None
    for size in curve.sizes:
        if points:
            growth = (size / points[-1]["size"]) ** max(curve.expected, 1.0)
            # a call or two, and what the last point took beside its calls, which grows likewise
            guess = 2.2 * growth * points[-1]["seconds"] + growth * spent
            if guess > left:
                ended = f"{size} would take {guess:.1f} s"
                break
        begin = time.perf_counter()
        try:
            call = curve.make(size)
            spent = time.perf_counter() - begin
            median, rounds = timed(call, left)
            memory = megabytes(call) if median < left / 4 else None
        except MemoryError as error:
            ended = f"{size}: {error}"
            break
        points.append({"size": size, "seconds": median, "rounds": rounds, "megabytes": memory})
        left -= time.perf_counter() - begin
    return {
        **{"name": curve.name, "axis": curve.axis, "points": points, "ended": ended, "expected": curve.expected},
        **{"why": curve.why, "slope": slope(points, "seconds"), "memory_slope": slope(points, "megabytes")},
    }


def slope(points: list[dict[str, Any]], key: str) -> float | None:
    """Of the upper half of the points (by their logarithms), three at least; None where there are fewer than two."""
    logarithms = [(math.log(p["size"]), math.log(p[key])) for p in points if p[key]]
    upper = logarithms[-max(3, len(logarithms) // 2) :]
    if len(upper) < 2:
        return None
    x, y = np.transpose(upper)
    return float(np.polyfit(x, y, 1)[0])


def table(content: dict[str, Any]) -> str:
    lines = [
        "| against | operation | sizes | time | MB | slope | in theory | slope of memory |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for c in content["curves"]:
        if not c["points"]:
            lines.append(f"| {c['axis']} | {c['name']} | – | – | – | – | {c['expected']:g} ({c['why']}) | – |")
            continue
        first, last = c["points"][0], c["points"][-1]
        memories = [p["megabytes"] for p in c["points"] if p["megabytes"]]
        span = f"{memories[0]:.2g} to {memories[-1]:.3g}" if memories else "–"
        stop = " (time was up)" if c["ended"] else ""
        lines.append(
            f"| {c['axis']} | {c['name']} | {first['size']:,} to {last['size']:,}{stop} "
            f"| {1e3 * first['seconds']:.3g} to {1e3 * last['seconds']:.4g} ms "
            f"| {span} | {figure(c['slope'])} | {c['expected']:g} ({c['why']}) | {figure(c['memory_slope'])} |"
        )
    return "\n".join(lines)


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def plot(content: dict[str, Any], path: Path) -> None:
    """One panel an axis, time in logarithms, slopes in the legend."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "scaling"  # the same file from the same results
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot as plt

    axes_names = list(dict.fromkeys(c["axis"] for c in content["curves"]))
    fig, panels = plt.subplots(1, len(axes_names), figsize=(3.4 * len(axes_names), 4.2), squeeze=False)
    for panel, axis in zip(panels[0], axes_names, strict=True):
        for c in content["curves"]:
            if c["axis"] != axis or not c["points"]:
                continue
            x, y = [p["size"] for p in c["points"]], [p["seconds"] for p in c["points"]]
            panel.loglog(
                x, y, "o-", ms=3, lw=1, label=f"{c['name']}: {figure(c['slope'])} (in theory {c['expected']:g})"
            )
        panel.set_xlabel(axis)
        panel.grid(alpha=0.3, lw=0.5)
        panel.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    panels[0][0].set_ylabel("seconds")
    fig.suptitle(f"{content['device']}, {content['threads']} threads", fontsize=9)
    fig.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(fig)


def main() -> None:
    parser = argparse.ArgumentParser(description="Scaling of time and memory, with fitted slopes.")
    parser.add_argument("--minutes", type=float, default=10.0, help="for everything; a curve has an equal share")
    parser.add_argument("--only", default="", help="axes, e.g. N,m (default: all)")
    parser.add_argument("--out", type=Path, default=BUILD / "scaling.json", help="JSON file")
    parser.add_argument("--chart", type=Path, default=BUILD / "scaling.svg", help="SVG or PNG file; needs matplotlib")
    parser.add_argument("--plot", action="store_true", help="no measurement: the chart and the table of the results")
    options = parser.parse_args()
    if not options.plot:
        chosen = [c for c in CURVES if not options.only or c.axis in options.only.split(",")]
        mf.warm_up()
        options.out.parent.mkdir(parents=True, exist_ok=True)
        begin, budget = time.perf_counter(), 60.0 * options.minutes
        curves = []
        for k, curve in enumerate(chosen):
            left = budget - (time.perf_counter() - begin)
            curves.append(measured(curve, left / (len(chosen) - k)))
            print(f"{curve.axis} {curve.name}: {len(curves[-1]['points'])} points", flush=True)
            content = {**surroundings(), "seconds": time.perf_counter() - begin, "curves": curves}
            options.out.write_text(json.dumps(content, indent=1) + "\n")  # a run that is cut off leaves what it had
    content = json.loads(options.out.read_text())
    print(table(content))
    plot(content, options.chart)


if __name__ == "__main__":
    main()
