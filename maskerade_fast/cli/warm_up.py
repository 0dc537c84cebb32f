"""``maskerade-fast warm-up``: compile everything ahead, for images and CI."""

from __future__ import annotations

import argparse
import time

from ..backends import compile_ahead, gpu_problem, require_gpu
from ..run.heartbeat import ticking
from .console import Session
from .fit import COMPILING


def warm_up(options: argparse.Namespace, session: Session) -> int:
    """Run the command; returns the exit status."""
    start = time.perf_counter()
    if options.device == "gpu":
        require_gpu()
    devices = [options.device]
    if options.device == "auto":
        devices = ["cpu"] if gpu_problem() else ["cpu", "gpu"]
    with ticking(lambda: session.note(f"{time.perf_counter() - start:.0f} s: {COMPILING}"), every=30.0):
        from ..run.warm_up import warm_up_on

        if "cpu" in devices:
            compile_ahead(1)
        for device in devices:
            warm_up_on(device)
    print(f"Compiled for {' and '.join(devices)}, or found compiled, in {time.perf_counter() - start:.1f} s.")
    return 0
