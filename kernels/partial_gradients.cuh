// What the mixtures of b add to the gradients of a component, for the kernel partial_gradients_f64 of distances.cu.
#pragma once

#include "distances.cuh"

// What the components of b with cotangent h add to the gradients of component i: row 0 of `out` has that of its weight,
// row 1 + p that of its coordinate p, component by component.
template <int D, int FORM> struct PartialGradient {
    __device__ static __forceinline__ void fill(const Batch& a, const Batch& b, index_t first, int n,
                                                index_t begin, int count, const int* ends,
                                                const double* cotangent, int, double b2, double* out,
                                                index_t n_components) {
        constexpr int CHUNK = 32;
        MF_SHARED(Axis<double>, staged, CHUNK * D);
        MF_SHARED(double, staged_weights, CHUNK);
        const int t = threadIdx.x;
        const bool active = t < n;
        Axis<double> p[D], g[D];
        double g_weight = 0.0;
        if (active) {
#pragma unroll
            for (int d = 0; d < D; ++d) {
                p[d] = axis_of<double>(a.points, first + t, d, D);
                g[d].mean = 0.0;
                g[d].scale = 0.0;
            }
        }
        int k = 0;
        for (int base = 0; base < count; base += CHUNK) {
            const int size = min(CHUNK, count - base);
            __syncthreads(); // the last components have been read
            for (int e = t; e < size * D; e += TILE_A) {
                staged[e] = axis_of<double>(b.points, begin + base + e / D, e % D, D);
            }
            for (int e = t; e < size; e += TILE_A) {
                staged_weights[e] = b.weights[begin + base + e];
            }
            __syncthreads();
            if (active) {
                for (int j = 0; j < size;) {
                    const int end = ends[k] - base;
                    const int stop = min(end, size);
                    const double h = cotangent[k];
                    for (; j < stop; ++j) {
                        const Axis<double>* q = staged + j * D;
                        Gap<FORM, double> gap;
                        gap.start();
#pragma unroll
                        for (int d = 0; d < D; ++d) {
                            gap.add(p[d], q[d], b2);
                        }
                        Slope<FORM> slope;
                        g_weight += slope.start(gap, h * staged_weights[j]);
#pragma unroll
                        for (int d = 0; d < D; ++d) {
                            slope.add(p[d], q[d], b2, &g[d]);
                        }
                    }
                    k += j == end;
                }
            }
        }
        if (active) {
            out[first + t] = g_weight;
#pragma unroll
            for (int d = 0; d < D; ++d) {
                out[(1 + d) * n_components + first + t] = g[d].mean;
                out[(1 + D + d) * n_components + first + t] = g[d].scale;
            }
        }
    }
};

// Any number of axes: WIDE_AXES of them at a time, once for the gaps and once for the slopes, whose sums wait in
// `out`.
template <int FORM> struct PartialGradient<0, FORM> {
    typedef Cross<0, FORM, false> Wide;
    // Of b at a time; 16 gaps and slopes of form 3 would need more than 255 registers.
    static constexpr int COMPONENTS = 8;

    __device__ static __forceinline__ void fill(const Batch& a, const Batch& b, index_t first, int n,
                                                index_t begin, int count, const int* ends,
                                                const double* cotangent, int n_dims, double b2, double* out,
                                                index_t n_components) {
        MF_SHARED(Axis<double>, rows, TILE_A * (WIDE_AXES + 1));
        MF_SHARED(Axis<double>, staged, COMPONENTS * WIDE_AXES);
        const int t = threadIdx.x;
        double g_weight = 0.0;
        int k = 0;
        for (int base = 0; base < count; base += COMPONENTS) {
            const int size = min(COMPONENTS, count - base);
            Gap<FORM, double> gap[COMPONENTS];
            Slope<FORM> slope[COMPONENTS];
#pragma unroll
            for (int j = 0; j < COMPONENTS; ++j) {
                gap[j].start();
            }
            for (int pass = 0; pass < 2; ++pass) {
                for (int axis = 0; axis < n_dims; axis += WIDE_AXES) {
                    const int n_axes = min(WIDE_AXES, n_dims - axis);
                    __syncthreads(); // the last axes have been read
                    Wide::template stage_axes<TILE_A>(a.points, first, n, axis, n_axes, n_dims, WIDE_AXES + 1,
                                                      rows);
                    Wide::template stage_axes<TILE_A>(b.points, begin + base, size, axis, n_axes, n_dims,
                                                      WIDE_AXES, staged);
                    __syncthreads();
                    if (t >= n) {
                        continue;
                    }
                    for (int d = 0; d < n_axes; ++d) {
                        const Axis<double> p = rows[t * (WIDE_AXES + 1) + d];
                        double* mean = out + (1 + axis + d) * n_components + first + t;
                        double* scale = mean + n_dims * n_components;
                        Axis<double> g = {0.0, 0.0};
                        if (pass == 1 && base > 0) {
                            g.mean = *mean;
                            g.scale = *scale;
                        }
#pragma unroll
                        for (int j = 0; j < COMPONENTS; ++j) {
                            if (j < size) {
                                const Axis<double> q = staged[j * WIDE_AXES + d];
                                if (pass == 0) {
                                    gap[j].add(p, q, b2);
                                } else {
                                    slope[j].add(p, q, b2, &g);
                                }
                            }
                        }
                        if (pass == 1) {
                            *mean = g.mean;
                            *scale = g.scale;
                        }
                    }
                }
                if (pass == 0 && t < n) {
#pragma unroll
                    for (int j = 0; j < COMPONENTS; ++j) {
                        if (j < size) {
                            g_weight += slope[j].start(gap[j], cotangent[k] * b.weights[begin + base + j]);
                            k += base + j + 1 == ends[k];
                        }
                    }
                }
            }
        }
        if (t < n) {
            out[first + t] = g_weight;
        }
    }
};
