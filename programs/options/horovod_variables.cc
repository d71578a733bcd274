// SPDX-License-Identifier: Apache-2.0

#include "programs/options/horovod_variables.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "programs/options/option_table.h"
#include "runtime/base/environment.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/variable_name.h"

namespace ronda {
namespace {

constexpr absl::string_view kPrefix = "HOROVOD_";
// Variables from the build of Horovod that are often still set in images, such as HOROVOD_WITH_PYTORCH and
// HOROVOD_WITHOUT_GLOO.
constexpr absl::string_view kBuildPrefix = "HOROVOD_WITH";

struct HorovodVariable {
  // How a variable's text becomes an option:
  //   kValue     the option takes the text unchanged
  //   kTimeline  like kValue, except for DYNAMIC
  //   kBytes     the variable is in bytes, and the option in MiB
  //   kSwitch    the text "1" sets the option
  //   kQuiet     no option: rondarun determines the value itself, or always does what the variable asks for
  enum class Form { kValue, kTimeline, kBytes, kSwitch, kQuiet };

  VariableName name;
  Form form = Form::kQuiet;
  absl::string_view option = {};
  VariableName twin = {};
};

using Form = HorovodVariable::Form;

// If two variables correspond to the same option, the first one decides.
constexpr HorovodVariable kTable[] = {
    {"HOROVOD_FUSION_THRESHOLD", Form::kBytes, "--fusion-threshold-mb", "RONDA_FUSION_THRESHOLD"},
    {"HOROVOD_CYCLE_TIME", Form::kValue, "--cycle-time-ms", "RONDA_CYCLE_TIME"},
    {"HOROVOD_CACHE_CAPACITY", Form::kValue, "--cache-capacity", "RONDA_CACHE_CAPACITY"},
    {"HOROVOD_HIERARCHICAL_ALLREDUCE", Form::kSwitch, "--hierarchical-allreduce", "RONDA_BACKEND"},
    {"HOROVOD_AUTOTUNE", Form::kSwitch, "--autotune", "RONDA_AUTOTUNE"},
    {"HOROVOD_AUTOTUNE_LOG", Form::kValue, "--autotune-log-file", "RONDA_AUTOTUNE_LOG"},
    {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", Form::kValue, "--autotune-steps-per-sample",
     "RONDA_AUTOTUNE_STEPS_PER_SAMPLE"},
    {"HOROVOD_TIMELINE", Form::kTimeline, "--timeline-filename", "RONDA_TIMELINE"},
    {"HOROVOD_STALL_CHECK_DISABLE", Form::kSwitch, "--no-stall-check", "RONDA_STALL_WARNING"},
    {"HOROVOD_STALL_CHECK_TIME_SECONDS", Form::kValue, "--stall-check-warning-time-seconds", "RONDA_STALL_WARNING"},
    {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", Form::kValue, "--stall-check-shutdown-time-seconds",
     "RONDA_STALL_DEADLINE"},
    {"HOROVOD_START_TIMEOUT", Form::kValue, "--start-timeout", "RONDA_START_TIMEOUT"},
    {"HOROVOD_GLOO_TIMEOUT_SECONDS", Form::kValue, "--start-timeout", "RONDA_START_TIMEOUT"},
    {"HOROVOD_GLOO_IFACE", Form::kValue, "--network-interfaces", "RONDA_NETWORK_INTERFACE"},
    {"HOROVOD_LOG_LEVEL", Form::kValue, "--log-level", "RONDA_LOG_LEVEL"},
    {"HOROVOD_TIMELINE_MARK_CYCLES"},
    {"HOROVOD_LOG_HIDE_TIME"},
    {"HOROVOD_RANK"},
    {"HOROVOD_SIZE"},
    {"HOROVOD_LOCAL_RANK"},
    {"HOROVOD_LOCAL_SIZE"},
    {"HOROVOD_CROSS_RANK"},
    {"HOROVOD_CROSS_SIZE"},
};

// Returns the value of the option, or nullopt if this text sets no option.
absl::StatusOr<std::optional<std::string>> OptionValue(const HorovodVariable& variable, const std::string& text) {
  if (text.empty() || variable.form == Form::kQuiet) return std::nullopt;
  // With DYNAMIC, a Horovod program starts the timeline itself. Ronda programs can always do so.
  if (variable.form == Form::kTimeline && text == "DYNAMIC") return std::nullopt;
  if (variable.form == Form::kValue || variable.form == Form::kTimeline) return text;
  if (variable.form == Form::kSwitch) {
    if (text == "0") return std::nullopt;
    if (text == "1") return "";
    return InvalidVariable(variable.name.view(), text, "0 or 1");
  }
  constexpr uint64_t kMebibyte = 1 << 20;
  constexpr uint64_t kMax = kMaxFusionThreshold * kMebibyte;
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(text, &bytes) || bytes > kMax) {
    return InvalidVariable(variable.name.view(), text,
                           absl::StrCat("a number of bytes from 0 to ", kMax, ", such as 67108864"));
  }
  // 20 digits after the point are exact, because the divisor is 2 to the 20th.
  return absl::StrFormat("%.20f", static_cast<double>(bytes) / kMebibyte);
}

}  // namespace

absl::StatusOr<std::vector<GivenOption>> HorovodOptions(const OptionTable& table, const ArgumentSources& sources) {
  std::vector<GivenOption> given;
  for (const HorovodVariable& variable : kTable) {
    const auto text = sources.variable(variable.name.c_str());
    if (!text || (variable.twin.exists() && sources.variable(variable.twin.c_str()))) continue;
    RONDA_ASSIGN_OR_RETURN(std::optional<std::string> value, OptionValue(variable, *text));
    const Option* const option = table.Find(variable.option);
    const bool is_given =
        std::any_of(given.begin(), given.end(), [&](const GivenOption& other) { return other.option == option; });
    if (!value || is_given) continue;
    given.push_back({.option = option,
                     .use = {.name = std::string(variable.option), .value = *std::move(value)},
                     .where = absl::StrCat(variable.name.view(), ": ")});
  }
  return given;
}

std::string DescribeUnusedHorovodVariables(const ArgumentSources& sources) {
  std::vector<absl::string_view> unused;
  const std::vector<std::string> variables = sources.variables();
  for (const absl::string_view variable : variables) {
    const absl::string_view name = variable.substr(0, variable.find('='));
    const bool is_horovods = absl::StartsWith(name, kPrefix) && !absl::StartsWith(name, kBuildPrefix);
    const bool is_known = std::any_of(std::begin(kTable), std::end(kTable),
                                      [&](const HorovodVariable& known) { return known.name.view() == name; });
    if (is_horovods && !is_known) unused.push_back(name);
  }
  if (unused.empty()) return "";
  std::sort(unused.begin(), unused.end());
  return absl::StrCat(absl::StrJoin(unused, ", "), unused.size() == 1 ? " has" : " have",
                      " no effect: rondarun knows no option that means the same (docs/rondarun.md)");
}

}  // namespace ronda
