// Log-likelihoods and predictions on regular 1-D grids by Schur's algorithm: O(N^2) time, O(N) memory a matrix and a
// right-hand side. Right-hand sides are the targets, the basis functions of a trend, and the covariances with test points.
//
// Step t makes column t of the Cholesky factor out of two generators. Place m of the second meets entry m + t of the first:
//     p[m+t] <- p[m+t] + g q[m],   q[m] <- q[m] + g p[m+t],   y[m+t] <- y[m+t] - c q[m]
// g lets p[t] vanish, v = q[0] is the pivot, q[m] / sqrt(v) entry (m + t, t) of the factor, c = y[t] / v. On the places
// m < 0 the same is Levinson's recursion: p there is minus the predictor's coefficients, y the solution. Entry m + t after
// step t depends on entry m + 1 after step t - 1, and on nothing below: a warp keeps a tile of places in registers for
// STEPS steps, p and y moving down a place a step, and needs STEPS - 1 places above to begin with. The steps' g and c come
// of the first STEPS places, which every warp works out by itself; so there is a barrier every STEPS steps only, and
// between two sets of vectors none is read and written at once.
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
constexpr double EPSILON = 2.220446049250313e-16;

// As `shifts_of` in backends/gpu/_blocked.py
__device__ __forceinline__ double shift_of(int attempt, double jitter, double mean_diagonal) {
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
// cosines and sines of the lags' phases from the chunk's first component on, `levels` (B, 3) k(0), the mean diagonal of
// the covariance with its trend, and the largest without. `scratch` (blocks, 2, VECTORS N) holds p, the y and q twice.
// The log-likelihood in `value` is that of the one right-hand side, or less its quadratic form where SIDES > 1.
// `white` receives L^-1 y in the order of `given` if SIDES > 1; if MF_WHOLE `solutions` (count, total, N) C^-1 y and
// `predictors` (count, N) minus the predictor.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_schur_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                       const index_t* __restrict__ offsets, const double* __restrict__ lags,
                       const double* __restrict__ tables, const double* __restrict__ targets,
                       const double* __restrict__ levels, double* __restrict__ scratch,
                       double* __restrict__ value, int* __restrict__ info, double* __restrict__ shifts,
                       double* __restrict__ pivots, double* __restrict__ white,
                       double* __restrict__ predictors, double* __restrict__ solutions, double jitter,
                       index_t start, index_t total, index_t given_mixture, index_t given_side,
                       index_t given_entry, index_t white_mixture, index_t white_side, index_t white_entry,
                       int n) {
    const index_t groups = (total + SIDES - 1) / SIDES;
    const index_t place = blockIdx.x / groups, first_side = blockIdx.x % groups * SIDES;
    const index_t b = start + place;
    const Sides given{given_mixture, given_side, given_entry}, kept{white_mixture, white_side, white_entry};
    const int lane = lane_of();
    const index_t first_component = offsets[b], base_component = offsets[start];
    const double diagonal = levels[3 * b + 2];
    double* const vectors = scratch + (index_t)blockIdx.x * 2 * VECTORS * n;
    const int origin = MF_WHOLE ? n : 0; // of q
    double half = 0.0, pivot = 0.0, shift = 0.0;
    int failed = 0, side = 0;
    for (int attempt = 0; attempt < ATTEMPTS; ++attempt) {
        shift = shift_of(attempt, jitter, levels[3 * b + 1]);
        const double bound = n * EPSILON * (diagonal + shift);
        half = 0.0;
        failed = 0;
        side = 0;
        for (int i = threadIdx.x; i < n; i += BLOCK) {
            double k = 0.0;
            for (index_t j = first_component; j < offsets[b + 1]; ++j) {
                const double root = 3.14159265358979323846 * scales[j] * lags[i]; // exp(-2 root^2)
                k = fma(weights[j] * exp(-2.0 * root * root), tables[(j - base_component) * 2 * n + i], k);
            }
            vectors[i] = i > 0 ? k : 0.0;
#pragma unroll
            for (int c = 0; c < SIDES; ++c) {
                vectors[(1 + c) * n + i] =
                    first_side + c < total ? targets[given.at(place, first_side + c, i)] : 0.0;
            }
            vectors[(1 + SIDES) * n + origin + i] = i > 0 ? k : diagonal + shift;
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
        shifts[b] = failed == 0 ? shift : 0.0;
        pivots[b] = pivot;
    }
}

// A trend's coefficients b ~ N(0, I), marginalised by least squares (docs/mathematics.md section 10): by Gram and Schmidt,
// each column twice, [W; I] = Q R with W = L^-1 V, and what is left of [z; start] is [z - W b; -b].
//
// Rows of `white` (count, 1 + functions, N) are z and the columns of W, then z - W b and those of Q. `below` (count, 1 +
// functions, functions) receives -b and the columns of R^-1, `start_at` has minus the coefficients already taken out of
// the targets. Log-likelihoods in `value` get what they lack. If MF_WHOLE `solutions`, in the shape of `white`, are
// C^-1 times targets and V, then (C + V V')^-1 y and C^-1 V R^-1. One block a mixture.
struct Trend {
    double* white;
    double* below;
    double* part; // of a block's sums
    int n, functions;

    // Sum over both parts of two rows, in every thread
    __device__ __forceinline__ double product(int row, int column) const {
        double sum = 0.0;
        for (int i = threadIdx.x; i < n; i += BLOCK) {
            sum = fma(white[(index_t)row * n + i], white[(index_t)column * n + i], sum);
        }
        sum = block_sum<BLOCK>(sum, part); // its barrier also shows what `below` has become
        for (int k = 0; k < functions; ++k) {
            sum = fma(below[row * functions + k], below[column * functions + k], sum);
        }
        __syncthreads(); // before `below` and `part` are written again
        return sum;
    }

    __device__ __forceinline__ void project(int row, int column) const {
        const double share = product(row, column);
        for (int i = threadIdx.x; i < n; i += BLOCK) {
            white[(index_t)row * n + i] =
                fma(-share, white[(index_t)column * n + i], white[(index_t)row * n + i]);
        }
        for (int k = threadIdx.x; k < functions; k += BLOCK) {
            below[row * functions + k] =
                fma(-share, below[column * functions + k], below[row * functions + k]);
        }
    }
};

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_trend_f64(double* __restrict__ white, const double* __restrict__ start_at,
                       double* __restrict__ below, const int* __restrict__ info, double* __restrict__ value,
                       double* __restrict__ solutions, index_t start, int n, int functions) {
    MF_SHARED(double, part, WARPS);
    const index_t place = blockIdx.x;
    if (info[start + place] != 0) {
        return;
    }
    const int rows = 1 + functions;
    const Trend trend{white + place * rows * n, below + place * rows * functions, part, n, functions};
    for (int k = threadIdx.x; k < rows * functions; k += BLOCK) {
        const int row = k / functions, column = k % functions;
        trend.below[k] = row == 0 ? start_at[column] : row == 1 + column ? 1.0 : 0.0;
    }
    double half = 0.0;
    for (int k = 1; k < rows; ++k) {
        for (int round = 0; round < 2; ++round) {
            for (int j = 1; j < k; ++j) {
                trend.project(k, j);
            }
        }
        const double norm = sqrt(trend.product(k, k));
        half += log(norm);
        for (int i = threadIdx.x; i < n; i += BLOCK) {
            trend.white[(index_t)k * n + i] /= norm;
        }
        for (int c = threadIdx.x; c < functions; c += BLOCK) {
            trend.below[k * functions + c] /= norm;
        }
    }
    for (int round = 0; round < 2; ++round) {
        for (int k = 1; k < rows; ++k) {
            trend.project(0, k);
        }
    }
    half += 0.5 * trend.product(0, 0);
    if (threadIdx.x == 0) {
        value[start + place] -= half;
    }
    if (MF_WHOLE) {
        double* const own = solutions + place * rows * n;
        for (int i = threadIdx.x; i < n; i += BLOCK) {
            double alpha = own[i];
            for (int k = 0; k < functions; ++k) {
                alpha = fma(trend.below[k] - start_at[k], own[(index_t)(1 + k) * n + i], alpha);
            }
            own[i] = alpha;
            for (int k = functions - 1; k >= 0;
                 --k) { // R^-1 is upper triangular: column k needs those before it
                double sum = 0.0;
                for (int c = 0; c <= k; ++c) {
                    sum = fma(trend.below[(1 + k) * functions + c], own[(index_t)(1 + c) * n + i], sum);
                }
                own[(index_t)(1 + k) * n + i] = sum;
            }
        }
    }
}

// Means and latent variances from whitened covariances `solved` (count, N, M); a thread has a test point. `white` (count,
// 1 + functions, N) and `below` as toeplitz_trend_f64 leaves them, or z alone. The variances are those without a trend;
// `left` (count, functions, M) receives R^-T (v - W' w), whose squares it adds. NaN where the factorisation failed.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_predict_f64(const double* __restrict__ solved, const double* __restrict__ white,
                         const double* __restrict__ below, const double* __restrict__ basis_new,
                         const double* __restrict__ levels, const int* __restrict__ info,
                         double* __restrict__ mean, double* __restrict__ variance, double* __restrict__ left,
                         index_t start, index_t count, index_t n_new, int n, int functions) {
    for (index_t item = grid_start(); item < count * n_new; item += grid_stride()) {
        const index_t place = item / n_new, column = item % n_new;
        const double* const own = solved + place * n * n_new + column;
        const double* const rows = white + place * (1 + functions) * n;
        const double* const trend = below + place * (1 + functions) * functions;
        double sum = 0.0, squares = 0.0;
        for (int t = 0; t < n; ++t) {
            const double w = own[t * n_new];
            sum = fma(w, rows[t], sum);
            squares = fma(w, w, squares);
        }
        for (int k = 0; k < functions; ++k) {
            sum = fma(-trend[k], basis_new[k * n_new + column], sum);
            double rest = 0.0;
            for (int t = 0; t < n; ++t) {
                rest = fma(-own[t * n_new], rows[(index_t)(1 + k) * n + t], rest);
            }
            for (int c = 0; c <= k; ++c) {
                rest = fma(trend[(1 + k) * functions + c], basis_new[c * n_new + column], rest);
            }
            left[(place * functions + k) * n_new + column] = rest;
        }
        const bool good = info[start + place] == 0;
        mean[item] = good ? sum : quiet_nan();
        variance[item] = good ? levels[3 * (start + place)] - squares : quiet_nan();
    }
}

// totals (rows,): 1 + sum |C^-1 k| for each row of `solutions` (rows, N); a warp has a row
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_totals_f64(const double* __restrict__ solutions, double* __restrict__ totals, index_t rows,
                        int n) {
    for (index_t row = grid_start() / WARP; row < rows; row += grid_stride() / WARP) {
        double sum = 0.0;
        for (int i = lane_of(); i < n; i += WARP) {
            sum += fabs(solutions[row * n + i]);
        }
        sum = warp_sum(sum);
        if (lane_of() == 0) {
            totals[row] = 1.0 + sum;
        }
    }
}

// Variances below 0 become 0 where rounding explains them, else NaN, by the bound of gp_clip_f64; `totals` (count, M) has
// what it asks for of those below 0. Then the trend's share is added, the squares of `left` (count, functions, M).
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_clip_f64(const double* __restrict__ totals, const double* __restrict__ left,
                      const double* __restrict__ levels, const double* __restrict__ shifts,
                      double* __restrict__ variance, index_t start, index_t count, index_t n_new, int n,
                      int functions) {
    for (index_t item = grid_start(); item < count * n_new; item += grid_stride()) {
        const index_t place = item / n_new, column = item % n_new;
        double value = variance[item];
        if (value < 0.0) {
            const double largest = levels[3 * (start + place) + 2] + shifts[start + place];
            const double bound = 8.0 * n * EPSILON * largest * totals[item] * totals[item];
            value = -value <= bound ? 0.0 : quiet_nan();
        }
        for (int k = 0; k < functions; ++k) {
            value += square(left[(place * functions + k) * n_new + column]);
        }
        variance[item] = value;
    }
}

// Sums along the diagonals of G = (S' S - C^-1) / 2, S the rows of `solutions` (count, rows, N): sums (count, N), where a
// thread has diagonal d. The inverse's are sum_l (N - d - 2 l) a_l a_{l+d} / v (Gohberg and Semencul), a the predictor.
// NaN where the factorisation failed.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_sums_f64(const double* __restrict__ predictors, const double* __restrict__ solutions,
                      const int* __restrict__ info, const double* __restrict__ pivots,
                      double* __restrict__ sums, index_t start, int rows, int n) {
    const int blocks = (n + BLOCK - 1) / BLOCK;
    const index_t place = blockIdx.x / blocks;
    const int d = (int)(blockIdx.x % blocks) * BLOCK + threadIdx.x;
    const double* const a = predictors + place * n;
    const double* const alpha = solutions + place * rows * n;
    double squares = 0.0, inverse = 0.0, factor = n - d;
    for (int l = 0; l < n - d; ++l) {
        squares = fma(alpha[l], alpha[l + d], squares);
        inverse = fma(factor * a[l], a[l + d], inverse);
        factor -= 2.0;
    }
    for (int row = 1; row < rows; ++row) {
        const double* const own = alpha + (index_t)row * n;
        for (int l = 0; l < n - d; ++l) {
            squares = fma(own[l], own[l + d], squares);
        }
    }
    if (d < n) {
        const bool good = info[start + place] == 0;
        sums[place * n + d] = good ? 0.5 * (squares - inverse / pivots[start + place]) : quiet_nan();
    }
}

// Gradients of a mixture's components one after another, by one block a mixture, from the sums along the diagonals.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_gradient_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                          const index_t* __restrict__ offsets, const double* __restrict__ lags,
                          const double* __restrict__ tables, const double* __restrict__ sums,
                          double* __restrict__ d_weights, double* __restrict__ d_means,
                          double* __restrict__ d_scales, double* __restrict__ d_noise, index_t start, int n) {
    MF_SHARED(double, parts, 3 * WARPS);
    constexpr double PI = 3.14159265358979323846;
    const index_t b = start + blockIdx.x, base_component = offsets[start];
    const double* const own = sums + (index_t)blockIdx.x * n;
    for (index_t j = offsets[b]; j < offsets[b + 1]; ++j) {
        const double* const cosines = tables + (j - base_component) * 2 * n;
        double even = 0.0, odd = 0.0, squares = 0.0;
        for (int d = 1 + threadIdx.x; d < n; d += BLOCK) {
            const double lag = lags[d], root = PI * scales[j] * lag;
            const double weight = 2.0 * own[d] * exp(-2.0 * root * root);
            even = fma(weight, cosines[d], even);
            odd = fma(weight * cosines[n + d], lag, odd);
            squares = fma(weight * cosines[d], lag * lag, squares);
        }
        // Whoever writes a sum's parts again has passed the barriers of the two other sums since they were read
        even = block_sum<BLOCK>(even, parts);
        odd = block_sum<BLOCK>(odd, parts + WARPS);
        squares = block_sum<BLOCK>(squares, parts + 2 * WARPS);
        if (threadIdx.x == 0) {
            d_weights[j] = even + own[0];
            d_means[j] = -2.0 * PI * weights[j] * odd;
            d_scales[j] = -4.0 * PI * PI * weights[j] * scales[j] * squares;
        }
    }
    if (threadIdx.x == 0) {
        d_noise[b] = own[0];
    }
}
