"""Load: memory over thousands of fits in one process, and the largest problem of a given memory.

    python -m bench.micro.load fits [2000]     resident memory over small fits, and its slope
    python -m bench.micro.load largest [8e9]   one likelihood of the most points in `max_bytes`, and one point more
    python -m bench.micro.load run [1e9]       a whole run of as many points, its address space bound
    python -m bench.micro.load likelihoods     MiB of a first likelihood, ours and the peers', a process for each

Prints lines of JSON; docs/measured/limits.md has what they said.
"""

from __future__ import annotations

import gc
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import maskerade_fast as mf
from bench.micro import peers, problems


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def most_resident() -> int:
    """Bytes of this process in memory at most. Not getrusage's, which begin with those of the process it came from."""
    (line,) = [row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM:")]
    return 1024 * int(line.split()[1])


def fits(count: int) -> dict[str, Any]:
    """Small fits of changing sizes, with predictions; bytes a fit by least squares, the first of them left out."""
    skip = min(100, count // 3)
    rng = np.random.default_rng(0)
    marks, start = [], time.perf_counter()
    for k in range(count):
        n_dims = 1 + k % 2
        X = rng.uniform(size=(10 + k % 7, n_dims))
        proposals = "laplace" if k % 8 else "prior"
        options: dict[str, Any] = {"budget": 30, "nodes": 64, "proposals": proposals, "device": "cpu"}
        post = mf.marginalise(X, np.sin(5 * X.sum(axis=1)), seed=k, **options)
        post.predict(X).quantile(0.5)
        if k % 10 == 9:
            del post
            gc.collect()
            marks.append((k + 1, resident()))
    late = np.array([mark for mark in marks if mark[0] > skip], dtype=float)
    slope = float(np.polyfit(late[:, 0], late[:, 1], 1)[0])
    return {
        "fits": count,
        "bytes_a_fit": round(slope),
        "first_mb": round(late[0, 1] / 1e6, 1),
        "last_mb": round(late[-1, 1] / 1e6, 1),
        "seconds": round(time.perf_counter() - start, 1),
    }


def bytes_needed(n_points: int) -> int:
    """What one dense likelihood says that it needs."""
    X, y = np.linspace(0.0, 1.0, n_points) ** 2, np.zeros(n_points)
    try:
        mf.log_likelihood(mixture(), X, y, 0.1, structure="dense", max_bytes=1)
    except MemoryError as error:
        match = re.search(r"needs (\d+) bytes", str(error))
        assert match is not None
        return int(match[1])
    raise AssertionError("one byte was enough")


def mixture() -> mf.GMMBatch:
    return mf.GMMBatch.from_list([([0.7, 0.3], [3.0, 40.0], [1.0, 2.0])])


def most_points(max_bytes: int) -> int:
    low, high = 1, 2 * int((max_bytes / 8) ** 0.5)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bytes_needed(middle) <= max_bytes else (low, middle)
    return low


def largest(max_bytes: int) -> dict[str, Any]:
    """The likelihood of the most points; resident memory at most is compared with what it began with."""
    n_points = most_points(max_bytes)
    X = np.linspace(0.0, 1.0, n_points) ** 2
    y = np.sin(30 * X)
    mf.log_likelihood(mixture(), X[:2500], y[:2500], 0.1)
    before, start = resident(), time.perf_counter()
    value = float(mf.log_likelihood(mixture(), X, y, 0.1, max_bytes=max_bytes).value[0])
    seconds = time.perf_counter() - start
    peak = most_resident()
    start = time.perf_counter()
    more = np.append(X, 1.1)
    try:
        mf.log_likelihood(mixture(), more, np.sin(more), 0.1, max_bytes=max_bytes)
        message = "none"
    except MemoryError as error:
        message = str(error)
    return {
        "max_bytes": max_bytes,
        "n_points": n_points,
        "log_likelihood": value,
        "seconds": round(seconds, 1),
        "grown_by_bytes": peak - before,
        "one_more": message,
        "one_more_seconds": round(time.perf_counter() - start, 3),
    }


def whole_run(max_bytes: int) -> dict[str, Any]:
    """A run of few evaluations with the address space bound to what it has at the start and `max_bytes`."""
    n_points = most_points(int(0.7 * max_bytes))
    X = np.linspace(0.0, 1.0, n_points) ** 2
    y = np.sin(30 * X) + 0.1 * np.random.default_rng(0).normal(size=n_points)
    mf.marginalise(X[:2500], y[:2500], budget=2, nodes=64, max_components=1, seed=0, device="cpu")
    before = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (before + max_bytes, before + max_bytes))
    start = time.perf_counter()
    post = mf.marginalise(X, y, budget=4, nodes=64, max_components=1, seed=0, device="cpu")
    peak = most_resident()
    return {
        "bound_bytes": max_bytes,
        "n_points": n_points,
        "log_evidence": post.log_evidence,
        "seconds": round(time.perf_counter() - start, 1),
        "peak_mb": round(peak / 1e6),
    }


def ours(g: mf.GMMBatch, X: Any, y: Any) -> peers.Call:
    return lambda: mf.log_likelihood(g, X, y, problems.NOISE).value


PEERS: dict[str, Any] = {
    **{"ours": ours, "NumPy, SciPy": peers.scipy_loop},
    **{"GPyTorch": peers.gpytorch_likelihood, "JAX": peers.jax_likelihood},
}


def likelihood(who: str, number: int) -> float:
    """MiB by which a first likelihood raises the peak of this process, after one at a small size."""
    size = problems.LIKELIHOODS[number]
    PEERS[who](*problems.regression(16, *size[1:]))()
    call = PEERS[who](*problems.regression(*size))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = most_resident()
    call()
    return (most_resident() - before) / 2**20


def likelihoods() -> dict[str, Any]:
    figures = {}
    for number, size in enumerate(problems.LIKELIHOODS):
        for who in PEERS:
            command = [sys.executable, "-m", "bench.micro.load", "likelihood", who, str(number)]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            figures[f"{size} {who}"] = round(float(run.stdout)) if run.returncode == 0 else "not installed"
    return figures


def main() -> None:
    what, *rest = sys.argv[1:]
    functions: dict[str, tuple[Any, float]] = {"fits": (fits, 2000), "largest": (largest, 8e9), "run": (whole_run, 1e9)}
    if what == "likelihood":
        print(likelihood(rest[0], int(rest[1])))
    elif what == "likelihoods":
        print(json.dumps(likelihoods()))
    else:
        function, usual = functions[what]
        print(json.dumps(function(int(float(rest[0]) if rest else usual))))


if __name__ == "__main__":
    main()
