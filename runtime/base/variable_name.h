// SPDX-License-Identifier: Apache-2.0

// The names of Ronda's environment variables.
#ifndef RONDA_RUNTIME_BASE_VARIABLE_NAME_H_
#define RONDA_RUNTIME_BASE_VARIABLE_NAME_H_

#include <algorithm>
#include <iterator>

#include "absl/strings/string_view.h"

namespace ronda {

inline constexpr absl::string_view kVariablePrefix = "RONDA_";

// All variables with Ronda's prefix that Ronda's programs, libraries, Python package and examples read or set.
// Constructing a VariableName from any other name with this prefix is a compile error, so the table cannot miss a
// variable.
inline constexpr absl::string_view kVariables[] = {
    "RONDA_AUTOTUNE",
    "RONDA_AUTOTUNE_LOG",
    "RONDA_AUTOTUNE_STEPS_PER_SAMPLE",
    "RONDA_BACKEND",
    "RONDA_BENCH_OUTPUT",
    "RONDA_CACHE_CAPACITY",
    "RONDA_CHECK",
    "RONDA_CHUNK_BYTES",
    "RONDA_CONTROL",
    "RONDA_CROSS_RANK",
    "RONDA_CROSS_SIZE",
    "RONDA_CUDA_PLUGIN",
    "RONDA_CYCLE_TIME",
    "RONDA_DEVICE_BACKEND",
    "RONDA_EPOCH",
    "RONDA_FAILURE_GRACE",
    "RONDA_FUSION_THRESHOLD",
    "RONDA_GRADIENT_MEMORY_MB",
    "RONDA_HEARTBEAT",
    "RONDA_HEARTBEAT_TIMEOUT",
    "RONDA_HOSTS_PLUGIN",
    "RONDA_JOB_ID",
    "RONDA_JOB_SECRET",
    "RONDA_LANE_MEMORY_MB",
    "RONDA_LAUNCH",
    "RONDA_LOCAL_RANK",
    "RONDA_LOCAL_SIZE",
    "RONDA_LOCK_AFTER",
    "RONDA_LOG_LEVEL",
    "RONDA_MASTER_ADDR",
    "RONDA_MASTER_PORT",
    "RONDA_MEMBERSHIP_FD",
    "RONDA_MIN_BUCKET_BYTES",
    "RONDA_MPI",
    "RONDA_MPI_PLUGIN",
    "RONDA_NCCL_LIBRARY",
    "RONDA_NCCL_WINDOWS",
    "RONDA_NEGOTIATION_LOG",
    "RONDA_NETWORK_INTERFACE",
    "RONDA_OUTPUT_IS_TERMINAL",
    "RONDA_RANK",
    "RONDA_REDUCE_IN_PLACE",
    "RONDA_REPLACE_BACKEND",
    "RONDA_REPRODUCIBLE",
    "RONDA_SIZE",
    "RONDA_STALL_DEADLINE",
    "RONDA_STALL_WARNING",
    "RONDA_START_TIMEOUT",
    "RONDA_TIMELINE",
    "RONDA_TIMELINE_MAX_MB",
};

// Returns whether `name` is in the table, or does not have Ronda's prefix.
constexpr bool IsKnownVariable(absl::string_view name) {
  return name.substr(0, kVariablePrefix.size()) != kVariablePrefix ||
         std::find(std::begin(kVariables), std::end(kVariables), name) != std::end(kVariables);
}

// The name of an environment variable, constructed from a string literal. If the name has Ronda's prefix, it is in
// kVariables.
class VariableName {
 public:
  constexpr VariableName() = default;  // names none

  // NOLINTNEXTLINE(google-explicit-constructor): a literal is a name
  consteval VariableName(const char* name) : name_(name) {
    if (!IsKnownVariable(name)) throw "add the variable to kVariables";
  }

  constexpr bool exists() const { return name_ != nullptr; }

  // REQUIRES: exists()
  constexpr const char* c_str() const { return name_; }
  constexpr absl::string_view view() const { return name_; }

 private:
  const char* name_ = nullptr;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_VARIABLE_NAME_H_
