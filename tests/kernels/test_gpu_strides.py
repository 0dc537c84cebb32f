"""Loops over a grid: kernels whose blocks go on to further places give right results with a single block, too.

No problem of a test is so large that a launch has fewer blocks than its work; so the grids are made small instead.
"""

from __future__ import annotations

import re
from typing import Any

import drivers
import pytest
import sources

ENTRY = re.compile(sources.ENTRY.pattern + r"\((.*?)\n\}\n", re.S)
FUNCTION = re.compile(r"^__device__ __forceinline__ [\w:<>*& ]+?(\w+)\([^;{]*\{\n(.*?)\n\}\n", re.S | re.M)
STRIDE = re.compile(r"\b(?:grid|tile)_stride\(\)")


def looping() -> dict[str, set[str]]:
    """Source and the entries that loop over a grid, by themselves or by a function that they call."""
    texts = sources.texts()
    helpers = {name for text in texts.values() for name, body in FUNCTION.findall(text) if STRIDE.search(body)}
    calls = re.compile("|".join([STRIDE.pattern, *(rf"\b{name}(?:<[^>]*>)?\(" for name in sorted(helpers))]))
    entries = {
        name: {entry for entry, body in ENTRY.findall(text) if calls.search(body)} for name, text in texts.items()
    }
    return {name: own for name, own in entries.items() if own}


LOOPING = looping()


def test_every_loop_over_a_grid_is_known() -> None:
    """The regular expressions above have missed none."""
    lines = [line for text in sources.texts().values() for line in text.splitlines()]
    loops = sum(bool(STRIDE.search(line)) and "for (" in line for line in lines)
    shared = 1  # add_partial_sums, which two entries call
    assert sum(map(len, LOOPING.values())) >= loops - shared >= 12


@pytest.mark.parametrize("name", [n for n, d in drivers.all_drivers().items() if set(d.sources) & set(LOOPING)])
def test_one_block_does_the_work_of_many(name: str, emulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from maskerade_fast.backends.gpu import _loader

    entries = set().union(*LOOPING.values())
    launch = _loader.Kernel.__call__
    shrunk: set[str] = set()

    def on_one_block(kernel: Any, grid: Any, *args: Any, **options: Any) -> None:
        if kernel.name in entries:
            shrunk.add(kernel.name)
            grid = tuple(1 for _ in grid)
        launch(kernel, grid, *args, **options)

    monkeypatch.setattr(_loader.Kernel, "__call__", on_one_block)
    driver = drivers.all_drivers()[name]
    driver.run()
    assert shrunk >= set().union(*(LOOPING.get(source, set()) for source in driver.sources)), "some loop did not run"
