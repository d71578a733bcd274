#ifndef RONDA_RUNTIME_LAUNCH_OPTION_LIST_H_
#define RONDA_RUNTIME_LAUNCH_OPTION_LIST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/launch/option.h"

namespace ronda {

// All options, in the order of --help.
const std::vector<Option>& Options();

// The option of that name, or nullptr. In long names "_" and "-" are the same, as in torchrun's and Paddle's.
const Option* FindOption(absl::string_view name);

// INVALID_ARGUMENT that quotes `name`, with the name it most resembles if there is one.
absl::Status UnknownOption(absl::string_view name);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTION_LIST_H_
