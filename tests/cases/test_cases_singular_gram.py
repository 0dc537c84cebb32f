"""CASES, singular Gram and jitter (C01 to C03): the kind, any matrix of too low rank; the cases: test_likelihood.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import maskerade_fast as mf  # noqa: E402


@given(
    n_distinct=st.integers(1, 4),
    repeats=st.integers(2, 4),
    n_dims=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
    place=st.integers(0, 2),
)
def test_c01_c02_repeated_rows_fail_alone(n_distinct: int, repeats: int, n_dims: int, seed: int, place: int) -> None:
    """Without noise flagged by the pivot, with noise exact; what stands beside it has the same bits."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.uniform(size=(n_distinct, n_dims)), repeats, axis=0)[rng.permutation(n_distinct * repeats)]
    y = rng.normal(size=len(X))
    means, scales = rng.normal(size=(3, 2, n_dims)), rng.uniform(0.1, 1.0, (3, 2, n_dims))
    g = mf.GMMBatch.from_list(list(zip(rng.uniform(0.5, 2.0, (3, 2)), means, scales, strict=True)))
    noise = np.full(3, 0.1)
    noise[place] = 0.0
    result = mf.log_likelihood(g, X, y, noise)
    assert result.value[place] == -np.inf
    assert 2 <= result.info[place] <= n_distinct * repeats
    assert (result.jitter == 0.0).all()
    for b in {0, 1, 2} - {place}:
        assert result.info[b] == 0
        np.testing.assert_array_equal(result.value[b], mf.log_likelihood(g[[b]], X, y, 0.1).value[0])
    repaired = mf.log_likelihood(g, X, y, noise, jitter=1e-4)
    assert (repaired.jitter > 0.0).tolist() == [b == place for b in range(3)]
    assert np.isfinite(repaired.value).all()


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_c03_indefinite_matrices_end_after_three_tries(n: int, seed: int) -> None:
    """However negative the eigenvalue: no loop, a flag, and the input as it was."""
    from maskerade_fast.backends import cpu

    rng = np.random.default_rng(seed)
    A = np.eye(n)[None] + np.zeros((2, n, n))
    A[0, 0, -1] = A[0, -1, 0] = rng.uniform(1.5, 1e6)
    A[1, 0, -1] = A[1, -1, 0] = 1.0
    before = A.copy()
    options: dict[str, Any] = {"jitter": 1e-6}
    _, info, shift = cpu.cholesky(A, **options)[:3]
    np.testing.assert_array_equal(A, before)
    assert info[0] > 0
    assert info[1] == 0
    assert 0.0 < shift[1] <= 1e-6
