// Spectral-mixture Gram entries by angle addition, and the sums of their gradient.
//
//     k(t) = sum_q w_q exp(-2 pi^2 sum_d s_qd^2 t_d^2) cos(a_qi - a_qj),   a_qi = 2 pi m_q . (x_i - x_0)
//
// Cosine and sine of a are tabulated once a point and component, so a pair costs one exponential and a few
// multiply-adds. With the per-axis phase a product of D cosines takes the place of one. A thread computes
// a rectangle of pairs at a time: what belongs to a row or a column is read once for all of its pairs.
//
// x_0 has the least value of each axis, and no product has the weight on one side of a pair alone: an entry has the
// same bits with its two points exchanged, so rows in another order give the permuted matrix.
#pragma once

#include "common.cuh"

constexpr double STEEPEST = -1e300; // bound of an envelope's rate, so that rate * 0 stays 0 for any scale

// Pairs a side of a thread's register tile in a Gram matrix. Loops over axes are left rolled: unrolled, the lags of all
// axes are held at once, and 4 x 4 pairs no longer fit in 128 registers.
constexpr int GRAM_TILE = 4;

// The components of one mixture
struct Mixture {
    const double* weights; // (n,)
    const double* scales;  // (n, D)
    int n;
    int n_dims;
};

// One set of points as a mixture sees it
struct Side {
    const double* points; // (D, size)
    const double* tables; // (n, phases, 2, size): cosines, then sines
    int size;
};

__device__ __forceinline__ double envelope_rate(double scale) {
    return fmax(-2.0 * PI * PI * scale * scale, STEEPEST);
}

// Cosines (part 0) or sines (part 1) of a component's phase
__device__ __forceinline__ const double* table_row(const Side& side, int component, int phases, int phase,
                                                   int part) {
    return side.tables + (((index_t)component * phases + phase) * 2 + part) * side.size;
}

// Indices GAP apart, which leave a thread one address and constants
template <int GAP> struct Every {
    int first;
    __device__ __forceinline__ int operator[](int k) const { return first + GAP * k; }
};

// e^x for x <= 0, or NaN: relative error below 2^-52, and 0 from -708 on. Without a branch, so that the exponentials of
// a thread overlap, which those of the built-in function cannot.
__device__ __forceinline__ double decay(double x) {
    constexpr double LOG2_E = 1.4426950408889634;
    constexpr double LN2_HIGH =
        6.93147180369123816490e-01; // 33 bits, so that its products by whole numbers are exact
    constexpr double LN2_LOW = 1.90821492927058770002e-10;
    constexpr double SHIFTER =
        6755399441055744.0; // 1.5 2^52: adding it rounds to a whole number, in the low word
    const double shifted = fma(x, LOG2_E, SHIFTER);
    const double whole = shifted - SHIFTER;
    const double r = fma(whole, -LN2_LOW, fma(whole, -LN2_HIGH, x));
    // (e^r - 1 - r) / r^2 through its values at the Chebyshev nodes of |r| <= ln 2 / 2: e^r to 1.6e-17
    double p = 2.51003758422237e-08;
    p = fma(p, r, 2.7620075892548164e-07);
    p = fma(p, r, 2.7557268480289716e-06);
    p = fma(p, r, 2.480152132234228e-05);
    p = fma(p, r, 0.00019841269863040559);
    p = fma(p, r, 0.0013888888917196736);
    p = fma(p, r, 0.008333333333330065);
    p = fma(p, r, 0.041666666666624164);
    p = fma(p, r, 0.16666666666666669);
    p = fma(p, r, 0.5000000000000001);
    p = fma(p, r, 1.0);
    p = fma(p, r, 1.0);
    const double power = __hiloint2double((__double2loint(shifted) + 1023) << 20, 0);
    return x < -708.0 ? 0.0 : p * power;
}

// sum[a][b] = k(x_i[a] - y_j[b]); I and J are arrays of int or Every
template <bool PER_AXIS, int R, int S, typename I, typename J>
__device__ __forceinline__ void gram_tile(const Mixture& mixture, const Side& left, const Side& right,
                                          const I& i, const J& j, double (&sum)[R][S]) {
    const int n_dims = mixture.n_dims;
    const int phases = PER_AXIS ? n_dims : 1;
#pragma unroll
    for (int a = 0; a < R; ++a) {
#pragma unroll
        for (int b = 0; b < S; ++b) {
            sum[a][b] = 0.0;
        }
    }
    for (int q = 0; q < mixture.n; ++q) {
        double value[R][S];
#pragma unroll
        for (int a = 0; a < R; ++a) {
#pragma unroll
            for (int b = 0; b < S; ++b) {
                value[a][b] = 0.0;
            }
        }
#pragma unroll 1
        for (int d = 0; d < n_dims; ++d) {
            const double rate = envelope_rate(mixture.scales[(index_t)q * n_dims + d]);
            double y[S];
#pragma unroll
            for (int b = 0; b < S; ++b) {
                y[b] = right.points[(index_t)d * right.size + j[b]];
            }
#pragma unroll
            for (int a = 0; a < R; ++a) {
                const double x = left.points[(index_t)d * left.size + i[a]];
#pragma unroll
                for (int b = 0; b < S; ++b) {
                    value[a][b] = fma(rate, square(x - y[b]), value[a][b]);
                }
            }
        }
        if (PER_AXIS) {
#pragma unroll
            for (int a = 0; a < R; ++a) {
#pragma unroll
                for (int b = 0; b < S; ++b) {
                    value[a][b] = decay(value[a][b]);
                }
            }
        }
#pragma unroll 1
        for (int p = 0; p < phases; ++p) {
            const double* const cos_x = table_row(left, q, phases, p, 0);
            const double* const sin_x = table_row(left, q, phases, p, 1);
            const double* const cos_y = table_row(right, q, phases, p, 0);
            const double* const sin_y = table_row(right, q, phases, p, 1);
            const double weight = mixture.weights[q];
            if (PER_AXIS && p == 0) {
#pragma unroll
                for (int a = 0; a < R; ++a) {
#pragma unroll
                    for (int b = 0; b < S; ++b) {
                        value[a][b] *= weight;
                    }
                }
            }
            double c[S];
            double s[S];
#pragma unroll
            for (int b = 0; b < S; ++b) {
                c[b] = cos_y[j[b]];
                s[b] = sin_y[j[b]];
            }
#pragma unroll
            for (int a = 0; a < R; ++a) {
                const double cosine = cos_x[i[a]];
                const double sine = sin_x[i[a]];
#pragma unroll
                for (int b = 0; b < S; ++b) {
                    const double wave = fma(cosine, c[b], sine * s[b]);
                    if (PER_AXIS) {
                        value[a][b] *= wave;
                    } else {
                        sum[a][b] = fma(weight * decay(value[a][b]), wave, sum[a][b]);
                    }
                }
            }
        }
        if (PER_AXIS) {
#pragma unroll
            for (int a = 0; a < R; ++a) {
#pragma unroll
                for (int b = 0; b < S; ++b) {
                    sum[a][b] += value[a][b];
                }
            }
        }
    }
}

// Adds component q's share of the pairs (i[a], j[b]), of weights g, to
//     sums[0]:          g exp cos
//     sums[1 + c]:      g exp sin t_d          with the per-axis phase the sine of axis d times the others' cosines
//     sums[1 + C + c]:  g exp cos t_d^2
// where d = first_axis + c, c < C: one pass over the pairs collects the sums of C axes.
template <int C, bool PER_AXIS, int R, int S, typename I, typename J>
__device__ __forceinline__ void pair_sums(const Mixture& mixture, const Side& side, int q, int first_axis,
                                          const I& i, const J& j, const double (&g)[R][S],
                                          double (&sums)[1 + 2 * C]) {
    constexpr int SLOPES = PER_AXIS ? C : 1; // a joint phase has one slope for all axes
    const int n_dims = mixture.n_dims;
    const int phases = PER_AXIS ? n_dims : 1;
    const index_t size = side.size;
    double height[R][S];
    double wave[R][S];
    double slope[R][S][SLOPES];
#pragma unroll
    for (int a = 0; a < R; ++a) {
#pragma unroll
        for (int b = 0; b < S; ++b) {
            height[a][b] = 0.0;
            wave[a][b] = 1.0;
#pragma unroll
            for (int c = 0; c < SLOPES; ++c) {
                slope[a][b][c] = 1.0;
            }
        }
    }
#pragma unroll 1
    for (int d = 0; d < n_dims; ++d) {
        const double rate = envelope_rate(mixture.scales[(index_t)q * n_dims + d]);
        const double* const x = side.points + d * size;
#pragma unroll
        for (int a = 0; a < R; ++a) {
#pragma unroll
            for (int b = 0; b < S; ++b) {
                height[a][b] = fma(rate, square(x[i[a]] - x[j[b]]), height[a][b]);
            }
        }
    }
#pragma unroll 1
    for (int p = 0; p < phases; ++p) {
        const double* const cosines = table_row(side, q, phases, p, 0);
        const double* const sines = table_row(side, q, phases, p, 1);
#pragma unroll
        for (int a = 0; a < R; ++a) {
#pragma unroll
            for (int b = 0; b < S; ++b) {
                const double cosine = fma(cosines[i[a]], cosines[j[b]], sines[i[a]] * sines[j[b]]);
                const double sine = fma(sines[i[a]], cosines[j[b]], -cosines[i[a]] * sines[j[b]]);
                wave[a][b] *= cosine;
#pragma unroll
                for (int c = 0; c < SLOPES; ++c) {
                    slope[a][b][c] *= !PER_AXIS || first_axis + c == p ? sine : cosine;
                }
            }
        }
    }
#pragma unroll
    for (int a = 0; a < R; ++a) {
#pragma unroll
        for (int b = 0; b < S; ++b) {
            height[a][b] = g[a][b] * decay(height[a][b]);
            wave[a][b] *= height[a][b];
            sums[0] += wave[a][b];
        }
    }
#pragma unroll
    for (int c = 0; c < C; ++c) {
        if (first_axis + c < n_dims) {
            const double* const x = side.points + (first_axis + c) * size;
#pragma unroll
            for (int a = 0; a < R; ++a) {
#pragma unroll
                for (int b = 0; b < S; ++b) {
                    const double lag = x[i[a]] - x[j[b]];
                    sums[1 + c] = fma(height[a][b] * slope[a][b][PER_AXIS ? c : 0], lag, sums[1 + c]);
                    sums[1 + C + c] = fma(wave[a][b], lag * lag, sums[1 + C + c]);
                }
            }
        }
    }
}
