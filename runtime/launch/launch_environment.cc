#include "runtime/launch/launch_environment.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/config.h"

namespace ronda {
namespace {

// Everything the launcher decides for a rank. Inherited values are dropped even where no new one is set.
constexpr absl::string_view kOwned[] = {"RONDA_RANK",
                                        "RONDA_SIZE",
                                        "RONDA_LOCAL_RANK",
                                        "RONDA_LOCAL_SIZE",
                                        "RONDA_CROSS_RANK",
                                        "RONDA_CROSS_SIZE",
                                        "RONDA_JOB_ID",
                                        "RONDA_JOB_SECRET",
                                        "RONDA_MASTER_ADDR",
                                        "RONDA_MASTER_PORT",
                                        "RONDA_OUTPUT_IS_TERMINAL"};

constexpr absl::string_view kPassedPrefixes[] = {"RONDA_", "NCCL_"};
constexpr absl::string_view kPassed[] = {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "OMP_NUM_THREADS",
                                         "CUDA_VISIBLE_DEVICES"};

bool Contains(const std::vector<std::string>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsPassed(absl::string_view name) {
  return std::find(std::begin(kPassed), std::end(kPassed), name) != std::end(kPassed) ||
         std::any_of(std::begin(kPassedPrefixes), std::end(kPassedPrefixes),
                     [&](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

}  // namespace

absl::string_view NameOf(absl::string_view variable) { return variable.substr(0, variable.find('=')); }

bool ContainsName(const std::vector<std::string>& variables, absl::string_view name) {
  return std::any_of(variables.begin(), variables.end(),
                     [&](const std::string& variable) { return NameOf(variable) == name; });
}

std::vector<std::string> InheritedVariables(const std::vector<std::string>& environment,
                                            const std::map<std::string, std::string>& settings) {
  std::vector<std::string> variables;
  for (const std::string& variable : environment) {
    const absl::string_view name = NameOf(variable);
    const bool is_owned = std::find(std::begin(kOwned), std::end(kOwned), name) != std::end(kOwned);
    if (!is_owned && !settings.contains(std::string(name))) variables.push_back(variable);
  }
  for (const auto& [name, value] : settings) variables.push_back(absl::StrCat(name, "=", value));
  return variables;
}

std::vector<std::string> VariablesForOtherHosts(const std::vector<std::string>& variables,
                                                const std::map<std::string, std::string>& settings,
                                                const std::vector<std::string>& exports) {
  std::vector<std::string> passed;
  for (const std::string& variable : variables) {
    const absl::string_view name = NameOf(variable);
    if (IsPassed(name) || settings.contains(std::string(name)) || Contains(exports, name)) passed.push_back(variable);
  }
  return passed;
}

absl::Duration StartTimeoutOf(const std::vector<std::string>& variables) {
  const absl::Duration otherwise = Tunables().start_timeout;
  for (const std::string& variable : variables) {
    if (NameOf(variable) != "RONDA_START_TIMEOUT") continue;
    absl::Duration timeout;
    const bool is_one = absl::ParseDuration(variable.substr(variable.find('=') + 1), &timeout);
    return is_one && timeout > absl::ZeroDuration() ? timeout : otherwise;
  }
  return otherwise;
}

}  // namespace ronda
