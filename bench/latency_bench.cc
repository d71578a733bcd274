// What one small tensor costs through the whole client path (submit, negotiate by the cache, reduce, wake the caller),
// and what a job costs while it is idle.
//
//   rondarun -np 2 latency_bench
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <thread>
#include <vector>

#include "bench/core_distance.h"
#include "client/ronda.hpp"

namespace {

using Clock = std::chrono::steady_clock;

void PrintCoreDistance(const char* when) {
  if (ronda::rank() == 0) {
    std::printf("cache line between two cores, %s: %.0f ns\n", when, ronda::bench::CoreDistanceNanoseconds());
    std::fflush(stdout);
  }
  ronda::barrier();
}

void MeasureLatency(int calls) {
  float value = 0;
  const ronda::Tensor tensor = ronda::tensor("value", &value);
  std::vector<double> microseconds;
  for (int i = -100; i < calls; ++i) {
    value = 1;
    const auto start = Clock::now();
    ronda::allreduce(tensor, {ronda::Op::Sum});
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    if (i >= 0) microseconds.push_back(elapsed.count());  // the first ones warm up
  }
  const bool is_right = value == static_cast<float>(ronda::size());
  std::sort(microseconds.begin(), microseconds.end());
  const auto quantile = [&](double q) { return microseconds[static_cast<std::size_t>(q * (calls - 1))]; };
  if (ronda::rank() == 0) {
    std::printf(
        "4-byte allreduce, blocking, %d ranks, %d calls, us: min %.1f  median %.1f  p90 %.1f  p99 %.1f  max %.1f%s\n",
        ronda::size(), calls, quantile(0), quantile(0.5), quantile(0.9), quantile(0.99), quantile(1),
        is_right ? "" : "  WRONG RESULT");
  }
}

void MeasureIdle() {
  constexpr auto kIdle = std::chrono::seconds(3);
  ronda::barrier();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until every thread sleeps
  rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  std::this_thread::sleep_for(kIdle);
  getrusage(RUSAGE_SELF, &after);
  const auto microseconds = [](const rusage& usage) {
    return 1e6 * static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  std::printf("rank %d idle for %d s: %.0f us of CPU and %ld context switches, all threads\n", ronda::rank(),
              static_cast<int>(kIdle.count()), microseconds(after) - microseconds(before),
              after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw);
}

}  // namespace

int main() {
  ronda::init();
  PrintCoreDistance("before");
  MeasureLatency(20000);
  PrintCoreDistance("after");
  MeasureIdle();
  ronda::shutdown();
}
