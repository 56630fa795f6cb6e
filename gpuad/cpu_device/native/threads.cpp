// The threads of a block, one at a time: each on a stack of its own where they wait for one another.

#include <cstdint>
#include <memory>
#include <random>
#include <sys/mman.h>
#include <vector>

#include "launch.h"

// Leaves the stack whose place is kept in *from for another; the registers that a call keeps are on the stacks (System V ABI, x86-64).
asm(R"(
.text
.type gpuad_switch, @function
gpuad_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size gpuad_switch, .-gpuad_switch
)");
extern "C" void gpuad_switch(void** from, void* to) __attribute__((visibility("hidden")));

namespace {

constexpr unsigned WARP = 32, MOST = 1024;
constexpr size_t STACK = 256 << 10;

enum Waits { nobody, block, warp, ended };
struct Thread { void* stack; Waits waits; unsigned mask; unsigned place[3]; };
Thread threads[MOST];
alignas(16) unsigned char lanes[MOST][32];
char* stacks;
void* scheduler;
gpuad_now* now;
void (*called)(void*);
void* with;
int counted;

void entry() {
  called(with);
  threads[now->rank].waits = ended;
  gpuad_switch(&threads[now->rank].stack, scheduler);
}

void wait(Waits what, unsigned mask) {
  unsigned rank = now->rank;
  threads[rank].waits = what;
  threads[rank].mask = mask;
  gpuad_switch(&threads[rank].stack, scheduler);
}

void at(unsigned rank) {
  now->rank = rank;
  for (int axis = 0; axis < 3; axis++) now->thread[axis] = threads[rank].place[axis];
}

void prepare(unsigned count) {
  if (!stacks) stacks = (char*)mmap(nullptr, MOST * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (unsigned rank = 0; rank < count; rank++) {
    auto* top = (void**)(stacks + (rank + 1) * STACK) - 1;  // a call leaves the stack 8 bytes off a multiple of 16
    *--top = (void*)entry;
    top -= 6;  // what gpuad_switch takes from it
    threads[rank].stack = top;
    threads[rank].waits = nobody;
  }
}

// Lets the lanes go on that wait for one another and have all come.
bool release_warp(unsigned first, unsigned count) {
  bool any = false;
  unsigned last = first + WARP < count ? first + WARP : count;
  for (unsigned rank = first; rank < last; rank++) {
    if (threads[rank].waits != warp) continue;
    bool all = true;
    for (unsigned other = first; other < last; other++)
      if (threads[rank].mask >> (other - first) & 1) all &= threads[other].waits == warp || threads[other].waits == ended;
    if (!all) continue;
    unsigned mask = threads[rank].mask;
    for (unsigned other = first; other < last; other++) if (mask >> (other - first) & 1 && threads[other].waits == warp) threads[other].waits = nobody;
    any = true;
  }
  return any;
}

bool release_block(unsigned count) {
  bool any = false;
  for (unsigned rank = 0; rank < count; rank++) if (threads[rank].waits == nobody || threads[rank].waits == warp) return false;
  for (unsigned rank = 0; rank < count; rank++) if (threads[rank].waits == block) { threads[rank].waits = nobody; any = true; }
  return any;
}

void run_together(unsigned count, std::mt19937_64* dice) {
  prepare(count);
  unsigned warps = (count + WARP - 1) / WARP;
  for (;;) {
    bool moved = false;
    unsigned turn = dice ? unsigned((*dice)() % warps) : 0;  // the warps take turns from another one on each time
    for (unsigned w = 0; w < warps; w++) {
      unsigned first = (w + turn) % warps * WARP;
      for (unsigned rank = first; rank < first + WARP && rank < count; rank++) {
        if (threads[rank].waits != nobody) continue;
        at(rank);
        gpuad_switch(&scheduler, threads[rank].stack);
        moved = true;
      }
      while (release_warp(first, count)) moved = true;
    }
    if (release_block(count)) moved = true;
    if (moved) continue;
    bool left = false;
    for (unsigned rank = 0; rank < count; rank++) left |= threads[rank].waits != ended;
    if (!left) return;
    gpuad_stop("threads of a block wait for one another for ever: not all of them reach a barrier");
  }
}

}  // namespace

extern "C" {

void gpuad_threads(const gpuad_launch* launch, gpuad_now* current, void (*call)(void*), void* data, int together) {
  auto* g = launch->grid;
  auto* b = launch->block;
  now = current;
  called = call;
  with = data;
  std::unique_ptr<std::mt19937_64> dice(launch->order ? new std::mt19937_64(launch->order) : nullptr);
  std::vector<char> shared(launch->shared + 128);
  now->shared = (char*)(((uintptr_t)shared.data() + 127) / 128 * 128);
  for (int axis = 0; axis < 3; axis++) { now->grid_size[axis] = g[axis]; now->block_size[axis] = b[axis]; }
  unsigned count = b[0] * b[1] * b[2];
  for (unsigned rank = 0; rank < count; rank++) {
    threads[rank].place[0] = rank % b[0];
    threads[rank].place[1] = rank / b[0] % b[1];
    threads[rank].place[2] = rank / b[0] / b[1];
  }
  uint64_t blocks = uint64_t(g[0]) * g[1] * g[2], first = dice ? (*dice)() % blocks : 0;
  bool down = dice && (*dice)() & 1;
  for (uint64_t k = 0; k < blocks; k++) {
    uint64_t n = (first + (down ? blocks - k : k)) % blocks;
    now->block[0] = unsigned(n % g[0]);
    now->block[1] = unsigned(n / g[0] % g[1]);
    now->block[2] = unsigned(n / g[0] / g[1]);
    if (dice) for (auto& byte : shared) byte = char((*dice)());
    if (together) { run_together(count, dice.get()); continue; }
    for (unsigned rank = 0; rank < count; rank++) { at(rank); call(data); }
  }
}

void gpuad_wait_block() { wait(block, 0); }
void gpuad_wait_warp(unsigned mask) { wait(warp, mask); }
void* gpuad_lane(unsigned lane) { return lanes[now->rank / WARP * WARP + lane]; }
unsigned gpuad_lanes() {
  unsigned first = now->rank / WARP * WARP, alive = 0;
  unsigned count = now->block_size[0] * now->block_size[1] * now->block_size[2];
  for (unsigned lane = 0; lane < WARP && first + lane < count; lane++) if (threads[first + lane].waits != ended) alive |= 1u << lane;
  return alive;
}
int gpuad_count(int predicate) {
  counted = 0;
  gpuad_wait_block();
  counted += predicate != 0;
  gpuad_wait_block();
  int all = counted;
  gpuad_wait_block();
  return all;
}

}  // extern "C"
