"""Compile CUDA sources for the emulator: a shared library for ctypes, or a program that replays recorded launches under
a sanitizer.

Results are kept in ``build/emulator`` under a hash of everything that goes in, so a second run compiles nothing.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ORDERS = {"forward": 0, "reverse": 1, "shuffled": 2}
"""Orders in which threads of a block are resumed, and blocks run; see `Options.order`."""
CACHE = HERE.parents[1] / "build" / "emulator"

FLAGS = ["-std=c++20", "-O1", "-w", "-fno-strict-aliasing", "-ffp-contract=off", "-fvisibility=hidden"]
FLAGS += ["-fwrapv"]  # a 32-bit product that overflows does so, as on a card
FLAGS += ["-U_FORTIFY_SOURCE"]  # its longjmp refuses to leave a fiber
MODES = {
    "plain": ["-fPIC", "-fno-gnu-unique", "-DEMU_LIBRARY=1"],
    "tsan": ["-g1", "-fsanitize=thread"],
    "asan": ["-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}


BOUNDS = ["-fsanitize=bounds", "-fno-sanitize-recover=bounds"]  # indices of arrays whose size the compiler knows
ITEM_BYTES = {**dict.fromkeys("?bB", 1), **dict.fromkeys("hH", 2), **dict.fromkeys("iIf", 4), **dict.fromkeys("qQd", 8)}
_turn = threading.Lock()  # the handler of signals belongs to the launch that runs

launched = 0
"""Launches and replays of this process so far: what tells a test that ran kernels from one that did not."""


class CompileError(RuntimeError):
    """g++ does not take the source."""


class LaunchError(RuntimeError):
    """A launch that the emulator refused or stopped."""


class _Extent(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("low", "begin", "end", "high", "item")]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint64),
        ("shared_limit", ctypes.c_uint64),
        ("order", ctypes.c_int),
        ("skip_file", ctypes.c_char_p),
        ("skip_line", ctypes.c_int),
        ("first_block", ctypes.c_uint64),
        ("stop_block", ctypes.c_uint64),
        ("n_args", ctypes.c_int),
        ("args", ctypes.POINTER(ctypes.c_void_p)),
        ("sizes", ctypes.POINTER(ctypes.c_uint64)),
        ("extents", ctypes.POINTER(_Extent)),
        ("message", ctypes.c_char_p),
        ("message_size", ctypes.c_uint64),
    ]


class Options(NamedTuple):
    """How the emulator schedules, apart from what a launch says itself."""

    order: int = 0
    """0 forward, 1 reverse; any other number seeds a shuffle."""
    skip: tuple[str, int] | None = None
    """File and line of a barrier that is left out, as if it were deleted from the source."""
    blocks: slice = slice(None)
    """Blocks of the grid that run, in whatever order: ``slice(-1, None)`` is the last one alone."""


class Library:
    """The kernels of one compiled source."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        describe = self._library.emu_describe
        describe.restype = ctypes.c_char_p
        self.entries: dict[str, list[str]] = {}
        """Names of the kernels, and the type of each parameter: a letter of `struct`, after "*" for pointers."""
        for line in describe().decode().splitlines():
            name, _, codes = line.partition(" ")
            self.entries[name] = codes.split(",") if codes else []

    def launch(
        self,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[ctypes.c_void_p | bytes],
        shared: int = 0,
        shared_limit: int = 232448,
        options: Options = Options(),  # noqa: B008 - immutable
        extents: Sequence[tuple[int, int, int, int] | None] = (),
    ) -> None:
        """Run one kernel. Arguments are addresses (``c_void_p``) for pointers and the bytes of scalars.

        `extents` says for each argument where its array lies (`fake_memory.Extent`), so that accesses beside it are
        reported by name; without them they are faults, or not seen.
        """
        global launched
        if entry not in self.entries:
            raise LaunchError(f"no kernel {entry!r}, the source has {', '.join(sorted(self.entries))}")
        held = [ctypes.create_string_buffer(a, len(a)) if isinstance(a, bytes) else ctypes.byref(a) for a in args]
        sizes = [len(a) if isinstance(a, bytes) else ctypes.sizeof(ctypes.c_void_p) for a in args]
        n = len(args)
        message = ctypes.create_string_buffer(2000)
        first, stop, _ = options.blocks.indices(math.prod(grid))
        items = [ITEM_BYTES.get(code[1:], 1) for code in self.entries[entry]]
        places = [_Extent(*extent, item) if extent else _Extent() for extent, item in zip(extents, items, strict=False)]
        launch = _Launch(
            (ctypes.c_uint * 3)(*grid, *[1] * (3 - len(grid))),
            (ctypes.c_uint * 3)(*block, *[1] * (3 - len(block))),
            shared,
            shared_limit,
            options.order,
            options.skip[0].encode() if options.skip else None,
            options.skip[1] if options.skip else 0,
            first,
            max(first, stop),
            n,
            (ctypes.c_void_p * max(n, 1))(*[ctypes.cast(h, ctypes.c_void_p) for h in held]),
            (ctypes.c_uint64 * max(n, 1))(*sizes),
            (_Extent * n)(*places) if len(places) == n else None,
            ctypes.cast(message, ctypes.c_char_p),
            len(message),
        )
        launched += 1
        with _turn:
            failed = self._library.emu_launch(entry.encode(), ctypes.byref(launch))
        if failed:
            raise LaunchError(f"{entry}: {message.value.decode()}")


@functools.cache
def load(code: str, defines: tuple[tuple[str, str], ...] = (), arch: int = 90) -> Library:
    """The kernels of an expanded source, compiled with the macros `defines` as for compute capability `arch`."""
    return Library(compile_source(code, dict(defines), "plain", arch))


def compile_source(code: str, defines: Mapping[str, str], mode: str, arch: int = 90) -> Path:
    """Path of the library (mode "plain") or of the program that replays launches under a sanitizer ("tsan", "asan")."""
    flags = [*FLAGS, *MODES[mode], *_host_flags(), f"-D__CUDA_ARCH__={10 * arch}", "-DMF_EMULATED=1"]
    flags += [f"-D{name}={value}" for name, value in sorted(defines.items())]
    parts = [
        code,
        *flags,
        *(path.read_text() for path in (*sorted(HERE.glob("*.hpp")), HERE / "emulate.py")),
    ]
    key = hashlib.sha256("\0".join([*parts, _compiler_version()]).encode()).hexdigest()[:24]
    path = CACHE / f"{key}.{'so' if mode == 'plain' else mode}"
    if path.exists():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    work = f"{key}.{mode}.{os.getpid()}"  # others may be compiling the same
    source, compiled, output = (CACHE / f"{work}.{suffix}" for suffix in ("cpp", "o", "out"))
    table = "".join(f"    EMU_ENTRY({name}, {bounds})\n" for name, bounds in _entries(code, defines, arch))
    source.write_text(
        f'#include "{HERE / "shim.hpp"}"\n{code}\n#line 1 "table"\n#define EMU_ENTRIES \\\n'
        + table.replace("\n", " \\\n")
        + f'\n\n#include "{HERE / "entries.hpp"}"\n'
    )
    try:
        if mode == "plain":  # in two steps: the shim has what checked bounds call, and wants no sanitizer's library
            _run([_compiler(), *flags, *BOUNDS, "-c", str(source), "-o", str(compiled)])
            _run([_compiler(), "-shared", str(compiled), "-o", str(output)])
        else:
            _run([_compiler(), *flags, str(source), "-o", str(output)])
        output.replace(path)
    finally:
        for left in (source, compiled, output):
            left.unlink(missing_ok=True)
    return path


def _entries(code: str, defines: Mapping[str, str], arch: int) -> list[tuple[str, str]]:
    """Names and launch bounds of the kernels that are left after preprocessing, macros' included."""
    marks = ["-D__global__=EMU_GLOBAL", "-D__launch_bounds__(...)=EMU_BOUNDS(__VA_ARGS__)", "-DMF_EMULATED=1"]
    marks += [f"-D__CUDA_ARCH__={10 * arch}", *(f"-D{name}={value}" for name, value in defines.items())]
    text = _run([_compiler(), "-std=c++20", "-w", "-E", "-P", *marks, "-xc++", "-"], code)
    kernel = r'extern\s+"C"\s+EMU_GLOBAL\s+void\s+(?:EMU_BOUNDS\s*\(((?:[^()]|\([^()]*\))*)\)\s*)?(\w+)\s*\('
    entries = re.findall(kernel, text)
    if len(entries) < text.count("EMU_GLOBAL"):
        raise CompileError(f"a kernel's head is not as expected, after {[name for _, name in entries]}")
    return [(name, bounds.split(",")[0].strip() or "1024") for bounds, name in entries]


def _run(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(done.stderr[:8000])
    return done.stdout


@functools.cache
def _compiler() -> str:
    path = shutil.which(os.environ.get("CXX", "g++"))
    if path is None:
        raise CompileError("the emulator needs g++ with C++20 (or CXX), which is not on this machine")
    return path


@functools.cache
def _compiler_version() -> str:
    return _run([_compiler(), "--version"])


@functools.cache
def _host_flags() -> tuple[str, ...]:
    """-mfma where the host has it: `fma` is then an instruction rather than a call."""
    try:
        cpu = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    return ("-mfma",) if re.search(r"^flags\s*:.*\bfma\b", cpu, re.M) else ()
