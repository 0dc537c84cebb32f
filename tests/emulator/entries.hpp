// After a kernel source: what a compiled one shows. EMU_ENTRIES is emulate.py's list of kernels and launch bounds.
// A library shows emu_describe, emu_launch and emu_replay; a program under a sanitizer replays launches that
// fake_cupy.py recorded.

#define EMU_ENTRY(kernel, bounds) {#kernel, emu::codes_of(&kernel), &emu::launch_packed<&kernel>, std::size_t(bounds)},

static const std::vector<emu::Entry>& emu_entries() {
    static const std::vector<emu::Entry> entries = {EMU_ENTRIES};
    return entries;
}

static int emu_run(const char* name, const emu::Launch* launch) {
    for (const emu::Entry& entry : emu_entries()) {
        if (std::strcmp(entry.name, name) == 0) {
            return entry.launch(launch, entry.max_threads);
        }
    }
    std::snprintf(launch->message, launch->message_size, "no kernel of this name");
    return 1;
}

// A record, integers little-endian of 8 bytes: length and text of the name, grid, block, shared bytes, their limit,
// number of buffers, each as length and bytes, number of arguments, each as buffer and offset (pointer) or as -1,
// length and bytes (scalar), then the buffers as the launch left them, unless it failed. Every buffer is an
// allocation of its own, so AddressSanitizer knows its ends.
namespace emu {

struct Reader {
    std::FILE* file;
    void bytes(void* to, std::size_t n) {
        if (n && std::fread(to, 1, n, file) != n) {
            std::fprintf(stderr, "a record ends early\n");
            std::exit(4);
        }
    }
    std::int64_t integer() {
        std::int64_t value;
        bytes(&value, sizeof value);
        return value;
    }
};

static int replay(const char* path, int order, const char* skip_file, int skip_line) {
    Reader in{std::fopen(path, "rb")};
    if (!in.file) {
        std::perror(path);
        return 4;
    }
    std::string name(std::size_t(in.integer()), ' ');
    in.bytes(name.data(), name.size());
    char message[2000] = "";
    Launch launch{};
    for (unsigned& k : launch.grid) {
        k = unsigned(in.integer());
    }
    for (unsigned& k : launch.block) {
        k = unsigned(in.integer());
    }
    launch.shared = std::uint64_t(in.integer());
    launch.shared_limit = std::uint64_t(in.integer());
    launch.order = order;
    launch.stop_block = std::uint64_t(launch.grid[0]) * launch.grid[1] * launch.grid[2];
    launch.skip_file = skip_file;
    launch.skip_line = skip_line;
    launch.message = message;
    launch.message_size = sizeof message;
    std::vector<char*> buffers;
    std::vector<std::size_t> buffer_sizes;
    for (std::int64_t n = in.integer(); n > 0; --n) {
        const std::size_t size = std::size_t(in.integer());
        buffer_sizes.push_back(size);
        buffers.push_back(static_cast<char*>(std::malloc(size)));
        in.bytes(buffers.back(), size);
    }
    const std::size_t n_args = std::size_t(in.integer());
    std::vector<std::vector<char>> values(n_args);
    std::vector<void*> args;
    std::vector<std::uint64_t> sizes;
    for (std::vector<char>& value : values) {
        const std::int64_t buffer = in.integer();
        if (buffer >= 0) {
            const char* address = buffers[std::size_t(buffer)] + in.integer();
            value.resize(sizeof address);
            std::memcpy(value.data(), &address, sizeof address);
        } else {
            value.resize(std::size_t(in.integer()));
            in.bytes(value.data(), value.size());
        }
        args.push_back(value.data());
        sizes.push_back(value.size());
    }
    launch.args = args.data();
    launch.sizes = sizes.data();
    launch.n_args = int(n_args);
    const int failed = emu_run(name.c_str(), &launch);
    if (failed) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), message);
    }
    bool same = true;
    for (std::size_t k = 0; k < buffers.size(); ++k) {
        std::vector<char> left(buffer_sizes[k]);
        const bool recorded = std::fread(left.data(), 1, left.size(), in.file) == left.size();
        same = same && (!recorded || std::memcmp(left.data(), buffers[k], left.size()) == 0);
        std::free(buffers[k]);
    }
    std::fclose(in.file);
    if (!failed && !same) {
        std::fprintf(stderr, "%s: other bits than in the recorded launch\n", name.c_str());
    }
    return failed ? 3 : same ? 0 : 5;
}

} // namespace emu

// arguments: program ORDER SKIP_FILE SKIP_LINE RECORD...; exit status 3 for the emulator's errors, 4 for bad records, 5
// for results that differ from the recorded ones in any bit
static int emu_main(int argc, char** argv) {
    const char* skip_file = argv[2][0] ? argv[2] : nullptr;
    for (int k = 4; k < argc; ++k) {
        if (int status = emu::replay(argv[k], std::atoi(argv[1]), skip_file, std::atoi(argv[3]))) {
            return status;
        }
    }
    return 0;
}

#ifdef EMU_LIBRARY

extern "C" __attribute__((visibility("default"))) const char* emu_describe() {
    static const std::string text = [] {
        std::string lines;
        for (const emu::Entry& entry : emu_entries()) {
            lines += entry.name + (" " + entry.codes) + "\n";
        }
        return lines;
    }();
    return text.c_str();
}

extern "C" __attribute__((visibility("default"))) int emu_launch(const char* name, const emu::Launch* launch) {
    return emu_run(name, launch);
}

extern "C" __attribute__((visibility("default"))) int emu_replay(int argc, char** argv) { return emu_main(argc, argv); }

#else

int main(int argc, char** argv) { return emu_main(argc, argv); }

#endif
