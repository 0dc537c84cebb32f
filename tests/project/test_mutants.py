"""tests/mutants: the faults that it draws, and what its record must hold."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "bench" / "results" / "mutants.json"
GPU_KINDS = {
    *("bounds", "barriers", "indices", "signs", "strides", "32-bit products"),
    *("shuffles", "tails", "jitter", "chunks", "streams", "precision"),
}
CPU_KINDS = {"weights", "signs", "seeds", "off by one", "gradient terms"}
pytestmark = pytest.mark.skipif(not (ROOT / "kernels").is_dir(), reason="faults are put into the source tree only")


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The modules of tests/mutants."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "mutants"))
    names = ("rules", "drawing", "trials", "record")
    yield SimpleNamespace(**{name: _imported(name) for name in names})
    for name in names:
        sys.modules.pop(name, None)


def _imported(name: str) -> ModuleType:
    return __import__(name)


def test_enough_of_every_kind_and_file(mutants: SimpleNamespace) -> None:
    gpu, cpu = (mutants.drawing.draw(group, 16) for group in ("gpu", "cpu"))
    assert len(gpu) >= 60
    assert len(cpu) >= 40
    assert set(Counter(place.kind for place in gpu)) == GPU_KINDS
    assert set(Counter(place.kind for place in cpu)) == CPU_KINDS
    assert min(Counter(place.kind for place in gpu).values()) >= 4
    hit = {place.file for place in gpu}
    assert {file for file in mutants.rules.files("gpu") if not file.endswith(".cuh")} <= hit
    assert len({place.file for place in cpu if "backends/cpu" in place.file}) >= 15
    assert len({place.file for place in cpu if "backends/cpu" not in place.file}) >= 15


def test_the_seed_decides_and_nothing_else(mutants: SimpleNamespace) -> None:
    draw = mutants.drawing.draw
    assert draw("gpu", 16) == draw("gpu", 16)
    first, second = set(draw("gpu", 16)), set(draw("gpu", 17))
    assert len(first & second) < len(first) // 2
    unfit = mutants.drawing.key(draw("cpu", 16)[0])
    others = [place for place in draw("cpu", 16, frozenset({unfit})) if place in set(draw("cpu", 16))]
    assert len(others) > 0.7 * len(draw("cpu", 16))  # the rest stays, but for what makes up for it
    assert unfit not in map(mutants.drawing.key, others)


def test_every_place_is_a_change_of_one_line(mutants: SimpleNamespace) -> None:
    for group in ("gpu", "cpu"):
        for place in mutants.drawing.draw(group, 16):
            text = (ROOT / place.file).read_text()
            changed = mutants.trials.applied(text, place)
            pairs = [(a, b) for a, b in zip(text.split("\n"), changed.split("\n"), strict=True) if a != b]
            assert pairs == [(place.old, place.new)]
            assert text.split("\n")[place.line - 1] == place.old


def test_comments_and_strings_are_no_places(mutants: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    python = '''x = 1 - y  # a - b
"""A text - with signs
over - lines."""
z = f("a - b", c - d)
'''
    code = mutants.rules.code_of("a.py", python)
    assert [line.strip() for line in code] == ["x = 1 - y", "", "", "z = f(       , c - d)"]
    kernel = 'a = b - c; // d - e\n#define F(x) (x - 1)\nprintf("a - b", d - e);'
    assert [line.strip() for line in mutants.rules.code_of("a.cu", kernel)] == [
        "a = b - c;",
        "",
        "printf(       , d - e);",
    ]


@pytest.mark.parametrize(
    ("kind", "line", "changed"),
    [
        ("bounds", "    if (i < n && k > 0) {", ["    if (i <= n && k > 0) {", "    if (k > 0) {", "    if (i < n) {"]),
        ("barriers", "        __syncthreads(); // all have read", ["// all have read"]),
        ("32-bit products", "    x = y + (index_t)b * n;", ["    x = y + (int)b * n;"]),
        ("shuffles", "    v += __shfl_xor_sync(FULL_WARP, v, offset);",
         ["    v += __shfl_xor_sync(0xffffu, v, offset);", "    v += __shfl_xor_sync(FULL_WARP, v, 2 * offset);"]),
        ("tails", "    n_tiles = (n + TILE - 1) / TILE;", ["    n_tiles = (n) / TILE;"]),
        ("precision", "    const double r = x * y;", ["    const double r = (float)(x * y);"]),
    ],
)  # fmt: skip
def test_rules(mutants: SimpleNamespace, kind: str, line: str, changed: list[str]) -> None:
    code = mutants.rules.code_of("a.cu", line)[0]
    own = [rule for rule in mutants.rules.GPU_RULES if rule.kind == kind and ".cu" in rule.suffixes]
    lines = [
        new
        for rule in own
        if rule.where is None or rule.where.search(code)
        for new in mutants.rules.changed(rule, code, line)
    ]
    assert [text.rstrip() for text in lines] == changed


def test_equal_lines_are_told_apart(mutants: SimpleNamespace) -> None:
    place = mutants.rules.Place("gpu", "barriers", "a.cu", 3, "    sync();", "", 1)
    assert mutants.trials.applied("    sync();\nx\n    sync();\n", place) == "    sync();\nx\n\n"
    with pytest.raises(ValueError, match="no such line"):
        mutants.trials.applied("    sync();\n", place)


def test_the_record_leaves_nothing_open() -> None:
    """Enough faults of every kind, each noticed by a test that is there, or argued."""
    faults = json.loads(RECORD.read_text())["faults"]
    real = [fault for fault in faults if fault["status"] != "unfit"]
    counts = Counter((fault["group"], fault["kind"]) for fault in real)
    assert {kind for group, kind in counts if group == "gpu" and counts[group, kind] >= 4} == GPU_KINDS
    assert {kind for group, kind in counts if group == "cpu" and counts[group, kind] >= 4} == CPU_KINDS
    assert sum(fault["group"] == "gpu" for fault in real) >= 60
    assert sum(fault["group"] == "cpu" for fault in real) >= 40
    for fault in real:
        if fault["status"] == "killed":
            file, _, name = fault["test"].partition("::")
            assert re.search(rf"^def {re.escape(name.partition('[')[0])}\(", (ROOT / file).read_text(), re.M), fault
        else:
            assert len(fault["argument"].split()) >= 8, fault
