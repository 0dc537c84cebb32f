// What the kernels of the log-likelihood share: entries of one covariance, its value, and the sums of its gradient.
#pragma once

#include "elimination.cuh"
#include "gram.cuh"

#ifndef MF_PER_AXIS
#define MF_PER_AXIS 0
#endif
#ifndef MF_AXES
#define MF_AXES 1
#endif

constexpr int SUMS = 1 + 2 * MF_AXES; // of one pass over the pairs

// One matrix of the batch
struct Problem {
    Mixture mixture;
    Side side; // its size is n_points rounded up to TILE, the last point being repeated
    int n_points;
    const double* y;
    const double* noise; // (1 or N,)
    bool noise_by_point;
    const double* diagonal_stats; // k(0), mean and largest entry of the diagonal
};

// Mixture b; `tables` begin with those of mixture `start`
__device__ __forceinline__ Problem problem_of(index_t start, index_t b, const double* weights,
                                              const double* scales, const index_t* offsets,
                                              const double* points, const double* tables, const double* y,
                                              const double* diagonal_stats, const double* noise,
                                              index_t noise_rows, int noise_columns, int n_points,
                                              int n_dims) {
    const index_t first = offsets[b];
    const int n = (n_points + TILE - 1) / TILE * TILE;
    const index_t skip = (first - offsets[start]) * (MF_PER_AXIS ? n_dims : 1) * 2 * n;
    return {{weights + first, scales + first * n_dims, (int)(offsets[b + 1] - first), n_dims},
            {points, tables + skip, n},
            n_points,
            y,
            noise + (noise_rows > 1 ? b * noise_columns : 0),
            noise_columns > 1,
            diagonal_stats + 3 * b};
}

// Entry (i, j) of the padded covariance, given k(x_i - x_j): beyond the points a diagonal that the bound of pivots does
// not reach, which leaves the factor of the points as it is.
__device__ __forceinline__ double covariance_entry(const Problem& p, int i, int j, double value,
                                                   double jitter) {
    if (i >= p.n_points || j >= p.n_points) {
        return i == j ? fmax(p.diagonal_stats[2], 1.0) : 0.0;
    }
    return i == j ? p.diagonal_stats[0] + p.noise[p.noise_by_point ? i : 0] + jitter : value;
}

// A block fills `height` tile rows of `width` tile columns with the covariance, its sign turned, from tile column
// `first`
template <int BLOCK>
__device__ __forceinline__ void fill_tiles(const Problem& p, const Trapezoid& tiles, int height, int first,
                                           const double& jitter) {
    constexpr int ROWS = 2; // a warp has a tile, a lane 2 x 4 entries: 4 x 4 leave too few registers
    constexpr int COLUMNS = 4;
    const int row = lane_of() / COLUMNS;
    const int column = lane_of() % COLUMNS;
    Place place = {0, 0};
    place.advance(warp_of(), tiles.width);
    while (place.row < height) {
        const Every<TILE / ROWS> i = {(first + place.row) * TILE + row};
        const Every<TILE / COLUMNS> j = {(first + place.column) * TILE + column};
        double k[ROWS][COLUMNS];
        gram_tile<MF_PER_AXIS>(p.mixture, p.side, p.side, i, j, k);
        const StoredTile tile = tiles.at(place.row, place.column);
#pragma unroll
        for (int a = 0; a < ROWS; ++a) {
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                tile(i[a] % TILE, j[c] % TILE) = -covariance_entry(p, i[a], j[c], k[a][c], jitter);
            }
        }
        place.advance(BLOCK / WARP, tiles.width);
    }
}

// y, padded with zeros
template <int BLOCK> __device__ __forceinline__ void fill_targets(const Problem& p, double* z) {
    for (int i = threadIdx.x; i < p.side.size; i += BLOCK) {
        z[i] = i < p.n_points ? p.y[i] : 0.0;
    }
}

// One warp: the log-likelihood from z = L^-1 y and the pivots, or -inf where `info` says so
__device__ __forceinline__ void write_value(int n_points, const double* z, const double* pivots, int failed,
                                            double jitter, index_t b, double* value, int* info,
                                            double* jitters) {
    double half = 0.0;
    for (int i = lane_of(); i < n_points; i += WARP) {
        half += 0.5 * (z[i] * z[i] + log(pivots[i]));
    }
    half = warp_sum(half);
    if (lane_of() == 0) {
        value[b] = failed ? -infinity() : -half - 0.5 * LOG_2_PI * n_points;
        info[b] = failed;
        jitters[b] = failed ? 0.0 : jitter;
    }
}

// ---- gradient ----
struct Gradient {
    double* weights; // (J,)
    double* means;   // (J, D)
    double* scales;  // (J, D)
    double* noise;   // (B, 1 or N)
};

// The k-th sum of component j, which starts at axis first_axis, with the factors of mathematics.md section 1
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

// One block: the sums of component q over lower tiles first_tile to last_tile, returned to threads below SUMS. `tiles`
// holds C^-1 on and below the diagonal, and 2 G = alpha alpha' - C^-1 weighs the pairs below it. `part` is memory for
// BLOCK / WARP sums each: calls that follow one another take two such memories by turns, then one barrier a call is
// enough.
template <int BLOCK, typename Tiles>
__device__ __forceinline__ double sum_of_pairs(const Problem& p, const Tiles& tiles, const double* alpha,
                                               int q, int axis, int first_tile, int last_tile, double* part) {
    constexpr int WARPS = BLOCK / WARP;
    // A lane has 2 x 4 pairs of a tile; where the sums of many axes take its registers, one half after the other.
    constexpr int ROWS = 2;
    constexpr int COLUMNS = MF_PER_AXIS || MF_AXES > 2 ? 2 : 4;
    const int row = lane_of() / 4;
    double sums[SUMS];
#pragma unroll
    for (int k = 0; k < SUMS; ++k) {
        sums[k] = 0.0;
    }
    const int top = (int)lower_row(first_tile + warp_of());
    Place place = {top, first_tile + warp_of() - (int)lower_index(top, 0)};
    for (int k = first_tile + warp_of(); k < last_tile; k += WARPS) {
        const auto inverse = tiles.at(place.row, place.column);
        const Every<8> i = {place.row * TILE + row};
        for (int column = lane_of() % 4; column < TILE; column += 4 * COLUMNS) {
            const Every<4> j = {place.column * TILE + column};
            double g[ROWS][COLUMNS];
#pragma unroll
            for (int a = 0; a < ROWS; ++a) {
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c) {
                    // padding has no weight: its alpha is 0, and C^-1 outside the diagonal
                    const double both = alpha[i[a]] * alpha[j[c]] - inverse(row + 8 * a, column + 4 * c);
                    g[a][c] = j[c] < i[a] ? both : 0.0;
                }
            }
            pair_sums<MF_AXES, MF_PER_AXIS>(p.mixture, p.side, q, axis, i, j, g, sums);
        }
        place.advance(WARPS, place.row + WARPS + 1);
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
template <int BLOCK, typename Tiles>
__device__ __forceinline__ void gradient_of(const Problem& p, index_t b, index_t first, const Tiles& tiles,
                                            const double* alpha, const Gradient& gradient) {
    constexpr int WARPS = BLOCK / WARP;
    MF_SHARED(double, part, 2 * WARPS * SUMS);
    const int n_points = p.n_points;
    const int n_lower = (int)lower_index(p.side.size / TILE, 0);
    double trace = 0.0; // of G, in every warp
    for (int i = lane_of(); i < n_points; i += WARP) {
        const double inverse = tiles.at(i / TILE, i / TILE)(i % TILE, i % TILE);
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
    int buffer = 0;
    for (int q = 0; q < p.mixture.n; ++q) {
        for (int axis = 0; axis < p.mixture.n_dims; axis += MF_AXES) {
            const double sum =
                sum_of_pairs<BLOCK>(p, tiles, alpha, q, axis, 0, n_lower, part + buffer * WARPS * SUMS);
            if (threadIdx.x < SUMS) {
                write_sum(gradient, first + q, p.mixture.n_dims, axis, threadIdx.x, p.mixture.weights[q],
                          p.mixture.scales + (index_t)q * p.mixture.n_dims, trace, sum);
            }
            buffer = 1 - buffer;
        }
    }
}

// NaN for a matrix that has no factor
template <int BLOCK>
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
    const int columns = p.noise_by_point ? p.n_points : 1;
    for (int i = threadIdx.x; i < columns; i += BLOCK) {
        gradient.noise[b * columns + i] = quiet_nan();
    }
}
