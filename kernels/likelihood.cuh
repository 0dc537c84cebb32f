// What the kernels of the log-likelihood share: entries of one covariance, its value, and the sums of its gradient.
#pragma once

#include "cholesky.cuh"
#include "gram.cuh"

#ifndef MF_PER_AXIS
#define MF_PER_AXIS 0
#endif
#ifndef MF_AXES
#define MF_AXES 1
#endif

constexpr int BLOCK = 256;
constexpr int WARPS = BLOCK / WARP;
constexpr int SUMS = 1 + 2 * MF_AXES; // of one pass over the pairs
constexpr int ITEMS_A_TILE = TILE / GRADIENT_TILE * (TILE / GRADIENT_TILE);

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

// Mixture b; `tables` begin with those of mixture `start`
__device__ __forceinline__ Problem problem_of(index_t start, index_t b, const double* weights,
                                              const double* scales, const index_t* offsets,
                                              const double* points, const double* tables, const double* y,
                                              const double* levels, const double* noise, index_t noise_rows,
                                              int noise_columns, int n_points, int n_dims) {
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

// The k-th sum of component j, which starts at axis first_axis, with the factors of docs/mathematics.md section 1
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

// One block: the sums of component q over `items`, groups of 2 x 2 pairs, returned to threads below SUMS. `tiles`
// holds C^-1 on and below the diagonal, and 2 G = alpha alpha' - C^-1 weighs the pairs below it. `part` is memory for
// WARPS sums each: calls that follow one another take two such memories by turns, then one barrier a call is enough.
template <typename Tiles>
__device__ __forceinline__ double sum_of_pairs(const Problem& p, const Tiles& tiles, const double* alpha,
                                               int q, int axis, int first_item, int last_item, double* part) {
    constexpr int R = GRADIENT_TILE;
    constexpr int ACROSS = TILE / R; // groups a side of a tile
    const int n_points = p.side.size;
    double sums[SUMS];
#pragma unroll
    for (int k = 0; k < SUMS; ++k) {
        sums[k] = 0.0;
    }
    for (int item = first_item + threadIdx.x; item < last_item; item += BLOCK) {
        const int tile = item / ITEMS_A_TILE;
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
                const bool counts = tile_i * TILE + r < n_points && tile_j * TILE + s < tile_i * TILE + r;
                g[a][c] = counts ? alpha[i[a]] * alpha[j[c]] - inverse[r * tiles.stride + s] : 0.0;
            }
        }
        pair_sums<MF_AXES, MF_PER_AXIS, R>(p.mixture, p.side, q, axis, i, j, g, sums);
    }
#pragma unroll
    for (int k = 0; k < SUMS; ++k) {
        const double sum = warp_sum(sums[k]);
        if (lane_of() == 0) {
            part[warp_of() * SUMS + k] = sum;
        }
    }
    __syncthreads();
    double total = 0.0;
    if (threadIdx.x < SUMS) {
        for (int w = 0; w < WARPS; ++w) {
            total += part[w * SUMS + threadIdx.x];
        }
    }
    return total;
}

// One block: the gradient of one matrix, from C^-1 in `tiles` and alpha
template <typename Tiles>
__device__ __forceinline__ void gradient_of(const Problem& p, index_t b, index_t first, const Tiles& tiles,
                                            const double* alpha, const Gradient& gradient) {
    MF_SHARED(double, part, 2 * WARPS * SUMS);
    const int n_points = p.side.size;
    const int n_items = (int)lower_index((n_points + TILE - 1) / TILE, 0) * ITEMS_A_TILE;
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
    int slot = 0;
    for (int q = 0; q < p.mixture.n; ++q) {
        for (int axis = 0; axis < p.mixture.n_dims; axis += MF_AXES) {
            const double sum = sum_of_pairs(p, tiles, alpha, q, axis, 0, n_items, part + slot * WARPS * SUMS);
            if (threadIdx.x < SUMS) {
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
