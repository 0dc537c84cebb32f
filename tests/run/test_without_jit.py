"""NUMBA_DISABLE_JIT=1 (C50): everything works without compiled loops, to the same numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from operations import operations

# What both programs run; the second, in a process of its own, without JIT.
FITS = """
import numpy as np
import maskerade_fast as mf
def fits():
    x = np.linspace(0.0, 1.0, 12) ** 1.1
    y = np.sin(9 * x)
    options = dict(nodes=16, max_components=2, seed=0, device="cpu")
    post = mf.marginalise(x, y, budget=30, initial=4, **options)
    prediction, new = post.predict(x[:2]), np.zeros(2)
    out = {"evidence of a fit": post.log_evidence, "fit mean": prediction.mean}
    out |= {"fit quantile": prediction.quantile(0.3)}
    out |= {"fit joint": post.joint_log_density(x[:2], new), "fit interval": np.stack(post.interval(x[:2]))}
    out |= {"fit band": post.spectral_density(x[:2]).mean}
    chosen = dict(initial=6, batch_size=2, proposals="prior", noise_variance=0.1, acquisition="information")
    out["evidence by the prior"] = mf.marginalise(x, y, budget=10, **chosen, **options).log_evidence
    return out
"""
# Between one order of rounding and another: eps times a condition number, which the surrogate's jitter bounds.
PLAIN, BY_SURROGATE = 1e3, 1e9


def without_jit(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program with NUMBA_DISABLE_JIT=1, in which any warning is an error."""
    tests = Path(__file__).parents[1]
    environment = {
        **os.environ,
        "NUMBA_DISABLE_JIT": "1",
        "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)]),
    }
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_c50_everything_works_without_jit_to_the_same_numbers(tmp_path: Path) -> None:
    code = f"""
import sys
from numba import config
from operations import operations
{FITS}
assert config.DISABLE_JIT
np.savez(sys.argv[1], **operations(shares=False), **fits())
"""
    path = tmp_path / "plain.npz"
    done = without_jit(code, str(path))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    scope: dict[str, Any] = {}
    exec(FITS, scope)
    compiled = {**operations(shares=False), **scope["fits"]()}
    plain = np.load(path)
    assert set(plain.files) == set(compiled)
    assert len(compiled) > 300
    for name, expected in compiled.items():
        expected = np.asarray(expected)
        loose = any(word in name for word in ("evidence", "information", "extended", "surrogate", "singular"))
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
        bound = (BY_SURROGATE if loose else PLAIN) * float(np.finfo(float).eps) * scale
        np.testing.assert_allclose(plain[name], expected, rtol=0.0, atol=bound, err_msg=name)


def test_c50_fused_products_keep_what_rounding_leaves() -> None:
    """Large phases rest on it: a product less the rounded product is exact."""
    code = """
import math
from fractions import Fraction
import numpy as np
from maskerade_fast.backends.cpu._math import clamped, exp_neg, fma
rng = np.random.default_rng(0)
for a, b, c in rng.normal(size=(300, 3)) * 10.0 ** rng.integers(-20, 20, (300, 3)):
    assert Fraction(float(fma(a, b, -(a * b)))) == Fraction(a) * Fraction(b) - Fraction(a * b)
    assert fma(a, b, c) == a * b + c
assert fma(1e200, 1e-200, 1.0) == 2.0 and fma(1e160, 1.0, -1e160) == 0.0 and math.isfinite(fma(1e305, 0.3, -3e304))
assert math.isnan(exp_neg(math.nan)) and exp_neg(-800.0) == 0.0
assert math.isclose(exp_neg(-1.0), math.exp(-1.0), rel_tol=1e-15)
assert math.isnan(clamped(math.nan)) and clamped(-1.0) == 0.0 and clamped(2.0) == 2.0
"""
    done = without_jit(code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_c50_exponentials_have_the_same_edge() -> None:
    """0 below -708, as compiled ones; for numbers and arrays."""
    from numba import njit

    from maskerade_fast.backends.cpu import _math, _without_jit

    edge = np.array([0.0, -1.0, -707.9, -708.0, np.nextafter(-708.0, -709.0), -800.0])
    exp_neg = njit(lambda x: _math.exp_neg(x))
    compiled = np.array([exp_neg(x) for x in edge])
    np.testing.assert_allclose(_without_jit.exp_neg(edge), compiled, rtol=3e-16)
    np.testing.assert_allclose([_without_jit.exp_neg(x) for x in edge], compiled, rtol=3e-16)
    assert (compiled[:4] > 0.0).all()
    assert not compiled[4:].any()


def test_c50_the_command_line_works_without_jit(tmp_path: Path) -> None:
    x = np.linspace(0.0, 1.0, 12) ** 1.1
    table, model, out = tmp_path / "table.csv", tmp_path / "model.npz", tmp_path / "out.csv"
    table.write_text("x,y\n" + "".join(f"{a:.6f},{np.sin(9 * a):.6f}\n" for a in x))
    code = "import sys; from maskerade_fast.cli import main; sys.exit(main(sys.argv[1:]))"
    options = [
        "--budget",
        "8",
        "--max-components",
        "1",
        "--seed",
        "0",
        "--device",
        "cpu",
        "--quiet",
        "--test-fraction",
        "0.2",
    ]
    done = without_jit(code, "fit", str(table), *options, "--save", str(model))
    assert done.returncode == 0, done.stderr
    done = without_jit(code, "predict", str(model), str(table), "--predictions", str(out))
    assert done.returncode == 0, done.stderr
    assert len(out.read_text().splitlines()) == 13
