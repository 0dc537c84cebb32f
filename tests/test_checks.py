"""Checks of arguments: what passes, in which type, and the words for what does not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from maskerade_fast import _checks


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1, 2], np.float64),
        (np.array([1.0, 2.0], dtype=">f4"), np.float32),
        (np.array([1, 2], dtype=np.int32), np.float64),
        ([True, False], np.float64),
        (np.zeros(0, dtype=np.float32), np.float32),
        ([], np.float64),
    ],
)
def test_float_array(value: Any, dtype: Any) -> None:
    array = _checks.float_array(value, "x", ndim=1)
    assert array.dtype == dtype
    assert array.dtype.isnative
    np.testing.assert_array_equal(array, np.asarray(value))


def test_float_array_copies_only_what_it_must() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert _checks.float_array(x, "x", ndim=2) is x
    assert _checks.float_array(x[:, 0], "x", ndim=1).base is None


@pytest.mark.parametrize(
    ("value", "ndim", "error", "message"),
    [
        ([[1.0]], 1, ValueError, "x: expected a 1-D array, got shape (1, 1)"),
        (1.0, (1, 2), ValueError, "x: expected a 1-D or 2-D array, got shape ()"),
        ([0.0, np.nan], 1, ValueError, "x[1]: nan, expected a finite number"),
        ([[0.0, 1.0], [np.inf, 0.0]], 2, ValueError, "x[(1, 0)]: inf, expected a finite number"),
        (np.nan, 0, ValueError, "x: nan, expected a finite number"),
        ([[1.0], [1.0, 2.0]], 1, ValueError, "x: expected a rectangular array"),
        ([1j], 1, TypeError, "x: expected real numbers, got an array of dtype complex128"),
        ([None], 1, TypeError, "x: expected real numbers, got an array of dtype object"),
        (["1"], 1, TypeError, "x: expected real numbers, got an array of dtype <U1"),
        (np.zeros(1, "M8[s]"), 1, TypeError, "x: expected real numbers, got an array of dtype datetime64[s]"),
    ],
)
def test_float_array_refuses(value: Any, ndim: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="^" + re.escape(message)):
        _checks.float_array(value, "x", ndim=ndim)


def test_minus_infinity_by_name_only() -> None:
    x = _checks.float_array([-np.inf, 0.0], "x", ndim=1, allow="-inf")
    assert x[0] == -np.inf
    for bad in (np.inf, np.nan):
        with pytest.raises(ValueError, match=r"^x\[0\]: "):
            _checks.float_array([bad, 0.0], "x", ndim=1, allow="-inf")
    with pytest.raises(ValueError, match=r"^x\[0\]: -inf"):
        _checks.float_array([-np.inf, 0.0], "x", ndim=1)


def test_numbers() -> None:
    assert _checks.positive(np.float32(0.5), "x") == 0.5
    assert _checks.non_negative(0, "x") == 0.0
    assert type(_checks.real(np.array(2), "x")) is float
    with pytest.raises(ValueError, match=r"^x: 0\.0, expected > 0$"):
        _checks.positive(0, "x")
    with pytest.raises(ValueError, match=r"^x: -1\.0, expected >= 0$"):
        _checks.non_negative(-1, "x")
    for check in (_checks.positive, _checks.non_negative, _checks.real):
        with pytest.raises(ValueError, match=r"^x: nan, expected a finite number$"):
            check(np.nan, "x")
        with pytest.raises(ValueError, match=r"^x: expected a 0-D array, got shape \(1,\)$"):
            check([1.0], "x")


def test_integers() -> None:
    assert _checks.integer(np.int32(3), "k", minimum=1) == 3
    with pytest.raises(ValueError, match=r"^k: 0, expected >= 1$"):
        _checks.integer(0, "k", minimum=1)
    for bad in (True, np.True_, 2.0, "2", None):
        with pytest.raises(TypeError, match=r"^k: expected an integer, got "):
            _checks.integer(bad, "k", minimum=0)


def test_choices() -> None:
    assert _checks.one_of("a", "mode", ("a", "b")) == "a"
    with pytest.raises(ValueError, match=r"^mode: 'c', expected one of 'a', 'b'$"):
        _checks.one_of("c", "mode", ("a", "b"))


def test_generator_never_touches_the_global_one() -> None:
    state = np.random.get_state(legacy=False)  # noqa: NPY002
    assert _checks.generator(7).random() == _checks.generator(np.int64(7)).random()
    assert _checks.generator(7).random() != _checks.generator(8).random()
    assert _checks.generator(None).random() != _checks.generator(None).random()
    own = np.random.default_rng(3)
    assert _checks.generator(own) is own
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert state["bit_generator"] == after["bit_generator"]
    np.testing.assert_array_equal(state["state"]["key"], after["state"]["key"])
    for bad in ("seven", 1.5, True):
        with pytest.raises(TypeError, match=r"^seed: expected an integer"):
            _checks.generator(bad)
    with pytest.raises(ValueError, match=r"^seed: -1, expected >= 0$"):
        _checks.generator(-1)


def test_masked_entries_are_refused() -> None:
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    with pytest.raises(ValueError, match="X: a masked array"):
        _checks.float_array(masked, "X", ndim=1)
    assert _checks.float_array(np.ma.masked_array([1.0, 2.0]), "X", ndim=1).tolist() == [1.0, 2.0]
