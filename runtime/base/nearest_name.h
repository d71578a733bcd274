#ifndef RONDA_RUNTIME_BASE_NEAREST_NAME_H_
#define RONDA_RUNTIME_BASE_NEAREST_NAME_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace ronda {

// The name in `known` that a user probably meant by `wrong`: a name that begins with `wrong`, or else one that differs
// in at most three letters and at most half of its letters. Empty if no name is similar.
absl::string_view NearestName(absl::string_view wrong, const std::vector<absl::string_view>& known);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_NEAREST_NAME_H_
