"""bench/gpu/sass.py: the fast path of a loop, counts by class, and the counts that floors are made of."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


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


def test_a_call_is_left_out_where_a_branch_goes_around_it(bench: Any) -> None:
    flow = bench("gpu.control_flow")
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
def test_inner_loops_are_passed_once_and_checks_of_ranges_are_not(bench: Any, diverged: str) -> None:
    flow = bench("gpu.control_flow")
    kernel = kernel_of(flow, NESTED.replace("UR4, `(.L_x_5)", diverged))
    inner, outer = kernel.loops
    assert (inner.outer, outer.inner) == (outer, [inner])
    assert names(inner.pass_through) == ["DFMA", "DFMA", "BRA"]
    assert names(outer.pass_through) == [
        *("DADD", "ISETP.GE.AND", "BRA", "DFMA", "DFMA", "BRA", "FSETP.GEU.FTZ.AND", "BRA", "BRA.DIV", "BRA"),
    ]
    assert flow.count(outer.own())["fp64"] == 1
    assert (inner.depth, outer.depth) == (2, 1)
    assert bench("gpu.sass").hot_loop(kernel, "root") is inner


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        *(("DSETP.GEU.AND", "fp64"), ("DMMA.8x8x4", "dmma"), ("MUFU.EX2", "mufu"), ("MUFU.RCP64H", "mufu64")),
        *(("LDL.64", "loads local"), ("STL", "stores local"), ("ULDC.64", "loads constant"), ("LD.E", "loads generic")),
        *(("F2I.S64.F64.TRUNC", "conversions"), ("LDSM.16.M88", "loads shared"), ("FFMA", "other"), ("R2P", "other")),
        ("BAR.SYNC.DEFER_BLOCKING", "control"),
    ],
)
def test_kinds(bench: Any, opcode: str, kind: str) -> None:
    flow = bench("gpu.control_flow")
    assert flow.kind_of(flow.Instruction(opcode, "R0, R1")) == kind


# ---- the counts of floors ----


def test_floors_have_their_counts(bench: Any) -> None:
    stored, floors = bench("gpu.sass").stored(), bench("gpu.sass").FLOORS
    assert list(stored["floors"]) == list(floors)
    for name, floor in floors.items():
        entry = stored["floors"][name]
        assert entry["kernel"].split()[:2] == [floor.source, floor.entry]
        assert 0 < entry["fp64"] <= entry["slots"] == pytest.approx(entry["fp64"] + sum(entry["others"].values()))
        assert entry["passes"] * entry["slots"] == pytest.approx(round(entry["passes"] * entry["slots"]))
    assert bench("gpu.sass").counts("K1", 5) == tuple(stored["floors"]["K1 D=5"][key] for key in ("fp64", "slots"))
    assert bench("gpu.sass").counts("K5")[0] == stored["floors"]["K5"]["fp64"]
    with pytest.raises(ValueError, match=r"'K1', 3, expected one of K1 D=1, K1 D=2"):
        bench("gpu.sass").counts("K1", 3)


def test_a_check_fails_where_counts_moved(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sass, stored = bench("gpu.sass"), bench("gpu.sass").stored()
    current = json.loads(json.dumps(stored)) | {"compiler": "nvcc 99.1"}
    monkeypatch.setattr(sass, "measure", lambda jobs: current)
    monkeypatch.setattr(sys, "argv", ["sass.py", "--check"])
    assert sass.main() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "as in the file"
    current["floors"]["K2 D=1"]["fp64"] += 5.0
    assert sass.main() == 1
    lines = capsys.readouterr().out.splitlines()[-3:]
    assert lines[0] == f"The file is of {stored['compiler']}, this is nvcc 99.1."
    assert lines[1].startswith("K2 D=1: fp64 ")
    assert lines[2] == "run python -m bench.gpu.sass --save if that is meant"
