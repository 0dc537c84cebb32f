// Cholesky factors by 16 x 16 tiles: what a warp does with a tile. What a block does with a matrix of tiles in shared
// memory is in elimination.cuh, what all blocks do with matrices of any size in cholesky.cu.
//
// A pivot of at most N eps max diag, or one that is not finite, fails the matrix: its column is noted, the pivot is
// replaced by 1, and the rest of that matrix is meaningless.
#pragma once

#include "common.cuh"

constexpr int TILE = 16;
constexpr int ATTEMPTS = 4; // no jitter, then 1e-4, 1e-2 and 1 times the largest allowed

__device__ __forceinline__ double jitter_of(int attempt, double jitter, double mean_diagonal) {
    return attempt == 0 ? 0.0 : jitter * mean_diagonal * (attempt == 1 ? 1e-4 : attempt == 2 ? 1e-2 : 1.0);
}

// A 16 x 16 tile in the registers of a warp, eight entries a lane. Tensor instructions fix which lane has which;
// without them a lane has 2 rows by 4 columns.
struct WarpTile {
    double entry[8];
};

__device__ __forceinline__ int tile_row(int e) {
#ifdef MF_HAVE_MMA
    return e / 4 * 8 + lane_of() / 4;
#else
    return lane_of() / 4 * 2 + e / 4;
#endif
}

__device__ __forceinline__ int tile_column(int e) {
#ifdef MF_HAVE_MMA
    return e / 2 % 2 * 8 + lane_of() % 4 * 2 + e % 2;
#else
    return lane_of() % 4 + e % 4 * 4;
#endif
}

__device__ __forceinline__ WarpTile zero_tile() {
    WarpTile tile;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        tile.entry[e] = 0.0;
    }
    return tile;
}

__device__ __forceinline__ WarpTile load_tile(const double* from, int stride) {
    WarpTile tile;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        tile.entry[e] = from[tile_row(e) * stride + tile_column(e)];
    }
    return tile;
}

__device__ __forceinline__ void store_tile(const WarpTile& tile, double* to, int stride) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        to[tile_row(e) * stride + tile_column(e)] = tile.entry[e];
    }
}

// How a product reads its factors: entry (m, k) of 16 x 16 numbers stored by rows of `stride`
struct Rows {
    const double* base;
    int stride;
    __device__ __forceinline__ double operator()(int m, int k) const { return base[m * stride + k]; }
};

// The transpose
template <typename View> struct Turned {
    View view;
    __device__ __forceinline__ double operator()(int m, int k) const { return view(k, m); }
};

template <typename View> __device__ __forceinline__ Turned<View> turned(const View& view) {
    return {view};
}

#ifdef MF_HAVE_MMA
// A lane's part of a product's factor: entries (l / 4 + {0, 8}, 4 s + l % 4) at 2 s + {0, 1}. Which factor it is makes
// no difference.
struct Fragment {
    double entry[8];
};

template <typename View> __device__ __forceinline__ Fragment load_fragment(const View& from) {
    Fragment part;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        part.entry[e] = from(lane_of() / 4 + e % 2 * 8, e / 2 * 4 + lane_of() % 4);
    }
    return part;
}

// Columns 8 HALF to 8 HALF + 7 of a tile, plus the product of two fragments
template <int HALF>
__device__ __forceinline__ void multiply_half(WarpTile& tile, const Fragment& left, const Fragment& right) {
    double (&c)[8] = tile.entry;
    const double (&a)[8] = left.entry;
    const double (&b)[8] = right.entry;
    double part[4] = {c[2 * HALF], c[2 * HALF + 1], c[2 * HALF + 4], c[2 * HALF + 5]};
    const double columns[4] = {b[HALF], b[2 + HALF], b[4 + HALF], b[6 + HALF]};
    mma_16x8x16(part, a, columns);
    c[2 * HALF] = part[0];
    c[2 * HALF + 1] = part[1];
    c[2 * HALF + 4] = part[2];
    c[2 * HALF + 5] = part[3];
}
#endif

// tile += SIGN sum_k a(m, k) b(n, k), k < 16
template <int SIGN, typename A, typename B>
__device__ __forceinline__ void add_product(WarpTile& tile, const A& a, const B& b) {
#ifdef MF_HAVE_MMA
    Fragment left = load_fragment(a);
    const Fragment right = load_fragment(b);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        left.entry[e] *= SIGN;
    }
    multiply_half<0>(tile, left, right);
    multiply_half<1>(tile, left, right);
#else
    const int row = lane_of() / 4 * 2;
    const int column = lane_of() % 4;
#pragma unroll
    for (int k = 0; k < TILE; ++k) {
        const double a0 = SIGN * a(row, k);
        const double a1 = SIGN * a(row + 1, k);
#pragma unroll
        for (int v = 0; v < 4; ++v) {
            const double other = b(column + 4 * v, k);
            tile.entry[v] = fma(a0, other, tile.entry[v]);
            tile.entry[4 + v] = fma(a1, other, tile.entry[4 + v]);
        }
    }
#endif
}

// One warp factors a diagonal tile in place, below and on its diagonal: lane r < 16 holds row r, columns are passed
// round by shuffles. `inverse_pivots` receives 1 / L_kk. `column` is the tile's first in the matrix; `bad` is set to
// the first bad pivot's, counted from 1, if it was 0.
__device__ __forceinline__ void factor_tile(double* tile, int stride, double bound, int column, int* bad,
                                            double* inverse_pivots) {
    const int row = lane_of() % TILE;
    double a[TILE];
#pragma unroll
    for (int c = 0; c < TILE; ++c) {
        a[c] = lane_of() < TILE ? tile[row * stride + c] : 0.0;
    }
    double own_pivot = 0.0;
    int failed = 0;
#pragma unroll
    for (int k = 0; k < TILE; ++k) {
        double pivot = __shfl_sync(FULL_WARP, a[k], k);
        if (!(pivot > bound && pivot < infinity())) { // NaN too
            failed = failed ? failed : column + k + 1;
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
                a[c] = fma(-a[k], __shfl_sync(FULL_WARP, a[k], c), a[c]);
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

// One thread replaces the 16 entries a of a row below a factored tile L by those of the factor, a L^-T.
__device__ __forceinline__ void solve_row(double* row, const double* tile, int stride,
                                          const double* inverse_pivots) {
    double a[TILE];
#pragma unroll
    for (int c = 0; c < TILE; ++c) {
        a[c] = row[c];
    }
#pragma unroll
    for (int k = 0; k < TILE; ++k) {
        a[k] *= inverse_pivots[k];
#pragma unroll
        for (int c = 0; c < TILE; ++c) {
            if (c > k) {
                a[c] = fma(-a[k], tile[c * stride + k], a[c]);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < TILE; ++c) {
        row[c] = a[c];
    }
}
