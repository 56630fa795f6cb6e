#ifndef _WIN32
typedef unsigned long long gpuad_count;
enum { GPUAD_LANES_MOST = 64, GPUAD_PATIENCE = 64 };

// On a cache line of its own; the upper 48 bits are the number of a launch, the lower 16 count its parts.
struct alignas(128) gpuad_word { gpuad_count value = 0; };

// The parts of a launch, where one thread has them for all.
struct gpuad_shared { gpuad_task* tasks; int count, lanes; };

struct gpuad_batch;

// Threads that wait for calls. `owner`: held by who has called them. `call`: the number of the call, odd while what it is about is written:
// a `batch`, or a launch of which these are the `shared` parts; `launch` is the number of the (first) launch, of which there were
// `launches`. `members`: the upper bits are the number of a call that may be joined, the lower ones how many have; `left`: how many have
// left any. `taken`, `done`: how many parts of each lane are. `failed`: the launch (56 bits) and its status. `led`: the
// launch of a batch of which `shared` are the parts; `over`: the last such one that is over.
struct gpuad_crew {
    pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
    int asleep = 0, threads = 0, started = 0;
    bool alone = true;
    gpuad_count launches = 0;
    alignas(128) gpuad_count call = 0;
    gpuad_count launch = 0;
    gpuad_batch* batch = nullptr;
    gpuad_shared shared = {};
    gpuad_word members, left, failed, led, over, taken[GPUAD_LANES_MOST], done[GPUAD_LANES_MOST];
};

// A thread that goes through a batch: it is at the launch with the number `launch`, which it leads if only it calls it.
struct gpuad_member { gpuad_crew& crew; int lane; gpuad_count launch; bool leads; };

static thread_local gpuad_member* gpuad_me = nullptr;

GPUAD_INLINE void gpuad_pause()
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

template <typename T> GPUAD_INLINE T gpuad_load(const T& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
template <typename T> GPUAD_INLINE T gpuad_peek(const T& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); }

// Waits for another thread: at first as briefly as can be, if the crew leaves a core for each of its threads, at last without a core.
static void gpuad_wait(const gpuad_crew& crew, int& times)
{
    const timespec pause = {0, 50000};
    if (times < 4000 && gpuad_peek(crew.alone)) gpuad_pause();
    else if (times < 4400) sched_yield();
    else nanosleep(&pause, nullptr);
    ++times;
}

static void gpuad_write(gpuad_shared& shared, const gpuad_shared& value)
{
    __atomic_store_n(&shared.tasks, value.tasks, __ATOMIC_RELAXED);
    __atomic_store_n(&shared.count, value.count, __ATOMIC_RELAXED);
    __atomic_store_n(&shared.lanes, value.lanes, __ATOMIC_RELAXED);
}

static gpuad_shared gpuad_read(const gpuad_shared& shared)
{
    return {gpuad_peek(shared.tasks), gpuad_peek(shared.count), gpuad_peek(shared.lanes)};
}

// The next part of a lane of this launch, or -1 if there is none. Nobody is at a launch before the one before it is done.
static int gpuad_claimed(gpuad_word& lane, gpuad_count launch, int parts)
{
    gpuad_count ticket = gpuad_load(lane.value);
    while (ticket >> 16 <= launch) {
        const int taken = ticket >> 16 == launch ? (int)(ticket & 0xffff) : 0;
        if (taken >= parts) return -1;
        const gpuad_count next = launch << 16 | (gpuad_count)(taken + 1);
        if (__atomic_compare_exchange_n(&lane.value, &ticket, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return taken;
    }
    return -1;
}

static void gpuad_note_done(gpuad_word& lane, gpuad_count launch, int parts)
{
    gpuad_count done = gpuad_load(lane.value), next;
    do next = done >> 16 == launch ? done + (gpuad_count)parts : launch << 16 | (gpuad_count)parts;
    while (!__atomic_compare_exchange_n(&lane.value, &done, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

// Whether so many parts of a lane of this launch, or all of it, are done.
static bool gpuad_is_done(const gpuad_word& lane, gpuad_count launch, int parts)
{
    const gpuad_count done = gpuad_load(lane.value);
    return done >> 16 > launch || (done >> 16 == launch && (int)(done & 0xffff) >= parts) || parts == 0;
}

// Where a lane begins.
static int gpuad_lane(const gpuad_shared& shared, int lane) { return shared.count * lane / shared.lanes; }

// Runs what nobody else has taken of a lane.
static void gpuad_take_lane(gpuad_crew& crew, const gpuad_shared& shared, gpuad_count launch, int lane)
{
    const int first = gpuad_lane(shared, lane), parts = gpuad_lane(shared, lane + 1) - first;
    int taken = 0;
    for (int part; (part = gpuad_claimed(crew.taken[lane], launch, parts)) >= 0; ++taken) {
        gpuad_task& task = shared.tasks[first + part];
        task.enter(task);
        if (task.failed) __atomic_store_n(&crew.failed.value, launch << 8 | (gpuad_count)(task.failed & 0xff), __ATOMIC_RELAXED);
    }
    if (taken) gpuad_note_done(crew.done[lane], launch, taken);
}

static void gpuad_take_all(gpuad_crew& crew, const gpuad_shared& shared, gpuad_count launch, int from)
{
    for (int k = 0; k < shared.lanes; ++k) gpuad_take_lane(crew, shared, launch, (from + k) % shared.lanes);
}

// Does the parts of a launch together with the others, until all are done. Where each thread has one part, it is given a while for it.
static void gpuad_do_parts(gpuad_crew& crew, const gpuad_shared& shared, gpuad_count launch, int lane)
{
    const int patience = shared.count > shared.lanes ? 0 : GPUAD_PATIENCE;
    if (lane < shared.lanes) gpuad_take_lane(crew, shared, launch, lane);
    for (int behind = 0, times = 0;; gpuad_wait(crew, times)) {
        const auto parts = [&] { return gpuad_lane(shared, behind + 1) - gpuad_lane(shared, behind); };
        while (behind < shared.lanes && gpuad_is_done(crew.done[behind], launch, parts())) ++behind;
        if (behind == shared.lanes) return;
        if (times == patience) gpuad_take_all(crew, shared, launch, lane);
    }
}

// The same for who need not wait for the end.
static void gpuad_help(gpuad_crew& crew, const gpuad_shared& shared, gpuad_count launch, int lane)
{
    if (lane < shared.lanes) gpuad_take_lane(crew, shared, launch, lane);
    if (shared.count > shared.lanes) gpuad_take_all(crew, shared, launch, lane);
}

static int gpuad_status(const gpuad_crew& crew) { return (int)(gpuad_peek(crew.failed.value) & 0xff); }

static long long gpuad_nanoseconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// The number of the next call: looks out for it 100 microseconds, if the crew leaves a core for each of its threads, then sleeps.
static gpuad_count gpuad_next_call(gpuad_crew& crew, gpuad_count seen)
{
    gpuad_count number;
    const auto comes = [&] { return (number = __atomic_load_n(&crew.call, __ATOMIC_SEQ_CST)) != seen && number % 2 == 0; };
    const long long until = gpuad_nanoseconds() + 100000;
    while (gpuad_peek(crew.alone) && gpuad_nanoseconds() < until)
        for (int k = 0; k < 32; ++k) {
            if (comes()) return number;
            gpuad_pause();
        }
    pthread_mutex_lock(&crew.lock);
    __atomic_add_fetch(&crew.asleep, 1, __ATOMIC_SEQ_CST);
    while (!comes()) pthread_cond_wait(&crew.wake, &crew.lock);
    __atomic_sub_fetch(&crew.asleep, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&crew.lock);
    return number;
}

static void gpuad_join(gpuad_crew& crew, gpuad_batch& batch, gpuad_count number, gpuad_count launch, int lane);

// Does one's share of a call, unless it is over.
static void gpuad_answer(gpuad_crew& crew, gpuad_count number, int lane)
{
    const gpuad_count launch = gpuad_peek(crew.launch);
    gpuad_batch* const batch = gpuad_peek(crew.batch);
    const gpuad_shared shared = gpuad_read(crew.shared);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (gpuad_peek(crew.call) != number) return;
    if (batch && lane < shared.lanes) gpuad_join(crew, *batch, number, launch, lane);
    if (batch) return;
    gpuad_help(crew, shared, launch, lane);
}

static void* gpuad_serve(void* given)
{
    gpuad_crew& crew = *(gpuad_crew*)given;
    const int lane = __atomic_add_fetch(&crew.started, 1, __ATOMIC_RELAXED);
    for (gpuad_count seen = 0;;) {
        seen = gpuad_next_call(crew, seen);
        gpuad_answer(crew, seen, lane);
    }
    return nullptr;
}

// Never destroyed: its threads run as long as the process. The child of a fork has none of them, and begins with a new one.
static gpuad_crew& gpuad_only_crew()
{
    alignas(gpuad_crew) static unsigned char place[sizeof(gpuad_crew)];
    static gpuad_crew& crew = *new (place) gpuad_crew;
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
    ++crew.threads;
    __atomic_store_n(&crew.alone, crew.threads < sysconf(_SC_NPROCESSORS_ONLN), __ATOMIC_RELAXED);
    return true;
}

// The crew, with as many threads as there are workers beside this one; null if somebody else has it. Who is done with it unlocks `owner`.
static gpuad_crew* gpuad_own_crew(int workers)
{
    gpuad_crew& crew = gpuad_only_crew();
    if (pthread_mutex_trylock(&crew.owner)) return nullptr;
    while (crew.threads < workers - 1 && gpuad_hire(crew)) {}
    return &crew;
}

// Calls the crew: a launch, or a batch that begins with it.
static void gpuad_call(gpuad_crew& crew, gpuad_batch* batch, const gpuad_shared& shared, gpuad_count launch)
{
    const gpuad_count number = gpuad_peek(crew.call) + 2;
    __atomic_store_n(&crew.call, number - 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&crew.launch, launch, __ATOMIC_RELAXED);
    __atomic_store_n(&crew.batch, batch, __ATOMIC_RELAXED);
    gpuad_write(crew.shared, shared);
    __atomic_store_n(&crew.failed.value, 0, __ATOMIC_RELAXED);
    if (batch) __atomic_store_n(&crew.members.value, number << 16, __ATOMIC_RELAXED);
    __atomic_store_n(&crew.call, number, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&crew.asleep, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&crew.lock);
        pthread_cond_broadcast(&crew.wake);
        pthread_mutex_unlock(&crew.lock);
    }
}

// A launch of a batch, to which each thread comes, or which this one leads: then the others get its parts from it.
static int gpuad_share_in_batch(const gpuad_member& me, const gpuad_shared& shared)
{
    gpuad_crew& crew = me.crew;
    if (me.leads) {
        __atomic_store_n(&crew.led.value, 0, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        gpuad_write(crew.shared, shared);
        __atomic_store_n(&crew.led.value, me.launch, __ATOMIC_RELEASE);
    }
    gpuad_do_parts(crew, shared, me.launch, me.lane);
    return gpuad_status(crew);
}

// Runs the tasks in this thread and the crew's. The status of one that failed, if it is known here; -1, and nothing is run, if there is
// no crew for it.
static int gpuad_share_out(gpuad_task* tasks, int count, int workers)
{
    const gpuad_shared shared = {tasks, count, workers < GPUAD_LANES_MOST ? workers : GPUAD_LANES_MOST};
    if (gpuad_me) return gpuad_share_in_batch(*gpuad_me, shared);
    gpuad_crew* const crew = workers > 1 && count <= 0xffff ? gpuad_own_crew(workers) : nullptr;
    if (!crew) return -1;
    const gpuad_count launch = ++crew->launches;
    gpuad_call(*crew, nullptr, shared, launch);
    gpuad_do_parts(*crew, shared, launch, 0);
    pthread_mutex_unlock(&crew->owner);
    return 0;
}
#else
static long long gpuad_nanoseconds()
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static int gpuad_share_out(gpuad_task* tasks, int count, int workers)
{
    if (workers == 1) return -1;
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
    return 0;
}
#endif
