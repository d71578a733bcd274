// Which variables the ranks of a job get.
#ifndef RONDA_RUNTIME_LAUNCH_LAUNCH_ENVIRONMENT_H_
#define RONDA_RUNTIME_LAUNCH_LAUNCH_ENVIRONMENT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ronda {

// "NAME" of "NAME=value".
absl::string_view NameOf(absl::string_view variable);

bool ContainsName(const std::vector<std::string>& variables, absl::string_view name);

// What the ranks inherit of the launcher's `environment` ("NAME=value"): all but what tells a rank its place in a job,
// as the launcher may be a rank of another one, with `settings` in place of what they replace.
std::vector<std::string> InheritedVariables(const std::vector<std::string>& environment,
                                            const std::map<std::string, std::string>& settings);

// Those of `variables` that ranks on other hosts get too: Ronda's, NCCL's, where programs and libraries are, the
// settings, and what the user names in `exports`.
std::vector<std::string> VariablesForOtherHosts(const std::vector<std::string>& variables,
                                                const std::map<std::string, std::string>& settings,
                                                const std::vector<std::string>& exports);

// How long the ranks that get `variables` may take to start: their RONDA_START_TIMEOUT, or its default if it is unset
// or makes no sense, which the ranks then say.
absl::Duration StartTimeoutOf(const std::vector<std::string>& variables);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_LAUNCH_ENVIRONMENT_H_
