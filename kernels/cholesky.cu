// Cholesky factors of any size, by block columns that the host goes through (backends/gpu/_blocked.py): it subtracts
// what earlier blocks explain, these kernels factor the block by panels of 32 columns. A block column is an array
// (count, rows, width) for a batch of `count` matrices, its first `width` rows being the square on the diagonal; rows is a
// multiple of 16, width of 32.
// variants: MF_NO_MMA=,1
#include "cholesky.cuh"

constexpr int BLOCK = 256;
constexpr int WARPS = BLOCK / WARP;

// Panel at column c > 0, rows from c: subtracts what the block's earlier columns explain. A warp has 16 rows.
extern "C" __global__ void __launch_bounds__(BLOCK, 2)
    panel_update_f64(double* blocks, index_t count, int rows, int width, int c) {
    const int n_tiles = (rows - c) / TILE;
    const int groups = (n_tiles + WARPS - 1) / WARPS;
    const index_t k = blockIdx.x / groups;
    const int i = (int)(blockIdx.x - k * groups) * WARPS + warp_of();
    if (i >= n_tiles) {
        return;
    }
    double* const panel = blocks + k * rows * width + (index_t)c * width;
    double* const left = panel + (index_t)i * TILE * width;
    Tile first = load_tile(left + c, width);
    Tile second = load_tile(left + c + TILE, width);
    for (int m = 0; m < c; m += TILE) {
        multiply<-1, false, false>(first, left + m, width, panel + m, width);
        multiply<-1, false, false>(second, left + m, width, panel + TILE * width + m, width);
    }
    store_tile(first, left + c, width);
    store_tile(second, left + c + TILE, width);
}

// One warp a matrix: factors the 32 x 32 square at (c, c). `bounds` (count,) are the pivots' lower bounds, `column` the
// number of column c in the whole matrix, info (count,) as factor_tile's `bad`, inverse_pivots (count, width).
extern "C" __global__ void __launch_bounds__(WARP)
    panel_diagonal_f64(double* blocks, const double* __restrict__ bounds, int* __restrict__ info,
                       double* inverse_pivots, int rows, int width, int c, int column) {
    const index_t k = blockIdx.x;
    double* const corner = blocks + (k * rows + c) * width + c;
    double* const below = corner + (index_t)TILE * width;
    double* const inverses = inverse_pivots + k * width + c;
    factor_tile(corner, width, bounds[k], column, info + k, inverses, nullptr);
    __syncwarp();
    if (lane_of() < TILE) {
        solve_row(below + (index_t)lane_of() * width, corner, width, inverses, nullptr, 0.0);
    }
    __syncwarp();
    Tile tile = load_tile(below + TILE, width);
    multiply<-1, false, false>(tile, below, width, below, width);
    store_tile(tile, below + TILE, width);
    __syncwarp();
    factor_tile(below + TILE, width, bounds[k], column + TILE, info + k, inverses + TILE, nullptr);
}

// Rows below the square at (c, c), one a thread: divided by its factor.
extern "C" __global__ void __launch_bounds__(BLOCK, 2)
    panel_solve_f64(double* blocks, const double* __restrict__ inverse_pivots, int rows, int width, int c) {
    MF_SHARED(double, square, PANEL* PANEL_STRIDE);
    MF_SHARED(double, inverses, PANEL);
    const int below = rows - c - PANEL;
    const int groups = (below + BLOCK - 1) / BLOCK;
    const index_t k = blockIdx.x / groups;
    const int row = (int)(blockIdx.x - k * groups) * BLOCK + threadIdx.x;
    double* const panel = blocks + (k * rows + c) * width + c;
    for (int e = threadIdx.x; e < PANEL * PANEL; e += BLOCK) {
        square[e / PANEL * PANEL_STRIDE + e % PANEL] = panel[(index_t)(e / PANEL) * width + e % PANEL];
    }
    if (threadIdx.x < PANEL) {
        inverses[threadIdx.x] = inverse_pivots[k * width + c + threadIdx.x];
    }
    __syncthreads();
    if (row >= below) {
        return;
    }
    double* const own = panel + (index_t)(PANEL + row) * width;
    double a[PANEL];
#pragma unroll
    for (int m = 0; m < PANEL; ++m) {
        a[m] = own[m];
    }
#pragma unroll
    for (int m = 0; m < PANEL; ++m) {
        a[m] *= inverses[m];
#pragma unroll
        for (int v = 0; v < PANEL; ++v) {
            if (v > m) {
                a[v] = fma(-a[m], square[v * PANEL_STRIDE + m], a[v]);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < PANEL; ++m) {
        own[m] = a[m];
    }
}

// half[k] += sum of z^2 / 2 + log L_ii over the block's columns; z = L^-1 y is row y_row. One warp a matrix.
extern "C" __global__ void __launch_bounds__(WARP)
    block_value_f64(const double* __restrict__ blocks, const double* __restrict__ inverse_pivots,
                    double* __restrict__ half, int rows, int width, int y_row) {
    const index_t k = blockIdx.x;
    const double* const z = blocks + (k * rows + y_row) * width;
    double total = 0.0;
    for (int i = lane_of(); i < width; i += WARP) {
        total += 0.5 * z[i] * z[i] - log(inverse_pivots[k * width + i]);
    }
    total = warp_sum(total);
    if (lane_of() == 0) {
        half[k] += total;
    }
}
