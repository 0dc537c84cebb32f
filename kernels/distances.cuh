// Pairwise distances of mixtures: the sums over a tile of pairs of mixtures.
//
//     d(a, b) = c(a, b) - c(a, a)/2 - c(b, b)/2,    c(a, b) = sum_i w_i sum_j w'_j g(p_i, q_j)
//
// Every c(a, b) is summed in one order: over j with fma, times w_i, then over i. That order depends on
// neither tiles nor chunks nor the other mixtures of a batch, and c(a, a) has it too: the distance of equal mixtures
// is exactly 0.
#pragma once

#include "atoms.cuh"

// Components in a tile of whole mixtures of a, and threads of a block that gives each a thread
constexpr int TILE_A = 128;
// Threads of a block for a pair of tiles, each with ROWS components: what is read of an atom of b from shared
// memory, 6 of the 11 cycles that a pair took of an SM at D=1, serves two of a, and two roots run side by side.
constexpr int PAIR_THREADS = 64;
constexpr int ROWS = TILE_A / PAIR_THREADS;
// Mixtures of b in a tile. 16 columns of sums take 17 kB: eleven blocks find room on an SM of sm_90 and three on
// sm_75, where 32 columns leave six and one; and a short b is spread over twice as many SMs.
constexpr int TILE_B = 16;
constexpr int LEADING = TILE_B + 1; // odd: the threads of a half-warp write one column to different banks
constexpr int WIDE_AXES = 4;        // axes of a tile where the atoms of a thread do not fit its registers
constexpr int WIDE_COMPONENTS = 8;  // components of b whose sums over axes such a thread keeps
constexpr int N_DATA = 3;           // self term, mass and moment come before the features
// Blocks of pairs of tiles on an SM. At D=1 shared memory has room for eleven on sm_90, else registers for fewer.
__host__ __device__ constexpr int pair_blocks(int D, int form, bool mixed) {
    return D == 1 && form == ENERGY && !mixed ? 11
           : D == 1 || D == 2                 ? 8
           : D == 0                           ? 5
           : D <= 5 && form < GAUSSIAN        ? (mixed ? 6 : 7)
                                              : 4;
}
// Most axes for which the atoms of a thread fit its registers; beyond, WIDE_AXES of them at a time
__host__ __device__ constexpr int value_axes(int form, bool mixed) {
    return mixed || form >= GAUSSIAN ? 10 : 18;
}
constexpr int MIN_BLOCKS = 2; // without a bound ptxas aims at occupancy and spills a few bytes for it

// ---- batches ----
// Mixture k owns the components offsets[k] to offsets[k + 1], at least one; a row of `points` is all means, then
// all scales; a row of `data` holds N_DATA numbers and the features.
struct Batch {
    const index_t* offsets;
    const double* weights;
    const double* points;
    const double* data;
};

template <typename C>
__device__ __forceinline__ Axis<C> axis_of(const double* points, index_t component, int axis, int n_dims) {
    const double* row = points + component * 2 * n_dims;
    Axis<C> value;
    convert(row[axis], &value.mean);
    convert(row[n_dims + axis], &value.scale);
    return value;
}

// The mixture of [first, last) that owns a component
__device__ __forceinline__ index_t owner_of(const index_t* offsets, index_t first, index_t last,
                                            index_t component) {
    while (last - first > 1) {
        const index_t middle = first + (last - first) / 2;
        if (offsets[middle] <= component) {
            first = middle;
        } else {
            last = middle;
        }
    }
    return first;
}

// What a mixture's row of `data` begins with
struct Own {
    double self;
    double mass;
    double moment;
};

__device__ __forceinline__ Own own_of(const double* row) {
    return {row[0], row[1], row[2]};
}

// `distance` with the features' terms added
__device__ __forceinline__ double with_features(double distance, const double* data_a, const double* data_b,
                                                int n_columns) {
#pragma unroll 1
    for (int f = N_DATA; f < n_columns; ++f) {
        distance += fabs(data_a[f] - data_b[f]);
    }
    return distance;
}

// c(a, b) to d(a, b): self terms, mass correction (whose moments are 0 without it), clamp, features
__device__ __forceinline__ double finish(double cross, const Own& a, const Own& b, const double* data_a,
                                         const double* data_b, int n_columns) {
    double distance = cross - 0.5 * a.self - 0.5 * b.self;
    distance = fma(a.mass - b.mass, a.moment - b.moment, distance);
    return with_features(distance < 0.0 ? 0.0 : distance, data_a, data_b, n_columns);
}

// ---- one tile ----
// Whole mixtures first_a to last_a, of TILE_A components at most or one alone that is larger, against up to
// TILE_B mixtures from first_b on.
struct PairTile {
    index_t first_a;
    index_t first_b;
    int n_a;
    int n_b;
};

__device__ __forceinline__ PairTile tile_of(const index_t* starts, index_t tile_a, index_t tile_b,
                                            index_t n_b) {
    PairTile tile;
    tile.first_a = starts[tile_a];
    tile.n_a = (int)(starts[tile_a + 1] - tile.first_a);
    tile.first_b = tile_b * TILE_B;
    tile.n_b = (int)min((index_t)TILE_B, n_b - tile.first_b);
    return tile;
}

// Bit j: a mixture ends with component j of the WARP from `base` on. By all lanes of a warp, of TILE_B `ends`.
__device__ __forceinline__ unsigned closing_bits(const int* ends, int base) {
    static_assert(TILE_B <= WARP, "one lane for each end");
    const int lane = lane_of();
    const int place = (lane < TILE_B ? ends[lane] : 0) - 1 - base;
    unsigned bits = place >= 0 && place < WARP ? 1u << place : 0u;
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        bits |= __shfl_xor_sync(FULL_WARP, bits, offset);
    }
    return bits;
}

// sums[r * LEADING + k] = w_i sum_j w_j g(p_i, q_j) over the components j of mixture k of the tile, for component
// i = first + r of a, r < n; further rows are scratch. Starts with every thread free to write shared memory; ends
// with a barrier. `ends` are the ends of the mixtures of b, from `begin` on and 0 past the last, ready at the first
// barrier in here. Row r belongs to thread r modulo PAIR_THREADS.
template <int D, int FORM, bool MIXED> struct Cross {
    // The atoms of a in registers, those of b staged in shared memory, where all lanes read the same one. GROUP of
    // them are taken at once, whatever mixtures they belong to: their roots do not wait for each other.
    __device__ static __forceinline__ void fill(const Batch& a, const Batch& b, index_t first, int n,
                                                index_t begin, int count, const int* ends, int, double b2,
                                                double* sums) {
        typedef typename Precision<MIXED>::real R;
        typedef typename Precision<MIXED>::coordinate C;
        constexpr int CHUNK = D <= 2 ? 64 : 32;
        constexpr int GROUP = FORM >= GAUSSIAN || D > 9 ? 1 : D <= 2 ? 4 : 2; // divides WARP
        MF_SHARED(Axis<C>, staged, CHUNK * D);
        MF_SHARED(R, staged_weights, CHUNK);
        const int t = threadIdx.x;
        Axis<C> p[ROWS][D];
        double weight[ROWS];
        Total<R> total[ROWS];
#pragma unroll
        for (int m = 0; m < ROWS; ++m) {
            const index_t i = first + min(t + m * PAIR_THREADS, n - 1);
            weight[m] = a.weights[i];
            total[m].start();
#pragma unroll
            for (int d = 0; d < D; ++d) {
                p[m][d] = axis_of<C>(a.points, i, d, D);
            }
        }
        double* to = sums + t * LEADING;
        for (int base = 0; base < count; base += CHUNK) {
            const int size = min(CHUNK, count - base);
            // The last group is filled up with the last atom: nothing that it adds to is kept.
            const int padded = (size + GROUP - 1) / GROUP * GROUP;
            for (int e = t; e < padded * D; e += PAIR_THREADS) {
                staged[e] = axis_of<C>(b.points, begin + base + min(e / D, size - 1), e % D, D);
            }
#pragma unroll 1
            for (int e = t; e < padded; e += PAIR_THREADS) {
                convert(b.weights[begin + base + min(e, size - 1)], &staged_weights[e]);
            }
            __syncthreads();
            for (int part = 0; part < size; part += WARP) {
                unsigned closing = closing_bits(ends, base + part);
                const int stop = min(part + WARP, size);
#pragma unroll 1
                for (int j = part; j < stop; j += GROUP) {
                    R value[GROUP][ROWS];
#pragma unroll
                    for (int u = 0; u < GROUP; ++u) {
                        Gap<FORM, R> gap[ROWS];
#pragma unroll
                        for (int m = 0; m < ROWS; ++m) {
                            gap[m].start();
                        }
#pragma unroll
                        for (int d = 0; d < D; ++d) {
                            const Axis<C> q = staged[(j + u) * D + d];
#pragma unroll
                            for (int m = 0; m < ROWS; ++m) {
                                gap[m].add(p[m][d], q, b2);
                            }
                        }
#pragma unroll
                        for (int m = 0; m < ROWS; ++m) {
                            value[u][m] = gap[m].value();
                        }
                    }
#pragma unroll
                    for (int u = 0; u < GROUP; ++u) {
                        const R w = staged_weights[j + u];
#pragma unroll
                        for (int m = 0; m < ROWS; ++m) {
                            total[m].add(w, value[u][m]);
                        }
                        if (closing & (1u << u)) {
#pragma unroll
                            for (int m = 0; m < ROWS; ++m) {
                                to[m * PAIR_THREADS * LEADING] = weight[m] * total[m].value();
                                total[m].start();
                            }
                            ++to;
                        }
                    }
                    closing >>= GROUP;
                }
            }
            __syncthreads();
        }
    }
};

// Any number of axes: WIDE_AXES of them at a time, for WIDE_COMPONENTS components of b
template <int FORM, bool MIXED> struct Cross<0, FORM, MIXED> {
    typedef typename Precision<MIXED>::real R;
    typedef typename Precision<MIXED>::coordinate C;

    __device__ static __forceinline__ void fill(const Batch& a, const Batch& b, index_t first, int n,
                                                index_t begin, int count, const int* ends, int n_dims,
                                                double b2, double* sums) {
        MF_SHARED(Axis<C>, rows, TILE_A * (WIDE_AXES + 1)); // one more: no two lanes of a phase share banks
        MF_SHARED(Axis<C>, staged, WIDE_COMPONENTS * WIDE_AXES);
        MF_SHARED(R, staged_weights, WIDE_COMPONENTS);
        const int t = threadIdx.x;
        int row[ROWS];
        double weight[ROWS];
        Total<R> total[ROWS];
#pragma unroll
        for (int m = 0; m < ROWS; ++m) {
            row[m] = min(t + m * PAIR_THREADS, n - 1);
            weight[m] = a.weights[first + row[m]];
            total[m].start();
        }
        int k = 0;
        for (int base = 0; base < count; base += WIDE_COMPONENTS) {
            const int size = min(WIDE_COMPONENTS, count - base);
            Gap<FORM, R> gap[ROWS][WIDE_COMPONENTS];
#pragma unroll
            for (int m = 0; m < ROWS; ++m) {
#pragma unroll
                for (int j = 0; j < WIDE_COMPONENTS; ++j) {
                    gap[m][j].start();
                }
            }
            for (int axis = 0; axis < n_dims; axis += WIDE_AXES) {
                const int n_axes = min(WIDE_AXES, n_dims - axis);
                __syncthreads(); // the last axes have been read
                stage_axes<PAIR_THREADS>(a.points, first, n, axis, n_axes, n_dims, WIDE_AXES + 1, rows);
                stage_axes<PAIR_THREADS>(b.points, begin + base, size, axis, n_axes, n_dims, WIDE_AXES,
                                         staged);
                if (t < size) {
                    convert(b.weights[begin + base + t], &staged_weights[t]);
                }
                __syncthreads();
                for (int d = 0; d < n_axes; ++d) {
                    Axis<C> p[ROWS];
#pragma unroll
                    for (int m = 0; m < ROWS; ++m) {
                        p[m] = rows[row[m] * (WIDE_AXES + 1) + d];
                    }
#pragma unroll
                    for (int j = 0; j < WIDE_COMPONENTS; ++j) {
                        if (j < size) {
                            const Axis<C> q = staged[j * WIDE_AXES + d];
#pragma unroll
                            for (int m = 0; m < ROWS; ++m) {
                                gap[m][j].add(p[m], q, b2);
                            }
                        }
                    }
                }
            }
#pragma unroll
            for (int j = 0; j < WIDE_COMPONENTS; ++j) {
                if (j < size) {
                    const bool closes = base + j + 1 == ends[k];
#pragma unroll
                    for (int m = 0; m < ROWS; ++m) {
                        total[m].add(staged_weights[j], gap[m][j].value());
                        if (closes) {
                            sums[(t + m * PAIR_THREADS) * LEADING + k] = weight[m] * total[m].value();
                            total[m].start();
                        }
                    }
                    k += closes;
                }
            }
        }
        __syncthreads();
    }

    // Axes `axis` to axis + n_axes of n components, by a block of BLOCK threads
    template <int BLOCK>
    __device__ static __forceinline__ void stage_axes(const double* points, index_t first, int n, int axis,
                                                      int n_axes, int n_dims, int leading, Axis<C>* to) {
        for (int e = threadIdx.x; e < n * WIDE_AXES; e += BLOCK) {
            const int d = e % WIDE_AXES;
            if (d < n_axes) {
                to[e / WIDE_AXES * leading + d] = axis_of<C>(points, first + e / WIDE_AXES, axis + d, n_dims);
            }
        }
    }
};

// The sums over i of a tile, in shared memory
struct TileMemory {
    double* sums; // TILE_A * LEADING
    int* ends;    // TILE_B
    int* rows;    // TILE_A + 1: the row of the sums where each mixture of a starts, and the last end
};

// Fills the sums over j of a tile and the rows of its mixtures, by PAIR_THREADS threads. A mixture of a that is
// larger than a tile is taken in parts; the result is its sum over all but the last part, for the thread of each
// column, and 0 elsewhere.
template <int D, int FORM, bool MIXED>
__device__ __forceinline__ double fill_tile(const Batch& a, const Batch& b, const PairTile& tile, int n_dims,
                                            double b2, const TileMemory& memory) {
    const int t = threadIdx.x;
    const index_t begin = b.offsets[tile.first_b];
    const int count = (int)(b.offsets[tile.first_b + tile.n_b] - begin);
    if (t < TILE_B) {
        memory.ends[t] = t < tile.n_b ? (int)(b.offsets[tile.first_b + t + 1] - begin) : 0;
    }
    const index_t end = a.offsets[tile.first_a + tile.n_a];
    index_t base = a.offsets[tile.first_a];
    double carry = 0.0;
    for (;;) {
        const int n = (int)min((index_t)TILE_A, end - base);
#pragma unroll 1
        for (int e = t; e <= tile.n_a; e += PAIR_THREADS) {
            memory.rows[e] = (int)min(max(a.offsets[tile.first_a + e] - base, (index_t)0), (index_t)n);
        }
        Cross<D, FORM, MIXED>::fill(a, b, base, n, begin, count, memory.ends, n_dims, b2, memory.sums);
        if (base + n == end) {
            return carry;
        }
        if (t < tile.n_b) {
#pragma unroll 1
            for (int i = 0; i < n; ++i) {
                carry += memory.sums[i * LEADING + t];
            }
        }
        base += n;
    }
}

// c(a, b) of mixture i of the tile and column k. All threads have come past the barrier of `fill_tile`, whose result
// is `carry`.
__device__ __forceinline__ double tile_cross(const TileMemory& memory, int i, int k, double carry) {
    double cross = carry;
    const int stop = memory.rows[i + 1];
    for (int r = memory.rows[i]; r < stop; ++r) {
        cross += memory.sums[r * LEADING + k];
    }
    return cross;
}

// totals[i] += partial_sums[0][i] + partial_sums[1][i] + ..., one after the other
__device__ __forceinline__ void add_partial_sums(const double* partial_sums, double* totals, int n_partial,
                                                 index_t n) {
    for (index_t i = grid_start(); i < n; i += grid_stride()) {
        double total = totals[i];
        for (int s = 0; s < n_partial; ++s) {
            total += partial_sums[s * n + i];
        }
        totals[i] = total;
    }
}
