// Products by a block of threads for the panels of cholesky.cu: a warp has 32 x 32 entries in registers, and the rows
// whose products it subtracts come through shared memory, a few columns of each at a time.
//
// MF_HEIGHT: rows that a block has, by 64 columns.
#pragma once

#include "cholesky.cuh"

#ifndef MF_HEIGHT
#define MF_HEIGHT 64
#endif

constexpr int WIDTH = 64; // columns of a panel
constexpr int HEIGHT = MF_HEIGHT;
constexpr int SIDE = 32; // of what a warp computes
constexpr int BLOCK = HEIGHT / SIDE * (WIDTH / SIDE) * WARP;
constexpr int WARPS = BLOCK / WARP;

constexpr int SLICE = 16;               // columns of both factors in shared memory at a time
constexpr int SLICE_STRIDE = SLICE + 4; // fragments of 8 rows by 4 columns then meet all banks once
constexpr int STAGES = 3;               // slices in shared memory: one in use, the others on their way
constexpr int LEFT_SIZE = HEIGHT * SLICE_STRIDE;
constexpr int STAGE_SIZE = LEFT_SIZE + WIDTH * SLICE_STRIDE;

// 32 x 32 entries in the registers of a warp, 32 a lane. As in a WarpTile, tensor instructions fix which lane has
// which; without them a lane has 4 rows by 8 columns.
constexpr int SHARE = SIDE * SIDE / WARP;
struct Share {
    double entry[SHARE];
};

__device__ __forceinline__ Share zero_share() {
    Share share;
#pragma unroll
    for (int e = 0; e < SHARE; ++e) {
        share.entry[e] = 0.0;
    }
    return share;
}

__device__ __forceinline__ int lane_row() {
#ifdef MF_HAVE_MMA
    return lane_of() / 4;
#else
    return lane_of() / 4 * 4;
#endif
}

__device__ __forceinline__ int lane_column() {
    return lane_of() % 4 * 2;
}

// Entry e's place from the lane's first; entries 2 e and 2 e + 1 are neighbours in a row.
constexpr __device__ int share_row(int e) {
#ifdef MF_HAVE_MMA
    return e / 16 * 16 + e / 2 % 2 * 8;
#else
    return e / 8;
#endif
}

constexpr __device__ int share_column(int e) {
#ifdef MF_HAVE_MMA
    return e / 4 % 4 * 8 + e % 2;
#else
    return e / 2 % 4 * 8 + e % 2;
#endif
}

// To shared memory, where `to` is the lane's first entry
__device__ __forceinline__ void store_share(const Share& share, double* to, int stride) {
#pragma unroll
    for (int e = 0; e < SHARE; ++e) {
        to[share_row(e) * stride + share_column(e)] = share.entry[e];
    }
}

// share(m, n) -= sum_k a(m, k) b(n, k) over the slice that rows `a` and `b` hold
__device__ __forceinline__ void subtract_slice(Share& share, const double* a, const double* b) {
#ifdef MF_HAVE_MMA
    const int place = lane_of() / 4 * SLICE_STRIDE + lane_of() % 4;
#pragma unroll 1
    for (int k = 0; k < SLICE; k += 8) {
        double left[2][4];
        double right[4][2];
#pragma unroll
        for (int f = 0; f < 8; ++f) {
            left[f / 4][f % 4] = -a[place + (f / 4 * 16 + f % 2 * 8) * SLICE_STRIDE + k + f / 2 % 2 * 4];
            right[f / 2][f % 2] = b[place + f / 2 * 8 * SLICE_STRIDE + k + f % 2 * 4];
        }
#pragma unroll
        for (int f = 0; f < 8; ++f) {
            mma_16x8x8(share.entry + f * 4, left[f / 4], right[f % 4]);
        }
    }
#else
#pragma unroll 1
    for (int k = 0; k < SLICE; ++k) {
        double right[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            right[j] = b[(lane_column() + share_column(j)) * SLICE_STRIDE + k];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const double left = -a[(lane_row() + i) * SLICE_STRIDE + k];
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                share.entry[i * 8 + j] = fma(left, right[j], share.entry[i * 8 + j]);
            }
        }
    }
#endif
}

// Sends for one slice of ROWS rows of row stride n, of which `rows` exist; the others keep what they had.
template <int ROWS>
__device__ __forceinline__ void fetch_rows(const double* from, int rows, int n, double* to) {
    constexpr int PIECES = SLICE / 2; // of 16 bytes in a row
    constexpr int STEP = BLOCK / PIECES;
    const int row = threadIdx.x / PIECES;
    const int piece = threadIdx.x % PIECES * 2;
    from += (index_t)row * n + piece;
    to += row * SLICE_STRIDE + piece;
#pragma unroll
    for (int r = 0; r < ROWS; r += STEP) {
        if (row + r < rows) {
            copy_async(to + r * SLICE_STRIDE, from);
        }
        from += STEP * n;
    }
}

// Subtracts this warp's share of left right' over `columns` columns, a multiple of SLICE. All of the block takes part,
// warps two by two along the columns. `memory` is shared memory for STAGES stages.
__device__ __forceinline__ void subtract_product(Share& share, const double* left, int left_rows,
                                                 const double* right, int right_rows, int n, int columns,
                                                 double* memory) {
    const int slices = columns / SLICE;
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < slices) {
            fetch_rows<HEIGHT>(left + s * SLICE, left_rows, n, memory + s * STAGE_SIZE);
            fetch_rows<WIDTH>(right + s * SLICE, right_rows, n, memory + s * STAGE_SIZE + LEFT_SIZE);
        }
        commit_copies();
    }
    const double* const a = memory + warp_of() / 2 * SIDE * SLICE_STRIDE;
    const double* const b = memory + LEFT_SIZE + warp_of() % 2 * SIDE * SLICE_STRIDE;
#pragma unroll 1
    for (int s = 0; s < slices; ++s) {
        wait_copies<STAGES - 2>();
        __syncthreads(); // slice s has come for all, and slice s - 1, whose place the next one takes, is used up
        const int next = s + STAGES - 1;
        if (next < slices) {
            double* const stage = memory + next % STAGES * STAGE_SIZE;
            fetch_rows<HEIGHT>(left + next * SLICE, left_rows, n, stage);
            fetch_rows<WIDTH>(right + next * SLICE, right_rows, n, stage + LEFT_SIZE);
        }
        commit_copies();
        subtract_slice(share, a + s % STAGES * STAGE_SIZE, b + s % STAGES * STAGE_SIZE);
    }
}
