#ifdef _WIN32
#include <chrono>
#include <thread>
#include <vector>
#else
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#endif
#ifdef __SSE2__
#include <emmintrin.h>
#endif
