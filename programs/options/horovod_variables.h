// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_OPTIONS_HOROVOD_VARIABLES_H_
#define RONDA_PROGRAMS_OPTIONS_HOROVOD_VARIABLES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/options/arguments.h"
#include "programs/options/command_line.h"

namespace ronda {

// Reads Horovod's environment variables as the options of rondarun with the same meaning. A Horovod variable is ignored
// if it is empty, or if the Ronda variable with the same meaning is also set. The returned options point into `table`.
// Errors: INVALID_ARGUMENT that names the variable, its value and the right form.
absl::StatusOr<std::vector<GivenOption>> HorovodOptions(const OptionTable& table, const ArgumentSources& sources);

// Returns a line that names the Horovod variables in the environment that have no effect. Returns an empty text if no
// variable is without effect.
std::string DescribeUnusedHorovodVariables(const ArgumentSources& sources);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_HOROVOD_VARIABLES_H_
