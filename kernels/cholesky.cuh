// Cholesky factors by 16 x 16 tiles, and their inverses: what a warp does with a tile, what a block does with a
// matrix of tiles in shared memory (PackedTiles) or in global memory (DenseTiles).
//
// A pivot of at most N eps max diag, or one that is not finite, fails the matrix: its column is noted, the pivot is
// replaced by 1, and nothing more is asked of that matrix.
#pragma once

#include "common.cuh"

constexpr int TILE = 16;
constexpr int PADDED = 18; // row stride of a tile in shared memory: 16-byte aligned, few bank clashes
constexpr int TILE_SIZE = TILE * PADDED; // doubles of a tile in shared memory
constexpr int PANEL = 2 * TILE;          // columns of a panel
constexpr int PANEL_STRIDE = PANEL + 2;  // as PADDED
constexpr double EPSILON = 2.220446049250313e-16;
constexpr double LOG_2_PI = 1.8378770664093454836;
constexpr int ATTEMPTS = 4; // no shift, then 1e-4, 1e-2 and 1 times the largest allowed

__device__ __forceinline__ double shift_of(int attempt, double jitter, double mean_diagonal) {
    return attempt == 0 ? 0.0 : jitter * mean_diagonal * (attempt == 1 ? 1e-4 : attempt == 2 ? 1e-2 : 1.0);
}

// Lower tiles one after another, by rows, in shared memory
struct PackedTiles {
    double* base;
    static constexpr int stride = PADDED;
    __device__ __forceinline__ double* at(int row, int column) const {
        return base + (int)lower_index(row, column) * TILE_SIZE;
    }
};

// Tiles of a matrix stored by rows of `stride`
struct DenseTiles {
    double* base;
    int stride;
    __device__ __forceinline__ double* at(int row, int column) const {
        return base + (index_t)row * TILE * stride + column * TILE;
    }
};

// A 16 x 16 tile in the registers of a warp, eight entries a lane. Tensor instructions fix which lane has which;
// without them a lane has 2 rows by 4 columns.
struct Tile {
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

__device__ __forceinline__ Tile zero_tile() {
    Tile tile;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        tile.entry[e] = 0.0;
    }
    return tile;
}

__device__ __forceinline__ Tile load_tile(const double* from, int stride) {
    Tile tile;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        tile.entry[e] = from[tile_row(e) * stride + tile_column(e)];
    }
    return tile;
}

__device__ __forceinline__ void store_tile(const Tile& tile, double* to, int stride) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        to[tile_row(e) * stride + tile_column(e)] = tile.entry[e];
    }
}

// tile += SIGN sum_k a(m, k) b(n, k), k < 16. a(m, k) is entry (m, k) of `a`, (k, m) with A_TURNED; b alike.
template <int SIGN, bool A_TURNED, bool B_TURNED>
__device__ __forceinline__ void multiply(Tile& tile, const double* a, int a_stride, const double* b,
                                         int b_stride) {
    const int a_row = A_TURNED ? 1 : a_stride;
    const int a_column = A_TURNED ? a_stride : 1;
    const int b_row = B_TURNED ? 1 : b_stride;
    const int b_column = B_TURNED ? b_stride : 1;
#ifdef MF_HAVE_MMA
    const int row = lane_of() / 4;
    const int column = lane_of() % 4;
#pragma unroll
    for (int k = 0; k < TILE; k += 4) {
        const double a0 = SIGN * a[row * a_row + (k + column) * a_column];
        const double a1 = SIGN * a[(row + 8) * a_row + (k + column) * a_column];
        const double b0 = b[row * b_row + (k + column) * b_column];
        const double b1 = b[(row + 8) * b_row + (k + column) * b_column];
        MF_MMA884(tile.entry[0], tile.entry[1], a0, b0);
        MF_MMA884(tile.entry[2], tile.entry[3], a0, b1);
        MF_MMA884(tile.entry[4], tile.entry[5], a1, b0);
        MF_MMA884(tile.entry[6], tile.entry[7], a1, b1);
    }
#else
    const int row = lane_of() / 4 * 2;
    const int column = lane_of() % 4;
#pragma unroll
    for (int k = 0; k < TILE; ++k) {
        const double a0 = SIGN * a[row * a_row + k * a_column];
        const double a1 = SIGN * a[(row + 1) * a_row + k * a_column];
#pragma unroll
        for (int v = 0; v < 4; ++v) {
            const double other = b[(column + 4 * v) * b_row + k * b_column];
            tile.entry[v] = fma(a0, other, tile.entry[v]);
            tile.entry[4 + v] = fma(a1, other, tile.entry[4 + v]);
        }
    }
#endif
}

// One warp factors a diagonal tile in place, below and on its diagonal: lane r < 16 holds row r, columns are passed
// round by shuffles. `inverse_pivots` receives 1 / L_kk. With `z`, the 16 entries of y less what earlier
// columns explain, these become those of L^-1 y. `column` is the tile's first in the matrix; `bad` is set to the
// first bad pivot's, counted from 1, if it was 0.
__device__ __forceinline__ void factor_tile(double* tile, int stride, double bound, int column, int* bad,
                                            double* inverse_pivots, double* z) {
    const int row = lane_of() % TILE;
    double a[TILE];
#pragma unroll
    for (int c = 0; c < TILE; ++c) {
        a[c] = lane_of() < TILE ? tile[row * stride + c] : 0.0;
    }
    double rest = z && lane_of() < TILE ? z[row] : 0.0;
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
        const double solved = __shfl_sync(FULL_WARP, rest, k) * inverse;
        rest = row == k ? solved : row > k ? fma(-a[k], solved, rest) : rest;
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
        if (z) {
            z[row] = rest;
        }
    }
    if (lane_of() == 0 && failed && bad[0] == 0) {
        bad[0] = failed;
    }
}

// One thread replaces the 16 entries a of a row below a factored tile L by those of the factor, a L^-T, and returns
// what they leave of `rest`, the row's entry of y, given the tile's part z of L^-1 y.
__device__ __forceinline__ double solve_row(double* row, const double* tile, int stride,
                                            const double* inverse_pivots, const double* z, double rest) {
    double a[TILE];
#pragma unroll
    for (int c = 0; c < TILE; ++c) {
        a[c] = row[c];
    }
#pragma unroll
    for (int k = 0; k < TILE; ++k) {
        a[k] *= inverse_pivots[k];
        if (z) {
            rest = fma(-a[k], z[k], rest);
        }
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
    return rest;
}

// One warp replaces a factored diagonal tile by its inverse, zeros above the diagonal; lane c solves for column c.
__device__ __forceinline__ void invert_tile(double* tile, int stride, const double* inverse_pivots) {
    const int column = lane_of() % TILE;
    double x[TILE];
#pragma unroll
    for (int r = 0; r < TILE; ++r) {
        double rest = r == column ? 1.0 : 0.0;
#pragma unroll
        for (int k = 0; k < TILE; ++k) {
            if (k < r) {
                rest = fma(-tile[r * stride + k], x[k], rest);
            }
        }
        x[r] = rest * inverse_pivots[r];
    }
    __syncwarp();
    if (lane_of() < TILE) {
#pragma unroll
        for (int r = 0; r < TILE; ++r) {
            tile[r * stride + column] = x[r];
        }
    }
}

// A block replaces the lower tiles of a factor L by those of L^-1, column by column from the last; `column_tiles` is
// shared memory for n_tiles tiles. The caller puts a barrier before; one has passed after the last write.
template <int BLOCK, typename Tiles>
__device__ __forceinline__ void invert_factor(const Tiles& tiles, int n_tiles, const double* inverse_pivots,
                                              double* column_tiles) {
    constexpr int WARPS = BLOCK / WARP;
    const int stride = tiles.stride;
    for (int k = warp_of(); k < n_tiles; k += WARPS) {
        invert_tile(tiles.at(k, k), stride, inverse_pivots + k * TILE);
    }
    __syncthreads();
    for (int j = n_tiles - 2; j >= 0; --j) {
        for (int k = j + 1 + warp_of(); k < n_tiles; k += WARPS) {
            Tile tile = zero_tile();
            multiply<1, false, true>(tile, tiles.at(k, j), stride, tiles.at(j, j), stride);
            store_tile(tile, column_tiles + k * TILE_SIZE, PADDED);
        }
        __syncthreads();
        for (int i = j + 1 + warp_of(); i < n_tiles; i += WARPS) {
            Tile tile = zero_tile();
            for (int k = j + 1; k <= i; ++k) {
                multiply<-1, false, true>(tile, tiles.at(i, k), stride, column_tiles + k * TILE_SIZE, PADDED);
            }
            store_tile(tile, tiles.at(i, j), stride);
        }
        __syncthreads();
    }
}

// A block replaces the lower tiles of W = L^-1 by those of W' W = C^-1, row by row, and fills alpha = W' z. The
// diagonal tiles of W, which every tile of their row needs to the last, move to `diagonal_tiles` first.
template <int BLOCK, typename Tiles>
__device__ __forceinline__ void square_inverse(const Tiles& tiles, int n_tiles, const double* z,
                                               double* alpha, double* diagonal_tiles) {
    constexpr int WARPS = BLOCK / WARP;
    const int stride = tiles.stride;
    for (int j = threadIdx.x; j < n_tiles * TILE; j += BLOCK) {
        double total = 0.0;
        for (int i = j; i < n_tiles * TILE; ++i) {
            total = fma(tiles.at(i / TILE, j / TILE)[i % TILE * stride + j % TILE], z[i], total);
        }
        alpha[j] = total;
    }
    for (int k = warp_of(); k < n_tiles; k += WARPS) {
        store_tile(load_tile(tiles.at(k, k), stride), diagonal_tiles + k * TILE_SIZE, PADDED);
    }
    __syncthreads();
    for (int i = 0; i < n_tiles; ++i) {
        const double* const corner = diagonal_tiles + i * TILE_SIZE;
        for (int j = warp_of(); j <= i; j += WARPS) {
            Tile tile = zero_tile();
            if (j == i) {
                multiply<1, true, true>(tile, corner, PADDED, corner, PADDED);
            } else {
                multiply<1, true, true>(tile, corner, PADDED, tiles.at(i, j), stride);
            }
            for (int k = i + 1; k < n_tiles; ++k) {
                multiply<1, true, true>(tile, tiles.at(k, i), stride, tiles.at(k, j), stride);
            }
            __syncwarp(); // the tile that is overwritten was read by other lanes
            store_tile(tile, tiles.at(i, j), stride);
        }
        __syncthreads();
    }
}
