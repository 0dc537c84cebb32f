"""CASES, variances and quadrature; layout, dtype, batching; size; reproducibility (C17 to C25, C33, C35)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf

PRIOR = mf.Prior.from_data(np.linspace(0.0, 1.0, 20), 2)


def kernel_at(draws: mf.Draws, lag: float = 0.1) -> float:
    return float(draws.weights @ mf.gram(draws.mixtures, [0.0, lag])[:, 0, 1])


def test_c18_nets_are_kept_whole() -> None:
    """1000 draws a size are 1024, and better than 1000 of them; replicates have scrambles of their own."""
    reference = kernel_at(PRIOR.sample(2**13, np.random.default_rng(9)))
    errors = []
    for seed in range(24):
        draws = PRIOR.sample(1000, np.random.default_rng(seed))
        assert len(draws) == 2 * 1024
        whole = kernel_at(draws)
        values = mf.gram(draws.mixtures, [0.0, 0.1])[:, 0, 1].reshape(2, 1024)[:, :1000]
        errors.append((whole - reference, float(values.mean()) - reference))
    rms = np.sqrt(np.mean(np.square(errors), axis=0))
    assert rms[0] <= rms[1]
    assert rms[0] < 0.02  # plain Monte Carlo: 0.047, as the masses are log-normal
    rng = np.random.default_rng(0)
    replicates = [kernel_at(PRIOR.sample(128, rng)) for _ in range(4)]
    assert len(set(replicates)) == 4


def test_c19_no_draw_is_infinite() -> None:
    for m in (1, 2, 4, 64):
        for seed in range(50):
            g = PRIOR.sample(m, np.random.default_rng(seed)).mixtures
            for array in (g.weights, g.means, g.scales, g.noise_variances):
                assert np.isfinite(np.asarray(array)).all()


def test_c20_c21_c22_layouts_orders_and_types_of_a_whole_run() -> None:
    """The same bits for read-only, strided, Fortran, big-endian, lists; integers and bools are numbers."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, size=(12, 2)).astype(float) + np.arange(12.0)[:, None], rng.integers(-5, 5, 12) * 1.0
    options: dict[str, Any] = {"budget": 12, "nodes": 32, "max_components": 1, "seed": 0, "device": "cpu"}
    expected = mf.marginalise(X, y, **options).log_evidence
    locked = X.copy()
    locked.setflags(write=False)
    wide = np.empty((12, 4))
    wide[:, ::2] = X
    for other in (locked, wide[:, ::2], np.asfortranarray(X), X.astype(">f8"), X.tolist(), X.astype(np.int32)):
        before = np.array(other)
        assert mf.marginalise(other, y, **options).log_evidence == expected
        np.testing.assert_array_equal(other, before)
    for other in (y.astype(">f8"), y.astype(np.int16), list(y), np.stack([y, y], axis=1)[:, 0]):
        assert mf.marginalise(X, other, **options).log_evidence == expected
    flags = np.array([1, 0] * 6)
    same = [mf.marginalise(flags.astype(kind), y, **options).log_evidence for kind in (float, np.uint8, bool)]
    assert same[0] == same[1] == same[2]
    for bad in (X + 0j, X.astype(object), X.astype("datetime64[s]")):
        with pytest.raises(TypeError, match="X: expected real numbers"):
            mf.marginalise(bad, y, **options)


def test_c23_c24_batches_of_any_size() -> None:
    for count in (0, 1, 65536):
        column = np.ones((count, 1))
        g = mf.GMMBatch(np.arange(count + 1), column[:, 0], 0.3 * column, 0.1 * column)
        E = mf.energy_distance(g, g[:1] if count else g)
        assert E.shape == (count, min(count, 1))
        assert (E == 0.0).all()
        assert mf.gram(g, np.arange(2.0)).shape == (count, 2, 2)
        p = mf.predict_gp(g, [0.0, 1.0], [1.0, 0.0], 0.1, [])
        assert p.mean.shape == p.variance.shape == (count, 0)


def test_c35_threads_and_global_generators_do_not_matter() -> None:
    """Seed 7 twice and seed 8, with 1 and with 4 threads, each in its own process; the global generator is left."""
    code = """
import numpy as np, maskerade_fast as mf
state = np.random.get_state()[1].copy()
x = np.linspace(0, 1, 30) ** 1.1
for seed in (7, 7, 8):
    post = mf.marginalise(x, np.sin(9 * x), budget=40, nodes=64, max_components=2, seed=seed, device="cpu")
    print(post.log_evidence.hex(), post.mixtures.means.tobytes().hex())
assert (np.random.get_state()[1] == state).all()
"""
    outputs = []
    for threads in ("1", "4"):
        environment = {**os.environ, "NUMBA_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        outputs.append(done.stdout.splitlines())
    assert outputs[0] == outputs[1]
    assert outputs[0][0] == outputs[0][1] != outputs[0][2]
