// SPDX-License-Identifier: Apache-2.0

#include "runtime/backends/read_config.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/backends/registry.h"
#include "runtime/base/environment.h"
#include "runtime/base/status_macros.h"
#include "runtime/rendezvous/launchers.h"

namespace ronda {
namespace {

constexpr int64_t kMaxLockAfter = 1000;
constexpr int64_t kMaxTimelineMegabytes = 1 << 20;
constexpr int64_t kMaxSharedMegabytes = 1 << 20;

constexpr std::pair<absl::string_view, LogLevel> kLogLevels[] = {{"debug", LogLevel::kDebug},
                                                                 {"info", LogLevel::kInfo},
                                                                 {"warning", LogLevel::kWarning},
                                                                 {"error", LogLevel::kError},
                                                                 {"off", LogLevel::kOff}};

// Reads the times after which a stalled operation is reported, and after which it fails. RONDA_STALL_WARNING must not
// exceed the deadline; its default is lowered to the deadline if necessary.
absl::Status ReadStallTimes(const EnvironmentVariables& variables, Tunables* tunables) {
  RONDA_RETURN_IF_ERROR(variables.ReadDuration("RONDA_STALL_WARNING", kStallWarningRange, &tunables->stall_warning));
  RONDA_RETURN_IF_ERROR(variables.ReadDuration("RONDA_STALL_DEADLINE", kStallDeadlineRange, &tunables->stall_deadline));
  if (tunables->stall_warning <= tunables->stall_deadline) return absl::OkStatus();
  const std::optional<std::string> warning = variables.Get("RONDA_STALL_WARNING");
  if (!warning) {
    tunables->stall_warning = tunables->stall_deadline;
    return absl::OkStatus();
  }
  return InvalidVariable(
      "RONDA_STALL_WARNING", *warning,
      absl::StrCat("no longer than RONDA_STALL_DEADLINE, which is ", absl::FormatDuration(tunables->stall_deadline)));
}

absl::Status ReadAutotune(const EnvironmentVariables& variables, Tunables* tunables) {
  std::optional<bool> autotune;
  RONDA_RETURN_IF_ERROR(variables.ReadSwitch("RONDA_AUTOTUNE", &autotune));
  if (autotune) tunables->autotune = *autotune ? Tunables::Autotune::kOn : Tunables::Autotune::kOff;
  RONDA_RETURN_IF_ERROR(
      variables.ReadText("RONDA_AUTOTUNE_LOG", "the name of a file to write", &tunables->autotune_log));
  int64_t steps = tunables->autotune_steps_per_sample;
  RONDA_RETURN_IF_ERROR(variables.ReadInteger("RONDA_AUTOTUNE_STEPS_PER_SAMPLE", {.min = 4, .max = 1000}, &steps));
  tunables->autotune_steps_per_sample = static_cast<int>(steps);
  return absl::OkStatus();
}

absl::StatusOr<Tunables> ReadTunables(const EnvironmentVariables& variables) {
  Tunables tunables;
  RONDA_RETURN_IF_ERROR(variables.ReadDuration("RONDA_CYCLE_TIME", kCycleTimeRange, &tunables.cycle_time));
  RONDA_RETURN_IF_ERROR(variables.ReadBytes("RONDA_FUSION_THRESHOLD", &tunables.fusion_threshold));
  RONDA_RETURN_IF_ERROR(variables.ReadBytes("RONDA_MIN_BUCKET_BYTES", &tunables.min_bucket_bytes));
  RONDA_RETURN_IF_ERROR(variables.ReadBytes("RONDA_CHUNK_BYTES", &tunables.chunk_bytes));
  int64_t cache_capacity = static_cast<int64_t>(tunables.cache_capacity);
  RONDA_RETURN_IF_ERROR(variables.ReadInteger("RONDA_CACHE_CAPACITY", kCacheCapacityRange, &cache_capacity));
  tunables.cache_capacity = static_cast<size_t>(cache_capacity);
  int64_t lock_after = tunables.lock_after;
  RONDA_RETURN_IF_ERROR(variables.ReadInteger("RONDA_LOCK_AFTER", {.min = 0, .max = kMaxLockAfter}, &lock_after));
  tunables.lock_after = static_cast<int>(lock_after);
  RONDA_RETURN_IF_ERROR(ReadStallTimes(variables, &tunables));
  RONDA_RETURN_IF_ERROR(variables.ReadDuration("RONDA_START_TIMEOUT", kStartTimeoutRange, &tunables.start_timeout));
  RONDA_RETURN_IF_ERROR(
      variables.ReadText("RONDA_NEGOTIATION_LOG", "the name of a file to write", &tunables.negotiation_log));
  RONDA_RETURN_IF_ERROR(ReadAutotune(variables, &tunables));
  return tunables;
}

absl::StatusOr<NetworkSettings> ReadNetwork(const EnvironmentVariables& variables) {
  NetworkSettings network;
  RONDA_RETURN_IF_ERROR(variables.ReadText("RONDA_HOSTS_PLUGIN", "the path of a libronda_hosts.so", &network.plugin));
  if (const std::optional<std::string> text = variables.Get("RONDA_NETWORK_INTERFACE")) {
    network.interfaces = absl::StrSplit(*text, ',');
    if (absl::c_linear_search(network.interfaces, "")) {
      return InvalidVariable("RONDA_NETWORK_INTERFACE", *text, "names of network interfaces, such as eth0 or ib0,eth0");
    }
  }
  RONDA_RETURN_IF_ERROR(variables.ReadDuration(
      "RONDA_HEARTBEAT",
      {.min = absl::Milliseconds(10), .max = absl::Hours(1), .expectation = "a duration from 10ms to 1h, such as 1s"},
      &network.heartbeat));
  RONDA_RETURN_IF_ERROR(variables.ReadDuration(
      "RONDA_HEARTBEAT_TIMEOUT",
      {.min = absl::Milliseconds(20), .expectation = "a duration of 20ms or more such as 10s, or inf for none"},
      &network.heartbeat_timeout));
  if (2 * network.heartbeat <= network.heartbeat_timeout) return network;
  // With a shorter timeout, a heartbeat that is slightly late would fail the job.
  return absl::InvalidArgumentError(
      absl::StrCat("RONDA_HEARTBEAT_TIMEOUT is ", absl::FormatDuration(network.heartbeat_timeout),
                   ": should be at least twice RONDA_HEARTBEAT, which is ", absl::FormatDuration(network.heartbeat)));
}

absl::Status ReadLogLevel(const EnvironmentVariables& variables, LogLevel* level) {
  const std::optional<std::string> text = variables.Get("RONDA_LOG_LEVEL");
  if (!text) return absl::OkStatus();
  for (const auto& [name, value] : kLogLevels) {
    if (*text != name) continue;
    *level = value;
    return absl::OkStatus();
  }
  return InvalidVariable("RONDA_LOG_LEVEL", *text, "debug, info, warning, error or off");
}

absl::Status ReadControl(const EnvironmentVariables& variables, NetworkSettings::Control* control) {
  const std::string text = variables.Get("RONDA_CONTROL").value_or("auto");
  // Earlier versions used the value "grpc", so it is still accepted.
  if (text != "auto" && text != "tcp" && text != "grpc" && text != "mpi") {
    return InvalidVariable("RONDA_CONTROL", text, "auto, tcp or mpi");
  }
  *control = text == "mpi" ? NetworkSettings::Control::kMpi : NetworkSettings::Control::kTcp;
  return absl::OkStatus();
}

absl::Status ReadBackend(const EnvironmentVariables& variables, VariableName variable,
                         const std::vector<absl::string_view>& names, std::string* backend) {
  const std::optional<std::string> text = variables.Get(variable);
  if (!text) return absl::OkStatus();
  for (const absl::string_view name : names) {
    if (*text != name) continue;
    *backend = *text;
    return absl::OkStatus();
  }
  return InvalidVariable(variable.view(), *text, absl::StrJoin(names, " or "));
}

absl::Status ReadFailureGrace(const EnvironmentVariables& variables, DeviceSettings* devices) {
  constexpr VariableName kVariable = "RONDA_FAILURE_GRACE";
  if (variables.Get(kVariable) == "continue") {
    devices->failure_grace.reset();
    return absl::OkStatus();
  }
  return variables.ReadDuration(
      kVariable,
      {.min = absl::ZeroDuration(), .expectation = "a duration such as 10 (seconds) or 1m, or inf, or continue"},
      &*devices->failure_grace);
}

// Reads a switch that is off by default.
absl::Status ReadDeviceSwitch(const EnvironmentVariables& variables, VariableName variable, bool* is_on) {
  std::optional<bool> value;
  RONDA_RETURN_IF_ERROR(variables.ReadSwitch(variable, &value));
  *is_on = value.value_or(false);
  return absl::OkStatus();
}

absl::Status ReadDevices(const EnvironmentVariables& variables, DeviceSettings* devices) {
  RONDA_RETURN_IF_ERROR(
      variables.ReadText("RONDA_CUDA_PLUGIN", "the path of a libronda_cuda.so", &devices->cuda_plugin));
  RONDA_RETURN_IF_ERROR(variables.ReadText("RONDA_NCCL_LIBRARY", "the path of a libnccl.so", &devices->nccl_library));
  RONDA_RETURN_IF_ERROR(variables.ReadText("CUDA_HOME", "the folder of a CUDA toolkit", &devices->cuda_home));
  // The folder of a Python virtual environment or a Conda environment.
  devices->python = variables.Get("VIRTUAL_ENV").value_or(variables.Get("CONDA_PREFIX").value_or(""));
  // NCCL's own variable, which can make NCCL treat ranks of one host as ranks of several hosts. Such ranks may share a
  // device.
  RONDA_RETURN_IF_ERROR(variables.ReadText("NCCL_HOSTID", "a name for this host", &devices->nccl_host));
  RONDA_RETURN_IF_ERROR(ReadDeviceSwitch(variables, "RONDA_REPRODUCIBLE", &devices->reproducible));
  RONDA_RETURN_IF_ERROR(ReadDeviceSwitch(variables, "RONDA_NCCL_WINDOWS", &devices->nccl_windows));
  RONDA_RETURN_IF_ERROR(
      variables.ReadInteger("RONDA_LANE_MEMORY_MB", {.min = 0, .max = kMaxSharedMegabytes}, &devices->lane_memory_mb));
  RONDA_RETURN_IF_ERROR(variables.ReadInteger("RONDA_GRADIENT_MEMORY_MB", {.min = 0, .max = kMaxSharedMegabytes},
                                              &devices->gradient_memory_mb));
  RONDA_RETURN_IF_ERROR(ReadDeviceSwitch(variables, "RONDA_REDUCE_IN_PLACE", &devices->reduce_in_place));
  RONDA_RETURN_IF_ERROR(ReadFailureGrace(variables, devices));
  return ReadBackend(variables, "RONDA_DEVICE_BACKEND", DeviceBackendNames(), &devices->backend);
}

absl::Status ReadTimeline(const EnvironmentVariables& variables, TimelineSettings* timeline) {
  RONDA_RETURN_IF_ERROR(variables.ReadText("RONDA_TIMELINE", "the name of a file to write", &timeline->path));
  int64_t megabytes = static_cast<int64_t>(timeline->most_bytes >> 20);
  RONDA_RETURN_IF_ERROR(
      variables.ReadInteger("RONDA_TIMELINE_MAX_MB", {.min = 1, .max = kMaxTimelineMegabytes}, &megabytes));
  timeline->most_bytes = static_cast<size_t>(megabytes) << 20;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Config> ReadConfig(const EnvironmentReader& environment) {
  const EnvironmentVariables variables(environment);
  Config config;
  RONDA_ASSIGN_OR_RETURN(config.job, ReadJob(variables));
  RONDA_ASSIGN_OR_RETURN(config.tunables, ReadTunables(variables));
  RONDA_ASSIGN_OR_RETURN(config.network, ReadNetwork(variables));
  RONDA_RETURN_IF_ERROR(ReadControl(variables, &config.network.control));
  RONDA_RETURN_IF_ERROR(ReadBackend(variables, "RONDA_BACKEND", HostBackendNames(), &config.backend));
  RONDA_RETURN_IF_ERROR(ReadDevices(variables, &config.devices));
  RONDA_RETURN_IF_ERROR(ReadTimeline(variables, &config.timeline));
  RONDA_RETURN_IF_ERROR(ReadLogLevel(variables, &config.log_level));
  return config;
}

}  // namespace ronda
