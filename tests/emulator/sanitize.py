"""Replay recorded launches under ThreadSanitizer, or under AddressSanitizer with UBSan."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import emulate

_SETTINGS = {
    "TSAN_OPTIONS": "halt_on_error=1 exitcode=66",
    "ASAN_OPTIONS": "detect_leaks=0 exitcode=67",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
_FIXED_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE: ThreadSanitizer's shadow expects the usual layout


def replay(
    recorded: Mapping[tuple[str, tuple[tuple[str, str], ...], int], list[Path]],
    mode: str,
    options: emulate.Options = emulate.Options(),  # noqa: B008 - immutable
) -> str | None:
    """What the sanitizer ("tsan", "asan") or the emulator says of the launches; None if nothing."""
    skip_file, skip_line = options.skip or ("", 0)
    for (code, defines, arch), files in recorded.items():
        program = emulate.compile_source(code, dict(defines), mode, arch)
        done = subprocess.run(
            [str(program), str(options.order), skip_file, str(skip_line), *map(str, files)],
            env={**os.environ, **_SETTINGS},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            preexec_fn=lambda: ctypes.CDLL(None).personality(_FIXED_ADDRESSES),
        )
        if done.returncode == 4:
            raise RuntimeError(f"the replay cannot read its records: {done.stderr}")
        if done.returncode != 0:
            return done.stderr or f"exit status {done.returncode}"
    return None
