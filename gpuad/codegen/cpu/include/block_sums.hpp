// A sum over threads that is added to memory once, in the order of the workers.
struct gpuad_flushed { void* target; double sum; };
struct gpuad_partial { void* target = nullptr; double sum = 0.0; };

static __attribute__((noinline)) void gpuad_flush(std::vector<gpuad_flushed>& done, void* target, double sum)
{
    if (target) done.push_back({target, sum});
}

template <typename T>
GPUAD_INLINE void gpuad_block_sum(gpuad_partial& partial, std::vector<gpuad_flushed>& done, T* target, double value)
{
    if (__builtin_expect(target != partial.target, 0)) {
        gpuad_flush(done, partial.target, partial.sum);
        partial.target = target;
        partial.sum = 0.0;
    }
    partial.sum += value;
}

template <typename T>
static void gpuad_combine(const std::vector<std::vector<gpuad_flushed>>& done, std::size_t first, std::size_t step)
{
    std::map<void*, std::size_t> places;
    std::vector<gpuad_flushed> sums;
    for (std::size_t k = first; k < done.size(); k += step) {
        for (const gpuad_flushed& part : done[k]) {
            const auto place = places.emplace(part.target, sums.size());
            if (place.second) sums.push_back(part);
            else sums[place.first->second].sum += part.sum;
        }
    }
    for (const gpuad_flushed& part : sums)
        if (part.sum != 0.0) *(T*)part.target += (T)part.sum;
}
