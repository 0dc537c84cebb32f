// What fibers wait for: barriers of a block, meetings of a warp, and what lanes exchange there. A part of shim.hpp.
#pragma once

namespace emu {

// ---- what fibers wait for ----
EMU_HIDDEN static bool skipped(Site site) {
    return launch_->skip_file && launch_->skip_line == site.line && std::strcmp(launch_->skip_file, site.file) == 0;
}

EMU_HIDDEN static void wait_for_block(Site site) {
    if (skipped(site)) {
        return;
    }
    current->state = State::at_block;
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
    for (const Fiber& fiber : fibers) {
        if (fiber.state == State::done) {
            ++n_done;
        } else if (fiber.state == State::at_warp) {
            stuck = &fiber;
        } else {
            if (waiting && !(waiting->site == fiber.site)) {
                throw Error("threads wait at different barriers: " + waiting->site.text() + " and "
                            + fiber.site.text());
            }
            waiting = &fiber;
            ++n_waiting;
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
    for (Fiber& fiber : fibers) {
        fiber.state = State::ready;
        all.push_back(&fiber);
    }
    order(all);
    return true;
}

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
