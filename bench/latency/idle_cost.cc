#include "bench/latency/idle_cost.h"

#include <sys/resource.h>

#include "absl/time/clock.h"

namespace ronda::bench {
namespace {

IdleCost CostUntilNow() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const absl::Duration cpu = absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
  return {.cpu_microseconds = absl::ToDoubleMicroseconds(cpu), .context_switches = usage.ru_nvcsw + usage.ru_nivcsw};
}

}  // namespace

IdleCost MeasureIdleCost(absl::Duration duration) {
  const IdleCost before = CostUntilNow();
  absl::SleepFor(duration);
  const IdleCost after = CostUntilNow();
  return {.cpu_microseconds = after.cpu_microseconds - before.cpu_microseconds,
          .context_switches = after.context_switches - before.context_switches};
}

}  // namespace ronda::bench
