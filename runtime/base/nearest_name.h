#ifndef RONDA_RUNTIME_BASE_NEAREST_NAME_H_
#define RONDA_RUNTIME_BASE_NEAREST_NAME_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace ronda {

// The name in `known` that a user meant by `wrong`: one that begins with it, or else the one with the fewest wrong
// letters, of which there are at most two, or three in a name of nine or more, and no more than half. Empty if there is
// none.
absl::string_view NearestName(absl::string_view wrong, const std::vector<absl::string_view>& known);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_NEAREST_NAME_H_
