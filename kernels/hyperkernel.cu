// Hyper-kernel of given distances, and its product with vectors: tiles of covariances that are used and dropped.
//
// MF_D, MF_FORM and MF_MIXED as in distances.cu.
// variants: MF_D=1,5,18,0 MF_FORM=0,1 MF_MIXED=0
// variants: MF_D=1,0 MF_FORM=0,1 MF_MIXED=1
#include "distances.cuh"
#include "hyperkernel.cuh"

#ifndef MF_D
#define MF_D 1
#endif
#ifndef MF_FORM
#define MF_FORM 0
#endif
#ifndef MF_MIXED
#define MF_MIXED 0
#endif

constexpr int VALUE_D = MF_D <= value_axes(MF_FORM, MF_MIXED != 0) ? MF_D : 0;
constexpr int PAIR_BLOCKS = pair_blocks(VALUE_D, MF_FORM, MF_MIXED != 0);

// Distances to covariances in place
extern "C" __global__ void __launch_bounds__(TILE_A, MIN_BLOCKS)
    covariance_f64(double* __restrict__ values, index_t n, int power, double outputscale, double rate) {
    for (index_t i = grid_start(); i < n; i += grid_stride()) {
        values[i] = covariance(power, outputscale, rate, values[i]);
    }
}

// partial_sums[s][i][c] = sum of covariance(i, k) vectors[k][c] over the TILE_B mixtures k of tile first_tile + s of b:
// one block for each tile of a and partial sum.
extern "C" __global__ void __launch_bounds__(PAIR_THREADS, PAIR_BLOCKS)
    product_f64(const index_t* __restrict__ offsets_a, const double* __restrict__ weights_a,
                const double* __restrict__ points_a, const double* __restrict__ data_a,
                const index_t* __restrict__ starts, const index_t* __restrict__ offsets_b,
                const double* __restrict__ weights_b, const double* __restrict__ points_b,
                const double* __restrict__ data_b, const double* __restrict__ vectors,
                double* __restrict__ partial_sums, index_t n_a, index_t n_b, index_t first_tile,
                int n_partial, int n_vectors, int n_dims, int n_columns, double bandwidth, int power,
                double outputscale, double rate) {
    MF_SHARED(double, sums, TILE_A* LEADING);
    MF_SHARED(int, ends, TILE_B);
    MF_SHARED(int, rows, TILE_A + 1);
    const TileMemory memory = {sums, ends, rows};
    const int part = blockIdx.x % n_partial;
    const PairTile tile = tile_of(starts, blockIdx.x / n_partial, first_tile + part, n_b);
    const Batch a = {offsets_a, weights_a, points_a, data_a};
    const Batch b = {offsets_b, weights_b, points_b, data_b};
    const double carry =
        fill_tile<VALUE_D, MF_FORM, MF_MIXED != 0>(a, b, tile, n_dims, bandwidth * bandwidth, memory);
    const int k = threadIdx.x % TILE_B; // one column for each thread
    if (k < tile.n_b) {
        const double* const row_b = data_b + (tile.first_b + k) * n_columns;
        const Own own_b = own_of(row_b);
#pragma unroll 1
        for (int i = threadIdx.x / TILE_B; i < tile.n_a; i += PAIR_THREADS / TILE_B) {
            const double* const row_a = data_a + (tile.first_a + i) * n_columns;
            const double distance =
                finish(tile_cross(memory, i, k, carry), own_of(row_a), own_b, row_a, row_b, n_columns);
            // This thread alone has read that row.
            sums[rows[i] * LEADING + k] = covariance(power, outputscale, rate, distance);
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < tile.n_a * n_vectors; e += PAIR_THREADS) {
        const int i = e / n_vectors;
        const int c = e % n_vectors;
        const double* row = sums + rows[i] * LEADING;
        double total = 0.0;
        for (int other = 0; other < tile.n_b; ++other) {
            total = fma(row[other], vectors[(tile.first_b + other) * n_vectors + c], total);
        }
        partial_sums[(part * n_a + tile.first_a + i) * n_vectors + c] = total;
    }
}

// totals += partial_sums[0], then partial_sums[1], ...
extern "C" __global__ void __launch_bounds__(TILE_A, MIN_BLOCKS)
    add_partial_sums_f64(const double* __restrict__ partial_sums, double* __restrict__ totals, int n_partial,
                         index_t n) {
    add_partial_sums(partial_sums, totals, n_partial, n);
}
