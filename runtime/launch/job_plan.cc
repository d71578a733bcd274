#include "runtime/launch/job_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "runtime/launch/launch_environment.h"
#include "runtime/launch/shell_quote.h"

namespace ronda {

std::map<std::string, std::string> SettingsOf(const LaunchOptions& options) {
  std::map<std::string, std::string> settings = options.settings;
  if (!options.devices.empty()) settings["CUDA_VISIBLE_DEVICES"] = absl::StrJoin(options.devices, ",");
  return settings;
}

std::string DescribeProcess(const std::vector<std::string>& variables, const std::vector<std::string>& inherited,
                            const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (const std::string& variable : variables) {
    if (std::find(inherited.begin(), inherited.end(), variable) != inherited.end()) continue;
    const absl::string_view name = NameOf(variable);
    words.push_back(name == "RONDA_JOB_SECRET" ? absl::StrCat(name, "=...")
                                               : absl::StrCat(name, "=", ShellQuote(variable.substr(name.size() + 1))));
  }
  words.push_back(ShellQuote(command));
  return absl::StrJoin(words, " ");
}

std::string DescribeJob(const LaunchOptions& options, const JobPlan& plan) {
  return absl::StrCat("job ", plan.job_id, plan.job_id.empty() ? "" : ": ", plan.ranks.size(),
                      plan.ranks.size() == 1 ? " rank" : " ranks", " of ", absl::StrJoin(options.command, " "));
}

}  // namespace ronda
