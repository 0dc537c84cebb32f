"""Reductions of common.cuh, by a kernel that the package does not ship."""

from __future__ import annotations

import numpy as np

from . import driver

SOURCE = r"""
#line 1 "common_test.cu"
extern "C" __global__ void __launch_bounds__(96)
    reductions_f64(const double* __restrict__ x, double* __restrict__ out) {
    MF_SHARED(double, part, 3);
    MF_SHARED(double, other, 3);
    const double value = x[blockIdx.x * 96 + threadIdx.x];
    double* const mine = out + (index_t)blockIdx.x * 4 * 96;
    mine[threadIdx.x] = block_sum<96>(value, part);
    mine[96 + threadIdx.x] = block_max<96>(value, other);
    mine[192 + threadIdx.x] = warp_sum(value);
    mine[288 + threadIdx.x] = warp_max(value);
}
"""


@driver("common.cuh")
def reductions() -> None:
    import cupy

    from maskerade_fast.backends.gpu import _loader

    code = _loader.expand(_loader.source_folder() / "common.cuh") + SOURCE
    kernel = cupy.RawModule(code=code, options=("-std=c++17",)).get_function("reductions_f64")
    x = np.random.default_rng(1).normal(size=(2, 96))
    out = cupy.empty((2, 4, 96))
    kernel((2,), (96,), (cupy.asarray(x), out))
    result = out.get()
    warps = x.reshape(2, 3, 32)
    np.testing.assert_allclose(result[:, 0], np.repeat(x.sum(1)[:, None], 96, 1), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(result[:, 1], np.repeat(x.max(1)[:, None], 96, 1))
    np.testing.assert_allclose(result[:, 2], np.repeat(warps.sum(2), 32, 1), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(result[:, 3], np.repeat(warps.max(2), 32, 1))
    assert (result[:, :2] == result[:, :2, :1]).all()  # the same bits in every thread
    assert (result[:, 2].reshape(2, 3, 32) == result[:, 2].reshape(2, 3, 32)[..., :1]).all()
