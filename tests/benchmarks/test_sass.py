"""bench/gpu/sass.py: the fast path of a loop, counts by class, occupancy, and the counts that floors are made of."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
pytestmark = pytest.mark.skipif(not BENCH.is_dir(), reason="benchmarks are part of the source tree only")

Module = Callable[[str], Any]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    """Import of a module of the package bench/gpu."""
    monkeypatch.syspath_prepend(str(BENCH))
    yield lambda name: importlib.import_module(f"gpu.{name}")
    for name in [name for name in sys.modules if name.split(".")[0] == "gpu"]:
        del sys.modules[name]


def kernel_of(flow: Any, body: str) -> Any:
    """A kernel of the lines of `body`: labels end with a colon."""
    lines = ['\t.section\t.text.k_f64,"ax",@progbits', "k_f64:", ".text.k_f64:"]
    for number, line in enumerate(filter(None, map(str.strip, body.splitlines()))):
        lines.append(
            line if line.endswith(":") or line.startswith("//") else f"        /*{16 * number:04x}*/    {line} ;"
        )
    return flow.kernels("\n".join(lines))["k_f64"]


def names(instructions: list[Any]) -> list[str]:
    return [instruction.opcode for instruction in instructions]


# ---- the fast path ----

ROOTS = """
    S2R R0, SR_TID.X
.L_x_0:
    LDG.E.64 R2, desc[UR4][R4.64]
    MUFU.RSQ64H R7, R3
    DMUL R8, R6, R6
    @!P0 BRA `(.L_x_1)
    MOV R9, 0x80
    CALL.REL.NOINC `($__internal_0_$__cuda_sm20_dsqrt_rn_f64_mediumpath_v1)
.L_x_1:
    BSYNC B0
    @P1 DADD R10, R10, R8
    STS.64 [R11], R10
    @P2 BRA `(.L_x_0)
    EXIT
.L_x_9:
    BRA `(.L_x_9)
    NOP
"""


def test_a_call_is_left_out_where_a_branch_goes_around_it(gpu: Module) -> None:
    flow = gpu("control_flow")
    (loop,) = kernel_of(flow, ROOTS).loops  # the one after EXIT is never reached
    path = ["LDG.E.64", "MUFU.RSQ64H", "DMUL", "BRA", "BSYNC", "DADD", "STS.64", "BRA"]
    assert names(loop.pass_through) == path
    assert dict(flow.count(loop.pass_through)) == {
        **{"loads global": 1, "mufu64": 1, "fp64": 1, "fp64 predicated": 1, "stores shared": 1, "control": 3},
        "slots": 8,
    }
    without = ROOTS.replace("@!P0 BRA `(.L_x_1)", "DADD R8, R8, R8")
    (loop,) = kernel_of(flow, without).loops
    assert "CALL.REL.NOINC" in names(loop.pass_through)


NESTED = """
.L_x_0:
    DADD R0, R0, R2
    ISETP.GE.AND P0, PT, R4, 0x1, PT
    @!P0 BRA `(.L_x_3)
.L_x_1:
    DFMA R6, R6, R6, R8
    DFMA R6, R6, R6, R8
    @P1 BRA `(.L_x_1)
    FSETP.GEU.FTZ.AND P2, PT, |R9|, 4.19, PT
    @!P2 BRA `(.L_x_2)
    DMUL R6, R6, 2
    DMUL R6, R6, 3
.L_x_2:
    BRA.DIV UR4, `(.L_x_5)
.L_x_3:
    @P3 BRA `(.L_x_0)
    EXIT
.L_x_5:
    WARPSYNC.COLLECTIVE R3, `(.L_x_6)
.L_x_6:
    BRA `(.L_x_3)
"""


@pytest.mark.parametrize("diverged", ["UR4, `(.L_x_5)", "~URZ, `(.L_x_5)", "`(.L_x_5)"])  # by architecture
def test_inner_loops_are_passed_once_and_checks_of_ranges_are_not(gpu: Module, diverged: str) -> None:
    flow = gpu("control_flow")
    kernel = kernel_of(flow, NESTED.replace("UR4, `(.L_x_5)", diverged))
    inner, outer = kernel.loops
    assert (inner.outer, outer.inner) == (outer, [inner])
    assert names(inner.pass_through) == ["DFMA", "DFMA", "BRA"]
    assert names(outer.pass_through) == [
        *("DADD", "ISETP.GE.AND", "BRA", "DFMA", "DFMA", "BRA", "FSETP.GEU.FTZ.AND", "BRA", "BRA.DIV", "BRA"),
    ]
    assert flow.count(outer.own())["fp64"] == 1
    assert (inner.depth, outer.depth) == (2, 1)
    assert gpu("sass").hot_loop(kernel) is inner


def test_a_loop_that_is_left_from_its_header(gpu: Module) -> None:
    """``while``: the way on starts at the header, and the body is passed once all the same."""
    flow = gpu("control_flow")
    body = """
    .L_x_0:
        DADD R0, R0, R2
    .L_x_1:
        @P0 BRA `(.L_x_2)
        DFMA R6, R6, R6, R8
        BRA `(.L_x_1)
    .L_x_2:
        @P1 BRA `(.L_x_0)
        EXIT
    """
    _, outer = kernel_of(flow, body).loops
    assert names(outer.pass_through) == ["DADD", "BRA", "DFMA", "BRA", "BRA"]


def test_branches_on_uniform_predicates_go_both_ways(gpu: Module) -> None:
    flow = gpu("control_flow")
    body = """
    .L_x_0:
        BRA.U !UP0, `(.L_x_1)
        DADD R0, R0, R2
    .L_x_1:
        @P0 EXIT
        BRA P1, `(.L_x_0)
        RET.REL.NODEC R2 `(k_f64)
    """
    (loop,) = kernel_of(flow, body).loops
    assert names(loop.pass_through) == ["BRA.U", "EXIT", "BRA"]
    body = body.replace("BRA.U !UP0, `(.L_x_1)", "BRA `(.L_x_2)").replace("@P0 EXIT", ".L_x_2:\nDMUL R0, R0, R0")
    (loop,) = kernel_of(flow, body).loops
    assert names(loop.pass_through) == ["BRA", "DMUL", "BRA"]


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        *(("DSETP.GEU.AND", "fp64"), ("DMMA.8x8x4", "dmma"), ("MUFU.EX2", "mufu"), ("MUFU.RCP64H", "mufu64")),
        *(("LDL.64", "loads local"), ("STL", "stores local"), ("ULDC.64", "loads constant"), ("LD.E", "loads generic")),
        *(("F2I.S64.F64.TRUNC", "conversions"), ("LDSM.16.M88", "loads shared"), ("FFMA", "other"), ("R2P", "other")),
        ("BAR.SYNC.DEFER_BLOCKING", "control"),
    ],
)
def test_kinds(gpu: Module, opcode: str, kind: str) -> None:
    flow = gpu("control_flow")
    assert flow.kind_of(flow.Instruction(opcode, "R0, R1")) == kind


def test_places_are_innermost_first(gpu: Module) -> None:
    body = """
        //## File "/x/a.cuh", line 7 inlined at "/x/k.cu", line 3
        //## File "/x/k.cu", line 3
        DADD R0, R0, R2
        //## File "/x/k.cu", line 4
        EXIT
    """
    kernel = kernel_of(gpu("control_flow"), body)
    assert [i.places for i in kernel.instructions] == [("a.cuh:7", "k.cu:3"), ("k.cu:4",)]


# ---- occupancy and tables ----


@pytest.mark.parametrize(
    ("arch", "registers", "shared", "threads", "expected"),
    [
        (90, 32, 0, 1024, "64 / 64"),
        (90, 33, 0, 256, "48 / 64"),  # registers come in units of 8 a thread
        (90, 255, 0, 128, "8 / 64"),
        (90, 32, 19536, 64, "22 / 64"),  # eleven blocks, each of which costs 1 KB more than it asks for
        (90, 32, 0, 32, "32 / 64"),  # 32 blocks
        (75, 32, 0, 64, "32 / 32"),
        (86, 40, 0, 256, "48 / 48"),
        (90, 128, 115712, 256, "16 / 64"),
        (90, 128, 115713, 256, "8 / 64"),
        (75, 32, 65537, 64, "0 / 32"),
    ],
)
def test_occupancy(gpu: Module, arch: int, registers: int, shared: int, threads: int, expected: str) -> None:
    """As NVIDIA's calculator has it."""
    assert gpu("sass_table").occupancy(arch, registers, shared, threads) == expected


def test_the_table_merges_variants_and_shows_moves(gpu: Module) -> None:
    table = gpu("sass_table")
    a, b = table.Facts(40, 60, 0.5, 8, 64, 0, "0", "32 / 64"), table.Facts(20, 60, 0.5, 8, 64, 16, "0", "32 / 64")
    before = {("gram", "g_f64", "MF_D=1"): a, ("gram", "g_f64", "MF_D=2"): a, ("gram", "h_f64", ""): a}
    assert table.table(before).splitlines()[2:] == [
        "| gram `g_f64` | all 2 | 40 | 60 | 50% | 8 | 5.0 | 64 | 0 | 0 | 32 / 64 |",
        "| gram `h_f64` | – | 40 | 60 | 50% | 8 | 5.0 | 64 | 0 | 0 | 32 / 64 |",
    ]
    after = {("gram", "g_f64", "MF_D=1"): b, ("gram", "g_f64", "MF_D=2"): a}
    assert table.table(before, after).splitlines()[2:4] == [
        "| gram `g_f64` | MF_D=1 | 40 → 20 | 60 | 50% | 8 | 5.0 → 2.5 | 64 | 0 → 16 | 0 | 32 / 64 |",
        "| gram `g_f64` | MF_D=2 | 40 | 60 | 50% | 8 | 5.0 | 64 | 0 | 0 | 32 / 64 |",
    ]
    variants = ["MF_D=1 MF_FORM=0", "MF_D=2 MF_FORM=0", "MF_D=2 MF_FORM=1"]
    assert table.in_common(variants[:2], 3) == "MF_FORM=0 (2 of 3)"
    assert table.in_common(variants[1:], 3) == "MF_D=2 (2 of 3)"
    assert "| gram `h_f64` | – | 40 → absent | 60 → absent | " in table.table(before, after)


# ---- the counts of floors ----


def test_floors_have_their_counts(gpu: Module) -> None:
    stored, floors = gpu("counts").stored(), gpu("sass").FLOORS
    assert list(stored["floors"]) == list(floors)
    for name, floor in floors.items():
        entry = stored["floors"][name]
        assert entry["kernel"].split()[:2] == [floor.source, floor.entry]
        assert 0 < entry["fp64"] <= entry["slots"] == pytest.approx(entry["fp64"] + sum(entry["others"].values()))
        assert entry["passes"] * entry["slots"] == pytest.approx(round(entry["passes"] * entry["slots"]))
    assert gpu("counts").counts("K1", 5) == tuple(stored["floors"]["K1 D=5"][key] for key in ("fp64", "slots"))
    assert gpu("counts").counts("K5")[0] == stored["floors"]["K5"]["fp64"]
    with pytest.raises(ValueError, match=r"'K1', 3, expected one of K1 D=1, K1 D=2"):
        gpu("counts").counts("K1", 3)


def test_rows_take_every_count_from_the_file() -> None:
    """No number of instructions is typed in rows.py: arguments of Work from the second to the third."""
    text = (BENCH / "gpu" / "rows.py").read_text(encoding="utf-8")
    calls = re.findall(r"\bWork\((.*)\)", text)
    assert len(calls) >= 4
    assert [call for call in calls if "*counts(" not in call and "fp64, slots" not in call] == []


def test_moves_of_more_than_five_per_cent_are_told(gpu: Module) -> None:
    stored = gpu("counts").stored()["floors"]
    found = json.loads(json.dumps(stored))
    moved = gpu("sass").moved
    found["K2 D=1"]["slots"] *= 1.04
    assert list(moved(found, stored)) == []
    found["K2 D=1"]["slots"] *= 1.02
    found["K5"]["fp64"] = 0.0
    del found["K1 D=2"]
    assert [line.split(" a pass")[0].split(" 0.0")[0] for line in moved(found, stored)] == [
        "K1 D=2: only in the file",
        f"K2 D=1: slots {found['K2 D=1']['slots']:.1f}",
        "K5: fp64",
    ]


def test_a_check_fails_where_counts_moved(
    gpu: Module, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sass, stored = gpu("sass"), gpu("counts").stored()
    found = json.loads(json.dumps(stored)) | {"compiler": "nvcc 99.1"}
    monkeypatch.setattr(sass, "measure", lambda jobs: found)
    monkeypatch.setattr(sys, "argv", ["sass.py", "--check"])
    assert sass.main() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "as in the file"
    found["floors"]["K2 D=1"]["fp64"] += 5.0
    assert sass.main() == 1
    lines = capsys.readouterr().out.splitlines()[-3:]
    assert lines[0] == f"The file is of {stored['compiler']}, this is nvcc 99.1."
    assert lines[1].startswith("K2 D=1: fp64 ")
    assert lines[2] == "run python bench/gpu/sass.py if that is meant"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "--only", "no such kernel"], "--only 'no such kernel': no instance has this"),
        (["--table", "--against", "no-such-commit"], "--against no-such-commit: fatal:"),
        (["--table", "--arch", "70"], "invalid choice: 70"),
        (["--phases", "0"], "--phases: 0 points, expected 1 or more"),
    ],
)
@pytest.mark.usefixtures("emulated")
def test_arguments_that_mean_nothing(
    *,
    gpu: Module,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["sass.py", *arguments])
    with pytest.raises(SystemExit) as stop:
        gpu("sass").main()
    assert message in f"{stop.value}\n{capsys.readouterr().err}"


# ---- with the tools ----


@pytest.fixture
def tools(gpu: Module, emulated: Any) -> Any:
    """The module `sass` where nvdisasm, cuobjdump and a compiler are: the extra `dev` has the first two."""
    sass = gpu("sass")
    if not sass.has_tools():
        pytest.skip("nvdisasm, cuobjdump and a CUDA compiler are not all on this machine")
    return sass


SMALL = """extern "C" __global__ void __launch_bounds__(96) k_f64(double* x, int n) {
    __shared__ double s[96];
    double sum = 0.0;
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
        s[threadIdx.x] = sum;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            sum += exp(x[4 * i + j] * s[95 - threadIdx.x]);
        }
        __syncthreads();
    }
    x[threadIdx.x] = sum;
}
"""


def test_a_small_kernel(tools: Any, tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text(SMALL)
    found = tools.compiled(source, {}, 90, lines=True)["k_f64"]
    assert (found.threads, found.usage.shared, found.usage.spilled) == (96, 768, 0)
    flow = importlib.import_module("gpu.control_flow")
    path = tools.hot_loop(found.code, "exponential").pass_through
    assert flow.marks(path, "exponential") == 4
    kinds = flow.count(path)
    # an exponential is 15, a product and a sum; the check of a range is float32, and what it leads to is left out
    assert kinds["fp64"] == 4 * 17
    assert (kinds["loads global"], kinds["stores shared"], kinds["mufu64"]) == (4, 1, 0)
    assert {place for i in path for place in i.places} >= {"k.cu:6", "k.cu:10"}
    assert tools.entries_of(source) == ["k_f64"]


def test_registers_and_launch_bounds_are_those_of_the_binary(tools: Any, tmp_path: Path) -> None:
    """What the log of ptxas says is in the cubin too; of NVRTC as of nvcc."""
    cubins, report = tools.emulator()
    source, path = ROOT / "kernels" / "hyperkernel.cu", tmp_path / "k.cubin"
    for compiler in ["nvcc"] * (cubins.compiler() == "nvcc") + ["nvrtc"] * cubins.has_nvrtc():
        cubin, usages = cubins.compile_cubin(report.expanded(source), {"MF_D": "1"}, 90, compiler)
        path.write_bytes(cubin)
        shown = tools.run([tools.tool("cuobjdump"), "-res-usage", str(path)])
        registers = dict(re.findall(r"Function (\w+):\s+REG:(\d+)", shown))
        assert registers == {usage.entry: str(usage.registers) for usage in usages}
        bounds = tools.launch_bounds(tools.run([tools.tool("cuobjdump"), "-elf", str(path)]))
        assert bounds["product_f64"] == 64
        assert set(bounds) == set(tools.entries_of(source)) == set(registers)


@pytest.mark.slow
def test_the_file_is_of_the_kernels(tools: Any) -> None:
    command = [sys.executable, str(BENCH / "gpu" / "sass.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_phases_add_up(tools: Any, gpu: Module) -> None:
    """Of 144 points the fill takes the most; of one tile there is nothing to solve or to update."""
    phases = gpu("phases")
    found = phases.phases(ROOT / "kernels", 144, 90)
    assert max(found, key=lambda phase: found[phase]) == "fill"
    assert all(found.values())
    one = phases.phases(ROOT / "kernels", 16, 90)
    assert (one["solve"], one["update"]) == (0, 0)
    assert 45 * one["fill"] == found["fill"]
    assert 9 * one["factor"] == found["factor"]
