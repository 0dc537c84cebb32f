// What every kernel stands on: the port layer (all that differs between a card and the emulator) and shared
// device mathematics. Nothing is included: NVRTC finds no headers where no toolkit is installed.
#pragma once

typedef long long index_t; // offsets and sizes of whole arrays; plain int for what is bounded inside a block

// Sums are kept in double whatever the inputs are.
template <typename T> using accum_t = double;

constexpr int WARP = 32;
constexpr unsigned FULL_WARP = 0xffffffffu;

// ---- port layer ----
// MF_SHARED(T, name, n)    n elements of shared memory, n a constant: one array for each place in the source
// MF_DYN_SMEM(T, name)     the launch's dynamic shared memory, 16-byte aligned
// MF_RSQRT_SEED(y, x)      y = 1 / sqrt(x) to some 20 bits, from the upper half of a positive normal float64 x
// MF_MMA884(c0, c1, a, b)  C += A B in float64 by a whole warp, C 8x8, A 8x4, B 4x8; only with MF_HAVE_MMA
//
// The emulator (tests/emulator/shim.hpp) defines them itself: bounds are then known and the memory starts as
// NaN. -DMF_NO_MMA chooses multiply-adds where the tensor instruction exists but is slower (sm_86, 89, 120).
#ifndef MF_EMULATED
#define MF_SHARED(T, name, n) __shared__ T name[n]
#define MF_DYN_SMEM(T, name)                                                                                 \
    extern __shared__ __align__(16) unsigned char mf_dynamic_shared[];                                       \
    T* const name = reinterpret_cast<T*>(mf_dynamic_shared)
#define MF_RSQRT_SEED(y, x) asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x))
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(MF_NO_MMA)
#define MF_HAVE_MMA 1
// Lane l holds A[l / 4][l % 4], B[l % 4][l / 4] and C[l / 4][2 (l % 4) + {0, 1}]; all 32 lanes take part.
#define MF_MMA884(c0, c1, a, b)                                                                              \
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};"                \
                 : "+d"(c0), "+d"(c1)                                                                        \
                 : "d"(a), "d"(b))
#endif
#endif

#ifdef MF_HAVE_MMA
// C += A B in float64 by a whole warp, C 16x8, A 16x8, B 8x8: two by two of MF_MMA884's fragments each, rows and
// columns 8 apart in C, 8 and 4 in A (rows first), 4 in B. Compute capability 9.0 alone has an instruction for all of
// it; an entry's sum runs over k in the same order either way.
__device__ __forceinline__ void mma_16x8x8(double* c, const double* a, const double* b) {
#if !defined(MF_EMULATED) && __CUDA_ARCH__ == 900
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
    MF_MMA884(c[0], c[1], a[0], b[0]);
    MF_MMA884(c[2], c[3], a[1], b[0]);
    MF_MMA884(c[0], c[1], a[2], b[1]);
    MF_MMA884(c[2], c[3], a[3], b[1]);
#endif
}

// The same over 16 columns of A and rows of B, the fragments of the later 8 after those of the first
__device__ __forceinline__ void mma_16x8x16(double* c, const double* a, const double* b) {
#if !defined(MF_EMULATED) && __CUDA_ARCH__ == 900
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3},{%4,%5,%6,%7,%8,%9,%10,%11},"
        "{%12,%13,%14,%15},{%0,%1,%2,%3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]),
          "d"(b[1]), "d"(b[2]), "d"(b[3]));
#else
    mma_16x8x8(c, a, b);
    mma_16x8x8(c, a + 4, b + 2);
#endif
}
#endif

// ---- copies to shared memory ----
// 16 bytes, both addresses multiples of 16, that arrive while the thread goes on: after wait_copies and a barrier they
// are there for the block. Where cards cannot do that, and on the emulator, they are there at once.
__device__ __forceinline__ void copy_async(double* to, const double* from) {
#if !defined(MF_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#else
    to[0] = from[0];
    to[1] = from[1];
#endif
}

// Ends a group of copies, which may be empty
__device__ __forceinline__ void commit_copies() {
#if !defined(MF_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

// Waits for this thread's copies but for those of the last LEFT groups
template <int LEFT> __device__ __forceinline__ void wait_copies() {
#if !defined(MF_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
#endif
}

// ---- indices ----
// Blocks are one-dimensional and whole warps; the batch is on grid.x (y and z end at 65535).
__device__ __forceinline__ int lane_of() {
    return threadIdx.x % WARP;
}

__device__ __forceinline__ int warp_of() {
    return threadIdx.x / WARP;
}

// First index and stride of a grid-stride loop
__device__ __forceinline__ index_t grid_start() {
    return (index_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ index_t grid_stride() {
    return (index_t)gridDim.x * blockDim.x;
}

// Place of (i, j), j <= i, in a lower triangle packed by rows
__device__ __forceinline__ index_t lower_index(index_t i, index_t j) {
    return i * (i + 1) / 2 + j;
}

// Row i of place k in a lower triangle packed by rows: the largest i with i (i + 1) / 2 <= k. The root is a
// first guess, right to within one for every k below 2^52.
__device__ __forceinline__ index_t lower_row(index_t k) {
    index_t i = (index_t)(0.5 * (sqrt(8.0 * (double)k + 1.0) - 1.0));
    if (lower_index(i, 0) > k) {
        --i;
    }
    if (lower_index(i + 1, 0) <= k) {
        ++i;
    }
    return i;
}

// A place in rows of which row i has i + 1 places, at most `width`: the lower triangle's first columns
struct Place {
    int row;
    int column;
    __device__ __forceinline__ void advance(int places, int width) {
        column += places;
        for (int length = min(row + 1, width); column >= length; length = min(row + 1, width)) {
            column -= length;
            ++row;
        }
    }
};

// ---- numbers ----
constexpr double EPSILON = 2.220446049250313e-16;
constexpr double PI = 3.14159265358979323846;
constexpr double LOG_2_PI = 1.8378770664093454836;

__device__ __forceinline__ double quiet_nan() {
    return __longlong_as_double(0x7ff8000000000000LL);
}

__device__ __forceinline__ double infinity() {
    return __longlong_as_double(0x7ff0000000000000LL);
}

template <typename T> __device__ __forceinline__ T square(T x) {
    return x * x;
}

// 1 / sqrt(x) to some 20 bits, without a branch; about 1e-154 where x is 0 or below the normal numbers (the
// subtraction wraps) and where it is infinite
__device__ __forceinline__ double root_seed(double x) {
    constexpr unsigned SMALLEST = 0x00100000u; // upper halves of the normal numbers
    constexpr unsigned LARGEST = 0x7fefffffu;
    const unsigned high = min((unsigned)__double2hiint(x) - SMALLEST, LARGEST - SMALLEST) + SMALLEST;
    double seed;
    MF_RSQRT_SEED(seed, __hiloint2double((int)high, 0));
    return seed;
}

// Square root of x >= 0 within 1 ulp: one step of third order from the seed. sqrt() branches to a slow path, and
// between branches one root waits for the other; it takes 8 operations for its last half ulp, this takes 5.
// 0, infinity and NaN stay what they are; below 2.3e-308 the root is 0.
__device__ __forceinline__ double branchless_root(double x) {
    const double seed = root_seed(x);
    const double root = __dmul_rn(x, seed);
    const double error = fma(-root, seed, 1.0);
    return fma(__dmul_rn(root, error), fma(0.375, error, 0.5), root);
}

// 1 / sqrt(x) of x >= 0 within 1 ulp, as `branchless_root`; about 1e-154 at 0
__device__ __forceinline__ double branchless_inverse_root(double x) {
    const double seed = root_seed(x);
    const double error = fma(-__dmul_rn(x, seed), seed, 1.0);
    return fma(__dmul_rn(seed, error), fma(0.375, error, 0.5), seed);
}

// ---- phases ----
// m * (high + low) in turns, less a whole number of them. The product's rounding error is kept until the whole
// turns are gone, so large m x costs no digits. __dmul_rn, since a product that the compiler fused into the
// subtraction below would count that error twice.
__device__ __forceinline__ double phase_turns(double m, double high, double low) {
    const double product = __dmul_rn(m, high);
    const double rest = fma(m, low, fma(m, high, -product));
    return (product - rint(product)) + rest;
}

// cos and sin of 2 pi `turns`
__device__ __forceinline__ void cos_sin_turns(double turns, double* cosine, double* sine) {
    sincospi(2.0 * turns, sine, cosine);
}

// ---- reductions in a fixed order ----
// Sum over a warp, the same bits in every lane: a butterfly adds the same pairs everywhere. All lanes take part.
__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(FULL_WARP, value, offset);
    }
    return value;
}

// Largest value of a warp, in every lane. NaN is ignored unless all are NaN.
__device__ __forceinline__ double warp_max(double value) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        value = fmax(value, __shfl_xor_sync(FULL_WARP, value, offset));
    }
    return value;
}

// Sum over a block of BLOCK threads, the same bits in every thread. `part` is BLOCK / WARP doubles of shared
// memory that no thread uses any more; whoever writes to it again later needs a barrier in between.
template <int BLOCK> __device__ __forceinline__ double block_sum(double value, double* part) {
    static_assert(BLOCK % WARP == 0, "a block is whole warps");
    value = warp_sum(value);
    if (lane_of() == 0) {
        part[warp_of()] = value;
    }
    __syncthreads();
    double total = part[0];
#pragma unroll
    for (int w = 1; w < BLOCK / WARP; ++w) {
        total += part[w];
    }
    return total;
}

// Largest value of a block, as `block_sum`
template <int BLOCK> __device__ __forceinline__ double block_max(double value, double* part) {
    static_assert(BLOCK % WARP == 0, "a block is whole warps");
    value = warp_max(value);
    if (lane_of() == 0) {
        part[warp_of()] = value;
    }
    __syncthreads();
    double largest = part[0];
#pragma unroll
    for (int w = 1; w < BLOCK / WARP; ++w) {
        largest = fmax(largest, part[w]);
    }
    return largest;
}
