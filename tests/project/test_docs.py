"""The pages: every link leads somewhere, every path exists, and the architecture names the modules that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "maskerade_fast"
ARCHITECTURE = ROOT / "docs" / "how-it-works" / "architecture.md"
pytestmark = pytest.mark.skipif(not ARCHITECTURE.is_file(), reason="the pages are part of the source tree only")

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "bench/README.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "tests").rglob("*.md")) + [ROOT / "kernels/README.md"]
FOLDERS = "maskerade_fast|kernels|tests|bench|docs|examples"


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Targets of links and pictures that lead nowhere."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        if path.startswith(("http://", "https://", "mailto:")):
            continue
        file = (page.parent / path) if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_paths(page: Path) -> None:
    assert broken_links(page) == []
    if page.name == "CHANGELOG.md":
        return
    paths = re.findall(
        rf"(?<![\w/.])((?:{FOLDERS})/[\w/.-]*\.(?:py|md|toml|jsonl?|cuh?|hpp|csv|svg|png))\b", prose(page)
    )
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_broken_links_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c\n[a](#a-b-c) [b](#nowhere) [c](other.md) ![d](page.md#a-b-c) [e](https://example.org)\n"
    )
    assert broken_links(page) == ["#nowhere", "other.md"]


def test_sources_cite_pages_that_exist() -> None:
    """By name, as "mathematics.md section 9", or by path; sections are the numbers of headings."""
    names = {path.name for path in PAGES}
    sections = set(re.findall(r"^## (\d+)\. ", prose(ROOT / "docs" / "how-it-works" / "mathematics.md"), re.MULTILINE))
    for source in [*PACKAGE.rglob("*.py"), *(ROOT / "kernels").glob("*.cu*")]:
        text = source.read_text(encoding="utf-8")
        for cited in re.findall(r"[\w/-]+\.md\b", text):
            assert (ROOT / cited).is_file() if "/" in cited else cited in names, (source.name, cited)
        for first, last in re.findall(r"mathematics\.md sections? (\d+)(?: (?:and|to) (\d+))?", text):
            assert {first, last or first} <= sections, source.name


def test_the_map_has_every_page() -> None:
    listed = re.findall(r"\]\(([\w/-]+\.md)\)", prose(ROOT / "docs" / "README.md"))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(there)


def test_every_picture_is_shown() -> None:
    shown = {
        (page.parent / target).resolve() for page in PAGES for target in re.findall(r"\]\(([^)#\s]+)\)", prose(page))
    }
    assert set((ROOT / "docs" / "pictures").iterdir()) <= shown


def test_the_architecture_names_every_module_and_no_other() -> None:
    named = set()
    for section in re.split(r"^### ", prose(ARCHITECTURE), flags=re.MULTILINE)[1:]:
        folder = re.match(r"`([\w/]+)`", section)
        assert folder
        named |= {f"{folder[1]}/{name}" for name in re.findall(r"^\| `(\w+\.py)` \|", section, re.MULTILINE)}
    assert named == {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py")}


def test_the_architecture_has_the_layers() -> None:
    """In the order that the checker of imports has."""
    table = prose(ARCHITECTURE).partition("## Layers")[2].partition("\n## ")[0]
    layers = re.findall(r"^\| (\d+) \| `(\w+)` \|", table, re.MULTILINE)
    checked = re.search(
        r"^LAYERS = (\[.*?\])", (ROOT / "tests" / "test_layers.py").read_text(), re.MULTILINE | re.DOTALL
    )
    assert checked
    assert [name for _, name in reversed(layers)] == ast.literal_eval(checked[1])[1:]
    assert [int(number) for number, _ in layers] == list(range(len(layers) + 1, 1, -1))


def test_the_architecture_names_files_of_the_package() -> None:
    """Paths below the package, as `ops/gram.py`, in the tables and the text."""
    paths = re.findall(r"`((?:\w+/)+\w+\.\w+)`", prose(ARCHITECTURE))
    assert paths
    assert [path for path in paths if not any((folder / path).exists() for folder in (ROOT, PACKAGE))] == []
