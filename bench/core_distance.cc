#include "bench/core_distance.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace ronda::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Batches are short, so that at least one of them is disturbed by nobody.
constexpr int kBatches = 400;
constexpr int kRoundTrips = 250;  // in a batch

void PinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

// Returns the time of the fastest batch.
Clock::duration Bounce(std::atomic<int>* ball, int mine, int cpu) {
  PinTo(cpu);
  Clock::duration fastest = Clock::duration::max();
  for (int batch = 0; batch < kBatches; ++batch) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kRoundTrips; ++i) {
      while (ball->load(std::memory_order_acquire) != mine) {
      }
      ball->store(1 - mine, std::memory_order_release);
    }
    fastest = std::min(fastest, Clock::now() - start);
  }
  return fastest;
}

}  // namespace

double CoreDistanceNanoseconds() {
  if (std::thread::hardware_concurrency() < 2) return 0;
  alignas(128) std::atomic<int> ball{0};
  Clock::duration fastest = Clock::duration::max();
  std::thread other([&] { Bounce(&ball, 1, 1); });
  std::thread self([&] { fastest = Bounce(&ball, 0, 0); });
  self.join();
  other.join();
  return std::chrono::duration<double, std::nano>(fastest).count() / kRoundTrips / 2;
}

}  // namespace ronda::bench
