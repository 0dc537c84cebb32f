// Schur's algorithm on covariances of regular 1-D grids: O(N^2) time, O(N) memory a matrix and a right-hand side.
// Right-hand sides are the targets, the basis functions of a trend, and the covariances with test points.
//
// Step t makes column t of the Cholesky factor out of two generators. Place m of the second meets entry m + t of the
// first:
//     p[m+t] <- p[m+t] + g q[m],   q[m] <- q[m] + g p[m+t],   y[m+t] <- y[m+t] - c q[m]
// g makes p[t] vanish, v = q[0] is the pivot, q[m] / sqrt(v) entry (m + t, t) of the factor, c = y[t] / v. On the
// places m < 0 the same is Levinson's recursion: p there is minus the predictor's coefficients, y the solution. Entry m
// + t after step t depends on entry m + 1 after step t - 1, and on nothing below: a warp keeps a tile of places in
// registers for STEPS steps, p and y moving down a place a step, and needs STEPS - 1 places above to begin with. The
// steps' g and c depend on the first STEPS places alone, which every warp computes by itself; so there is a barrier
// every STEPS steps only, and between two sets of vectors none is read and written at once.
//
// MF_WHOLE: 1 for the places below 0 too, which solutions and gradients need. MF_SIDES: right-hand sides of a block.
// variants: MF_WHOLE=0,1 MF_SIDES=1,3
#include "common.cuh"

#ifndef MF_WHOLE
#define MF_WHOLE 0
#endif
#ifndef MF_SIDES
#define MF_SIDES 1
#endif

constexpr int BLOCK = 256;
constexpr int WARPS = BLOCK / WARP;
constexpr int STEPS = WARP;               // lanes are the places that run ahead
constexpr int EACH = 8;                   // places of a lane, neighbours
constexpr int TILE = WARP * EACH - STEPS; // places of a warp whose results hold after STEPS steps
constexpr int SIDES = MF_SIDES;
constexpr int VECTORS =
    2 + SIDES + (MF_WHOLE ? 1 : 0); // p, each y, and q with N more entries in front if MF_WHOLE
constexpr int ATTEMPTS = 4;

// As `jitters_of` in backends/gpu/_blocked.py, which multiplies in this order: that of cholesky.cuh rounds differently
__device__ __forceinline__ double jitter_of(int attempt, double jitter, double mean_diagonal) {
    return attempt == 0 ? 0.0 : jitter * (attempt == 1 ? 1e-4 : attempt == 2 ? 1e-2 : 1.0) * mean_diagonal;
}

__device__ __forceinline__ double entry_or_zero(const double* values, int i, int size) {
    return i >= 0 && i < size ? values[i] : 0.0;
}

// Where entry i of right-hand side `side` of the chunk's mixture `place` lies
struct Sides {
    index_t mixture_step, side_step, entry_step;
    __device__ __forceinline__ index_t at(index_t place, index_t side, index_t i) const {
        return place * mixture_step + side * side_step + i * entry_step;
    }
};

// One block an SM: 8 places of a lane, three numbers each, want 150 registers, with 3 right-hand sides 220
// (with 4, 255 and spills on sm_100).
//
// One block a mixture b = start + place and SIDES of its `total` right-hand sides. `tables` (components, 2, N) has
// cosines and sines of the lags' phases from the chunk's first component on, `diagonal_stats` (B, 3) k(0), the mean
// diagonal of the covariance with its trend, and the largest without. `scratch` (blocks, 2, VECTORS N) holds p, the y
// and q twice. The log-likelihood in `value` is that of the one right-hand side, or less its quadratic form where
// SIDES > 1. `white` receives L^-1 y if SIDES > 1, in the steps white_...; if MF_WHOLE `solutions` (count, total, N)
// receives C^-1 y and `predictors` (count, N) minus the predictor.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_schur_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                       const index_t* __restrict__ offsets, const double* __restrict__ lags,
                       const double* __restrict__ tables, const double* __restrict__ targets,
                       const double* __restrict__ diagonal_stats, double* __restrict__ scratch,
                       double* __restrict__ value, int* __restrict__ info, double* __restrict__ jitters,
                       double* __restrict__ pivots, double* __restrict__ white,
                       double* __restrict__ predictors, double* __restrict__ solutions, double jitter,
                       index_t start, index_t total, index_t target_mixture, index_t target_side,
                       index_t target_entry, index_t white_mixture, index_t white_side, index_t white_entry,
                       int n) {
    const index_t groups = (total + SIDES - 1) / SIDES;
    const index_t place = blockIdx.x / groups, first_side = blockIdx.x % groups * SIDES;
    const index_t b = start + place;
    const Sides source{target_mixture, target_side, target_entry},
        kept{white_mixture, white_side, white_entry};
    const int lane = lane_of();
    const index_t first_component = offsets[b], base_component = offsets[start];
    const double diagonal = diagonal_stats[3 * b + 2];
    double* const vectors = scratch + (index_t)blockIdx.x * 2 * VECTORS * n;
    const int origin = MF_WHOLE ? n : 0; // of q
    double half = 0.0, pivot = 0.0, added = 0.0;
    int failed = 0, side = 0;
    for (int attempt = 0; attempt < ATTEMPTS; ++attempt) {
        added = jitter_of(attempt, jitter, diagonal_stats[3 * b + 1]);
        const double bound = n * EPSILON * (diagonal + added);
        half = 0.0;
        failed = 0;
        side = 0;
        for (int i = threadIdx.x; i < n; i += BLOCK) {
            double k = 0.0;
            for (index_t j = first_component; j < offsets[b + 1]; ++j) {
                const double root = PI * scales[j] * lags[i]; // exp(-2 root^2)
                k = fma(weights[j] * exp(-2.0 * root * root), tables[(j - base_component) * 2 * n + i], k);
            }
            vectors[i] = i > 0 ? k : 0.0;
#pragma unroll
            for (int c = 0; c < SIDES; ++c) {
                vectors[(1 + c) * n + i] =
                    first_side + c < total ? targets[source.at(place, first_side + c, i)] : 0.0;
            }
            vectors[(1 + SIDES) * n + origin + i] = i > 0 ? k : diagonal + added;
            if (MF_WHOLE) {
                vectors[(1 + SIDES) * n + i] = 0.0;
                vectors[(VECTORS + 1 + SIDES) * n + i] = 0.0;
            }
        }
        __syncthreads();
        for (int t0 = 0; t0 < n; t0 += STEPS) {
            const int steps = min(STEPS, n - t0);
            const double* const p_old = vectors + side * VECTORS * n;
            const double* const y_old = p_old + n;
            const double* const q_old = y_old + SIDES * n;
            side = 1 - side;
            double* const p_new = vectors + side * VECTORS * n;
            double* const y_new = p_new + n;
            double* const q_new = y_new + SIDES * n;
            // Lane m has place m
            double p = entry_or_zero(p_old, t0 + lane, n);
            double q = t0 + lane < n ? q_old[origin + lane] : 0.0;
            double y[SIDES], own_ratio[SIDES], own_target[SIDES]; // own: of step t0 + lane
            double own_gamma = 0.0, own_pivot = 1.0;
#pragma unroll
            for (int c = 0; c < SIDES; ++c) {
                y[c] = entry_or_zero(y_old + c * n, t0 + lane, n);
                own_ratio[c] = 0.0;
                own_target[c] = 0.0;
            }
            for (int s = 0; s < steps; ++s) {
                const double p_first = __shfl_sync(FULL_WARP, p, 0);
                const double q_first = __shfl_sync(FULL_WARP, q, 0);
                const double gamma = t0 + s > 0 ? -p_first / q_first : 0.0;
                pivot = fma(gamma, p_first, q_first);
                if (!(pivot > bound && pivot < infinity())) {
                    failed = t0 + s + 1;
                    break;
                }
                const double old = p;
                p = __shfl_down_sync(FULL_WARP, fma(gamma, q, p), 1);
                q = fma(gamma, old, q);
                if (lane == s) {
                    own_gamma = gamma;
                    own_pivot = pivot;
                }
#pragma unroll
                for (int c = 0; c < SIDES; ++c) {
                    const double y_first = __shfl_sync(FULL_WARP, y[c], 0);
                    const double ratio = y_first / pivot;
                    y[c] = __shfl_down_sync(FULL_WARP, fma(-ratio, q, y[c]), 1);
                    if (lane == s) {
                        own_ratio[c] = ratio;
                        own_target[c] = y_first;
                    }
                }
            }
            if (failed != 0) {
                break;
            }
            const double log_pivot = lane < steps ? log(own_pivot) : 0.0;
            half += warp_sum(0.5 * (SIDES == 1 ? fma(own_ratio[0], own_target[0], log_pivot) : log_pivot));
            if (SIDES > 1 && warp_of() == 0 && lane < steps) {
#pragma unroll
                for (int c = 0; c < SIDES; ++c) {
                    if (first_side + c < total) {
                        white[kept.at(place, first_side + c, t0 + lane)] = own_target[c] / sqrt(own_pivot);
                    }
                }
            }
            // After the last step place m has entry m + last of p and y
            const int last = t0 + steps - 1;
            for (int tile = MF_WHOLE ? -last + warp_of() * TILE : warp_of() * TILE; tile < n - t0;
                 tile += WARPS * TILE) {
                const int first = tile + lane * EACH;
                double ps[EACH], ys[SIDES][EACH], qs[EACH];
#pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    ps[e] = entry_or_zero(p_old, first + e + t0, n);
                    qs[e] = first + e + t0 < n && first + e >= -origin ? q_old[origin + first + e] : 0.0;
#pragma unroll
                    for (int c = 0; c < SIDES; ++c) {
                        ys[c][e] = entry_or_zero(y_old + c * n, first + e + t0, n);
                    }
                }
                for (int s = 0; s < steps; ++s) {
                    const double gamma = __shfl_sync(FULL_WARP, own_gamma, s);
#pragma unroll
                    for (int e = 0; e < EACH; ++e) {
                        const double old = ps[e];
                        ps[e] = fma(gamma, qs[e], ps[e]);
                        qs[e] = fma(gamma, old, qs[e]);
                        if (MF_WHOLE && first + e == 0) { // what vanished makes room for the predictor
                            ps[e] = t0 + s > 0 ? -gamma : -1.0;
                        }
                    }
#pragma unroll
                    for (int c = 0; c < SIDES; ++c) {
                        const double ratio = __shfl_sync(FULL_WARP, own_ratio[c], s);
#pragma unroll
                        for (int e = 0; e < EACH; ++e) {
                            ys[c][e] = fma(-ratio, qs[e], ys[c][e]);
                            if (MF_WHOLE && first + e == 0) {
                                ys[c][e] = ratio;
                            }
                        }
                    }
                    if (s + 1 < steps) {
                        const double p_next = __shfl_down_sync(FULL_WARP, ps[0], 1);
#pragma unroll
                        for (int e = 0; e + 1 < EACH; ++e) {
                            ps[e] = ps[e + 1];
                        }
                        ps[EACH - 1] = p_next;
#pragma unroll
                        for (int c = 0; c < SIDES; ++c) {
                            const double y_next = __shfl_down_sync(FULL_WARP, ys[c][0], 1);
#pragma unroll
                            for (int e = 0; e + 1 < EACH; ++e) {
                                ys[c][e] = ys[c][e + 1];
                            }
                            ys[c][EACH - 1] = y_next;
                        }
                    }
                }
#pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    const int entry = first + e + last;
                    if (lane * EACH + e < TILE && entry < n) {
                        p_new[entry] = ps[e];
                        q_new[origin + first + e] = qs[e];
#pragma unroll
                        for (int c = 0; c < SIDES; ++c) {
                            y_new[c * n + entry] = ys[c][e];
                        }
                    }
                }
            }
            __syncthreads();
        }
        if (failed == 0 || jitter == 0.0) {
            break;
        }
        __syncthreads(); // before another attempt fills the vectors
    }
    if (MF_WHOLE) {
        const double* const ended = vectors + side * VECTORS * n;
        for (int i = threadIdx.x; i < n; i += BLOCK) {
            if (first_side == 0) {
                predictors[place * n + i] = ended[i];
            }
#pragma unroll
            for (int c = 0; c < SIDES; ++c) {
                if (first_side + c < total) {
                    solutions[(place * total + first_side + c) * n + i] = ended[(1 + c) * n + i];
                }
            }
        }
    }
    if (threadIdx.x == 0 && first_side == 0) {
        value[b] = failed == 0 ? -half - 0.5 * n * 1.8378770664093453 : -infinity(); // log(2 pi)
        info[b] = failed;
        jitters[b] = failed == 0 ? added : 0.0;
        pivots[b] = pivot;
    }
}
