// Sums of the contributions that strips of threads leave behind, in double and always in the same order.
struct gpuad_lanes {
    double lane[16] = {};

    template <typename T>
    inline void add(const T* part, long long count)
    {
        long long k = 0;
        for (; k + 16 <= count; k += 16)
            for (int l = 0; l < 16; ++l) lane[l] += (double)part[k + l];
        for (; k < count; ++k) lane[k % 16] += (double)part[k];
    }

    inline double total() const
    {
        double sum = 0.0;
        for (int l = 0; l < 16; ++l) sum += lane[l];
        return sum;
    }
};

template <typename T>
static void gpuad_add_up(const std::vector<double>& done, std::size_t first, std::size_t step, T* target)
{
    double sum = 0.0;
    for (std::size_t k = first; k < done.size(); k += step) sum += done[k];
    if (sum != 0.0) *target += (T)sum;
}
