// Sums over pairs of Gaussians of several points together, a block or more for each Gaussian and each pair.
#include "joint.cuh"

constexpr int JOINT_BLOCK = 256;
constexpr int JOINT_RESIDENT = 2; // blocks an SM at least: left to itself ptxas spills to fit more of them

// Squared norm of the row n of a factor, L^-1 of a residual, and log |L|; NaN where L is no factor
template <typename Rows>
__device__ __forceinline__ void whitened_norms(const Rows& factor, int n, double* part, double* square_norm,
                                               double* log_det) {
    double norm = 0.0, logs = 0.0;
    for (int a = threadIdx.x; a < n; a += JOINT_BLOCK) {
        const double z = factor.row(n)[a], pivot = factor.row(a)[a];
        norm = fma(z, z, norm);
        logs += pivot > 0.0 ? log(pivot) : quiet_nan();
    }
    *square_norm = block_sum<JOINT_BLOCK>(norm, part);
    *log_det = block_sum<JOINT_BLOCK>(logs, part + JOINT_BLOCK / WARP);
}

// log |C_i| and log N_i(y) from the factor of C_i, whose row n is L^-1 (y - mu_i)
template <typename Rows>
__device__ __forceinline__ void finish_single(const Rows& factor, int n, index_t i, double* part,
                                              double* __restrict__ log_dets,
                                              double* __restrict__ log_densities) {
    double square_norm, log_det;
    whitened_norms(factor, n, part, &square_norm, &log_det);
    if (threadIdx.x == 0) {
        log_dets[i] = 2.0 * log_det;
        log_densities[i] = -0.5 * square_norm - log_det - 0.9189385332046727 * n; // log(2 pi) / 2
    }
}

// 2 W_ij s_ij (m_ij, 1) into `out` (n + 1), from the factor of S = C_i + C_j, whose row n is L^-1 d with
// d = mu_i - mu_j: log s_ij = (log|C_i| + log|C_j|) / 4 - log|S / 2| / 2 - d^T S^-1 d / 4 and
// m_ij = mu_j + C_j S^-1 d. `rest` and `solved` hold n doubles of shared memory each.
template <typename Rows>
__device__ __forceinline__ void
finish_pair(const Rows& factor, int n, index_t i, index_t j, double* part, double* rest, double* solved,
            const double* __restrict__ pair_weights, const double* __restrict__ means,
            const double* __restrict__ covariances, const double* __restrict__ log_dets, index_t h,
            double* __restrict__ out) {
    double square_norm, log_det;
    whitened_norms(factor, n, part, &square_norm, &log_det);
    // log(2) / 2 = 0.34657359027997264
    const double exponent =
        0.25 * (log_dets[i] + log_dets[j] - square_norm) - log_det + 0.34657359027997264 * n;
    const double weight = 2.0 * pair_weights[i * h + j] * exp(exponent);
    for (int a = threadIdx.x; a < n; a += JOINT_BLOCK) {
        rest[a] = factor.row(n)[a];
    }
    __syncthreads();
    for (int a = n - 1; a >= 0; --a) {
        const double value = rest[a] / factor.row(a)[a];
        for (int b = threadIdx.x; b < a; b += JOINT_BLOCK) {
            rest[b] = fma(-factor.row(a)[b], value, rest[b]);
        }
        if (threadIdx.x == 0) {
            solved[a] = value;
        }
        __syncthreads();
    }
    for (int a = warp_of(); a < n; a += JOINT_BLOCK / WARP) {
        double sum = 0.0;
        for (int b = lane_of(); b < n; b += WARP) {
            sum = fma(covariances[(j * n + a) * n + b], solved[b], sum);
        }
        sum = warp_sum(sum);
        if (lane_of() == 0) {
            out[a] = weight * (means[j * n + a] + sum);
        }
    }
    if (threadIdx.x == 0) {
        out[n] = weight;
    }
}

// One block a Gaussian: log_dets (h,) and log_densities (h,), NaN where C_i is not positive definite. Dynamic
// shared memory: n (n + 1) / 2 + n doubles.
extern "C" __global__ void __launch_bounds__(JOINT_BLOCK, JOINT_RESIDENT)
    joint_singles_f64(const double* __restrict__ means, const double* __restrict__ covariances,
                      const double* __restrict__ y, double* __restrict__ log_dets,
                      double* __restrict__ log_densities, int n) {
    MF_DYN_SMEM(double, memory);
    MF_SHARED(double, inverses, PANEL);
    MF_SHARED(double, part, 2 * JOINT_BLOCK / WARP);
    const PackedRows factor = {memory};
    const index_t i = blockIdx.x;
    for (int a = warp_of(); a <= n; a += JOINT_BLOCK / WARP) {
        for (int b = lane_of(); b <= a && b < n; b += WARP) {
            factor.row(a)[b] = a < n ? covariances[(i * n + a) * n + b] : y[b] - means[i * n + b];
        }
    }
    __syncthreads();
    factor_packed<JOINT_BLOCK>(factor, n, inverses);
    finish_single(factor, n, i, part, log_dets, log_densities);
}

// One block a pair (i, j < i), `first + blockIdx.x` counting rows of the strict lower triangle; `out`
// (pairs, n + 1). Dynamic shared memory: n (n + 1) / 2 + 3 n doubles.
extern "C" __global__ void __launch_bounds__(JOINT_BLOCK, JOINT_RESIDENT)
    joint_pairs_f64(const double* __restrict__ pair_weights, const double* __restrict__ means,
                    const double* __restrict__ covariances, const double* __restrict__ log_dets,
                    double* __restrict__ out, index_t h, int n, index_t first) {
    MF_DYN_SMEM(double, memory);
    MF_SHARED(double, inverses, PANEL);
    MF_SHARED(double, part, 2 * JOINT_BLOCK / WARP);
    const PackedRows factor = {memory};
    double* rest = factor.row(n) + n;
    const index_t pair = first + blockIdx.x, i = lower_row(pair) + 1, j = pair - lower_index(i - 1, 0);
    for (int a = warp_of(); a <= n; a += JOINT_BLOCK / WARP) {
        for (int b = lane_of(); b <= a && b < n; b += WARP) {
            const index_t place = a < n ? (index_t)a * n + b : b;
            factor.row(a)[b] = a < n ? covariances[i * n * n + place] + covariances[j * n * n + place]
                                     : means[i * n + place] - means[j * n + place];
        }
    }
    __syncthreads();
    factor_packed<JOINT_BLOCK>(factor, n, inverses);
    finish_pair(factor, n, i, j, part, rest, rest + n, pair_weights, means, covariances, log_dets, h,
                out + (index_t)blockIdx.x * (n + 1));
}

// Above the limit of shared memory a library factors bordered matrices (n + 1, n + 1): C_i or C_i + C_j with the
// residual as last row, below a corner so large that its own pivot cannot fail.
constexpr double CORNER = 1e300;

// Bordered C_i, of the Gaussians from `first` on
extern "C" __global__ void __launch_bounds__(JOINT_BLOCK)
    joint_border_singles_f64(const double* __restrict__ means, const double* __restrict__ covariances,
                             const double* __restrict__ y, double* __restrict__ out, index_t n, index_t first,
                             index_t count) {
    const index_t side = n + 1;
    for (index_t e = grid_start(); e < count * side * side; e += grid_stride()) {
        const index_t i = first + e / (side * side), a = e / side % side, b = e % side;
        const index_t k = min(a, b); // a place on the border
        out[e] =
            a < n && b < n ? covariances[(i * n + a) * n + b] : (k < n ? y[k] - means[i * n + k] : CORNER);
    }
}

// Bordered C_i + C_j, of the pairs from `first` on
extern "C" __global__ void __launch_bounds__(JOINT_BLOCK)
    joint_border_pairs_f64(const double* __restrict__ means, const double* __restrict__ covariances,
                           double* __restrict__ out, index_t n, index_t first, index_t count) {
    const index_t side = n + 1;
    for (index_t e = grid_start(); e < count * side * side; e += grid_stride()) {
        const index_t pair = first + e / (side * side), a = e / side % side, b = e % side;
        const index_t i = lower_row(pair) + 1, j = pair - lower_index(i - 1, 0), k = min(a, b);
        out[e] = a < n && b < n ? covariances[(i * n + a) * n + b] + covariances[(j * n + a) * n + b]
                                : (k < n ? means[i * n + k] - means[j * n + k] : CORNER);
    }
}

// `joint_singles_f64` from the factors (count, n + 1, n + 1) of the Gaussians from `first` on
extern "C" __global__ void __launch_bounds__(JOINT_BLOCK)
    joint_finish_singles_f64(const double* __restrict__ factors, double* __restrict__ log_dets,
                             double* __restrict__ log_densities, int n, index_t first) {
    MF_SHARED(double, part, 2 * JOINT_BLOCK / WARP);
    const index_t side = n + 1;
    const DenseRows factor = {factors + (index_t)blockIdx.x * side * side, side};
    finish_single(factor, n, first + blockIdx.x, part, log_dets, log_densities);
}

// `joint_pairs_f64` from the factors (pairs, n + 1, n + 1). Dynamic shared memory: 2 n doubles.
extern "C" __global__ void __launch_bounds__(JOINT_BLOCK)
    joint_finish_pairs_f64(const double* __restrict__ factors, const double* __restrict__ pair_weights,
                           const double* __restrict__ means, const double* __restrict__ covariances,
                           const double* __restrict__ log_dets, double* __restrict__ out, index_t h, int n,
                           index_t first) {
    MF_DYN_SMEM(double, rest);
    MF_SHARED(double, part, 2 * JOINT_BLOCK / WARP);
    const index_t side = n + 1;
    const DenseRows factor = {factors + (index_t)blockIdx.x * side * side, side};
    const index_t pair = first + blockIdx.x, i = lower_row(pair) + 1, j = pair - lower_index(i - 1, 0);
    finish_pair(factor, n, i, j, part, rest, rest + n, pair_weights, means, covariances, log_dets, h,
                out + (index_t)blockIdx.x * side);
}

// One block a row i from `first_row` on: adds the pairs `first_pair` to `last_pair` of that row, in order, to
// sums (h, n + 1). A row's sum is the same wherever the pairs are cut.
extern "C" __global__ void __launch_bounds__(JOINT_BLOCK)
    joint_accumulate_f64(const double* __restrict__ pairs, double* __restrict__ sums, index_t n,
                         index_t first_row, index_t first_pair, index_t last_pair) {
    const index_t i = first_row + blockIdx.x, row = lower_index(i - 1, 0);
    const index_t begin = max(row, first_pair), end = min(row + i, last_pair);
    for (index_t a = threadIdx.x; a <= n; a += JOINT_BLOCK) {
        double sum = sums[i * (n + 1) + a];
        for (index_t pair = begin; pair < end; ++pair) {
            sum += pairs[(pair - first_pair) * (n + 1) + a];
        }
        sums[i * (n + 1) + a] = sum;
    }
}
