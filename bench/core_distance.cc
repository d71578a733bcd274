#include "bench/core_distance.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace ronda::bench {
namespace {

constexpr int kRoundTrips = 100'000;

void PinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

void Bounce(std::atomic<int>* ball, int mine, int cpu) {
  PinTo(cpu);
  for (int i = 0; i < kRoundTrips; ++i) {
    while (ball->load(std::memory_order_acquire) != mine) {
    }
    ball->store(1 - mine, std::memory_order_release);
  }
}

}  // namespace

double CoreDistanceNanoseconds() {
  if (std::thread::hardware_concurrency() < 2) return 0;
  alignas(128) std::atomic<int> ball{0};
  const auto start = std::chrono::steady_clock::now();
  std::thread other(Bounce, &ball, 1, 1);
  std::thread self(Bounce, &ball, 0, 0);
  self.join();
  other.join();
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / kRoundTrips / 2;
}

}  // namespace ronda::bench
