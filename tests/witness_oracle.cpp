// Runs CUDA texts thread by thread on the CPU and differentiates them by difference quotients; shares nothing with gpuad.
// Kernels without barriers are plain loops over the threads; those with barriers (GPUAD_FIBERS) give each thread of a block a fiber.
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx, blockDim, gridDim;
#define __global__
#define __device__
#define __shared__ static
#define __restrict__
template <class T> static T atomicAdd(T* p, T v) { T old = *p; *p = old + v; return old; }
static int min(int a, int b) { return a < b ? a : b; }
static int max(int a, int b) { return a < b ? b : a; }

typedef void (*Body)(void**);
typedef void (*Launch)(void**, const unsigned*);

template <class F> static void each_block(const unsigned* g, F body)
{
    gridDim = {g[0], g[1], g[2]};
    blockDim = {g[3], g[4], g[5]};
    for (blockIdx.z = 0; blockIdx.z < g[2]; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < g[1]; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < g[0]; ++blockIdx.x) body();
}

template <class F> static void each_thread(F body)
{
    for (unsigned z = 0; z < blockDim.z; ++z)
        for (unsigned y = 0; y < blockDim.y; ++y)
            for (unsigned x = 0; x < blockDim.x; ++x) body(Dim{x, y, z});
}

static void run_plainly(Body body, void** a, const unsigned* g)
{
    each_block(g, [&] { each_thread([&](Dim at) { threadIdx = at; body(a); }); });
}

#ifdef GPUAD_FIBERS
#include <ucontext.h>

enum { MOST = 64, STACK = 64 << 10 };
struct Fiber { ucontext_t context; Dim at; bool ended; };
static Fiber fibers[MOST];
static char stacks[MOST][STACK];
static ucontext_t scheduler;
static Fiber* current;
static Body body_of_fibers;
static void** arguments_of_fibers;

static void __syncthreads() { swapcontext(&current->context, &scheduler); }
static void enter() { body_of_fibers(arguments_of_fibers); current->ended = true; }

// Threads of a block take turns from barrier to barrier.
static void run_with_barriers(Body body, void** a, const unsigned* g)
{
    body_of_fibers = body;
    arguments_of_fibers = a;
    each_block(g, [&] {
        int count = 0;
        each_thread([&](Dim at) {
            if (count == MOST) abort();
            Fiber& f = fibers[count];
            getcontext(&f.context);
            f.context.uc_stack.ss_sp = stacks[count];
            f.context.uc_stack.ss_size = STACK;
            f.context.uc_link = &scheduler;
            f.at = at;
            f.ended = false;
            makecontext(&f.context, enter, 0);
            ++count;
        });
        for (int open = count; open > 0;) {
            open = 0;
            for (int k = 0; k < count; ++k)
                if (!fibers[k].ended) {
                    current = &fibers[k];
                    threadIdx = current->at;
                    swapcontext(&scheduler, &current->context);
                    open += !current->ended;
                }
        }
    });
}
#else
static void run_with_barriers(Body, void**, const unsigned*) { abort(); }
#endif

// Launches a kernel `steps` times, each with its own arguments, which point into `count` arrays of doubles. `after`: the arrays' content then.
// out[k][e]: the sum of seeds times d(after) / d(arrays[k][e]), by differences of fourth order with the step `h`, exact for polynomials of
// degree four whose numbers are short. The arrays themselves are on return as they were.
extern "C" void derive(Launch launch, int steps, void*** arguments, const unsigned* geometry, int count, double** arrays, const long* sizes,
                       double** seeds, double** after, double** out, double h)
{
    static const double moves[] = {1, -1, 2, -2}, weights[] = {8, -8, -1, 1};
    double** before = (double**)malloc(count * sizeof(double*));
    for (int k = 0; k < count; ++k) {
        before[k] = (double*)malloc(sizes[k] * sizeof(double) + 1);
        memcpy(before[k], arrays[k], sizes[k] * sizeof(double));
    }
    auto run = [&] { for (int s = 0; s < steps; ++s) launch(arguments[s], geometry); };
    auto restore = [&] { for (int k = 0; k < count; ++k) memcpy(arrays[k], before[k], sizes[k] * sizeof(double)); };
    for (int k = 0; k < count; ++k)
        for (long e = 0; e < sizes[k]; ++e) {
            double sum = 0;
            for (int m = 0; m < 4; ++m) {
                arrays[k][e] += moves[m] * h;
                run();
                for (int q = 0; q < count; ++q)
                    for (long i = 0; i < sizes[q]; ++i) sum += weights[m] * seeds[q][i] * (arrays[q][i] - before[q][i]);
                restore();
            }
            out[k][e] = sum / (12 * h);
        }
    run();
    for (int k = 0; k < count; ++k) memcpy(after[k], arrays[k], sizes[k] * sizeof(double));
    restore();
    for (int k = 0; k < count; ++k) free(before[k]);
    free(before);
}
