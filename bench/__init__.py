"""Benchmarks of the package: ``micro`` (times of pieces), ``gpu`` (the card), ``studies`` (errors and predictions).

They run from the root of the source tree, as ``python -m bench.micro.floors``, and write to ``build/bench`` unless
``--out`` names another place. ``bench/README.md`` lists them.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
BUILD = ROOT / "build" / "bench"
