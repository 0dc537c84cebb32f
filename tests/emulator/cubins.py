"""Compile CUDA sources for real cards, without one: by nvcc if it is on the machine, else by NVRTC.

NVRTC needs its shared library alone: the wheel ``nvidia-cuda-nvrtc`` or a CUDA toolkit, no driver.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)


class Usage(NamedTuple):
    """What ptxas says of one kernel; bytes but for the registers."""

    entry: str
    registers: int
    shared: int
    stack: int
    spilled: int
    """Stores and loads together."""


class CompileError(RuntimeError):
    """Errors or warnings of the compiler."""


def variants_of(path: Path) -> list[dict[str, str]]:
    """The instances that a source declares in lines ``// variants: MF_D=1,2 MF_NO_MMA=,1``.

    A line stands for all combinations of its values, several lines add up; an empty value leaves the macro undefined.
    """
    variants: list[dict[str, str]] = []
    for line in re.findall(r"^// variants: (.*)$", path.read_text(encoding="utf-8"), re.M):
        choices = [(name, values.split(",")) for name, _, values in (item.partition("=") for item in line.split())]
        for combination in itertools.product(*(values for _, values in choices)):
            named = zip((name for name, _ in choices), combination, strict=True)
            variants.append({name: value for name, value in named if value})
    return variants or [{}]


def compiler() -> str | None:
    """ "nvcc", "nvrtc" or None."""
    return "nvcc" if shutil.which("nvcc") else "nvrtc" if has_nvrtc() else None


def has_nvrtc() -> bool:
    return _nvrtc() is not None


def supported(arch: int) -> bool:
    """Whether the compiler of this machine knows the architecture."""
    return arch in (_nvcc_architectures() if compiler() == "nvcc" else _nvrtc_architectures())


def compile_kernels(code: str, defines: Mapping[str, str], arch: int, by: str | None = None) -> list[Usage]:
    """Registers and memory of every kernel in an expanded source, by `compiler` or `by`; a warning is an error."""
    return compile_cubin(code, defines, arch, by)[1]


def compile_cubin(
    code: str, defines: Mapping[str, str], arch: int, by: str | None = None, lines: bool = False
) -> tuple[bytes, list[Usage]]:
    """The binary of an expanded source, with the numbers of its `lines` or not, and what `compile_kernels` returns."""
    options = ["-std=c++17", f"-arch=sm_{arch}", *(["-lineinfo"] if lines else [])]
    options += [f"-D{name}={value}" for name, value in sorted(defines.items())]
    cubin, log = _by_nvcc(code, options) if (by or compiler()) == "nvcc" else _by_nvrtc(code, options)
    return cubin, usages(log)


def compiler_version(by: str | None = None) -> str:
    """Name and release of `compiler` or `by`, as "nvcc 13.0"; one release of both has the same ptxas."""
    if (by or compiler()) == "nvcc":
        shown = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
        release = re.search(r"release (\d+\.\d+)", shown)
        return f"nvcc {release[1] if release else 'unknown'}"
    library = _nvrtc()
    assert library is not None
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"nvrtc {major.value}.{minor.value}"


def usages(log: str) -> list[Usage]:
    """What ``ptxas -v`` reports, kernel by kernel."""
    uses = []
    for block in re.split(r"Compiling entry function ", log)[1:]:
        entry = re.match(r"'(\w+)'", block)
        memory = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", block)
        registers = re.search(r"Used (\d+) registers", block)
        shared = re.search(r"(\d+) bytes smem", block)
        if not (entry and memory and registers):
            raise CompileError(f"ptxas speaks another language than expected: {block[:300]}")
        stack, stores, loads = map(int, memory.groups())
        uses.append(Usage(entry[1], int(registers[1]), int(shared[1]) if shared else 0, stack, stores + loads))
    return uses


def _by_nvcc(code: str, options: list[str]) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernels.cu"
        source.write_text(code)
        command = ["nvcc", "-cubin", "-Xptxas", "-v", "-Werror", "all-warnings", "--ftz=true", *options]
        done = subprocess.run(
            [*command, "-o", str(source.with_suffix(".cubin")), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or "warning" in done.stderr:
            raise CompileError(done.stderr[:8000])
        return source.with_suffix(".cubin").read_bytes(), done.stderr


@functools.cache
def _nvcc_architectures() -> set[int]:
    listed = subprocess.run(["nvcc", "--list-gpu-code"], capture_output=True, text=True, check=True).stdout
    return {int(number) for number in re.findall(r"sm_(\d+)\b", listed)}


@functools.cache
def _nvrtc() -> ctypes.CDLL | None:
    wheels = [Path(entry) / "nvidia" for entry in sys.path if entry]
    candidates = [str(path) for folder in wheels for path in sorted(folder.glob("*/lib/libnvrtc.so.*"), reverse=True)]
    for candidate in [*candidates, ctypes.util.find_library("nvrtc")]:
        if candidate and "alt" not in candidate:
            try:
                return ctypes.CDLL(candidate)
            except OSError:
                continue
    return None


@functools.cache
def _nvrtc_architectures() -> set[int]:
    library = _nvrtc()
    assert library is not None
    count = ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(numbers)
    return set(numbers)


def _by_nvrtc(code: str, options: list[str]) -> tuple[bytes, str]:
    library = _nvrtc()
    assert library is not None
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    library.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"kernels.cu", 0, None, None)
    try:
        arguments = [option.encode() for option in [*options, "-ftz=true", "--ptxas-options=-v"]]
        status = library.nvrtcCompileProgram(program, len(arguments), (ctypes.c_char_p * len(arguments))(*arguments))
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, text)
        length = ctypes.c_size_t()
        library.nvrtcGetCUBINSize(program, ctypes.byref(length))
        cubin = ctypes.create_string_buffer(max(1, length.value))
        library.nvrtcGetCUBIN(program, cubin)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    log = text.value.decode(errors="replace")
    if status != 0 or "warning" in log:
        raise CompileError(log[:8000])
    return cubin.raw, log
