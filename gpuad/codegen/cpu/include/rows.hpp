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
// As many addresses as the system lets us have, up to 4 GiB; none of it is memory before it is touched.
static void* gpuad_reserve(unsigned long long& bytes)
{
    for (bytes = sizeof(void*) > 4 ? 1ULL << 32 : 1ULL << 26; bytes >= 1ULL << 16; bytes /= 2) {
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

