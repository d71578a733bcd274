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
// On a busy machine fewer batches have to do.
constexpr Clock::duration kPatience = std::chrono::milliseconds(100);

// Who has the ball.
enum : int { kFirst, kSecond, kNobody };

void PinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

// Sends the ball to the other thread whenever it comes, until it goes to nobody.
void Return(std::atomic<int>* ball) {
  PinTo(1);
  for (;;) {
    int holder;
    while ((holder = ball->load(std::memory_order_acquire)) == kFirst) {
    }
    if (holder == kNobody) return;
    ball->store(kFirst, std::memory_order_release);
  }
}

// Returns the time of the fastest batch.
Clock::duration Serve(std::atomic<int>* ball) {
  PinTo(0);
  Clock::duration fastest = Clock::duration::max();
  const Clock::time_point begin = Clock::now();
  for (int batch = 0; batch < kBatches && Clock::now() - begin < kPatience; ++batch) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kRoundTrips; ++i) {
      ball->store(kSecond, std::memory_order_release);
      while (ball->load(std::memory_order_acquire) != kFirst) {
      }
    }
    fastest = std::min(fastest, Clock::now() - start);
  }
  ball->store(kNobody, std::memory_order_release);
  return fastest;
}

}  // namespace

double CoreDistanceNanoseconds() {
  if (std::thread::hardware_concurrency() < 2) return 0;
  alignas(128) std::atomic<int> ball{kFirst};
  Clock::duration fastest = Clock::duration::max();
  std::thread second(Return, &ball);
  std::thread first([&] { fastest = Serve(&ball); });
  first.join();
  second.join();
  return std::chrono::duration<double, std::nano>(fastest).count() / kRoundTrips / 2;
}

}  // namespace ronda::bench
