// One of a batch: a launch by its entry, with its geometry in `a` and its slots in `b`, `how` if it has to be led; without an entry a copy
// of `count` runs of `run` bytes from `b` to `a`, past the caches if `how`, or, without `b`, a clearing of `a`; `a_step`, `b_step`: from
// one run to the next.
struct gpuad_item
{
    int (*entry)(const long long*, const unsigned long long*);
    char* a;
    const char* b;
    long long how, run, count, a_step, b_step;
};

// Those from number `at` to `last` (excluded); `workers`: how many threads may make a copy.
struct gpuad_batch { const gpuad_item* items; long long at, last; int workers; };

// Copies to memory that nobody reads soon: it is not fetched before it is overwritten, and takes no place in the caches.
GPUAD_INLINE void gpuad_send(char* a, const char* b, long long n)
{
#ifdef __SSE2__
    const long long to_line = -(long long)(std::uintptr_t)a & 63, first = to_line < n ? to_line : n, last = n - ((n - first) & 63);
    std::memcpy(a, b, first);
    for (long long k = first; k < last; k += 64) {
        __m128i line[4];
        std::memcpy(line, b + k, 64);
        for (int j = 0; j < 4; ++j) _mm_stream_si128((__m128i*)(a + k) + j, line[j]);
    }
    std::memcpy(a + last, b + last, n - last);
    _mm_sfence();
#else
    std::memcpy(a, b, n);
#endif
}

GPUAD_INLINE void gpuad_move_bytes(char* a, const char* b, long long n, bool far)
{
    if (!b) std::memset(a, 0, n);
    else if (far) gpuad_send(a, b, n);
    else std::memcpy(a, b, n);
}

// A run is shared out by its bytes, several are by their number.
static int gpuad_move(const gpuad_item& item, int most)
{
    const long long bytes = item.run * item.count, amount = item.count == 1 ? item.run : item.count;
    const int workers = gpuad_workers(most, bytes >= 1 << 17, amount), parts = gpuad_parts(workers, bytes / 4, amount);
    return gpuad_parallel(workers, parts, [&](int part) {
        const long long from = gpuad_bound(amount, part, parts), to = gpuad_bound(amount, part + 1, parts);
        if (item.count == 1) return gpuad_move_bytes(item.a + from, item.b ? item.b + from : nullptr, to - from, item.how);
        for (long long k = from; k < to; ++k)
            gpuad_move_bytes(item.a + k * item.a_step, item.b ? item.b + k * item.b_step : nullptr, item.run, item.how);
    });
}

static int gpuad_do(const gpuad_item& item, int workers)
{
    return item.entry ? item.entry((const long long*)item.a, (const unsigned long long*)item.b) : gpuad_move(item, workers);
}

// In this thread alone. Gives the number of the item after the last, or -1 minus that of one that failed.
static long long gpuad_do_alone(const gpuad_batch& batch)
{
    for (long long at = batch.at; at < batch.last; ++at)
        if (gpuad_do(batch.items[at], batch.workers)) return -1 - at;
    return batch.last;
}

#ifndef _WIN32
static int gpuad_lead(gpuad_member& me, const gpuad_item& item, int workers)
{
    me.leads = true;
    const int status = gpuad_do(item, workers);
    me.leads = false;
    if (status) __atomic_store_n(&me.crew.failed.value, me.launch << 8 | (gpuad_count)status, __ATOMIC_RELAXED);
    __atomic_store_n(&me.crew.over.value, me.launch, __ATOMIC_RELEASE);
    return status;
}

// Helps with a launch that another thread leads.
static int gpuad_follow(const gpuad_member& me)
{
    gpuad_crew& crew = me.crew;
    bool helped = false;
    for (int times = 0; gpuad_load(crew.over.value) < me.launch; gpuad_wait(crew, times)) {
        if (helped || gpuad_load(crew.led.value) != me.launch) continue;
        const gpuad_shared shared = gpuad_read(crew.shared);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (gpuad_peek(crew.led.value) != me.launch) continue;
        gpuad_help(crew, shared, me.launch, me.lane);
        helped = true;
    }
    return gpuad_status(crew);
}

static int gpuad_do_as_member(gpuad_member& me, const gpuad_item& item, int workers)
{
    if (!(item.entry && item.how)) return gpuad_do(item, workers);
    return me.lane == 0 ? gpuad_lead(me, item, workers) : gpuad_follow(me);
}

// What each thread does. One that came late leaves out what is over.
static bool gpuad_go_through(const gpuad_batch& batch, gpuad_member& me)
{
    gpuad_me = &me;
    bool well = true;
    for (long long at = batch.at; well && at < batch.last; ++at, ++me.launch) {
        const bool over = me.lane != 0 && gpuad_load(me.crew.done[0].value) >> 16 > me.launch;
        well = over || gpuad_do_as_member(me, batch.items[at], batch.workers) == 0;
    }
    gpuad_me = nullptr;
    return well;
}

static void gpuad_join(gpuad_crew& crew, gpuad_batch& batch, gpuad_count number, gpuad_count launch, int lane)
{
    gpuad_count members = gpuad_load(crew.members.value);
    do
        if (members >> 16 != number) return;
    while (!__atomic_compare_exchange_n(&crew.members.value, &members, members + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    gpuad_member me = {crew, lane, launch, false};
    gpuad_go_through(batch, me);
    __atomic_add_fetch(&crew.left.value, 1, __ATOMIC_RELEASE);
}

// With the crew, of which `joined` is how many have. They read the batch until they have left. Gives what `gpuad_do_alone` does.
static long long gpuad_do_together(gpuad_crew& crew, gpuad_batch& batch, gpuad_count& joined)
{
    const gpuad_count first = crew.launches + 1;
    crew.launches += (gpuad_count)(batch.last - batch.at);
    gpuad_call(crew, &batch, {nullptr, 0, batch.workers}, first);
    gpuad_member me = {crew, 0, first, false};
    const bool well = gpuad_go_through(batch, me);
    joined += __atomic_exchange_n(&crew.members.value, 0, __ATOMIC_ACQ_REL) & 0xffff;
    const gpuad_count failed = gpuad_peek(crew.failed.value);
    if (!well && failed) return -1 - (batch.at + (long long)((failed >> 8) - first));
    return well ? batch.last : -(batch.at + (long long)(me.launch - first));
}
#endif

// Does the items from number `at` on. Gives the number of the first that is still to be done, or -1 minus that of one that failed. Comes
// back after a while even if there is more to do: the caller may be wanted elsewhere.
extern "C" GPUAD_EXPORT long long gpuad_do_items(const gpuad_item* items, long long at, long long count, int workers)
{
    const long long begin = gpuad_nanoseconds();
    gpuad_batch batches[32];
    const auto done = [&](auto some) {
        long long now = begin;
        int used = 0;
        for (long long many = 4; at >= 0 && at < count && used < 32 && now < begin + 20000000;) {
            gpuad_batch& batch = batches[used++];
            batch = {items, at, at + many < count ? at + many : count, workers};
            at = some(batch);
            const long long before = now;
            now = gpuad_nanoseconds();
            many = now - before < 4000000 ? 4 * many : 1;
        }
        return at;
    };
#ifndef _WIN32
    gpuad_crew* const crew = workers > 1 ? gpuad_own_crew(workers) : nullptr;
    if (crew) {
        const gpuad_count left = gpuad_peek(crew->left.value);
        gpuad_count joined = 0;
        done([&](gpuad_batch& batch) { return gpuad_do_together(*crew, batch, joined); });
        for (int times = 0; gpuad_load(crew->left.value) - left != joined;) gpuad_wait(*crew, times);
        pthread_mutex_unlock(&crew->owner);
        return at;
    }
#endif
    return done([](gpuad_batch& batch) { return gpuad_do_alone(batch); });
}
