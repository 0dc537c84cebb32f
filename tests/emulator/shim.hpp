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
#include <atomic>
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

// Functions of the emulator that run between CUDA threads: ThreadSanitizer must not take their work for the kernel's.
#define EMU_HIDDEN __attribute__((noinline, no_sanitize("thread")))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};

namespace emu {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Site {
    const char* file;
    int line;
    bool operator==(const Site& other) const {
        return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
    }
    std::string text() const { return std::string(file) + ":" + std::to_string(line); }
};

enum class State : char { ready, at_block, at_warp, done };
enum class Meeting : char { sync, shuffle, ballot, mma, any_or, any_and, count };

struct Fiber {
    uint3 thread;
    unsigned index, lane;
    State state;
    Meeting meeting;
    Site site;
    unsigned mask;
    unsigned source;     // lane a shuffle reads, 32 for its own value
    std::uint64_t value; // what this thread brought, then what it takes away
    double a, b, c[2];   // fragments of an mma
    void* stack_pointer;
    char* stack;
#ifdef EMU_UCONTEXT
    ucontext_t context;
#endif
#ifdef EMU_ASAN
    void* fake_stack;
#endif
#ifdef EMU_TSAN
    void* tsan;
#endif
};

// Where an array lies: [begin, end) of the memory that may be accessed, [low, high)
struct Extent {
    std::uint64_t low, begin, end, high;
    std::uint64_t item; // bytes of an element
};

// The arguments of a launch, filled by emulate.py through ctypes and by replay.hpp
struct Launch {
    unsigned grid[3], block[3];
    std::uint64_t shared, shared_limit; // dynamic bytes of the launch; what a block may have in all
    int order;                          // of fibers and blocks: 0 forward, 1 reverse, others seed a shuffle
    const char* skip_file;              // the barrier to leave out, or null
    int skip_line;
    std::uint64_t first_block, stop_block; // which of the grid's run
    int n_args;
    void** args;
    const std::uint64_t* sizes;
    const Extent* extents; // of each argument's array, zeros for others; or null
    char* message;
    std::uint64_t message_size;
};

struct Shared {
    const void* key; // one for each place in the source, null for dynamic memory
    const char* name;
    Site site;
    Extent extent;
    std::size_t alignment;
    unsigned char* bytes() const { return reinterpret_cast<unsigned char*>(extent.begin); }
};

constexpr std::size_t STACK_BYTES = 128 * 1024;
constexpr std::size_t PAGE = 4096;
constexpr std::size_t STATIC_LIMIT = 48 * 1024;
constexpr unsigned char FILL = 0xFF;

// All of the emulator's state: launches take turns.
static std::mutex turn;
static Fiber* current = nullptr;
static uint3 block_index;
static dim3 block_shape, grid_shape;
static const Launch* launch_ = nullptr;
static void (*body)(void**) = nullptr;
static std::vector<Fiber> fibers;
static std::vector<Shared> shared;
static std::size_t static_bytes = 0;
static std::string failure;
static void* scheduler_pointer = nullptr;
#ifdef EMU_UCONTEXT
static ucontext_t scheduler_context;
#endif
#ifdef EMU_ASAN
static const void* scheduler_bottom = nullptr;
static std::size_t scheduler_size = 0;
static void* scheduler_fake = nullptr;
#endif
#ifdef EMU_TSAN
static void* scheduler_tsan = nullptr;
static std::vector<void*> spent; // fibers of past blocks, kept until the launch ends so that their ids stay theirs
static char* exit_tag = nullptr;
#endif

#ifdef EMU_GUARDS
} // namespace emu
#include "guards.hpp"
namespace emu {
#endif

struct Ignore { // what happens in its scope is not the kernel's
#ifdef EMU_TSAN
    EMU_HIDDEN Ignore() {
        AnnotateIgnoreReadsBegin("", 0);
        AnnotateIgnoreWritesBegin("", 0);
    }
    EMU_HIDDEN ~Ignore() {
        AnnotateIgnoreWritesEnd("", 0);
        AnnotateIgnoreReadsEnd("", 0);
    }
#else
    Ignore() {}
    ~Ignore() {}
#endif
};

// ---- switching ----
#ifndef EMU_UCONTEXT
extern "C" __attribute__((visibility("hidden"))) void emu_switch(void** save, void* load);
asm(R"(
.text
.p2align 4
.hidden emu_switch
.globl emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch,.-emu_switch
)");
#endif

// Leave the fiber; returns when the scheduler resumes it.
EMU_HIDDEN static void yield(bool last) {
    Fiber* me = current;
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(last ? nullptr : &me->fake_stack, scheduler_bottom, scheduler_size);
#else
    (void)last;
#endif
#ifdef EMU_TSAN
    __tsan_switch_to_fiber(scheduler_tsan, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef EMU_UCONTEXT
    swapcontext(&me->context, &scheduler_context);
#else
    emu_switch(&me->stack_pointer, scheduler_pointer);
#endif
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(me->fake_stack, &scheduler_bottom, &scheduler_size);
#endif
}

EMU_HIDDEN static void enter() {
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(current->fake_stack, &scheduler_bottom, &scheduler_size);
#endif
    try {
        body(launch_->args);
    } catch (const std::exception& error) {
        Ignore ignore;
        if (failure.empty()) {
            failure = error.what();
        }
    }
    current->state = State::done;
    yield(true);
    std::abort();
}

EMU_HIDDEN static void resume(Fiber* fiber) {
    current = fiber;
#ifdef EMU_GUARDS
    in_fiber = 1;
#endif
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(&scheduler_fake, fiber->stack, STACK_BYTES);
#endif
#ifdef EMU_TSAN
    __tsan_switch_to_fiber(fiber->tsan, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef EMU_UCONTEXT
    swapcontext(&scheduler_context, &fiber->context);
#else
    emu_switch(&scheduler_pointer, fiber->stack_pointer);
#endif
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
#endif
#ifdef EMU_GUARDS
    in_fiber = 0;
#endif
}

EMU_HIDDEN static void prepare(Fiber& fiber) {
#ifdef EMU_ASAN
    __asan_unpoison_memory_region(fiber.stack, STACK_BYTES);
    fiber.fake_stack = nullptr;
#endif
#ifdef EMU_TSAN
    fiber.tsan = __tsan_create_fiber(0);
#endif
#ifdef EMU_UCONTEXT
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = STACK_BYTES;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
#else
    void** top = reinterpret_cast<void**>(fiber.stack + STACK_BYTES);
    *--top = nullptr; // keeps the stack aligned as after a call
    *--top = reinterpret_cast<void*>(&enter);
    top -= 6; // registers, whatever they hold
    fiber.stack_pointer = top;
#endif
}

// ---- what fibers wait for ----
EMU_HIDDEN static bool skipped(Site site) {
    return launch_->skip_file && launch_->skip_line == site.line && std::strcmp(launch_->skip_file, site.file) == 0;
}

EMU_HIDDEN static void wait_for_block(Meeting meeting, Site site) {
    if (skipped(site)) {
        return;
    }
    current->state = State::at_block;
    current->meeting = meeting;
    current->site = site;
    yield(false);
}

EMU_HIDDEN static void wait_for_warp(unsigned mask, Meeting meeting, Site site) {
    if (meeting == Meeting::sync && skipped(site)) {
        return;
    }
    if (!(mask >> current->lane & 1)) {
        throw Error("lane " + std::to_string(current->lane) + " is not in its own mask at " + site.text());
    }
    current->state = State::at_warp;
    current->meeting = meeting;
    current->mask = mask;
    current->site = site;
    yield(false);
}

#ifdef EMU_TSAN
// All that `group` did so far comes before all that it does next.
EMU_HIDDEN static void order(const std::vector<Fiber*>& group) {
    char* tag = new char; // a fresh one: an old one would bring orders of old meetings along
    Fiber* const* members = group.data();
    const std::size_t n = group.size();
    for (std::size_t i = 0; i < n; ++i) { // no library code here: it would run in the fiber's name
        __tsan_switch_to_fiber(members[i]->tsan, __tsan_switch_to_fiber_no_sync);
        __tsan_release(tag);
    }
    for (std::size_t i = 0; i < n; ++i) {
        __tsan_switch_to_fiber(members[i]->tsan, __tsan_switch_to_fiber_no_sync);
        __tsan_acquire(tag);
    }
    __tsan_switch_to_fiber(scheduler_tsan, __tsan_switch_to_fiber_no_sync);
    delete tag;
}
#else
static void order(const std::vector<Fiber*>&) {}
#endif

// Lanes hold A[l / 4][l % 4], B[l % 4][l / 4], C[l / 4][2 (l % 4) + {0, 1}]; C += A B.
EMU_HIDDEN static void multiply(Fiber* lanes) {
    for (unsigned l = 0; l < 32; ++l) {
        for (unsigned half = 0; half < 2; ++half) {
            for (unsigned k = 0; k < 4; ++k) {
                const unsigned column = 2 * (l % 4) + half;
                lanes[l].c[half] = fma(lanes[l / 4 * 4 + k].a, lanes[column * 4 + k].b, lanes[l].c[half]);
            }
        }
    }
}

EMU_HIDDEN static void meet(const std::vector<Fiber*>& group, Fiber* lanes) {
    const Fiber& first = *group[0];
    if (first.meeting == Meeting::sync) {
        order(group);
    } else if (first.meeting == Meeting::mma) {
        if (first.mask != 0xffffffffu) {
            throw Error("mma by a part of a warp at " + first.site.text());
        }
        multiply(lanes);
    } else if (first.meeting == Meeting::ballot) {
        std::uint64_t votes = 0;
        for (const Fiber* fiber : group) {
            votes |= std::uint64_t(fiber->value != 0) << fiber->lane;
        }
        for (Fiber* fiber : group) {
            fiber->value = votes;
        }
    } else {
        std::uint64_t brought[32];
        for (const Fiber* fiber : group) {
            brought[fiber->lane] = fiber->value;
        }
        for (Fiber* fiber : group) {
            if (fiber->source < 32) {
                if (!(fiber->mask >> fiber->source & 1)) {
                    throw Error("shuffle from lane " + std::to_string(fiber->source) + ", outside the mask, at "
                                + fiber->site.text());
                }
                fiber->value = brought[fiber->source];
            }
        }
    }
}

// Make those lanes of a warp ready of which all of a mask have met; false if there are none.
EMU_HIDDEN static bool release_warp(std::size_t start) {
    static std::vector<Fiber*> group;
    Fiber* lanes = &fibers[start];
    const unsigned width = unsigned(std::min<std::size_t>(32, fibers.size() - start));
    bool released = false;
    for (unsigned l = 0; l < width; ++l) {
        if (lanes[l].state != State::at_warp) {
            continue;
        }
        const Fiber& first = lanes[l];
        group.clear();
        bool complete = true;
        for (unsigned k = 0; k < 32 && complete; ++k) {
            if (!(first.mask >> k & 1)) {
                continue;
            }
            if (k >= width || lanes[k].state == State::done) {
                throw Error("the mask at " + first.site.text() + " names lane " + std::to_string(k)
                            + ", which has returned or does not exist");
            }
            complete = lanes[k].state == State::at_warp;
            if (complete
                && (lanes[k].mask != first.mask || lanes[k].meeting != first.meeting
                    || !(lanes[k].site == first.site))) {
                throw Error("lanes of a warp wait at different places: " + first.site.text() + " and "
                            + lanes[k].site.text());
            }
            group.push_back(&lanes[k]);
        }
        if (complete) {
            meet(group, lanes);
            for (Fiber* fiber : group) {
                fiber->state = State::ready;
            }
            released = true;
        }
    }
    return released;
}

// Resume the block if all its threads wait at one barrier; false if all have returned. Anything else is an error.
EMU_HIDDEN static bool release_block() {
    std::size_t n_waiting = 0, n_done = 0;
    const Fiber* waiting = nullptr;
    const Fiber* stuck = nullptr;
    std::uint64_t count = 0;
    for (const Fiber& fiber : fibers) {
        if (fiber.state == State::done) {
            ++n_done;
        } else if (fiber.state == State::at_warp) {
            stuck = &fiber;
        } else {
            if (waiting && !(waiting->site == fiber.site && waiting->meeting == fiber.meeting)) {
                throw Error("threads wait at different barriers: " + waiting->site.text() + " and "
                            + fiber.site.text());
            }
            waiting = &fiber;
            ++n_waiting;
            count += fiber.value != 0;
        }
    }
    if (n_done == fibers.size()) {
        return false;
    }
    if (n_waiting < fibers.size()) {
        throw Error("deadlock: " + std::to_string(n_waiting) + " of " + std::to_string(fibers.size())
                    + " threads wait at " + (waiting ? waiting->site.text() : "no barrier") + ", "
                    + std::to_string(n_done) + " have returned"
                    + (stuck ? ", a warp waits in part at " + stuck->site.text() : std::string()));
    }
    std::vector<Fiber*> all;
    const Meeting meeting = waiting->meeting;
    for (Fiber& fiber : fibers) {
        fiber.state = State::ready;
        fiber.value = meeting == Meeting::any_or    ? count > 0
                      : meeting == Meeting::any_and ? count == fibers.size()
                                                    : count;
        all.push_back(&fiber);
    }
    order(all);
    return true;
}

// ---- shared memory ----
EMU_HIDDEN static void* add_shared(const Shared& what, std::size_t size) {
    shared.push_back(what);
    Extent& extent = shared.back().extent;
#ifdef EMU_GUARDS
    const std::uint64_t item = extent.item;
    extent = guarded(size, what.alignment, launch_->order == 1);
    extent.item = item;
#else
    extent.begin = reinterpret_cast<std::uint64_t>(std::malloc(size));
    extent.end = extent.begin + size;
#endif
    std::memset(shared.back().bytes(), FILL, size);
    return shared.back().bytes();
}

template <typename T> EMU_HIDDEN static T* shared_array(const void* key, std::size_t n, const char* name, Site site) {
    Ignore ignore;
    for (const Shared& array : shared) {
        if (array.key == key) {
            return reinterpret_cast<T*>(array.bytes());
        }
    }
    static_bytes += n * sizeof(T);
    if (static_bytes > STATIC_LIMIT) {
        throw Error("static shared memory of " + std::to_string(static_bytes) + " bytes, over 48 KB");
    }
    if (static_bytes + launch_->shared > launch_->shared_limit) {
        throw Error("shared memory of " + std::to_string(static_bytes + launch_->shared) + " bytes, over the device's "
                    + std::to_string(launch_->shared_limit));
    }
    return reinterpret_cast<T*>(add_shared({key, name, site, {0, 0, 0, 0, sizeof(T)}, alignof(T)}, n * sizeof(T)));
}

static std::string text_of(const Shared& array) {
    const std::string bytes = " of " + std::to_string(array.extent.end - array.extent.begin) + " bytes";
    return array.key ? "shared memory " + std::string(array.name) + bytes + " (" + array.site.text() + ")"
                     : "dynamic shared memory" + bytes;
}

static void fail(const std::string& why) {
    if (failure.empty()) {
        failure = why;
    }
}

EMU_HIDDEN static void free_shared() {
    for (const Shared& array : shared) {
#ifdef EMU_GUARDS
        if (const std::string said = torn(array.extent); !said.empty()) {
            fail(said + text_of(array));
        }
        give_back(array.extent, array.alignment, launch_->order == 1);
#else
        std::free(array.bytes());
#endif
    }
    shared.clear();
    static_bytes = 0;
}

#ifdef EMU_GUARDS
static std::string text_of(std::size_t argument, const Extent& e) {
    return "argument " + std::to_string(argument) + ", an array of " + std::to_string(e.end - e.begin) + " bytes";
}

// What the launch did at `fault_address`: beside its nearest array, if one is near
EMU_HIDDEN static std::string text_of_fault() {
    const std::string who = fault_access + (" by thread " + std::to_string(current->index));
    std::uint64_t nearest = GUARD + 1, distance;
    std::string said;
    for (const Shared& array : shared) {
        if (beside(array.extent, fault_address, distance) && distance < nearest) {
            nearest = distance;
            said = where_of(array.extent, fault_address) + text_of(array);
        }
    }
    for (int k = 0; launch_->extents && k < launch_->n_args; ++k) {
        if (beside(launch_->extents[k], fault_address, distance) && distance < nearest) {
            nearest = distance;
            said = where_of(launch_->extents[k], fault_address) + text_of(std::size_t(k), launch_->extents[k]);
        }
    }
    if (fault_address < std::uint64_t(current->stack) && fault_address + PAGE >= std::uint64_t(current->stack)) {
        return who + " past the end of its stack of " + std::to_string(STACK_BYTES) + " bytes";
    }
    return who + (said.empty() ? " is in no array of this launch, nor near one" : said);
}

// Called by what g++ puts before an index beyond an array of known size: leave the fiber, as a fault does
} // namespace emu
extern "C" __attribute__((used, visibility("hidden"), noreturn)) void
__ubsan_handle_out_of_bounds_abort(const emu::BeyondBounds* what, std::uint64_t index) {
    emu::in_fiber = 0;
    emu::beyond = "index " + std::to_string(std::int64_t(index)) + " in an array " + what->array->name + " by thread "
                  + std::to_string(emu::current->index) + " at " + what->file + ":" + std::to_string(what->line);
    siglongjmp(emu::escape, 1);
}
namespace emu {

// After a launch
EMU_HIDDEN static void check_arrays() {
    for (int k = 0; launch_->extents && k < launch_->n_args; ++k) {
        if (launch_->extents[k].low != 0) {
            if (const std::string said = torn(launch_->extents[k]); !said.empty()) {
                fail(said + text_of(std::size_t(k), launch_->extents[k]));
            }
        }
    }
}
#endif

// ---- blocks ----
EMU_HIDDEN static void allot_stacks(std::size_t n) {
#ifdef EMU_TSAN
    // Fresh for every block, or a new fiber's frames would seem to race with an old one's.
    char* region = static_cast<char*>(std::malloc(n * STACK_BYTES));
    for (std::size_t i = 0; i < n; ++i) {
        fibers[i].stack = region + i * STACK_BYTES;
    }
#else
    static std::vector<char*> stacks;
    while (stacks.size() < n) {
        void* region = mmap(nullptr, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (region == MAP_FAILED) {
            throw Error("no memory for fibers");
        }
        mprotect(region, PAGE, PROT_NONE);
        stacks.push_back(static_cast<char*>(region) + PAGE);
    }
    for (std::size_t i = 0; i < n; ++i) {
        fibers[i].stack = stacks[i];
    }
#endif
}

EMU_HIDDEN static void retire_fibers() {
#ifdef EMU_TSAN
    Fiber* const members = fibers.data();
    const std::size_t n = fibers.size();
    for (std::size_t i = 0; i < n; ++i) {
        __tsan_switch_to_fiber(members[i].tsan, __tsan_switch_to_fiber_no_sync);
        __tsan_release(exit_tag);
    }
    __tsan_switch_to_fiber(scheduler_tsan, __tsan_switch_to_fiber_no_sync);
    for (Fiber& fiber : fibers) {
        spent.push_back(fiber.tsan);
    }
    std::free(fibers[0].stack);
    if (spent.size() > 4000) { // ThreadSanitizer has room for some 8000
        for (void* fiber : spent) {
            __tsan_destroy_fiber(fiber);
        }
        spent.clear();
    }
#endif
}

// Resume fibers until all wait for the block or have returned.
EMU_HIDDEN static void run_fibers(std::mt19937& random) {
    const std::size_t n = fibers.size();
    if (launch_->order == 0 || launch_->order == 1) {
        const bool reverse = launch_->order == 1;
        const std::size_t n_warps = (n + 31) / 32;
        for (std::size_t w = 0; w < n_warps; ++w) {
            const std::size_t start = 32 * (reverse ? n_warps - 1 - w : w),
                              width = std::min<std::size_t>(32, n - start);
            do {
                for (std::size_t l = 0; l < width; ++l) {
                    Fiber& fiber = fibers[start + (reverse ? width - 1 - l : l)];
                    if (fiber.state == State::ready) {
                        resume(&fiber);
                        if (!failure.empty()) {
                            return;
                        }
                    }
                }
            } while (release_warp(start));
        }
        return;
    }
    static std::vector<Fiber*> round;
    bool released;
    do {
        round.clear();
        for (Fiber& fiber : fibers) {
            if (fiber.state == State::ready) {
                round.push_back(&fiber);
            }
        }
        std::shuffle(round.begin(), round.end(), random);
        for (Fiber* fiber : round) {
            resume(fiber);
            if (!failure.empty()) {
                return;
            }
        }
        released = false;
        for (std::size_t start = 0; start < n; start += 32) {
            released |= release_warp(start);
        }
    } while (released);
}

EMU_HIDDEN static void run_block(std::mt19937& random) {
    const std::size_t n = std::size_t(block_shape.x) * block_shape.y * block_shape.z;
    fibers.assign(n, Fiber{});
    allot_stacks(n);
    if (launch_->shared > 0) {
        add_shared({nullptr, nullptr, Site{}, {0, 0, 0, 0, 1}, 16}, launch_->shared);
    }
    for (std::size_t i = 0; i < n; ++i) {
        Fiber& fiber = fibers[i];
        const unsigned k = unsigned(i);
        fiber.thread = {k % block_shape.x, k / block_shape.x % block_shape.y, k / (block_shape.x * block_shape.y)};
        fiber.index = k;
        fiber.lane = k % 32;
        fiber.state = State::ready;
        prepare(fiber);
    }
#ifdef EMU_GUARDS
    const bool faulted = sigsetjmp(escape, 0);
#else
    const bool faulted = false;
#endif
    try {
        if (faulted) {
#ifdef EMU_GUARDS
            failure = beyond.empty() ? text_of_fault() : beyond;
            beyond.clear();
#endif
        } else {
            do {
                run_fibers(random);
            } while (failure.empty() && release_block());
        }
    } catch (const std::exception& error) {
        failure = error.what();
    }
    retire_fibers();
    free_shared();
}

EMU_HIDDEN static void check_limits(const Launch& launch, std::size_t max_threads) {
    const std::size_t n = std::size_t(launch.block[0]) * launch.block[1] * launch.block[2];
    const auto shape = [](const unsigned* s) {
        return "(" + std::to_string(s[0]) + ", " + std::to_string(s[1]) + ", " + std::to_string(s[2]) + ")";
    };
    if (n == 0 || n > 1024 || launch.block[2] > 64) {
        throw Error("a block of " + shape(launch.block) + " threads, expected 1 to 1024");
    }
    if (n > max_threads) {
        throw Error("a block of " + std::to_string(n) + " threads, over the launch bounds of "
                    + std::to_string(max_threads));
    }
    if (!launch.grid[0] || !launch.grid[1] || !launch.grid[2] || launch.grid[0] > 0x7fffffffu || launch.grid[1] > 65535
        || launch.grid[2] > 65535) {
        throw Error("a grid of " + shape(launch.grid) + " blocks, expected at least 1, at most 65535 on y and z");
    }
    if (launch.shared > launch.shared_limit) {
        throw Error("dynamic shared memory of " + std::to_string(launch.shared) + " bytes, over the limit of "
                    + std::to_string(launch.shared_limit));
    }
}

EMU_HIDDEN static void run_grid(const Launch& launch) {
    launch_ = &launch;
    block_shape = {launch.block[0], launch.block[1], launch.block[2]};
    grid_shape = {launch.grid[0], launch.grid[1], launch.grid[2]};
    std::mt19937 random(unsigned(launch.order) * 7919u);
    std::vector<std::uint64_t> blocks(launch.stop_block - launch.first_block);
    std::iota(blocks.begin(), blocks.end(), launch.first_block);
    if (launch.order == 1) {
        std::reverse(blocks.begin(), blocks.end());
    } else if (launch.order != 0) {
        std::shuffle(blocks.begin(), blocks.end(), random);
    }
#ifdef EMU_TSAN
    scheduler_tsan = __tsan_get_current_fiber();
    exit_tag = new char;
#endif
    for (std::uint64_t k : blocks) {
        block_index = {unsigned(k % launch.grid[0]), unsigned(k / launch.grid[0] % launch.grid[1]),
                       unsigned(k / launch.grid[0] / launch.grid[1])};
        run_block(random);
        if (!failure.empty()) {
            failure += " (block " + std::to_string(k) + ")";
            break;
        }
    }
#ifdef EMU_TSAN
    __tsan_acquire(exit_tag);
    delete exit_tag;
    for (void* fiber : spent) {
        __tsan_destroy_fiber(fiber);
    }
    spent.clear();
#endif
}

// ---- entries: what a library of kernels shows to its users ----
template <typename P> std::string code_of() { // a letter of Python's struct, "*" before what a pointer leads to
    using T = std::remove_cv_t<P>;
    if constexpr (std::is_pointer_v<T>) {
        return "*" + code_of<std::remove_pointer_t<T>>();
    } else if constexpr (std::is_same_v<T, bool>) {
        return "?";
    } else if constexpr (std::is_floating_point_v<T>) {
        return sizeof(T) == 8 ? "d" : "f";
    } else if constexpr (std::is_integral_v<T>) {
        const char* letters = std::is_signed_v<T> ? "bhiq" : "BHIQ";
        return std::string(1, letters[sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3]);
    } else {
        return "V" + std::to_string(sizeof(T));
    }
}

template <typename... P> std::string codes_of(void (*)(P...)) {
    std::string codes;
    ((codes += (codes.empty() ? "" : ",") + code_of<P>()), ...);
    return codes;
}

template <typename... P, std::size_t... I> void call(void (*kernel)(P...), void** args, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<P>*>(args[I])...);
}

template <auto kernel, typename... P> void call_with(void** args, void (*)(P...)) {
    call(kernel, args, std::index_sequence_for<P...>());
}

template <auto kernel> void call_packed(void** args) { call_with<kernel>(args, kernel); }

template <typename... P> void check_arguments(void (*)(P...), const Launch& launch) {
    constexpr std::size_t n = sizeof...(P);
    const std::size_t expected[n + 1] = {sizeof(P)..., 0};
    if (launch.n_args != int(n)) {
        throw Error(std::to_string(launch.n_args) + " arguments, expected " + std::to_string(n));
    }
    for (std::size_t k = 0; k < n; ++k) {
        if (launch.sizes[k] != expected[k]) {
            throw Error("argument " + std::to_string(k) + " has " + std::to_string(launch.sizes[k])
                        + " bytes, expected " + std::to_string(expected[k]));
        }
    }
}

template <auto kernel> int launch_packed(const Launch* launch, std::size_t max_threads) {
    std::lock_guard<std::mutex> guard(turn);
    Ignore ignore;
    failure.clear();
    try {
        check_arguments(kernel, *launch);
        check_limits(*launch, max_threads);
        body = &call_packed<kernel>;
#ifdef EMU_GUARDS
        CatchFaults scope;
        run_grid(*launch);
        check_arrays();
#else
        run_grid(*launch);
#endif
    } catch (const std::exception& error) {
        failure = error.what();
    }
    std::snprintf(launch->message, launch->message_size, "%s", failure.c_str());
    return failure.empty() ? 0 : 1;
}

struct Entry {
    const char* name;
    std::string codes;
    int (*launch)(const Launch*, std::size_t);
    std::size_t max_threads;
};

// ---- warps ----
template <typename T> std::uint64_t to_bits(T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles carry 4 or 8 bytes");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <typename T> T from_bits(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

template <typename T> EMU_HIDDEN static T shuffle(unsigned mask, T value, unsigned source, Site site) {
    Fiber* me = current;
    me->value = to_bits(value);
    me->source = source;
    wait_for_warp(mask, Meeting::shuffle, site);
    return from_bits<T>(me->value);
}

EMU_HIDDEN static unsigned ballot(unsigned mask, bool vote, Site site) {
    Fiber* me = current;
    me->value = vote;
    wait_for_warp(mask, Meeting::ballot, site);
    return unsigned(me->value);
}

EMU_HIDDEN static int block_vote(Meeting meeting, bool vote, Site site) {
    Fiber* me = current;
    me->value = vote;
    wait_for_block(meeting, site);
    return int(me->value);
}

// As on a card, of the upper halves alone: right to some 20 bits.
inline double rsqrt_seed(double x) {
    constexpr std::uint64_t UPPER = 0xffffffff00000000ull;
    const double seed = 1.0 / sqrt(std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & UPPER));
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(seed) & UPPER);
}

EMU_HIDDEN static void mma884(double& c0, double& c1, double a, double b, Site site) {
    Fiber* me = current;
    me->a = a;
    me->b = b;
    me->c[0] = c0;
    me->c[1] = c1;
    wait_for_warp(0xffffffffu, Meeting::mma, site);
    c0 = me->c[0];
    c1 = me->c[1];
}

} // namespace emu

// ---- the language ----
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __noinline__ __attribute__((noinline))

#define threadIdx (emu::current->thread)
#define blockIdx (emu::block_index)
#define blockDim (emu::block_shape)
#define gridDim (emu::grid_shape)
constexpr int warpSize = 32;

#define EMU_HERE                                                                                                       \
    emu::Site { __FILE__, __LINE__ }
#define EMU_FULL 0xffffffffu
#define __syncthreads() emu::wait_for_block(emu::Meeting::sync, EMU_HERE)
#define __syncthreads_or(vote) emu::block_vote(emu::Meeting::any_or, (vote) != 0, EMU_HERE)
#define __syncthreads_and(vote) emu::block_vote(emu::Meeting::any_and, (vote) != 0, EMU_HERE)
#define __syncthreads_count(vote) emu::block_vote(emu::Meeting::count, (vote) != 0, EMU_HERE)
#define __syncwarp(...) emu::wait_for_warp(EMU_FULL __VA_OPT__(&(__VA_ARGS__)), emu::Meeting::sync, EMU_HERE)
#define __ballot_sync(mask, vote) emu::ballot(mask, (vote) != 0, EMU_HERE)
#define __any_sync(mask, vote) (emu::ballot(mask, (vote) != 0, EMU_HERE) != 0)
#define __all_sync(mask, vote) (emu::ballot(mask, (vote) == 0, EMU_HERE) == 0)
#define __shfl_sync(mask, value, ...) emu::shuffle(mask, value, emu::source_of(__VA_ARGS__), EMU_HERE)
#define __shfl_xor_sync(mask, value, ...) emu::shuffle(mask, value, emu::source_xor(__VA_ARGS__), EMU_HERE)
#define __shfl_up_sync(mask, value, ...) emu::shuffle(mask, value, emu::source_up(__VA_ARGS__), EMU_HERE)
#define __shfl_down_sync(mask, value, ...) emu::shuffle(mask, value, emu::source_down(__VA_ARGS__), EMU_HERE)
#define __threadfence() std::atomic_thread_fence(std::memory_order_seq_cst)
#define __threadfence_block() std::atomic_thread_fence(std::memory_order_seq_cst)

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

namespace emu {

// Lanes that shuffles read, within groups of `width` lanes; 32 stands for the lane's own value.
inline unsigned source_of(unsigned source, unsigned width = 32) {
    return (current->lane & ~(width - 1)) | (source & (width - 1));
}
inline unsigned source_xor(unsigned bits, unsigned width = 32) {
    const unsigned source = current->lane ^ bits;
    return (source & ~(width - 1)) <= (current->lane & ~(width - 1)) ? source : 32;
}
inline unsigned source_up(unsigned delta, unsigned width = 32) {
    return (current->lane & (width - 1)) >= delta ? current->lane - delta : 32;
}
inline unsigned source_down(unsigned delta, unsigned width = 32) {
    return (current->lane & (width - 1)) + delta < width ? current->lane + delta : 32;
}

EMU_HIDDEN static void* dynamic_shared(std::size_t item) {
    Ignore ignore;
    for (Shared& array : shared) {
        if (!array.key) {
            array.extent.item = item;
            return array.bytes();
        }
    }
    return nullptr;
}

} // namespace emu

// ---- built-in functions ----
#define EMU_MIN_MAX(T)                                                                                                 \
    inline T min(T a, T b) { return b < a ? b : a; }                                                                   \
    inline T max(T a, T b) { return a < b ? b : a; }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
// As fmin and fmax: a NaN gives way
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline float rsqrtf(float x) { return rsqrt(x); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }

inline void sincospi(double x, double* sine, double* cosine) {
    const double quarters = rint(2.0 * x);
    const double angle = M_PI * (x - 0.5 * quarters); // |angle| <= pi / 4, the difference exact
    const double s = sin(angle), c = cos(angle);
    switch (int(quarters - 4.0 * floor(0.25 * quarters))) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
    }
    if (!(fabs(x) < INFINITY)) {
        *sine = *cosine = NAN;
    }
}
inline void sincospi(float x, float* sine, float* cosine) {
    double s, c;
    sincospi(double(x), &s, &c);
    *sine = float(s), *cosine = float(c);
}
inline double sinpi(double x) {
    double s, c;
    sincospi(x, &s, &c);
    return s;
}
inline double cospi(double x) {
    double s, c;
    sincospi(x, &s, &c);
    return c;
}
inline float sinpif(float x) { return float(sinpi(double(x))); }
inline float cospif(float x) { return float(cospi(double(x))); }

inline double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
// exp(x^2) erfc(x): the product where it neither overflows nor underflows, the continued fraction beyond
inline double erfcx(double x) {
    if (x < 8.0) {
        const double square = x * x;
        return exp(square) * exp(fma(x, x, -square)) * erfc(x);
    }
    double tail = x;
    for (int k = 60; k > 0; --k) {
        tail = x + 0.5 * k / tail;
    }
    return 1.0 / (tail * 1.7724538509055160273);
}
// Newton's steps on log Phi from an asymptotic start; the upper half by symmetry
inline double normcdfinv(double p) {
    if (!(p > 0.0 && p < 1.0)) {
        return p == 0.0 ? -INFINITY : p == 1.0 ? INFINITY : NAN;
    }
    if (p > 0.5) {
        return -normcdfinv(1.0 - p);
    }
    const double target = log(p);
    double x = -sqrt(fmax(0.0, -2.0 * (target + 0.5 * log(fmax(1.0, -4.0 * M_PI * (target + M_LN2))))));
    for (int k = 0; k < 60; ++k) {
        const double ratio = 0.79788456080286535588 / erfcx(-x * M_SQRT1_2); // d log Phi / dx
        const double log_cdf = -0.5 * x * x + log(0.5 * erfcx(-x * M_SQRT1_2));
        const double step = (target - log_cdf) / ratio;
        x += step;
        if (!(fabs(step) > 1e-16 * fabs(x))) {
            break;
        }
    }
    return x;
}

inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __drcp_rn(double a) { return 1.0 / a; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return 1.0f / sqrtf(a); }
inline float __expf(float a) { return expf(a); }
inline float __logf(float a) { return logf(a); }
inline float __fdividef(float a, float b) { return a / b; }
inline double __longlong_as_double(long long a) { return std::bit_cast<double>(a); }
inline long long __double_as_longlong(double a) { return std::bit_cast<long long>(a); }
inline float __int_as_float(int a) { return std::bit_cast<float>(a); }
inline int __float_as_int(float a) { return std::bit_cast<int>(a); }
inline int __double2hiint(double a) { return int(std::bit_cast<std::uint64_t>(a) >> 32); }
inline int __double2loint(double a) { return int(std::bit_cast<std::uint64_t>(a)); }
inline double __hiloint2double(int high, int low) {
    return std::bit_cast<double>(std::uint64_t(unsigned(high)) << 32 | unsigned(low));
}
inline int __double2int_rn(double a) { return int(rint(a)); }
inline long long __double2ll_rn(double a) { return (long long)rint(a); }
inline int __popc(unsigned a) { return std::popcount(a); }
inline int __popcll(unsigned long long a) { return std::popcount(a); }
inline int __clz(int a) { return std::countl_zero(unsigned(a)); }
inline int __clzll(long long a) { return std::countl_zero((unsigned long long)a); }
inline int __ffs(int a) { return a ? std::countr_zero(unsigned(a)) + 1 : 0; }

template <typename T> inline T __ldg(const T* p) { return *p; }

// Integer atomics alone: the sources add no floats atomically, since their order would show in the result.
#define EMU_ATOMICS(T)                                                                                                 \
    inline T atomicAdd(T* p, T v) { return std::atomic_ref<T>(*p).fetch_add(v, std::memory_order_relaxed); }           \
    inline T atomicOr(T* p, T v) { return std::atomic_ref<T>(*p).fetch_or(v, std::memory_order_relaxed); }             \
    inline T atomicCAS(T* p, T expected, T v) {                                                                        \
        std::atomic_ref<T>(*p).compare_exchange_strong(expected, v, std::memory_order_relaxed);                        \
        return expected;                                                                                               \
    }                                                                                                                  \
    inline T atomicMin(T* p, T v) {                                                                                    \
        T old = std::atomic_ref<T>(*p).load(std::memory_order_relaxed);                                                \
        while (v < old && !std::atomic_ref<T>(*p).compare_exchange_weak(old, v, std::memory_order_relaxed)) {          \
        }                                                                                                              \
        return old;                                                                                                    \
    }                                                                                                                  \
    inline T atomicMax(T* p, T v) {                                                                                    \
        T old = std::atomic_ref<T>(*p).load(std::memory_order_relaxed);                                                \
        while (old < v && !std::atomic_ref<T>(*p).compare_exchange_weak(old, v, std::memory_order_relaxed)) {          \
        }                                                                                                              \
        return old;                                                                                                    \
    }
EMU_ATOMICS(int)
EMU_ATOMICS(unsigned)
EMU_ATOMICS(unsigned long long)

// ---- small vectors ----
#define EMU_VECTOR(T, name, alignment)                                                                                 \
    struct alignas(alignment) name##2 { T x, y; };                                                                     \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                         \
    struct alignas(2 * alignment <= 16 ? 2 * alignment : 16) name##4 { T x, y, z, w; };                                \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTOR(double, double, 16)
EMU_VECTOR(float, float, 8)
EMU_VECTOR(int, int, 8)
