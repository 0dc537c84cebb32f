"""The results: one JSON and one markdown table, rewritten whole after every figure, so that a cut leaves all before it.

In a dry run nothing that could pass for a figure of a card is kept: `scrubbed` empties every time, ratio and share.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
from pathlib import Path
from typing import Any

FIGURES = re.compile(r"(_ms|_seconds|_per_second|_mhz)$|^(ratio|share)_")
"""Names of what a clock has had a part in."""

COLUMNS = [
    ("case", "case"),
    ("device ms", "ours.device_ms"),
    ("call ms", "ours.call_ms"),
    ("plain CuPy ms", "plain_cupy.call_ms"),
    ("fused + cuSOLVER ms", "fused.call_ms"),
    ("GPyTorch ms", "gpytorch.call_ms"),
    ("plain / ours", "ratio_plain_cupy"),
    ("fused / ours", "ratio_fused"),
    ("GPyTorch / ours", "ratio_gpytorch"),
    ("floor (estimate) ms", "floor_estimate_ms"),
    ("floor / device", "share_of_floor"),
    ("error", "error"),
]


class Report:
    """What is known so far, on disk at any time."""

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        self.dry = bool(header["dry_run"])
        self.content = {**header, "finished": "no", "smoke": {}, "rows": [], "questions": {}}
        self.content |= {"question_seconds": {}, "tests": {}, "sanitizer": {}, "end_to_end": {}, "profile": {}}
        self.content["failures"] = []
        name = "dry-run" if self.dry else re.sub(r"[^a-z0-9]+", "-", header["card"]["name"].lower()).strip("-")
        folder.mkdir(parents=True, exist_ok=True)
        self.json, self.markdown = folder / f"{name}.json", folder / f"{name}.md"
        self._lock = threading.Lock()
        self.write()

    def row(self, entry: dict[str, Any]) -> None:
        """Add a row, or write it again with more in it."""
        if entry not in self.content["rows"]:
            self.content["rows"].append(entry)
        self.write()

    def put(self, section: str, **entries: Any) -> None:
        self.content[section].update(entries)
        self.write()

    def failure(self, where: str, error: BaseException | str) -> None:
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self.content["failures"].append({"where": where, "error": text[:2000]})
        print(f"  FAILED {where}: {text.splitlines()[0][:200] if text else ''}", flush=True)
        self.write()

    def finish(self, how: str) -> None:
        self.content["finished"] = how
        self.write()

    def write(self) -> None:
        with self._lock:
            content = plain(self.content)
            if self.dry:
                content = scrubbed(content)
            replace(self.json, json.dumps(content, indent=1, allow_nan=False) + "\n")
            replace(self.markdown, table(content))


def replace(path: Path, text: str) -> None:
    """Write `path` so that a reader, or a cut, sees the old text or the new one."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def plain(value: Any) -> Any:
    """`value` in JSON's types; what is not finite becomes its name, times keep five digits."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (bool, int)) else str(value)


def scrubbed(value: Any, figure: bool = False) -> Any:
    """`value` with None for every number under a name of `FIGURES`."""
    if isinstance(value, dict):
        return {k: scrubbed(v, figure or bool(FIGURES.search(k))) for k, v in value.items()}
    if isinstance(value, list):
        return [scrubbed(v, figure) for v in value]
    return None if figure and isinstance(value, (int, float)) and not isinstance(value, bool) else value


def table(content: dict[str, Any]) -> str:
    """The rows in markdown, then what else is known in a line each."""
    card = content["card"]
    lines = [f"# {card['name']}", ""]
    if content["dry_run"]:
        lines += ["**Dry run on the emulator: no card, no figures. It shows that the script runs, nothing else.**", ""]
    lines += [
        f"Commit {content['commit']}, driver {card.get('driver')}, "
        + ", ".join(f"{k} {v}" for k, v in content["versions"].items() if v)
        + f". Finished: {content['finished']}.",
        "",
        "Medians of warm calls by CUDA events. Device: the stream's time with the host ahead; call: from an idle "
        "stream. Ratios are of calls. The floor is arithmetic, not a measurement.",
        "",
        "| " + " | ".join(title for title, _ in COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    for row in content["rows"]:
        lines.append("| " + " | ".join(cell(row, key) for _, key in COLUMNS) + " |")
    for section in ("smoke", "questions", "tests", "sanitizer", "end_to_end", "profile"):
        if content[section]:
            lines += ["", f"## {section.capitalize().replace('_', ' ')}", ""]
            lines += [f"* {name}: {json.dumps(value)}" for name, value in content[section].items()]
    if content["failures"]:
        lines += ["", "## Failures", ""]
        lines += [f"* {f['where']}: {f['error'].splitlines()[0] if f['error'] else ''}" for f in content["failures"]]
    return "\n".join(lines) + "\n"


def cell(row: dict[str, Any], key: str) -> str:
    value: Any = row
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, float):
        return f"{value:.3g}"
    return "–" if value is None else str(value)
