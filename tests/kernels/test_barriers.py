"""Every barrier of the CUDA sources is needed, and no other is: by drivers that run every kernel.

Each driver (tests/emulator/drivers) gives the same bits in three orders of threads, which it does not do without any
one of nearly all barriers, and passes under the sanitizers, which find the rest. The sweep takes each __syncthreads
and __syncwarp of the sources away in turn and replays the drivers' launches: another bit in a result, an error of the
emulator or ThreadSanitizer must report it. The emulator leaves the barrier of one file and line out, which does what
deleting it from the source would do and spares a build for each.
"""

from __future__ import annotations

from typing import Any

import drivers
import emulate
import pytest
import sanitize
import sources
from drivers import recorded
from emulate import ORDERS
from gpu_calls import EVERY_ORDER

DRIVERS = drivers.all_drivers()
BARRIERS = sources.barriers()
sweep = pytest.mark.sweep  # minutes of compiled variants: run with --sweep
every_driver = pytest.mark.parametrize("name", DRIVERS)


def answering_for(file: str) -> list[drivers.Driver]:
    return [d for d in DRIVERS.values() if any(file in sources.files_of(source) for source in d.sources)]


@sweep
@EVERY_ORDER
@every_driver
def test_drivers_pass_in_every_order(name: str, emulated: Any) -> None:
    DRIVERS[name].run()
    assert emulated.state.launches


@pytest.mark.sample
@every_driver
def test_drivers_give_the_same_bits_in_reverse_order(name: str, emulated: Any, recordings: dict[str, Any]) -> None:
    """As in forward order, in which they are recorded and whose results they check."""
    launches = recorded(DRIVERS[name], emulated, recordings).files
    assert sanitize.replay(launches, "replay", emulate.Options(ORDERS["reverse"])) is None


@sweep
@pytest.mark.parametrize("order", ["forward", "shuffled"])
@every_driver
def test_drivers_give_the_same_bits_in_every_order(
    name: str, order: str, emulated: Any, recordings: dict[str, Any]
) -> None:
    launches = recorded(DRIVERS[name], emulated, recordings).files
    assert sanitize.replay(launches, "replay", emulate.Options(ORDERS[order])) is None


def test_thread_sanitizer_finds_nothing_where_a_product_parts_reads_from_writes(
    emulated: Any, recordings: dict[str, Any]
) -> None:
    """Lanes meet for an mma or a vote, which orders no memory on a card: no order of threads shows what lacks there."""
    launches = recorded(DRIVERS["likelihood-least"], emulated, recordings).files
    fused = {key: [path for path in files if "likelihood" in path.name] for key, files in launches.items()}
    assert sanitize.replay({key: files for key, files in fused.items() if files}, "tsan") is None


@sweep
@pytest.mark.parametrize("mode", ["tsan", "asan"])
@every_driver
def test_sanitizers_find_nothing(name: str, mode: str, emulated: Any, recordings: dict[str, Any]) -> None:
    launches = recorded(DRIVERS[name], emulated, recordings).files
    assert sanitize.replay(launches, mode) is None


@sweep
@pytest.mark.parametrize("site", BARRIERS, ids=[f"{file}:{line}" for file, line in BARRIERS])
def test_a_missing_barrier_is_reported(site: tuple[str, int], emulated: Any, recordings: dict[str, Any]) -> None:
    runs = [("replay", order) for order in ORDERS.values()] + [("tsan", 0)]
    launches = [recorded(driver, emulated, recordings).files for driver in answering_for(site[0])]
    for mode, order in runs:
        if any(sanitize.replay(each, mode, emulate.Options(order, site)) is not None for each in launches):
            return
    pytest.fail(f"without the barrier at {site[0]}:{site[1]} nothing changes: it is not needed, or no driver meets it")


def test_every_source_has_a_driver() -> None:
    answered = {file for d in DRIVERS.values() for source in d.sources for file in sources.files_of(source)}
    assert set(sources.NAMES) <= answered


def test_barriers_are_seen() -> None:
    lines = enumerate(sources.texts()["common.cuh"].splitlines(), 1)
    assert ("common.cuh", next(k for k, text in lines if "__syncthreads" in text)) in BARRIERS


@sweep
def test_a_needless_barrier_is_found(
    emulated: Any, recordings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check itself: a barrier that no driver meets counts as needless."""
    monkeypatch.setattr("test_barriers.DRIVERS", {"common-reductions": DRIVERS["common-reductions"]})
    with pytest.raises(pytest.fail.Exception, match="not needed"):
        test_a_missing_barrier_is_reported(("common.cuh", 1), emulated, recordings)
