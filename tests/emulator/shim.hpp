// CUDA on one CPU thread: the kernels that ship, compiled by g++ (C++20), with a fiber for each CUDA thread.
//
// emulate.py includes this file before a kernel source. Blocks run one after another. Within a block the scheduler
// resumes fibers until each waits or has returned, then carries out what they wait for: a barrier of the block, a
// meeting of a warp (__syncwarp, shuffles, votes, mma). Reported as errors: threads that wait at different barriers or
// while others have returned, lanes that do not meet, a shuffle from a lane outside its mask, launches beyond the
// limits of a card, too much shared memory, accesses outside of it and of the arrays of the launch (guards.hpp). Shared
// memory has exactly the bytes asked for and starts as 0xFF, a NaN.
//
// The order of fibers and blocks changes what a missing barrier computes. Forward and reverse run a warp as far as the
// next barrier of the block before another one begins, and its lanes in turn: of any two threads, each is as far ahead
// of the other as it can get in one of the two. Shuffled fibers take turns from meeting to meeting.
//
// Sanitizers are told of the fibers. ThreadSanitizer sees every CUDA thread as a thread of its own; the only orders
// among them are the barriers' and those of __syncwarp. Shuffles, votes and mma order no memory, as on a card, and
// blocks of one launch are not ordered at all: two of them on one address is a race. The scheduler gives the order at
// the moment of the meeting, in the name of each fiber, so that a fiber already past it lends nothing to late ones.
//
// Not seen here: weak memory beyond races, divergence, bank conflicts, registers, time.
#pragma once
#include <math.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define EMU_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define EMU_TSAN 1
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
#endif
#if !defined(EMU_ASAN) && !defined(EMU_TSAN)
#define EMU_GUARDS 1
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#define EMU_UCONTEXT 1
#endif

#include "fibers.hpp"
#include "meetings.hpp"
#include "blocks.hpp"

// ---- the language ----
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

#define threadIdx (emu::current->thread)
#define blockIdx (emu::block_index)
#define blockDim (emu::block_shape)
#define gridDim (emu::grid_shape)

#define EMU_HERE                                                                                                       \
    emu::Site { __FILE__, __LINE__ }
#define EMU_FULL 0xffffffffu
#define __syncthreads() emu::wait_for_block(EMU_HERE)
#define __syncwarp(...) emu::wait_for_warp(EMU_FULL __VA_OPT__(&(__VA_ARGS__)), emu::Meeting::sync, EMU_HERE)
#define __ballot_sync(mask, vote) emu::ballot(mask, (vote) != 0, EMU_HERE)
#define __any_sync(mask, vote) (emu::ballot(mask, (vote) != 0, EMU_HERE) != 0)
#define __shfl_sync(mask, value, ...) emu::shuffle(mask, value, emu::source_of(__VA_ARGS__), EMU_HERE)
#define __shfl_xor_sync(mask, value, ...) emu::shuffle(mask, value, emu::source_xor(__VA_ARGS__), EMU_HERE)
#define __shfl_up_sync(mask, value, ...) emu::shuffle(mask, value, emu::source_up(__VA_ARGS__), EMU_HERE)
#define __shfl_down_sync(mask, value, ...) emu::shuffle(mask, value, emu::source_down(__VA_ARGS__), EMU_HERE)

// The port layer of kernels/common.cuh
#define MF_SHARED(T, name, n)                                                                                          \
    static const char name##_site = 0;                                                                                 \
    T* const name = emu::shared_array<T>(&name##_site, n, #name, EMU_HERE)
#define MF_DYN_SMEM(T, name) T* const name = static_cast<T*>(emu::dynamic_shared(sizeof(T)))
#define MF_RSQRT_SEED(y, x) ((y) = emu::rsqrt_seed(x))
#if __CUDA_ARCH__ >= 800 && !defined(MF_NO_MMA)
#define MF_HAVE_MMA 1
#define MF_MMA884(c0, c1, a, b) emu::mma884(c0, c1, a, b, EMU_HERE)
#endif

#include "functions.hpp"
