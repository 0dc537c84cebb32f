"""Commands within the process, and small tables for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maskerade_fast.cli import main
from maskerade_fast.storage.csv_files import Table, read_table


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit status of a command, and what it printed on standard output and on standard error."""
    status = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of a command that ends with status 2."""
    status, out, err = run(capsys, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    return err


def written(path: Path, names: str, columns: Any) -> Path:
    """A CSV file; `names` with commas between them, or "" for none."""
    rows = ["".join(f"{cell!s}," for cell in row)[:-1] for row in zip(*columns, strict=True)]
    path.write_text("\n".join([*([names] if names else []), *rows]) + "\n")
    return path


def table_of(folder: Path, content: str | bytes, header: bool | None = None, expected: tuple[str, ...] = ()) -> Table:
    """What the reader makes of a file with this content."""
    (folder / "data.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(folder / "data.csv", header=header, expected=expected)
