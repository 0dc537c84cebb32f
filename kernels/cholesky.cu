// Cholesky factors of any size for a batch of `count` matrices (count, rows, n) that advance together, left-looking by
// panels of 64 columns. n is a multiple of 16; rows below the first n ride along: where there is a row of y, it becomes
// L^-1 y. Upper triangles are neither read nor kept. For each panel (backends/gpu/_blocked.py):
//     panel_update    subtracts what earlier columns explain; one block goes on to factor the square on the diagonal
//     panel_solve     divides the rows below by that factor
// whitening and inverse go on to C^-1.
// An entry's sums run over the columns in an order that its place and the host's `k0` fix: its bits depend neither on
// other matrices nor on MF_HEIGHT.
//
// MF_HEIGHT: rows of a panel that one block updates. 128 needs fewer bytes for a product, 64 makes more blocks.
// variants: MF_HEIGHT=64,128 MF_NO_MMA=,1
#include "products.cuh"

// ---- panels ----
constexpr int ROW_STRIDE = WIDTH + 2; // of a panel's rows in shared memory, as PADDED

// Tiles of a matrix stored by rows of `stride`
struct DenseTiles {
    double* base;
    int stride;
    __device__ __forceinline__ double* at(int row, int column) const {
        return base + (index_t)row * TILE * stride + column * TILE;
    }
};

// The block factors n_tiles tiles a side of a square. Warp 0 takes the next diagonal tile and factors it while the
// others finish. The caller puts a barrier before; one has passed after.
__device__ __forceinline__ void factor_square(double* square, int n_tiles, double bound, int column, int* bad,
                                              double* inverses) {
    const DenseTiles tiles = {square, ROW_STRIDE};
    if (warp_of() == 0) {
        factor_tile(square, ROW_STRIDE, bound, column, bad, inverses);
    }
    for (int k = 0;; ++k) {
        __syncthreads();
        const int left = n_tiles - k - 1;
        if (left == 0) {
            return;
        }
        if (threadIdx.x < left * TILE) {
            solve_row(tiles.at(k + 1, k) + threadIdx.x * ROW_STRIDE, tiles.at(k, k), ROW_STRIDE,
                      inverses + k * TILE);
        }
        __syncthreads();
        for (int e = warp_of(); e < (int)lower_index(left, 0); e += warp_of() == 0 ? BLOCK : WARPS - 1) {
            const int i = k + 1 + (int)lower_row(e);
            const int j = k + 1 + e - (int)lower_index(i - k - 1, 0);
            WarpTile tile = load_tile(tiles.at(i, j), ROW_STRIDE);
            add_product<-1>(tile, Rows{tiles.at(i, k), ROW_STRIDE}, Rows{tiles.at(j, k), ROW_STRIDE});
            store_tile(tile, tiles.at(i, j), ROW_STRIDE);
        }
        if (warp_of() == 0) {
            __syncwarp();
            factor_tile(tiles.at(k + 1, k + 1), ROW_STRIDE, bound, column + (k + 1) * TILE, bad,
                        inverses + (k + 1) * TILE);
        }
    }
}

// Columns c to c + width: subtracts what columns k0 to c explain, then factors the panel at c. `width` is a multiple of
// 64, or ends the matrix. `bounds` (count,) are the pivots' lower bounds, info (count,) as factor_tile's `bad`,
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
    Share share = zero_share();
#pragma unroll
    for (int e = 0; e < SHARE; e += 2) {
        const double2* const pair =
            reinterpret_cast<const double2*>(entries + share_row(e) * n + share_column(e));
        if (row + share_row(e) < rows && column + share_column(e) < n) {
            share.entry[e] = pair->x;
            share.entry[e + 1] = pair->y;
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
        store_share(share, memory + (row - c) * ROW_STRIDE + column - c, ROW_STRIDE);
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

// ---- rows that a square divides ----
// Shared memory of HEIGHT rows and a square: SQUARE_SIZE for the square's lower tiles, the rows of ROW_STRIDE, and
// WIDTH inverse pivots.
constexpr int PADDED = TILE + 2; // row stride of a tile: 16-byte aligned, few bank clashes
constexpr int TILE_SIZE = TILE * PADDED;
constexpr int SQUARE_SIZE = WIDTH / TILE * (WIDTH / TILE + 1) / 2 * TILE_SIZE;
constexpr int ROWS_SIZE = HEIGHT * ROW_STRIDE;

// Lower tiles one after another, by rows
struct PackedTiles {
    double* base;
    __device__ __forceinline__ double* at(int row, int column) const {
        return base + (int)lower_index(row, column) * TILE_SIZE;
    }
};

// Sends for the factored square of `side` columns at `corner`, row stride n, and its inverse pivots
__device__ __forceinline__ void fetch_square(const double* corner, const double* inverse_pivots, int n,
                                             int side, double* memory) {
    const PackedTiles tiles = {memory};
    const int pieces = side / 2; // of 16 bytes in a row
    for (int e = threadIdx.x; e < side * pieces; e += BLOCK) {
        const int r = e / pieces;
        const int s = (e - r * pieces) * 2;
        if (s / TILE <= r / TILE) {
            copy_async(tiles.at(r / TILE, s / TILE) + r % TILE * PADDED + s % TILE,
                       corner + (index_t)r * n + s);
        }
    }
    for (int e = threadIdx.x * 2; e < side; e += 2 * BLOCK) {
        copy_async(memory + SQUARE_SIZE + ROWS_SIZE + e, inverse_pivots + e);
    }
}

// Divides the rows in shared memory, 16 a warp, and writes the first n_rows of them to `to`, row stride n. The caller
// puts a barrier before.
__device__ __forceinline__ void solve_rows(double* memory, int side, int n_rows, double* to, int n) {
    const PackedTiles tiles = {memory};
    double* const own = memory + SQUARE_SIZE + warp_of() * TILE * ROW_STRIDE;
    const double* const inverses = memory + SQUARE_SIZE + ROWS_SIZE;
    for (int v = 0; v < side / TILE; ++v) {
        WarpTile tile = load_tile(own + v * TILE, ROW_STRIDE);
        for (int m = 0; m < v; ++m) {
            add_product<-1>(tile, Rows{own + m * TILE, ROW_STRIDE}, Rows{tiles.at(v, m), PADDED});
        }
        store_tile(tile, own + v * TILE, ROW_STRIDE);
        __syncwarp();
        if (lane_of() < TILE) {
            solve_row(own + lane_of() * ROW_STRIDE + v * TILE, tiles.at(v, v), PADDED, inverses + v * TILE);
        }
        __syncwarp();
    }
    const int first = warp_of() * TILE;
    for (int r = first; r < min(first + TILE, n_rows); ++r) {
        for (int s = lane_of(); s < side; s += WARP) {
            to[(index_t)r * n + s] = own[(r - first) * ROW_STRIDE + s];
        }
    }
}

// The rows below the square at (c, c), divided by its factor. Dynamic shared memory: HEIGHT rows and a square.
extern "C" __global__ void __launch_bounds__(BLOCK, 2)
    panel_solve_f64(double* matrices, const double* __restrict__ inverse_pivots, int rows, int n, int c) {
    MF_DYN_SMEM(double, memory);
    const int side = min(WIDTH, n - c);
    const int groups = (rows - c - side + HEIGHT - 1) / HEIGHT;
    const index_t k = blockIdx.x / groups;
    const int first = c + side + (int)(blockIdx.x - k * groups) * HEIGHT;
    const int n_rows = min(HEIGHT, rows - first);
    double* const panel = matrices + k * rows * n + c;
    double* const own = panel + (index_t)first * n;
    fetch_square(panel + (index_t)c * n, inverse_pivots + k * n + c, n, side, memory);
    const int pieces = side / 2;
    for (int e = threadIdx.x; e < n_rows * pieces; e += BLOCK) {
        const int r = e / pieces;
        const int s = (e - r * pieces) * 2;
        copy_async(memory + SQUARE_SIZE + r * ROW_STRIDE + s, own + (index_t)r * n + s);
    }
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    solve_rows(memory, side, n_rows, own, n);
}

// ---- inverses ----
#if MF_HEIGHT == 64 // a square of L^-T on the diagonal then ends where its row of tiles begins

// The upper triangle of V = L^-T, to whitening (count, n, n), and alpha = V z (count, n), z the matrices' last row: the
// identity divided by L. A block goes along 64 rows of one matrix panel by panel; the longest rows come first. Dynamic
// shared memory: STAGES stages, which is more than HEIGHT rows and a square.
extern "C" __global__ void __launch_bounds__(BLOCK, 3)
    whitening_f64(const double* __restrict__ matrices, const double* __restrict__ inverse_pivots,
                  double* whitening, double* __restrict__ alpha, index_t count, int rows, int n) {
    MF_DYN_SMEM(double, memory);
    const int first = (int)(blockIdx.x / count) * HEIGHT;
    const index_t k = blockIdx.x % count;
    const int n_rows = min(HEIGHT, n - first);
    const double* const matrix = matrices + k * rows * n;
    double* const own = whitening + k * n * n + (index_t)first * n;
    const int row = warp_of() / 2 * SIDE + lane_row();
    const int column = warp_of() % 2 * SIDE + lane_column();
    double explained = 0.0;
    for (int c = first; c < n; c += WIDTH) {
        const int side = min(WIDTH, n - c);
        Share share = zero_share();
#pragma unroll
        for (int e = 0; e < SHARE; ++e) {
            share.entry[e] = c == first && row + share_row(e) == column + share_column(e) ? 1.0 : 0.0;
        }
        subtract_product(share, own + first, n_rows, matrix + (index_t)c * n + first, side, n, c - first,
                         memory);
        __syncthreads(); // the rows and the square lie where slices were
        fetch_square(matrix + (index_t)c * n + c, inverse_pivots + k * n + c, n, side, memory);
        commit_copies();
        store_share(share, memory + SQUARE_SIZE + row * ROW_STRIDE + column, ROW_STRIDE);
        wait_copies<0>();
        __syncthreads();
        solve_rows(memory, side, n_rows, own + c, n);
        if (lane_of() < TILE) {
            const double* const solved = memory + SQUARE_SIZE + (warp_of() * TILE + lane_of()) * ROW_STRIDE;
            for (int s = 0; s < side; ++s) {
                explained = fma(solved[s], matrix[(index_t)(rows - 1) * n + c + s], explained);
            }
        }
        __syncthreads(); // these columns are there for the next panel, and their memory is free
    }
    const int own_row = warp_of() * TILE + lane_of();
    if (lane_of() < TILE && own_row < n_rows) {
        alpha[k * n + first + own_row] = explained;
    }
}

// The lower triangles of C^-1 = V V' in place of the factors. A block has 64 x 64 entries. Dynamic shared memory:
// STAGES stages.
extern "C" __global__ void __launch_bounds__(BLOCK, 3)
    inverse_f64(const double* __restrict__ whitening, double* __restrict__ matrices, int rows, int n) {
    MF_DYN_SMEM(double, memory);
    const index_t squares = lower_index((n + WIDTH - 1) / WIDTH, 0);
    const index_t k = blockIdx.x / squares;
    const index_t place = blockIdx.x - k * squares;
    const int i = (int)lower_row(place);
    const int first_row = i * HEIGHT;
    const int first_column = (int)(place - lower_index(i, 0)) * WIDTH;
    const double* const v = whitening + k * n * n + first_row;
    Share share = zero_share();
    subtract_product(share, v + (index_t)first_row * n, n - first_row, v + (index_t)first_column * n,
                     n - first_column, n, n - first_row, memory);
    const int row = first_row + warp_of() / 2 * SIDE + lane_row();
    const int column = first_column + warp_of() % 2 * SIDE + lane_column();
    double* const entries = matrices + (k * rows + row) * n + column;
#pragma unroll
    for (int e = 0; e < SHARE; ++e) {
        if (row + share_row(e) < n && column + share_column(e) < n) {
            entries[share_row(e) * n + share_column(e)] = -share.entry[e];
        }
    }
}

#endif

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
