"""The report on kernels: barriers by the text of the sources, and a table that leaves nothing unsaid."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import cubins
import kernel_errors
import kernel_report
import pytest
import sources


@pytest.mark.usefixtures("emulated")
def test_every_barrier_belongs_to_a_kernel_and_the_page_has_them_all() -> None:
    sites = kernel_report.all_barriers()
    assert set().union(*sites.values()) == {f"{file}:{line}" for file, line in sources.barriers()}
    assert sites["gram.cu", "phase_tables_f64"] == set()
    assert len(sites["likelihood.cu", "likelihood_shared_f64"]) > 5
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|.*\| (none|\d+)[^|]*\|[^|]*\|$", kernel_report.PAGE.read_text(), re.M)
    page = {(f"{source}.cu", entry): int(count.replace("none", "0")) for entry, source, count in rows}
    assert page == {kernel: len(own) for kernel, own in sites.items()}, "run python tests/emulator/kernel_report.py"


def test_barriers_of_what_is_called() -> None:
    text = """# 1 "a.cuh"
template <int N> struct Tile {
    __device__ void fill() { __syncthreads(); }
};
template <> struct Tile<0> {
    __device__ void fill() {
        __syncwarp(0xffffffffu);
    }
};
__device__ double unused() { __syncthreads(); return 1.0; }
constexpr int M = 3;
# 1 "k.cu"
extern "C" EMU_GLOBAL void __launch_bounds__(max(M, 2))
    one_f64(double* x) {
    Tile<2> tile;
    tile.fill();
}
extern "C" EMU_GLOBAL void __launch_bounds__(32) two_f64(double* x) { x[0] = 1.0; }
"""
    sites = {name: (is_entry, {place for place, _ in body}) for name, is_entry, body in kernel_report.functions(text)}
    assert {name for name, (is_entry, _) in sites.items() if is_entry} == {"one_f64", "two_f64"}
    assert sites["one_f64"][1] == {f"k.cu:{line}" for line in (2, 3, 4, 5)}
    assert "Tile" in sites
    assert kernel_report.reached("a", {"a": {"b", "x"}, "b": {"a", "c"}, "c": set(), "d": set()}) == {"a", "b", "c"}


def test_times_are_those_of_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside them are results of other kinds, lists among them."""
    results = tmp_path / "bench" / "results"
    results.mkdir(parents=True)
    row = {"ours": {"kernels": {"f_f64": 1.0}}}
    card = {"kind": "maskerade_fast gpu_check", "commit": "0123456789", "card": {"name": "NVIDIA A B"}}
    for name, content in (
        ("card", {**card, "rows": [row, {}]}),
        ("list", [1]),
        ("other", {"rows": [row]}),
        ("none", {}),
    ):
        (results / f"{name}.json").write_text(json.dumps(content))
    monkeypatch.setattr(kernel_report, "ROOT", tmp_path)
    assert kernel_report.timed() == {"f_f64": ["A at 0123456"]}


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    use = {arch: [("MF_D=1", cubins.Usage("f_f64", 30, 8, 0, 0))] for arch in cubins.ARCHITECTURES}
    spilling: dict[int, list[Any]] = {**use, 75: [("MF_D=1", cubins.Usage("g_f64", 40, 8, 16, 24))]}
    sites = {("x.cu", "f_f64"): {"x.cu:3", "x.cu:9"}, ("x.cu", "g_f64"): set()}
    monkeypatch.setattr(kernel_report, "all_barriers", lambda: sites)
    monkeypatch.setattr(kernel_report, "tested_barriers", lambda: {"x.cu:3"})
    uses: Any = {("x.cu", "f_f64"): use, ("x.cu", "g_f64"): spilling}
    lines = kernel_report.report(uses, {"f_f64": 1.23e-15}, {"f_f64": ["H100 at f43f045"]}).splitlines()
    assert lines[-2:] == [
        "| `f_f64` | x | 30 | 8 | 0 | 1.2e-15 | 2, 1 | H100 at f43f045 |",
        "| `g_f64` | x | 40 / 30 / 30 / 30 / 30 / 30 / 30 | 8 | sm_75 24 (stack 16) in 1 of 1 | not launched | none "
        "| not timed |",
    ]
    assert "In all 2 kernels, 2 barriers, 1 of them tested as they are." in lines


def test_old_figures_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_report, "USES", tmp_path)
    with pytest.raises(SystemExit, match=r"sm_75.tsv is missing, or older than the sources"):
        kernel_report.all_uses()


@pytest.mark.sweep
@pytest.mark.usefixtures("emulated")
def test_errors_are_small_and_of_every_kernel() -> None:
    worst = kernel_errors.errors()
    assert {entry for _, entry in kernel_report.all_barriers()} <= set(worst)
    interpolating = {"cubic_errors_f64", "pair_invert_f64", "pair_nodes_f64"}
    assert {
        name: error for name, error in worst.items() if not error <= (1e-7 if name in interpolating else 1e-11)
    } == {}
