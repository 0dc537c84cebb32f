"""Methods of `HyperKernel` as functions, so that the fixture `backend` runs them on every backend."""

from __future__ import annotations

from typing import Any

from maskerade_fast.ops.hyperkernel import HyperKernel


def hyperkernel_pullback(a: Any, b: Any = None, **settings: Any) -> Any:
    return HyperKernel(**settings).pullback(a, b)


def covariance_from_distance(distance: Any, **settings: Any) -> Any:
    return HyperKernel(**settings).of_distance(distance)
