#include "client/options.h"

#include <cmath>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/argument_checks.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// `value` of an option in `unit`s; 0 keeps *duration and a negative one is `negative`.
absl::Status SetDuration(absl::string_view option, double value, absl::Duration unit, absl::Duration negative,
                         absl::Duration* duration) {
  if (std::isnan(value)) return absl::InvalidArgumentError(absl::StrCat("ronda_options.", option, " is not a number"));
  if (value != 0) *duration = value < 0 ? negative : value * unit;
  return absl::OkStatus();
}

void SetSize(int64_t value, size_t* size) {
  if (value != 0) *size = value < 0 ? 0 : static_cast<size_t>(value);
}

absl::Status SetTunables(const ronda_options& options, Tunables* tunables) {
  if (options.start_timeout_s < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ronda_options.start_timeout_s is ", options.start_timeout_s, ": it must not be negative"));
  }
  const absl::Duration never = absl::InfiniteDuration();
  RONDA_RETURN_IF_ERROR(SetDuration("cycle_time_ms", options.cycle_time_ms, absl::Milliseconds(1), absl::ZeroDuration(),
                                    &tunables->cycle_time));
  RONDA_RETURN_IF_ERROR(
      SetDuration("stall_warning_s", options.stall_warning_s, absl::Seconds(1), never, &tunables->stall_warning));
  RONDA_RETURN_IF_ERROR(
      SetDuration("stall_deadline_s", options.stall_deadline_s, absl::Seconds(1), never, &tunables->stall_deadline));
  RONDA_RETURN_IF_ERROR(SetDuration("start_timeout_s", options.start_timeout_s, absl::Seconds(1), absl::ZeroDuration(),
                                    &tunables->start_timeout));
  SetSize(options.fusion_threshold, &tunables->fusion_threshold);
  SetSize(options.cache_capacity, &tunables->cache_capacity);
  return absl::OkStatus();
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

}  // namespace

absl::Status ApplyOptions(const ronda_options* options, ClientOptions* client) {
  if (options == nullptr) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(const ronda_options known, CopySized(options, "ronda_options", "RONDA_OPTIONS_INIT"));
  RONDA_RETURN_IF_ERROR(SetTunables(known, &client->tunables));
  return SetProcessSets(known, &client->process_sets);
}

}  // namespace ronda
