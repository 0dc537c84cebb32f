"""Fixtures of all tests, and the two hypothesis profiles: "ordinary", and ``HYPOTHESIS_PROFILE=long``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "emulator"))

try:
    import hypothesis
except ImportError:  # the run on the oldest versions goes without: modules of properties importorskip it
    pass
else:
    common: dict[str, Any] = {"deadline": None, "database": None, "print_blob": True}
    slow_data = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
    hypothesis.settings.register_profile(
        "ordinary", max_examples=20, derandomize=True, suppress_health_check=slow_data, **common
    )
    hypothesis.settings.register_profile("long", max_examples=1000, suppress_health_check=slow_data, **common)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))


@pytest.fixture(params=["cpu", "gpu"])
def backend(request: pytest.FixtureRequest) -> str:
    """Name of the device a test runs on."""
    if request.param == "gpu":
        pytest.skip("the CUDA backend is not part of this version")
    return str(request.param)


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    """Floating type of a test's arrays."""
    return np.dtype(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    """Generator of a test's random data: the same for every run."""
    return np.random.default_rng(20220328)


ORDERS = {"forward": 0, "reverse": 1, "shuffled": 2}
"""Orders in which the emulator resumes the threads of a block, and runs the blocks."""


@pytest.fixture
def emulated(request: pytest.FixtureRequest) -> Iterator[Any]:
    """`fake_cupy`, installed as cupy: `maskerade_fast.backends.gpu` runs its kernels on the CPU.

    Forward order unless the test chooses: ``@pytest.mark.parametrize("emulated", ORDERS, indirect=True)``. The backend
    is imported anew; a real cupy, and the backend on it, come back afterwards.
    """
    import fake_cupy

    from maskerade_fast import backends

    def ours(name: str) -> bool:
        return name.split(".")[0] in ("cupy", "cupyx") or name.startswith("maskerade_fast.backends.gpu")

    before = {name: sys.modules.pop(name) for name in list(sys.modules) if ours(name)}
    package = backends.__dict__.pop("gpu", None)
    backends._load.cache_clear()
    fake_cupy.reset(ORDERS[getattr(request, "param", "forward")])
    sys.modules.update(fake_cupy.modules)
    try:
        yield fake_cupy
    finally:
        for name in [name for name in sys.modules if ours(name)]:
            del sys.modules[name]
        backends.__dict__.pop("gpu", None)
        backends._load.cache_clear()
        sys.modules.update(before)
        if package is not None:
            backends.__dict__["gpu"] = package
