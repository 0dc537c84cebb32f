"""Tables of ratios from pytest-benchmark's JSON: every peer and floor against ours of the same group and size.

    python -m pytest bench -k likelihood --benchmark-json=out.json
    python bench/ratios.py out.json              # a table; --json: the rows for machines; --markdown: for the docs

A ratio is the peer's median over ours: how many times as long it takes. Of a floor it is the share of the least
possible time that we come to.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def rows_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    """A row a benchmark: group, size, who, median seconds, ratio to ours (None where there is no such)."""
    rows: list[dict[str, Any]] = []
    for b in content["benchmarks"]:
        info = b.get("extra_info", {})
        parameters = {} if b["params"] is None else b["params"]
        rows.append(
            {
                "group": b["group"] or b["name"],
                "size": info.get("size") or ", ".join(f"{k}={v}" for k, v in shown(parameters).items()),
                "who": info.get("who", "ours"),
                "median_s": b["stats"]["median"],
                "rounds": b["stats"]["rounds"],
                **{k: info[k] for k in ("device", "threads", "dtype", "versions", "commit") if k in info},
            }
        )
        if "floor" in info:  # what `floors` measured beside it
            floor = {"who": f"floor: {info['floor']}", "median_s": info["floor_s"], "rounds": info["rounds"]}
            rows.append({**rows[-1], **floor, "ratio": info["share"], "asked": info["asked"]})
    ours = {(r["group"], r["size"]): r["median_s"] for r in rows if r["who"] == "ours"}
    for row in (r for r in rows if "ratio" not in r):
        own = ours.get((row["group"], row["size"]))
        row["ratio"] = None if own is None or row["who"] == "ours" else row["median_s"] / own
    return sorted(rows, key=lambda r: (r["group"], r["size"], r["who"] != "ours", r["who"]))


def shown(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that are part of a size: a library's functions are not."""
    return {k: v for k, v in parameters.items() if k not in ("library", "check")}


def seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def ratio(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return ""
    if not row["who"].startswith("floor"):
        return f"{row['ratio']:.3g} x ours"
    asked = f"; {row['asked']}" if row.get("asked") else ""
    return f"{100 * row['ratio']:.0f} % of ours{asked}"


def table(rows: list[dict[str, Any]]) -> str:
    """Groups with their rows, for a terminal."""
    lines = []
    width = max((len(r["size"]) for r in rows), default=0)
    names = max((len(r["who"]) for r in rows), default=0)
    group = None
    for row in rows:
        if row["group"] != group:
            group = row["group"]
            lines += ["", group]
        lines.append(f"  {row['size']:<{width}}  {row['who']:<{names}}  {seconds(row['median_s']):>9}  {ratio(row)}")
    return "\n".join(line.rstrip() for line in lines[1:])


def markdown(rows: list[dict[str, Any]]) -> str:
    """One table: a line a group and size, ours and the peers side by side."""
    lines = ["| operation | size | ours | peers: time, ratio to ours |", "| --- | --- | --- | --- |"]
    for key in dict.fromkeys((r["group"], r["size"]) for r in rows):
        here = [r for r in rows if (r["group"], r["size"]) == key]
        own = next((seconds(r["median_s"]) for r in here if r["who"] == "ours"), "–")
        others = (f"{r['who']} {seconds(r['median_s'])}, {ratio(r)}" for r in here if r["who"] != "ours")
        lines.append(f"| {key[0]} | {key[1]} | {own} | {'; '.join(others) or '–'} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Ratios of a run of the benchmarks.")
    parser.add_argument("results", type=Path, help="pytest-benchmark's JSON file")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true")
    how.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    rows = rows_of(json.loads(options.results.read_text()))
    if options.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
    else:
        print((markdown if options.markdown else table)(rows))


if __name__ == "__main__":
    main()
