// SPDX-License-Identifier: Apache-2.0

#include "client/job_options.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/arguments.h"
#include "runtime/backends/read_config.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/variable_name.h"

namespace ronda {
namespace {

// A setting of ronda_options that is a duration.
struct DurationOption {
  absl::string_view name;
  double value = 0;  // in units; 0: not set
  absl::Duration unit;
  absl::Duration negative;  // the meaning of a negative value
  const DurationRange& range;
};

// Sets *duration, unless the option is not set.
absl::Status SetDuration(const DurationOption& option, absl::Duration* duration) {
  if (option.value == 0) return absl::OkStatus();
  if (std::isnan(option.value)) {
    return absl::InvalidArgumentError(absl::StrCat("ronda_options.", option.name, " is not a number"));
  }
  const absl::Duration value = option.value < 0 ? option.negative : option.value * option.unit;
  const DurationRange& range = option.range;
  if (value < range.min || value > range.max) {
    return absl::InvalidArgumentError(absl::StrCat("ronda_options.", option.name, " is ", option.value,
                                                   ": it must be between ", absl::FormatDuration(range.min), " and ",
                                                   absl::FormatDuration(range.max)));
  }
  *duration = value;
  return absl::OkStatus();
}

absl::Status SetSize(absl::string_view option, int64_t value, int64_t max, size_t* size) {
  if (value > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("ronda_options.", option, " is ", value, ": it must be at most ", max));
  }
  if (value != 0) *size = value < 0 ? 0 : static_cast<size_t>(value);
  return absl::OkStatus();
}

absl::Status SetTunables(const ronda_options& options, Tunables* tunables) {
  constexpr absl::Duration kSecond = absl::Seconds(1), kZero = absl::ZeroDuration(), kNever = absl::InfiniteDuration();
  RONDA_RETURN_IF_ERROR(SetDuration(
      {"cycle_time_ms", options.cycle_time_ms, absl::Milliseconds(1), kZero, kCycleTimeRange}, &tunables->cycle_time));
  RONDA_RETURN_IF_ERROR(SetDuration({"stall_warning_s", options.stall_warning_s, kSecond, kNever, kStallWarningRange},
                                    &tunables->stall_warning));
  RONDA_RETURN_IF_ERROR(SetDuration(
      {"stall_deadline_s", options.stall_deadline_s, kSecond, kNever, kStallDeadlineRange}, &tunables->stall_deadline));
  RONDA_RETURN_IF_ERROR(SetDuration({"start_timeout_s", options.start_timeout_s, kSecond, kZero, kStartTimeoutRange},
                                    &tunables->start_timeout));
  constexpr int64_t kAnySize = std::numeric_limits<int64_t>::max();
  RONDA_RETURN_IF_ERROR(SetSize("fusion_threshold", options.fusion_threshold, kAnySize, &tunables->fusion_threshold));
  return SetSize("cache_capacity", options.cache_capacity, kCacheCapacityRange.max, &tunables->cache_capacity);
}

absl::Status SetProcessSets(const ronda_options& options, std::vector<std::vector<RankId>>* sets) {
  if (options.process_set_count < 0 || (options.process_set_count > 0 && options.process_sets == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat("ronda_options.process_set_count is ", options.process_set_count,
                                                   ": pass that many lists in process_sets"));
  }
  for (int i = 0; i < options.process_set_count; ++i) {
    const ronda_rank_list& list = options.process_sets[i];
    if (list.count <= 0 || list.ranks == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("ronda_options.process_sets[", i, "] has no ranks: list those of the set"));
    }
    sets->emplace_back(list.ranks, list.ranks + list.count);
  }
  return absl::OkStatus();
}

class Replacements {
 public:
  void Set(VariableName name, absl::string_view value) { values_[name.c_str()] = std::string(value); }
  void Set(VariableName name, int64_t value) { values_[name.c_str()] = absl::StrCat(value); }
  void Hide(VariableName name) { values_[name.c_str()] = std::nullopt; }

  // Returns the names of the variables that the options have set, for error messages.
  std::string Origin() const {
    std::vector<absl::string_view> names;
    for (const auto& [name, value] : values_) {
      if (value) names.push_back(name);
    }
    return names.empty() ? "" : absl::StrCat(" (ronda_options gives ", absl::StrJoin(names, ", "), ")");
  }

  EnvironmentReader Over(EnvironmentReader environment) const {
    return [values = values_, environment = std::move(environment)](const char* name) {
      const auto found = values.find(name);
      return found == values.end() ? environment(name) : found->second;
    };
  }

 private:
  std::map<std::string, std::optional<std::string>> values_;  // nullopt: hidden
};

absl::Status CheckPair(absl::string_view given, bool is_given, absl::string_view needed, bool is_needed_there) {
  if (!is_given || is_needed_there) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ronda_options.", given, " is set, but ronda_options.", needed,
                                                 " is not: set both, or neither to take them from the environment"));
}

absl::Status CheckPairs(const ronda_options& options) {
  RONDA_RETURN_IF_ERROR(CheckPair("rank", options.rank != 0, "size", options.size != 0));
  RONDA_RETURN_IF_ERROR(CheckPair("local_size", options.local_size != 0, "size", options.size != 0));
  RONDA_RETURN_IF_ERROR(CheckPair("local_rank", options.local_rank != 0, "local_size", options.local_size != 0));
  return CheckPair("master_address", options.master_address != nullptr, "master_port", options.master_port != 0);
}

void SetPlace(const ronda_options& options, Replacements* variables) {
  if (options.size == 0) return;
  variables->Set("RONDA_RANK", options.rank);
  variables->Set("RONDA_SIZE", options.size);
  variables->Hide("RONDA_LOCAL_RANK");
  variables->Hide("RONDA_LOCAL_SIZE");
  variables->Hide("RONDA_CROSS_RANK");
  variables->Hide("RONDA_CROSS_SIZE");
  if (options.master_port != 0) variables->Hide("RONDA_JOB_ID");
  if (options.local_size == 0) return;
  variables->Set("RONDA_LOCAL_RANK", options.local_rank);
  variables->Set("RONDA_LOCAL_SIZE", options.local_size);
}

}  // namespace

absl::Status ApplyOptions(const ronda_options* options, ClientOptions* client) {
  if (options == nullptr) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(const ronda_options known, CopySized(options, "ronda_options"));
  RONDA_RETURN_IF_ERROR(SetTunables(known, &client->tunables));
  return SetProcessSets(known, &client->process_sets);
}

absl::StatusOr<JobVariables> OverrideEnvironment(const ronda_options* options, EnvironmentReader environment) {
  if (options == nullptr) return JobVariables{.reader = std::move(environment), .origin = ""};
  RONDA_ASSIGN_OR_RETURN(const ronda_options known, CopySized(options, "ronda_options"));
  RONDA_RETURN_IF_ERROR(CheckPairs(known));
  Replacements variables;
  SetPlace(known, &variables);
  if (known.master_address != nullptr) variables.Set("RONDA_MASTER_ADDR", known.master_address);
  if (known.master_port != 0) variables.Set("RONDA_MASTER_PORT", known.master_port);
  if (known.secret != nullptr) variables.Set("RONDA_JOB_SECRET", known.secret);
  if (known.epoch != 0) variables.Set("RONDA_EPOCH", known.epoch);
  return JobVariables{.reader = variables.Over(std::move(environment)), .origin = variables.Origin()};
  // The static analyzer does not see that the reader, a std::function, keeps its memory when it is moved into the
  // StatusOr.
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)

EnvironmentReader EnvironmentAt(const EpochPlace& place, EnvironmentReader environment) {
  const Topology& at = place.topology;
  Replacements variables;
  variables.Set("RONDA_RANK", at.rank);
  variables.Set("RONDA_SIZE", at.size);
  variables.Set("RONDA_LOCAL_RANK", at.local_rank);
  variables.Set("RONDA_LOCAL_SIZE", at.local_size);
  variables.Set("RONDA_CROSS_RANK", at.cross_rank);
  variables.Set("RONDA_CROSS_SIZE", at.cross_size);
  variables.Set("RONDA_EPOCH", place.epoch);
  if (place.master_port != 0) {
    variables.Set("RONDA_MASTER_ADDR", place.master_address);
    variables.Set("RONDA_MASTER_PORT", place.master_port);
  }
  return variables.Over(std::move(environment));
}

absl::StatusOr<bool> HasOwnPlace(const ronda_options* options) {
  if (options == nullptr) return false;
  RONDA_ASSIGN_OR_RETURN(const ronda_options known, CopySized(options, "ronda_options"));
  if (known.size != 0 || known.epoch == 0) return known.size != 0;
  return absl::InvalidArgumentError(absl::StrCat("ronda_options.epoch is ", known.epoch,
                                                 ", but this process is a member of an elastic job, whose epochs its "
                                                 "launcher counts: leave it 0"));
}

}  // namespace ronda
