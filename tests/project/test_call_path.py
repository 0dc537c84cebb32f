"""The way of X from `marginalise` to the first log-likelihood stays short and goes down."""

from __future__ import annotations

import call_path


def test_few_calls_climb_into_a_higher_layer() -> None:
    calls = call_path.calls()
    assert calls[0].callee == "run.marginalise.marginalise"
    assert calls[-1].callee.startswith(call_path.LOOPS)
    assert len(calls) <= 300
    assert 0 < sum(call.climb for call in calls) <= 25
