#ifndef RONDA_RUNTIME_LAUNCH_HOST_NAME_H_
#define RONDA_RUNTIME_LAUNCH_HOST_NAME_H_

#include <optional>
#include <utility>

#include "absl/strings/string_view.h"

namespace ronda {

// Whether `host` has only characters of names and addresses, and could not be taken for an option of ssh or mpirun.
bool IsHostName(absl::string_view host);

// Splits "HOST:TEXT" at its last colon: "alpha:2" is alpha and 2, "[fd00::1]:2" fd00::1 and 2. Only brackets tell where
// an IPv6 address ends. nullopt if there is no such host.
std::optional<std::pair<absl::string_view, absl::string_view>> SplitHost(absl::string_view text);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_HOST_NAME_H_
