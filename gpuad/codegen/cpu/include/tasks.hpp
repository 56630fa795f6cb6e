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

// Runs run(work, 0) to run(work, parts - 1) in as many threads as there are workers, or fewer; 2 if one of them had no memory, more if an
// assertion failed.
static int gpuad_in_parts(int workers, int parts, void (*run)(const void* work, int part), const void* work)
{
    gpuad_task few[16];
    gpuad_task* const tasks = parts > 16 ? (gpuad_task*)std::malloc(parts * sizeof(gpuad_task)) : few;
    if (!tasks) return 2;
    for (int k = 0; k < parts; ++k) tasks[k] = {gpuad_enter, run, work, k, 0};
    const int shared = gpuad_shared_out_by ? gpuad_shared_out_by(tasks, parts, workers) : -1;
    int status = shared > 0 ? shared : 0;
    for (int k = 0; k < parts && status == 0; ++k) {
        if (shared < 0) gpuad_enter(tasks[k]);
        status = tasks[k].failed;
    }
    if (tasks != few) std::free(tasks);
    return status;
}

template <typename Work>
static void gpuad_work(const void* work, int part)
{
    (*(const Work*)work)(part);
}

template <typename Work>
static int gpuad_parallel(int workers, int parts, const Work& work)
{
    return gpuad_in_parts(workers, parts, gpuad_work<Work>, &work);
}

// What a part does of a launch: the threads `from` to `to` of its rows `first` to `last`.
struct gpuad_range { int part; long long first, last, from, to; };

// A launch of `rows` of `width` threads each, shared out in `parts`: of its rows, or of each row if it is `split`. `done`: what its parts
// contribute to sums, if it has any.
struct gpuad_launch {
    gpuad_dim gridDim, blockDim;
    const unsigned long long* slots;
    long long rows, width;
    bool split;
    int workers, parts;
    void* done;
    void (*run)(const gpuad_launch&, const gpuad_range&);
};

// Reads the geometry; whether it is not too large.
static bool gpuad_begin(gpuad_launch& launch, const long long* geometry, const unsigned long long* slots)
{
    const long long most = 0x7fff0000LL;
    const gpuad_dim grid = {geometry[0], geometry[1], geometry[2]}, block = {geometry[3], geometry[4], geometry[5]};
    launch.gridDim = grid;
    launch.blockDim = block;
    launch.slots = slots;
    return grid.x * block.x <= most && grid.y * block.y <= most && grid.z * block.z <= most;
}

// Says in how many parts a launch of so many threads is run. `merged`: rows may be split; `sums`: each worker has one part.
static void gpuad_share(gpuad_launch& launch, long long wanted, long long threads, bool pays, bool merged, bool sums)
{
    launch.split = merged && launch.rows < 4 * std::llabs(wanted);
    const long long most = launch.split ? launch.width : launch.rows;
    launch.workers = gpuad_workers(wanted, pays, most);
    launch.parts = sums ? launch.workers : gpuad_parts(launch.workers, threads, most);
}

static void gpuad_run_part(const void* work, int part)
{
    const gpuad_launch& launch = *(const gpuad_launch*)work;
    gpuad_range range = {part, 0, launch.rows, 0, launch.width};
    long long& begin = launch.split ? range.from : range.first;
    long long& end = launch.split ? range.to : range.last;
    const long long count = end;
    begin = gpuad_bound(count, part, launch.parts);
    end = gpuad_bound(count, part + 1, launch.parts);
    launch.run(launch, range);
}

static int gpuad_run(const gpuad_launch& launch)
{
    return gpuad_in_parts(launch.workers, launch.parts, gpuad_run_part, &launch);
}
