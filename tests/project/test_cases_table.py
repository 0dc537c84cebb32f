"""tests/README.md names a test for every case, and every name is that of a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[1]


def test_the_table_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| (C\d\d) \|[^|]*\|([^|]*)\|([^|]*)\|$", (FOLDER / "README.md").read_text(), re.M)
    files = {path.stem: path for path in FOLDER.rglob("test_*.py")}
    later = (38, 52)  # of sampling rates and time budgets
    assert [name for name, _, _ in rows] == [f"C{k:02d}" for k in range(1, 53) if k not in later]
    for case, *cells in rows:
        count = 0
        for cell in cells:
            file = ""
            for quoted in re.findall(r"`([^`]+)`", cell):
                name = quoted
                if quoted.partition("::")[0] in files:
                    file, _, name = quoted.partition("::")
                    count += not name
                if name.startswith("test_"):
                    assert re.search(rf"^def {name}\(", files[file].read_text(), re.M), (case, file, name)
                    count += 1
        assert count or case == "C37", case
