// Goes through many batches and launches with the crew of threads and compares what they leave with the same done one by one. It stands
// behind the crew's text. Arguments: how many rounds; how many forks there are while other threads wait; how many while they work.

#include <sys/wait.h>
#include <thread>
#include <vector>

using namespace gpuad_host;

namespace {

// geometry: elements, workers, parts of a launch, what fails.
int near(const long long* geometry, const unsigned long long* slots)
{
    unsigned* const y = gpuad_slot<unsigned*>(slots, 0);
    const unsigned* const x = gpuad_slot<const unsigned*>(slots, 1);
    const long long n = geometry[0];
    const int parts = (int)geometry[2];
    if (geometry[3] == 1) return 1;
    return gpuad_parallel((int)geometry[1], parts, [&](int part) {
        if (geometry[3] == 2 && part == parts - 1) throw std::bad_alloc();
        if (geometry[3] == 3 && part == parts / 2) throw gpuad_stopped{4};
        for (long long i = gpuad_bound(n, part, parts); i < gpuad_bound(n, part + 1, parts); ++i) y[i] = 3 * y[i] + x[(i + 1) % n];
    });
}

// One thread adds up what the others have left: such a launch is led.
int total(const long long* geometry, const unsigned long long* slots)
{
    unsigned* const sum = gpuad_slot<unsigned*>(slots, 0);
    const unsigned* const x = gpuad_slot<const unsigned*>(slots, 1);
    const long long n = geometry[0];
    const int parts = (int)geometry[2];
    std::vector<unsigned> found(parts);
    const int status = gpuad_parallel((int)geometry[1], parts, [&](int part) {
        for (long long i = gpuad_bound(n, part, parts); i < gpuad_bound(n, part + 1, parts); ++i) found[part] += x[i] * (unsigned)(i + 1);
    });
    for (const unsigned each : found) *sum += each;
    return status;
}

struct Random {
    unsigned long long state;

    int below(int end)
    {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return (int)((state >> 33) % (unsigned long long)end);
    }
};

const int N = 257, ARRAYS = 4;

struct Memory {
    unsigned arrays[ARRAYS][N];

    explicit Memory(unsigned first)
    {
        for (auto& array : arrays)
            for (unsigned& each : array) each = first = first * 1664525u + 1013904223u;
    }
    bool operator==(const Memory& other) const { return std::memcmp(arrays, other.arrays, sizeof arrays) == 0; }
};

// A list of items, and the same for memory that they are done to one by one.
struct Program {
    std::vector<gpuad_item> items, alone;
    std::vector<long long> geometries;
    std::vector<unsigned long long> slots;
    std::vector<long long> geometries_alone;
    std::vector<unsigned long long> slots_alone;

    Program(Random& random, Memory& memory, Memory& other, int count, int workers)
    {
        for (auto* numbers : {&geometries, &geometries_alone}) numbers->reserve(4 * count);
        for (auto* numbers : {&slots, &slots_alone}) numbers->reserve(2 * count);
        for (int k = 0; k < count; ++k) add(random, memory, other, workers);
    }

    void add(Random& random, Memory& memory, Memory& other, int workers)
    {
        const int kind = random.below(8), a = random.below(ARRAYS), b = (a + 1 + random.below(ARRAYS - 1)) % ARRAYS;
        if (kind < 2) return move(memory, other, kind == 0, a, b);
        const int wanted = random.below(4) ? workers : 1, parts = random.below(3) ? wanted : 1 + random.below(40);
        const long long geometry[4] = {N, wanted, parts, 0}, one[4] = {N, 1, parts, 0};
        const bool led = kind == 2;
        items.push_back(launch(geometries, slots, geometry, memory, led, a, b));
        alone.push_back(launch(geometries_alone, slots_alone, one, other, led, a, b));
    }

    void move(Memory& memory, Memory& other, bool copy, int a, int b)
    {
        const auto item = [&](Memory& m, bool far) -> gpuad_item {
            return {nullptr, (char*)m.arrays[a], copy ? (const char*)m.arrays[b] : nullptr, far, 4 * N, 1, 0, 0};
        };
        items.push_back(item(memory, b % 2));
        alone.push_back(item(other, false));
    }

    static gpuad_item launch(std::vector<long long>& geometries, std::vector<unsigned long long>& slots, const long long* geometry,
                             Memory& memory, bool led, int a, int b)
    {
        geometries.insert(geometries.end(), geometry, geometry + 4);
        slots.push_back((unsigned long long)memory.arrays[a]);
        slots.push_back((unsigned long long)memory.arrays[b]);
        return {led ? total : near, (char*)(&geometries.back() - 3), (const char*)(&slots.back() - 1), led, 0, 0, 0, 0};
    }
};

void require(bool holds, const char* what)
{
    if (holds) return;
    std::fprintf(stderr, "%s\n", what);
    std::_Exit(3);
}

// The number of items that were done, or -1 minus that of the one that failed.
long long do_all(const std::vector<gpuad_item>& items, int workers)
{
    long long at = 0;
    while (at >= 0 && at < (long long)items.size()) at = gpuad_do_items(items.data(), at, (long long)items.size(), workers);
    return at;
}

void do_alone(const std::vector<gpuad_item>& items, long long count)
{
    for (long long k = 0; k < count; ++k) require(gpuad_do(items[k], 1) == 0, "an item failed");
}

void sleep_sometimes(Random& random)
{
    const timespec pause = {0, random.below(3) ? 20000 : 300000};  // the crew sleeps after 100 microseconds
    if (random.below(2)) nanosleep(&pause, nullptr);
}

void batch(Random& random, int workers)
{
    Memory memory((unsigned)random.below(1 << 20)), other(memory);
    const Program program(random, memory, other, 1 + random.below(60), workers);
    sleep_sometimes(random);
    require(do_all(program.items, workers) == (long long)program.items.size(), "a batch failed");
    do_alone(program.alone, (long long)program.alone.size());
    require(memory == other, "a batch left something else than its items do one by one");
}

void single_launches(Random& random, int workers)
{
    Memory memory((unsigned)random.below(1 << 20)), other(memory);
    const Program program(random, memory, other, 1 + random.below(20), workers);
    sleep_sometimes(random);
    for (const gpuad_item& item : program.items) require(gpuad_do(item, workers) == 0, "a launch failed");
    do_alone(program.alone, (long long)program.alone.size());
    require(memory == other, "launches left something else than they do in one thread");
}

// What comes before the one that fails is done, and nothing after it.
void failure(Random& random, int workers)
{
    Memory memory((unsigned)random.below(1 << 20)), other(memory), after(1), untouched(after);
    Program program(random, memory, other, random.below(40), workers);
    const long long at = (long long)program.items.size(), way = 1 + random.below(3);
    const long long geometry[4] = {N, workers, 1 + random.below(2 * workers), way};
    Memory room(7);
    const unsigned long long slots[2] = {(unsigned long long)room.arrays[0], (unsigned long long)room.arrays[1]};
    program.items.push_back({near, (char*)geometry, (const char*)slots, random.below(2), 0, 0, 0, 0});
    const Program rest(random, after, untouched, 10, workers);
    program.items.insert(program.items.end(), rest.items.begin(), rest.items.end());
    require(do_all(program.items, workers) == -1 - at, "a failure was not told");
    do_alone(program.alone, at);
    require(memory == other, "what came before a failure was not done");
    require(after == untouched, "what came after a failure was done");
    const int expected[] = {0, 1, 2, 7};
    require(near(geometry, slots) == expected[way], "a launch by itself failed in another way");
}

void rounds(unsigned long long seed, int count)
{
    Random random = {seed};
    for (int k = 0; k < count; ++k)
        for (const int workers : {1, 2, 3, 8}) {
            batch(random, workers);
            single_launches(random, workers);
            failure(random, workers);
        }
}

void several_callers(unsigned long long seed, int count)
{
    std::vector<std::thread> callers;
    for (int k = 0; k < 3; ++k) callers.emplace_back(rounds, seed + k, count);
    for (std::thread& caller : callers) caller.join();
}

// A child has a crew of its own.
void forks(unsigned long long seed, int count)
{
    for (int k = 0; k < count; ++k) {
        rounds(seed + k, 1);
        const pid_t child = fork();
        if (child == 0) {
            rounds(seed + k, 2);
            std::_Exit(0);
        }
        int status = 0;
        require(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child of a fork failed");
    }
    rounds(seed, 1);
}

}  // namespace

int main(int count, char** words)
{
    const auto number = [&](int k) { return k < count ? std::atoi(words[k]) : 0; };
    rounds(1, number(1));
    several_callers(2, number(1) / 2);
    forks(5, number(2));
    std::thread busy(rounds, 6, 10 * number(3));
    forks(7, number(3));
    busy.join();
    std::puts("well");
}
