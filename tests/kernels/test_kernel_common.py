"""Device mathematics of kernels/common.cuh, and what the emulator puts in place of a card's functions."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
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
        double sine, cosine;
        sincospi(x[k], &sine, &cosine);
        double* const mine = out + 8 * k;
        mine[0] = sine;
        mine[1] = cosine;
        mine[2] = normcdf(x[k]);
        mine[3] = erfcx(x[k]);
        mine[4] = normcdfinv(normcdf(x[k]));
        mine[5] = rsqrt(x[k] * x[k] + 1.0);
        mine[6] = quiet_nan();
        mine[7] = infinity();
    }
}
"""


@pytest.fixture
def kernels(emulated: Any) -> Any:
    import cupy

    from maskerade_fast.backends.gpu import _loader

    code = _loader.expand(_loader.source_folder() / "common.cuh") + SOURCE
    return cupy.RawModule(code=code, options=("-std=c++17",)).get_function


def test_phases_of_large_inputs(kernels: Any, rng: np.random.Generator) -> None:
    import cupy

    n = 200
    m = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4, n)
    high = rng.normal(size=n) * 10.0 ** rng.integers(-3, 7, n)
    low = high * rng.uniform(-1e-16, 1e-16, n)
    turns, cosine, sine = (cupy.empty(n) for _ in range(3))
    arguments = (cupy.asarray(m), cupy.asarray(high), cupy.asarray(low), turns, cosine, sine, np.int32(n))
    kernels("phases_f64")((1,), (32,), arguments)
    assert np.max(np.abs(m * high)) > 1e8  # plain products would leave errors near 1e-8
    exact = [Fraction(a) * (Fraction(b) + Fraction(c)) for a, b, c in zip(m, high, low, strict=True)]
    fraction = np.array([float(e - round(e)) for e in exact])
    error = turns.get() - fraction
    assert np.max(np.abs(error - np.rint(error))) <= 4e-16
    np.testing.assert_allclose(cosine.get(), np.cos(2 * np.pi * fraction), rtol=0, atol=3e-15)
    np.testing.assert_allclose(sine.get(), np.sin(2 * np.pi * fraction), rtol=0, atol=3e-15)


def test_rows_of_a_packed_triangle(kernels: Any) -> None:
    import cupy

    rows = np.array([0, 1, 2, 3, 1000, 70_000, 3_000_000, 90_000_000])
    starts = rows * (rows + 1) // 2
    places = np.concatenate([starts, starts + rows, starts + rows // 2])
    found = cupy.empty(len(places), np.int64)
    kernels("rows_f64")((1,), (32,), (cupy.asarray(places), found, np.int32(len(places))))
    np.testing.assert_array_equal(found.get(), np.tile(rows, 3))
    assert max(places) > 2**51


def test_roots_without_a_branch(kernels: Any, rng: np.random.Generator) -> None:
    """Within 1 ulp from a seed of 20 bits; 0, infinity and NaN as of sqrt, and no root below the normal numbers."""
    import cupy

    normal = np.concatenate(
        [np.exp(rng.uniform(-700.0, 700.0, 5000)), rng.uniform(1.0, 4.0, 5000), [2.3e-308, 1.7e308]]
    )
    special_values = np.array([0.0, 5e-324, 1e-310, np.inf, np.nan, -np.nan])
    x = np.concatenate([normal, special_values])
    root, inverse = cupy.empty(len(x)), cupy.empty(len(x))
    kernels("roots_f64")((1,), (32,), (cupy.asarray(x), root, inverse, np.int32(len(x))))
    n = len(normal)
    exact = np.sqrt(normal.astype(np.longdouble))
    assert np.all(np.abs(root.get()[:n] - exact) <= np.spacing(np.sqrt(normal)))
    assert np.all(np.abs(inverse.get()[:n] - 1 / exact) <= np.spacing(1 / np.sqrt(normal)))
    np.testing.assert_array_equal(root.get()[n:], [0.0, 0.0, 0.0, np.inf, np.nan, np.nan])
    assert np.all(inverse.get()[n : n + 3] < 1e-150)  # times differences of 0: the subgradient 0


def test_functions_that_the_emulator_adds(kernels: Any) -> None:
    import cupy

    x = np.concatenate([np.linspace(-6.0, 9.0, 61), [0.0, 1e-9, 25.0]])
    out = cupy.empty((len(x), 8))
    kernels("functions_f64")((1,), (32,), (cupy.asarray(x), out, np.int32(len(x))))
    sine, cosine, cdf, scaled, back, root, nan, inf = out.get().T
    np.testing.assert_allclose(sine, special.sindg(180.0 * x), rtol=0, atol=1e-14)
    np.testing.assert_allclose(cosine, special.cosdg(180.0 * x), rtol=0, atol=1e-14)
    whole = x == np.rint(x)
    np.testing.assert_array_equal(sine[whole], 0.0)
    np.testing.assert_array_equal(np.abs(cosine[whole]), 1.0)
    np.testing.assert_allclose(cdf, special.ndtr(x), rtol=1e-13)
    np.testing.assert_allclose(scaled, special.erfcx(x), rtol=1e-13)
    tail = np.abs(x) < 6.5
    np.testing.assert_allclose(back[tail & (x <= 0)], x[tail & (x <= 0)], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(back[tail], special.ndtri(special.ndtr(x[tail])), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(root, 1.0 / np.sqrt(x * x + 1.0), rtol=1e-15)
    assert np.isnan(nan).all()
    assert (inf == math.inf).all()


DECAY = r"""
#line 1 "decay_test.cu"
extern "C" __global__ void __launch_bounds__(32) decay_f64(const double* x, double* out, int n) {
    for (int k = threadIdx.x; k < n; k += 32) {
        out[k] = decay(x[k]);
    }
}
"""


def test_exponentials_without_a_branch(emulated: Any, rng: np.random.Generator) -> None:
    """Within 2^-52 of e^x by 40 digits, 1 at 0, 0 from below -708 on, NaN for NaN."""
    import cupy

    from maskerade_fast.backends.gpu import _loader

    code = _loader.expand(_loader.source_folder() / "gram.cuh") + DECAY
    kernel = cupy.RawModule(code=code, options=("-std=c++17",)).get_function("decay_f64")
    edges = [0.0, -1e-300, -1e-17, -0.5 * np.log(2.0), -707.9, -708.0, np.nextafter(-708.0, -709.0), -1e300, -np.inf]
    x = np.concatenate([-np.exp(rng.uniform(-30.0, np.log(708.0), 4000)), edges, [np.nan]])
    out = cupy.empty(len(x))
    kernel((1,), (32,), (cupy.asarray(x), out, np.int32(len(x))))
    found = out.get()
    with localcontext(Context(prec=40, Emin=-10_000)):
        exact = [Decimal(float(v)).exp() for v in x[:-4]]
        errors = [abs(Decimal(float(f)) / e - 1) for f, e in zip(found[:-4], exact, strict=True)]
    assert max(errors) <= Decimal(2) ** -52
    assert found[len(x) - len(edges) - 1] == 1.0
    np.testing.assert_array_equal(found[-4:], [0.0, 0.0, 0.0, np.nan])
