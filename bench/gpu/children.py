"""Commands in processes of their own: each with a time limit, its output read as it comes.

A part whose process dies, or loses its CUDA context, costs the item that it was at: a new process goes on with the
rest. `MARK` begins the lines of output that are results (see `report.Lines`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench import ROOT

from .report import LOST, MARK, Report, say

PART = ("-m", "bench.gpu.part")
STARTS = 6  # processes that a part may use up
GUARD = 'read ended || kill -s KILL -- "-$1"'
"""Ends a session when this process has gone without a word, however that came: it would go on holding the card."""

_running: set[subprocess.Popen[str]] = set()


@contextlib.contextmanager
def guarded(process: subprocess.Popen[str]) -> Iterator[None]:
    """Let the session of `process` end with this process at the latest."""
    command = ["sh", "-c", GUARD, "guard", str(process.pid)]
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True, **silent) as guard:
        try:
            yield
        finally:
            guard.communicate("ended\n")


def timed_run(
    command: list[str],
    limit: float | None,
    environment: dict[str, str] | None = None,
    take: Callable[[str], None] = lambda line: None,
) -> tuple[float, int | None, str]:
    """Seconds, exit status (None: cut off at `limit`) and output of a command run in the repository's root.

    `take` gets each line as it comes. A cut ends all processes that the command started: one that hangs on the card
    would spoil what is measured next.
    """
    start = time.monotonic()
    lines: list[str] = []
    was_cut = threading.Event()
    options: dict[str, Any] = {"cwd": ROOT, "env": environment, "encoding": "utf-8", "errors": "replace"}
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, **options, **pipes, start_new_session=True) as process, guarded(process):

        def watch() -> None:
            try:
                process.wait(None if limit is None else max(limit, 1.0))
            except subprocess.TimeoutExpired:
                was_cut.set()
            _kill(process)  # and what it has left behind, which would keep its output open

        _running.add(process)
        threading.Thread(target=watch, daemon=True).start()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                take(line)
        except BaseException:
            _kill(process)
            raise
        finally:
            process.wait()
            _running.discard(process)
    return time.monotonic() - start, None if was_cut.is_set() else process.returncode, "".join(lines)


def _kill(process: subprocess.Popen[str]) -> None:
    """End the process and all that it started: they are one session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def kill_all() -> None:
    """End every command that is still running."""
    for process in list(_running):
        _kill(process)


def run_items(part: str, limit: float | None, report: Report, finished: set[str]) -> None:
    """A part of named items (bench/gpu/part.py), without those that are `finished`.

    An item at which the process dies is reported as failed, one at which it is cut as cut off; those that were not
    reached are listed as left out.
    """
    start = time.monotonic()
    skip, names = set(finished), list[str]()
    for _ in range(STARTS):
        left = None if limit is None else limit - (time.monotonic() - start)
        if left is not None and left < 5.0:
            break
        at: list[str] = []

        def take(line: str, at: list[str] = at) -> None:
            try:
                what, *rest = json.loads(line[len(MARK) :] if line.startswith(MARK) else "")
            except ValueError:  # not a result, or one that was cut off within its line
                say(line.rstrip("\n"))
                return
            if what == "items":
                names[:] = rest[0]
                report.list_items(part, names)
            elif what == "begin":
                at[:] = [rest[0]]
                skip.add(rest[0])
            elif what == "end":
                at.clear()
            elif what == "put":
                report.put(part, **rest[0])
            elif what == "failure":
                report.failure(*rest)

        _, code, output = timed_run(part_command(part, report.dry, left, skip), left, take=take)
        if code == 0:
            break
        if code is None:
            for name in at:
                report.mark(part, name, cut_off=f"after {limit:.0f} s of this part")
            break
        if code != LOST or at:
            why = f"exit status {code}: {shown(output)[-1500:]}"
            for name in at:
                report.mark(part, name, failed=why)
            report.failure(at[0] if at else part, why)
        if not at and code != LOST:
            break
    for name in names:
        if name not in skip:
            report.mark(part, name, left_out="the time of this part was used up")


def part_command(part: str, dry: bool, limit: float | None, skip: set[str]) -> list[str]:
    command = [sys.executable, *PART, part, "--skip", json.dumps(sorted(skip))]
    command += ["--seconds", f"{limit:.1f}"] if limit is not None else []
    return [*command, *(["--dry-run"] if dry else [])]


def shown(output: str) -> str:
    """The output without the lines that are results."""
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith(MARK))


def last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else ""


def description(code: int | None, seconds: float, limit: float | None) -> dict[str, Any]:
    """What every run of a command says of itself."""
    entry: dict[str, Any] = {"exit_status": code, "run_seconds": seconds}
    if code is None:
        entry["cut_off"] = f"after {limit:.0f} s"
    else:
        entry["done"] = code == 0
    return entry
