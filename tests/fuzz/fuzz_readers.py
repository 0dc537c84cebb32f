"""Coverage-guided fuzzing of the two readers, by hand: needs atheris (Apache 2.0; pip install atheris), no part of CI.

    PYTHONPATH=. python tests/fuzz/fuzz_readers.py csv|archive|forged FOLDER -runs=300000 -timeout=5 -rss_limit_mb=1500

FOLDER keeps inputs that reach new code, and is read at the start. "csv" gives bytes to `read_table` and "archive" to
`load` as they are; "forged" lets them choose edits of a saved posterior (tests/forged.py), which checksums and headers
would otherwise stop at once. A finding ends the run with a traceback and a file crash-...; add it to
tests/storage/test_fuzz.py.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))
STORAGE = Path(__file__).parents[2] / "maskerade_fast" / "storage"
MODULES = ["maskerade_fast.posterior.posterior_archive", "maskerade_fast.posterior.archive_checks"]
MODULES += [f"maskerade_fast.storage.{path.stem}" for path in STORAGE.glob("[!_]*.py")]
MODULES += [f"maskerade_fast.storage.csv_files.{path.stem}" for path in (STORAGE / "csv_files").glob("[!_]*.py")]
with atheris.instrument_imports(include=[*MODULES, "zipfile", "gzip", "csv"]):
    import forged

    from maskerade_fast.posterior.posterior import load
    from maskerade_fast.storage.csv_files import read_table

SCRATCH = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
PARTS = forged.members(SCRATCH)
SEEDS = {
    "csv": [
        *(b"a,b,y\n1,2,3\n4,NA,6\n", b'"a;x";b\r\n1,5;2\r\n', b"\xef\xbb\xbfa\tb\n1e3\t-2\n", b"1,2,\n3,4,\n"),
        *(b"# x\n# a b\n 1  2,5\n 3 4\n", b"sep=;\na;b\n1,234;1.234\n", "a\tb\n1\t2\n".encode("utf-16")),
        *(b"2018,2019\n1,2\n3,4\n", b"1700000000000000001,1\n1700000000000000003,2\n", b"2024-01-31;$5\n1 234;5%\n"),
    ],
    "archive": [forged.forged(PARTS, [])],
    "forged": [bytes(range(40))],
}


def csv(content: bytes) -> None:
    """Any bytes as a table."""
    table = forged.survives(read_table, SCRATCH / "data.csv", content)
    if table is not None:
        forged.check_table(table)


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
        values = {"rename": forged.NAMES, "header": forged.HEADERS, "data": forged.NUMBERS}.get(what, ())
        pick = data.ConsumeIntInRange(0, 2 * len(values))
        value = values[pick] if pick < len(values) else data.ConsumeBytes(data.ConsumeIntInRange(0, 80))
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
