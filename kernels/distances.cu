// Pairwise distances of mixtures, their self terms and their gradients.
//
//     MF_D     axes; 0: any number, given at run time
//     MF_FORM  0 energy distance, 1 reflected, 2 Gaussian MMD, 3 reflected
//     MF_MIXED 1: float32 terms, float64 sums (values of forms 0 and 1)
// variants: MF_D=1,2,5,10,18,0 MF_FORM=0,1,2,3 MF_MIXED=0
// variants: MF_D=1,5,10,18,0 MF_FORM=0,1 MF_MIXED=1
#include "hyperkernel.cuh"
#include "partial_gradients.cuh"

#ifndef MF_D
#define MF_D 1
#endif
#ifndef MF_FORM
#define MF_FORM 0
#endif
#ifndef MF_MIXED
#define MF_MIXED 0
#endif

// Most axes for which the registers hold an atom and the sums of a gradient for every coordinate beside it
constexpr int GRADIENT_AXES = 10;
constexpr int VALUE_D = MF_D <= value_axes(MF_FORM, MF_MIXED != 0) ? MF_D : 0;
constexpr int GRADIENT_D = MF_D <= GRADIENT_AXES ? MF_D : 0;
constexpr bool MIXED = MF_MIXED != 0;

constexpr int PAIR_BLOCKS = pair_blocks(VALUE_D, MF_FORM, MF_MIXED != 0);

// Mixtures of b whose gradients in a component are summed by themselves; these partial sums are then added in order
constexpr int WINDOW = 32;

// ---- values ----

// One block for each pair of tiles. `symmetric` (b is a): only what lies above the diagonal is computed.
extern "C" __global__ void __launch_bounds__(PAIR_THREADS, PAIR_BLOCKS)
    pairwise_f64(const index_t* __restrict__ offsets_a, const double* __restrict__ weights_a,
                 const double* __restrict__ points_a, const double* __restrict__ data_a,
                 const index_t* __restrict__ starts, const index_t* __restrict__ offsets_b,
                 const double* __restrict__ weights_b, const double* __restrict__ points_b,
                 const double* __restrict__ data_b, double* __restrict__ out, index_t n_b, int n_dims,
                 int n_columns, double bandwidth, int symmetric, int power, double outputscale, double rate) {
    MF_SHARED(double, sums, TILE_A* LEADING);
    MF_SHARED(int, ends, TILE_B);
    MF_SHARED(int, rows, TILE_A + 1);
    const TileMemory memory = {sums, ends, rows};
    const unsigned n_tiles_b = (unsigned)((n_b + TILE_B - 1) / TILE_B); // tiles of b; all blocks fit 32 bits
    const PairTile tile = tile_of(starts, blockIdx.x / n_tiles_b, blockIdx.x % n_tiles_b, n_b);
    if (symmetric && tile.first_b + tile.n_b <= tile.first_a) {
        return;
    }
    const Batch a = {offsets_a, weights_a, points_a, data_a};
    const Batch b = {offsets_b, weights_b, points_b, data_b};
    const double carry =
        fill_tile<VALUE_D, MF_FORM, MIXED>(a, b, tile, n_dims, bandwidth * bandwidth, memory);
    const int k = threadIdx.x % TILE_B; // one column for each thread
    if (k < tile.n_b) {
        const index_t i_b = tile.first_b + k;
        const double* const row_b = data_b + i_b * n_columns;
        const Own own_b = own_of(row_b);
#pragma unroll 1
        for (int i = threadIdx.x / TILE_B; i < tile.n_a; i += PAIR_THREADS / TILE_B) {
            const index_t i_a = tile.first_a + i;
            if (symmetric && i_b < i_a) {
                continue;
            }
            double distance = 0.0;
            if (!symmetric || i_b > i_a) {
                const double* const row_a = data_a + i_a * n_columns;
                distance =
                    finish(tile_cross(memory, i, k, carry), own_of(row_a), own_b, row_a, row_b, n_columns);
            }
            const double value = covariance(power, outputscale, rate, distance);
            out[i_a * n_b + i_b] = value;
            if (symmetric) {
                sums[rows[i] * LEADING + k] = value; // this thread alone has read that row
            }
        }
    }
    if (!symmetric) {
        return;
    }
    __syncthreads();
#pragma unroll 1
    for (int e = threadIdx.x; e < tile.n_a * tile.n_b; e += PAIR_THREADS) {
        const int column = e / tile.n_a;
        const int i = e % tile.n_a;
        const index_t i_a = tile.first_a + i;
        const index_t i_b = tile.first_b + column;
        if (i_b > i_a) {
            out[i_b * n_b + i_a] = sums[rows[i] * LEADING + column];
        }
    }
}

// c(a, a), mass and first moment of every mixture: the first columns of `data`. One block for each tile of a;
// the order of every sum is that of `Cross`. The moment is 0 without the mass correction.
extern "C" __global__ void __launch_bounds__(TILE_A, MIN_BLOCKS)
    self_terms_f64(const index_t* __restrict__ offsets, const double* __restrict__ weights,
                   const double* __restrict__ points, const index_t* __restrict__ starts,
                   double* __restrict__ data, int n_dims, int n_columns, double bandwidth,
                   int mass_correction) {
    typedef Precision<MIXED>::real R;
    typedef Precision<MIXED>::coordinate C;
    MF_SHARED(double, sums, TILE_A);
    MF_SHARED(double, radii, TILE_A);
    const int t = threadIdx.x;
    const index_t first = starts[blockIdx.x];
    const index_t last = starts[blockIdx.x + 1];
    const index_t end = offsets[last];
    double total = 0.0, mass = 0.0, moment = 0.0; // of mixture first + t
    for (index_t base = offsets[first]; base < end; base += TILE_A) {
        const int n = (int)min((index_t)TILE_A, end - base);
        if (t < n) {
            const index_t i = base + t;
            const index_t owner = owner_of(offsets, first, last, i);
            Total<R> row;
            row.start();
            for (index_t j = offsets[owner]; j < offsets[owner + 1]; ++j) {
                Gap<MF_FORM, R> gap;
                gap.start();
                for (int d = 0; d < n_dims; ++d) {
                    gap.add(axis_of<C>(points, i, d, n_dims), axis_of<C>(points, j, d, n_dims),
                            bandwidth * bandwidth);
                }
                R weight;
                convert(weights[j], &weight);
                row.add(weight, gap.value());
            }
            sums[t] = weights[i] * row.value();
            double square = 0.0;
            for (int d = 0; d < 2 * n_dims; ++d) {
                square = add_square(points[i * 2 * n_dims + d], square);
            }
            radii[t] = mass_correction ? sqrt(square) : 0.0;
        }
        __syncthreads();
        if (first + t < last) {
            const index_t from = max(offsets[first + t] - base, (index_t)0);
            const index_t stop = min(offsets[first + t + 1] - base, (index_t)n);
            for (index_t i = from; i < stop; ++i) {
                total += sums[i];
                mass += weights[base + i];
                moment = fma(weights[base + i], radii[i], moment);
            }
        }
        __syncthreads();
    }
    if (first + t < last) {
        double* row = data + (first + t) * n_columns;
        row[0] = total;
        row[1] = mass;
        row[2] = moment;
    }
}

// ---- gradients ----

// Sums over b of the cotangents of mixture a, plain and times the differences of moments and of masses: one
// block for each row. A pair that is clamped at 0, whose distance is that of the features alone, has cotangent 0 here
// and in `unclamped`.
extern "C" __global__ void __launch_bounds__(TILE_A, MIN_BLOCKS)
    cotangent_sums_f64(const double* __restrict__ data_a, const double* __restrict__ data_b,
                       const double* __restrict__ cotangent, const double* __restrict__ distance,
                       double* __restrict__ out, double* __restrict__ unclamped, index_t n_b, int n_columns) {
    MF_SHARED(double, part, 3 * (TILE_A / WARP));
    const index_t a = blockIdx.x;
    const double* const row_a = data_a + a * n_columns;
    double plain = 0.0, moment = 0.0, mass = 0.0;
    for (index_t b = threadIdx.x; b < n_b; b += TILE_A) {
        const double* const row_b = data_b + b * n_columns;
        const double g = distance[a * n_b + b] > with_features(0.0, row_a, row_b, n_columns)
                             ? cotangent[a * n_b + b]
                             : 0.0;
        unclamped[a * n_b + b] = g;
        plain += g;
        moment = fma(g, row_a[2] - row_b[2], moment);
        mass = fma(g, row_a[1] - row_b[1], mass);
    }
    plain = block_sum<TILE_A>(plain, part);
    moment = block_sum<TILE_A>(moment, part + TILE_A / WARP);
    mass = block_sum<TILE_A>(mass, part + 2 * (TILE_A / WARP));
    if (threadIdx.x == 0) {
        out[3 * a] = plain;
        out[3 * a + 1] = moment;
        out[3 * a + 2] = mass;
    }
}

// One block for each tile of a and window of b, one partial sum of 1 + 2 D rows for each window from
// `first_window` on.
extern "C" __global__ void __launch_bounds__(TILE_A, MIN_BLOCKS)
    partial_gradients_f64(const index_t* __restrict__ offsets_a, const double* __restrict__ points_a,
                          const index_t* __restrict__ starts, const index_t* __restrict__ offsets_b,
                          const double* __restrict__ weights_b, const double* __restrict__ points_b,
                          const double* __restrict__ cotangent, double* __restrict__ partial_sums,
                          index_t n_components, index_t n_b, index_t first_window, int n_windows, int n_dims,
                          double bandwidth) {
    MF_SHARED(int, ends, WINDOW);
    const int t = threadIdx.x;
    const index_t tile = blockIdx.x / n_windows;
    const int window = blockIdx.x % n_windows;
    const index_t first_a = starts[tile], last_a = starts[tile + 1];
    const index_t first_b = (first_window + window) * WINDOW;
    const int n_mixtures = (int)min((index_t)WINDOW, n_b - first_b);
    const index_t begin = offsets_b[first_b];
    const int count = (int)(offsets_b[first_b + n_mixtures] - begin);
    for (int k = t; k < n_mixtures; k += TILE_A) {
        ends[k] = (int)(offsets_b[first_b + k + 1] - begin);
    }
    const Batch a = {offsets_a, nullptr, points_a, nullptr};
    const Batch b = {offsets_b, weights_b, points_b, nullptr};
    double* out = partial_sums + window * (1 + 2 * (index_t)n_dims) * n_components;
    const index_t end = offsets_a[last_a];
    for (index_t first = offsets_a[first_a]; first < end; first += TILE_A) {
        const int n = (int)min((index_t)TILE_A, end - first);
        const index_t owner = owner_of(offsets_a, first_a, last_a, first + min(t, n - 1));
        PartialGradient<GRADIENT_D, MF_FORM>::fill(a, b, first, n, begin, count, ends,
                                                   cotangent + owner * n_b + first_b, n_dims,
                                                   bandwidth * bandwidth, out, n_components);
    }
}

extern "C" __global__ void __launch_bounds__(TILE_A, MIN_BLOCKS)
    add_partial_sums_f64(const double* __restrict__ partial_sums, double* __restrict__ totals, int n_partial,
                         index_t n) {
    add_partial_sums(partial_sums, totals, n_partial, n);
}

// Gradients of the self terms of a, the mass correction and the outer factors: one thread for each component. `totals`
// holds the sum of the partial gradients, in their layout, and is used up.
extern "C" __global__ void __launch_bounds__(TILE_A, MIN_BLOCKS)
    finish_gradient_f64(const index_t* __restrict__ offsets, const double* __restrict__ weights,
                        const double* __restrict__ points, const double* __restrict__ cotangent_sums,
                        double* __restrict__ totals, double* __restrict__ g_weights,
                        double* __restrict__ g_points, index_t n_mixtures, index_t n_components, int n_dims,
                        double bandwidth, int mass_correction) {
    const double b2 = bandwidth * bandwidth;
    for (index_t i = grid_start(); i < n_components; i += grid_stride()) {
        const index_t owner = owner_of(offsets, 0, n_mixtures, i);
        const double* sums = cotangent_sums + 3 * owner;
        double g_weight = totals[i];
        for (index_t j = offsets[owner]; j < offsets[owner + 1]; ++j) {
            Gap<MF_FORM, double> gap;
            gap.start();
            for (int d = 0; d < n_dims; ++d) {
                gap.add(axis_of<double>(points, i, d, n_dims), axis_of<double>(points, j, d, n_dims), b2);
            }
            Slope<MF_FORM> slope;
            g_weight += slope.start(gap, -sums[0] * weights[j]); // half of c(a, a), in which i has two places
            for (int d = 0; d < n_dims; ++d) {
                double* mean = totals + (1 + d) * n_components + i;
                double* scale = mean + n_dims * n_components;
                Axis<double> g = {*mean, *scale};
                slope.add(axis_of<double>(points, i, d, n_dims), axis_of<double>(points, j, d, n_dims), b2,
                          &g);
                *mean = g.mean;
                *scale = g.scale;
            }
        }
        const double* row = points + i * 2 * n_dims;
        double square = 0.0;
        for (int p = 0; p < 2 * n_dims; ++p) {
            square = add_square(row[p], square);
        }
        const double radius = sqrt(square);
        g_weights[i] = mass_correction ? g_weight + fma(sums[2], radius, sums[1]) : g_weight;
        const double outward = mass_correction && radius > 0.0 ? sums[2] / radius : 0.0;
        for (int p = 0; p < 2 * n_dims; ++p) {
            const double inner = MF_FORM >= GAUSSIAN && p >= n_dims ? row[p] : 1.0; // of s_i^2
            const double across = totals[(1 + p) * n_components + i] * inner;
            g_points[i * 2 * n_dims + p] = weights[i] * fma(outward, row[p], across);
        }
    }
}
