// Cholesky factors of small matrices by one block: in shared memory packed by rows, or where they lie.
#pragma once

#include "prediction.cuh" // TriangleCursor

constexpr int PANEL = 8; // columns factored at a time: a thread keeps its row of a panel in registers

// Rows of a lower triangle one after another
struct PackedRows {
    double* entries;

    __device__ __forceinline__ double* row(int r) const { return entries + r * (r + 1) / 2; }
};

// Rows of a square matrix
struct DenseRows {
    const double* entries;
    index_t stride;

    __device__ __forceinline__ const double* row(int r) const { return entries + r * stride; }
};

// Cholesky factor, in place, of the n x n matrix in `matrix`, and L^-1 of the vector in its row n, by a whole
// block. Entries are NaN from the first pivot on that is not positive. `inverses` holds PANEL doubles.
// Ends with a barrier.
template <int BLOCK>
__device__ __forceinline__ void factor_packed(PackedRows matrix, int n, double* inverses) {
    for (int first = 0; first < n; first += PANEL) {
        const int width = min(PANEL, n - first), below = first + width;
        if (warp_of() == 0) { // lane r owns row r of the diagonal block; lanes past it follow along
            const int lane = lane_of();
            double a[PANEL];
#pragma unroll
            for (int c = 0; c < PANEL; ++c) {
                a[c] = lane < width && c <= lane ? matrix.row(first + lane)[first + c] : 1.0;
            }
#pragma unroll
            for (int k = 0; k < PANEL; ++k) {
                const double inverse = rsqrt(__shfl_sync(FULL_WARP, a[k], k));
                a[k] *= inverse;
                if (lane == k) {
                    inverses[k] = inverse;
                }
#pragma unroll
                for (int c = k + 1; c < PANEL; ++c) {
                    const double other = __shfl_sync(FULL_WARP, a[k], c);
                    a[c] = fma(-a[k], other, a[c]);
                }
            }
#pragma unroll
            for (int c = 0; c < PANEL; ++c) {
                if (lane < width && c <= lane) {
                    matrix.row(first + lane)[first + c] = a[c];
                }
            }
        }
        __syncthreads();
        for (int r = below + threadIdx.x; r <= n; r += BLOCK) {
            double* row = matrix.row(r) + first;
            double a[PANEL];
#pragma unroll
            for (int c = 0; c < PANEL; ++c) {
                a[c] = c < width ? row[c] : 0.0;
            }
#pragma unroll
            for (int k = 0; k < PANEL; ++k) {
                if (k < width) {
                    a[k] *= inverses[k];
#pragma unroll
                    for (int c = k + 1; c < PANEL; ++c) {
                        if (c < width) {
                            a[c] = fma(-a[k], matrix.row(first + c)[first + k], a[c]);
                        }
                    }
                    row[k] = a[k];
                }
            }
        }
        __syncthreads();
        const int rest = n - below; // columns left; row n has as many entries as the row before it
        if (rest == 0) {
            break;
        }
        const int places = rest * (rest + 1) / 2 + rest;
        TriangleCursor at(threadIdx.x);
        for (int e = threadIdx.x; e < places; e += BLOCK) {
            double* row = matrix.row(below + at.i);
            const double* other = matrix.row(below + at.j);
            double value = row[below + at.j];
#pragma unroll
            for (int k = 0; k < PANEL; ++k) {
                value = fma(-row[first + k], other[first + k], value);
            }
            row[below + at.j] = value;
            at.advance(BLOCK);
        }
        __syncthreads();
    }
}
