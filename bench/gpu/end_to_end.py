"""`marginalise` from data to evidence on one device: seconds, evidence, launches, a JSON line each as they come.

python bench/gpu/end_to_end.py --points 144 --device gpu --budget 200 [--dry-run]

bench/gpu_check.py runs it once for each problem and device, each in a process with a time limit of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]


def main() -> None:
    parser = argparse.ArgumentParser(description="One run of marginalise on one device.")
    parser.add_argument("--points", type=int, required=True)
    parser.add_argument("--device", choices=["cpu", "gpu"], required=True)
    parser.add_argument("--budget", type=int, required=True, help="evaluations of the likelihood")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    if options.dry_run:
        from gpu import dry

        dry.install()
    import maskerade_fast as mf

    launches: Counter[str] = Counter()
    if options.device == "gpu":
        count_launches(launches)
    x, y = series(options.points)
    settings: dict[str, Any] = {"device": options.device, "seed": 0}
    if options.dry_run:
        settings |= {"initial": 8, "nodes": 32, "max_components": 2}
    say(points=options.points, device=options.device, budget=options.budget)
    for name in ("cold", "warm"):  # the first run compiles, or reads what an earlier process compiled
        launches.clear()
        start = time.perf_counter()
        posterior = mf.marginalise(x, y, budget=options.budget, **settings)
        mean = posterior.predict(x[:10]).mean
        seconds = time.perf_counter() - start
        assert np.isfinite(mean).all()
        evidence = {"log_evidence": posterior.log_evidence, "log_evidence_sd": posterior.log_evidence_sd}
        say(**{name: {"run_seconds": seconds, **evidence, "launches": launches.total()}})
    say(launches_by_kernel=dict(launches.most_common()))


def series(n_points: int) -> tuple[Any, Any]:
    """Two tones, a slow change and noise: points evenly spaced over ten units."""
    rng = np.random.default_rng([4, n_points])
    x = np.linspace(0.0, 10.0, n_points)
    y = np.sin(2 * np.pi * 0.7 * x) + 0.5 * np.cos(2 * np.pi * 1.9 * x) + 0.1 * (x - 5.0)
    return x, y + 0.2 * rng.normal(size=n_points)


def count_launches(launches: Counter[str]) -> None:
    """Let every launch of ours count in `launches`, by the kernel's name."""
    from maskerade_fast.backends.gpu._loader import Kernel

    launch = Kernel.__call__

    def counted(kernel: Any, *args: Any, **kwargs: Any) -> None:
        launches[kernel.name] += 1
        launch(kernel, *args, **kwargs)

    Kernel.__call__ = counted  # type: ignore[method-assign]


def say(**entries: Any) -> None:
    print(json.dumps(entries), flush=True)


if __name__ == "__main__":
    main()
