"""The card and what it could do: attributes, versions, and floors by arithmetic.

A floor is the largest of three times: of the float64 pipe, of issuing instructions, of moving bytes once. The counts
are of the compiled inner loops on sm_90 (`sass.py`), so floors are estimates; fields that hold one say so in their
name.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import cupy

from bench import ROOT
from bench.surroundings import installed

FP64_LANES = {75: 2, 80: 32, 86: 2, 89: 2, 90: 64, 100: 64, 120: 2}  # a clock and multiprocessor
TENSOR = {80, 90, 100}  # where the float64 tensor instruction has twice the rate of multiply-adds
ISSUE_SLOTS = 4  # warp instructions a clock and multiprocessor
ATTRIBUTES = (
    "MultiProcessorCount",
    "MaxSharedMemoryPerBlockOptin",
    "MaxSharedMemoryPerMultiprocessor",
    "L2CacheSize",
    "ClockRate",
    "MemoryClockRate",
    "GlobalMemoryBusWidth",
    "EccEnabled",
)
PACKAGES = ("cupy", "cupy-cuda12x", "cupy-cuda13x", "numpy", "scipy", "numba", "pytest", "torch", "gpytorch")


class Work(NamedTuple):
    """What a call cannot do without."""

    steps: float
    """Passes through the inner loop."""
    fp64: float
    """Float64 instructions of a pass."""
    slots: float
    """Issue slots of a pass."""
    multiply_adds: float = 0.0
    """Of matrix algebra, which tensor instructions can do."""
    bytes: float = 0.0


def describe() -> dict[str, Any]:
    """Name, driver, limits and clocks of the current device."""
    device = cupy.cuda.Device()
    name = cupy.cuda.runtime.getDeviceProperties(device.id)["name"]
    attributes = {key: int(device.attributes[key]) for key in ATTRIBUTES if key in device.attributes}
    for key, field in (("ClockRate", "clocks.max.sm"), ("MemoryClockRate", "clocks.max.mem")):
        shown = smi(field) if not attributes.get(key) else None  # CUDA no longer promises these two
        if shown and shown.split()[0].isdecimal():
            attributes[key] = 1000 * int(shown.split()[0])
    return {
        "name": name.decode() if isinstance(name, bytes) else str(name),
        "capability": int(device.compute_capability),
        "memory_bytes": int(device.mem_info[1]),
        "attributes": attributes,
        "driver": smi("driver_version"),
        "cuda_of_driver": cupy.cuda.runtime.driverGetVersion(),
        "cuda_of_cupy": cupy.cuda.runtime.runtimeGetVersion(),
        "host": f"{platform.system()}, {platform.machine()}",
    }


def state() -> dict[str, Any]:
    """Clocks, temperature and power as nvidia-smi shows them now."""
    fields = ["clocks.sm", "clocks.mem", "clocks.max.sm", "temperature.gpu", "power.draw", "power.limit"]
    shown = (smi(",".join(fields)) or "").split(", ")
    values = shown if len(shown) == len(fields) else [None] * len(fields)
    return {field.replace(".", "_"): value for field, value in zip(fields, values, strict=True)}


def smi(fields: str) -> str | None:
    """Fields of nvidia-smi, separated by commas, for the current device; None where the tool is missing."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader", f"--id={cupy.cuda.Device().id}"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip() or None


def cached() -> int:
    """Compiled kernels in CuPy's disk cache."""
    folder = os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache"
    return sum(1 for _ in Path(folder).expanduser().glob("*.cubin"))


def sources() -> str:
    """What tells the measured code from other code, where no commit does: a digest of the package and its kernels."""
    files = [*(ROOT / "maskerade_fast").rglob("*.py"), *(ROOT / "kernels").glob("*.cu*")]
    hashed = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.relative_to(ROOT).as_posix()):
        hashed.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return hashed.hexdigest()[:12]


def versions() -> dict[str, str | None]:
    return {"python": platform.python_version(), **{name: installed(name) for name in PACKAGES}}


def floor(card: dict[str, Any], work: Work) -> dict[str, Any]:
    """floor_estimate_ms and what limits it, at the card's highest clock; None where the card does not tell a rate."""
    attributes, capability = card["attributes"], card["capability"]
    lanes = FP64_LANES.get(capability)
    cycles = 1e3 * attributes.get("ClockRate", 0) * attributes.get("MultiProcessorCount", 0)
    bandwidth = 2e3 * attributes.get("MemoryClockRate", 0) * attributes.get("GlobalMemoryBusWidth", 0) / 8
    if not (lanes and cycles and bandwidth):
        return {"floor_estimate_ms": None, "floor_estimate_limit": "unknown rates"}
    tensor = 2.0 if capability in TENSOR else 1.0
    seconds = {
        "float64 pipe": (work.steps * work.fp64 + work.multiply_adds / tensor) / (lanes * cycles),
        "issue": (work.steps * work.slots + work.multiply_adds / (8 * tensor)) / (32 * ISSUE_SLOTS * cycles),
        "bytes": work.bytes / bandwidth,
    }
    limit = max(seconds, key=lambda key: seconds[key])
    return {"floor_estimate_ms": 1e3 * seconds[limit], "floor_estimate_limit": limit}
