"""Numba's disk cache, kept honest.

Numba stores compiled kernels beside the sources and renews one when its own file changes, but not when a file that it
inlines functions from does: after an edit of `_math` or `gram`, or a `git pull`, old machine code would go on giving
old numbers. So the cache carries a digest of all sources of this backend, and is emptied when that differs.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_DIGEST = "maskerade_kernels.digest"


def discard_stale(cache: Path, sources: Path) -> bool:
    """Empty the index of `cache` if it was made from other `sources`; True if it was.

    Nothing happens where the folder cannot be written: Numba then reads what an installation put there.
    """
    digest = hashlib.sha256()
    for path in sorted(sources.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    current = digest.hexdigest()
    record = cache / _DIGEST
    try:
        if record.exists() and record.read_text() == current:
            return False
        cache.mkdir(parents=True, exist_ok=True)
        for index in cache.glob("*.nbi"):
            index.unlink(missing_ok=True)
        temporary = record.with_suffix(f".{os.getpid()}")
        temporary.write_text(current)
        temporary.replace(record)
    except OSError:
        return False
    return True
