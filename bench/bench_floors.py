"""Each operation beside its floor, the least time that this machine could take: `floors` has what they are."""

from __future__ import annotations

from typing import Any

import floors
import pytest

OPERATIONS = floors.operations()


@pytest.mark.benchmark(group="floors")
@pytest.mark.parametrize("operation", OPERATIONS, ids=[f"{o.name}, {o.size}" for o in OPERATIONS])
def test_share_of_the_floor(benchmark: Any, operation: floors.Operation) -> None:
    row = floors.measured(operation)
    benchmark.pedantic(operation.call, rounds=1)
    assert 0.0 < row["processor_s"] < float("inf")
    benchmark.extra_info.update({k: row[k] for k in ("floor", "floor_s", "processor_s", "wall_s", "rounds", "share")})
    benchmark.extra_info.update(size=f"{operation.name}, {operation.size}", asked=floors.asked(row))
