// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_NEAREST_NAME_H_
#define RONDA_RUNTIME_BASE_NEAREST_NAME_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace ronda {

// The name in `known` that a user probably meant by `wrong`: a name that begins with `wrong`, or else the one with the
// fewest wrong letters: at most two, or three in a name of nine letters or more, and at most half of the letters. Empty
// if no name is similar.
absl::string_view NearestName(absl::string_view wrong, const std::vector<absl::string_view>& known);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_NEAREST_NAME_H_
