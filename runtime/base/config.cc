#include "runtime/base/config.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/environment_variables.h"
#include "runtime/base/job_id.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Far beyond any job, and small enough that products of ranks and sizes stay far from overflow.
constexpr int64_t kMaxSize = 1 << 20;
constexpr int64_t kMaxCacheCapacity = 1 << 24;
constexpr int64_t kMaxLockAfter = 1000;
constexpr size_t kMaxAddressLength = 255;
constexpr absl::string_view kDefaultMasterAddress = "127.0.0.1";

// One launcher's names for the same facts; nullptr where it has none.
struct RankVariables {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* cross_rank;
  const char* cross_size;
  const char* source;
};

constexpr RankVariables kRondaVariables = {"RONDA_RANK",       "RONDA_SIZE",       "RONDA_LOCAL_RANK",
                                           "RONDA_LOCAL_SIZE", "RONDA_CROSS_RANK", "RONDA_CROSS_SIZE",
                                           "rondarun"};
constexpr RankVariables kTorchrunVariables = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr, nullptr, "torchrun-style variables"};

// Which variables show that a job was meant, so that a part of the settings is an error and not a job of one rank.
constexpr const char* kRondaSigns[] = {"RONDA_RANK",       "RONDA_SIZE",       "RONDA_LOCAL_RANK", "RONDA_LOCAL_SIZE",
                                       "RONDA_CROSS_RANK", "RONDA_CROSS_SIZE", "RONDA_JOB_ID"};
constexpr const char* kTorchrunSigns[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK",        "LOCAL_WORLD_SIZE",
                                          "MASTER_ADDR", "MASTER_PORT", "RONDA_MASTER_ADDR", "RONDA_MASTER_PORT"};

constexpr std::pair<absl::string_view, LogLevel> kLogLevels[] = {{"debug", LogLevel::kDebug},
                                                                 {"info", LogLevel::kInfo},
                                                                 {"warning", LogLevel::kWarning},
                                                                 {"error", LogLevel::kError},
                                                                 {"off", LogLevel::kOff}};

constexpr absl::string_view kBackends[] = {"shm"};

template <size_t n>
const char* FirstSet(const EnvironmentVariables& variables, const char* const (&names)[n]) {
  for (const char* name : names) {
    if (variables.IsSet(name)) return name;
  }
  return nullptr;
}

absl::Status MissingVariable(const char* missing, const char* given, const std::optional<std::string>& value) {
  return absl::InvalidArgumentError(absl::StrCat(missing, " is not set, but ", given, "=\"", value.value_or(""),
                                                 "\" is: set both, or neither for a job of one rank"));
}

// Reads a rank within a group and the group's size. Only one of them may be given; `limit` bounds the size.
absl::Status ReadGroup(const EnvironmentVariables& variables, const char* rank_name, const char* size_name, int limit,
                       std::optional<int>* rank, std::optional<int>* size) {
  if (rank_name == nullptr) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(variables.ReadInteger(size_name, {.min = 1, .max = limit}, size));
  return variables.ReadInteger(rank_name, {.min = 0, .max = size->value_or(limit) - 1}, rank);
}

// `sign` is the variable that showed that this launcher's variables are meant.
absl::Status ReadRanks(const EnvironmentVariables& variables, const RankVariables& names, const char* sign,
                       JobEnvironment* job) {
  for (const char* needed : {names.rank, names.size}) {
    if (!variables.IsSet(needed)) return MissingVariable(needed, sign, variables.Get(sign));
  }
  std::optional<int> rank;
  std::optional<int> size;
  RONDA_RETURN_IF_ERROR(ReadGroup(variables, names.rank, names.size, kMaxSize, &rank, &size));
  job->rank = *rank;
  job->size = *size;
  job->source = names.source;
  RONDA_RETURN_IF_ERROR(
      ReadGroup(variables, names.local_rank, names.local_size, job->size, &job->local_rank, &job->local_size));
  return ReadGroup(variables, names.cross_rank, names.cross_size, job->size, &job->cross_rank, &job->cross_size);
}

// Names and literal addresses; whether there is such a host is found out when it is used.
bool IsValidAddress(absl::string_view address) {
  if (address.empty() || address.size() > kMaxAddressLength) return false;
  return std::all_of(address.begin(), address.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
}

absl::Status ReadJobId(const EnvironmentVariables& variables, JobEnvironment* job) {
  const std::optional<std::string> id = variables.Get("RONDA_JOB_ID");
  if (!id) return absl::OkStatus();
  if (!IsValidJobId(*id)) {
    return InvalidVariable("RONDA_JOB_ID", *id, "1 to 64 letters, digits, '-', '_' or '.', not beginning with '.'");
  }
  job->job_id = *id;
  return absl::OkStatus();
}

// The one variable whose value never appears in a message.
absl::Status ReadJobSecret(const EnvironmentVariables& variables, JobEnvironment* job) {
  const std::optional<std::string> secret = variables.Get("RONDA_JOB_SECRET");
  if (!secret) return absl::OkStatus();
  if (secret->empty()) {
    return absl::InvalidArgumentError(
        "RONDA_JOB_SECRET is set but empty: give every rank the same secret, or unset it");
  }
  job->job_secret = *secret;
  return absl::OkStatus();
}

// torchrun keeps a store of its own on MASTER_PORT; Ronda's names let the two live side by side.
const char* MasterVariable(const EnvironmentVariables& variables, const char* ronda_name, const char* torchrun_name) {
  return variables.IsSet(ronda_name) ? ronda_name : torchrun_name;
}

absl::Status ReadMaster(const EnvironmentVariables& variables, JobEnvironment* job) {
  const char* address_name = MasterVariable(variables, "RONDA_MASTER_ADDR", "MASTER_ADDR");
  const char* port_name = MasterVariable(variables, "RONDA_MASTER_PORT", "MASTER_PORT");
  if (!variables.IsSet(port_name)) {
    if (variables.IsSet(address_name)) return MissingVariable(port_name, address_name, variables.Get(address_name));
    return absl::OkStatus();
  }
  int64_t port = 0;
  RONDA_RETURN_IF_ERROR(variables.ReadInteger(port_name, {.min = 1, .max = 65535}, &port));
  const std::string address = variables.Get(address_name).value_or(std::string(kDefaultMasterAddress));
  if (!IsValidAddress(address)) {
    return InvalidVariable(address_name, address, "a host name, an IPv4 address or an IPv6 address");
  }
  job->master_port = static_cast<int>(port);
  job->master_address = address;
  return absl::OkStatus();
}

absl::Status CheckRanksCanMeet(const RankVariables& names, const JobEnvironment& job) {
  if (job.size == 1 || !job.job_id.empty() || !job.master_address.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(names.size, "=\"", job.size,
                   "\", but nothing says how the ranks find each other: start the job with rondarun (which sets "
                   "RONDA_JOB_ID), or set MASTER_ADDR and MASTER_PORT to where rank 0 listens"));
}

absl::StatusOr<JobEnvironment> ReadJob(const EnvironmentVariables& variables) {
  JobEnvironment job;
  job.source = "single process";
  RONDA_RETURN_IF_ERROR(ReadJobSecret(variables, &job));
  const char* const ronda_sign = FirstSet(variables, kRondaSigns);
  const char* const sign = ronda_sign != nullptr ? ronda_sign : FirstSet(variables, kTorchrunSigns);
  if (sign == nullptr) return job;
  const RankVariables& names = ronda_sign != nullptr ? kRondaVariables : kTorchrunVariables;
  RONDA_RETURN_IF_ERROR(ReadRanks(variables, names, sign, &job));
  RONDA_RETURN_IF_ERROR(ReadJobId(variables, &job));
  if (job.job_id.empty()) RONDA_RETURN_IF_ERROR(ReadMaster(variables, &job));
  RONDA_RETURN_IF_ERROR(CheckRanksCanMeet(names, job));
  return job;
}

// A default gives way to a value that was set; two values that were set have to agree.
absl::Status ReadStallTimes(const EnvironmentVariables& variables, Tunables* tunables) {
  RONDA_RETURN_IF_ERROR(variables.ReadDuration(
      "RONDA_STALL_WARNING",
      {.min = absl::Nanoseconds(1), .expectation = "a duration above zero such as 60s, or inf for no warning"},
      &tunables->stall_warning));
  RONDA_RETURN_IF_ERROR(variables.ReadDuration(
      "RONDA_STALL_DEADLINE",
      {.min = absl::Nanoseconds(1), .expectation = "a duration above zero such as 10m, or inf for no deadline"},
      &tunables->stall_deadline));
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

absl::Status ReadPath(const EnvironmentVariables& variables, const char* name, std::string* path) {
  const std::optional<std::string> text = variables.Get(name);
  if (!text) return absl::OkStatus();
  if (text->empty()) return InvalidVariable(name, *text, "the name of a file to write");
  *path = *text;
  return absl::OkStatus();
}

absl::Status ReadAutotune(const EnvironmentVariables& variables, Tunables* tunables) {
  if (const std::optional<std::string> text = variables.Get("RONDA_AUTOTUNE")) {
    if (*text != "0" && *text != "1") return InvalidVariable("RONDA_AUTOTUNE", *text, "0 or 1");
    tunables->autotune = *text == "1" ? Tunables::Autotune::kOn : Tunables::Autotune::kOff;
  }
  RONDA_RETURN_IF_ERROR(ReadPath(variables, "RONDA_AUTOTUNE_LOG", &tunables->autotune_log));
  int64_t steps = tunables->autotune_steps_per_sample;
  RONDA_RETURN_IF_ERROR(variables.ReadInteger("RONDA_AUTOTUNE_STEPS_PER_SAMPLE", {.min = 4, .max = 1000}, &steps));
  tunables->autotune_steps_per_sample = static_cast<int>(steps);
  return absl::OkStatus();
}

absl::StatusOr<Tunables> ReadTunables(const EnvironmentVariables& variables) {
  Tunables tunables;
  RONDA_RETURN_IF_ERROR(variables.ReadDuration(
      "RONDA_CYCLE_TIME", {.max = absl::Hours(1), .expectation = "a duration from 0 to 1h, such as 1ms"},
      &tunables.cycle_time));
  RONDA_RETURN_IF_ERROR(variables.ReadBytes("RONDA_FUSION_THRESHOLD", &tunables.fusion_threshold));
  int64_t cache_capacity = static_cast<int64_t>(tunables.cache_capacity);
  RONDA_RETURN_IF_ERROR(
      variables.ReadInteger("RONDA_CACHE_CAPACITY", {.min = 0, .max = kMaxCacheCapacity}, &cache_capacity));
  tunables.cache_capacity = static_cast<size_t>(cache_capacity);
  int64_t lock_after = tunables.lock_after;
  RONDA_RETURN_IF_ERROR(variables.ReadInteger("RONDA_LOCK_AFTER", {.min = 0, .max = kMaxLockAfter}, &lock_after));
  tunables.lock_after = static_cast<int>(lock_after);
  RONDA_RETURN_IF_ERROR(ReadStallTimes(variables, &tunables));
  RONDA_RETURN_IF_ERROR(variables.ReadDuration(
      "RONDA_START_TIMEOUT",
      {.min = absl::Milliseconds(1), .max = absl::Hours(24), .expectation = "a duration from 1ms to 24h, such as 30s"},
      &tunables.start_timeout));
  RONDA_RETURN_IF_ERROR(ReadPath(variables, "RONDA_NEGOTIATION_LOG", &tunables.negotiation_log));
  RONDA_RETURN_IF_ERROR(ReadAutotune(variables, &tunables));
  return tunables;
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

absl::Status ReadBackend(const EnvironmentVariables& variables, std::string* backend) {
  const std::optional<std::string> text = variables.Get("RONDA_BACKEND");
  if (!text) return absl::OkStatus();
  for (const absl::string_view name : kBackends) {
    if (*text != name) continue;
    *backend = *text;
    return absl::OkStatus();
  }
  return InvalidVariable("RONDA_BACKEND", *text, absl::StrJoin(kBackends, " or "));
}

}  // namespace

EnvironmentReader ProcessEnvironment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

absl::StatusOr<Config> ReadConfig(const EnvironmentReader& environment) {
  const EnvironmentVariables variables(environment);
  Config config;
  RONDA_ASSIGN_OR_RETURN(config.job, ReadJob(variables));
  RONDA_ASSIGN_OR_RETURN(config.tunables, ReadTunables(variables));
  RONDA_RETURN_IF_ERROR(ReadBackend(variables, &config.backend));
  RONDA_RETURN_IF_ERROR(ReadLogLevel(variables, &config.log_level));
  return config;
}

}  // namespace ronda
