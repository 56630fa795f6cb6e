"""The C++ that shares a launch out to the cores of a CPU: threads that stay from one launch to the next, since starting one takes longer
than many a kernel does."""

THREADS = r"""
struct gpuad_task { void (*enter)(gpuad_task&); void (*run)(const void* work, int part); const void* work; int part; int failed; };

// An assertion that has failed.
struct gpuad_stopped { int number; };

static void gpuad_enter(gpuad_task& task)
{
    try {
        task.run(task.work, task.part);
    } catch (const gpuad_stopped& stopped) {
        task.failed = 3 + stopped.number;
    } catch (...) {
        task.failed = 2;
    }
}

#ifndef _WIN32
// Threads that wait for launches. `ticket`: the launch's number (32 bits), how many tasks it has and how many of them are taken (16 each).
// `owner`: held by the launch that has the crew.
struct gpuad_crew {
    pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
    unsigned long long ticket = 0;
    gpuad_task* tasks = nullptr;
    int asleep = 0, threads = 0, done = 0;
};

GPUAD_INLINE void gpuad_pause()
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static unsigned gpuad_launch_number(gpuad_crew& crew) { return (unsigned)(__atomic_load_n(&crew.ticket, __ATOMIC_SEQ_CST) >> 32); }

// Takes tasks of this launch until there are none. A ticket that is still the one that was read belongs to the tasks that were read.
static void gpuad_help(gpuad_crew& crew, unsigned number)
{
    unsigned long long ticket = __atomic_load_n(&crew.ticket, __ATOMIC_ACQUIRE);
    while ((unsigned)(ticket >> 32) == number && (ticket & 0xffff) < (ticket >> 16 & 0xffff)) {
        gpuad_task* const task = __atomic_load_n(&crew.tasks, __ATOMIC_RELAXED) + (ticket & 0xffff);
        if (!__atomic_compare_exchange_n(&crew.ticket, &ticket, ticket + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
        task->enter(*task);
        __atomic_add_fetch(&crew.done, 1, __ATOMIC_RELEASE);
        ticket = __atomic_load_n(&crew.ticket, __ATOMIC_ACQUIRE);
    }
}

static long long gpuad_nanoseconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// The number of the next launch: looks out for it 100 microseconds, if the crew leaves a core for each of its threads, then sleeps.
static unsigned gpuad_next_launch(gpuad_crew& crew, unsigned seen)
{
    unsigned number;
    const long long until = gpuad_nanoseconds() + 100000;
    const bool alone = __atomic_load_n(&crew.threads, __ATOMIC_RELAXED) < sysconf(_SC_NPROCESSORS_ONLN);
    while (alone && gpuad_nanoseconds() < until)
        for (int k = 0; k < 32; ++k) {
            if ((number = gpuad_launch_number(crew)) != seen) return number;
            gpuad_pause();
        }
    pthread_mutex_lock(&crew.lock);
    __atomic_add_fetch(&crew.asleep, 1, __ATOMIC_SEQ_CST);
    while ((number = gpuad_launch_number(crew)) == seen) pthread_cond_wait(&crew.wake, &crew.lock);
    __atomic_sub_fetch(&crew.asleep, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&crew.lock);
    return number;
}

static void* gpuad_serve(void* given)
{
    gpuad_crew& crew = *(gpuad_crew*)given;
    for (unsigned seen = 0;;) {
        seen = gpuad_next_launch(crew, seen);
        gpuad_help(crew, seen);
    }
    return nullptr;
}

// Never destroyed: its threads run as long as the process. The child of a fork has none of them, and begins with a new one.
static gpuad_crew& gpuad_only_crew()
{
    static gpuad_crew& crew = *new gpuad_crew;
    static const int registered = pthread_atfork(nullptr, nullptr, [] { new (&gpuad_only_crew()) gpuad_crew; });
    (void)registered;
    return crew;
}

// One more thread for the crew, which leaves all signals to the others.
static bool gpuad_hire(gpuad_crew& crew)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&thread, nullptr, gpuad_serve, &crew) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!started) return false;
    pthread_detach(thread);
    __atomic_add_fetch(&crew.threads, 1, __ATOMIC_RELAXED);
    return true;
}

// Runs the tasks in this thread and the crew's; false, and nothing is run, if another launch has the crew.
static bool gpuad_share_out(gpuad_task* tasks, int count, int workers)
{
    gpuad_crew& crew = gpuad_only_crew();
    if (count > 0xffff || pthread_mutex_trylock(&crew.owner)) return false;
    while (crew.threads < workers - 1 && gpuad_hire(crew)) {}
    const unsigned long long number = gpuad_launch_number(crew) + 1u;
    __atomic_store_n(&crew.done, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&crew.tasks, tasks, __ATOMIC_RELAXED);
    __atomic_store_n(&crew.ticket, (number & 0xffffffff) << 32 | (unsigned long long)count << 16, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&crew.asleep, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&crew.lock);
        pthread_cond_broadcast(&crew.wake);
        pthread_mutex_unlock(&crew.lock);
    }
    gpuad_help(crew, (unsigned)number);
    for (int k = 0; __atomic_load_n(&crew.done, __ATOMIC_ACQUIRE) < count; ++k) k < 4000 ? gpuad_pause() : (void)sched_yield();
    pthread_mutex_unlock(&crew.owner);
    return true;
}
#else
static bool gpuad_share_out(gpuad_task* tasks, int count, int workers)
{
    int taken = 0;
    const auto help = [&] {
        for (int k; (k = __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED)) < count;) tasks[k].enter(tasks[k]);
    };
    std::vector<std::thread> threads;
    try {
        while ((int)threads.size() < workers - 1) threads.emplace_back(help);
    } catch (...) {
    }
    help();
    for (std::thread& thread : threads) thread.join();
    return true;
}
#endif

// Whose threads this library uses: its own, or those of the first library of a process where somebody says so.
extern "C" {
GPUAD_EXPORT bool (*gpuad_shared_out_by)(gpuad_task*, int, int) = gpuad_share_out;
}

template <typename Work>
static void gpuad_work(const void* work, int part)
{
    (*(const Work*)work)(part);
}

// Runs work(0) to work(parts - 1) in as many threads as there are workers, or fewer; 2 if one of them had no memory, more if an assertion
// failed.
template <typename Work>
static int gpuad_parallel(int workers, int parts, const Work& work)
{
    const gpuad_task first = {gpuad_enter, gpuad_work<Work>, &work, 0, 0};
    std::vector<gpuad_task> tasks(parts, first);
    for (int k = 1; k < parts; ++k) tasks[k].part = k;
    if (workers == 1 || !gpuad_shared_out_by(tasks.data(), parts, workers))
        for (gpuad_task& task : tasks) gpuad_enter(task);
    for (const gpuad_task& task : tasks)
        if (task.failed) return task.failed;
    return 0;
}
"""
