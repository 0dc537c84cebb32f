// Triangular solves and products of a batch of GP predictions, in tiles of TILE x TILE held by one block.
//
// Lanes are test points, or columns; a warp owns ROWS rows of a tile. A column's sums are taken in the order of the
// rows alone, so its bits depend neither on the other columns nor on how they are cut into tiles.
#pragma once
#include "common.cuh"

constexpr int TILE = WARP;
constexpr int GP_BLOCK = 256;
constexpr int GP_WARPS = GP_BLOCK / WARP;
constexpr int ROWS = TILE / GP_WARPS;
constexpr int STRIDE = TILE + 1; // of a tile in shared memory: columns then lie in different banks
constexpr int TILE_SIZE = TILE * STRIDE;

// This thread's entry of row `k` of its ROWS rows
__device__ __forceinline__ int tile_row(int k) {
    return warp_of() * ROWS + k;
}

// Copies rows and columns first_row, first_column, ... of a matrix (n_rows, n_columns) to `tile`; beyond its edge
// stands the unit matrix. Barriers are the caller's.
__device__ __forceinline__ void load_tile(const double* __restrict__ matrix, index_t n_rows,
                                          index_t n_columns, index_t first_row, index_t first_column,
                                          double* tile) {
    const index_t column = first_column + lane_of();
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        const index_t row = first_row + tile_row(k);
        const bool inside = row < n_rows && column < n_columns;
        tile[tile_row(k) * STRIDE + lane_of()] =
            inside ? matrix[row * n_columns + column] : (row == column ? 1.0 : 0.0);
    }
}

// values -= left right, for this thread's rows of `left` and its lane's column of `right`
__device__ __forceinline__ void subtract_product(const double* left, const double* right,
                                                 double (&values)[ROWS]) {
#pragma unroll 8
    for (int c = 0; c < TILE; ++c) {
        const double factor = right[c * STRIDE + lane_of()];
#pragma unroll
        for (int k = 0; k < ROWS; ++k) {
            values[k] = fma(-left[tile_row(k) * STRIDE + c], factor, values[k]);
        }
    }
}

// values = L^-1 values for a lower triangular tile L; warp by warp, each handing its rows to the later ones
// through `done`. Ends with a barrier.
__device__ __forceinline__ void solve_tile(const double* lower, double* done, double (&values)[ROWS]) {
    for (int owner = 0; owner < GP_WARPS; ++owner) {
        if (warp_of() == owner) {
#pragma unroll
            for (int k = 0; k < ROWS; ++k) {
                const int row = tile_row(k);
                values[k] /= lower[row * STRIDE + row];
                done[row * STRIDE + lane_of()] = values[k];
#pragma unroll
                for (int below = k + 1; below < ROWS; ++below) {
                    values[below] = fma(-lower[tile_row(below) * STRIDE + row], values[k], values[below]);
                }
            }
        }
        __syncthreads();
        if (warp_of() > owner) {
#pragma unroll
            for (int c = 0; c < ROWS; ++c) {
                const int row = owner * ROWS + c;
                const double value = done[row * STRIDE + lane_of()];
#pragma unroll
                for (int k = 0; k < ROWS; ++k) {
                    values[k] = fma(-lower[tile_row(k) * STRIDE + row], value, values[k]);
                }
            }
        }
    }
}
