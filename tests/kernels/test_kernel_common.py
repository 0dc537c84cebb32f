"""Device mathematics of kernels/common.cuh, and what the emulator puts in place of a card's functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

SOURCE = r"""
#line 1 "common_test.cu"
extern "C" __global__ void __launch_bounds__(32)
    phases_f64(const double* m, const double* high, const double* low, double* turns, double* c, double* s, int n) {
    for (int k = threadIdx.x; k < n; k += 32) {
        turns[k] = phase_turns(m[k], high[k], low[k]);
        cos_sin_turns(turns[k], c + k, s + k);
    }
}
extern "C" __global__ void __launch_bounds__(32) rows_f64(const index_t* k, index_t* row, int n) {
    for (int i = threadIdx.x; i < n; i += 32) {
        row[i] = lower_row(k[i]);
    }
}
extern "C" __global__ void __launch_bounds__(32) roots_f64(const double* x, double* root, double* inverse, int n) {
    for (int k = threadIdx.x; k < n; k += 32) {
        root[k] = branchless_root(x[k]);
        inverse[k] = branchless_inverse_root(x[k]);
    }
}
extern "C" __global__ void __launch_bounds__(32) functions_f64(const double* x, double* out, int n) {
    for (int k = threadIdx.x; k < n; k += 32) {
        double* const mine = out + 5 * k;
        sincospi(x[k], mine, mine + 1);
        mine[2] = rsqrt(x[k] * x[k] + 1.0);
        mine[3] = quiet_nan();
        mine[4] = infinity();
    }
}
extern "C" __global__ void __launch_bounds__(32) decay_f64(const double* x, double* out, int n) {
    for (int k = threadIdx.x; k < n; k += 32) {
        out[k] = decay(x[k]);
    }
}
"""
Launch = Callable[..., list[Any]]


@pytest.fixture
def launch(emulated: Any) -> Launch:
    """``launch(name, inputs, *outputs)``: outputs of a kernel of `SOURCE`, arrays of the given dtypes and shapes."""
    import cupy

    from maskerade_fast.backends.gpu import _loader

    code = _loader.expand(_loader.source_folder() / "gram.cuh") + SOURCE
    get = cupy.RawModule(code=code, options=("-std=c++17",)).get_function

    def run(name: str, inputs: list[Any], *outputs: Any) -> list[Any]:
        n = len(inputs[0])
        made = [cupy.empty((n, *shape), dtype) for dtype, *shape in outputs]
        get(name)((1,), (32,), (*map(cupy.asarray, inputs), *made, np.int32(n)))
        return [array.get() for array in made]

    return run


def test_phases_of_large_inputs(launch: Launch, rng: np.random.Generator) -> None:
    n = 200
    m = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4, n)
    high = rng.normal(size=n) * 10.0 ** rng.integers(-3, 7, n)
    low = high * rng.uniform(-1e-16, 1e-16, n)
    turns, cosine, sine = launch("phases_f64", [m, high, low], *3 * [(float,)])
    assert np.max(np.abs(m * high)) > 1e8  # plain products would leave errors near 1e-8
    exact = [Fraction(a) * (Fraction(b) + Fraction(c)) for a, b, c in zip(m, high, low, strict=True)]
    fraction = np.array([float(e - round(e)) for e in exact])
    error = turns - fraction
    assert np.max(np.abs(error - np.rint(error))) <= 4e-16
    assert_allclose(cosine, np.cos(2 * np.pi * fraction), rtol=0, atol=3e-15)
    assert_allclose(sine, np.sin(2 * np.pi * fraction), rtol=0, atol=3e-15)


def test_rows_of_a_packed_triangle(launch: Launch) -> None:
    rows = np.array([0, 1, 2, 3, 1000, 70_000, 3_000_000, 90_000_000])
    starts = rows * (rows + 1) // 2
    places = np.concatenate([starts, starts + rows, starts + rows // 2])
    assert_array_equal(launch("rows_f64", [places], (np.int64,))[0], np.tile(rows, 3))
    assert max(places) > 2**51


def test_roots_without_a_branch(launch: Launch, rng: np.random.Generator) -> None:
    """Within 1 ulp from a seed of 20 bits; 0, infinity and NaN as of sqrt, and no root below the normal numbers."""
    normal = np.concatenate(
        [np.exp(rng.uniform(-700.0, 700.0, 5000)), rng.uniform(1.0, 4.0, 5000), [2.3e-308, 1.7e308]]
    )
    special_values = np.array([0.0, 5e-324, 1e-310, np.inf, np.nan, -np.nan])
    root, inverse = launch("roots_f64", [np.concatenate([normal, special_values])], (float,), (float,))
    n = len(normal)
    exact = np.sqrt(normal.astype(np.longdouble))
    assert np.all(np.abs(root[:n] - exact) <= np.spacing(np.sqrt(normal)))
    assert np.all(np.abs(inverse[:n] - 1 / exact) <= np.spacing(1 / np.sqrt(normal)))
    assert_array_equal(root[n:], [0.0, 0.0, 0.0, np.inf, np.nan, np.nan])
    assert np.all(inverse[n : n + 3] < 1e-150)  # times differences of 0: the subgradient 0


def test_functions_that_the_emulator_adds(launch: Launch) -> None:
    x = np.concatenate([np.linspace(-6.0, 9.0, 61), [0.0, 1e-9, 25.0]])
    (out,) = launch("functions_f64", [x], (float, 5))
    sine, cosine, root, nan, inf = out.T
    assert_allclose(sine, special.sindg(180.0 * x), rtol=0, atol=1e-14)
    assert_allclose(cosine, special.cosdg(180.0 * x), rtol=0, atol=1e-14)
    whole = x == np.rint(x)
    assert_array_equal(sine[whole], 0.0)
    assert_array_equal(np.abs(cosine[whole]), 1.0)
    assert_allclose(root, 1.0 / np.sqrt(x * x + 1.0), rtol=1e-15)
    assert np.isnan(nan).all()
    assert (inf == math.inf).all()


def test_exponentials_without_a_branch(launch: Launch, rng: np.random.Generator) -> None:
    """Within 2^-52 of e^x by 40 digits, 1 at 0, 0 from below -708 on, NaN for NaN."""
    edges = [0.0, -1e-300, -1e-17, -0.5 * np.log(2.0), -707.9, -708.0, np.nextafter(-708.0, -709.0), -1e300, -np.inf]
    x = np.concatenate([-np.exp(rng.uniform(-30.0, np.log(708.0), 4000)), edges, [np.nan]])
    (out,) = launch("decay_f64", [x], (float,))
    with localcontext(Context(prec=40, Emin=-10_000)):
        exact = [Decimal(float(v)).exp() for v in x[:-4]]
        errors = [abs(Decimal(float(value)) / e - 1) for value, e in zip(out[:-4], exact, strict=True)]
    assert max(errors) <= Decimal(2) ** -52
    assert out[len(x) - len(edges) - 1] == 1.0
    assert_array_equal(out[-4:], [0.0, 0.0, 0.0, np.nan])
