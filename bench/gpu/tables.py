"""The tables of the docs from the results of cards: every figure there comes from a file.

    python -m bench.gpu.tables [--save]

Without ``--save`` the exit status is 1 if the tables of the page are not those of the results. They lie between the
marks "begin cards" and "end cards"; the rest of the page is written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import RESULTS, ROOT

MARKS = re.compile(r"(<!-- begin cards[^>]*-->\n).*?(<!-- end cards -->)", re.DOTALL)

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
"""Milliseconds on an H100 that the design set out for, and its ratio to plain CuPy, half of which is the target."""


def main() -> int:
    parser = argparse.ArgumentParser(description="The tables of cards in the docs.")
    parser.add_argument("--save", action="store_true", help="write them")
    save = parser.parse_args().save
    changed = 0
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        changed |= filled(text) != text
        if save:
            page.write_text(filled(text), encoding="utf-8")
    return int(changed and not save)


def filled(page: str) -> str:
    """Return the page with the tables of all results."""
    contents = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    parts = "\n\n".join(section(content, path) for path, content in contents.items() if "card" in content)
    return MARKS.sub(lambda mark: f"{mark[1]}\n{parts}\n\n{mark[2]}", page)


def section(content: dict[str, Any], path: Path) -> str:
    """Return all that the results of one card say."""
    lines = [*heading(content, path), "", *rows(content["rows"]), *missed(content["rows"])]
    for part in (library, checks, end_to_end):
        lines += part(content)
    return "\n".join([*lines, *notes(content, path)])


def heading(content: dict[str, Any], path: Path) -> Iterator[str]:
    card, versions = content["card"], content["versions"]
    used = ", ".join(f"{name} {version}" for name, version in versions.items() if version and name != "cupy_module")
    yield f"### {card['name']}"
    yield ""
    yield f"Commit {content['commit']}, {content['started'][:10]}; driver {card['driver']}, CUDA {cuda(card)}; {used}."
    length = f"a run of {content['run_seconds']:.0f} s" if content.get("run_seconds") else "a run that was cut off"
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    yield f"From `{shown}`, {length}; rerun by"
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
    """The device's time, or the call's where there is none."""
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
        reached = row.get("ratio_plain_cupy")
        if reached is not None and reached < ratio / 2:
            slow.append(f"{row['case']} ({reached:.1f}, asked {ratio / 2:.1f})")
    yield ""
    yield f"Targets met: {'; '.join(met) or 'none'}. Missed: {'; '.join(late) or 'none'}."
    yield f"Half of the ratio to plain CuPy that the design expects is missed by: {'; '.join(slow) or 'none'}."


def notes(content: dict[str, Any], path: Path) -> Iterator[str]:
    """Yield what a person wrote about a run, and about figures of the same card that have a file of their own."""
    if content.get("notes"):
        yield from ["", "Open questions of the design:", "", *(f"* {note}" for note in content["notes"])]
    for other in sorted((RESULTS / "apart").glob(f"{path.stem}-*.json")):
        apart = json.loads(other.read_text(encoding="utf-8"))
        yield from ["", f"Measured apart ({apart['date']}, `{other.relative_to(ROOT)}`):", ""]
        yield from (f"* {note}" for note in apart["notes"])


def library(content: dict[str, Any]) -> Iterator[str]:
    ceilings = content.get("ceilings", {})
    product, copy, launch = (ceilings.get(name, {}) for name in ("product", "copy", "launch"))
    if product.get("flops_per_second"):
        yield f"* cuBLAS, product of order {product['order']}: {product['flops_per_second'] / 1e12:.3g} TFLOP/s."
    if copy.get("bytes_per_second"):
        yield f"* A copy: {copy['bytes_per_second'] / 1e12:.3g} TB/s, read and written."
    if launch.get("host_ms"):
        yield f"* The host's cost of a launch: {1e3 * launch['host_ms']:.3g} us."


def checks(content: dict[str, Any]) -> Iterator[str]:
    tests, sanitizer = content["tests"].get("suite", content["tests"]), content["sanitizer"]
    if "passed" in tests:
        cut = f", {tests['cut_off'].replace('after', 'cut off after')}" if "cut_off" in tests else ""
        counts = ", ".join(f"{tests[word]} {word}" for word in ("passed", "failed", "error", "skipped"))
        yield from ["", f"Tests on the card: {counts} of {tests['collected']}{cut}."]
    tools = {name: tool for name, tool in sanitizer.items() if isinstance(tool, dict)}
    if tools:
        yield from [
            "",
            "compute-sanitizer over every operation: " + "; ".join(said(n, t) for n, t in tools.items()) + ".",
        ]


def said(name: str, tool: dict[str, Any]) -> str:
    if "left_out" in tool:
        return f"{name} left out"
    return f"{name} {'cut off' if 'cut_off' in tool else 'clean' if tool['exit_status'] == 0 else 'FAILED'}"


def end_to_end(content: dict[str, Any]) -> Iterator[str]:
    runs = content.get("end_to_end", {})
    if not runs:
        return
    yield from ["", "From data to a fit; of GPyTorch the best log likelihood:", ""]
    yield "| run | likelihoods | first s | again s | a second | log evidence | sd | launches |"
    yield "|" + " --- |" * 8
    for name, run in runs.items():
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


def number(value: float | str | None, form: str = ".3g") -> str:
    """Return a figure, or the name of one that is not finite."""
    return "–" if value is None else value if isinstance(value, str) else format(value, form)


if __name__ == "__main__":
    sys.exit(main())
