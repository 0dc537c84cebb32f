"""Every CUDA source compiles for every architecture: no warning, no spill, no stack frame, no more than 48 KB static.

Exceptions are in kernel_exceptions.toml; one that no longer occurs is a fault. What each kernel of all variants uses
goes to ``build/kernels/<source>-sm_<arch>.tsv``.
"""

from __future__ import annotations

import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cubins
import pytest
import sources
from cubins import Usage
from selection import lacking
from sources import KERNELS, ROOT

LOG = ROOT / "build" / "kernels"
TEXTS = sources.texts()
QUICK = (75, 90)  # without mma, and the card the design is for
EXCEPTIONS = tomllib.loads((ROOT / "tests" / "kernel_exceptions.toml").read_text()).get("exception", [])
STATIC_LIMIT = 48 * 1024
every_source = pytest.mark.parametrize("source", sources.NAMES)

# the loader, which expands sources, needs a cupy; what compiles nothing is quick
pytestmark = [pytest.mark.usefixtures("emulated"), pytest.mark.sample]


Variant = dict[str, str]


def code_of(source: str) -> str:
    from maskerade_fast.backends.gpu._loader import expand

    return expand(KERNELS / source)


def name_of(variant: Variant) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(variant.items()))


def allowed(source: str, entry: str, variant: str, arch: int) -> tuple[int, int]:
    """Bytes of stack and of spills that kernel_exceptions.toml grants."""
    for e in EXCEPTIONS:
        same = (e["source"], e["entry"]) == (source, entry) and e["variant"] in ("*", variant)
        if same and arch in e.get("archs", cubins.ARCHITECTURES):
            return e["stack"], e["spilled"]
    return 0, 0


def faults_of(source: str, variant: str, arch: int, usage: Usage) -> list[str]:
    stack, spilled = allowed(source, usage.entry, variant, arch)
    limits = (
        ("stack", usage.stack, stack),
        ("spills", usage.spilled, spilled),
        ("static shared", usage.shared, STATIC_LIMIT),
    )
    where = f"{source} {usage.entry} [{variant}] sm_{arch}"
    return [f"{where}: {what} of {used} bytes, at most {limit}" for what, used, limit in limits if used > limit]


def compiled_for(request: pytest.FixtureRequest, source: str, arch: int, variants: list[Variant]) -> list[list[Usage]]:
    """What the kernels of each variant use."""
    if not cubins.supported(arch):
        lacking(request.config, f"{cubins.compiler()} of this machine does not know sm_{arch}")
    code = code_of(source)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda variant: cubins.compile_kernels(code, variant, arch), variants))


def check(request: pytest.FixtureRequest, source: str, arch: int, variants: list[Variant], log: Path) -> None:
    rows, faults = ["\t".join(["variant", *Usage._fields])], []
    for variant, usages in zip(variants, compiled_for(request, source, arch, variants), strict=True):
        assert usages, f"{source} [{name_of(variant)}] has no kernel"
        rows += ["\t".join([name_of(variant), *map(str, usage)]) for usage in usages]
        faults += [fault for usage in usages for fault in faults_of(source, name_of(variant), arch, usage)]
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{source}-sm_{arch}.tsv").write_text("\n".join(rows) + "\n")
    assert faults == []


@pytest.mark.matrix
@pytest.mark.usefixtures("cuda_compiler")
@pytest.mark.parametrize("arch", QUICK)
@every_source
def test_the_first_variant_compiles(request: pytest.FixtureRequest, source: str, arch: int) -> None:
    check(request, source, arch, cubins.variants_of(KERNELS / source)[:1], LOG / "first")


@pytest.mark.matrix
@every_source
def test_nvrtc_takes_the_first_variant(source: str) -> None:
    """NVRTC is what compiles on a card's machine, and refuses some of what nvcc takes."""
    if not cubins.has_nvrtc():
        pytest.skip("no NVRTC library on this machine; test_constexpr_functions_say_where_they_run remains")
    assert cubins.compile_kernels(code_of(source), cubins.variants_of(KERNELS / source)[0], 90, by="nvrtc")


@pytest.mark.matrix
@pytest.mark.usefixtures("cuda_compiler")
@pytest.mark.parametrize("k", range(len(EXCEPTIONS)))
def test_exceptions_still_occur(request: pytest.FixtureRequest, k: int) -> None:
    """On each architecture in some variant: those are compiled one by one, the entry alone, until one is found."""
    e = EXCEPTIONS[k]
    variants = [v for v in cubins.variants_of(KERNELS / e["source"]) if e["variant"] in ("*", name_of(v))]
    assert variants, f"{e['source']} has no variant {e['variant']}"
    alone = {"MF_ONE_ENTRY": "1", f"MF_WITH_{e['entry']}": "1"}
    for arch in e.get("archs", cubins.ARCHITECTURES):
        each = (compiled_for(request, e["source"], arch, [{**v, **alone}]) for v in variants)
        uses = (usage for (usages,) in each for usage in usages)
        assert any(usage.stack or usage.spilled for usage in uses), f"sm_{arch} needs no exception any more: {e}"


@pytest.mark.usefixtures("cuda_compiler")
@pytest.mark.sweep
@pytest.mark.parametrize("arch", cubins.ARCHITECTURES)
@every_source
def test_every_variant_compiles(request: pytest.FixtureRequest, source: str, arch: int) -> None:
    check(request, source, arch, cubins.variants_of(KERNELS / source), LOG)


# ---- what needs no compiler ----


def unplaced(code: str) -> list[str]:
    """Functions that are constexpr but neither ``__device__`` nor ``__host__ __device__``.

    Without a place they are the host's: nvcc evaluates them in constants of the device all the same, NVRTC does not.
    """
    heads = re.findall(
        r"(?:^|[;{}>])([^;{}<>=]*\bconstexpr\b[^;{}=()]*\b(\w+)\s*\([^;{}=]*\)[^;={}]*)\{",
        sources.without_comments(code),
    )
    return [name for head, name in heads if "__device__" not in head]


@every_source
def test_a_source_declares_the_macros_it_reads(source: str) -> None:
    """Every macro with a default in the source or its includes is among its ``// variants:``."""
    read = set(re.findall(r"^\s*#\s*ifndef (MF_\w+)\s*\n\s*#\s*define \1\b", code_of(source), re.M))
    assert read <= {name for variant in cubins.variants_of(KERNELS / source) for name in variant}


@pytest.mark.parametrize("text", TEXTS)
def test_constexpr_functions_say_where_they_run(text: str) -> None:
    assert unplaced(TEXTS[text]) == []


@pytest.mark.parametrize("text", TEXTS)
def test_rules_of_sources(text: str) -> None:
    code = sources.without_comments(TEXTS[text])
    assert re.findall(r"#\s*include\s*<", code) == [], "NVRTC finds no headers"
    assert text == "common.cuh" or "__shared__" not in code, "shared memory goes through MF_SHARED and MF_DYN_SMEM"
    assert re.findall(r"\b(?:blockIdx|gridDim)\.[yz]\b", code) == [], "the batch is on x: y and z end at 65535"
    entries = sources.ENTRY.findall(code)
    assert [entry for entry in entries if not re.search(r"_f(?:64|32)$", entry)] == []
    assert code.count("__global__") == code.count("__launch_bounds__") == len(entries)
    assert text.endswith(".cu") or entries == []


# ---- the checks themselves ----


def test_unplaced_functions_are_found() -> None:
    code = """
    constexpr int WIDE = 4; // constexpr int commented(int n) { return n; }
    constexpr int first(int n, bool b) {
        return n == 1 ? 2 : 3;
    }
    struct A {
        static constexpr int size = first(3, true);
        static constexpr unsigned long second(int n) { return n; }
        constexpr __device__ int third() const { return 1; }
    };
    template <typename T> constexpr T fourth(T x) { return x; }
    __host__ __device__ constexpr int fifth(int n) { return n; }
    __device__ __forceinline__ double sixth(double x) { constexpr double c = 2.0; if (x > c) { x = f(c); } return x; }
    """
    assert unplaced(code) == ["first", "second", "fourth"]


BAD = {
    "warns": 'extern "C" __global__ void f_f64(double* x) { int unused; x[0] = 1.0; }',
    "fails": 'extern "C" __global__ void f_f64(double* x) { x = 1.0; }',
}


@pytest.mark.usefixtures("cuda_compiler")
@pytest.mark.parametrize("kind", BAD)
def test_warnings_are_errors(kind: str) -> None:
    with pytest.raises(cubins.CompileError, match="unused" if kind == "warns" else "error"):
        cubins.compile_kernels(BAD[kind], {}, 90)


@pytest.mark.usefixtures("cuda_compiler")
def test_a_stack_frame_and_shared_memory_are_seen() -> None:
    code = """
    extern "C" __global__ void f_f64(double* x, int k) {
        __shared__ double s[128];
        double a[40];
        for (int i = 0; i < 40; ++i) { a[(i * k) % 40] = x[i]; }
        s[threadIdx.x] = a[k % 40];
        __syncthreads();
        x[k] = s[k] + a[(k + 1) % 40];
    }"""
    (usage,) = cubins.compile_kernels(code, {}, 90)
    assert usage.entry == "f_f64"
    assert usage.stack >= 320
    assert usage.shared >= 1024
    assert usage.registers > 0
    assert [fault.partition(": ")[2] for fault in faults_of("x.cu", "", 90, usage)] == [
        f"stack of {usage.stack} bytes, at most 0"
    ]


def test_faults_and_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Usage("f_f64", 255, STATIC_LIMIT + 8, 16, 40)
    assert len(faults_of("x.cu", "MF_D=2", 80, bad)) == 3
    granted = {"source": "x.cu", "entry": "f_f64", "variant": "MF_D=2", "archs": [80], "stack": 16, "spilled": 39}
    monkeypatch.setattr("test_kernel_sources.EXCEPTIONS", [granted])
    assert len(faults_of("x.cu", "MF_D=2", 80, bad)) == 2
    assert len(faults_of("x.cu", "MF_D=2", 90, bad)) == 3
    assert len(faults_of("x.cu", "MF_D=5", 80, bad)) == 3


def test_exceptions_name_kernels_that_exist() -> None:
    for e in EXCEPTIONS:
        assert e["source"] in sources.NAMES
        assert re.search(rf"\b{e['entry']}\(", TEXTS[e["source"]]), e
        assert e["reason"].strip()
        assert e["variant"] in ("*", *map(name_of, cubins.variants_of(KERNELS / e["source"])))


def test_variants(tmp_path: Path) -> None:
    source = tmp_path / "x.cu"
    source.write_text("// variants: MF_D=1,2 MF_NO_MMA=,1\ncode\n// variants: MF_D=0\n")
    assert list(map(name_of, cubins.variants_of(source))) == [
        "MF_D=1", "MF_D=1 MF_NO_MMA=1", "MF_D=2", "MF_D=2 MF_NO_MMA=1", "MF_D=0",
    ]  # fmt: skip
    source.write_text("nothing said\n")
    assert cubins.variants_of(source) == [{}]


def test_the_log_of_ptxas_is_read() -> None:
    log = """ptxas info    : Compiling entry function 'a_f64' for 'sm_90'
    ptxas info    : Function properties for a_f64
        8 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads
    ptxas info    : Used 32 registers, used 1 barriers, 40 bytes smem
    ptxas info    : Compiling entry function 'b_f32' for 'sm_90'
        0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
    ptxas info    : Used 7 registers"""
    assert cubins.usages(log) == [Usage("a_f64", 32, 40, 8, 36), Usage("b_f32", 7, 0, 0, 0)]
    with pytest.raises(cubins.CompileError):
        cubins.usages("Compiling entry function 'a' in new words")
