"""The command line: ``maskerade-fast fit | predict | info | bench``.

Bad input ends with one line on standard error and exit status 2, never with a traceback.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ._checks import Array, generator
from .console import EXIT_STATUSES, Session, run
from .errors import DataError
from .io import listed, read_csv, write_predictions
from .trend import TRENDS

if TYPE_CHECKING:
    from .posterior import Posterior
    from .prediction import Prediction

_MOST_JOINT_ROWS = 200  # the joint density takes h^2 n^3 steps: here some seconds for h = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""

    def work(session: Session) -> int:
        parser = _parser()
        parser.epilog = EXIT_STATUSES
        options = parser.parse_args(arguments)
        options.session = session
        session.program = f"{parser.prog} {options.command}"
        return int(options.run(options))

    return run(work)


def _fit(options: argparse.Namespace) -> int:
    say = _silent if options.quiet else print
    if options.panels and not options.plot:
        raise DataError("--panels: what --plot shows, but there is no --plot")
    if options.plot:
        _require_matplotlib()
    for path in (options.plot, options.predictions, options.save, options.checkpoint):
        _require_folder(path)
    if options.checkpoint and options.test_fraction > 0.0 and options.split == "random" and options.seed is None:
        raise DataError("--checkpoint: beside a random split expected --seed, else the rows differ at every start")
    table = read_csv(options.data)
    X, y, names, target = table.split(options.target)
    if table.n_dropped:
        say(f"Dropped {_count(table.n_dropped, 'row')} with missing cells.")
    train, test = _split_rows(len(y), options.test_fraction, options.split, options.seed)
    say(f"{options.data}: {_count(len(train), 'row')} to learn {listed([target])} from {listed(names)}", end="")
    say(f"; {len(test)} held out ({options.split})." if len(test) else ".")

    start = time.perf_counter()
    from . import quadrature

    post = quadrature.marginalise(
        X[train],
        y[train],
        budget=options.budget if options.minutes is None else None,
        time_budget=None if options.minutes is None else 60.0 * options.minutes,
        trend=options.trend,
        device=options.device,
        seed=options.seed,
        progress=not options.quiet and sys.stderr.isatty(),
        checkpoint=options.checkpoint,
    )
    seconds = time.perf_counter() - start
    if options.save:
        post.save(options.save)
    rows = test if len(test) else train
    prediction = post.predict(X[rows])
    if options.predictions:
        write_predictions(options.predictions, X[rows], names, prediction, y[rows], target)
    for line in _summary(post, seconds):
        say(line)
    if len(test):
        for line in _scores(post, prediction, X[test], y[test]):
            say(line)
    for warning in post.warnings:
        say(f"Warning: {warning}.")
    if options.plot:
        from .plotting import plot_fit, plot_panels

        labels: dict[str, Any] = {"x_label": names[0] if len(names) == 1 else "", "y_label": target}
        (plot_panels if options.panels else plot_fit)(
            post, X[train], y[train], X[test], y[test], path=options.plot, **labels
        )
    written = [str(path) for path in (options.plot, options.predictions, options.save) if path]
    if written:
        say(f"Wrote {', '.join(written)}.")
    return 0


def _predict(options: argparse.Namespace) -> int:
    from . import posterior

    _require_folder(options.predictions)
    post = posterior.load(options.model)
    table = read_csv(options.data)
    n_dims, width = post.mixtures.n_dims, len(table.names)
    if width == n_dims:
        X, y, names, target = table.values, None, table.names, ""
    elif width == n_dims + 1:
        X, y, names, target = table.split(options.target)
    else:
        raise DataError(
            f"{options.data}: {_count(width, 'column')}, expected the model's {_count(n_dims, 'input')}, "
            "with or without a target"
        )
    if table.n_dropped:
        print(f"Dropped {_count(table.n_dropped, 'row')} with missing cells.", file=sys.stderr)
    prediction = post.predict(X)
    write_predictions(options.predictions or sys.stdout, X, names, prediction, y, target)
    if y is not None:
        for line in _scores(post, prediction, X, y):
            print(line, file=sys.stderr)
    return 0


def _info(options: argparse.Namespace) -> int:
    for name, value in _environment():
        print(f"{name:<16}{value}")
    return 0


def _bench(options: argparse.Namespace) -> int:
    folder = Path(__file__).resolve().parents[1] / "bench"
    missing = [name for name in ("pytest", "pytest_benchmark") if importlib.util.find_spec(name) is None]
    if not folder.is_dir():
        raise DataError("benchmarks are part of the source tree only: clone the repository and install it with -e")
    files = sorted(folder.glob(f"bench_{options.group or '*'}.py"))
    if not files:
        groups = ", ".join(path.stem.removeprefix("bench_") for path in sorted(folder.glob("bench_*.py")))
        raise DataError(f"group {options.group!r}: no such benchmark, expected one of {groups}")
    if missing:
        raise DataError(f"{' and '.join(missing)} not installed: pip install 'maskerade_fast[test]'")
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "python_files=bench_*.py"]
        timing = ["--benchmark-quiet", "--benchmark-columns=median", f"--benchmark-json={results}"]
        # pytest speaks on the error stream: what this command prints is the table, or the rows, and nothing else
        code = subprocess.run([*command, *timing, *map(str, files)], stdout=sys.stderr.fileno(), check=False).returncode
        if not results.is_file() or not results.read_text().strip():
            raise DataError("no benchmark gave a result; what failed is said above")
        table = [sys.executable, str(folder / "ratios.py"), str(results), *(["--json"] if options.json else [])]
        return subprocess.run(table, check=False).returncode or code


def _summary(post: Posterior, seconds: float) -> Iterable[str]:
    yield f"Log evidence    {post.log_evidence:.2f} ± {post.log_evidence_sd:.2f} (nats)"
    chances = ", ".join(f"{n}: {p:.3f}" for n, p in enumerate(post.component_probabilities, start=1))
    yield f"Mixture size    {chances} (probability of each number of components)"
    last = post.history[-1]
    yield f"Evaluations     {last.evaluations} likelihoods; effective sample {post.effective_sample_size:.1f}"
    yield f"Time            {seconds:.1f} s"


def _scores(post: Posterior, prediction: Prediction, X: Array, y: Array) -> Iterable[str]:
    rmse = float(np.sqrt(np.mean((prediction.mean - y) ** 2)))
    yield f"RMSE            {rmse:.4g} on {_count(len(y), 'row')} (their sd: {float(np.std(y)):.4g})"
    joint = f", jointly {post.joint_log_density(X, y):.2f}" if len(y) <= _MOST_JOINT_ROWS else ""
    yield f"Log density     {float(np.mean(prediction.log_density(y))):.4f} a row (nats){joint}"


def _split_rows(n_rows: int, fraction: float, kind: str, seed: int | None) -> tuple[Array, Array]:
    """Rows to learn from and rows held out, both in file order."""
    if not 0.0 <= fraction < 1.0:
        raise DataError(f"--test-fraction: {fraction}, expected at least 0 and below 1")
    count = max(1, round(fraction * n_rows)) if fraction > 0.0 else 0
    if count >= n_rows:
        raise DataError(f"--test-fraction: {fraction} of {_count(n_rows, 'row')} leaves none to learn from")
    order = np.arange(n_rows)
    if kind == "random":
        order = generator(seed).permutation(n_rows)
    return np.sort(order[: n_rows - count]), np.sort(order[n_rows - count :])


def _environment() -> Iterable[tuple[str, str]]:
    from threadpoolctl import threadpool_info

    from .backends.cpu._parallel import n_threads

    yield "maskerade_fast", _version("maskerade_fast") or "run from its source tree, not installed"
    yield "Python", f"{platform.python_version()} on {platform.platform()}"
    for name in ("numpy", "scipy", "numba", "tqdm", "matplotlib"):
        yield name, _version(name) or "not installed"
    yield "threads", f"{n_threads()} of {os.cpu_count()} processors (NUMBA_NUM_THREADS)"
    for pool in threadpool_info():
        if pool["user_api"] == "blas":
            yield "BLAS", f"{pool['internal_api']} {pool['version']}, {pool['num_threads']} threads"
    beside = Path(__file__).parent / "backends" / "cpu" / "__pycache__"
    yield "compiled code", os.environ.get("NUMBA_CACHE_DIR", f"{beside}, if writable (else set NUMBA_CACHE_DIR)")
    yield "devices", f"cpu ({platform.processor() or platform.machine()})"
    yield "GPU", _gpu()


def _gpu() -> str:
    from .backends import gpu_names, gpu_problem

    cupy = [name for name in map(_distribution, importlib.metadata.distributions()) if name.startswith("cupy")]
    have = f"CuPy is installed ({', '.join(sorted(cupy))})" if cupy else "CuPy is not installed"
    problem = gpu_problem()
    return f"not usable: {problem}; {have}" if problem else f"{', '.join(gpu_names())}; {have}"


def _distribution(distribution: importlib.metadata.Distribution) -> str:
    """Its name; a half-removed one has none."""
    return str(distribution.metadata["Name"] or "").lower()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise DataError("--plot needs matplotlib: pip install 'maskerade_fast[plot]'")


def _require_folder(path: Path | None) -> None:
    """Minutes of work should not end at a mistyped path."""
    if path is not None and path.is_dir():
        raise DataError(f"{path}: a folder, expected the name of a file to write")
    if path is not None and not path.resolve().parent.is_dir():
        raise DataError(f"{path}: no folder {path.resolve().parent} to write to")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _silent(*_: Any, **__: Any) -> None:
    pass


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; the usage is one `--help` away."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="maskerade-fast",
        description="Gaussian processes, averaged over spectral mixture kernels by Bayesian quadrature.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version('maskerade_fast')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="fit | predict | info | bench")

    fit = commands.add_parser("fit", help="learn from a CSV file; print evidence and scores")
    fit.set_defaults(run=_fit)
    fit.add_argument("data", metavar="DATA.csv", type=Path, help="numbers in columns, with or without a header")
    fit.add_argument("--target", metavar="NAME", help="column to predict (default: the last)")
    fit.add_argument("--test-fraction", metavar="F", type=float, default=0.0, help="share of rows held out (default 0)")
    fit.add_argument("--split", choices=("random", "last"), default="random", help="which rows are held out")
    spent = fit.add_mutually_exclusive_group()
    spent.add_argument("--budget", metavar="N", type=int, default=500, help="likelihood evaluations (default 500)")
    spent.add_argument("--minutes", metavar="T", type=float, help="time instead of a number of evaluations")
    fit.add_argument("--trend", choices=TRENDS, help="beside the process (default linear)")
    fit.add_argument("--seed", metavar="S", type=int, help="makes split and result repeatable")
    fit.add_argument(
        "--device", choices=("auto", "cpu", "gpu"), default="auto", help="default: the GPU where one can be used"
    )
    fit.add_argument("--plot", metavar="OUT.png", type=Path, help="picture of the fit (needs matplotlib)")
    fit.add_argument(
        "--panels", action="store_true", help="with --plot: the spectrum, the evidence and the weights too"
    )
    fit.add_argument("--predictions", metavar="OUT.csv", type=Path, help="of held-out rows, or of all if none are")
    fit.add_argument("--save", metavar="MODEL.npz", type=Path, help="for `maskerade-fast predict`")
    fit.add_argument(
        "--checkpoint", metavar="FILE", type=Path, help="keeps all likelihoods; the same call goes on from it"
    )
    fit.add_argument("--quiet", action="store_true", help="print nothing but errors")

    predict = commands.add_parser("predict", help="predict new rows with a saved model")
    predict.set_defaults(run=_predict)
    predict.add_argument("model", metavar="MODEL.npz", type=Path, help="written by `fit --save`")
    predict.add_argument("data", metavar="NEW.csv", type=Path, help="the model's inputs, with or without a target")
    predict.add_argument("--target", metavar="NAME", help="column of targets, if there is one (default: the last)")
    predict.add_argument("--predictions", metavar="OUT.csv", type=Path, help="default: standard output")

    info = commands.add_parser("info", help="versions, threads, devices, and what a GPU would need")
    info.set_defaults(run=_info)

    bench = commands.add_parser("bench", help="time this machine; needs the source tree")
    bench.set_defaults(run=_bench)
    bench.add_argument("group", metavar="GROUP", nargs="?", help="one file of bench/, e.g. prediction (default: all)")
    bench.add_argument("--json", action="store_true", help="print rows for machines in place of the table of ratios")
    return parser
