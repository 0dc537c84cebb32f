"""Operations on inputs that float64 cannot hold: the bits of inputs near 0, whatever is added to all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from maskerade_fast import GMMBatch, gram, log_likelihood, predict_gp

G = GMMBatch.from_list([([1.0], [1e-9], [1e-10]), ([0.5, 1.0], [0.0, 2e-9], [1e-9, 1e-10])])
K = np.arange(30) * 10**8
Y = np.sin(K / 1e9)


@pytest.mark.parametrize("origin", [1_700_000_000_000_000_003, -(2**62), 2**53])
def test_c39_offsets_of_integers_change_no_bit(backend: str, origin: int) -> None:
    if backend != "cpu" and origin < 0:
        pytest.skip("one origin on the emulator is enough")
    results: list[Any] = [log_likelihood(G, shift + K, Y, 0.1, grad=True) for shift in (0, origin)]
    near, far = results
    assert_array_equal(far.value, near.value)
    assert_array_equal(far.grad.means, near.grad.means)
    assert_array_equal(gram(G, origin + K, origin + K[:4] + 5), gram(G, K, K[:4] + 5))
    here, there = (predict_gp(G, shift + K, Y, 0.1, shift + K[:4] + 5) for shift in (0, origin))
    assert_array_equal(there.mean, here.mean)


def test_one_point_is_a_number() -> None:
    assert_array_equal(gram(G, 3.0)[:, 0, 0], [1.0, 1.5])
    assert gram(G, K, 3.0).shape == (2, 30, 1)
    assert_array_equal(predict_gp(G, K, Y, 0.1, 3.0).mean, predict_gp(G, K, Y, 0.1, [3.0]).mean)
    with pytest.raises(ValueError, match=r"X: 1 columns \(shape \(1, 1\)\), but g.n_dims is 2"):
        gram(GMMBatch.from_list([([1.0], [[0.0, 0.0]], [[1.0, 1.0]])]), 3.0)
