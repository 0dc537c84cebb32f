// Shared memory, the blocks of a launch, and the launch itself. A part of shim.hpp.
#pragma once

namespace emu {

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

} // namespace emu
