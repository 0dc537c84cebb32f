"""The file of outcomes: bench/results/mutants.json."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections import Counter
from typing import Any

import drawing
import rules
import trials
from rules import ROOT, Place

PATH = ROOT / "bench" / "results" / "mutants.json"


def read() -> dict[str, dict[str, Any]]:
    """Outcomes by the key of their fault."""
    if not PATH.exists():
        return {}
    entries = json.loads(PATH.read_text(encoding="utf-8"))["faults"]
    return {drawing.key(place_of(entry)): entry for entry in entries}


def place_of(entry: dict[str, Any]) -> Place:
    return Place(**{name: entry[name] for name in Place._fields})


def add(kept: dict[str, dict[str, Any]], place: Place, outcome: trials.Outcome, seed: int) -> None:
    """Keep an outcome, in the file too; the argument of a fault that still nobody notices stays."""
    key = drawing.key(place)
    entry = {**place._asdict(), **{name: value for name, value in outcome._asdict().items() if value is not None}}
    argument = kept.get(key, {}).get("argument")
    if argument and outcome.status == "survived":
        entry["argument"] = argument
    kept[key] = {**entry, "commit": commit()}
    write({**read(), key: kept[key]}, seed)  # another run may have written meanwhile


def keep_only(keys: set[str], groups: list[str], seed: int) -> None:
    """Forget outcomes of these groups that are drawn no more."""
    kept = read()
    left = {k: e for k, e in kept.items() if k in keys or e["group"] not in groups or e["status"] == "unfit"}
    if left.keys() != kept.keys():
        write(left, seed)


def settled(entry: dict[str, Any] | None) -> bool:
    return entry is not None and (entry["status"] != "survived" or "argument" in entry)


def write(kept: dict[str, dict[str, Any]], seed: int) -> None:
    """All outcomes, in the order of groups, kinds and files, below counts and the command."""
    order = {(group, kind): k for k, (group, kind) in enumerate((g, n) for g in rules.RULES for n in rules.kinds(g))}
    faults = sorted(kept.values(), key=lambda e: (order[e["group"], e["kind"]], e["file"], e["line"], e["new"]))
    real = [entry for entry in faults if entry["status"] != "unfit"]
    content = {
        "what": "faults put into the sources one at a time, and the test of the ordinary suite that notices each",
        "command": f"python tests/mutants --seed {seed}",
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "killed": dict(Counter(e["group"] for e in real if e["status"] == "killed")),
        "argued": dict(Counter(e["group"] for e in real if "argument" in e)),
        "by_kind": dict(Counter(f"{e['group']}: {e['kind']}" for e in real)),
        "faults": faults,
    }
    beside = PATH.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    beside.replace(PATH)


def described(place: Place, entry: dict[str, Any] | None) -> str:
    lines = [
        f"{place.group}, {place.kind}: {place.file}:{place.line}",
        f"    - {place.old.strip()}",
        f"    + {place.new.strip()}",
    ]
    if entry is not None:
        said = [entry["status"], entry.get("test"), entry.get("how"), entry.get("argument")]
        lines.append(f"    {'; '.join(text for text in said if text)} ({entry['seconds']} s)")
    return "\n".join(lines)


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
