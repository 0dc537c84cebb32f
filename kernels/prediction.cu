// Sums over all pairs of Gaussians, point by point. Those of several points together are in joint.cu.
//
// Pairs i >= j come as a packed lower triangle. A point's sums belong to one block, or to one block a slice of
// PAIR_SLICE pairs and then one warp: their order depends on neither the other points nor how points are chunked.
#include "prediction.cuh"

constexpr int PAIR_BLOCK = 256;
constexpr int PAIR_WARPS = PAIR_BLOCK / WARP;
constexpr index_t PAIR_SLICE = 8192; // 32 pairs a thread: the reduction is then a few per cent of the work
constexpr int PAIR_RESIDENT = 2;     // blocks an SM at least: left to itself ptxas spills to fit more of them
constexpr int MOMENTS = 6;
constexpr int GROUP = 4; // rows of y, or of levels, that share the work on the pairs of a point
constexpr int DENSITY_BLOCK = 256;
constexpr int DENSITY_WARPS = DENSITY_BLOCK / WARP;
constexpr int DENSITY_POINTS = 4; // points of a block that share every entry of the factor it reads

// Sums over the block of `N` values a thread, in `sums` (N doubles); `part` holds N PAIR_WARPS. Ends without a
// barrier: thread m has written sum m.
template <int N>
__device__ __forceinline__ void sum_columns(const double (&values)[N], double* part, double* sums) {
#pragma unroll
    for (int m = 0; m < N; ++m) {
        const double value = warp_sum(values[m]);
        if (lane_of() == 0) {
            part[m * PAIR_WARPS + warp_of()] = value;
        }
    }
    __syncthreads();
    if (threadIdx.x < N) {
        double total = 0.0;
        for (int w = 0; w < PAIR_WARPS; ++w) {
            total += part[threadIdx.x * PAIR_WARPS + w];
        }
        sums[threadIdx.x] = total;
    }
}

// The packed lower triangle of `pair_weights` (h, h), entries off the diagonal doubled
extern "C" __global__ void __launch_bounds__(PAIR_BLOCK)
    pair_pack_f64(const double* __restrict__ pair_weights, double* __restrict__ packed, index_t h) {
    for (index_t k = grid_start(); k < lower_index(h, 0); k += grid_stride()) {
        const index_t i = lower_row(k), j = k - lower_index(i, 0);
        packed[k] = (i == j ? 1.0 : 2.0) * pair_weights[i * h + j];
    }
}

// One block a point, `first + blockIdx.x`: its centre, the mean weighted by the diagonal of W, and its `locals`.
//
// Second moments about this centre lose no more digits than about the mixture's mean, up to the factor
// 2 + 2 sum |W s| / trace W: the two means are closer than the spread of the terms. The anchor, the Gaussian of
// most weight, keeps the centre exact where all means are equal.
extern "C" __global__ void __launch_bounds__(PAIR_BLOCK, PAIR_RESIDENT)
    pair_locals_f64(const double* __restrict__ pair_weights, const index_t* __restrict__ anchor,
                    const double* __restrict__ means, const double* __restrict__ variances,
                    double* __restrict__ centre, double* __restrict__ locals, index_t h, index_t n_points,
                    index_t first) {
    MF_SHARED(double, part, 2 * PAIR_WARPS);
    const index_t point = first + blockIdx.x;
    const double reference = means[anchor[0] * n_points + point];
    double mass = 0.0, moment = 0.0;
    for (index_t i = threadIdx.x; i < h; i += PAIR_BLOCK) {
        const double weight = pair_weights[i * h + i];
        mass += weight;
        moment = fma(weight, means[i * n_points + point] - reference, moment);
    }
    mass = block_sum<PAIR_BLOCK>(mass, part);
    moment = block_sum<PAIR_BLOCK>(moment, part + PAIR_WARPS);
    const double shift = moment / mass;
    const double middle = fabs(shift) < infinity() ? reference + shift : reference;
    double* own = locals + (index_t)blockIdx.x * 3 * h;
    for (index_t i = threadIdx.x; i < h; i += PAIR_BLOCK) {
        const double precision = 1.0 / variances[i * n_points + point];
        own[i] = means[i * n_points + point] - middle;
        own[h + i] = precision;
        own[2 * h + i] = sqrt(sqrt(precision));
    }
    if (threadIdx.x == 0) {
        centre[point] = middle;
    }
}

// One block a slice of a point's pairs: the sums of w, w m, w (m^2 + V), and the same of |w|
extern "C" __global__ void __launch_bounds__(PAIR_BLOCK)
    pair_moments_f64(const double* __restrict__ packed, const double* __restrict__ locals,
                     double* __restrict__ partial, index_t h, index_t n_slices) {
    MF_SHARED(double, part, MOMENTS* PAIR_WARPS);
    const index_t point = blockIdx.x / n_slices, begin = (blockIdx.x % n_slices) * PAIR_SLICE;
    const index_t end = min(begin + PAIR_SLICE, lower_index(h, 0));
    const double* own = locals + point * 3 * h;
    double sums[MOMENTS] = {};
    TriangleCursor at(begin + threadIdx.x);
    for (index_t k = begin + threadIdx.x; k < end; k += PAIR_BLOCK) {
        const Pair pair = pair_of(packed[k], own, h, at.i, at.j);
        const double second = fma(pair.centre, pair.centre, 2.0 * pair.root * pair.root);
        const double size = fabs(pair.weight);
        sums[0] += pair.weight;
        sums[1] = fma(pair.weight, pair.centre, sums[1]);
        sums[2] = fma(pair.weight, second, sums[2]);
        sums[3] += size;
        sums[4] = fma(size, pair.centre, sums[4]);
        sums[5] = fma(size, second, sums[5]);
        at.advance(PAIR_BLOCK);
    }
    sum_columns(sums, part, partial + (index_t)blockIdx.x * MOMENTS);
}

// One warp a point: its sums over the slices; total, mean less the centre, and variance
extern "C" __global__ void __launch_bounds__(PAIR_BLOCK)
    pair_moments_finish_f64(const double* __restrict__ partial, double* __restrict__ total,
                            double* __restrict__ shift, double* __restrict__ variance, index_t n_slices,
                            index_t count, index_t first) {
    const index_t local = (index_t)blockIdx.x * PAIR_WARPS + warp_of();
    if (local >= count) {
        return;
    }
    double sums[MOMENTS] = {};
    for (index_t slice = lane_of(); slice < n_slices; slice += WARP) {
#pragma unroll
        for (int m = 0; m < MOMENTS; ++m) {
            sums[m] += partial[(local * n_slices + slice) * MOMENTS + m];
        }
    }
#pragma unroll
    for (int m = 0; m < MOMENTS; ++m) {
        sums[m] = warp_sum(sums[m]);
    }
    if (lane_of() != 0) {
        return;
    }
    const index_t point = first + local;
    const bool vanishes = !(sums[0] > 0.0);
    const double mean = sums[1] / sums[0];
    const double spread = fma(-mean, sums[1], sums[2]);
    const double magnitude = fma(mean, fma(mean, sums[3], -2.0 * sums[4]), sums[5]);
    total[point] = sums[0];
    shift[point] = vanishes ? quiet_nan() : mean;
    variance[point] = vanishes ? quiet_nan() : fmax(spread, EPSILON * magnitude) / sums[0];
}

// Masses and slopes over all pairs at GROUP values; those not `used` cost nothing. sums[2 l] and
// sums[2 l + 1] belong to value l.
__device__ __forceinline__ void sum_tails(const double* __restrict__ packed, const double* __restrict__ own,
                                          index_t h, const bool (&used)[GROUP], const double (&u)[GROUP],
                                          const double (&sign)[GROUP], double (&sums)[2 * GROUP]) {
#pragma unroll
    for (int m = 0; m < 2 * GROUP; ++m) {
        sums[m] = 0.0;
    }
    TriangleCursor at(threadIdx.x);
    for (index_t k = threadIdx.x; k < lower_index(h, 0); k += PAIR_BLOCK) {
        const Pair pair = pair_of(packed[k], own, h, at.i, at.j);
#pragma unroll
        for (int l = 0; l < GROUP; ++l) {
            if (used[l]) {
                add_tail(pair, u[l], sign[l], &sums[2 * l], &sums[2 * l + 1]);
            }
        }
        at.advance(PAIR_BLOCK);
    }
}

// One block a point and GROUP rows of y (k, M): sum_ij W_ij s_ij P(N(m_ij, V_ij) <= y)
extern "C" __global__ void __launch_bounds__(PAIR_BLOCK, PAIR_RESIDENT)
    pair_cdf_f64(const double* __restrict__ packed, const double* __restrict__ locals,
                 const double* __restrict__ centre, const double* __restrict__ y, double* __restrict__ out,
                 index_t h, index_t n_points, index_t first, index_t n_rows) {
    MF_SHARED(double, part, 2 * GROUP * PAIR_WARPS);
    MF_SHARED(double, totals, 2 * GROUP);
    const index_t n_groups = (n_rows + GROUP - 1) / GROUP;
    const index_t local = blockIdx.x / n_groups, row = (blockIdx.x % n_groups) * GROUP, point = first + local;
    bool used[GROUP];
    double u[GROUP], sign[GROUP], sums[2 * GROUP];
#pragma unroll
    for (int l = 0; l < GROUP; ++l) {
        used[l] = row + l < n_rows;
        u[l] = used[l] ? y[(row + l) * n_points + point] - centre[point] : 0.0;
        sign[l] = 1.0;
    }
    sum_tails(packed, locals + local * 3 * h, h, used, u, sign, sums);
    sum_columns(sums, part, totals);
    if (threadIdx.x % 2 == 0 && threadIdx.x < 2 * GROUP && row + threadIdx.x / 2 < n_rows) {
        out[(row + threadIdx.x / 2) * n_points + point] = totals[threadIdx.x]; // its own sum
    }
}

// One block a point and GROUP rows of levels (k, M): quantiles less the point's centre. Thread l keeps the
// search for level l; all threads sum over pairs for every search that still goes on.
extern "C" __global__ void __launch_bounds__(PAIR_BLOCK, PAIR_RESIDENT)
    pair_quantiles_f64(const double* __restrict__ packed, const double* __restrict__ locals,
                       const double* __restrict__ total, const double* __restrict__ shift,
                       const double* __restrict__ variance, const double* __restrict__ levels,
                       double* __restrict__ out, index_t h, index_t n_points, index_t first, index_t n_rows) {
    MF_SHARED(double, part, 2 * GROUP * PAIR_WARPS);
    MF_SHARED(double, at, GROUP);
    MF_SHARED(double, signs, GROUP);
    MF_SHARED(int, active, GROUP);
    const index_t n_groups = (n_rows + GROUP - 1) / GROUP;
    const index_t local = blockIdx.x / n_groups, row = (blockIdx.x % n_groups) * GROUP, point = first + local;
    const int l = threadIdx.x;
    const bool mine = l < GROUP && row + l < n_rows;
    QuantileSearch search = {};
    if (l < GROUP) {
        active[l] = mine && search.start(levels[(row + l) * n_points + point], shift[point], variance[point]);
        at[l] = search.u;
        signs[l] = search.sign;
    }
    __syncthreads();
    for (int step = 0; step < 200; ++step) {
        bool used[GROUP];
        double u[GROUP], sign[GROUP], sums[2 * GROUP];
        bool any = false;
#pragma unroll
        for (int m = 0; m < GROUP; ++m) {
            used[m] = active[m] != 0;
            u[m] = at[m];
            sign[m] = signs[m];
            any = any || used[m];
        }
        if (!any) {
            break;
        }
        sum_tails(packed, locals + local * 3 * h, h, used, u, sign, sums);
#pragma unroll
        for (int m = 0; m < 2 * GROUP; ++m) {
            const double value = warp_sum(sums[m]);
            if (lane_of() == 0) {
                part[m * PAIR_WARPS + warp_of()] = value;
            }
        }
        __syncthreads();
        if (l < GROUP && active[l]) {
            double mass = 0.0, slope = 0.0;
            for (int w = 0; w < PAIR_WARPS; ++w) {
                mass += part[2 * l * PAIR_WARPS + w];
                slope += part[(2 * l + 1) * PAIR_WARPS + w];
            }
            active[l] = search.step(step, mass / total[point], DENSITY_FACTOR * slope / total[point]);
            at[l] = search.u;
        }
        __syncthreads();
    }
    if (mine) {
        out[(row + l) * n_points + point] = search.sign * search.u;
    }
}

// One block a node (local point, u): CDF and density there, into rows 1 and 2 of `nodes` (3, n); row 0 is u
extern "C" __global__ void __launch_bounds__(PAIR_BLOCK, PAIR_RESIDENT)
    pair_nodes_f64(const double* __restrict__ packed, const double* __restrict__ locals,
                   const double* __restrict__ total, const index_t* __restrict__ owners,
                   double* __restrict__ nodes, index_t h, index_t first, index_t n_nodes) {
    MF_SHARED(double, part, 2 * PAIR_WARPS);
    const index_t local = owners[blockIdx.x];
    const double u = nodes[blockIdx.x];
    double mass = 0.0, slope = 0.0;
    TriangleCursor at(threadIdx.x);
    for (index_t k = threadIdx.x; k < lower_index(h, 0); k += PAIR_BLOCK) {
        add_tail(pair_of(packed[k], locals + local * 3 * h, h, at.i, at.j), u, 1.0, &mass, &slope);
        at.advance(PAIR_BLOCK);
    }
    mass = block_sum<PAIR_BLOCK>(mass, part);
    slope = block_sum<PAIR_BLOCK>(slope, part + PAIR_WARPS);
    if (threadIdx.x == 0) {
        nodes[n_nodes + blockIdx.x] = mass / total[first + local];
        nodes[2 * n_nodes + blockIdx.x] = DENSITY_FACTOR * slope / total[first + local];
    }
}

__device__ __forceinline__ Node node_at(const double* __restrict__ nodes, index_t n_nodes, index_t k) {
    return {nodes[k], nodes[n_nodes + k], nodes[2 * n_nodes + k]};
}

// Errors of n cubics; `left`, `middle` and `right` are (3, n)
extern "C" __global__ void __launch_bounds__(PAIR_BLOCK, PAIR_RESIDENT)
    cubic_errors_f64(const double* __restrict__ left, const double* __restrict__ middle,
                     const double* __restrict__ right, double* __restrict__ errors, index_t n) {
    for (index_t k = grid_start(); k < n; k += grid_stride()) {
        errors[k] = cubic_error(node_at(left, n, k), node_at(middle, n, k), node_at(right, n, k));
    }
}

// Draws less the centres at `levels` (k, M) for `count` points from `first` on. The intervals of a point,
// `edges[local]` up to `edges[local + 1]`, are in order of u; `left` and `right` are (3, n).
extern "C" __global__ void __launch_bounds__(PAIR_BLOCK, PAIR_RESIDENT)
    pair_invert_f64(const index_t* __restrict__ edges, const double* __restrict__ left,
                    const double* __restrict__ right, const double* __restrict__ levels,
                    double* __restrict__ out, index_t n, index_t n_points, index_t first, index_t count,
                    index_t n_rows) {
    for (index_t e = grid_start(); e < count * n_rows; e += grid_stride()) {
        const index_t local = e % count, place = e / count * n_points + first + local;
        const double level = levels[place];
        index_t low = edges[local],
                high = edges[local + 1] - 1; // the first interval that ends at `level` or above
        while (low < high) {
            const index_t middle = low + (high - low) / 2;
            if (right[n + middle] < level) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        out[place] = invert_cubic(level, node_at(left, n, low), node_at(right, n, low));
    }
}

// One block a point: |F_i| sqrt(N_i(y)) over the largest of them, into `amplitudes` (count, h), and its log
extern "C" __global__ void __launch_bounds__(DENSITY_BLOCK)
    density_amplitudes_f64(const double* __restrict__ log_norms, const double* __restrict__ means,
                           const double* __restrict__ variances, const double* __restrict__ y,
                           double* __restrict__ amplitudes, double* __restrict__ largest, index_t h,
                           index_t n_points, index_t first) {
    MF_SHARED(double, part, DENSITY_WARPS);
    const index_t point = first + blockIdx.x;
    double* own = amplitudes + (index_t)blockIdx.x * h;
    double top = -infinity();
    for (index_t i = threadIdx.x; i < h; i += DENSITY_BLOCK) {
        const double gap = y[point] - means[i * n_points + point], v = variances[i * n_points + point];
        // log(2 pi) / 4 = 0.4594692666023363
        const double value = log_norms[i] - 0.25 * (gap / v * gap + log(v)) - 0.4594692666023363;
        own[i] = value;
        top = fmax(top, value);
    }
    top = block_max<DENSITY_BLOCK>(top, part);
    for (index_t i = threadIdx.x; i < h; i += DENSITY_BLOCK) { // the entries this thread wrote
        own[i] = top > -infinity() ? exp(own[i] - top) : 0.0;
    }
    if (threadIdx.x == 0) {
        largest[blockIdx.x] = top;
    }
}

// One block for DENSITY_POINTS points: log |F^T a|^2; `directions` (h, r) has rows F_i / |F_i|. Lanes are
// columns of F, warps take rows in turn.
extern "C" __global__ void __launch_bounds__(DENSITY_BLOCK)
    pair_log_density_f64(const double* __restrict__ directions, const double* __restrict__ amplitudes,
                         const double* __restrict__ largest, double* __restrict__ out, index_t h,
                         index_t rank, index_t first, index_t count) {
    MF_SHARED(double, part, DENSITY_POINTS* DENSITY_BLOCK);
    const int lane = lane_of(), warp = warp_of();
    const index_t start = (index_t)blockIdx.x * DENSITY_POINTS;
    double square_sum = 0.0; // of the point start + warp, for the first DENSITY_POINTS warps
    for (index_t column = 0; column < rank; column += WARP) {
        double sums[DENSITY_POINTS] = {};
        for (index_t i = warp; i < h; i += DENSITY_WARPS) {
            const double direction = column + lane < rank ? directions[i * rank + column + lane] : 0.0;
#pragma unroll
            for (int p = 0; p < DENSITY_POINTS; ++p) {
                if (start + p < count) {
                    sums[p] = fma(direction, amplitudes[(start + p) * h + i], sums[p]);
                }
            }
        }
#pragma unroll
        for (int p = 0; p < DENSITY_POINTS; ++p) {
            part[(p * DENSITY_WARPS + warp) * WARP + lane] = sums[p];
        }
        __syncthreads();
        if (warp < DENSITY_POINTS) {
            double amplitude = 0.0;
            for (int w = 0; w < DENSITY_WARPS; ++w) {
                amplitude += part[(warp * DENSITY_WARPS + w) * WARP + lane];
            }
            square_sum = fma(amplitude, amplitude, square_sum);
        }
        __syncthreads();
    }
    square_sum = warp_sum(square_sum);
    if (lane == 0 && warp < DENSITY_POINTS && start + warp < count) {
        const double log_square = square_sum > 0.0 ? log(square_sum) : -infinity();
        out[first + start + warp] = 2.0 * largest[start + warp] + log_square;
    }
}
