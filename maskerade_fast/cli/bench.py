"""``maskerade-fast bench``: time this machine; needs the source tree."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from ..errors import DataError


def bench(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    folder = Path(__file__).resolve().parents[2] / "bench"
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
