// Kernels that keep and break the rules which the emulator checks; broken_rules.py finds lines by their marks.
// Each thread reads its left neighbour's number: right in forward order even without the barrier
extern "C" __global__ void __launch_bounds__(64) shift(const double* x, double* out) {
    MF_SHARED(double, s, 64);
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads(); // SHIFT
    out[t] = t > 0 ? s[t - 1] : s[t];
}
extern "C" __global__ void twice(const double* x, double* out) {
    MF_SHARED(double, s, 64);
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads(); // FIRST
    __syncthreads(); // SECOND
    out[threadIdx.x] = s[63 - threadIdx.x];
}
// Waits for the other warp through shared memory
extern "C" __global__ void poll(double* out) {
    MF_SHARED(int, flag, 1);
    flag[0] = 0;
    __syncthreads();
    const volatile int* const seen = flag;
    while (threadIdx.x == 0 && seen[0] == 0) {
    }
    out[0] = 1.0;
}
extern "C" __global__ void diverge(double* out) {
    if (threadIdx.x < 16) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1.0;
}
extern "C" __global__ void leave(double* out) {
    if (threadIdx.x == 3) {
        return;
    }
    __syncthreads();
    out[threadIdx.x] = 1.0;
}
extern "C" __global__ void leave_warp(double* out) {
    if (threadIdx.x != 3) {
        __syncwarp();
    }
    out[threadIdx.x] = 1.0;
}
extern "C" __global__ void two_places(double* out) {
    if (threadIdx.x < 16) {
        __syncwarp();
    } else {
        __syncwarp();
    }
    out[threadIdx.x] = 1.0;
}
extern "C" __global__ void reach(double* out, int place, int write) {
    MF_SHARED(double, s, 32);
    s[threadIdx.x] = 2.0;
    if (write && threadIdx.x == 0) {
        s[place] = 1.0;
    }
    out[threadIdx.x] = s[threadIdx.x == 31 ? place : (int)threadIdx.x];
}
// One access of an array: x[place], by the last thread
extern "C" __global__ void outside(const double* before, double* x, double* out, index_t place, int write) {
    if (threadIdx.x == blockDim.x - 1) {
        if (write) {
            x[place] = 1.0;
        } else {
            out[0] = x[place] + before[0];
        }
    }
}
extern "C" __global__ void outside_bytes(unsigned char* x, unsigned char* out, index_t place, int write) {
    if (write) {
        x[place] = 1;
    } else {
        out[0] = x[place];
    }
}
extern "C" __global__ void outside_static(double* out, index_t place, int write) {
    MF_SHARED(double, other, 32);
    MF_SHARED(double, s, 32); // STATIC
    other[threadIdx.x] = s[threadIdx.x] = 1.0;
    __syncthreads();
    if (threadIdx.x == 31) {
        if (write) {
            s[place] = 1.0;
        } else {
            out[0] = s[place] * other[0];
        }
    }
}
extern "C" __global__ void outside_dynamic(double* out, index_t place, int write) {
    MF_DYN_SMEM(double, s);
    if (threadIdx.x == 31) {
        if (write) {
            s[place] = 1.0;
        } else {
            out[0] = s[place];
        }
    }
}
// Frames beyond the stack of a thread
extern "C" __global__ void descend(double* out, int depth) {
    volatile char frame[1 << 17];
    frame[0] = (char)depth;
    out[0] = frame[0];
}
extern "C" __global__ void dynamic(double* out, int n) {
    MF_DYN_SMEM(double, s);
    for (int k = threadIdx.x; k < n; k += blockDim.x) {
        s[k] = k;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        out[0] = s[n - 1];
    }
}
extern "C" __global__ void large(double* out) {
    MF_SHARED(double, s, 6145);
    s[threadIdx.x] = 1.0;
    out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void fresh(double* out) {
    MF_SHARED(double, s, 32);
    out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void product(const double* a, const double* b, double* c) { // 8x4 times 4x8, added to c
    const int l = threadIdx.x;
    double c0 = c[l / 4 * 8 + l % 4 * 2], c1 = c[l / 4 * 8 + l % 4 * 2 + 1];
#ifdef MF_HAVE_MMA
    MF_MMA884(c0, c1, a[l], b[l % 4 * 8 + l / 4]);
#else
    c0 = c1 = -1.0;
#endif
    c[l / 4 * 8 + l % 4 * 2] = c0;
    c[l / 4 * 8 + l % 4 * 2 + 1] = c1;
}
extern "C" __global__ void shuffles(const double* x, double* out) {
    const int l = threadIdx.x;
    const double v = x[l];
    out[l] = __shfl_sync(0xffffffffu, v, 5);
    out[32 + l] = __shfl_xor_sync(0xffffffffu, v, 3);
    out[64 + l] = __shfl_up_sync(0xffffffffu, v, 2);
    out[96 + l] = __shfl_down_sync(0xffffffffu, v, 2);
    out[128 + l] = __shfl_sync(0xffffffffu, v, 1, 8);
    out[160 + l] = __shfl_down_sync(0xffffffffu, v, 3, 8);
    out[192 + l] = __ballot_sync(0xffffffffu, l % 3 == 0);
    out[224 + l] = __shfl_xor_sync(0xffffffffu, (int)v, 1);
    if (l < 8) { // a part of the warp
        out[256 + l] = __shfl_xor_sync(0xffu, v, 4);
    } else {
        out[256 + l] = __any_sync(0xffffff00u, l == 40) + 10 * __any_sync(0xffffff00u, l == 8);
    }
}
extern "C" __global__ void stray(double* out) {
    if (threadIdx.x < 8) {
        out[threadIdx.x] = __shfl_sync(0xffu, out[threadIdx.x], 9);
    }
}
extern "C" __global__ void own_mask(double* out) {
    __syncwarp(threadIdx.x < 16 ? 0x0000ffffu : 0x00ff0000u);
    out[threadIdx.x] = 1.0;
}
// A shuffle is a meeting of lanes but orders no memory
extern "C" __global__ void shuffled_memory(double* out) {
    MF_SHARED(double, s, 32);
    s[threadIdx.x] = threadIdx.x;
    const int ahead = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
    __syncwarp(); // MEMORY
    out[threadIdx.x] = s[ahead];
}
// Every block writes the same number to the same place: right in any order, and a race all the same
extern "C" __global__ void blocks(double* out) {
    if (threadIdx.x == 0) {
        out[0] = 1.0;
    }
}
extern "C" __global__ void indices(double* out, index_t n) {
    for (index_t k = grid_start(); k < n; k += grid_stride()) {
        out[k] = 1e6 * blockIdx.x + 1e3 * threadIdx.x + warp_of() + 0.01 * lane_of();
    }
}
extern "C" __global__ void types(const double* a, float* b, const int* c, const index_t* d, double e, float f, int g,
                                 index_t h, unsigned i, const unsigned char* j) {
    b[0] = a[0] + c[0] + d[0] + e + f + g + h + i + j[0];
}
// An index beyond an array of the thread's own
extern "C" __global__ void outside_own(double* out, int n) {
    double own[4] = {1.0, 2.0, 3.0, 4.0};
    double sum = 0.0;
    for (int k = 0; k < n; ++k) {
        sum += own[k]; // OWN
    }
    out[threadIdx.x] = sum;
}
