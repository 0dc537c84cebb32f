// Log-likelihoods, gradients and predictions on regular 1-D grids from what Schur's algorithm (schur.cu) leaves.
#include "common.cuh"

constexpr int BLOCK = 256;
constexpr int WARPS = BLOCK / WARP;

// A trend's coefficients b ~ N(0, I), marginalised by least squares (mathematics.md section 10): by Gram and
// Schmidt, each column twice, [W; I] = Q R with W = L^-1 V, and what is left of [z; start] is [z - W b; -b].
//
// Rows of `white` (count, 1 + functions, N) are z and the columns of W, then z - W b and those of Q. `below` (count, 1
// + functions, functions) receives -b and the columns of R^-1, `start_at` has minus the coefficients already taken out
// of the targets. Log-likelihoods in `value` get what they lack. If `solved` is 1 `solutions`, in the shape of `white`,
// are C^-1 times targets and V, then (C + V V')^-1 y and C^-1 V R^-1. One block a mixture.
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
                       double* __restrict__ solutions, index_t start, int n, int functions, int solved) {
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
    if (solved != 0) {
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

// Means and latent variances from whitened covariances `solved` (count, N, M); a thread has a test point. `white`
// (count, 1 + functions, N) and `below` as toeplitz_trend_f64 leaves them, or z alone. The variances are those without
// a trend; `left` (count, functions, M) receives R^-T (v - W' w), whose squares it adds. NaN where the factorisation
// failed.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_predict_f64(const double* __restrict__ solved, const double* __restrict__ white,
                         const double* __restrict__ below, const double* __restrict__ basis_new,
                         const double* __restrict__ diagonal_stats, const int* __restrict__ info,
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
        variance[item] = good ? diagonal_stats[3 * (start + place)] - squares : quiet_nan();
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

// Variances below 0 become 0 where rounding explains them, else NaN, by the bound of gp_clip_f64; `totals` (count, M)
// has what it asks for of those below 0. Then the trend's share is added, the squares of `left` (count, functions, M).
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    toeplitz_clip_f64(const double* __restrict__ totals, const double* __restrict__ left,
                      const double* __restrict__ diagonal_stats, const double* __restrict__ jitters,
                      double* __restrict__ variance, index_t start, index_t count, index_t n_new, int n,
                      int functions) {
    for (index_t item = grid_start(); item < count * n_new; item += grid_stride()) {
        const index_t place = item / n_new, column = item % n_new;
        double value = variance[item];
        if (value < 0.0) {
            const double largest = diagonal_stats[3 * (start + place) + 2] + jitters[start + place];
            const double bound = 8.0 * n * EPSILON * largest * totals[item] * totals[item];
            value = -value <= bound ? 0.0 : quiet_nan();
        }
        for (int k = 0; k < functions; ++k) {
            value += square(left[(place * functions + k) * n_new + column]);
        }
        variance[item] = value;
    }
}

// Sums along the diagonals of G = (S' S - C^-1) / 2, S the rows of `solutions` (count, rows, N): sums (count, N), where
// a thread has diagonal d. The inverse's are sum_l (N - d - 2 l) a_l a_{l+d} / v (Gohberg and Semencul), a the
// predictor. NaN where the factorisation failed.
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
