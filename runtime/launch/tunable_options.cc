#include <vector>

#include "absl/time/time.h"
#include "runtime/launch/option_effects.h"
#include "runtime/launch/option_tables.h"

namespace ronda {
namespace {

using Choice = CommandLineDraft::Choice;
using Digits = NumberForm::Digits;

// A month: longer waits are typing errors.
constexpr double kMaxStallSeconds = 30 * 86400;

auto HierarchicalPlace() {
  return [](CommandLineDraft* draft) -> Choice& { return draft->hierarchical; };
}

auto StallCheckPlace() {
  return [](CommandLineDraft* draft) -> Choice& { return draft->stall_check; };
}

std::vector<Option> FusionOptions() {
  return {
      {OptionGroup::kTunables,
       {"--fusion-threshold-mb"},
       "N",
       "Most MiB in a bucket of fused tensors, 0 for no fusion\n(RONDA_FUSION_THRESHOLD).",
       SetNumber("RONDA_FUSION_THRESHOLD", {.what = "a number of MiB", .example = "64", .max = 1 << 20}, "MiB")},
      {OptionGroup::kTunables,
       {"--cycle-time-ms"},
       "T",
       "Longest time in milliseconds that a tensor waits for others to be\nfused with (RONDA_CYCLE_TIME).",
       SetDuration("RONDA_CYCLE_TIME",
                   {.what = "a number of milliseconds", .example = "1", .max = 3600000, .digits = Digits::kAny},
                   absl::Milliseconds(1), std::nullopt)},
      {OptionGroup::kTunables,
       {"--cache-capacity"},
       "N",
       "Entries of the response cache, 0 for no cache\n(RONDA_CACHE_CAPACITY).",
       SetNumber("RONDA_CACHE_CAPACITY", {.what = "a number of entries", .example = "1024", .max = 1 << 24}, "")},
      {OptionGroup::kTunables,
       {"--hierarchical-allreduce"},
       "",
       "On several hosts: shared memory within a host, MPI across\n(RONDA_BACKEND=hierarchical).",
       Store(HierarchicalPlace(), Choice::kYes)},
      {OptionGroup::kTunables,
       {"--no-hierarchical-allreduce"},
       "",
       "On several hosts: MPI between all ranks (RONDA_BACKEND=mpi).",
       Store(HierarchicalPlace(), Choice::kNo)},
  };
}

std::vector<Option> AutotuneOptions() {
  return {
      {OptionGroup::kTunables,
       {"--autotune"},
       "",
       "Look for faster settings while the job runs (RONDA_AUTOTUNE=1).",
       SetVariable("RONDA_AUTOTUNE", "1")},
      {OptionGroup::kTunables,
       {"--no-autotune"},
       "",
       "Do not, whatever RONDA_AUTOTUNE says.",
       SetVariable("RONDA_AUTOTUNE", "0")},
      {OptionGroup::kTunables,
       {"--autotune-log-file"},
       "FILE",
       "Where autotune writes what it has measured, as CSV\n(RONDA_AUTOTUNE_LOG).",
       SetText("RONDA_AUTOTUNE_LOG", {.what = "a file", .example = "tuning.csv"})},
      // The range that RONDA_AUTOTUNE_STEPS_PER_SAMPLE has.
      {OptionGroup::kTunables,
       {"--autotune-steps-per-sample"},
       "N",
       "How many steps autotune measures under the same settings\n"
       "(RONDA_AUTOTUNE_STEPS_PER_SAMPLE; default: 10).",
       SetNumber("RONDA_AUTOTUNE_STEPS_PER_SAMPLE",
                 {.what = "a number of steps", .example = "10", .min = 4, .max = 1000}, "")},
  };
}

std::vector<Option> TimelineOptions() {
  return {
      {OptionGroup::kTunables,
       {"--timeline-filename"},
       "FILE",
       "Where each rank writes a trace of its tensors' ways, for Perfetto:\nt.json becomes t.rank0.json "
       "(RONDA_TIMELINE).",
       SetText("RONDA_TIMELINE", {.what = "a file", .example = "trace.json"})},
  };
}

std::vector<Option> WaitOptions() {
  return {
      // The range that RONDA_START_TIMEOUT has.
      {OptionGroup::kTunables,
       {"--start-timeout"},
       "S",
       "Seconds that ranks wait for each other when they start,\nand that hosts may take to start "
       "theirs\n(RONDA_START_TIMEOUT; default: 30).",
       SetDuration("RONDA_START_TIMEOUT",
                   {.what = "a number of seconds", .example = "10", .min = 0.001, .max = 86400, .digits = Digits::kAny},
                   absl::Seconds(1), std::nullopt)},
      {OptionGroup::kTunables,
       {"--stall-check-warning-time-seconds"},
       "S",
       "Warn of a rank that others wait for so long\n(RONDA_STALL_WARNING; default: 60).",
       SetDuration("RONDA_STALL_WARNING",
                   {.what = "a number of seconds", .example = "60", .min = 1, .max = kMaxStallSeconds},
                   absl::Seconds(1), std::nullopt)},
      {OptionGroup::kTunables,
       {"--stall-check-shutdown-time-seconds"},
       "S",
       "And fail after so long, 0 for never\n(RONDA_STALL_DEADLINE; default: 600).",
       SetDuration("RONDA_STALL_DEADLINE", {.what = "a number of seconds", .example = "600", .max = kMaxStallSeconds},
                   absl::Seconds(1), absl::InfiniteDuration())},
      {OptionGroup::kTunables,
       {"--stall-check"},
       "",
       "Do both. This is the default.",
       Store(StallCheckPlace(), Choice::kYes)},
      {OptionGroup::kTunables,
       {"--no-stall-check"},
       "",
       "Do neither: wait for ever, and say nothing.",
       Store(StallCheckPlace(), Choice::kNo)},
  };
}

std::vector<Option> LogOptions() {
  return {{OptionGroup::kTunables,
           {"--log-level"},
           "LEVEL",
           "Which messages of the runtime are printed: debug, info, warning,\n"
           "error or off (RONDA_LOG_LEVEL; default: warning).",
           // Horovod has two levels that Ronda has not.
           SetWord("RONDA_LOG_LEVEL", {{"info", "info"},
                                       {"debug", "debug"},
                                       {"trace", "debug"},
                                       {"warning", "warning"},
                                       {"error", "error"},
                                       {"fatal", "error"},
                                       {"off", "off"}})}};
}

}  // namespace

std::vector<Option> TunableOptions() {
  std::vector<Option> all;
  for (std::vector<Option> (*options)() : {FusionOptions, AutotuneOptions, TimelineOptions, WaitOptions, LogOptions}) {
    for (Option& option : options()) all.push_back(std::move(option));
  }
  return all;
}

}  // namespace ronda
