"""The results: one JSON and one markdown table, rewritten whole after every figure, so that a cut leaves all before it.

In a dry run nothing that could pass for a figure of a card is kept: `scrubbed` empties every time, ratio and share.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import threading
from pathlib import Path
from typing import Any

from .tables import section

KIND = "maskerade_fast gpu_check"
FIGURES = re.compile(r"(_ms|_seconds|_per_second|_mhz)$|^(ratio|share)_")
"""Names of what a clock has had a part in."""

PARTS = ("compile", "ceilings", "smoke", "rows", "end_to_end", "tests", "sanitizer")
"""Sections of the report, in the order in which they are measured."""
MARK = "@@"  # begins a line of a child's output that is a result
LOST = 3  # exit status of a child whose CUDA context is of no more use


class Report:
    """The results so far, on disk at any time: by section, entries by name.

    An entry that was measured in full has ``done``; `resume` keeps those of an earlier run.
    """

    def __init__(self, folder: Path, header: dict[str, Any], earlier: dict[str, Any] | None = None) -> None:
        self.dry = bool(header["dry_run"])
        self.content = {
            **header,
            "finished": "no",
            **{part: {} for part in PARTS},
            "items": {},
            "spent": {},
            "failures": [],
        }
        name = "dry-run" if self.dry else re.sub(r"[^a-z0-9]+", "-", header["card"]["name"].lower()).strip("-")
        self.json, self.markdown = folder / f"{name}.json", folder / f"{name}.md"
        self._lock = threading.RLock()
        if earlier is not None:
            self.resume(earlier)
            return
        if self.json.exists() and not self.dry:  # of a run that this one does not go on with
            os.replace(self.json, self.json.with_name(f"{self.json.name}.before"))
        self.write()

    def resume(self, earlier: dict[str, Any]) -> None:
        """Keep what an earlier run measured in full; what failed then, was cut or left out has yet to be done, and
        its figures stay with that run."""
        unfinished: dict[str, Any] = {}
        with self._lock:
            for part in PARTS:
                stored = earlier.get(part) or {}
                entries = {entry["case"]: entry for entry in stored} if isinstance(stored, list) else stored
                self.content[part] = {name: e for name, e in entries.items() if isinstance(e, dict) and e.get("done")}
                rest = {name: e for name, e in entries.items() if name not in self.content[part]}
                unfinished |= {part: rest} if rest else {}
            self.content["items"] = earlier.get("items", {})
            runs = "started commit sources versions limit_s parts run_seconds state_before state_after spent failures"
            own = {key: earlier[key] for key in runs.split() if key in earlier} | {"unfinished": unfinished}
            self.content["earlier_runs"] = [*earlier.get("earlier_runs", []), own]
            self.write()

    def finished(self, part: str | None = None) -> set[str]:
        """Names of the entries of a part, or of all, that were measured in full."""
        parts = PARTS if part is None else (part,)
        return {name for p in parts for name, entry in self.content[p].items() if entry.get("done")}

    def all_finished(self, part: str) -> bool:
        """Whether nothing of a part is left to do, as far as an earlier run listed its items."""
        names = set(self.content["items"].get(part, []))
        return bool(names) and names <= self.finished(part)

    def list_items(self, part: str, names: list[str]) -> None:
        """Note what a part means to measure, beside what is finished."""
        with self._lock:
            listed = self.content["items"].get(part, [])
            self.content["items"][part] = [*listed, *(name for name in names if name not in listed)]
            self.write()

    def put(self, section: str, /, **entries: Any) -> None:
        """Write entries of a section, in place of those of the same name."""
        with self._lock:
            self.content[section].update(entries)
            self.write()

    def mark(self, section: str, name: str, **fields: Any) -> None:
        """Add fields to an entry, which is made if need be."""
        self.put(section, **{name: self.content[section].get(name, {}) | fields})

    def failure(self, where: str, error: BaseException | str) -> None:
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        say(f"  FAILED {where}: {text.splitlines()[0][:200] if text else ''}")
        with self._lock:
            self.content["failures"].append({"where": where, "error": text[:2000]})
            self.write()

    def finish(self, how: str, *, last: bool = False) -> None:
        """Say how the run ended; nothing is written after the `last` word, whatever another thread still does."""
        self._lock.acquire()
        try:
            self.content["finished"] = how
            self.write()
        finally:
            if not last:
                self._lock.release()

    def write(self) -> None:
        with self._lock:
            content = plain(self.content)
            content["rows"] = [{"case": name, **entry} for name, entry in content["rows"].items()]
            if self.dry:
                content = scrubbed(content)
            self.json.parent.mkdir(parents=True, exist_ok=True)
            replace(self.json, json.dumps(content, indent=1, allow_nan=False) + "\n")
            with contextlib.suppress(TypeError, ValueError, LookupError):  # the figures are in the JSON all the same
                replace(self.markdown, page(content, self.json))


def say(text: str) -> None:
    """Print a line; nobody may be reading any more, or not in a locale that has its letters."""
    with contextlib.suppress(OSError, ValueError):
        print(text, flush=True)


class Lines:
    """The report of a child: a line of its output for each call, which `children.run_items` reads."""

    def items(self, names: list[str]) -> None:
        """All that this process means to measure, in order."""
        self._say("items", names)

    def begin(self, name: str) -> None:
        self._say("begin", name)

    def end(self) -> None:
        self._say("end")

    def put(self, name: str, entry: dict[str, Any]) -> None:
        self._say("put", {name: entry})

    def failure(self, where: str, error: str) -> None:
        self._say("failure", where, error)

    def _say(self, *record: Any) -> None:
        print(MARK + json.dumps(plain(record), allow_nan=False), flush=True)


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


def resumable(path: Path, card: str) -> dict[str, Any]:
    """The results of an earlier run on such a `card`: `path`, or the only ones among whatever this folder has."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    contents = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    runs = [content for content in contents if isinstance(content, dict) and content.get("kind") == KIND]
    own: list[dict[str, Any]] = [content for content in runs if content["card"]["name"] == card]
    if len(own) != 1:
        others = sorted({content["card"]["name"] for content in runs} - {card})
        besides = f", but of {' and '.join(others)}" if others else ""
        raise ValueError(f"{path}: {len(own)} results of {card}{besides}, expected one; name its JSON file")
    return own[0]


def scrubbed(value: Any, figure: bool = False) -> Any:
    """`value` with None for every number under a name of `FIGURES`."""
    if isinstance(value, dict):
        return {k: scrubbed(v, figure or bool(FIGURES.search(k))) for k, v in value.items()}
    if isinstance(value, list):
        return [scrubbed(v, figure) for v in value]
    return None if figure and isinstance(value, (int, float)) and not isinstance(value, bool) else value


def page(content: dict[str, Any], path: Path) -> str:
    """Return the results in markdown."""
    lines = []
    if content["dry_run"]:
        lines += ["**Dry run on the emulator: no card, no figures. It shows that the script runs, nothing else.**", ""]
    lines += [section(content, path), "", f"Finished: {content['finished']}."]
    if content["failures"]:
        lines += [
            "",
            "## Failures",
            "",
            *(f"* {f['where']}: {f['error'].partition(chr(10))[0]}" for f in content["failures"]),
        ]
    return "\n".join(lines) + "\n"
