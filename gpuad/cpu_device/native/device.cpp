// A device on the CPU: HIP's documented runtime interface (https://rocm.docs.amd.com/projects/HIP), as CuPy's ROCm wheel asks for it.
//
// Memory is the host's. Work is a graph of commands: each runs after those that streams, events and the legacy stream put before it.
// Without a seed a command runs when it is submitted. With one it runs as late as a device may run it, when somebody waits, and among
// what could run next the choice is random: a wait that was forgotten is then seen as a wrong result. One thread runs at a time.

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <chrono>
#include <dlfcn.h>
#include <elf.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "launch.h"

namespace {

using Error = int;
using Bytes = size_t;
enum : Error {
  ok = 0, invalid_value = 1, out_of_memory = 2, invalid_configuration = 9, invalid_device = 101, invalid_image = 200, invalid_handle = 400,
  not_found = 500, not_ready = 600, illegal_address = 700, not_supported = 801, capture_unsupported = 900, capture_invalidated = 901,
  capture_unmatched = 903, capture_unjoined = 904, captured_event = 907
};
const std::map<Error, std::pair<const char*, const char*>> ERRORS = {
  {ok, {"hipSuccess", "no error"}}, {invalid_value, {"hipErrorInvalidValue", "invalid argument"}},
  {out_of_memory, {"hipErrorOutOfMemory", "out of memory"}}, {invalid_configuration, {"hipErrorInvalidConfiguration", "invalid configuration argument"}},
  {invalid_device, {"hipErrorInvalidDevice", "invalid device ordinal"}}, {invalid_image, {"hipErrorInvalidImage", "device kernel image is invalid"}},
  {invalid_handle, {"hipErrorInvalidHandle", "invalid resource handle"}}, {not_found, {"hipErrorNotFound", "named symbol not found"}},
  {not_ready, {"hipErrorNotReady", "device not ready"}}, {illegal_address, {"hipErrorIllegalAddress", "an illegal memory access was encountered"}},
  {not_supported, {"hipErrorNotSupported", "operation not supported"}},
  {capture_unsupported, {"hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"}},
  {capture_invalidated, {"hipErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"}},
  {capture_unmatched, {"hipErrorStreamCaptureUnmatched", "the capture was not initiated in this stream"}},
  {capture_unjoined, {"hipErrorStreamCaptureUnjoined", "the capture sequence contains a fork that was not joined to the primary stream"}},
  {captured_event, {"hipErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"}},
};
constexpr Bytes TOTAL = Bytes(8) << 30, SHARED = 48 << 10, SHARED_OPT_IN = 227 << 10, PINNED_BELOW = 64 << 10;
constexpr unsigned THREADS = 1024, WARP = 32, PROCESSORS = 2;

std::recursive_mutex one_at_a_time;
using Guard = std::lock_guard<std::recursive_mutex>;
Error last = ok, sticky = ok;  // a fault of a kernel stays, as on a device

Error failed(Error e) {
  if (e) last = e;
  return e;
}

// --- options, set by Python before CuPy is imported ---------------------------------------------------------------------------------------

bool late = false;           // commands run when somebody waits
bool noise = true;           // memory that is allocated holds noise, memory that is freed NaNs
long fails_at = 0;           // the allocation that fails, counted from 1
long allocated = 0;
std::mt19937_64 dice(1);

unsigned chosen(unsigned of) { return of < 2 ? 0 : unsigned(dice() % of); }

// --- commands -----------------------------------------------------------------------------------------------------------------------------

struct Command {
  std::function<void()> run;
  std::vector<std::shared_ptr<Command>> after;
  bool done = false;
};
using Ref = std::shared_ptr<Command>;
std::vector<Ref> waiting;  // in the order of their submission

void execute(const Ref& c) {
  c->run();
  c->run = nullptr;
  c->done = true;
  c->after.clear();
}

bool ready(const Ref& c) {
  for (auto& before : c->after) if (!before->done) return false;
  return true;
}

void needed(const Ref& c, std::set<Command*>& all) {
  if (!c->done && all.insert(c.get()).second) for (auto& before : c->after) needed(before, all);
}

// Runs one command that can run: any, or one of those that are needed.
bool step(const std::set<Command*>* wanted) {
  std::vector<size_t> able;
  for (size_t i = 0; i < waiting.size(); i++) if ((!wanted || wanted->count(waiting[i].get())) && ready(waiting[i])) able.push_back(i);
  if (able.empty()) return false;
  size_t i = able[late ? chosen(able.size()) : 0];
  Ref c = waiting[i];
  waiting.erase(waiting.begin() + i);
  execute(c);
  return true;
}

void reach(const std::vector<Ref>& targets) {
  std::set<Command*> wanted;
  for (auto& c : targets) needed(c, wanted);
  for (;;) {
    bool left = false;
    for (auto& c : targets) left |= !c->done;
    if (!left) return;
    if (late && chosen(2) == 0) step(nullptr);  // what nobody waits for may run as well
    else step(&wanted);
  }
}

void reach_all() { while (step(nullptr)) {} }

// --- streams, events, capture -------------------------------------------------------------------------------------------------------------

struct Node { std::function<void()> run; std::vector<int> after; };
struct Graph { std::vector<Node> nodes; };
struct Capture { Graph* graph; bool broken = false; int mode = 0; std::set<struct Stream*> members; struct Stream* origin = nullptr; };
struct Stream {
  Ref last;
  bool blocking = true;
  int priority = 0;
  Capture* capture = nullptr;
  std::vector<int> front;  // the nodes that what is captured next comes after
};
struct Event { Ref command; std::shared_ptr<double> at = std::make_shared<double>(0); Capture* capture = nullptr; std::vector<int> front; };

Stream legacy, per_thread;
std::set<Stream*> streams;  // those that were made and not destroyed
std::vector<Capture*> captures;

Stream* stream_of(void* handle) {
  if (handle == nullptr || handle == (void*)1) return &legacy;
  if (handle == (void*)2) return &per_thread;
  return streams.count((Stream*)handle) ? (Stream*)handle : nullptr;
}

Ref submitted(Stream* s, std::function<void()> run, std::vector<Ref> after = {}) {
  auto c = std::make_shared<Command>();
  c->run = std::move(run);
  c->after = std::move(after);
  if (s->last) c->after.push_back(s->last);
  if (s == &legacy) {
    for (auto* other : streams) if (other->blocking && other->last) c->after.push_back(other->last);
    if (per_thread.last) c->after.push_back(per_thread.last);
  } else if (s->blocking && legacy.last) {
    c->after.push_back(legacy.last);
  }
  s->last = c;
  if (!late) {
    execute(c);
  } else {
    waiting.push_back(c);
    if (chosen(8) == 0) step(nullptr);
  }
  return c;
}

// Work for a stream: done in its order, or noted in the graph that is being captured.
Error enqueued(void* handle, std::function<void()> run) {
  Stream* s = stream_of(handle);
  if (!s) return failed(invalid_handle);
  if (s->capture) {
    s->capture->graph->nodes.push_back({std::move(run), s->front});
    s->front = {int(s->capture->graph->nodes.size()) - 1};
    return ok;
  }
  submitted(s, std::move(run));
  return failed(sticky);
}

// What waits is not allowed while a stream of this thread captures, unless the capture is a relaxed one.
Error no_capture() {
  Error e = ok;
  for (auto* c : captures) if (c->mode != 2) { c->broken = true; e = capture_unsupported; }
  return failed(e);
}

// --- memory -------------------------------------------------------------------------------------------------------------------------------

struct Room { Bytes bytes, mapped; bool pinned; };
std::map<char*, Room> rooms;
Bytes used = 0;
const Bytes page = sysconf(_SC_PAGESIZE);

constexpr uint64_t NOISE = 0x7ff400007fc00000ull;  // no number as a double, nor as two floats; large as an integer

// A page that nobody may touch lies behind each allocation.
void* made(Bytes bytes, bool pinned) {
  Bytes whole = (std::max<Bytes>(bytes, 1) + page - 1) / page * page;
  char* p = (char*)mmap(nullptr, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  mprotect(p + whole, page, PROT_NONE);
  if (noise && !pinned) for (Bytes i = 0; i + 8 <= whole; i += 8) { uint64_t bits = NOISE | (dice() & 0x0003ffff003fffffull); memcpy(p + i, &bits, 8); }
  rooms[p] = {bytes, whole + page, pinned};
  return p;
}

void freed(char* p) {
  auto found = rooms.find(p);
  munmap(p, found->second.mapped);
  rooms.erase(found);
}

const std::pair<char* const, Room>* room_of(const void* p) {
  auto next = rooms.upper_bound((char*)p);
  if (next == rooms.begin()) return nullptr;
  --next;
  return (char*)p < next->first + std::max<Bytes>(next->second.bytes, 1) ? &*next : nullptr;
}

bool pageable(const void* p) { return !room_of(p); }

Error copied(void* to, const void* from, Bytes bytes, void* stream) {
  if (pageable(from) && bytes) {  // read now: the caller may change it as soon as this returns
    auto kept = std::make_shared<std::vector<char>>((const char*)from, (const char*)from + bytes);
    return enqueued(stream, [=] { memcpy(to, kept->data(), bytes); });
  }
  Error e = enqueued(stream, [=] { memmove(to, from, bytes); });
  Stream* s = stream_of(stream);
  if (!e && pageable(to) && !s->capture && s->last) reach({s->last});  // written before this returns
  return e;
}

// --- kernels ------------------------------------------------------------------------------------------------------------------------------

struct Function { const gpuad_kernel* kernel; Bytes shared = SHARED; };
struct Module { void* library; std::map<std::string, Function> functions; std::map<std::string, const gpuad_variable*> variables; };

std::string symbol_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) && info.dli_sname && info.dli_saddr == address ? info.dli_sname : "";
}

// A library that Python's compiler has made, from its bytes. The loader knows libraries by their paths: each has one of its own.
void* opened(const std::string& code) {
  const char* folder = getenv("TMPDIR");
  std::string path = std::string(folder && *folder ? folder : P_tmpdir) + "/gpuad-kernel-XXXXXX";
  int file = mkstemp(path.data());
  if (file < 0) return nullptr;
  for (Bytes at = 0; at < code.size();) {
    ssize_t n = write(file, code.data() + at, code.size() - at);
    if (n <= 0) break;
    at += n;
  }
  close(file);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fprintf(stderr, "gpuad: %s\n", dlerror());
  unlink(path.c_str());
  return library;
}

sigjmp_buf back;
volatile sig_atomic_t running = 0;

void fault(int signal, siginfo_t*, void*) {
  if (running) siglongjmp(back, signal);
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(signal, &usual, nullptr);
}

// Runs a kernel. An access to an address that is nobody's ends it, and stays as the context's error.
void ran(const gpuad_kernel* kernel, const gpuad_launch& launch, const std::vector<std::vector<char>>& values) {
  if (sticky) return;
  std::vector<void*> places;
  for (auto& value : values) places.push_back((void*)value.data());
  struct sigaction mine {}, segment, bus;
  mine.sa_sigaction = fault;
  mine.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &mine, &segment);
  sigaction(SIGBUS, &mine, &bus);
  if (sigsetjmp(back, 1) == 0) {
    running = 1;
    kernel->run(kernel->function, &launch, places.data());
  } else {
    last = sticky = illegal_address;
  }
  running = 0;
  sigaction(SIGSEGV, &segment, nullptr);
  sigaction(SIGBUS, &bus, nullptr);
}

Bytes elf_bytes(const char* image) {
  auto* head = (const Elf64_Ehdr*)image;
  return memcmp(head->e_ident, ELFMAG, SELFMAG) ? 0 : head->e_shoff + Bytes(head->e_shnum) * head->e_shentsize;
}

using Compile = int (*)(const char* text, const char* options, const char* names, const char* headers);
Compile compile = nullptr;  // Python's
struct Program { std::string text, headers, log, code; std::vector<std::string> names; std::map<std::string, std::string> lowered; };
thread_local Program* compiling = nullptr;

}  // namespace

extern "C" {

void gpuad_stop(const char* why) {
  fprintf(stderr, "gpuad: %s\n", why);
  siglongjmp(back, 1);
}

// --- what Python sets and asks --------------------------------------------------------------------------------------------------------------

void gpuad_device_options(int is_late, unsigned long long seed, int with_noise, long failing) {
  Guard g(one_at_a_time);
  reach_all();
  late = is_late; dice.seed(seed); noise = with_noise; fails_at = failing; allocated = 0;
}
void gpuad_device_compiler(Compile c) { compile = c; }
int gpuad_device_nothing() { return ok; }  // what is called when Python has gone
void gpuad_device_compiled(const char* code, Bytes bytes, const char* log) { compiling->code.assign(code, bytes); compiling->log = log; }
int gpuad_device_enqueue(void* stream, void (*call)(long), long number) { Guard g(one_at_a_time); return enqueued(stream, [=] { call(number); }); }
long gpuad_device_waiting() { Guard g(one_at_a_time); return long(waiting.size()); }
// Work of a library's function, whose result the host reads at once.
int gpuad_device_reach(void* stream) { Guard g(one_at_a_time); Stream* s = stream_of(stream); if (s && s->last) reach({s->last}); return sticky; }

// --- device and errors --------------------------------------------------------------------------------------------------------------------

const char* hipGetErrorName(Error e) { auto f = ERRORS.find(e); return f == ERRORS.end() ? "hipErrorUnknown" : f->second.first; }
const char* hipGetErrorString(Error e) { auto f = ERRORS.find(e); return f == ERRORS.end() ? "unknown error" : f->second.second; }
Error hipGetLastError() { Error e = last; last = sticky; return e; }
Error hipPeekAtLastError() { return last; }
Error hipDriverGetVersion(int* v) { *v = 70051831; return ok; }
Error hipRuntimeGetVersion(int* v) { *v = 70051831; return ok; }
Error hipGetDevice(int* d) { *d = 0; return ok; }
Error hipSetDevice(int d) { return failed(d ? invalid_device : ok); }
Error hipGetDeviceCount(int* n) { *n = 1; return ok; }
Error hipGetDevicePropertiesR0600(char* p, int) {  // offsets of hipDeviceProp_tR0600
  memset(p, 0, 1472);
  strcpy(p, "CPU");
  auto put = [&](int at, auto value) { memcpy(p + at, &value, sizeof value); };
  put(288, TOTAL); put(296, SHARED); put(304, 65536); put(308, int(WARP)); put(312, Bytes(1) << 31); put(320, int(THREADS));
  put(324, 1024); put(328, 1024); put(332, 64); put(336, 2147483647); put(340, 65535); put(344, 65535); put(348, 1000000);
  put(352, Bytes(65536)); put(360, 9); put(364, 0); put(368, Bytes(512)); put(376, Bytes(32)); put(388, int(PROCESSORS));
  return ok;
}
Error hipDeviceGetAttribute(int* v, int attribute, int device) {  // hipDeviceAttribute_t of HIP 6 and 7
  if (device) return failed(invalid_device);
  static const std::map<int, int> known = {
    {2, 1}, {3, 1}, {5, 1000000}, {8, 1}, {10, 1}, {19, 50 << 20}, {23, 9}, {24, 1}, {25, 32}, {26, 1024}, {27, 1024}, {28, 64}, {29, 2147483647}, {30, 65535},
    {31, 65535}, {56, THREADS}, {57, 2048}, {58, 2147483647}, {59, 64}, {60, 1000000}, {61, 0}, {63, PROCESSORS}, {71, 65536}, {72, 65536},
    {73, 1024}, {74, SHARED}, {75, SHARED_OPT_IN}, {76, 228 << 10}, {77, 2}, {78, 1}, {79, 512}, {81, 512}, {82, 32}, {83, 65536}, {85, 1}, {87, WARP}};
  auto f = known.find(attribute);
  *v = f == known.end() ? 0 : f->second;
  return ok;
}
Error hipDeviceGetPCIBusId(char* s, int n, int) { snprintf(s, n, "0000:00:00.0"); return ok; }
Error hipDeviceGetByPCIBusId(int* d, const char*) { *d = 0; return ok; }
Error hipDeviceGetLimit(Bytes* z, int) { *z = 0; return ok; }
Error hipDeviceCanAccessPeer(int* v, int, int) { *v = 0; return ok; }
Error hipDeviceEnablePeerAccess(int, unsigned) { return failed(invalid_device); }
Error hipDeviceDisablePeerAccess(int) { return failed(invalid_device); }
Error hipDeviceSynchronize() {
  Guard g(one_at_a_time);
  if (Error e = no_capture()) return e;
  reach_all();
  return failed(sticky);
}

// --- memory -------------------------------------------------------------------------------------------------------------------------------

Error hipMalloc(void** p, Bytes bytes) {
  Guard g(one_at_a_time);
  if (Error e = no_capture()) return e;
  *p = nullptr;
  if (++allocated == fails_at || used + bytes > TOTAL || !(*p = made(bytes, false))) return failed(out_of_memory);
  used += bytes;
  return failed(sticky);
}
Error hipMallocManaged(void** p, Bytes bytes, unsigned) { return hipMalloc(p, bytes); }
Error hipFree(void* p) {  // waits for the device, as CUDA's does
  Guard g(one_at_a_time);
  if (!p) return ok;
  if (Error e = no_capture()) return e;
  reach_all();
  auto found = rooms.find((char*)p);
  if (found == rooms.end() || found->second.pinned) return failed(invalid_value);
  used -= found->second.bytes;
  freed((char*)p);
  return failed(sticky);
}
Error hipHostMalloc(void** p, Bytes bytes, unsigned) { Guard g(one_at_a_time); *p = made(bytes, true); return failed(*p ? ok : out_of_memory); }
Error hipHostFree(void* p) {
  Guard g(one_at_a_time);
  if (!p) return ok;
  reach_all();
  auto found = rooms.find((char*)p);
  if (found == rooms.end() || !found->second.pinned) return failed(invalid_value);
  freed((char*)p);
  return ok;
}
Error hipMemGetInfo(Bytes* free, Bytes* total) { Guard g(one_at_a_time); *total = TOTAL; *free = TOTAL - used; return ok; }
Error hipMemcpyAsync(void* to, const void* from, Bytes bytes, int, void* stream) { Guard g(one_at_a_time); return copied(to, from, bytes, stream); }
Error hipMemcpy(void* to, const void* from, Bytes bytes, int) {
  Guard g(one_at_a_time);
  if (Error e = no_capture()) return e;
  if (Error e = copied(to, from, bytes, nullptr)) return e;
  reach({legacy.last});
  return failed(sticky);
}
Error hipMemcpyPeer(void* to, int, const void* from, int, Bytes bytes) { return hipMemcpy(to, from, bytes, 4); }
Error hipMemcpyPeerAsync(void* to, int, const void* from, int, Bytes bytes, void* stream) { return hipMemcpyAsync(to, from, bytes, 4, stream); }
Error hipMemsetAsync(void* to, int value, Bytes bytes, void* stream) { Guard g(one_at_a_time); return enqueued(stream, [=] { memset(to, value, bytes); }); }
Error hipMemset(void* to, int value, Bytes bytes) { return hipMemsetAsync(to, value, bytes, nullptr); }
Error hipMemPrefetchAsync(const void*, Bytes, int, void*) { return ok; }
Error hipMemAdvise(const void*, Bytes, int, int) { return ok; }
struct Attributes { int type, device; void *on_device, *on_host; int managed; unsigned flags; };
Error hipPointerGetAttributes(Attributes* a, const void* p) {
  Guard g(one_at_a_time);
  auto* room = room_of(p);
  if (!room) *a = {0, 0, nullptr, (void*)p, 0, 0};
  else if (room->second.pinned) *a = {1, 0, (void*)p, (void*)p, 0, 0};
  else *a = {2, 0, (void*)p, nullptr, 0, 0};
  return ok;
}

// --- streams and events -------------------------------------------------------------------------------------------------------------------

Error hipStreamCreateWithPriority(void** s, unsigned flags, int priority) {
  Guard g(one_at_a_time);
  auto* made = new Stream;
  made->blocking = !(flags & 1);
  made->priority = priority;
  streams.insert(made);
  *s = made;
  return ok;
}
Error hipStreamCreateWithFlags(void** s, unsigned flags) { return hipStreamCreateWithPriority(s, flags, 0); }
Error hipStreamCreate(void** s) { return hipStreamCreateWithFlags(s, 0); }
Error hipStreamDestroy(void* s) {
  Guard g(one_at_a_time);
  Stream* gone = stream_of(s);
  if (!gone || gone == &legacy || gone == &per_thread) return failed(invalid_handle);
  if (!late) reach_all();
  else if (gone->last) submitted(&legacy, [] {});  // what it still has to do is waited for by what comes behind it
  streams.erase(gone);
  delete gone;
  return ok;
}
Error hipStreamSynchronize(void* handle) {
  Guard g(one_at_a_time);
  Stream* s = stream_of(handle);
  if (!s) return failed(invalid_handle);
  if (s->capture) { s->capture->broken = true; return failed(capture_unsupported); }
  if (Error e = no_capture()) return e;
  if (s == &legacy) submitted(s, [] {});
  if (s->last) reach({s->last});
  return failed(sticky);
}
Error hipStreamQuery(void* handle) {
  Guard g(one_at_a_time);
  Stream* s = stream_of(handle);
  if (!s) return failed(invalid_handle);
  if (late) step(nullptr);
  return !s->last || s->last->done ? failed(sticky) : not_ready;
}
Error hipStreamGetFlags(void* handle, unsigned* flags) { Stream* s = stream_of(handle); *flags = s && !s->blocking; return s ? ok : failed(invalid_handle); }
Error hipStreamGetPriority(void* handle, int* priority) { Stream* s = stream_of(handle); *priority = s ? s->priority : 0; return s ? ok : failed(invalid_handle); }
int hipGetStreamDeviceId(void*) { return 0; }
Error hipStreamAddCallback(void* s, void (*call)(void*, Error, void*), void* data, unsigned) { Guard g(one_at_a_time); return enqueued(s, [=] { call(s, ok, data); }); }
Error hipLaunchHostFunc(void* s, void (*call)(void*), void* data) { Guard g(one_at_a_time); return enqueued(s, [=] { call(data); }); }

Error hipEventCreateWithFlags(void** e, unsigned) { *e = new Event; return ok; }
Error hipEventCreate(void** e) { return hipEventCreateWithFlags(e, 0); }
Error hipEventDestroy(void* e) { Guard g(one_at_a_time); delete (Event*)e; return ok; }
Error hipEventRecord(void* handle, void* stream) {
  Guard g(one_at_a_time);
  auto* e = (Event*)handle;
  Stream* s = stream_of(stream);
  if (!s) return failed(invalid_handle);
  e->capture = s->capture;
  if (s->capture) { e->front = s->front; return ok; }
  e->at = std::make_shared<double>(0);
  e->command = submitted(s, [at = e->at] { *at = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); });
  return failed(sticky);
}
Error hipEventSynchronize(void* handle) {
  Guard g(one_at_a_time);
  auto* e = (Event*)handle;
  if (e->capture) return failed(captured_event);
  if (Error c = no_capture()) return c;
  if (e->command) reach({e->command});
  return failed(sticky);
}
Error hipEventQuery(void* handle) {
  Guard g(one_at_a_time);
  auto* e = (Event*)handle;
  if (late) step(nullptr);
  return !e->command || e->command->done ? failed(sticky) : not_ready;
}
Error hipEventElapsedTime(float* t, void* a, void* b) {
  Guard g(one_at_a_time);
  auto *from = (Event*)a, *to = (Event*)b;
  if (!from->command || !to->command) return failed(invalid_handle);
  if (!from->command->done || !to->command->done) return not_ready;
  *t = float(*to->at - *from->at);
  return ok;
}
Error hipStreamWaitEvent(void* handle, void* event, unsigned) {
  Guard g(one_at_a_time);
  Stream* s = stream_of(handle);
  auto* e = (Event*)event;
  if (!s) return failed(invalid_handle);
  if (e->capture) {  // the stream joins the capture
    if (!s->capture) { s->capture = e->capture; s->front = e->front; s->capture->members.insert(s); }
    else s->front.insert(s->front.end(), e->front.begin(), e->front.end());
    return ok;
  }
  if (s->capture) return failed(capture_unsupported);
  if (e->command) submitted(s, [] {}, {e->command});
  return failed(sticky);
}

Error hipStreamBeginCapture(void* handle, int mode) {
  Guard g(one_at_a_time);
  Stream* s = stream_of(handle);
  if (!s) return failed(invalid_handle);
  if (s == &legacy || s->capture) return failed(capture_unsupported);
  s->capture = new Capture{new Graph, false, mode, {s}, s};
  s->front.clear();
  captures.push_back(s->capture);
  return ok;
}
Error hipStreamEndCapture(void* handle, void** graph) {
  Guard g(one_at_a_time);
  Stream* s = stream_of(handle);
  *graph = nullptr;
  if (!s || !s->capture || s->capture->origin != s) return failed(capture_unmatched);
  Capture* c = s->capture;
  Error e = c->broken ? capture_invalidated : ok;
  std::set<int> joined(s->front.begin(), s->front.end());  // and what those come after
  for (int i = int(c->graph->nodes.size()) - 1; i >= 0; i--) if (joined.count(i)) joined.insert(c->graph->nodes[i].after.begin(), c->graph->nodes[i].after.end());
  for (auto* member : c->members) for (int node : member->front) if (!e && !joined.count(node)) e = capture_unjoined;
  for (auto* member : c->members) if (streams.count(member) || member == &per_thread) { member->capture = nullptr; member->front.clear(); }
  for (size_t i = 0; i < captures.size(); i++) if (captures[i] == c) captures.erase(captures.begin() + i);
  if (e) delete c->graph; else *graph = c->graph;
  delete c;
  return failed(e);
}
static int capturing(void* handle) { Stream* s = stream_of(handle); return !s || !s->capture ? 0 : s->capture->broken ? 2 : 1; }
Error hipStreamIsCapturing(void* handle, int* status) { Guard g(one_at_a_time); *status = capturing(handle); return ok; }
Error hipStreamGetCaptureInfo(void* handle, int* status, unsigned long long* id) { Guard g(one_at_a_time); *status = capturing(handle); if (id) *id = 1; return ok; }
Error hipStreamGetCaptureInfo_v2(void* handle, int* status, unsigned long long* id, void*, void*, void*) { return hipStreamGetCaptureInfo(handle, status, id); }
Error hipGraphInstantiate(void** executable, void* graph, void*, char*, Bytes) { *executable = new Graph(*(Graph*)graph); return ok; }
Error hipGraphLaunch(void* executable, void* stream) {
  Guard g(one_at_a_time);
  Stream* s = stream_of(stream);
  if (!s) return failed(invalid_handle);
  auto graph = std::make_shared<Graph>(*(Graph*)executable);
  return enqueued(stream, [graph] {
    std::vector<bool> done(graph->nodes.size());
    for (size_t n = 0; n < done.size(); n++) {
      std::vector<size_t> able;
      for (size_t i = 0; i < done.size(); i++) {
        bool free = !done[i];
        for (int before : graph->nodes[i].after) free = free && done[before];
        if (free) able.push_back(i);
      }
      size_t i = able[late ? chosen(able.size()) : 0];
      graph->nodes[i].run();
      done[i] = true;
    }
  });
}
Error hipGraphExecDestroy(void* g) { delete (Graph*)g; return ok; }
Error hipGraphDestroy(void* g) { delete (Graph*)g; return ok; }
Error hipGraphDebugDotPrint(void* graph, const char* path, unsigned) {
  FILE* f = fopen(path, "w");
  if (!f) return failed(invalid_value);
  fprintf(f, "digraph {\n");
  auto& nodes = ((Graph*)graph)->nodes;
  for (size_t i = 0; i < nodes.size(); i++) { fprintf(f, "  n%zu;\n", i); for (int before : nodes[i].after) fprintf(f, "  n%d -> n%zu;\n", before, i); }
  fprintf(f, "}\n");
  fclose(f);
  return ok;
}

// --- modules ------------------------------------------------------------------------------------------------------------------------------

Error hipModuleLoadData(void** m, const char* image) {
  Guard g(one_at_a_time);
  Bytes bytes = elf_bytes(image);
  void* library = bytes ? opened(std::string(image, bytes)) : nullptr;
  if (!library) return failed(invalid_image);
  auto* made = new Module{library, {}, {}};
  for (auto* k = (const gpuad_kernel*)dlsym(library, "gpuad_kernels"); k && k->function; k++) made->functions[symbol_of(k->function)].kernel = k;
  for (auto* v = (const gpuad_variable*)dlsym(library, "gpuad_variables"); v && v->address; v++) made->variables[symbol_of(v->address)] = v;
  *m = made;
  return failed(sticky);
}
Error hipModuleLoad(void** m, const char* path) {
  FILE* f = fopen(path, "rb");
  if (!f) return failed(not_found);
  std::string image;
  char part[4096];
  for (Bytes n; (n = fread(part, 1, sizeof part, f)) > 0;) image.append(part, n);
  fclose(f);
  return hipModuleLoadData(m, image.c_str());
}
Error hipModuleUnload(void* m) { Guard g(one_at_a_time); reach_all(); delete (Module*)m; return ok; }  // its code stays: a graph may still use it
Error hipModuleGetFunction(void** f, void* m, const char* name) {
  Guard g(one_at_a_time);
  auto& functions = ((Module*)m)->functions;
  auto found = functions.find(name);
  *f = found == functions.end() ? nullptr : &found->second;
  return failed(*f ? ok : not_found);
}
Error hipModuleGetGlobal(void** p, Bytes* bytes, void* m, const char* name) {
  Guard g(one_at_a_time);
  auto& variables = ((Module*)m)->variables;
  auto found = variables.find(name);
  if (found == variables.end()) return failed(not_found);
  *p = found->second->address;
  *bytes = found->second->bytes;
  rooms.insert({(char*)*p, {*bytes, 0, false}});
  return ok;
}
Error hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream, void** params, void**) {
  Guard g(one_at_a_time);
  auto* function = (Function*)f;
  if (!gx || !gy || !gz || !bx || !by || !bz || gx > 2147483647u || gy > 65535 || gz > 65535 || bz > 64 || bx > 1024 || by > 1024 ||
      uint64_t(bx) * by * bz > THREADS)
    return failed(invalid_configuration);
  if (shared > function->shared) return failed(invalid_value);
  std::vector<std::vector<char>> values;
  for (int i = 0; function->kernel->sizes[i]; i++) values.emplace_back((char*)params[i], (char*)params[i] + function->kernel->sizes[i]);
  gpuad_launch launch = {{gx, gy, gz}, {bx, by, bz}, shared, late ? dice() | 1 : 0};
  return enqueued(stream, [kernel = function->kernel, launch, values] { ran(kernel, launch, values); });
}
Error hipLaunchKernel(const void*, ...) {
  fprintf(stderr, "gpuad: a kernel that is compiled into CuPy for a GPU cannot run on the CPU\n");
  sticky = not_supported;  // not all of CuPy's callers ask
  return failed(not_supported);
}
// HIP_FUNC_ATTRIBUTE_: threads a block, shared, constant, local bytes, registers, PTX and binary version, cache mode, dynamic shared bytes
Error hipFuncGetAttribute(int* v, int attribute, void* f) {
  static const int known[] = {int(THREADS), 0, 0, 0, 32, 90, 90, 0};
  *v = attribute == 8 ? int(((Function*)f)->shared) : attribute >= 0 && attribute < 8 ? known[attribute] : 0;
  return ok;
}
Error hipFuncSetAttribute(void* f, int attribute, int value) {
  if (attribute != 8) return ok;
  if (value < 0 || Bytes(value) > SHARED_OPT_IN) return failed(invalid_value);
  ((Function*)f)->shared = value;
  return ok;
}
Error hipOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void*, int block, Bytes) { *n = 2048 / std::max(block, 1); return ok; }
Error hipOccupancyMaxPotentialBlockSize(int* grid, int* block, ...) { *grid = int(PROCESSORS); *block = 256; return ok; }
Error hipCreateSurfaceObject(void*, ...) { return failed(not_supported); }
Error hipDestroySurfaceObject(void*) { return failed(not_supported); }
Error hipIpcGetMemHandle(void*, void*) { return failed(not_supported); }
Error hipIpcOpenMemHandle(void**, ...) { return failed(not_supported); }
Error hipIpcCloseMemHandle(void*) { return failed(not_supported); }

// Registration of kernels that are compiled into CuPy: they are for a GPU.
void** __hipRegisterFatBinary(const void*) { static void* none; return &none; }
void __hipUnregisterFatBinary(void**) {}
void __hipRegisterFunction(...) {}
Error __hipPushCallConfiguration(...) { return ok; }
Error __hipPopCallConfiguration(...) { return ok; }

// --- hiprtc: Python translates the text and compiles it; a shared object is the code --------------------------------------------------------

const char* hiprtcGetErrorString(Error e) { return e == 6 ? "HIPRTC_ERROR_COMPILATION" : e ? "HIPRTC_ERROR_INTERNAL_ERROR" : "HIPRTC_SUCCESS"; }
Error hiprtcVersion(int* major, int* minor) { *major = 7; *minor = 0; return ok; }
Error hiprtcCreateProgram(Program** p, const char* text, const char*, int n, const char** headers, const char** names) {
  *p = new Program;
  (*p)->text = text;
  for (int i = 0; i < n; i++) (*p)->headers += std::string(names[i]) + '\1' + headers[i] + '\2';
  return ok;
}
Error hiprtcDestroyProgram(Program** p) { delete *p; *p = nullptr; return ok; }
Error hiprtcAddNameExpression(Program* p, const char* name) { p->names.push_back(name); return ok; }
Error hiprtcGetLoweredName(Program* p, const char* name, const char** symbol) {
  auto found = p->lowered.find(name);
  if (found == p->lowered.end()) return 9;
  *symbol = found->second.c_str();
  return ok;
}
Error hiprtcGetCodeSize(Program* p, Bytes* n) { *n = p->code.size(); return ok; }
Error hiprtcGetCode(Program* p, char* code) { memcpy(code, p->code.data(), p->code.size()); return ok; }
Error hiprtcGetBitcodeSize(Program* p, Bytes* n) { return hiprtcGetCodeSize(p, n); }
Error hiprtcGetBitcode(Program* p, char* code) { return hiprtcGetCode(p, code); }
Error hiprtcGetProgramLogSize(Program* p, Bytes* n) { *n = p->log.size() + 1; return ok; }
Error hiprtcGetProgramLog(Program* p, char* log) { memcpy(log, p->log.c_str(), p->log.size() + 1); return ok; }
Error hiprtcCompileProgram(Program* p, int n, const char** options) {
  std::string all, names;
  for (int i = 0; i < n; i++) all += std::string(options[i]) + '\2';
  for (auto& name : p->names) names += name + '\2';
  compiling = p;
  if (!compile || compile(p->text.c_str(), all.c_str(), names.c_str(), p->headers.c_str())) return 6;
  if (p->names.empty()) return 0;
  void* library = opened(p->code);
  auto* kernel = library ? (const gpuad_kernel*)dlsym(library, "gpuad_kernels") : nullptr;  // begins with those that were named
  if (!kernel) return 6;
  for (auto& name : p->names) p->lowered[name] = symbol_of((kernel++)->function);
  return 0;
}

}  // extern "C"
