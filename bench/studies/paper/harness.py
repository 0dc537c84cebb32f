"""Runs one after another: a row of results for each, written as it finishes, resumable and with a cap of seconds.

A row is one line of JSON in ``TABLE-MODE.jsonl``, appended when its run ends, so that a run that is cut
off leaves what it had and two processes may write to one file. Of two rows with the same key the later one counts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.surroundings import surroundings

from .data import Absent

# A run gets its cap of seconds as a budget, which leaves predictions and scores; past this many caps it is cut off.
_PATIENCE, _GRACE_SECONDS = 2.0, 60.0
_BOUND = 0.8  # of the cap: what takes longer has planned with it

Row = dict[str, Any]


class CutOff(Exception):
    """A run took longer than its cap allows."""


@dataclass(frozen=True)
class Run:
    """One row to be measured.

    Parameters
    ----------
    dataset, method : str
    number : int
        Of the split, fold or repeat, and the seed of the method.
    settings : dict
        All that the figures depend on besides; part of the key.
    work : callable
        Returns the figures; called with the cap in seconds.
    cap : float
        Seconds.
    """

    dataset: str
    method: str
    number: int
    settings: dict[str, Any]
    work: Callable[[float], Row] = field(compare=False)
    cap: float

    @property
    def key(self) -> tuple[Any, ...]:
        return key_of({"set": self.dataset, "method": self.method, "number": self.number, "settings": self.settings})

    @property
    def label(self) -> str:
        return f"{self.dataset} {self.method} {self.number}"


def key_of(row: Row) -> tuple[Any, ...]:
    """What makes two rows the same row: all but the figures."""
    return row["set"], row["method"], row["number"], json.dumps(row["settings"], sort_keys=True)


def path_of(table: str, mode: str, results: Path) -> Path:
    return results / f"{table}-{mode}.jsonl"


def read_rows(path: Path) -> list[Row]:
    """Rows in the order of their first appearance; a line that is not whole is left out."""
    rows: dict[tuple[Any, ...], Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
            rows[key_of(row)] = row
        except (json.JSONDecodeError, KeyError, TypeError):
            continue
    return list(rows.values())


def run_all(
    runs: Iterable[Run],
    path: Path,
    *,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> list[Row]:
    """Measure every run that is not there already, and return all rows of the file.

    Parameters
    ----------
    resume : bool
        Skip rows that the file has, but for those that a smaller cap than now has limited; else all are measured again,
        and replaced as they finish.

    Notes
    -----
    Data that are absent skip the row with a line; a run that raises or is cut off leaves a row with "failed".
    """
    done = {key_of(row): row for row in read_rows(path)} if resume else {}
    shown: set[str] = set()
    for run in runs:
        if run.key in done and not limited(done[run.key], run.cap):
            continue
        start = time.perf_counter()
        figures: Row
        try:
            with alarm(_PATIENCE * run.cap + _GRACE_SECONDS):
                figures = run.work(run.cap)
        except Absent as reason:
            if str(reason) not in shown:
                shown.add(str(reason))
                say(f"skipped {reason}")
            continue
        except CutOff as reason:
            figures = {"failed": str(reason)}
        except Exception as error:  # of any of six libraries: the other rows go on
            figures = {"failed": f"{type(error).__name__}: {error}"[:300]}
        row = {
            "set": run.dataset,
            "method": run.method,
            "number": run.number,
            "settings": run.settings,
            **{name: plain(value) for name, value in figures.items()},
            "total_seconds": round(time.perf_counter() - start, 3),
            "cap": run.cap,
            **provenance(),
        }
        append(path, row)
        say(f"{run.label}: {brief(row)}")
    return read_rows(path)


def limited(row: Row, cap: float) -> bool:
    """Whether a smaller cap than this one ended a run, or made it do with fewer likelihoods."""
    return row["cap"] < cap and ("failed" in row or row["total_seconds"] > _BOUND * row["cap"])


def append(path: Path, row: Row) -> None:
    """One write, at the end of the file; an incomplete line before it is closed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(row, allow_nan=True) + "\n"
    with path.open("ab+") as file:
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else "\n" + line
        file.write(line.encode())


def provenance() -> Row:
    """When, where and with what a row was measured."""
    around = surroundings()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    kept = {name: around[name] for name in ("device", "threads", "versions", "commit")}
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "load": load, **kept}


def plain(value: Any) -> Any:
    """NumPy's numbers and arrays as JSON has them, floats to ten digits."""
    if isinstance(value, np.ndarray):
        return [plain(v) for v in value.tolist()]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def brief(row: Row) -> str:
    """A line for a person who watches."""
    if "failed" in row:
        return row["failed"]
    names = [
        "rmse",
        "standard_rmse",
        "log_density",
        "log_density_a_row",
        "inside_90",
        "log_evidence",
        "seconds",
        "cost",
    ]
    return "  ".join(f"{name} {row[name]:.4g}" for name in names if isinstance(row.get(name), (int, float)))


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """CutOff inside the block after so many seconds, where the system has timers and this is the main thread.

    Compiled code is not interrupted: the exception comes when it returns.
    """

    def ring(*_: Any) -> None:
        raise CutOff(f"cut off after {seconds:.0f} s")

    try:
        before = signal.signal(signal.SIGALRM, ring)
    except (AttributeError, ValueError):  # Windows, or another thread
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
