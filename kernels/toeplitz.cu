// Log-likelihoods on regular 1-D grids by Schur's algorithm: O(N^2) time, O(N) memory a matrix.
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
// MF_WHOLE: 1 for the places below 0 too, which the gradient needs. MF_FACTOR: 1 to write the factor's columns.
// variants: MF_WHOLE=0,1 MF_FACTOR=0
// variants: MF_WHOLE=0 MF_FACTOR=1
#include "common.cuh"

#ifndef MF_WHOLE
#define MF_WHOLE 0
#endif
#ifndef MF_FACTOR
#define MF_FACTOR 0
#endif

constexpr int BLOCK = 256;
constexpr int WARPS = BLOCK / WARP;
constexpr int STEPS = WARP;                     // lanes are the places that run ahead
constexpr int EACH = 8;                         // places of a lane, neighbours
constexpr int TILE = WARP * EACH - STEPS;       // places of a warp whose results hold after STEPS steps
constexpr int VECTORS = 3 + (MF_WHOLE ? 1 : 0); // p, y and q, which has N more entries in front if MF_WHOLE
constexpr int ATTEMPTS = 4;
constexpr double EPSILON = 2.220446049250313e-16;

// As `shifts_of` in backends/gpu/_blocked.py
__device__ __forceinline__ double shift_of(int attempt, double jitter, double mean_diagonal) {
    return attempt == 0 ? 0.0 : jitter * (attempt == 1 ? 1e-4 : attempt == 2 ? 1e-2 : 1.0) * mean_diagonal;
}

__device__ __forceinline__ double entry_or_zero(const double* values, int i, int size) {
    return i >= 0 && i < size ? values[i] : 0.0;
}

// One block an SM: 8 places of a lane, three numbers each, want 150 registers.
//
// One block a mixture b = start + blockIdx.x. `tables` (components, 2, N) has cosines and sines of the lags' phases from
// the chunk's first component on, `levels` (B, 3) k(0) and the mean and largest diagonal. `scratch` (count, 2, VECTORS N)
// holds p, y and q twice; where they end, `ends` (B,) is 0 or 1, p is minus the predictor and y the solution. `factor`
// (count, N, N) receives the lower triangle.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_schur_f64(const double* __restrict__ weights, const double* __restrict__ scales,
                       const index_t* __restrict__ offsets, const double* __restrict__ lags,
                       const double* __restrict__ tables, const double* __restrict__ targets,
                       const double* __restrict__ levels, double* __restrict__ scratch,
                       double* __restrict__ value, int* __restrict__ info, double* __restrict__ shifts,
                       double* __restrict__ pivots, int* __restrict__ ends, double* __restrict__ factor,
                       double jitter, index_t start, int n) {
    const index_t b = start + blockIdx.x;
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
            vectors[n + i] = targets[i];
            vectors[2 * n + origin + i] = i > 0 ? k : diagonal + shift;
            if (MF_WHOLE) {
                vectors[2 * n + i] = 0.0;
                vectors[(VECTORS + 2) * n + i] = 0.0;
            }
        }
        __syncthreads();
        for (int t0 = 0; t0 < n; t0 += STEPS) {
            const int steps = min(STEPS, n - t0);
            const double* const p_old = vectors + side * VECTORS * n;
            const double* const y_old = p_old + n;
            const double* const q_old = y_old + n;
            side = 1 - side;
            double* const p_new = vectors + side * VECTORS * n;
            double* const y_new = p_new + n;
            double* const q_new = y_new + n;
            // Lane m has place m
            double p = entry_or_zero(p_old, t0 + lane, n);
            double y = entry_or_zero(y_old, t0 + lane, n);
            double q = t0 + lane < n ? q_old[origin + lane] : 0.0;
            double own_gamma = 0.0, own_ratio = 0.0, own_pivot = 1.0, own_target = 0.0; // of step t0 + lane
            for (int s = 0; s < steps; ++s) {
                const double p_first = __shfl_sync(FULL_WARP, p, 0);
                const double q_first = __shfl_sync(FULL_WARP, q, 0);
                const double y_first = __shfl_sync(FULL_WARP, y, 0);
                const double gamma = t0 + s > 0 ? -p_first / q_first : 0.0;
                pivot = fma(gamma, p_first, q_first);
                if (!(pivot > bound && pivot < infinity())) {
                    failed = t0 + s + 1;
                    break;
                }
                const double ratio = y_first / pivot;
                const double old = p;
                p = __shfl_down_sync(FULL_WARP, fma(gamma, q, p), 1);
                q = fma(gamma, old, q);
                y = __shfl_down_sync(FULL_WARP, fma(-ratio, q, y), 1);
                if (lane == s) {
                    own_gamma = gamma;
                    own_ratio = ratio;
                    own_pivot = pivot;
                    own_target = y_first;
                }
            }
            if (failed != 0) {
                break;
            }
            half += warp_sum(0.5 * fma(own_ratio, own_target, lane < steps ? log(own_pivot) : 0.0));
            // After the last step place m has entry m + last of p and y
            const int last = t0 + steps - 1;
            for (int tile = MF_WHOLE ? -last + warp_of() * TILE : warp_of() * TILE; tile < n - t0;
                 tile += WARPS * TILE) {
                const int place = tile + lane * EACH;
                double ps[EACH], ys[EACH], qs[EACH];
#pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    ps[e] = entry_or_zero(p_old, place + e + t0, n);
                    ys[e] = entry_or_zero(y_old, place + e + t0, n);
                    qs[e] = place + e + t0 < n && place + e >= -origin ? q_old[origin + place + e] : 0.0;
                }
                for (int s = 0; s < steps; ++s) {
                    const double gamma = __shfl_sync(FULL_WARP, own_gamma, s);
                    const double ratio = __shfl_sync(FULL_WARP, own_ratio, s);
#pragma unroll
                    for (int e = 0; e < EACH; ++e) {
                        const double old = ps[e];
                        ps[e] = fma(gamma, qs[e], ps[e]);
                        qs[e] = fma(gamma, old, qs[e]);
                        ys[e] = fma(-ratio, qs[e], ys[e]);
                        if (MF_WHOLE && place + e == 0) { // what vanished makes room for the predictor
                            ps[e] = t0 + s > 0 ? -gamma : -1.0;
                            ys[e] = ratio;
                        }
                    }
#if MF_FACTOR
                    const double scale = 1.0 / sqrt(__shfl_sync(FULL_WARP, own_pivot, s));
#pragma unroll
                    for (int e = 0; e < EACH; ++e) {
                        const int row = place + e + t0 + s;
                        if (lane * EACH + e < TILE && row < n) {
                            factor[((index_t)blockIdx.x * n + row) * n + t0 + s] = scale * qs[e];
                        }
                    }
#endif
                    if (s + 1 < steps) {
                        const double p_next = __shfl_down_sync(FULL_WARP, ps[0], 1);
                        const double y_next = __shfl_down_sync(FULL_WARP, ys[0], 1);
#pragma unroll
                        for (int e = 0; e + 1 < EACH; ++e) {
                            ps[e] = ps[e + 1];
                            ys[e] = ys[e + 1];
                        }
                        ps[EACH - 1] = p_next;
                        ys[EACH - 1] = y_next;
                    }
                }
#pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    const int entry = place + e + last;
                    if (lane * EACH + e < TILE && entry < n) {
                        p_new[entry] = ps[e];
                        y_new[entry] = ys[e];
                        q_new[origin + place + e] = qs[e];
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
    if (threadIdx.x == 0) {
        value[b] = failed == 0 ? -half - 0.5 * n * 1.8378770664093453 : -infinity(); // log(2 pi)
        info[b] = failed;
        shifts[b] = failed == 0 ? shift : 0.0;
        pivots[b] = pivot;
        ends[b] = side;
    }
}

// Sums along the diagonals of G = (alpha alpha' - C^-1) / 2: sums (count, N), where a thread has diagonal d. The inverse's
// are sum_l (N - d - 2 l) a_l a_{l+d} / v (Gohberg and Semencul). NaN where the factorisation failed.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_sums_f64(const double* __restrict__ scratch, const int* __restrict__ ends,
                      const int* __restrict__ info, const double* __restrict__ pivots,
                      double* __restrict__ sums, index_t start, int n) {
    const int blocks = (n + BLOCK - 1) / BLOCK;
    const index_t place = blockIdx.x / blocks;
    const int d = (int)(blockIdx.x % blocks) * BLOCK + threadIdx.x;
    const double* const a = scratch + (place * 2 + ends[start + place]) * 4 * n; // four vectors: a gradient's
    const double* const alpha = a + n;
    double squares = 0.0, inverse = 0.0, factor = n - d;
    for (int l = 0; l < n - d; ++l) {
        squares = fma(alpha[l], alpha[l + d], squares);
        inverse = fma(factor * a[l], a[l + d], inverse);
        factor -= 2.0;
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
