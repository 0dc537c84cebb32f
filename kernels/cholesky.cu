// Cholesky factors of any size for a batch of `count` matrices (count, rows, n) that advance together, left-looking by
// panels of 64 columns. n is a multiple of 16; rows below the first n ride along: where there is a row of y, it becomes
// L^-1 y. Upper triangles are neither read nor kept. For each panel (backends/gpu/_blocked.py):
//     panel_update    subtracts what earlier columns explain; one block goes on to factor the square on the diagonal
//     panel_solve     divides the rows below by that factor
// An entry's sums run over the columns in an order that its place and the host's `k0` fix: its bits depend neither on
// other matrices nor on MF_HEIGHT.
//
// MF_HEIGHT: rows of a panel that one block updates. 128 needs fewer bytes for a product, 64 makes more blocks.
// variants: MF_HEIGHT=64,128 MF_NO_MMA=,1
#include "cholesky.cuh"

#ifndef MF_HEIGHT
#define MF_HEIGHT 64
#endif

constexpr int WIDTH = 64; // columns of a panel
constexpr int HEIGHT = MF_HEIGHT;
constexpr int SIDE = 32; // of what a warp computes
constexpr int BLOCK = HEIGHT / SIDE * (WIDTH / SIDE) * WARP;
constexpr int WARPS = BLOCK / WARP;

// ---- products ----
constexpr int SLICE = 16;               // columns of both factors in shared memory at a time
constexpr int SLICE_STRIDE = SLICE + 4; // fragments of 8 rows by 4 columns then meet all banks once
constexpr int STAGES = 3;               // slices in shared memory: one in use, the others on their way
constexpr int LEFT_SIZE = HEIGHT * SLICE_STRIDE;
constexpr int STAGE_SIZE = LEFT_SIZE + WIDTH * SLICE_STRIDE;

// 32 x 32 entries in the registers of a warp, 32 a lane. As in a Tile, tensor instructions fix which lane has which;
// without them a lane has 4 rows by 8 columns.
constexpr int SHARE = SIDE * SIDE / WARP;
struct Share {
    double entry[SHARE];
};

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

// Subtracts this warp's share of left right' over `columns` columns, a multiple of SLICE. All of the block takes part, warps
// two by two along the columns. `memory` is shared memory for STAGES stages.
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

// ---- panels ----
constexpr int ROW_STRIDE = WIDTH + 2; // of a panel's rows in shared memory, as PADDED

// The block factors n_tiles tiles a side of a square. Warp 0 takes the next diagonal tile and factors it while the others
// finish. The caller puts a barrier before; one has passed after.
__device__ __forceinline__ void factor_square(double* square, int n_tiles, double bound, int column, int* bad,
                                              double* inverses) {
    const DenseTiles tiles = {square, ROW_STRIDE};
    if (warp_of() == 0) {
        factor_tile(square, ROW_STRIDE, bound, column, bad, inverses, nullptr);
    }
    for (int k = 0;; ++k) {
        __syncthreads();
        const int left = n_tiles - k - 1;
        if (left == 0) {
            return;
        }
        if (threadIdx.x < left * TILE) {
            solve_row(tiles.at(k + 1, k) + threadIdx.x * ROW_STRIDE, tiles.at(k, k), ROW_STRIDE,
                      inverses + k * TILE, nullptr, 0.0);
        }
        __syncthreads();
        for (int e = warp_of(); e < (int)lower_index(left, 0); e += warp_of() == 0 ? BLOCK : WARPS - 1) {
            const int i = k + 1 + (int)lower_row(e);
            const int j = k + 1 + e - (int)lower_index(i - k - 1, 0);
            Tile tile = load_tile(tiles.at(i, j), ROW_STRIDE);
            multiply<-1, false, false>(tile, tiles.at(i, k), ROW_STRIDE, tiles.at(j, k), ROW_STRIDE);
            store_tile(tile, tiles.at(i, j), ROW_STRIDE);
        }
        if (warp_of() == 0) {
            __syncwarp();
            factor_tile(tiles.at(k + 1, k + 1), ROW_STRIDE, bound, column + (k + 1) * TILE, bad,
                        inverses + (k + 1) * TILE, nullptr);
        }
    }
}

// Columns c to c + width: subtracts what columns k0 to c explain, then factors the panel at c. `width` is a multiple of 64,
// or ends the matrix. `bounds` (count,) are the pivots' lower bounds, info (count,) as factor_tile's `bad`,
// inverse_pivots (count, n). Dynamic shared memory: STAGES stages.
extern "C" __global__ void __launch_bounds__(BLOCK, HEIGHT == 64 ? 3 : 2)
    panel_update_f64(double* matrices, const double* __restrict__ bounds, int* __restrict__ info,
                     double* __restrict__ inverse_pivots, index_t count, int rows, int n, int c, int width,
                     int k0) {
    MF_DYN_SMEM(double, memory);
    const int across = (width + WIDTH - 1) / WIDTH;
    const int places = (rows - c + HEIGHT - 1) / HEIGHT * across;
    // First the blocks with the diagonal squares, which take longest; then, matrix by matrix, the others
    const bool corner = blockIdx.x < count;
    const index_t rest = blockIdx.x - count;
    const index_t k = corner ? blockIdx.x : rest / (places - 1);
    const int place = corner ? 0 : 1 + (int)(rest - k * (places - 1));
    const int first_row = c + place / across * HEIGHT;
    const int first_column = c + place % across * WIDTH;
    if (first_row + HEIGHT <= first_column || (k0 == c && !corner)) {
        return; // above the diagonal, or nothing to subtract
    }
    double* const matrix = matrices + k * rows * n;
    const int row = first_row + warp_of() / 2 * SIDE + lane_row();
    const int column = first_column + warp_of() % 2 * SIDE + lane_column();
    double* const entries = matrix + (index_t)row * n + column;
    Share share;
#pragma unroll
    for (int e = 0; e < SHARE; e += 2) {
        const double2* const pair =
            reinterpret_cast<const double2*>(entries + share_row(e) * n + share_column(e));
        if (row + share_row(e) < rows && column + share_column(e) < n) {
            share.entry[e] = pair->x;
            share.entry[e + 1] = pair->y;
        } else {
            share.entry[e] = share.entry[e + 1] = 0.0;
        }
    }
    subtract_product(share, matrix + (index_t)first_row * n + k0, rows - first_row,
                     matrix + (index_t)first_column * n + k0, rows - first_column, n, c - k0, memory);
    const bool in_square = corner && warp_of() < WIDTH / SIDE * (WIDTH / SIDE);
    if (!in_square) {
#pragma unroll
        for (int e = 0; e < SHARE; e += 2) {
            if (row + share_row(e) < rows && column + share_column(e) < n) {
                *reinterpret_cast<double2*>(entries + share_row(e) * n
                                            + share_column(e)) = {share.entry[e], share.entry[e + 1]};
            }
        }
    }
    if (!corner) {
        return;
    }
    __syncthreads(); // the square lies where slices were
    if (in_square) {
        double* const own = memory + (row - c) * ROW_STRIDE + column - c;
#pragma unroll
        for (int e = 0; e < SHARE; ++e) {
            own[share_row(e) * ROW_STRIDE + share_column(e)] = share.entry[e];
        }
    }
    __syncthreads();
    const int side = min(WIDTH, n - c);
    double* const inverses = memory + WIDTH * ROW_STRIDE;
    factor_square(memory, side / TILE, bounds[k], c, info + k, inverses);
    if (threadIdx.x < side) {
        inverse_pivots[k * n + c + threadIdx.x] = inverses[threadIdx.x];
    }
    // Rows from `side` on ride along
    for (int e = threadIdx.x; e < min(WIDTH, rows - c) * side; e += BLOCK) {
        const int r = e / side;
        const int s = e - r * side;
        if (s <= r) {
            matrix[(index_t)(c + r) * n + c + s] = memory[r * ROW_STRIDE + s];
        }
    }
}

// ---- rows below a panel's square ----
constexpr int SOLVE_ROWS = 64; // of a block, 16 a warp
constexpr int SOLVE_BLOCK = SOLVE_ROWS / TILE * WARP;
constexpr int SQUARE_SIZE = WIDTH / TILE * (WIDTH / TILE + 1) / 2 * TILE_SIZE;

// The rows below the square at (c, c), divided by its factor. Dynamic shared memory: the square's lower tiles, SOLVE_ROWS
// rows of ROW_STRIDE, and WIDTH inverse pivots.
extern "C" __global__ void __launch_bounds__(SOLVE_BLOCK, 3)
    panel_solve_f64(double* matrices, const double* __restrict__ inverse_pivots, int rows, int n, int c) {
    MF_DYN_SMEM(double, memory);
    const PackedTiles tiles = {memory};
    double* const targets = memory + SQUARE_SIZE;
    double* const inverses = targets + SOLVE_ROWS * ROW_STRIDE;
    const int side = min(WIDTH, n - c);
    const int groups = (rows - c - side + SOLVE_ROWS - 1) / SOLVE_ROWS;
    const index_t k = blockIdx.x / groups;
    const int first = c + side + (int)(blockIdx.x - k * groups) * SOLVE_ROWS;
    const int own_rows = min(SOLVE_ROWS, rows - first);
    double* const panel = matrices + k * rows * n + c;
    const int pieces = side / 2; // of 16 bytes in a row
    for (int e = threadIdx.x; e < side * pieces; e += SOLVE_BLOCK) {
        const int r = e / pieces;
        const int s = (e - r * pieces) * 2;
        if (s / TILE <= r / TILE) {
            copy_async(tiles.at(r / TILE, s / TILE) + r % TILE * PADDED + s % TILE,
                       panel + (index_t)(c + r) * n + s);
        }
    }
    for (int e = threadIdx.x; e < own_rows * pieces; e += SOLVE_BLOCK) {
        const int r = e / pieces;
        const int s = (e - r * pieces) * 2;
        copy_async(targets + r * ROW_STRIDE + s, panel + (index_t)(first + r) * n + s);
    }
    commit_copies();
    for (int s = threadIdx.x; s < side; s += SOLVE_BLOCK) {
        inverses[s] = inverse_pivots[k * n + c + s];
    }
    wait_copies<0>();
    __syncthreads();
    double* const own = targets + warp_of() * TILE * ROW_STRIDE;
    for (int v = 0; v < side / TILE; ++v) {
        Tile tile = load_tile(own + v * TILE, ROW_STRIDE);
        for (int m = 0; m < v; ++m) {
            multiply<-1, false, false>(tile, own + m * TILE, ROW_STRIDE, tiles.at(v, m), PADDED);
        }
        store_tile(tile, own + v * TILE, ROW_STRIDE);
        __syncwarp();
        if (lane_of() < TILE) {
            solve_row(own + lane_of() * ROW_STRIDE + v * TILE, tiles.at(v, v), PADDED, inverses + v * TILE,
                      nullptr, 0.0);
        }
        __syncwarp();
    }
    for (int r = warp_of() * TILE; r < min(warp_of() * TILE + TILE, own_rows); ++r) {
        for (int s = lane_of(); s < side; s += WARP) {
            panel[(index_t)(first + r) * n + s] = targets[r * ROW_STRIDE + s];
        }
    }
}

// ---- the value ----
constexpr int VALUE_BLOCK = 256;

// half[k] = sum of z^2 / 2 + log L_ii over n_points columns; z = L^-1 y is the last row. One block a matrix.
extern "C" __global__ void __launch_bounds__(VALUE_BLOCK)
    factor_value_f64(const double* __restrict__ matrices, const double* __restrict__ inverse_pivots,
                     double* __restrict__ half, int rows, int n, int n_points) {
    MF_SHARED(double, part, VALUE_BLOCK / WARP);
    const index_t k = blockIdx.x;
    const double* const z = matrices + (k * rows + rows - 1) * n;
    double total = 0.0;
    for (int i = threadIdx.x; i < n_points; i += VALUE_BLOCK) {
        total += 0.5 * z[i] * z[i] - log(inverse_pivots[k * n + i]);
    }
    total = block_sum<VALUE_BLOCK>(total, part);
    if (threadIdx.x == 0) {
        half[k] = total;
    }
}
