"""``python bench/paper ...``: the command line of `paper.cli`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/, so that this folder is the package `paper`

from paper.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
