"""What every timing carries with it, in `extra_info`: device, threads, dtype, versions and commit."""

from __future__ import annotations

import pytest

from bench.surroundings import surroundings


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "peer(name): the same operation by another library, or the floor of it")


@pytest.fixture(autouse=True)
def extra_info(request: pytest.FixtureRequest) -> None:
    """Fill `extra_info`; dtype is that of the parameter of this name, float64 where there is none."""
    if "benchmark" in request.fixturenames:
        parameters = getattr(getattr(request.node, "callspec", None), "params", {})
        dtype = str(parameters.get("dtype", "float64"))
        mark = request.node.get_closest_marker("peer")
        who = mark.args[0] if mark else "ours"
        request.getfixturevalue("benchmark").extra_info.update(surroundings(), dtype=dtype, who=who)
