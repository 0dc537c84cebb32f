"""Table of ratios from pytest-benchmark's JSON: every peer against ours of the same group and size.

    python -m pytest bench/micro -k likelihood --benchmark-json=out.json
    python -m bench.micro.ratios out.json        # markdown; --json: the rows for machines

A ratio is the peer's median over ours: how many times as long it takes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def rows_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row per benchmark: group, size, who, median seconds, ratio to ours (None where there is none)."""
    rows: list[dict[str, Any]] = []
    for b in content["benchmarks"]:
        info = b.get("extra_info", {})
        sizes = {k: v for k, v in (b["params"] or {}).items() if k not in ("library", "check", "structure")}
        rows.append(
            {
                "group": b["group"] or b["name"],
                "size": ", ".join(f"{k}={v}" for k, v in sizes.items()),
                "who": info.get("who", "ours"),
                "median_s": b["stats"]["median"],
                "rounds": b["stats"]["rounds"],
                **{k: info[k] for k in ("device", "threads", "dtype", "versions", "commit") if k in info},
            }
        )
    ours = {(r["group"], r["size"]): r["median_s"] for r in rows if r["who"] == "ours"}
    for row in rows:
        own = ours.get((row["group"], row["size"]))
        row["ratio"] = None if own is None or row["who"] == "ours" else row["median_s"] / own
    return sorted(rows, key=lambda r: (r["group"], r["size"], r["who"] != "ours", r["who"]))


def seconds(value: float) -> str:
    unit, scale = next((u for u in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)) if value >= u[1]), ("ns", 1e-9))
    return f"{value / scale:.3g} {unit}"


def table(rows: list[dict[str, Any]]) -> str:
    """Return a line per group and size, ours and the peers side by side."""
    lines = ["| operation | size | ours | peers: time, ratio to ours |", "| --- | --- | --- | --- |"]
    for key in dict.fromkeys((r["group"], r["size"]) for r in rows):
        here = [r for r in rows if (r["group"], r["size"]) == key]
        own = next((seconds(r["median_s"]) for r in here if r["who"] == "ours"), "–")
        others = [r for r in here if r["who"] != "ours"]
        ratios = ["" if r["ratio"] is None else f", {r['ratio']:.3g} x ours" for r in others]
        shown = [f"{r['who']} {seconds(r['median_s'])}{ratio}" for r, ratio in zip(others, ratios, strict=True)]
        lines.append(f"| {key[0]} | {key[1]} | {own} | {'; '.join(shown) or '–'} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Ratios of a run of the benchmarks.")
    parser.add_argument("results", type=Path, help="pytest-benchmark's JSON file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = rows_of(json.loads(options.results.read_text()))
    print(json.dumps(rows, indent=1) if options.json else table(rows))


if __name__ == "__main__":
    main()
