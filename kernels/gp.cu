// Predictions of a batch of Gaussian processes from the factors of their covariances.
#include "gp.cuh"

constexpr int POINTS = WARP - 1; // test points of a block: the last lane solves for the targets
constexpr int GP_RESIDENT = 3;   // blocks an SM at least: left to itself ptxas spills to fit a fourth

// One block a mixture and POINTS test points: V = L^-1 K(X, X*) in place of `cross` (B, N, M), means V'z with
// z = L^-1 y, and k(0) - |v|^2. The targets ride along as one more column, so z costs no pass of its own;
// `whitened` (B, tiles, N) keeps each block's. Factors (B, N, N) hold NaN where a factorisation failed.
extern "C" __global__ void __launch_bounds__(GP_BLOCK, GP_RESIDENT)
    gp_solve_f64(const double* __restrict__ factors, const double* __restrict__ y,
                 const index_t* __restrict__ offsets, const double* __restrict__ weights,
                 double* __restrict__ cross, double* __restrict__ whitened, double* __restrict__ mean,
                 double* __restrict__ variance, index_t n_points, index_t n_new, index_t stride,
                 index_t first_new) {
    MF_SHARED(double, left, TILE_SIZE);
    MF_SHARED(double, right, TILE_SIZE);
    const index_t n_tiles = (n_new + POINTS - 1) / POINTS;
    const index_t b = blockIdx.x / n_tiles, tile = blockIdx.x % n_tiles, column = tile * POINTS + lane_of();
    const bool is_target = lane_of() == POINTS, is_point = !is_target && column < n_new;
    const double* factor = factors + b * n_points * n_points;
    // This lane's column of right-hand sides, then of solutions; a lane without one gets zeros.
    double* solution =
        is_target ? whitened + (b * n_tiles + tile) * n_points : cross + b * n_points * n_new + column;
    const index_t step = is_target ? 1 : n_new;
    double mean_sum = 0.0, square_sum = 0.0;
    for (index_t first = 0; first < n_points; first += TILE) {
        double values[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; ++k) {
            const index_t row = first + tile_row(k);
            values[k] = row >= n_points ? 0.0 : is_target ? y[row] : is_point ? solution[row * step] : 0.0;
        }
        for (index_t before = 0; before < first; before += TILE) {
            __syncthreads();
            load_tile(factor, n_points, n_points, first, before, left);
#pragma unroll
            for (int k = 0; k < ROWS; ++k) { // the rows that this very thread solved for
                const index_t row = before + tile_row(k);
                right[tile_row(k) * STRIDE + lane_of()] = is_target || is_point ? solution[row * step] : 0.0;
            }
            __syncthreads();
            subtract_product(left, right, values);
        }
        __syncthreads();
        load_tile(factor, n_points, n_points, first, first, left);
        __syncthreads();
        solve_tile(left, right, values);
#pragma unroll
        for (int k = 0; k < ROWS; ++k) {
            const index_t row = first + tile_row(k);
            if (row < n_points && (is_target || is_point)) {
                solution[row * step] = values[k];
            }
            mean_sum = fma(values[k], __shfl_sync(FULL_WARP, values[k], POINTS), mean_sum);
            square_sum = fma(values[k], values[k], square_sum);
        }
    }
    left[warp_of() * STRIDE + lane_of()] = mean_sum; // the last barrier came after all reads of the tiles
    right[warp_of() * STRIDE + lane_of()] = square_sum;
    __syncthreads();
    if (warp_of() == 0 && is_point) {
        double k0 = 0.0; // in the order of the components
        for (index_t q = offsets[b]; q < offsets[b + 1]; ++q) {
            k0 += weights[q];
        }
        mean_sum = 0.0;
        square_sum = 0.0;
        for (int w = 0; w < GP_WARPS; ++w) {
            mean_sum += left[w * STRIDE + lane_of()];
            square_sum += right[w * STRIDE + lane_of()];
        }
        mean[b * stride + first_new + column] = mean_sum;
        variance[b * stride + first_new + column] = k0 - square_sum;
    }
}

// One block a mixture and tile of K(X*, X*) - V'V on or below the diagonal: subtracts V'V from `covariance`
// (B, M, M) and mirrors the result. `solved` (B, N, M).
extern "C" __global__ void __launch_bounds__(GP_BLOCK)
    gp_covariance_f64(const double* __restrict__ solved, double* __restrict__ covariance, index_t n_points,
                      index_t n_new) {
    MF_SHARED(double, left, TILE_SIZE);
    MF_SHARED(double, right, TILE_SIZE);
    const index_t side = (n_new + TILE - 1) / TILE, n_tiles = lower_index(side, 0);
    const index_t b = blockIdx.x / n_tiles, place = blockIdx.x % n_tiles;
    const index_t tile_i = lower_row(place), tile_j = place - lower_index(tile_i, 0);
    const index_t j = tile_j * TILE + lane_of();
    const double* rows = solved + b * n_points * n_new;
    double* out = covariance + b * n_new * n_new;
    double values[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        const index_t i = tile_i * TILE + tile_row(k);
        values[k] = i < n_new && j <= i ? out[i * n_new + j] : 0.0;
    }
    for (index_t first = 0; first < n_points; first += TILE) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ROWS; ++k) { // V' by rows on the left, V on the right
            const index_t row = first + tile_row(k), i = tile_i * TILE + lane_of();
            left[lane_of() * STRIDE + tile_row(k)] =
                row < n_points && i < n_new ? rows[row * n_new + i] : 0.0;
            right[tile_row(k) * STRIDE + lane_of()] =
                row < n_points && j < n_new ? rows[row * n_new + j] : 0.0;
        }
        __syncthreads();
        subtract_product(left, right, values);
    }
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        const index_t i = tile_i * TILE + tile_row(k);
        if (i < n_new && j <= i) {
            out[i * n_new + j] = values[k];
            out[j * n_new + i] = values[k];
        }
    }
}

// One block a mixture and TILE test points: variances below 0 become 0 where rounding explains them, else NaN.
//
// The factor is exact for a matrix within N eps max diag(C) of C, entry by entry, which moves |v|^2 by up to that
// times the square of the sum of |C^-1 k|; the bound is 8 N eps max diag(C) (1 + sum |C^-1 k|)^2. `largest_noise` (B,)
// holds max diag(C) less k(0). Columns of `solved` that are looked at are overwritten by L^-T v in the making.
extern "C" __global__ void __launch_bounds__(GP_BLOCK)
    gp_clip_f64(const double* __restrict__ factors, const index_t* __restrict__ offsets,
                const double* __restrict__ weights, const double* __restrict__ largest_noise,
                double* __restrict__ solved, double* __restrict__ variance, index_t n_points, index_t n_new,
                index_t stride, index_t first_new) {
    const index_t n_tiles = (n_new + TILE - 1) / TILE;
    const index_t b = blockIdx.x / n_tiles, column = blockIdx.x % n_tiles * TILE + lane_of();
    const double raw = column < n_new ? variance[b * stride + first_new + column] : 0.0;
    if (!__any_sync(FULL_WARP, raw < 0.0)) {
        return; // every warp of the block sees the same points
    }
    const double* factor = factors + b * n_points * n_points;
    double* own = solved + b * n_points * n_new + column;
    double total = 1.0;
    for (index_t a = n_points - 1; a >= 0; --a) {
        const double* row = factor + a * n_points;
        if (raw < 0.0) {
            const double value = own[a * n_new] / row[a];
            total += fabs(value);
            for (index_t i = warp_of(); i < a; i += GP_WARPS) {
                own[i * n_new] = fma(-row[i], value, own[i * n_new]);
            }
        }
        __syncthreads();
    }
    if (warp_of() == 0 && raw < 0.0) {
        double largest = largest_noise[b];
        for (index_t q = offsets[b]; q < offsets[b + 1]; ++q) {
            largest += weights[q];
        }
        const double bound = 8.0 * (double)n_points * EPSILON * largest * total * total;
        variance[b * stride + first_new + column] = -raw <= bound ? 0.0 : quiet_nan();
    }
}
