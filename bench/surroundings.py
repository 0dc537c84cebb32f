"""What a timing or a result carries with it: device, threads, versions and commit."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any


@functools.cache
def surroundings() -> dict[str, Any]:
    """Device, threads, versions and commit of this run."""
    import numba

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    packages = ("numpy", "scipy", "numba", "llvmlite", "torch", "gpytorch", "scikit-learn", "jax")
    versions = {package: number for package in packages if (number := installed(package))}
    return {
        "device": f"{processor()}, {cores} cores",
        "threads": numba.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,  # of others, before anything is timed
        "versions": {
            "python": platform.python_version(),
            **versions,
            "maskerade_fast": installed("maskerade_fast") or "source tree",
        },
        "commit": commit(),
    }


def processor() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def installed(package: str) -> str | None:
    try:
        return version(package)
    except ModuleNotFoundError:
        return None


def commit() -> str:
    """Commit of the tree, with a "+" if files differ from it; "unknown" outside a repository."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        run = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return run.stdout.strip()
