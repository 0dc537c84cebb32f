// Log-likelihoods of a batch of mixtures, Gram matrix and factor fused, with gradients. By the number of points:
//     likelihood_shared     one block a matrix, all of it in shared memory
//     likelihood_panel      one block a matrix, left-looking by panels of 32 columns: a panel in shared memory, where its
//                           Gram entries are generated when it is reached, the factor in global memory
//     covariance,           any size: the covariances, which cholesky.cu factors, and the gradient from their inverses
//     gradient_*
//
// MF_PER_AXIS: 1 for a product of cosines over the axes, else 0. MF_GRADIENT: 1 to go on to the gradient.
// MF_AXES: axes whose sums one pass over the pairs collects. MF_NO_MMA: multiply-adds in place of tensor instructions.
// variants: MF_AXES=1 MF_GRADIENT=0 MF_PER_AXIS=0,1 MF_NO_MMA=,1
// variants: MF_AXES=1,2,5,6 MF_GRADIENT=1 MF_PER_AXIS=0,1
// variants: MF_AXES=8 MF_GRADIENT=1 MF_PER_AXIS=1 MF_NO_MMA=,1
#include "likelihood.cuh"

#ifndef MF_GRADIENT
#define MF_GRADIENT 0
#endif

// ---- the whole matrix in shared memory ----
// Dynamic shared memory, in doubles: the lower tiles, then n for z and n for the inverse pivots, n = N rounded up to
// 16; with the gradient n for alpha and n / 16 further tiles.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    likelihood_shared_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                          const index_t* __restrict__ offsets, const double* __restrict__ points,
                          const double* __restrict__ tables, const double* __restrict__ y,
                          const double* __restrict__ levels, const double* __restrict__ noise,
                          double* __restrict__ value, int* __restrict__ info, double* __restrict__ shifts,
                          double* __restrict__ d_weights, double* __restrict__ d_means,
                          double* __restrict__ d_scales, double* __restrict__ d_noise, double jitter,
                          index_t start, index_t noise_rows, int noise_columns, int n_points, int n_dims) {
    MF_DYN_SMEM(double, memory);
    MF_SHARED(int, bad, ATTEMPTS);
    const index_t b = start + blockIdx.x;
    const Problem p = problem_of(start, b, weights, scales, offsets, points, tables, y, levels, noise,
                                 noise_rows, noise_columns, n_points, n_dims);
    const int n_tiles = (n_points + TILE - 1) / TILE;
    const int n_lower = (int)lower_index(n_tiles, 0);
    const PackedTiles tiles = {memory};
    double* const z = memory + n_lower * TILE_SIZE;
    double* const inverse_pivots = z + n_tiles * TILE;
    const int t = threadIdx.x;
    if (t < ATTEMPTS) {
        bad[t] = 0;
    }
    double shift = 0.0;
    int failed = 0;
    for (int attempt = 0; attempt < ATTEMPTS; ++attempt) {
        shift = shift_of(attempt, jitter, p.mean_diagonal);
        const double bound = n_points * EPSILON * (p.largest_diagonal + shift);
        for (int item = t; item < n_lower * TILE; item += BLOCK) {
            const int tile = item / TILE;
            const int tile_i = (int)lower_row(tile);
            const int tile_j = tile - (int)lower_index(tile_i, 0);
            const int row = item / 4 % 4;
            const int column = item % 4;
            fill_entries<4>(p, tile_i * TILE + row, tile_j * TILE + column, shift,
                            memory + tile * TILE_SIZE + row * PADDED + column, PADDED);
        }
        for (int i = t; i < n_tiles * TILE; i += BLOCK) {
            z[i] = i < n_points ? y[i] : 0.0;
        }
        __syncthreads();
        if (warp_of() == 0) {
            factor_tile(tiles.at(0, 0), PADDED, bound, 0, &bad[attempt], inverse_pivots, z);
        }
        // In each turn: rows below the diagonal tile k, then the tiles right of it. Warp 0 takes the next diagonal
        // tile and factors it while the others finish.
        for (int k = 0;; ++k) {
            __syncthreads();
            if (k == n_tiles - 1 || bad[attempt] != 0) {
                break;
            }
            const double* const corner = tiles.at(k, k);
            for (int i = (k + 1) * TILE + t; i < n_tiles * TILE; i += BLOCK) {
                z[i] = solve_row(tiles.at(i / TILE, k) + i % TILE * PADDED, corner, PADDED,
                                 inverse_pivots + k * TILE, z + k * TILE, z[i]);
            }
            __syncthreads();
            const int left = n_tiles - k - 1;
            for (int e = warp_of(); e < (int)lower_index(left, 0);
                 e += warp_of() == 0 ? BLOCK * BLOCK : WARPS - 1) {
                const int i = (int)lower_row(e);
                const int j = e - (int)lower_index(i, 0);
                double* const target = tiles.at(k + 1 + i, k + 1 + j);
                Tile tile = load_tile(target, PADDED);
                multiply<-1, false, false>(tile, tiles.at(k + 1 + i, k), PADDED, tiles.at(k + 1 + j, k),
                                           PADDED);
                store_tile(tile, target, PADDED);
            }
            if (warp_of() == 0) {
                __syncwarp();
                factor_tile(tiles.at(k + 1, k + 1), PADDED, bound, (k + 1) * TILE, &bad[attempt],
                            inverse_pivots + (k + 1) * TILE, z + (k + 1) * TILE);
            }
        }
        failed = bad[attempt];
        if (failed == 0 || jitter == 0.0) {
            break;
        }
    }
    if (warp_of() == 0) {
        write_value(n_points, z, inverse_pivots, failed, shift, b, value, info, shifts);
    }
#if MF_GRADIENT
    const Gradient gradient = {d_weights, d_means, d_scales, d_noise};
    if (failed) {
        no_gradient(p, b, offsets[b], gradient);
        return;
    }
    double* const alpha = inverse_pivots + n_tiles * TILE;
    double* const spare = alpha + n_tiles * TILE;
    invert_factor<BLOCK>(tiles, n_tiles, inverse_pivots, spare);
    square_inverse<BLOCK>(tiles, n_tiles, z, alpha, spare);
    gradient_of(p, b, offsets[b], tiles, alpha, gradient);
#endif
}

// ---- panels in shared memory, the factor in global memory ----
// The factors (count, n, n), n = N rounded up to 16, receive L on and below the diagonal, with MF_GRADIENT C^-1 in the
// end. Dynamic shared memory, in doubles: n rows of PANEL_STRIDE, then n for z and n for the inverse pivots; with
// the gradient n for alpha.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    likelihood_panel_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                         const index_t* __restrict__ offsets, const double* __restrict__ points,
                         const double* __restrict__ tables, const double* __restrict__ y,
                         const double* __restrict__ levels, const double* __restrict__ noise, double* factors,
                         double* __restrict__ value, int* __restrict__ info, double* __restrict__ shifts,
                         double* __restrict__ d_weights, double* __restrict__ d_means,
                         double* __restrict__ d_scales, double* __restrict__ d_noise, double jitter,
                         index_t start, index_t noise_rows, int noise_columns, int n_points, int n_dims) {
    MF_DYN_SMEM(double, panel);
    MF_SHARED(int, bad, ATTEMPTS);
    const index_t b = start + blockIdx.x;
    const Problem p = problem_of(start, b, weights, scales, offsets, points, tables, y, levels, noise,
                                 noise_rows, noise_columns, n_points, n_dims);
    const int n_tiles = (n_points + TILE - 1) / TILE;
    const int n = n_tiles * TILE;
    const DenseTiles tiles = {factors + (index_t)blockIdx.x * n * n, n};
    double* const z = panel + n * PANEL_STRIDE;
    double* const inverse_pivots = z + n;
    const int t = threadIdx.x;
    if (t < ATTEMPTS) {
        bad[t] = 0;
    }
    double shift = 0.0;
    int failed = 0;
    for (int attempt = 0; attempt < ATTEMPTS; ++attempt) {
        shift = shift_of(attempt, jitter, p.mean_diagonal);
        const double bound = n_points * EPSILON * (p.largest_diagonal + shift);
        for (int k = 0; k < n_tiles; k += 2) { // a panel: tile columns k and k + 1, tile rows from k
            const int height = n_tiles - k;
            const int width = min(2, height);
            // Gram entries, and what earlier columns leave of y
            for (int item = t; item < height * width * TILE; item += BLOCK) {
                const int tile = item / TILE;
                const int row = tile / width * TILE + item / 4 % 4;
                const int column = tile % width * TILE + item % 4;
                fill_entries<4>(p, k * TILE + row, k * TILE + column, shift,
                                panel + row * PANEL_STRIDE + column, PANEL_STRIDE);
            }
            for (int r = k * TILE + warp_of(); r < (k + width) * TILE; r += WARPS) {
                const double* const row = tiles.base + (index_t)r * n;
                double explained = 0.0;
                for (int c = lane_of(); c < k * TILE; c += WARP) {
                    explained = fma(row[c], z[c], explained);
                }
                explained = warp_sum(explained);
                if (lane_of() == 0) {
                    z[r] = (r < n_points ? y[r] : 0.0) - explained;
                }
            }
            __syncthreads();
            for (int i = warp_of(); i < height; i += WARPS) {
                for (int v = 0; v < width; ++v) {
                    double* const target = panel + i * TILE * PANEL_STRIDE + v * TILE;
                    Tile tile = load_tile(target, PANEL_STRIDE);
                    for (int m = 0; m < k; ++m) {
                        multiply<-1, false, false>(tile, tiles.at(k + i, m), n, tiles.at(k + v, m), n);
                    }
                    store_tile(tile, target, PANEL_STRIDE);
                }
            }
            if (warp_of() == 0) { // who has just updated the first diagonal tile
                __syncwarp();
                factor_tile(panel, PANEL_STRIDE, bound, k * TILE, &bad[attempt], inverse_pivots + k * TILE,
                            z + k * TILE);
            }
            for (int v = 0; v < width; ++v) {
                __syncthreads();
                if (bad[attempt] != 0) {
                    break;
                }
                const double* const corner = panel + v * TILE * PANEL_STRIDE + v * TILE;
                const int first_column = (k + v) * TILE;
                for (int r = (v + 1) * TILE + t; r < height * TILE; r += BLOCK) {
                    const bool below = r >= width * TILE; // z of these rows waits for their own panel
                    const double rest = solve_row(panel + r * PANEL_STRIDE + v * TILE, corner, PANEL_STRIDE,
                                                  inverse_pivots + first_column, z + first_column,
                                                  below ? 0.0 : z[k * TILE + r]);
                    if (!below) {
                        z[k * TILE + r] = rest;
                    }
                }
                __syncthreads();
                if (v + 1 < width) {
                    const double* const left = panel + TILE * PANEL_STRIDE;
                    for (int i = 1 + warp_of(); i < height; i += WARPS) {
                        double* const target = panel + i * TILE * PANEL_STRIDE + TILE;
                        Tile tile = load_tile(target, PANEL_STRIDE);
                        multiply<-1, false, false>(tile, panel + i * TILE * PANEL_STRIDE, PANEL_STRIDE, left,
                                                   PANEL_STRIDE);
                        store_tile(tile, target, PANEL_STRIDE);
                    }
                    if (warp_of() == 0) {
                        __syncwarp();
                        factor_tile(panel + TILE * PANEL_STRIDE + TILE, PANEL_STRIDE, bound,
                                    first_column + TILE, &bad[attempt], inverse_pivots + first_column + TILE,
                                    z + first_column + TILE);
                    }
                }
            }
            if (bad[attempt] != 0) {
                break;
            }
            const int columns = width * TILE;
            for (int e = t; e < height * TILE * columns; e += BLOCK) {
                const int row = e / columns;
                const int column = e - row * columns;
                tiles.base[(index_t)(k * TILE + row) * n + k * TILE + column] =
                    panel[row * PANEL_STRIDE + column];
            }
            __syncthreads();
        }
        failed = bad[attempt];
        if (failed == 0 || jitter == 0.0) {
            break;
        }
    }
    if (warp_of() == 0) {
        write_value(n_points, z, inverse_pivots, failed, shift, b, value, info, shifts);
    }
#if MF_GRADIENT
    const Gradient gradient = {d_weights, d_means, d_scales, d_noise};
    if (failed) {
        no_gradient(p, b, offsets[b], gradient);
        return;
    }
    double* const alpha = inverse_pivots + n;
    invert_factor<BLOCK>(tiles, n_tiles, inverse_pivots, panel);
    square_inverse<BLOCK>(tiles, n_tiles, z, alpha, panel);
    gradient_of(p, b, offsets[b], tiles, alpha, gradient);
#endif
}

// ---- any size ----
// The covariances of count mixtures to the lower triangles of matrices (count, rows, n), the matrix padded to n rows
// and columns by a diagonal that no bound of pivots exceeds; row n, the last, is y. Mixture start + k is shifted by shifts[k]. A block has a square
// of 64 x 64 entries on or below the diagonal.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int BLOCKS = 1; // of a multiprocessor: two would spill 48 bytes
#else
constexpr int BLOCKS = 2; // of a multiprocessor: at most 128 registers a thread
#endif
extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS)
    covariance_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                   const index_t* __restrict__ offsets, const double* __restrict__ points,
                   const double* __restrict__ tables, const double* __restrict__ y,
                   const double* __restrict__ levels, const double* __restrict__ noise,
                   const double* __restrict__ shifts, double* __restrict__ matrices, index_t start,
                   index_t noise_rows, int noise_columns, int n_points, int n_dims, int n) {
    constexpr int R = GRAM_TILE;
    constexpr int GAP = 16;
    constexpr int SPAN = R * GAP;
    const index_t squares = lower_index((n + SPAN - 1) / SPAN, 0);
    const index_t k = blockIdx.x / squares;
    const index_t place = blockIdx.x - k * squares;
    const Problem p = problem_of(start, start + k, weights, scales, offsets, points, tables, y, levels, noise,
                                 noise_rows, noise_columns, n_points, n_dims);
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
    gram_tile<MF_PER_AXIS, R>(p.mixture, p.side, p.side, i, j, entry);
#pragma unroll
    for (int a = 0; a < R; ++a) {
#pragma unroll
        for (int c = 0; c < R; ++c) {
            const int r = row + GAP * a;
            const int s = column + GAP * c;
            if (r < n && s <= r) {
                const bool beyond = r == s && r >= n_points;
                matrix[(index_t)r * n + s] = beyond ? fmax(p.largest_diagonal, 1.0)
                                                    : covariance_entry(p, r, s, entry[a][c], shifts[k]);
            }
        }
    }
    const int own = square_column * SPAN + (int)threadIdx.x;
    if (square_row == square_column && threadIdx.x < SPAN && own < n) {
        matrix[(index_t)n * n + own] = own < n_points ? y[own] : 0.0;
    }
}

// Sums over slices of SLICE items of the pairs of one mixture, number start, whose C^-1 (n, n) is given with n = N
// rounded up to 16: (slices, components, passes, SUMS), a pass for each MF_AXES axes.
constexpr int SLICE = 8 * BLOCK;
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    gradient_slices_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                        const index_t* __restrict__ offsets, const double* __restrict__ points,
                        const double* __restrict__ tables, const double* __restrict__ alpha, double* inverse,
                        double* __restrict__ sums, index_t start, int n_points, int n_dims, int n) {
    MF_SHARED(double, part, 2 * WARPS * SUMS);
    const index_t first = offsets[start];
    const Problem p = {{weights + first, scales + first * n_dims, (int)(offsets[start + 1] - first), n_dims},
                       {points, tables, n_points},
                       nullptr,
                       nullptr,
                       false,
                       0.0,
                       0.0,
                       0.0};
    const DenseTiles tiles = {inverse, n};
    const int n_items = (int)lower_index((n_points + TILE - 1) / TILE, 0) * ITEMS_A_TILE;
    const int first_item = blockIdx.x * SLICE;
    const int last_item = min(first_item + SLICE, n_items);
    const int passes = (n_dims + MF_AXES - 1) / MF_AXES;
    int slot = 0;
    for (int q = 0; q < p.mixture.n; ++q) {
        for (int pass = 0; pass < passes; ++pass) {
            const double sum = sum_of_pairs(p, tiles, alpha, q, pass * MF_AXES, first_item, last_item,
                                            part + slot * WARPS * SUMS);
            if (threadIdx.x < SUMS) {
                const index_t place = ((index_t)blockIdx.x * p.mixture.n + q) * passes + pass;
                sums[place * SUMS + threadIdx.x] = sum;
            }
            slot = 1 - slot;
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
