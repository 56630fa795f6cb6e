GPUAD_INLINE std::uint64_t gpuad_mixed(std::uint64_t a, std::uint64_t b)
{
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (std::uint64_t)product ^ (std::uint64_t)(product >> 64);
}

GPUAD_INLINE std::uint64_t gpuad_block(const std::uint64_t* w, std::uint64_t place)
{
    const std::uint64_t p = 0xa0761d6478bd642full, q = 0xe7037ed1a0b428dbull, r = 0x8ebc6af09c88c6e3ull, s = 0x589965cc75374cc3ull;
    const std::uint64_t seed = gpuad_mixed(place ^ s, q);
    const std::uint64_t one = gpuad_mixed(w[0] ^ p, w[1] ^ seed) ^ gpuad_mixed(w[2] ^ q, w[3] ^ seed);
    const std::uint64_t other = gpuad_mixed(w[4] ^ r, w[5] ^ seed) ^ gpuad_mixed(w[6] ^ s, w[7] ^ seed);
    return gpuad_mixed(one ^ other ^ p, seed ^ r);
}

static std::uint64_t gpuad_digest_of(const char* memory, long long low, long long high)
{
    std::uint64_t sum = 0, w[8];
    for (; low + 64 <= high; low += 64) {
        std::memcpy(w, memory + low, 64);
        sum += gpuad_block(w, (std::uint64_t)low);
    }
    if (low < high) {
        std::memset(w, 0, 64);
        std::memcpy(w, memory + low, high - low);
        sum += gpuad_block(w, (std::uint64_t)low);
    }
    return sum;
}

}  // namespace

extern "C" GPUAD_EXPORT int gpuad_launch_digest(const long long* geometry, const unsigned long long* slots)
{
    using namespace gpuad_host;
    const long long count = geometry[0];
    const int workers = gpuad_workers(geometry[1], geometry[2] >= LEAST, count), parts = gpuad_parts(workers, count, count);
    const gpuad_large<std::uint64_t> sums(parts);
    const int status = gpuad_parallel(workers, parts, [&](int part) {
        const long long* spans = gpuad_slot<const long long*>(slots, 1);
        std::uint64_t sum = 0;
        for (long long k = gpuad_bound(count, part, parts), end = gpuad_bound(count, part + 1, parts); k < end; ++k)
            sum += gpuad_digest_of(gpuad_slot<const char*>(slots, 0), spans[2 * k], spans[2 * k + 1]);
        sums.data[part] = sum;
    });
    if (status) return status;
    std::uint64_t sum = 0;
    for (int k = 0; k < parts; ++k) sum += sums.data[k];
    *gpuad_slot<std::uint64_t*>(slots, 2) = sum;
    return 0;
}
