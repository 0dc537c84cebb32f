"""Loading kernels: expanded sources, one module for each device and set of macros, binaries, clear refusals."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cubins
import numpy as np
import pytest

from maskerade_fast.errors import BackendUnavailableError

ROOT = Path(__file__).parents[2]
SOURCE = """// variants: MF_FACTOR=2,3
#include "common.cuh"
#ifndef MF_FACTOR
#define MF_FACTOR 1
#endif
extern "C" __global__ void __launch_bounds__(32) scale_f64(double* x, index_t n) {
    for (index_t k = grid_start(); k < n; k += grid_stride()) {
        x[k] *= MF_FACTOR;
    }
}
extern "C" __global__ void __launch_bounds__(32) fill_f64(double* x, int n) {
    MF_DYN_SMEM(double, s);
    for (int k = threadIdx.x; k < n; k += 32) {
        s[k] = k;
    }
    __syncthreads();
    x[0] = s[n - 1];
}
"""


@pytest.fixture
def loader(emulated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`_loader`, with a folder of sources that holds scale.cu and common.cuh."""
    from maskerade_fast.backends.gpu import _loader

    shutil.copy(ROOT / "kernels" / "common.cuh", tmp_path)
    (tmp_path / "scale.cu").write_text(SOURCE)
    monkeypatch.setattr(_loader, "source_folder", lambda: tmp_path)
    return _loader


def scaled(kernel: Any) -> float:
    import cupy

    x = cupy.ones(5)
    kernel((1,), (32,), (x, np.int64(5)))
    return float(x[4])


# ---- text ----


def test_includes_are_pasted_once_under_their_names(tmp_path: Path, emulated: Any) -> None:
    from maskerade_fast.backends.gpu._loader import expand

    (tmp_path / "a.cuh").write_text("#pragma once\nint a;\n")
    (tmp_path / "b.cuh").write_text('#pragma once\n#include "a.cuh"\nint b;\n')
    (tmp_path / "k.cu").write_text('// k\n#include "a.cuh"\n#include "b.cuh"\nint k;\n')
    assert expand(tmp_path / "k.cu").splitlines() == [
        '#line 1 "k.cu"', "// k",
        '#line 1 "a.cuh"', "", "int a;",
        '#line 3 "k.cu"',
        '#line 1 "b.cuh"', "",
        '#line 3 "b.cuh"', "int b;",
        '#line 4 "k.cu"', "int k;",
    ]  # fmt: skip


def test_a_file_that_ends_without_a_newline(tmp_path: Path, emulated: Any) -> None:
    from maskerade_fast.backends.gpu._loader import expand

    (tmp_path / "a.cuh").write_text("int a;")
    (tmp_path / "k.cu").write_text('#include "a.cuh"\nint k;')
    assert expand(tmp_path / "k.cu").splitlines()[2:] == ["int a;", '#line 2 "k.cu"', "int k;"]


@pytest.mark.parametrize("source", sorted(path.name for path in (ROOT / "kernels").glob("*.cu")))
def test_each_entry_can_be_compiled_alone(emulated: Any, source: str) -> None:
    """The guards enclose an entry from its first line to its last, and lines keep their numbers."""
    from maskerade_fast.backends.gpu._loader import expand

    text = (ROOT / "kernels" / source).read_text()
    names = re.findall(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)', text)
    guarded = re.findall(
        r"^#if !defined\(MF_ONE_ENTRY\) \|\| defined\(MF_WITH_(\w+)\)\n"
        r"#line (\d+) \"(\S+)\"\n(.*?)^#endif\n#line (\d+)",
        expand(ROOT / "kernels" / source),
        re.M | re.S,
    )
    assert [name for name, *_ in guarded] == names
    for name, first, file, body, after in guarded:
        assert file == source
        lines = text.splitlines(keepends=True)[int(first) - 1 : int(after) - 1]
        assert body == "".join(lines)
        assert lines[-1] == "}\n"
        assert body.count("__global__") == 1
        assert re.search(rf"\b{name}\(", body)


@pytest.mark.skipif(cubins.compiler() is None, reason="neither nvcc nor NVRTC is on this machine")
def test_one_entry_is_compiled_alone(emulated: Any) -> None:
    from maskerade_fast.backends.gpu._loader import expand

    macros = {"MF_ONE_ENTRY": "1", "MF_WITH_gram_f64": "1", "MF_PER_AXIS": "0"}
    compiled = cubins.compile_kernels(expand(ROOT / "kernels" / "gram.cu"), macros, 90)
    assert [usage.entry for usage in compiled] == ["gram_f64"]


def test_sources_are_found(emulated: Any) -> None:
    from maskerade_fast.backends.gpu._loader import source_folder

    assert (source_folder() / "common.cuh").is_file()


# ---- modules ----


def test_macros_choose_instances(loader: Any) -> None:
    assert scaled(loader.load("scale", "scale_f64", MF_FACTOR=2)) == 2.0
    assert scaled(loader.load("scale", "scale_f64", MF_FACTOR=3)) == 3.0
    assert scaled(loader.load("scale", "scale_f64")) == 1.0


def test_a_kernel_is_loaded_once_for_each_device(cupy: Any, loader: Any, emulated: Any) -> None:
    emulated.state.devices.append(emulated.FakeDevice(shared_bytes=65536, multiprocessors=40, capability=75))
    first = loader.load("scale", "scale_f64", MF_FACTOR=2)
    assert loader.load("scale", "scale_f64", MF_FACTOR=2) is first
    with cupy.cuda.Device(1):
        other = loader.load("scale", "scale_f64", MF_FACTOR=2)
        assert other is not first
        assert scaled(other) == 2.0
        assert loader.device_limits() == (65536, 40, 75)
    assert loader.load("scale", "scale_f64", MF_FACTOR=2) is first
    assert loader.device_limits() == (232448, 132, 90)


def test_a_binary_is_preferred_if_it_holds_an_image(
    cupy: Any, loader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    class Module(cupy.RawModule):
        def __init__(self, **options: Any) -> None:
            taken.append(sorted(options))
            self.binary = Path(options["path"]) if "path" in options else None
            super().__init__(**options)

        def compile(self, log_stream: Any = None) -> None:
            if self.binary is None or "with image" not in self.binary.read_text():
                super().compile()

        def get_function(self, name: str) -> Any:
            return f"{name} of the binary" if self.binary else super().get_function(name)

    monkeypatch.setattr(cupy, "RawModule", Module)
    name = loader.instance_name("scale", (("MF_OTHER", 1), ("MF_FACTOR", 2)))
    assert name == "scale-MF_FACTOR_2-MF_OTHER_1"
    (tmp_path / f"{name}.fatbin").write_text("with image")
    (tmp_path / "scale-MF_FACTOR_3.fatbin").write_text("without")
    assert loader.load("scale", "scale_f64", MF_OTHER=1, MF_FACTOR=2).raw == "scale_f64 of the binary"
    assert taken == [["path"]]
    assert scaled(loader.load("scale", "scale_f64", MF_FACTOR=3)) == 3.0
    assert taken[1:] == [["path"], ["code", "options"]]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not on this machine")
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on this machine")
def test_cmake_names_binaries_as_the_loader_does(loader: Any, tmp_path: Path) -> None:
    build = tmp_path / "build"
    subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Unix Makefiles", "-DMF_BUILD_FATBIN=ON"],
        check=True,
        capture_output=True,
    )
    rules = (build / "CMakeFiles" / "fatbin.dir" / "build.make").read_text()
    expected = {
        loader.instance_name(source.stem, tuple(variant.items()))
        for source in (ROOT / "kernels").glob("*.cu")
        for variant in cubins.variants_of(source)
    }
    assert set(re.findall(r"^fatbin/(\S+)\.fatbin:", rules, re.M)) == expected


# ---- launches ----


def test_more_than_48_kb_is_asked_for(cupy: Any, loader: Any, emulated: Any) -> None:
    kernel = loader.load("scale", "fill_f64")
    for n in (7000, 5, 29056):  # 232448 bytes: all there is
        x = cupy.empty(1)
        kernel((1,), (32,), (x, np.int32(n)), shared_mem=8 * n)
        assert float(x[0]) == n - 1
    with pytest.raises(emulated.CUDADriverError):
        kernel((1,), (32,), (x, np.int32(29057)), shared_mem=8 * 29057)


@pytest.mark.parametrize("number", [5, 5.0, None, np.ones(5)])
def test_numbers_need_a_type(cupy: Any, loader: Any, number: Any) -> None:
    with pytest.raises(TypeError, match=r"argument 1 of scale_f64: \w+, expected a CuPy array or a NumPy scalar"):
        loader.load("scale", "scale_f64")((1,), (32,), (cupy.ones(5), number))


def test_the_debug_switch_waits_and_names_the_kernel(
    cupy: Any, loader: Any, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = loader.load("scale", "scale_f64")
    scaled(kernel)
    waited = emulated.state.synchronised
    x = cupy.ones(5)
    kernel((1,), (32,), (x, np.int64(5)))
    assert emulated.state.synchronised == waited
    monkeypatch.setenv("MASKERADE_FAST_SYNC_LAUNCHES", "1")
    kernel((1,), (32,), (x, np.int64(5)))
    assert emulated.state.synchronised == waited + 1

    def fail(self: Any) -> None:
        raise emulated.CUDARuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(emulated.Stream, "synchronize", fail)
    with pytest.raises(RuntimeError, match=r"kernel scale_f64, grid \(1,\), block \(32,\): cudaErrorIllegalAddress"):
        kernel((1,), (32,), (x, np.int64(5)))


def test_the_device_of_arrays(cupy: Any, loader: Any, emulated: Any) -> None:
    emulated.state.devices.append(emulated.FakeDevice())
    here = cupy.ones(3)
    with cupy.cuda.Device(1):
        there = cupy.ones(3)
    with loader.device_of(there, None, there):
        assert cupy.cuda.runtime.getDevice() == 1
    assert cupy.cuda.runtime.getDevice() == 0
    assert loader.device_of(None).id == 0
    with pytest.raises(ValueError, match=r"devices \[0, 1\], expected one"):
        loader.device_of(here, there)


# ---- no card ----


def import_error(emulated: Any) -> str:
    for name in [name for name in sys.modules if name.startswith("maskerade_fast.backends.gpu")]:
        del sys.modules[name]
    with pytest.raises(BackendUnavailableError) as caught:
        __import__("maskerade_fast.backends.gpu")
    return str(caught.value)


def test_no_device(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    emulated.state.devices = []
    assert import_error(emulated).startswith("no CUDA device can be used: cudaErrorNoDevice")
    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "getDeviceCount", lambda: 0)
    assert import_error(emulated) == "no CUDA device can be used: the driver shows none (CUDA_VISIBLE_DEVICES?)"


def test_no_driver(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise emulated.CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")

    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "getDeviceCount", fail)
    assert "cudaErrorInsufficientDriver" in import_error(emulated)


def test_no_cupy(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    message = import_error(emulated)
    assert "maskerade_fast[cuda12]" in message
    assert "\n" not in message


def test_cupy_without_a_folder(emulated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 14 on CuPy makes its folder for compiled kernels when it is imported, or raises what the system says."""
    (tmp_path / "cupy.py").write_text("raise PermissionError(13, 'Permission denied', '/home/me/.cupy')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cupy")
    message = import_error(emulated)
    assert message.startswith("CuPy cannot be imported: [Errno 13] Permission denied: '/home/me/.cupy'; ")
    assert "set CUPY_CACHE_DIR" in message


def test_no_sources(emulated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from maskerade_fast.backends.gpu import _loader

    monkeypatch.setattr(_loader, "__file__", str(tmp_path / "package" / "backends" / "gpu" / "_loader.py"))
    _loader.source_folder.cache_clear()
    with pytest.raises(BackendUnavailableError, match="the CUDA sources are missing, looked in"):
        _loader.source_folder()
