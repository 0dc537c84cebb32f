// Gram matrices of a batch of mixtures. MF_PER_AXIS: 1 for a product of cosines over the axes, else 0.
// variants: MF_PER_AXIS=0,1
#include "gram.cuh"

#ifndef MF_PER_AXIS
#define MF_PER_AXIS 0
#endif

constexpr int BLOCK = 256;      // of the tables
constexpr int TILE_BLOCK = 128; // of the matrices: its warps work by themselves
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int TILE_BLOCKS = 2; // of a multiprocessor
#else
constexpr int TILE_BLOCKS = 3; // at most 168 registers a thread; 16 entries at once need no more warps
#endif
constexpr int R = GRAM_TILE; // pairs a side of a thread's tile
// Each warp has a tile of its own, 4 x 8 threads. Of 144 points 16 x 32 tiles on and below the diagonal have 1.23
// times the pairs that are needed, where squares of 64 have 2.35 times as many.
constexpr int LANES = 8;               // threads along a row of a tile
constexpr int ROWS = WARP / LANES * R; // 16
constexpr int COLUMNS = LANES * R;     // 32
constexpr int TURNED_STRIDE =
    ROWS + 2; // half-warps write 8 columns of 2 rows, and read rows, without conflicts

// Cosines and sines of the phases of the components first, first + 1, ... at the points: (count, phases, 2, N).
// The points are taken from `origin`, their differences kept as high + low without error (Knuth's two-sum), so
// that neither large offsets nor large frequencies cost digits.
extern "C" __global__ void __launch_bounds__(BLOCK)
    phase_tables_f64(const double* __restrict__ means, const double* __restrict__ points,
                     const double* __restrict__ origin, double* __restrict__ tables, index_t first,
                     index_t count, int n_points, int n_dims) {
    const int phases = MF_PER_AXIS ? n_dims : 1;
    const index_t total = count * phases * n_points;
    for (index_t k = grid_start(); k < total; k += grid_stride()) {
        const index_t row = k / n_points;
        const int i = (int)(k - row * n_points);
        const index_t component = first + row / phases;
        const int only = (int)(row % phases);
        double turns = 0.0;
        for (int d = MF_PER_AXIS ? only : 0; d < (MF_PER_AXIS ? only + 1 : n_dims); ++d) {
            const double x = points[(index_t)d * n_points + i];
            const double high = x - origin[d];
            const double back = high - x;
            const double low = (x - (high - back)) - (origin[d] + back);
            turns += phase_turns(means[component * n_dims + d], high, low);
        }
        cos_sin_turns(turns, &tables[row * 2 * n_points + i], &tables[(row * 2 + 1) * n_points + i]);
    }
}

// k(0), mean and largest entry of k(0) + noise of each mixture: diagonal_stats (B, 3). One warp a mixture.
extern "C" __global__ void __launch_bounds__(WARP)
    diagonal_stats_f64(const double* __restrict__ weights, const index_t* __restrict__ offsets,
                       const double* __restrict__ noise, double* __restrict__ diagonal_stats,
                       index_t noise_rows, int noise_columns) {
    const index_t b = blockIdx.x;
    double k0 = 0.0; // in the order of the components, by every lane
    for (index_t q = offsets[b]; q < offsets[b + 1]; ++q) {
        k0 += weights[q];
    }
    const double* const row = noise + (noise_rows > 1 ? b * noise_columns : 0);
    double total = 0.0;
    double largest = 0.0;
    for (int i = lane_of(); i < noise_columns; i += WARP) {
        total += row[i];
        largest = fmax(largest, row[i]);
    }
    total = warp_sum(total);
    largest = warp_max(largest);
    if (lane_of() == 0) {
        diagonal_stats[3 * b] = k0;
        diagonal_stats[3 * b + 1] = k0 + total / noise_columns;
        diagonal_stats[3 * b + 2] = k0 + largest;
    }
}

// The pairs of one thread: rows WARP / LANES apart and columns LANES apart, so that neighbouring threads write
// neighbouring columns.
__device__ __forceinline__ void pairs_of(int first_row, int first_column, int n_rows, int n_columns,
                                         int (&i)[R], int (&j)[R]) {
    const int lane = lane_of();
#pragma unroll
    for (int a = 0; a < R; ++a) {
        i[a] = min(first_row + lane / LANES + a * (WARP / LANES), n_rows - 1);
        j[a] = min(first_column + lane % LANES + a * LANES, n_columns - 1);
    }
}

// First tile of this warp, and how many warps there are. 32 bits hold every tile of a launch: where their entries, 512
// a tile, fit a card.
__device__ __forceinline__ unsigned first_tile() {
    return blockIdx.x * (unsigned)(TILE_BLOCK / WARP) + warp_of();
}

__device__ __forceinline__ unsigned tile_stride() {
    return gridDim.x * (unsigned)(TILE_BLOCK / WARP);
}

// K (count, N, M) of the mixtures from `start`; `tables_x` and `tables_y` begin with the first of them.
extern "C" __global__ void __launch_bounds__(TILE_BLOCK, TILE_BLOCKS)
    gram_f64(const double* __restrict__ weights, const double* __restrict__ scales,
             const index_t* __restrict__ offsets, const double* __restrict__ x,
             const double* __restrict__ tables_x, const double* __restrict__ y,
             const double* __restrict__ tables_y, double* __restrict__ out, index_t start, index_t count,
             int n_rows, int n_columns, int n_dims) {
    const int phases = MF_PER_AXIS ? n_dims : 1;
    const unsigned across = (unsigned)((n_columns + COLUMNS - 1) / COLUMNS);
    const unsigned tiles = (unsigned)((n_rows + ROWS - 1) / ROWS) * across;
    for (unsigned item = first_tile(); item < count * tiles; item += tile_stride()) {
        const unsigned b = item / tiles;
        const unsigned place = item - b * tiles;
        const int first_row = (int)(place / across) * ROWS;
        const int first_column = (int)(place % across) * COLUMNS;
        const index_t first = offsets[start + b];
        const index_t skip = (first - offsets[start]) * phases * 2;
        const Mixture mixture = {weights + first, scales + first * n_dims,
                                 (int)(offsets[start + b + 1] - first), n_dims};
        int i[R];
        int j[R];
        pairs_of(first_row, first_column, n_rows, n_columns, i, j);
        double k[R][R];
        gram_tile<MF_PER_AXIS>(mixture, {x, tables_x + skip * n_rows, n_rows},
                               {y, tables_y + skip * n_columns, n_columns}, i, j, k);
        const int row = first_row + lane_of() / LANES;
        const int column = first_column + lane_of() % LANES;
        double* const to = out + ((index_t)b * n_rows + row) * n_columns + column;
#pragma unroll
        for (int a = 0; a < R; ++a) {
#pragma unroll
            for (int c = 0; c < R; ++c) {
                if (row + a * (WARP / LANES) < n_rows && column + c * LANES < n_columns) {
                    to[(index_t)a * (WARP / LANES) * n_columns + c * LANES] = k[a][c];
                }
            }
        }
    }
}

// K (count, N, N) of points with themselves plus noise: tiles on and below the diagonal are computed, the others
// are their mirror images, turned in shared memory so that they too are written along rows. The diagonal is
// k(0) + noise exactly. Two warps share a square of COLUMNS points.
extern "C" __global__ void __launch_bounds__(TILE_BLOCK, TILE_BLOCKS)
    gram_symmetric_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                       const index_t* __restrict__ offsets, const double* __restrict__ x,
                       const double* __restrict__ tables, const double* __restrict__ diagonal_stats,
                       const double* __restrict__ noise, double* __restrict__ out, index_t start,
                       index_t count, index_t noise_rows, int noise_columns, int n_points, int n_dims) {
    static_assert(COLUMNS == 2 * ROWS, "two tiles a square");
    constexpr int PART = COLUMNS * TURNED_STRIDE;
    MF_SHARED(double, parts, TILE_BLOCK / WARP * PART);
    double* const turned = parts + warp_of() * PART;
    const int phases = MF_PER_AXIS ? n_dims : 1;
    const index_t down = (n_points + COLUMNS - 1) / COLUMNS;
    const unsigned tiles = (unsigned)(2 * lower_index(down, 0));
    for (unsigned item = first_tile(); item < count * tiles; item += tile_stride()) {
        const unsigned b = item / tiles;
        const unsigned place = item - b * tiles;
        const int square_row = (int)lower_row(place / 2);
        const int square_column = (int)(place / 2 - (unsigned)lower_index(square_row, 0));
        const int first_row = square_row * COLUMNS + (int)(place % 2) * ROWS;
        const int first_column = square_column * COLUMNS;
        if (first_row >= n_points) {
            continue;
        }
        const index_t first = offsets[start + b];
        const Mixture mixture = {weights + first, scales + first * n_dims,
                                 (int)(offsets[start + b + 1] - first), n_dims};
        const Side side = {x, tables + (first - offsets[start]) * phases * 2 * n_points, n_points};
        int i[R];
        int j[R];
        pairs_of(first_row, first_column, n_points, n_points, i, j);
        double k[R][R];
        gram_tile<MF_PER_AXIS>(mixture, side, side, i, j, k);
        double* const matrix = out + (index_t)b * n_points * n_points;
        const int lane = lane_of();
        const int row = first_row + lane / LANES;
        const int column = first_column + lane % LANES;
        if (first_row < first_column + COLUMNS) { // the tile meets the diagonal
            const double k0 = diagonal_stats[3 * (start + b)];
            const double* const noise_row = noise + (noise_rows > 1 ? (start + b) * noise_columns : 0);
#pragma unroll
            for (int a = 0; a < R; ++a) {
#pragma unroll
                for (int c = 0; c < R; ++c) {
                    const int r = row + a * (WARP / LANES);
                    if (r == column + c * LANES && r < n_points) {
                        k[a][c] = k0 + noise_row[noise_columns > 1 ? r : 0];
                    }
                }
            }
        }
        double* const to = matrix + (index_t)row * n_points + column;
#pragma unroll
        for (int a = 0; a < R; ++a) {
#pragma unroll
            for (int c = 0; c < R; ++c) {
                const int r = row + a * (WARP / LANES);
                if (r < n_points && column + c * LANES <= r) {
                    to[(index_t)a * (WARP / LANES) * n_points + c * LANES] = k[a][c];
                }
                turned[(column - first_column + c * LANES) * TURNED_STRIDE + r - first_row] = k[a][c];
            }
        }
        __syncwarp();
        // Two rows of the mirror image at a time
        const int s = first_row + lane % ROWS;
        double* const mirror = matrix + (index_t)first_column * n_points + s;
#pragma unroll 4
        for (int c = lane / ROWS; c < COLUMNS; c += WARP / ROWS) {
            if (s < n_points && first_column + c < s) {
                mirror[(index_t)c * n_points] = turned[c * TURNED_STRIDE + s - first_row];
            }
        }
        __syncwarp(); // before the next tile is turned there
    }
}
