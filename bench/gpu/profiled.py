"""The kernels of one row of the table, launched for a profiler: `ours` once to warm up, once between its marks.

ncu --profile-from-start off --set full --page details python bench/gpu/profiled.py "K1 1000x1000, D=1" [--dry-run]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]


def main() -> None:
    if "--dry-run" in sys.argv:
        from gpu import dry

        dry.install()
    import cupy

    from gpu import rows

    name = sys.argv[1]
    case = next(case for case in rows.all_cases("--dry-run" in sys.argv) if case.name == name)
    row = case.make(**case.sizes)
    row.ours()
    cupy.cuda.Device().synchronize()
    if "--dry-run" not in sys.argv:
        cupy.cuda.profiler.start()
    row.ours()
    cupy.cuda.Device().synchronize()
    if "--dry-run" not in sys.argv:
        cupy.cuda.profiler.stop()
    print("profiled", flush=True)


if __name__ == "__main__":
    main()
