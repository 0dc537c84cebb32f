// Kernels of the measurements alone: one that holds a stream, and two ways to pass a column round a warp.
#include "../../kernels/cholesky.cuh"

// Keeps a stream busy for a time proportional to `steps`.
extern "C" __global__ void __launch_bounds__(1) wait_f64(double* state, int steps) {
    double x = state[0];
    for (int k = 0; k < steps; ++k) {
        x = fma(x, 0.5, 0.5);
    }
    state[0] = x;
}

constexpr int PADDED = TILE + 2; // row stride of a tile in shared memory: 16-byte aligned, few bank clashes
constexpr int TILE_SIZE = TILE * PADDED;

// factor_tile with each column passed round through shared memory: two columns by turns, so that one barrier a step is
// enough.
__device__ __forceinline__ void factor_tile_by_memory(double* tile, int stride, double bound, int* bad,
                                                      double* inverse_pivots, double* columns) {
    const int row = lane_of() % TILE;
    double a[TILE];
#pragma unroll
    for (int c = 0; c < TILE; ++c) {
        a[c] = tile[row * stride + c];
    }
    double own_pivot = 0.0;
    int failed = 0;
#pragma unroll
    for (int k = 0; k < TILE; ++k) {
        double* const column = columns + k % 2 * TILE;
        if (lane_of() < TILE) {
            column[row] = a[k];
        }
        __syncwarp();
        double pivot = column[k];
        if (!(pivot > bound && pivot < infinity())) {
            failed = failed ? failed : k + 1;
            pivot = 1.0;
        }
        const double inverse = rsqrt(pivot);
        if (row == k) {
            own_pivot = inverse;
            a[k] = pivot * inverse;
        } else {
            a[k] *= inverse;
        }
#pragma unroll
        for (int c = 0; c < TILE; ++c) {
            if (c > k) {
                a[c] = fma(-a[k], column[c] * inverse, a[c]);
            }
        }
    }
    if (lane_of() < TILE) {
#pragma unroll
        for (int c = 0; c < TILE; ++c) {
            if (c <= row) {
                tile[row * stride + c] = a[c];
            }
        }
        inverse_pivots[row] = own_pivot;
    }
    if (lane_of() == 0 && failed && bad[0] == 0) {
        bad[0] = failed;
    }
}

// One warp a block: the factor of the 16 x 16 matrix `in`, made `rounds` times over, to `out` of its block.
template <bool BY_MEMORY>
__device__ __forceinline__ void factor_rounds(const double* in, double* out, int rounds) {
    MF_SHARED(double, tile, TILE_SIZE);
    MF_SHARED(double, columns, 2 * TILE);
    MF_SHARED(double, inverse_pivots, TILE);
    MF_SHARED(int, bad, 1);
    if (lane_of() == 0) {
        bad[0] = 0;
    }
    for (int round = 0; round < rounds; ++round) {
        __syncwarp();
        store_tile(load_tile(in, TILE), tile, PADDED);
        __syncwarp();
        if (BY_MEMORY) {
            factor_tile_by_memory(tile, PADDED, 0.0, bad, inverse_pivots, columns);
        } else {
            factor_tile(tile, PADDED, 0.0, 0, bad, inverse_pivots);
        }
    }
    __syncwarp();
    double* const own = out + (index_t)blockIdx.x * TILE * TILE;
    for (int e = lane_of(); e < TILE * TILE; e += WARP) {
        own[e] = e % TILE <= e / TILE && bad[0] == 0 ? tile[e / TILE * PADDED + e % TILE] : 0.0;
    }
}

extern "C" __global__ void __launch_bounds__(WARP)
    factor_by_shuffle_f64(const double* __restrict__ in, double* __restrict__ out, int rounds) {
    factor_rounds<false>(in, out, rounds);
}

extern "C" __global__ void __launch_bounds__(WARP)
    factor_by_memory_f64(const double* __restrict__ in, double* __restrict__ out, int rounds) {
    factor_rounds<true>(in, out, rounds);
}
