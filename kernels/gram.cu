// Gram matrices of a batch of mixtures. MF_PER_AXIS: 1 for a product of cosines over the axes, else 0.
// variants: MF_PER_AXIS=0,1
#include "gram.cuh"

#ifndef MF_PER_AXIS
#define MF_PER_AXIS 0
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int BLOCKS = 1; // of a multiprocessor: two would spill 16 bytes
#else
constexpr int BLOCKS = 2; // of a multiprocessor: at most 128 registers a thread
#endif
constexpr int BLOCK = 256;
constexpr int SIDE = 16;       // threads a side of a block's square
constexpr int R = GRAM_TILE;   // pairs a side of a thread's tile
constexpr int SPAN = SIDE * R; // pairs a side of a block's square

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

// k(0), mean and largest entry of k(0) + noise of each mixture: levels (B, 3). One warp a mixture.
extern "C" __global__ void __launch_bounds__(WARP)
    diagonal_levels_f64(const double* __restrict__ weights, const index_t* __restrict__ offsets,
                        const double* __restrict__ noise, double* __restrict__ levels, index_t noise_rows,
                        int noise_columns) {
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
        levels[3 * b] = k0;
        levels[3 * b + 1] = k0 + total / noise_columns;
        levels[3 * b + 2] = k0 + largest;
    }
}

// The pairs of one thread: rows and columns SIDE apart, so that neighbouring threads write neighbouring columns.
__device__ __forceinline__ void pairs_of(int row, int column, int n_rows, int n_columns, int (&i)[R],
                                         int (&j)[R]) {
#pragma unroll
    for (int a = 0; a < R; ++a) {
        i[a] = min(row + a * SIDE, n_rows - 1);
        j[a] = min(column + a * SIDE, n_columns - 1);
    }
}

// K (count, N, M) of the mixtures from `start`; `tables_x` and `tables_y` begin with the first of them.
extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS)
    gram_f64(const double* __restrict__ weights, const double* __restrict__ scales,
             const index_t* __restrict__ offsets, const double* __restrict__ x,
             const double* __restrict__ tables_x, const double* __restrict__ y,
             const double* __restrict__ tables_y, double* __restrict__ out, index_t start, index_t count,
             int n_rows, int n_columns, int n_dims) {
    const int phases = MF_PER_AXIS ? n_dims : 1;
    const index_t down = (n_rows + SPAN - 1) / SPAN;
    const index_t across = (n_columns + SPAN - 1) / SPAN;
    for (index_t item = blockIdx.x; item < count * down * across; item += gridDim.x) {
        const index_t b = item / (down * across);
        const int row = (int)(item / across % down) * SPAN + threadIdx.x / SIDE;
        const int column = (int)(item % across) * SPAN + threadIdx.x % SIDE;
        const index_t first = offsets[start + b];
        const index_t skip = (first - offsets[start]) * phases * 2;
        const Mixture mixture = {weights + first, scales + first * n_dims,
                                 (int)(offsets[start + b + 1] - first), n_dims};
        int i[R];
        int j[R];
        pairs_of(row, column, n_rows, n_columns, i, j);
        double k[R][R];
        gram_tile<MF_PER_AXIS>(mixture, {x, tables_x + skip * n_rows, n_rows},
                               {y, tables_y + skip * n_columns, n_columns}, i, j, k);
#pragma unroll
        for (int a = 0; a < R; ++a) {
#pragma unroll
            for (int c = 0; c < R; ++c) {
                if (row + a * SIDE < n_rows && column + c * SIDE < n_columns) {
                    out[(b * n_rows + i[a]) * n_columns + j[c]] = k[a][c];
                }
            }
        }
    }
}

// K (count, N, N) of points with themselves plus noise: squares on and below the diagonal are computed, the others
// are their mirror images, turned in shared memory so that they too are written along rows. The diagonal is
// k(0) + noise exactly.
extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS)
    gram_symmetric_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                       const index_t* __restrict__ offsets, const double* __restrict__ x,
                       const double* __restrict__ tables, const double* __restrict__ levels,
                       const double* __restrict__ noise, double* __restrict__ out, index_t start,
                       index_t count, index_t noise_rows, int noise_columns, int n_points, int n_dims) {
    MF_SHARED(double, turned, SPAN*(SPAN + 1));
    const int phases = MF_PER_AXIS ? n_dims : 1;
    const index_t down = (n_points + SPAN - 1) / SPAN;
    const index_t squares = lower_index(down, 0);
    for (index_t item = blockIdx.x; item < count * squares; item += gridDim.x) {
        const index_t b = item / squares;
        const index_t place = item - b * squares;
        const int square_row = (int)lower_row(place);
        const int square_column = (int)(place - lower_index(square_row, 0));
        const int row = threadIdx.x / SIDE;
        const int column = threadIdx.x % SIDE;
        const int row_start = square_row * SPAN;
        const int column_start = square_column * SPAN;
        const index_t first = offsets[start + b];
        const Mixture mixture = {weights + first, scales + first * n_dims,
                                 (int)(offsets[start + b + 1] - first), n_dims};
        const Side side = {x, tables + (first - offsets[start]) * phases * 2 * n_points, n_points};
        int i[R];
        int j[R];
        pairs_of(row_start + row, column_start + column, n_points, n_points, i, j);
        double k[R][R];
        gram_tile<MF_PER_AXIS>(mixture, side, side, i, j, k);
        double* const matrix = out + b * n_points * n_points;
        const double k0 = levels[3 * (start + b)];
        const double* const noise_row = noise + (noise_rows > 1 ? (start + b) * noise_columns : 0);
#pragma unroll
        for (int a = 0; a < R; ++a) {
#pragma unroll
            for (int c = 0; c < R; ++c) {
                const int r = row_start + row + a * SIDE;
                const int s = column_start + column + c * SIDE;
                if (r == s && r < n_points) {
                    k[a][c] = k0 + noise_row[noise_columns > 1 ? r : 0];
                }
                if (r < n_points && s <= r) {
                    matrix[(index_t)r * n_points + s] = k[a][c];
                }
                turned[(column + c * SIDE) * (SPAN + 1) + row + a * SIDE] = k[a][c];
            }
        }
        __syncthreads();
#pragma unroll
        for (int a = 0; a < R; ++a) {
#pragma unroll
            for (int c = 0; c < R; ++c) {
                const int r = column_start + row + a * SIDE;
                const int s = row_start + column + c * SIDE;
                if (s < n_points && r < s) {
                    matrix[(index_t)r * n_points + s] =
                        turned[(row + a * SIDE) * (SPAN + 1) + column + c * SIDE];
                }
            }
        }
        __syncthreads();
    }
}
