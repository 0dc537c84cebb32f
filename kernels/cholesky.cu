// Log-likelihoods of a batch of mixtures, Gram matrix and factor fused, with gradients. By the number of points:
//     likelihood_shared   one block a matrix, all of it in shared memory
//     likelihood_panel    one block a matrix, left-looking by panels of 32 columns: a panel in shared memory, where its
//                         Gram entries are generated when it is reached, the factor in global memory
//     panel_*, column_*   any size: the host goes through the matrix by block columns (backends/gpu/cholesky.py)
//
// MF_PER_AXIS: 1 for a product of cosines over the axes, else 0. MF_GRADIENT: 1 to go on to the gradient.
// MF_AXES: axes whose sums one pass over the pairs collects.
#include "cholesky.cuh"
#include "gram.cuh"

#ifndef MF_PER_AXIS
#define MF_PER_AXIS 0
#endif
#ifndef MF_GRADIENT
#define MF_GRADIENT 0
#endif
#ifndef MF_AXES
#define MF_AXES 1
#endif

constexpr int BLOCK = 256;
constexpr int WARPS = BLOCK / WARP;
constexpr int PANEL = 2 * TILE;         // columns of a panel
constexpr int PANEL_STRIDE = PANEL + 2; // as PADDED
constexpr int SUMS = 1 + 2 * MF_AXES;   // of one pass over the pairs

// One matrix of the batch
struct Problem {
    Mixture mixture;
    Side side;
    const double* y;
    const double* noise; // (1 or N,)
    bool noise_by_point;
    double k0;
    double mean_diagonal;
    double largest_diagonal;
};

__device__ __forceinline__ Problem problem_of(index_t start, const double* weights, const double* scales,
                                              const index_t* offsets, const double* points,
                                              const double* tables, const double* y, const double* levels,
                                              const double* noise, index_t noise_rows, int noise_columns,
                                              int n_points, int n_dims) {
    const index_t b = start + blockIdx.x;
    const index_t first = offsets[b];
    const index_t skip = (first - offsets[start]) * (MF_PER_AXIS ? n_dims : 1) * 2 * n_points;
    return {{weights + first, scales + first * n_dims, (int)(offsets[b + 1] - first), n_dims},
            {points, tables + skip, n_points},
            y,
            noise + (noise_rows > 1 ? b * noise_columns : 0),
            noise_columns > 1,
            levels[3 * b],
            levels[3 * b + 1],
            levels[3 * b + 2]};
}

// Entry (i, j) of the padded covariance, given k(x_i - x_j): beyond the points a unit diagonal, which leaves the
// factor as it is and has log 1 = 0.
__device__ __forceinline__ double covariance_entry(const Problem& p, int i, int j, double value,
                                                   double shift) {
    if (i >= p.side.size || j >= p.side.size) {
        return i == j ? 1.0 : 0.0;
    }
    return i == j ? p.k0 + p.noise[p.noise_by_point ? i : 0] + shift : value;
}

// A thread's 4 x 4 entries of the covariance, GAP apart from (row, column), to `out` of row stride `stride`
template <int GAP>
__device__ __forceinline__ void fill_entries(const Problem& p, int row, int column, double shift, double* out,
                                             int stride) {
    constexpr int R = GRAM_TILE;
    int i[R];
    int j[R];
#pragma unroll
    for (int a = 0; a < R; ++a) {
        i[a] = min(row + GAP * a, p.side.size - 1);
        j[a] = min(column + GAP * a, p.side.size - 1);
    }
    double k[R][R];
    gram_tile<MF_PER_AXIS, R>(p.mixture, p.side, p.side, i, j, k);
#pragma unroll
    for (int a = 0; a < R; ++a) {
#pragma unroll
        for (int c = 0; c < R; ++c) {
            out[GAP * a * stride + GAP * c] =
                covariance_entry(p, row + GAP * a, column + GAP * c, k[a][c], shift);
        }
    }
}

// One warp: the log-likelihood from z = L^-1 y and the inverse pivots, or -inf where `info` says so
__device__ __forceinline__ void write_value(int n_points, const double* z, const double* inverse_pivots,
                                            int failed, double shift, index_t b, double* value, int* info,
                                            double* shifts) {
    double half = 0.0;
    for (int i = lane_of(); i < n_points; i += WARP) {
        half += 0.5 * z[i] * z[i] - log(inverse_pivots[i]);
    }
    half = warp_sum(half);
    if (lane_of() == 0) {
        value[b] = failed ? -infinity() : -half - 0.5 * LOG_2_PI * n_points;
        info[b] = failed;
        shifts[b] = failed ? 0.0 : shift;
    }
}

// ---- gradient ----
struct Gradient {
    double* weights; // (J,)
    double* means;   // (J, D)
    double* scales;  // (J, D)
    double* noise;   // (B, 1 or N)
};

// The k-th sum of component j, which starts at axis first_axis, with the factors of MATH.md section 1
__device__ __forceinline__ void write_sum(const Gradient& gradient, index_t j, int n_dims, int first_axis,
                                          int k, double weight, const double* scales, double trace,
                                          double sum) {
    const int d = first_axis + (k - 1) % MF_AXES;
    if (k == 0) {
        if (first_axis == 0) {
            gradient.weights[j] = sum + trace;
        }
    } else if (d < n_dims) {
        if (k <= MF_AXES) {
            gradient.means[j * n_dims + d] = -2.0 * PI * weight * sum;
        } else {
            gradient.scales[j * n_dims + d] = -4.0 * PI * PI * weight * scales[d] * sum;
        }
    }
}

// One block, all pairs of one matrix. `tiles` holds C^-1 on and below the diagonal; 2 G = alpha alpha' - C^-1. The
// pairs are shared among threads 2 x 2 at a time. Sums are added in a fixed order.
template <typename Tiles>
__device__ __forceinline__ void gradient_of(const Problem& p, index_t b, index_t first, const Tiles& tiles,
                                            const double* alpha, const Gradient& gradient) {
    constexpr int R = GRADIENT_TILE;
    constexpr int ACROSS = TILE / R; // threads a side of a tile
    MF_SHARED(double, part, 2 * WARPS * SUMS);
    const int n_points = p.side.size;
    const int n_tiles = (n_points + TILE - 1) / TILE;
    const int n_items = (int)lower_index(n_tiles, 0) * ACROSS * ACROSS;
    double trace = 0.0; // of G, in every warp
    for (int i = lane_of(); i < n_points; i += WARP) {
        const double inverse = tiles.at(i / TILE, i / TILE)[i % TILE * (tiles.stride + 1)];
        const double own = 0.5 * (alpha[i] * alpha[i] - inverse);
        if (p.noise_by_point && warp_of() == 0) {
            gradient.noise[b * n_points + i] = own;
        }
        trace += own;
    }
    trace = warp_sum(trace);
    if (!p.noise_by_point && threadIdx.x == 0) {
        gradient.noise[b] = trace;
    }
    int slot = 0; // two rows of `part` by turns: one barrier a pass
    for (int q = 0; q < p.mixture.n; ++q) {
        for (int axis = 0; axis < p.mixture.n_dims; axis += MF_AXES) {
            double sums[SUMS];
#pragma unroll
            for (int k = 0; k < SUMS; ++k) {
                sums[k] = 0.0;
            }
            for (int item = threadIdx.x; item < n_items; item += BLOCK) {
                const int tile = item / (ACROSS * ACROSS);
                const int tile_i = (int)lower_row(tile);
                const int tile_j = tile - (int)lower_index(tile_i, 0);
                const int row = item / ACROSS % ACROSS;
                const int column = item % ACROSS;
                const double* const inverse = tiles.at(tile_i, tile_j);
                int i[R];
                int j[R];
                double g[R][R];
#pragma unroll
                for (int a = 0; a < R; ++a) {
                    i[a] = min(tile_i * TILE + row + a * ACROSS, n_points - 1);
                    j[a] = min(tile_j * TILE + column + a * ACROSS, n_points - 1);
                }
#pragma unroll
                for (int a = 0; a < R; ++a) {
#pragma unroll
                    for (int c = 0; c < R; ++c) {
                        const int r = row + a * ACROSS;
                        const int s = column + c * ACROSS;
                        const bool counts =
                            tile_i * TILE + r < n_points && tile_j * TILE + s < tile_i * TILE + r;
                        g[a][c] = counts ? alpha[i[a]] * alpha[j[c]] - inverse[r * tiles.stride + s] : 0.0;
                    }
                }
                pair_sums<MF_AXES, MF_PER_AXIS, R>(p.mixture, p.side, q, axis, i, j, g, sums);
            }
#pragma unroll
            for (int k = 0; k < SUMS; ++k) {
                const double sum = warp_sum(sums[k]);
                if (lane_of() == 0) {
                    part[(slot * WARPS + warp_of()) * SUMS + k] = sum;
                }
            }
            __syncthreads();
            if (threadIdx.x < SUMS) {
                double sum = 0.0;
                for (int w = 0; w < WARPS; ++w) {
                    sum += part[(slot * WARPS + w) * SUMS + threadIdx.x];
                }
                write_sum(gradient, first + q, p.mixture.n_dims, axis, threadIdx.x, p.mixture.weights[q],
                          p.mixture.scales + (index_t)q * p.mixture.n_dims, trace, sum);
            }
            slot = 1 - slot;
        }
    }
}

// NaN for a matrix that has no factor
__device__ __forceinline__ void no_gradient(const Problem& p, index_t b, index_t first,
                                            const Gradient& gradient) {
    const int n_dims = p.mixture.n_dims;
    for (int q = threadIdx.x; q < p.mixture.n; q += BLOCK) {
        gradient.weights[first + q] = quiet_nan();
        for (int d = 0; d < n_dims; ++d) {
            gradient.means[(first + q) * n_dims + d] = quiet_nan();
            gradient.scales[(first + q) * n_dims + d] = quiet_nan();
        }
    }
    const int columns = p.noise_by_point ? p.side.size : 1;
    for (int i = threadIdx.x; i < columns; i += BLOCK) {
        gradient.noise[b * columns + i] = quiet_nan();
    }
}

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
    const Problem p = problem_of(start, weights, scales, offsets, points, tables, y, levels, noise,
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
    const Problem p = problem_of(start, weights, scales, offsets, points, tables, y, levels, noise,
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
