// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_OPTIONS_HOROVOD_VARIABLES_H_
#define RONDA_PROGRAMS_OPTIONS_HOROVOD_VARIABLES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/options/arguments.h"
#include "programs/options/command_line.h"

namespace ronda {

// Converts Horovod's environment variables to the equivalent options of rondarun. Ignores a Horovod variable that is
// empty, or whose Ronda equivalent is also set. The options returned point into `table`. Errors: INVALID_ARGUMENT, with
// a text that names the variable, its value and the expected form.
absl::StatusOr<std::vector<GivenOption>> HorovodOptions(const OptionTable& table, const ArgumentSources& sources);

// Returns a line that lists the Horovod variables in the environment that have no effect, or "" if there are none.
std::string DescribeUnusedHorovodVariables(const ArgumentSources& sources);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_HOROVOD_VARIABLES_H_
