"""How near each operation comes to the least time its machine could take, the floor, measured in the same run.

    python -m bench.micro.floors [--full] [--out FILE] [WORD ...]     # only rows with one of the words

A floor is what cannot be avoided: a square root or an exponential a pair of components, a factorisation a matrix. Its
price is that of the fastest way here: NumPy's own function on an array that fits the L1 cache or a compiled loop,
and DPOTRF of the BLAS in use on one thread, which is what many matrices at once want.

Each round times the price and the operation one after the other, and a share is the median of the rounds' ratios, in
seconds of processor time: on a machine with other work the clock measures that work. Short operations are repeated, as
prices are, and begun before the clock is: after a price, which takes one thread, the second core of a virtual machine
can need some 50 ms until it runs at its speed (calls took up to twice their time). A target in seconds counts as met
where the clock's median meets it, or the processor time: on idle cores an operation takes no longer by the clock. A
result of megabytes must also be touched for the first time, which can take longer than to write it: the floor of
`Gram` has that, and `Gram in place` has neither.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import time
import tracemalloc
from collections.abc import Callable, Mapping
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.linalg

import maskerade_fast as mf
from bench.micro import problems
from bench.surroundings import surroundings
from maskerade_fast.backends.cpu._arguments import Mixtures, Workspace
from maskerade_fast.backends.cpu._covariance_loops import prepare_mixture
from maskerade_fast.backends.cpu._gram_loops import gram_entries, gram_rows
from maskerade_fast.backends.cpu._loop_arrays import points_by_axis
from maskerade_fast.backends.cpu._math import exp_neg
from maskerade_fast.backends.cpu._parallel import parallel_for, single_threaded_blas
from maskerade_fast.ops.gp import predict_gp
from maskerade_fast.ops.gram import gram
from maskerade_fast.ops.hyperkernel import hyperkernel_matvec
from maskerade_fast.ops.likelihood import log_likelihood
from maskerade_fast.quadrature.acquisition import propose

Call = Callable[[], Any]
IN_L1 = 1000
_SECONDS = 0.02  # of a price's sample, at least
_SECONDS_OF_CALLS = 0.1  # by the clock, of an operation's sample, and of what goes before it uncounted


class Operation(NamedTuple):
    """What is measured, and what it is measured by."""

    name: str
    size: str
    call: Call
    floor: str
    """What the floor consists of; of a ratio, what it divides by."""
    base: Call
    """Seconds of processor time that the floor takes."""
    targets: Mapping[str, float] = {}
    """Values for some of `TARGETS`."""


TARGETS: dict[str, tuple[str, Callable[[dict[str, Any], float], bool]]] = {
    "least": ("≥ {:.0%} of the floor", lambda row, value: row["share"] >= value),
    "most": ("≤ {:.3g} x", lambda row, value: row["times_base"] <= value),
    "seconds": ("≤ {:g} s", lambda row, value: min(row["processor_s"], row["wall_s"]) <= value),
    "megabytes": ("≤ {:g} MB", lambda row, value: row["megabytes"] <= value),
}
"""Names of targets, their words, and whether a row meets one."""


# ---- prices ----


@numba.njit(nogil=True)
def roots(repeats: int, x: Any, out: Any) -> None:
    for k in range(repeats):
        for l in range(len(x)):
            out[l] += sqrt(x[l] + k)


@numba.njit(nogil=True)
def exponentials(repeats: int, x: Any, out: Any) -> None:
    for _ in range(repeats):
        for l in range(len(x)):
            out[l] += exp_neg(x[l])


def numpy_loop(function: Any) -> Callable[[int, Any, Any], None]:
    def loop(repeats: int, x: Any, out: Any) -> None:
        for _ in range(repeats):
            function(x, out=out)

    return loop


def processor_seconds(call: Call) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def each(loops: list[Any], x: Any) -> float:
    """Processor seconds of one function value, by the fastest of the loops now."""
    out, prices = np.zeros_like(x), []
    for loop in loops:
        loop(1, x, out)
        repeats = 1
        while (taken := processor_seconds(lambda n=repeats, f=loop: f(n, x, out))) < _SECONDS:  # type: ignore[misc]
            repeats *= 4
        prices.append(taken / (repeats * len(x)))
    return min(prices)


def root() -> float:
    return each([roots, numpy_loop(np.sqrt)], np.linspace(0.1, 1.0, IN_L1))


def exponential() -> float:
    return each([exponentials, numpy_loop(np.exp)], np.linspace(-5.0, 0.0, IN_L1))


def factorisations(n: int, count: int) -> float:
    """Of `count` matrices of order n by DPOTRF on one thread."""
    C = np.asfortranarray(np.eye(n) + 1.0 / n)
    repeats = max(1, min(count, int(2e9 / n**3)))
    copies = [C.copy(order="F") for _ in range(repeats)]

    def call() -> None:
        for matrix in copies:
            scipy.linalg.lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)

    with single_threaded_blas():
        taken = processor_seconds(call)
    return taken / repeats * count


def product_rate(n: int = 1024) -> float:
    """Operations a second of DGEMM on one thread, for the record."""
    a = np.ones((n, n))
    with single_threaded_blas():
        scipy.linalg.blas.dgemm(1.0, a, a)
        return 2.0 * n**3 / processor_seconds(lambda: scipy.linalg.blas.dgemm(1.0, a.T, a.T))


# ---- operations ----

KERNEL: dict[str, Any] = {"outputscale": 1.0, "lengthscale": 1.0}


def distances() -> list[Operation]:
    rows = []
    for B_a, B_b, D in problems.PAIRS:
        a, b = problems.random_mixtures(B_a, D, seed=1), problems.random_mixtures(B_b, D, seed=2)
        pairs = problems.component_pairs(a, b)
        call = functools.partial(mf.energy_distance, a, b)
        base = lambda pairs=pairs: pairs * root()  # noqa: E731
        rows.append(Operation("energy distance", f"{B_a} x {B_b}, D={D}", call, "sqrt", base, targets={"least": 0.5}))
    return rows


def first_touch(count: int) -> float:
    """Of fresh memory for so many numbers."""
    return processor_seconds(lambda: np.empty(count).fill(0.0))


def grams() -> list[Operation]:
    """The public function, whose result is fresh memory, and the same into memory that is there."""
    rows = []
    for N, B, n, D in problems.LIKELIHOODS:
        g, X, _ = problems.regression(N, B, n, D)
        count = B * n * (N * (N - 1) // 2)
        base = lambda count=count: count * exponential()  # noqa: E731
        call = functools.partial(gram, g, X)
        size = f"N={N}, B={B}, n={n}, D={D}"
        touched = lambda base=base, count=B * N * N: base() + first_touch(count)  # noqa: E731
        rows.append(Operation("Gram", size, call, "exp + fresh memory", touched, targets={"least": 0.5}))
        rows.append(Operation("Gram in place", size, gram_in_place(g, X), "exp", base, targets={"least": 0.5}))
    return rows


def gram_in_place(g: Any, X: Any) -> Call:
    """Lower triangles of one matrix after another in one buffer on every thread, as a likelihood makes them."""
    points, n_points = points_by_axis(X, X.min(axis=0)), len(X)
    mixtures, entries = Mixtures(g.offsets, g.weights, g.means, g.scales), gram_entries()
    most = int(np.diff(g.offsets).max())
    nothing = np.empty((0, 0))
    spaces: list[Any] = []

    def block(start: int, stop: int) -> None:
        work = spaces.pop() if spaces else Workspace.empty(most, n_points, X.shape[1], 1)
        tables = (work.cosines, work.sines)
        for b in range(start, stop):
            prepare_mixture(b, mixtures, points, 1, work, entries)
            first, n = int(g.offsets[b]), int(g.offsets[b + 1] - g.offsets[b])
            mixture = (n, first, g.weights, work.rates)
            gram_rows(0, n_points, 1, *mixture, points.x, *tables, points.x, *tables, 1, nothing, nothing, work.matrix)
        spaces.append(work)

    return lambda: parallel_for(block, len(g), 1)


def likelihoods() -> list[Operation]:
    rows = []
    for N, B, n, D in problems.LIKELIHOODS:
        g, X, y = problems.regression(N, B, n, D)
        count, size = B * n * (N * (N - 1) // 2), f"N={N}, B={B}, n={n}, D={D}"
        value = functools.partial(log_likelihood, g, X, y, problems.NOISE)
        base = lambda N=N, B=B, count=count: count * exponential() + factorisations(N, B)  # noqa: E731
        targets = {"least": 0.8} if N >= 500 else {}
        rows.append(Operation("log-likelihood", size, value, "exp + DPOTRF", base, targets))
        gradient = functools.partial(log_likelihood, g, X, y, problems.NOISE, grad=True)
        own = functools.partial(processor_seconds, value)
        rows.append(Operation("value and gradient", size, gradient, "the value", own, targets={"most": 3.5}))
    return rows


def grids() -> list[Operation]:
    """Against DPOTRF: how many times as long that takes is one over the share."""
    N, B = problems.GRIDS[-1]
    g, X, y = problems.series(N, B)
    call = functools.partial(log_likelihood, g, X, y, problems.NOISE)
    base = lambda: factorisations(N, B)  # noqa: E731
    return [Operation("log-likelihood on a grid", f"N={N}", call, "DPOTRF", base, targets={"most": 1 / 50})]


def streams(full: bool) -> list[Operation]:
    B, D = (100_000, 1) if full else problems.STREAMED[0]
    g = problems.random_mixtures(B, D)
    pairs = problems.component_pairs(g, g)
    hyperkernel_matvec(g[:2], g[:2], np.ones(2), **KERNEL)  # compiled before memory is traced
    call = functools.partial(hyperkernel_matvec, g, g, np.random.default_rng(0).normal(size=B), **KERNEL)
    base = lambda: pairs * root() + B**2 * exponential()  # noqa: E731
    size = f"{B:,} x {B:,}, D={D}"
    return [
        Operation("hyper-kernel product", size, call, "sqrt + exp", base, targets={"least": 0.6, "megabytes": 200.0})
    ]


def predictions() -> list[Operation]:
    """100 mixtures at 150 points: each one's prediction from 144 data, then the predictive mixture."""
    (N, h, M), rng = problems.PREDICTIONS[0], np.random.default_rng(0)
    g, X, y = problems.regression(N, h, problems.MAX_COMPONENTS, 1)
    factor = rng.normal(size=(h, h))
    pairs = factor @ factor.T  # not in the call: BLAS threads that wait for more work spin, and take our cores
    X_new = np.linspace(0.0, 1.0, M)
    exps = h * problems.MAX_COMPONENTS * (N * (N - 1) // 2 + N * M) + h * (h + 1) // 2 * M

    def call() -> Any:
        p = predict_gp(g, X, y, problems.NOISE, X_new, observed=True)
        return mf.combine_gaussians(pairs, p.mean, p.variance, factor=factor)

    call()
    base = lambda: exps * exponential() + h * (h + 1) // 2 * M * root() + factorisations(N, h)  # noqa: E731
    size = f"h={h}, M={M}, N={N}"
    return [
        Operation("prediction", size, call, "exp + sqrt + DPOTRF", base, targets={"seconds": 0.5, "megabytes": 200.0})
    ]


def acquisitions() -> list[Operation]:
    """One step of the loop. Its floor: the roots of each candidate's distances once; ascents evaluate them again."""
    h, m, batch = problems.ACQUISITION
    s, e, measure = problems.state_of_a_run(h, m)
    pairs = batch * len(e.nodes.weights)
    call = lambda: propose("information", s, e, measure, batch, np.random.default_rng(1))  # noqa: E731
    size = f"h={h}, m={m}, batch={batch}"
    return [Operation("acquisition step", size, call, "sqrt", lambda: pairs * root(), {"seconds": 0.5})]


def operations(full: bool = False) -> list[Operation]:
    parts = (distances, grams, likelihoods, grids, functools.partial(streams, full), predictions, acquisitions)
    return [operation for part in parts for operation in part()]


# ---- measuring ----


class Samples:
    """Rounds of one operation: its price, and its time right after."""

    def __init__(self, operation: Operation) -> None:
        self.operation, self.traced = operation, None
        if "megabytes" not in operation.targets:
            operation.call()
        else:
            tracemalloc.start()
            operation.call()
            self.traced = tracemalloc.get_traced_memory()[1] / 1e6
            tracemalloc.stop()
        operation.base()
        begin = time.perf_counter()
        operation.call()
        self.calls = max(1, math.ceil(_SECONDS_OF_CALLS / (time.perf_counter() - begin)))
        self.bases: list[float] = []
        self.times: list[float] = []
        self.clocks: list[float] = []
        self.loads: list[float] = []

    def take(self) -> None:
        self.bases.append(self.operation.base())
        if self.calls > 1:
            self._repeat()
        begin = time.perf_counter()
        self.times.append(processor_seconds(self._repeat) / self.calls)
        self.clocks.append((time.perf_counter() - begin) / self.calls)
        if hasattr(os, "getloadavg"):
            self.loads.append(os.getloadavg()[0])

    def _repeat(self) -> None:
        for _ in range(self.calls):
            self.operation.call()  # the result goes at once, as a caller's would: its memory is used again

    def row(self) -> dict[str, Any]:
        """A row of the results."""
        operation = self.operation
        ratio = float(np.median(np.array(self.times) / np.array(self.bases)))
        row: dict[str, Any] = {"operation": operation.name, "size": operation.size, "floor": operation.floor}
        row |= {"rounds": len(self.times), "share": 1.0 / ratio, "times_base": ratio}
        for key, values in (("processor_s", self.times), ("floor_s", self.bases), ("wall_s", self.clocks)):
            row[key] = float(np.median(values))
        if self.traced is not None:
            row["megabytes"] = self.traced
        row["targets"] = dict(operation.targets)
        row["met"] = all(TARGETS[key][1](row, value) for key, value in operation.targets.items())
        row["load"] = max(self.loads, default=None)
        return row


def targets_of(row: dict[str, Any]) -> str:
    shown = ", ".join(TARGETS[key][0].format(value) for key, value in row["targets"].items())
    return shown and f"{shown}: {'met' if row['met'] else 'missed'}"


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| operation | size | floor | share of it | processor s | clock s | MB | target |", "| --- " * 8 + "|"]
    for row in rows:
        share = f"{row['times_base']:.2f} x" if row["targets"].get("most", 0.0) > 1.0 else f"{row['share']:.0%}"
        if row["share"] > 2.0:
            share = f"1/{row['share']:.0f} of it"
        memory = f"{row['megabytes']:.0f}" if "megabytes" in row else "–"
        cells = [row["operation"], row["size"], row["floor"], share, f"{row['processor_s']:.3g}"]
        lines.append("| " + " | ".join([*cells, f"{row['wall_s']:.3g}", memory, targets_of(row) or "–"]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Shares of the floors.")
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--full", action="store_true", help="the product of 100,000 x 100,000 too: minutes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    prices = {"sqrt_ns": 1e9 * root(), "exp_ns": 1e9 * exponential(), "dgemm_gflops": product_rate() / 1e9}
    content = {**surroundings(), "prices_of_one_core": prices, "rows": []}
    chosen = [o for o in operations(args.full) if not args.words or any(word in o.name for word in args.words)]
    samples = [Samples(operation) for operation in chosen]
    for k in range(args.rounds):  # outermost: a spell of other work on the machine is in few rounds of each
        for one in samples:
            one.take()
        content["rows"] = [one.row() for one in samples]
        print(f"round {k + 1} of {args.rounds}", flush=True)
        if args.out:
            args.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"\n{prices}\n\n{table(content['rows'])}")


if __name__ == "__main__":
    main()
