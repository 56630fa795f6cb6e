// As many workers as are wanted (a negative number demands them), but one for a small launch, and no idle ones.
GPUAD_INLINE int gpuad_workers(long long wanted, bool pays, long long parts)
{
    long long workers = wanted < 0 ? -wanted : pays ? wanted : 1;
    if (workers > parts) workers = parts;
    return workers < 1 ? 1 : (int)workers;
}

// In how many parts a launch is shared out: in more than there are workers where it is large, so that one that is held up gets fewer.
GPUAD_INLINE int gpuad_parts(int workers, long long threads, long long most)
{
    const long long parts = workers == 1 || threads < 1 << 18 ? workers : 8LL * workers;
    return (int)(parts > most ? most : parts);
}

// Where a part of [0, count) begins: contiguous, all but the last equally long.
GPUAD_INLINE long long gpuad_bound(long long count, int part, int parts)
{
    return count / parts * part + count % parts * part / parts;
}

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

// How tasks are run in this thread and the crew's. Gives the status of one that failed, if it is known there; -1, and nothing is run, if
// there is no crew for it. Null where nobody has said whose threads they are.
extern "C" GPUAD_EXPORT int (*gpuad_shared_out_by)(gpuad_task*, int count, int workers);

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
    gpuad_task few[16];
    gpuad_task* const tasks = parts > 16 ? (gpuad_task*)std::malloc(parts * sizeof(gpuad_task)) : few;
    if (!tasks) return 2;
    for (int k = 0; k < parts; ++k) tasks[k] = {gpuad_enter, gpuad_work<Work>, &work, k, 0};
    const int shared = gpuad_shared_out_by ? gpuad_shared_out_by(tasks, parts, workers) : -1;
    int status = shared > 0 ? shared : 0;
    for (int k = 0; k < parts && status == 0; ++k) {
        if (shared < 0) gpuad_enter(tasks[k]);
        status = tasks[k].failed;
    }
    if (tasks != few) std::free(tasks);
    return status;
}
