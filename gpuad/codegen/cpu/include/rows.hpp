[[noreturn]] GPUAD_NOINLINE static void gpuad_no_room() { throw std::bad_alloc(); }

// How many threads that make so many iterations may keep what is needed of each.
GPUAD_INLINE long long gpuad_narrow(double iterations)
{
    const double most = 4194304.0;
    return iterations < most / 64 ? 64 : iterations < most ? (long long)(most / iterations) : 1;
}

#ifdef _WIN32
template <typename T>
struct gpuad_row {
    T* data = nullptr;
    unsigned long long size = 0;

    gpuad_row() = default;
    gpuad_row(const gpuad_row&) = delete;
    ~gpuad_row() { std::free((void*)data); }

    GPUAD_NOINLINE void grow(unsigned long long k)
    {
        const unsigned long long more = k < 512 ? 1024 : 2 * k;
        void* moved = k < 1ULL << 40 ? std::realloc((void*)data, more * sizeof(T)) : nullptr;
        if (!moved) gpuad_no_room();
        data = (T*)moved;
        size = more;
    }

    inline T& operator[](long long k)
    {
        if (__builtin_expect((unsigned long long)k >= size, 0)) grow((unsigned long long)k);
        return data[k];
    }

    inline T* shelf(long long k, long long lanes)
    {
        return &(*this)[(k + 1) * lanes - 1] + 1 - lanes;
    }
};
#else
// A number that Linux tells of this process, in bytes of `unit`; none where it says "unlimited", or nothing.
static unsigned long long gpuad_told(const char* path, const char* line, unsigned long long unit, unsigned long long none)
{
    unsigned long long found = none;
    if (FILE* file = std::fopen(path, "r")) {
        char text[256];
        while (std::fgets(text, sizeof(text), file))
            if (std::sscanf(text, line, &found) == 1) {
                found *= unit;
                break;
            }
        std::fclose(file);
    }
    return found;
}

// The addresses that a row may have: 4 GiB, or, where the process has a limit (`ulimit -v`), a part of what is left of it.
static unsigned long long gpuad_share_of_addresses()
{
    const unsigned long long most = sizeof(void*) > 4 ? 1ULL << 32 : 1ULL << 26, page = 1ULL << 16;
    static const unsigned long long all = gpuad_told("/proc/self/limits", "Max address space %llu", 1, ~0ULL);
    if (all == ~0ULL) return most;
    const unsigned long long used = gpuad_told("/proc/self/status", "VmSize: %llu kB", 1024, 0);
    const unsigned long long share = all > used ? (all - used) / 16 / page * page : 0;
    return share < page ? page : share < most ? share : most;
}

// Addresses of which none is memory before it is touched. Where the system has too few, since it counts them, far fewer.
static void* gpuad_reserve(unsigned long long& bytes)
{
    for (bytes = gpuad_share_of_addresses(); bytes >= 1ULL << 16; bytes = bytes / 16 & ~0xFFFFULL) {
        void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (found == MAP_FAILED) continue;
#ifdef MADV_NOHUGEPAGE
        madvise(found, bytes, MADV_NOHUGEPAGE);
#endif
        return found;
    }
    gpuad_no_room();
}

template <typename T>
struct gpuad_row {
    T* data;
    unsigned long long bytes;

    gpuad_row() { data = (T*)gpuad_reserve(bytes); }
    gpuad_row(const gpuad_row&) = delete;
    ~gpuad_row() { munmap((void*)data, bytes); }

    inline T& operator[](long long k)
    {
        if (__builtin_expect((unsigned long long)k >= bytes / sizeof(T), 0)) gpuad_no_room();
        return data[k];
    }

    inline T* shelf(long long k, long long lanes)
    {
        return &(*this)[(k + 1) * lanes - 1] + 1 - lanes;
    }
};
#endif

