"""Replay recorded launches: by themselves, under ThreadSanitizer, or under AddressSanitizer with UBSan."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import emulate

_SETTINGS = {
    "TSAN_OPTIONS": "halt_on_error=1 exitcode=66",
    "ASAN_OPTIONS": "detect_leaks=0 exitcode=67",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
_REPLAY = """
import ctypes, os, sys
arguments = [os.fsencode(text) for text in sys.argv[1:]]
sys.exit(ctypes.CDLL(sys.argv[1]).emu_replay(len(arguments), (ctypes.c_char_p * len(arguments))(*arguments)))
"""
_SECONDS = {"replay": 30, "tsan": 300, "asan": 300}  # far more than any driver takes
_libc = ctypes.CDLL(None)
_FIXED_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE: ThreadSanitizer's shadow expects the usual layout


def replay(
    recorded: Mapping[tuple[str, tuple[tuple[str, str], ...], int], list[Path]],
    mode: str,
    options: emulate.Options = emulate.Options(),  # noqa: B008 - immutable
) -> str | None:
    """What the sanitizer ("tsan", "asan"; "replay": none) or the emulator says of the launches; None if nothing.

    The emulator speaks of other bits than in the recorded run, too; a kernel without end is a report.
    """
    skip_file, skip_line = options.skip or ("", 0)
    emulate.launched += len(recorded)
    for (code, defines, arch), files in recorded.items():
        macros = dict(defines)
        if mode != "replay":  # sanitizers' programs take long to compile: with the entries that were launched alone
            macros |= {"MF_ONE_ENTRY": "1", **{f"MF_WITH_{path.name.partition('-')[2]}": "1" for path in files}}
        built = str(emulate.compile_source(code, macros, "plain" if mode == "replay" else mode, arch))
        program = [sys.executable, "-I", "-S", "-c", _REPLAY, built] if mode == "replay" else [built]
        command = [*program, str(options.order), skip_file, str(skip_line), *map(str, files)]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **_SETTINGS},
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_SECONDS[mode],
                preexec_fn=lambda: _libc.personality(_FIXED_ADDRESSES),
            )
        except subprocess.TimeoutExpired:
            return f"no end after {_SECONDS[mode]} s"
        if done.returncode == 4:
            raise RuntimeError(f"the replay cannot read its records: {done.stderr}")
        if done.returncode != 0:
            return done.stderr or f"exit status {done.returncode}"
    return None
