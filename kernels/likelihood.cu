// Log-likelihoods of a batch of mixtures, Gram matrix and factor fused, with gradients. By the number of points:
//     likelihood_shared     one block a matrix, all of it in shared memory
//     likelihood_panel      one block a matrix, left-looking by panels of as many tile columns as fit in shared memory,
//                           where their Gram entries are generated when they are reached; the factor in global memory
//     covariance,           any size: the covariances, which cholesky.cu factors, and the gradient from their inverses
//     gradient_*
//
// MF_PER_AXIS: 1 for a product of cosines over the axes, else 0. MF_GRADIENT: 1 to go on to the gradient.
// MF_AXES: axes whose sums one pass over the pairs collects. MF_NO_MMA: multiply-adds instead of tensor instructions.
// MF_BLOCK: threads of a block that has a matrix, the fewer the more matrices an SM's shared memory has room for; at
// most THREADS.
// variants: MF_AXES=1 MF_BLOCK=128,256,512 MF_GRADIENT=0 MF_PER_AXIS=0,1 MF_NO_MMA=,1
// variants: MF_AXES=1,2,5,6 MF_BLOCK=256 MF_GRADIENT=1 MF_PER_AXIS=0,1
// variants: MF_AXES=1 MF_BLOCK=128,512 MF_GRADIENT=1 MF_PER_AXIS=0
// variants: MF_AXES=8 MF_BLOCK=512 MF_GRADIENT=1 MF_PER_AXIS=1 MF_NO_MMA=,1
#include "likelihood.cuh"

#ifndef MF_GRADIENT
#define MF_GRADIENT 0
#endif
#ifndef MF_BLOCK
#define MF_BLOCK 256
#endif

// Threads that an SM has registers for: 128 each, where a tile's products and one axis' sums leave enough, else 255.
#if defined(MF_HAVE_MMA) && MF_AXES == 1
constexpr int THREADS = 512;
#else
constexpr int THREADS = 256;
#endif
constexpr int BLOCK = MF_BLOCK < THREADS ? MF_BLOCK : THREADS;
constexpr int WARPS = BLOCK / WARP;
constexpr int RESIDENT = THREADS / BLOCK; // blocks an SM
constexpr int WIDE_BLOCK = 256;           // threads of the kernels for any size

// ---- the whole matrix in shared memory ----
// Dynamic shared memory, in doubles: the lower tiles, then n for z and n for the pivots, n = N rounded up to 16; with
// the gradient n for alpha.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    likelihood_shared_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                          const index_t* __restrict__ offsets, const double* __restrict__ points,
                          const double* __restrict__ tables, const double* __restrict__ y,
                          const double* diagonal_stats, const double* __restrict__ noise,
                          double* __restrict__ value, int* __restrict__ info, double* __restrict__ jitters,
                          double* __restrict__ d_weights, double* __restrict__ d_means,
                          double* __restrict__ d_scales, double* __restrict__ d_noise, double jitter,
                          index_t start, index_t noise_rows, int noise_columns, int n_points, int n_dims) {
    MF_DYN_SMEM(double, memory);
    MF_SHARED(int, bad, ATTEMPTS);
    MF_SHARED(double, limits, 2); // where there are no registers for them
    double& added = limits[0];
    double& bound = limits[1];
    const index_t b = start + blockIdx.x;
    const Problem p = problem_of(start, b, weights, scales, offsets, points, tables, y, diagonal_stats, noise,
                                 noise_rows, noise_columns, n_points, n_dims);
    const int n = p.side.size;
    const int n_tiles = n / TILE;
    const Trapezoid tiles = {memory, n_tiles};
    double* const z = memory + (int)lower_index(n_tiles, 0) * TILE_AREA;
    double* const pivots = z + n;
    double* const alpha = pivots + n;
    if (threadIdx.x < ATTEMPTS) {
        bad[threadIdx.x] = 0;
    }
    int failed = 0;
    for (int attempt = 0; attempt < ATTEMPTS; ++attempt) {
        if (threadIdx.x == 0) {
            added = jitter_of(attempt, jitter, p.diagonal_stats[1]);
            bound = n_points * EPSILON * (p.diagonal_stats[2] + added);
        }
        __syncthreads();
        fill_tiles<BLOCK>(p, tiles, n_tiles, 0, added);
        fill_targets<BLOCK>(p, z);
        eliminate<BLOCK, MF_GRADIENT>(tiles, n_tiles, n_tiles, bound, 0, &bad[attempt], pivots, z, alpha);
        failed = bad[attempt];
        if (failed == 0 || jitter == 0.0) {
            break;
        }
    }
    if (warp_of() == 0) {
        write_value(n_points, z, pivots, failed, added, b, value, info, jitters);
    }
#if MF_GRADIENT
    const Gradient gradient = {d_weights, d_means, d_scales, d_noise};
    if (failed) {
        no_gradient<BLOCK>(p, b, offsets[b], gradient);
    } else {
        gradient_of<BLOCK>(p, b, offsets[b], PackedTiles<StoredTile>{memory}, alpha, gradient);
    }
#endif
}

// ---- panels in shared memory, the factor in global memory ----
// The factors (count, lower tiles, TILE_AREA) receive L^-1 in their diagonal tiles and -L below, with MF_GRADIENT C^-1
// in the end. Dynamic shared memory, in doubles: `capacity` tiles, at least a column of them, then n for z and n for
// the pivots; with the gradient n for alpha.
constexpr int COLUMNS = 2; // tiles of a row that a warp updates together, to read the factor's row once

// Tile columns of a panel: as many as fit, whole groups of COLUMNS unless they are the last
__device__ __forceinline__ int panel_width(int height, int capacity) {
    int width = 0;
    while (width < height
           && (int)lower_index(width + 1, 0) + (height - width - 1) * (width + 1) <= capacity) {
        ++width;
    }
    return width < height && width > COLUMNS ? width / COLUMNS * COLUMNS : width;
}

// A block adds to a panel what tile columns before `first` make of it
__device__ __forceinline__ void update_panel(const PackedTiles<FactorTile>& factor, const Trapezoid& panel,
                                             int height, int first) {
    const int groups = (panel.width + COLUMNS - 1) / COLUMNS;
    for (int item = warp_of(); item < height * groups; item += WARPS) {
        const int i = item / groups;
        const int v = (item - i * groups) * COLUMNS;
        const int last = min(i, panel.width - 1);
        if (v > last) {
            continue; // above the diagonal
        }
        WarpTile tile[COLUMNS];
        double* right[COLUMNS];
#pragma unroll
        for (int u = 0; u < COLUMNS; ++u) { // tiles beyond the last are the last again, and are not stored
            const int column = min(v + u, last);
            tile[u] = load_tile(panel.at(i, column));
            right[u] = factor.at(first + column, 0).base;
        }
        double* const left = factor.at(first + i, 0).base;
#pragma unroll 1
        for (int m = 0; m < first * TILE_AREA; m += TILE_AREA) {
#pragma unroll
            for (int u = 0; u < COLUMNS; ++u) {
                add_product<1>(tile[u], FactorTile{left + m}, FactorTile{right[u] + m});
            }
        }
#pragma unroll
        for (int u = 0; u < COLUMNS; ++u) {
            if (v + u <= last) {
                store_tile(tile[u], panel.at(i, v + u));
            }
        }
    }
}

// A block copies a panel to its place in the factor
__device__ __forceinline__ void keep_panel(const Trapezoid& panel, const PackedTiles<FactorTile>& factor,
                                           int height, int first) {
    Place place = {0, 0};
    place.advance(warp_of(), panel.width);
    while (place.row < height) {
        const FactorTile to = factor.at(first + place.row, first + place.column);
        if (place.row == place.column) {
            copy_tile(InverseFactor{panel.at(place.row, place.row)}, to);
        } else {
            copy_tile(panel.at(place.row, place.column), to);
        }
        place.advance(WARPS, panel.width);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    likelihood_panel_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                         const index_t* __restrict__ offsets, const double* __restrict__ points,
                         const double* __restrict__ tables, const double* __restrict__ y,
                         const double* diagonal_stats, const double* __restrict__ noise, double* factors,
                         double* __restrict__ value, int* __restrict__ info, double* __restrict__ jitters,
                         double* __restrict__ d_weights, double* __restrict__ d_means,
                         double* __restrict__ d_scales, double* __restrict__ d_noise, double jitter,
                         index_t start, index_t noise_rows, int noise_columns, int n_points, int n_dims,
                         int capacity) {
    MF_DYN_SMEM(double, memory);
    MF_SHARED(int, bad, ATTEMPTS);
    MF_SHARED(double, limits, 2); // where there are no registers for them
    double& added = limits[0];
    double& bound = limits[1];
    const index_t b = start + blockIdx.x;
    const Problem p = problem_of(start, b, weights, scales, offsets, points, tables, y, diagonal_stats, noise,
                                 noise_rows, noise_columns, n_points, n_dims);
    const int n = p.side.size;
    const int n_tiles = n / TILE;
    const PackedTiles<FactorTile> factor = {factors + blockIdx.x * lower_index(n_tiles, 0) * TILE_AREA};
    double* const z = memory + capacity * TILE_AREA;
    double* const pivots = z + n;
    if (threadIdx.x < ATTEMPTS) {
        bad[threadIdx.x] = 0;
    }
    int failed = 0;
    for (int attempt = 0; attempt < ATTEMPTS; ++attempt) {
        if (threadIdx.x == 0) {
            added = jitter_of(attempt, jitter, p.diagonal_stats[1]);
            bound = n_points * EPSILON * (p.diagonal_stats[2] + added);
        }
        fill_targets<BLOCK>(p, z);
        __syncthreads();
        failed = 0;
        for (int first = 0; first < n_tiles && failed == 0;) {
            const int height = n_tiles - first;
            const Trapezoid panel = {memory, panel_width(height, capacity)};
            fill_tiles<BLOCK>(p, panel, height, first, added);
            if (first > 0) {
                __syncthreads();
                update_panel(factor, panel, height, first);
            }
            const int column = first * TILE;
            eliminate<BLOCK, false>(panel, height, panel.width, bound, column, &bad[attempt], pivots + column,
                                    z + column, nullptr);
            failed = bad[attempt];
            if (MF_GRADIENT || panel.width < height) {
                keep_panel(panel, factor, height, first);
            }
            first += panel.width;
            __syncthreads(); // the next panel replaces this one
        }
        if (failed == 0 || jitter == 0.0) {
            break;
        }
    }
    if (warp_of() == 0) {
        write_value(n_points, z, pivots, failed, added, b, value, info, jitters);
    }
#if MF_GRADIENT
    const Gradient gradient = {d_weights, d_means, d_scales, d_noise};
    if (failed) {
        no_gradient<BLOCK>(p, b, offsets[b], gradient);
        return;
    }
    double* const alpha = pivots + n;
    invert_factor<BLOCK>(factor, n_tiles, memory);
    square_inverse<BLOCK>(factor, n_tiles, z, alpha, memory);
    gradient_of<BLOCK>(p, b, offsets[b], factor, alpha, gradient);
#endif
}

// ---- any size ----
// The covariances of count mixtures to the lower triangles of matrices (count, rows, n), the matrix padded to n rows
// and columns; row n, the last, is y. Mixture start + k has jitters[k] on its diagonal. A block has a square of 64 x 64
// entries on or below the diagonal.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int WIDE_RESIDENT = 1; // of a multiprocessor: two would spill 48 bytes
#else
constexpr int WIDE_RESIDENT = 2; // of a multiprocessor: at most 128 registers a thread
#endif
extern "C" __global__ void __launch_bounds__(WIDE_BLOCK, WIDE_RESIDENT)
    covariance_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                   const index_t* __restrict__ offsets, const double* __restrict__ points,
                   const double* __restrict__ tables, const double* __restrict__ y,
                   const double* __restrict__ diagonal_stats, const double* __restrict__ noise,
                   const double* __restrict__ jitters, double* __restrict__ matrices, index_t start,
                   index_t noise_rows, int noise_columns, int n_points, int n_dims, int n) {
    constexpr int R = GRAM_TILE;
    constexpr int GAP = 16;
    constexpr int SPAN = R * GAP;
    const index_t squares = lower_index((n + SPAN - 1) / SPAN, 0);
    const index_t k = blockIdx.x / squares;
    const index_t place = blockIdx.x - k * squares;
    const Problem p = problem_of(start, start + k, weights, scales, offsets, points, tables, y,
                                 diagonal_stats, noise, noise_rows, noise_columns, n_points, n_dims);
    const int square_row = (int)lower_row(place);
    const int square_column = (int)(place - lower_index(square_row, 0));
    const int row = square_row * SPAN + threadIdx.x / GAP;
    const int column = square_column * SPAN + threadIdx.x % GAP;
    double* const matrix = matrices + k * (n + 1) * n;
    int i[R];
    int j[R];
#pragma unroll
    for (int a = 0; a < R; ++a) {
        i[a] = min(row + GAP * a, n_points - 1);
        j[a] = min(column + GAP * a, n_points - 1);
    }
    double entry[R][R];
    gram_tile<MF_PER_AXIS>(p.mixture, p.side, p.side, i, j, entry);
#pragma unroll
    for (int a = 0; a < R; ++a) {
#pragma unroll
        for (int c = 0; c < R; ++c) {
            const int r = row + GAP * a;
            const int s = column + GAP * c;
            if (r < n && s <= r) {
                matrix[(index_t)r * n + s] = covariance_entry(p, r, s, entry[a][c], jitters[k]);
            }
        }
    }
    const int own = square_column * SPAN + (int)threadIdx.x;
    if (square_row == square_column && threadIdx.x < SPAN && own < n) {
        matrix[(index_t)n * n + own] = own < n_points ? y[own] : 0.0;
    }
}

// Sums over slices of SLICE tiles of the pairs of one mixture, number start, whose C^-1 (n, n) is given with n = N
// rounded up to 16: (slices, components, passes, SUMS), a pass for each MF_AXES axes.
constexpr int SLICE = 32;

// Tiles of a matrix stored by rows of `stride`
struct DenseTiles {
    const double* base;
    int stride;
    __device__ __forceinline__ Rows at(int row, int column) const {
        return {base + (index_t)row * TILE * stride + column * TILE, stride};
    }
};

extern "C" __global__ void __launch_bounds__(WIDE_BLOCK, 1)
    gradient_slices_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                        const index_t* __restrict__ offsets, const double* __restrict__ points,
                        const double* __restrict__ tables, const double* __restrict__ alpha,
                        const double* __restrict__ inverse, double* __restrict__ sums, index_t start,
                        int n_points, int n_dims, int n) {
    constexpr int WIDE_WARPS = WIDE_BLOCK / WARP;
    MF_SHARED(double, part, 2 * WIDE_WARPS * SUMS);
    const index_t first = offsets[start];
    const int n_tiles = (n_points + TILE - 1) / TILE;
    const Problem p = {{weights + first, scales + first * n_dims, (int)(offsets[start + 1] - first), n_dims},
                       {points, tables, n_tiles * TILE},
                       n_points,
                       nullptr,
                       nullptr,
                       false,
                       nullptr};
    const DenseTiles tiles = {inverse, n};
    const int first_tile = blockIdx.x * SLICE;
    const int last_tile = min(first_tile + SLICE, (int)lower_index(n_tiles, 0));
    const int passes = (n_dims + MF_AXES - 1) / MF_AXES;
    int buffer = 0;
    for (int q = 0; q < p.mixture.n; ++q) {
        for (int pass = 0; pass < passes; ++pass) {
            const double sum = sum_of_pairs<WIDE_BLOCK>(p, tiles, alpha, q, pass * MF_AXES, first_tile,
                                                        last_tile, part + buffer * WIDE_WARPS * SUMS);
            if (threadIdx.x < SUMS) {
                const index_t place = ((index_t)blockIdx.x * p.mixture.n + q) * passes + pass;
                sums[place * SUMS + threadIdx.x] = sum;
            }
            buffer = 1 - buffer;
        }
    }
}

// Adds the slices in order: the gradient in the components of mixture `start`, one warp a component. `trace` is that
// of G.
extern "C" __global__ void __launch_bounds__(WARP)
    gradient_total_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                       const index_t* __restrict__ offsets, const double* __restrict__ sums,
                       const double* __restrict__ trace, double* __restrict__ d_weights,
                       double* __restrict__ d_means, double* __restrict__ d_scales, index_t start,
                       int n_slices, int n_dims) {
    const int q = blockIdx.x;
    const int n = gridDim.x;
    const index_t j = offsets[start] + q;
    const int passes = (n_dims + MF_AXES - 1) / MF_AXES;
    const Gradient gradient = {d_weights, d_means, d_scales, nullptr};
    for (int pass = 0; pass < passes; ++pass) {
        for (int k = 0; k < SUMS; ++k) {
            double total = 0.0;
            for (int slice = lane_of(); slice < n_slices; slice += WARP) {
                total += sums[(((index_t)slice * n + q) * passes + pass) * SUMS + k];
            }
            total = warp_sum(total);
            if (lane_of() == 0) {
                write_sum(gradient, j, n_dims, pass * MF_AXES, k, weights[j], scales + j * n_dims, trace[0],
                          total);
            }
        }
    }
}
