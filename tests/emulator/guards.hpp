// Red zones: memory with guarded ends, and faults that end a launch and not the process. A part of shim.hpp.
//
// An array of a launch (fake_memory.py) and one of shared memory ends at a page without access, or begins after one where
// fibers run in reverse order. What its pages have left on the other side holds a pattern, a NaN and a negative
// integer, that is looked at after the launch. While a launch runs, SIGSEGV and SIGBUS of its thread are caught on a
// stack of their own, since that of the fiber may be full; siglongjmp then leaves the fiber for the scheduler. So does an
// index beyond an array of a thread, whose size the compiler knows (-fsanitize=bounds, without its run-time library).
// Sanitizers see such accesses themselves: with them memory comes from malloc and signals stay as they are.
#pragma once
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

namespace emu {

constexpr std::size_t GUARD = std::size_t(1) << 20; // bytes without access on either side

struct Pattern {
    alignas(16) unsigned char page[PAGE];
    constexpr Pattern() : page{} {
        for (std::size_t k = 0; k < PAGE; ++k) {
            page[k] = k % 4 < 2 ? 0xA5 : 0xFF;
        }
    }
    const unsigned char* at(std::uint64_t address) const { return page + address % PAGE; }
};
static constexpr Pattern pattern;

// ---- memory ----
struct Spare {
    std::uint64_t key; // what decides where the array lies in its pages
    Extent extent;
};
static std::vector<Spare> spares;

static void paint(std::uint64_t from, std::uint64_t to) {
    std::memcpy(reinterpret_cast<void*>(from), pattern.at(from), to - from);
}

// `size` bytes, a multiple of `alignment` away from a page's begin
static Extent guarded(std::size_t size, std::size_t alignment, bool at_begin) {
    const std::uint64_t key = std::uint64_t(size) << 8 | alignment << 1 | at_begin;
    for (Spare& spare : spares) {
        if (spare.key == key) {
            const Extent extent = spare.extent;
            spare = spares.back();
            spares.pop_back();
            return extent;
        }
    }
    const std::size_t room = std::max<std::size_t>(1, (size + PAGE - 1) / PAGE) * PAGE;
    void* const all = mmap(nullptr, room + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const std::uint64_t low = reinterpret_cast<std::uint64_t>(all) + GUARD, high = low + room;
    if (all == MAP_FAILED || mprotect(reinterpret_cast<void*>(low), room, PROT_READ | PROT_WRITE)) {
        throw Error("no memory for shared memory");
    }
    const std::uint64_t begin = at_begin ? low : (high - size) / alignment * alignment;
    paint(low, begin);
    paint(begin + size, high);
    return {low, begin, begin + size, high, 1};
}

static void give_back(const Extent& e, std::size_t alignment, bool at_begin) {
    spares.push_back({std::uint64_t(e.end - e.begin) << 8 | alignment << 1 | at_begin, e});
}

// Where a write left its mark beside an array, which is painted over; empty if nowhere
static std::string torn(const Extent& e) {
    const auto changed = [](std::uint64_t from, std::uint64_t to) {
        return to > from && std::memcmp(reinterpret_cast<void*>(from), pattern.at(from), to - from) != 0;
    };
    const auto byte_at = [](std::uint64_t k) { return *reinterpret_cast<const unsigned char*>(k); };
    std::string said;
    if (changed(e.low, e.begin)) {
        std::uint64_t k = e.low;
        while (byte_at(k) == *pattern.at(k)) {
            ++k;
        }
        said = "a write begins " + std::to_string(e.begin - k) + " bytes before the beginning of ";
        paint(e.low, e.begin);
    }
    if (changed(e.end, e.high)) {
        std::uint64_t k = e.high;
        while (byte_at(k - 1) == *pattern.at(k - 1)) {
            --k;
        }
        said = "a write reaches " + std::to_string(k - e.end) + " bytes past the end of ";
        paint(e.end, e.high);
    }
    return said;
}

// ---- faults ----
static sigjmp_buf escape;
static pthread_t launching;
static volatile sig_atomic_t in_fiber = 0;
static std::uint64_t fault_address;
static const char* fault_access;
static const int FAULTS[2] = {SIGSEGV, SIGBUS};
static struct sigaction actions_before[2];

static void on_fault(int signal, siginfo_t* info, void* context) {
    if (!in_fiber || !pthread_equal(launching, pthread_self())) { // not a kernel's: as if there were no launch
        sigaction(signal, &actions_before[signal == SIGBUS], nullptr);
        return;
    }
    in_fiber = 0;
    fault_address = reinterpret_cast<std::uint64_t>(info->si_addr);
    fault_access = "an access";
#if defined(__x86_64__)
    if (info->si_code == SEGV_ACCERR || info->si_code == SEGV_MAPERR) {
        const bool wrote = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2;
        fault_access = wrote ? "a write" : "a read";
    }
#endif
    siglongjmp(escape, 1);
}

// ---- arrays of a thread ----
static std::string beyond; // what an index did, if it did

struct BeyondBounds { // as g++ fills it
    struct Type {
        std::uint16_t kind, info;
        char name[1];
    };
    const char* file;
    std::uint32_t line, column;
    const Type *array, *index;
};

struct CatchFaults { // in its scope
    stack_t stack_before;
    CatchFaults() {
        static char bytes[1 << 16];
        stack_t own{};
        own.ss_sp = bytes;
        own.ss_size = sizeof bytes;
        sigaltstack(&own, &stack_before);
        struct sigaction action{};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER; // siglongjmp leaves the mask of signals alone
        launching = pthread_self();
        for (int k = 0; k < 2; ++k) {
            sigaction(FAULTS[k], &action, &actions_before[k]);
        }
    }
    ~CatchFaults() {
        for (int k = 0; k < 2; ++k) {
            sigaction(FAULTS[k], &actions_before[k], nullptr);
        }
        sigaltstack(&stack_before, nullptr);
    }
};

// How far outside an array the address lies; false if it is not outside
static bool beside(const Extent& e, std::uint64_t address, std::uint64_t& distance) {
    if (e.low == 0 || (address >= e.begin && address < e.end)) {
        return false;
    }
    distance = address >= e.end ? address - e.end : e.begin - address;
    return true;
}

static std::string where_of(const Extent& e, std::uint64_t address) {
    return address >= e.end ? " reaches " + std::to_string(address - e.end + e.item) + " bytes past the end of "
                            : " begins " + std::to_string(e.begin - address) + " bytes before the beginning of ";
}

} // namespace emu
