"""``maskerade-fast info``: versions, threads, devices, and why a GPU cannot be used."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from .._version import installed_version
from ..backends import worker_threads


def info() -> int:
    """Run the command; returns the exit status."""
    for name, value in _environment():
        print(f"{name:<16}{value}")
    return 0


def _environment() -> Iterable[tuple[str, str]]:
    from threadpoolctl import threadpool_info

    yield "maskerade_fast", installed_version("maskerade_fast") or "run from its source tree, not installed"
    yield "Python", f"{platform.python_version()} on {platform.platform()}"
    for name in ("numpy", "scipy", "numba", "tqdm", "matplotlib"):
        yield name, installed_version(name) or "not installed"
    yield "threads", f"{worker_threads()} of {os.cpu_count()} processors (NUMBA_NUM_THREADS)"
    for pool in threadpool_info():
        if pool["user_api"] == "blas":
            yield "BLAS", f"{pool['internal_api']} {pool['version']}, {pool['num_threads']} threads"
    beside = Path(__file__).parents[1] / "backends" / "cpu" / "__pycache__"
    yield "compiled code", os.environ.get("NUMBA_CACHE_DIR", f"{beside}, if writable (else set NUMBA_CACHE_DIR)")
    yield "devices", f"cpu ({platform.processor() or platform.machine()})"
    yield "GPU", _gpu()


def _gpu() -> str:
    from ..backends import gpu_names, gpu_problem

    cupy = [name for name in map(_distribution, importlib.metadata.distributions()) if name.startswith("cupy")]
    have = f"CuPy is installed ({', '.join(sorted(cupy))})" if cupy else "CuPy is not installed"
    problem = gpu_problem()
    return f"not usable: {problem}; {have}" if problem else f"{', '.join(gpu_names())}; {have}"


def _distribution(distribution: importlib.metadata.Distribution) -> str:
    """Name of a distribution; one that is half removed has none."""
    return str(distribution.metadata["Name"] or "").lower()
