// Fibers, one for each CUDA thread, and the state of a launch. A part of shim.hpp.
#pragma once

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
enum class Meeting : char { sync, shuffle, ballot, mma }; // of a warp

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

// The arguments of a launch, filled by emulate.py through ctypes and by the replays of recordings
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

} // namespace emu
