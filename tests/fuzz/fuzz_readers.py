"""Coverage-guided fuzzing of the two readers, by hand: needs atheris (Apache 2.0; pip install atheris), no part of CI.

    PYTHONPATH=. python tests/fuzz/fuzz_readers.py csv|archive|forged FOLDER -runs=300000 -timeout=5 -rss_limit_mb=1500

FOLDER keeps inputs that reach new code, and is read at the start. "csv" gives bytes to `read_csv`, "archive" to `load`
as they are, "forged" lets them choose edits of a saved posterior (tests/forged.py), so that checksums and headers do
not stop everything at the first door. A finding ends the run with a traceback and a file crash-...; add it to
tests/test_fuzz.py.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["maskerade_fast.io", "maskerade_fast.archive", "zipfile", "gzip", "csv"]):
    import forged

    from maskerade_fast.io import read_csv
    from maskerade_fast.posterior import load

SCRATCH = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
PARTS = forged.members(SCRATCH)
SEEDS = {
    "csv": [b"a,b,y\n1,2,3\n4,NA,6\n", b'"a;x";b\r\n1,5;2\r\n', b"\xef\xbb\xbfa\tb\n1e3\t-2\n", b"1,2,\n3,4,\n"],
    "archive": [forged.forged(PARTS, [])],
    "forged": [bytes(range(40))],
}


def csv(content: bytes) -> None:
    """Any bytes as a table."""
    forged.survives(read_csv, SCRATCH / "data.csv", content)


def archive(content: bytes) -> None:
    """Any bytes as a saved posterior."""
    forged.survives(load, SCRATCH / "data.npz", content)


def edits(content: bytes) -> None:
    """Any bytes as edits of a saved posterior."""
    data = atheris.FuzzedDataProvider(content)
    chosen = []
    for _ in range(data.ConsumeIntInRange(1, 4)):
        what = forged.EDITS[data.ConsumeIntInRange(0, len(forged.EDITS) - 1)]
        which, where = data.ConsumeIntInRange(0, 40), data.ConsumeIntInRange(0, 20_000)
        known = {"rename": forged.NAMES, "header": forged.HEADERS, "data": forged.NUMBERS}.get(what, ())
        pick = data.ConsumeIntInRange(0, 2 * len(known))
        value = known[pick] if pick < len(known) else data.ConsumeBytes(data.ConsumeIntInRange(0, 80))
        chosen.append((what, which, where, value))
    forged.survives(load, SCRATCH / "data.npz", forged.forged(PARTS, chosen))


if __name__ == "__main__":
    warnings.simplefilter("error")
    target, folder = sys.argv[1:3]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for k, seed in enumerate(SEEDS[target]):
        (Path(folder) / f"seed{k}").write_bytes(seed)
    atheris.Setup([sys.argv[0], *sys.argv[2:]], {"csv": csv, "archive": archive, "forged": edits}[target])
    atheris.Fuzz()
