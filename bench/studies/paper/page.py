"""The tables of the docs from the rows in bench/results/paper: every figure there comes from a file.

What lies between ``<!-- begin TABLE -->`` and ``<!-- end TABLE -->`` is written anew; the rest of a page is by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from bench import RESULTS, ROOT

from . import summaries
from .harness import Row, path_of, read_rows
from .recipes import MODES
from .runs import TABLES

_MARKS = re.compile(rf"<!-- begin ({'|'.join(TABLES)}) -->\n.*?<!-- end \1 -->", re.DOTALL)


def write(*, save: bool = False) -> int:
    """Fill the pages if `save`; else return 1 if that would change them, and 0 if not."""
    changed = 0
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        expected = filled(text)
        changed |= expected != text
        if save:
            page.write_text(expected, encoding="utf-8")
    return int(changed and not save)


def filled(text: str, results: Path = RESULTS / "paper") -> str:
    """The page with its tables."""

    def section(mark: re.Match[str]) -> str:
        name = mark.group(1)
        return f"<!-- begin {name} -->\n{of_table(name, results)}\n<!-- end {name} -->"

    return _MARKS.sub(section, text)


def of_table(name: str, results: Path = RESULTS / "paper") -> str:
    """The table, with settings, caps, commits, machine, the command, and what was not run."""
    by_mode = {mode: read_rows(path_of(name, mode, results)) for mode in MODES}
    parts = ["", summaries.markdown(name, by_mode), ""]
    for mode, rows in by_mode.items():
        if rows:
            parts += [*made_by(name, mode, rows), ""]
    left = [line for mode, rows in by_mode.items() for line in missing(name, mode, rows)]
    if left:
        parts += [f"Not run: {'; '.join(left)}.", ""]
    return "\n".join(parts)


def made_by(name: str, mode: str, rows: list[Row]) -> list[str]:
    """Command, settings of each method, caps, commits and machine of the rows of one mode."""
    settings = {row["method"]: shared([r for r in rows if r["method"] == row["method"]]) for row in rows}
    by_text: dict[str, list[str]] = {}
    for method, text in settings.items():
        by_text.setdefault(text, []).append(summaries.called(method, mode))
    listed = "; ".join(f"{' and '.join(methods)}: {text or 'none'}" for text, methods in by_text.items())
    caps = ", ".join(f"{cap:g}" for cap in sorted({row["cap"] for row in rows}))
    machines = ", ".join(sorted({f"{row['device']}, {row['threads']} thread(s)" for row in rows}))
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    dates = sorted({row["date"] for row in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return [
        f"`python -m bench.studies.paper {name} --mode {mode} --data-dir DIR`. Settings: {listed}; cap {caps} s a run. "
        f"Commit {commits}, {when}, {machines}."
    ]


def shared(rows: list[Row]) -> str:
    """The settings that all rows of a method have in common; what varies is in the table."""
    first = rows[0]["settings"]
    kept = {k: v for k, v in first.items() if all(row["settings"].get(k) == v for row in rows)}
    return summaries.settings_of({"settings": kept})


def missing(name: str, mode: str, rows: list[Row]) -> list[str]:
    """Sets without a row, in words, and those that lack some of the methods that others have."""
    who = "the default" if mode == "default" else "the paper's recipe"
    if not rows:
        return [f"{who}, all of it"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    methods_of: dict[str, set[str]] = {
        one: {row["method"] for row in rows if row["set"] == one} for one in TABLES[name].sets
    }
    absent = [summaries.NAMES.get(one, one) for one, there in methods_of.items() if not there]
    lines = [f"{who} on {', '.join(absent)}"] if absent else []
    for one, there in methods_of.items():
        lacking = [summaries.called(method, mode) for method in methods if method not in there]
        if there and lacking:
            lines.append(f"on {summaries.NAMES.get(one, one)} {', '.join(lacking)}")
    return lines
