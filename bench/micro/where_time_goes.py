"""Where the processor time of one `marginalise` goes: each compiled kernel, and what is left by module.

    python -m bench.micro.where_time_goes [--data-dir DIR] [--budget 1000] [--out FILE] [SET ...]

Sets: airline (of examples/), yacht, concrete and sterling (NAME.csv in DIR, sterling_eri.csv). A first run compiles.
The second times every function of the backend and every compiled loop of the host: processor time of all
threads, so other work on the machine hardly shows. What none of these takes is Python, NumPy and SciPy between them; a
third run under cProfile shares it out among the modules by their own time, which its cost a call makes too large for
many small ones.
"""

from __future__ import annotations

import argparse
import cProfile
import csv
import json
import pstats
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import maskerade_fast as mf
from bench import ROOT
from bench.surroundings import surroundings
from maskerade_fast.backends import cpu, host_loops

SETS = {"airline": "airline.csv", "yacht": "yacht.csv", "concrete": "concrete.csv", "sterling": "sterling_eri.csv"}
LAPACK = ("_cholesky", "_solve_triangular", "cho_solve", "eigh", "svd")  # functions of SciPy around one routine
_SHOWN = 0.01  # least share that gets a row


class KernelTimes:
    """Processor seconds and calls of the compiled kernels while the context lasts; of nested ones the outer's."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self.genuine = [(m, name, getattr(m, name)) for m in (cpu, host_loops()) for name in m.__all__]
        self.depth = 0

    def __enter__(self) -> KernelTimes:
        for module, name, function in self.genuine:
            setattr(module, name, self._timed(name, function))
        return self

    def __exit__(self, *error: object) -> None:
        for module, name, function in self.genuine:
            setattr(module, name, function)

    def _timed(self, name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            begin = time.process_time()
            self.depth += 1
            try:
                return function(*args, **options)
            finally:
                self.depth -= 1
                if self.depth == 0:
                    self.seconds[name] += time.process_time() - begin
                    self.calls[name] += 1

        return call


def data_of(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets, the last column; rows with empty cells are left out."""
    with (folder / SETS[name]).open(encoding="utf-8") as file:
        rows = [[float(cell) for cell in row] for row in list(csv.reader(file))[1:] if all(row)]
    table = np.array(rows)
    return table[:, :-1], table[:, -1]


def rest_by_module(run: Any, kernels: KernelTimes) -> dict[str, float]:
    """Own seconds of Python and NumPy by module of the package, without those of the kernels."""
    profile = cProfile.Profile()
    profile.enable()
    run()
    profile.disable()
    own_seconds: dict[str, float] = defaultdict(float)
    backend = str(Path(cpu.__file__).parent)
    package = str(Path(mf.__file__).parent)
    stats: Any = pstats.Stats(profile)
    owners: dict[Any, str] = {}

    def owner(function: Any, seen: tuple[Any, ...] = ()) -> str:
        """The package's module that called a function most, for functions of others."""
        file, called = function[0], function[2]
        if file.startswith(backend):
            return "backend"
        if "scipy/linalg" in file and called in LAPACK:
            return "LAPACK"
        if file.startswith(package):
            return str(Path(file).relative_to(package))
        if function in owners:
            return owners[function]
        callers = {c: v[3] for c, v in stats.stats[function][4].items() if c in stats.stats and c not in seen}
        best = max(callers, key=callers.__getitem__, default=None)
        name = "other" if best is None else owner(best, (*seen, function))
        owners[function] = name
        return name

    for function, (_, _, own, _, _) in stats.stats.items():
        own_seconds[owner(function)] += own
    return {name: seconds for name, seconds in own_seconds.items() if name != "backend"}


def measured(name: str, folder: Path, budget: int) -> dict[str, Any]:
    X, y = data_of(name, folder)

    def run() -> Any:
        return mf.marginalise(X, y, budget=budget, seed=0, device="cpu")

    run()
    with KernelTimes() as kernels:
        begin = time.process_time()
        run()
        total = time.process_time() - begin
    modules = rest_by_module(run, kernels)
    rest = total - sum(kernels.seconds.values())
    profiled = sum(modules.values())
    return {
        "set": name,
        "n_points": len(X),
        "n_dims": X.shape[1],
        "budget": budget,
        "processor_s": total,
        "kernels": {k: {"share": v / total, "calls": kernels.calls[k]} for k, v in kernels.seconds.items()},
        "rest": rest / total,
        "rest_by_module": {k: v / profiled * rest / total for k, v in modules.items()},
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| set | processor s | kernels | of which | outside | of which |", "| --- | --: | --: | --- | --: | --- |"]
    for row in rows:
        kernels = {f"{k} ({v['calls']} calls)": v["share"] for k, v in row["kernels"].items()}
        cells = [
            f"{row['set']}, N = {row['n_points']:,}, D = {row['n_dims']}, {row['budget']} likelihoods",
            f"{row['processor_s']:.2f}",
            f"{1 - row['rest']:.0%}",
            shares(kernels),
            f"{row['rest']:.0%}",
            shares(row["rest_by_module"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def shares(parts: dict[str, float]) -> str:
    shown = sorted((item for item in parts.items() if item[1] >= _SHOWN), key=lambda item: -item[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in shown)


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time of one marginalise goes.")
    parser.add_argument("sets", nargs="*", default=["airline"], metavar="SET")
    parser.add_argument("--data-dir", type=Path, default=ROOT / "examples")
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for name in args.sets:
        rows.append(measured(name, ROOT / "examples" if name == "airline" else args.data_dir, args.budget))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    if args.out:
        kept = json.loads(args.out.read_text(encoding="utf-8"))["rows"] if args.out.exists() else []
        rows = [row for row in kept if row["set"] not in args.sets] + rows  # sets want budgets of their own
        args.out.write_text(json.dumps({**surroundings(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print("\n" + table(rows))


if __name__ == "__main__":
    main()
