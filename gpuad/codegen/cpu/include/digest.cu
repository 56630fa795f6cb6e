extern "C" __global__ void gpuad_digest_UNIT(const WORD* memory, const long long* spans, long long count, unsigned long long* sum)
{
    unsigned long long found = 0;
    for (long long k = blockIdx.x; k < count; k += gridDim.x)
        for (long long i = spans[2 * k] / UNIT + threadIdx.x; i < spans[2 * k + 1] / UNIT; i += blockDim.x) {
            unsigned long long x = (unsigned long long)memory[i] + 0x9e3779b97f4a7c15ull * (unsigned long long)(i + 1);
            x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
            x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
            found += x ^ (x >> 31);
        }
    atomicAdd(sum, found);
}
