"""The tables of docs/measured/performance.md from the results of cards: every figure there comes from a file.

    python bench/tables.py [--check]

Writes what lies between the marks "begin cards" and "end cards"; the rest of the page is written by hand. With --check
nothing is written, and the exit status is 1 if something would be.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measured" / "performance.md"
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- begin cards: python bench/tables.py -->", "<!-- end cards -->"

TARGETS = {
    "K1 1000x1000, D=1": (0.060, 17),
    "K1 1000x1000, D=5": (0.100, 30),
    "K1 10000x10000, D=1": (6.0, 17),
    "K1 10000x10000, D=5": (10.0, 30),
    "K2+K3 N=144, B=1000": (0.150, 28),
    "K2+K3 N=512, B=256": (0.900, 14),
    "K2+K3 N=1503, B=100": (7.0, 6),
    "K2+K3 N=10000, B=4": (60.0, 1.7),
    "K4 N=144, B=1000": (0.450, 30),
    "K5 h=300, n*=150": (0.070, 16),
}
"""Milliseconds on an H100 that the design set out for, and its ratio to plain CuPy, half of which is asked."""


def main() -> int:
    parser = argparse.ArgumentParser(description="The tables of docs/measured/performance.md.")
    parser.add_argument("--check", action="store_true", help="write nothing, say whether the page is up to date")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    wanted = filled(page)
    if options.check:
        return int(page != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


def filled(page: str) -> str:
    """The page with the tables of all results."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    found = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    parts = [section(content, path) for path, content in found.items() if "card" in content]
    return f"{head}{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}{tail}"


def section(content: dict[str, Any], path: Path) -> str:
    """All that one card's results say."""
    lines = [*heading(content, path), "", *rows(content["rows"]), *missed(content["rows"])]
    for part in (questions, library, variants, checks, end_to_end):
        lines += part(content)
    lines += apart(path)
    return "\n".join(lines)


def heading(content: dict[str, Any], path: Path) -> Iterator[str]:
    card, versions = content["card"], content["versions"]
    shown = ", ".join(f"{name} {version}" for name, version in versions.items() if version and name != "cupy_module")
    yield f"### {card['name']}"
    yield ""
    yield f"Commit {content['commit']}, {content['started'][:10]}; driver {card['driver']}, CUDA {cuda(card)}; {shown}."
    length = f"a run of {content['run_seconds']:.0f} s" if "run_seconds" in content else "a run that was cut off"
    yield f"From `{path.relative_to(ROOT)}`, {length}; rerun by"
    parts = [part for part in content["parts"] if part != "questions"]  # those were answered
    yield f"`python bench/gpu_check.py --seconds {content['limit_s']:.0f} --only {','.join(parts)}`."


def cuda(card: dict[str, Any]) -> str:
    number = card["cuda_of_cupy"]
    return f"{number // 1000}.{number % 1000 // 10}"


def rows(entries: list[dict[str, Any]]) -> Iterator[str]:
    yield (
        "| case | device ms | call ms | plain CuPy ms | fused ms | GPyTorch ms | plain / ours | fused / ours "
        "| floor ms | target ms | time / target | error |"
    )
    yield "|" + " --- |" * 12
    for row in entries:
        ours, (target, _) = row.get("ours", {}), TARGETS.get(row["case"], (None, None))
        time = busy(row)
        cells = [
            row["case"],
            *(number(ours.get(key)) for key in ("device_ms", "call_ms")),
            *(number(row.get(peer, {}).get("call_ms")) for peer in ("plain_cupy", "fused", "gpytorch")),
            *(number(row.get(key), ".1f") for key in ("ratio_plain_cupy", "ratio_fused")),
            number(row.get("floor_estimate_ms")),
            number(target),
            number(time / target, ".2f") if time and target else "–",
            row["left_out"] if "left_out" in row else row.get("failed", number(row.get("error"), ".0e")),
        ]
        yield "| " + " | ".join(cells) + " |"


def busy(row: dict[str, Any]) -> float | None:
    """The device's time, or the call's where that is not known."""
    ours = row.get("ours", {})
    time: float | None = ours.get("device_ms") or ours.get("call_ms")
    return time


def missed(entries: list[dict[str, Any]]) -> Iterator[str]:
    """Which targets and ratios are met, and by how much the others are not."""
    late, slow, met = [], [], []
    for row in entries:
        time = busy(row)
        if row["case"] not in TARGETS or time is None:
            continue
        target, ratio = TARGETS[row["case"]]
        if time > target:
            late.append(f"{row['case']} by {time / target:.2g} times")
        else:
            met.append(row["case"])
        found = row.get("ratio_plain_cupy")
        if found is not None and found < ratio / 2:
            slow.append(f"{row['case']} ({found:.1f}, asked {ratio / 2:.1f})")
    yield ""
    yield f"Targets met: {'; '.join(met) or 'none'}. Missed: {'; '.join(late) or 'none'}."
    yield f"Half of the ratio to plain CuPy that the design expects is missed by: {'; '.join(slow) or 'none'}."


def questions(content: dict[str, Any]) -> Iterator[str]:
    asked = content.get("questions", {})
    answers = [*mma(asked), *shuffles(asked), *fatbin(asked), *potrf(asked)]
    if answers:
        yield from ["", "Open questions of the design:", "", *answers]


def mma(asked: dict[str, Any]) -> Iterator[str]:
    found = asked.get("mma_against_fma", {})
    cells = [
        f"{name} {number(both['mma']['call_ms'])} against {number(both['fma']['call_ms'])} ms"
        + (" (one call)" if both["fma"]["repeats"] == 1 else "")
        for name, both in found.items()
        if isinstance(both, dict)
    ]
    if cells:
        same = all(both["largest_relative_difference"] == 0.0 for both in found.values() if isinstance(both, dict))
        either = "The results have the same bits" if same else "The results differ in their last bits"
        yield f"* Tensor instructions against multiply-adds: {'; '.join(cells)}. {either}."


def shuffles(asked: dict[str, Any]) -> Iterator[str]:
    found = asked.get("shuffle_against_shared", {})
    if "shuffle" in found:
        yield (
            f"* Columns of a 16 x 16 tile's factor by shuffles: {number(found['shuffle']['call_ms'])} ms for "
            f"{found['rounds']} rounds, through shared memory {number(found['memory']['call_ms'])} ms."
        )


def fatbin(asked: dict[str, Any]) -> Iterator[str]:
    found = asked.get("fatbin", {})
    if "loads" in found:
        runs = ", and its kernel runs" if found.get("runs") else ""
        yield f"* `RawModule(path=)` {'loads' if found['loads'] else 'does not load'} a fatbin{runs}."


def potrf(asked: dict[str, Any]) -> Iterator[str]:
    found = asked.get("potrf_batched", {})
    cells = [
        f"{name} {number(both['batched']['call_ms'])} against {number(both['one_by_one']['call_ms'])} ms"
        for name, both in found.items()
        if "batched" in both
    ]
    if cells:
        yield f"* cuSOLVER's `potrfBatched` against `potrf` one by one, in place: {'; '.join(cells)}."


def library(content: dict[str, Any]) -> Iterator[str]:
    ceilings = content.get("ceilings", {})
    if "flops_per_second" in ceilings.get("product", {}):
        product = ceilings["product"]
        yield f"* cuBLAS, product of order {product['order']}: {product['flops_per_second'] / 1e12:.3g} TFLOP/s."
    if "bytes_per_second" in ceilings.get("copy", {}):
        yield f"* A copy: {ceilings['copy']['bytes_per_second'] / 1e12:.3g} TB/s, read and written."
    if "host_ms" in ceilings.get("launch", {}):
        yield f"* The host's cost of a launch: {1e3 * ceilings['launch']['host_ms']:.3g} us."
    found = content.get("questions", {}).get("library", {})
    for name, figures in found.items():
        if "flops_per_second" in figures:
            same = {True: "; the same bits beside fewer others", False: "; OTHER BITS beside fewer others", None: ""}
            shown = same[figures.get("same_bits_beside_fewer")]
            yield f"* cuBLAS, {name}: {figures['flops_per_second'] / 1e12:.3g} TFLOP/s{shown}."
        elif "bytes_per_second" in figures:
            yield f"* A {name}: {figures['bytes_per_second'] / 1e12:.3g} TB/s, read and written."
        elif name == "launch":
            yield f"* The host's cost of a launch: {1e3 * figures['host_ms']:.3g} us."


def apart(path: Path) -> Iterator[str]:
    """Figures of the same card that have a file of their own."""
    for other in sorted((RESULTS / "apart").glob(f"{path.stem}-*.json")):
        content = json.loads(other.read_text(encoding="utf-8"))
        found = content["figures"]
        yield from ["", f"Measured apart ({content['date']}, `{other.relative_to(ROOT)}`):", ""]
        yield f"* cuBLAS's product of order 8192: {found['dgemm 8192 tflops']:.3g} TFLOP/s."
        yield f"* A copy: {found['copy TB/s']:.3g} TB/s, read and written."
        yield f"* The host's cost of a launch by the backend: {found['host_us_per_our_launch']:.3g} us."
        for name, figures in found.items():
            if isinstance(figures, dict):
                same = all(figures["bits_of_prefix"].values())
                yield (
                    f"* Batched products, {name.removeprefix('gemm ')}: {figures['tflops']:.3g} TFLOP/s, one by one "
                    f"{figures['loop_ms'] / figures['batched_ms']:.2g} times as long; a matrix has "
                    f"{'the same' if same else 'other'} bits beside fewer others."
                )


def variants(content: dict[str, Any]) -> Iterator[str]:
    """Times of variants by those of the default, the tenth and the ninetieth percentile beside the median."""
    found = [(name, one) for name, one in content.get("variants", {}).items() if "ratio_median" in one]
    for name, sweep in content.get("variants", {}).items():
        found += [(f"{name}: {one['name']}", one) for one in sweep.get("tried", []) if "ratio_median" in one]
    if not found:
        return
    yield from ["", "Variants, their time by the default's:", ""]
    yield "| variant | default ms | ratio | from | to | bits |"
    yield "|" + " --- |" * 6
    for name, one in found:
        cells = [number(one["default_ms"]), *(number(one[f"ratio_{word}"]) for word in ("median", "p10", "p90"))]
        yield "| " + " | ".join([name, *cells, "the same" if one["same_bits"] else "others"]) + " |"


def checks(content: dict[str, Any]) -> Iterator[str]:
    tests, sanitizer = content["tests"].get("suite", content["tests"]), content["sanitizer"]
    if "passed" in tests:
        cut = f", {tests['cut_off'].replace('after', 'cut off after')}" if "cut_off" in tests else ""
        counts = ", ".join(f"{tests[word]} {word}" for word in ("passed", "failed", "error", "skipped"))
        yield from ["", f"Tests on the card: {counts} of {tests['collected']}{cut}."]
    found = {name: tool for name, tool in sanitizer.items() if isinstance(tool, dict)}
    if found:
        yield from ["", "compute-sanitizer over every door: " + "; ".join(said(n, t) for n, t in found.items()) + "."]


def said(name: str, tool: dict[str, Any]) -> str:
    if "left_out" in tool:
        return f"{name} left out"
    return f"{name} {'cut off' if 'cut_off' in tool else 'clean' if tool['exit_status'] == 0 else 'FAILED'}"


def end_to_end(content: dict[str, Any]) -> Iterator[str]:
    found = content.get("end_to_end", {})
    if not found:
        return
    yield from ["", "From data to a fit; of GPyTorch the best log likelihood:", ""]
    yield "| run | likelihoods | first s | again s | a second | log evidence | sd | launches |"
    yield "|" + " --- |" * 8
    for name, run in found.items():
        cold, warm = run.get("cold", {}), run.get("warm", {})
        cells = [
            name + (" (cut off)" if "cut_off" in run else ""),
            str(run.get("budget", "–")),
            *(number(each.get("run_seconds")) for each in (cold, warm)),
            number((warm or cold).get("likelihoods_per_second")),
            number((warm or cold).get("log_evidence", (warm or cold).get("log_likelihood")), ".5g"),
            number((warm or cold).get("log_evidence_sd"), ".5g"),
            str((warm or cold).get("launches", "–")),
        ]
        yield "| " + " | ".join(cells) + " |"


def number(value: float | None, form: str = ".3g") -> str:
    return "–" if value is None else format(value, form)


if __name__ == "__main__":
    sys.exit(main())
