"""Fixtures of all tests, and the two hypothesis profiles: "ordinary", and ``HYPOTHESIS_PROFILE=long``."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

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
