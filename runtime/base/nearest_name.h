// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_NEAREST_NAME_H_
#define RONDA_RUNTIME_BASE_NEAREST_NAME_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace ronda {

// Returns the name in `known` that a user probably meant by `wrong`: preferably a name that begins with `wrong`,
// otherwise the name with the fewest wrong letters. At most two letters may be wrong, or three if `wrong` has nine or
// more letters, and never more than half of the letters. Returns an empty name if no name is similar.
absl::string_view NearestName(absl::string_view wrong, const std::vector<absl::string_view>& known);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_NEAREST_NAME_H_
